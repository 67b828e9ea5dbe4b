//! Indices outside their axis: the CPU panics, and kernels, which cannot, report them with the next
//! readback.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use burn::backend::Autodiff;
use burn::nn::EmbeddingConfig;
use burn::nn::loss::{CTCLossConfig, CrossEntropyLossConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};
use burn_wgsl::runtime::Fault;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{
    self, assert_success, gpus, panic_message, run_child, serial_guard, test_alone,
};

type B = Autodiff<Wgsl>;

/// An op with indices outside an axis.
struct IndexOp {
    name: &'static str,
    /// The index that the CPU and that a GPU reports, and the axis and its size.
    cpu: i32,
    gpu: i32,
    axis: usize,
    size: usize,
    compute: fn(&WgslDevice) -> Tensor<Wgsl, 1>,
    /// The result of a kernel: it reads the nearest element, and writes none.
    result: &'static [f32],
}

/// Returns an op from the indices that the CPU and a GPU report, and the axis and its size.
const fn op(
    name: &'static str,
    [cpu, gpu]: [i32; 2],
    [axis, size]: [usize; 2],
    compute: fn(&WgslDevice) -> Tensor<Wgsl, 1>,
    result: &'static [f32],
) -> IndexOp {
    IndexOp { name, cpu, gpu, axis, size, compute, result }
}

impl IndexOp {
    /// Returns the start of the error message for an index.
    fn message(&self, index: i32) -> String {
        let Self { name, axis, size, .. } = self;
        format!("{name}: index {index} is out of range for axis {axis} of size {size}")
    }
}

fn x(device: &WgslDevice) -> Tensor<Wgsl, 2> {
    Tensor::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device)
}

fn small(device: &WgslDevice) -> Tensor<Wgsl, 2, Bool> {
    x(device).lower_elem(2.0)
}

fn large(device: &WgslDevice) -> Tensor<Wgsl, 2, Bool> {
    x(device).greater_elem(4.0)
}

fn grid(device: &WgslDevice) -> Tensor<Wgsl, 2, Int> {
    Tensor::from_ints([[-5, 1, 99], [2, -1, 3]], device)
}

fn list(device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
    Tensor::from_ints([7, 0, -3], device)
}

fn rows(device: &WgslDevice) -> Tensor<Wgsl, 2, Int> {
    Tensor::from_ints([[0, 1], [2, 0], [-1, 1], [1, 2]], device)
}

fn values(device: &WgslDevice) -> Tensor<Wgsl, 1> {
    Tensor::from_floats([10.0, 20.0, 30.0, 40.0], device)
}

/// Indices of many updates to few lines, which are sorted first. The last one is outside.
fn many(device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
    let mut indices = vec![0; 5000];
    indices[4999] = 3;
    Tensor::from_ints(indices.as_slice(), device)
}

const ADD: IndexingUpdateOp = IndexingUpdateOp::Add;

const INDEX_OPS: [IndexOp; 13] = [
    op(
        "float_gather",
        [-5, -1],
        [1, 3],
        |device| x(device).gather(1, grid(device)).flatten(0, 1),
        &[1.0, 2.0, 3.0, 6.0, 4.0, 6.0],
    ),
    op(
        "int_gather",
        [-5, -1],
        [0, 2],
        |device| x(device).int().gather(0, grid(device)).float().flatten(0, 1),
        &[1.0, 5.0, 6.0, 4.0, 2.0, 6.0],
    ),
    op(
        "float_select",
        [7, -3],
        [0, 2],
        |device| x(device).select(0, list(device)).flatten(0, 1),
        &[4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0],
    ),
    op(
        "float_gather_nd",
        [2, -1],
        [0, 2],
        |device| x(device).gather_nd(rows(device)),
        &[2.0, 4.0, 2.0, 6.0],
    ),
    op(
        "embedding",
        [-5, -1],
        [0, 2],
        |device| burn::tensor::module::embedding(x(device), grid(device)).flatten(0, 2),
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 4.0, 5.0, 6.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    ),
    op(
        "float_scatter_add",
        [-5, -1],
        [1, 3],
        |device| x(device).scatter(1, grid(device), x(device), ADD).flatten(0, 1),
        &[1.0, 4.0, 3.0, 4.0, 5.0, 10.0],
    ),
    op(
        "float_scatter_add",
        [3, 3],
        [0, 3],
        |device| {
            values(device).narrow(0, 0, 3).scatter(
                0,
                many(device),
                many(device).float().ones_like(),
                ADD,
            )
        },
        &[5009.0, 20.0, 30.0],
    ),
    op(
        "float_select_add",
        [7, -3],
        [1, 3],
        |device| x(device).select_assign(1, list(device), x(device), ADD).flatten(0, 1),
        &[3.0, 2.0, 3.0, 9.0, 5.0, 6.0],
    ),
    op(
        "float_select_add",
        [3, 3],
        [0, 3],
        |device| {
            values(device).narrow(0, 0, 3).select_assign(
                0,
                many(device),
                many(device).float().ones_like(),
                ADD,
            )
        },
        &[5009.0, 20.0, 30.0],
    ),
    op(
        "float_scatter_nd",
        [2, -1],
        [0, 2],
        |device| x(device).scatter_nd(rows(device), values(device), ADD).flatten(0, 1),
        &[1.0, 12.0, 3.0, 4.0, 5.0, 46.0],
    ),
    op(
        "float_scatter_nd",
        [2, -1],
        [0, 2],
        |device| {
            let assign = IndexingUpdateOp::Assign;
            x(device).scatter_nd(rows(device), values(device), assign).flatten(0, 1)
        },
        &[1.0, 10.0, 3.0, 4.0, 5.0, 40.0],
    ),
    op(
        "bool_scatter_or",
        [-5, -1],
        [1, 3],
        |device| small(device).scatter(1, grid(device), large(device), ADD).float().flatten(0, 1),
        &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ),
    op(
        "bool_select_or",
        [7, -3],
        [1, 3],
        |device| {
            small(device).select_assign(1, list(device), large(device), ADD).float().flatten(0, 1)
        },
        &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    ),
];

/// Reads a tensor, and returns the elements or the message of the error.
fn read<B: Backend>(tensor: Tensor<B, 1>) -> Result<Vec<f32>, String> {
    let data = tensor.try_into_data().map_err(|error| error.to_string())?;
    Ok(data.iter().collect())
}

#[test]
fn the_cpu_panics_at_indices_out_of_range() {
    for op in INDEX_OPS {
        let text = panic_message(move || drop((op.compute)(&WgslDevice::Cpu)));
        assert!(text.contains(&op.message(op.cpu)), "{text}");
    }
}

#[test]
fn kernels_report_indices_out_of_range_with_the_next_readback() {
    let _guard = serial_guard();
    for device in gpus() {
        for op in INDEX_OPS {
            let result = (op.compute)(&device);
            let error = read(result.clone()).expect_err(op.name);
            assert!(error.contains(&op.message(op.gpu)), "{}: {error}", op.name);
            Wgsl::sync(&device).expect("the program has the error");
        }
    }
}

/// Computes `f` of a result with an index out of range, which may panic if that is known.
fn is_error(f: impl FnOnce() -> Tensor<Wgsl, 1>) -> bool {
    catch_unwind(AssertUnwindSafe(f)).map_or(true, |result| read(result).is_err())
}

#[test]
fn errors_stay_with_every_result_that_depends_on_the_index() {
    let _guard = serial_guard();
    for device in gpus() {
        for synced in [false, true] {
            for op in INDEX_OPS {
                let other = Tensor::<Wgsl, 1>::ones([op.result.len()], &device);
                let unrelated = other.clone() * 2.0;
                let bad = (op.compute)(&device);
                let derived = bad.clone() + other.clone();
                let sum = derived.clone().exp().sum();
                let product = bad.clone().unsqueeze::<2>().matmul(other.unsqueeze_dim(1));
                if synced {
                    Wgsl::sync(&device).expect_err("an index is outside");
                }
                for _ in 0..2 {
                    assert!(read(bad.clone()).is_err(), "{}", op.name);
                    assert!(is_error(|| derived.clone()), "{}", op.name);
                    assert!(is_error(|| sum.clone()), "{}", op.name);
                    assert!(is_error(|| product.clone().flatten(0, 1)), "{}", op.name);
                    assert!(is_error(|| bad.clone() * 3.0), "{}", op.name);
                }
                let printed = format!("{bad}");
                assert!(printed.contains("data not available"), "{printed}");
                let expected = vec![2.0; op.result.len()];
                assert_eq!(read(unrelated), Ok(expected), "{}", op.name);
                Wgsl::sync(&device).expect("the program has the error");
            }
        }
    }
}

/// An embedding with a good and one with a bad index, of the same table.
#[test]
fn errors_do_not_reach_other_launches_of_the_same_op() {
    let _guard = serial_guard();
    for device in gpus() {
        let table = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0, 3.0], &device);
        let select = |index: i32| table.clone().select(0, Tensor::from_ints([index], &device));
        let (good, bad) = (select(1), select(9));
        // One kernel computes what both lead to, and keeps the first.
        let kept = good.clone() * 10.0;
        let joined = kept.clone() + bad.clone();
        // As an optimizer does it: pending results of the same program.
        let updates = [good.clone() - 0.5, bad.clone() - 0.5, table.clone().narrow(0, 0, 1) - 0.5];
        assert!(read(joined).is_err());
        assert_eq!(read(kept), Ok(vec![20.0]));
        let [first, second, third] = updates;
        assert!(is_error(|| second));
        assert_eq!((read(first), read(third)), (Ok(vec![1.5]), Ok(vec![0.5])));
        assert_eq!((read(good), read(table.clone())), (Ok(vec![2.0]), Ok(vec![1.0, 2.0, 3.0])));
        drop(bad);
    }
}

/// More launches than the runtime has slots for between two readbacks.
#[test]
fn no_report_is_lost_after_thousands_of_launches() {
    let _guard = serial_guard();
    for device in gpus() {
        let (axis, [inside, outside]) = axis_and_indices(&device);
        let mut results = Vec::new();
        for launch in 0..2500 {
            let index = if launch == 1200 || launch == 2499 { &outside } else { &inside };
            results.push(axis.clone().select(0, index.clone()));
        }
        // A chain: each result depends on all launches before.
        let mut chain = axis.clone();
        for _ in 0..1500 {
            let position = chain.clone().lower_elem(0.0).int();
            chain = chain.gather(0, position);
        }
        assert_eq!(read(chain), Ok(vec![4.0, 4.0]));
        for (launch, result) in results.into_iter().enumerate() {
            let found = read(result);
            match launch {
                1200 | 2499 => assert!(found.expect_err("outside").contains("index 5000")),
                _ => assert_eq!(found, Ok(vec![5.0])),
            }
        }
        Wgsl::sync(&device).expect("the program has both errors");
    }
}

/// Large results are stored in the memory of operands that nobody needs any more.
#[test]
fn results_in_overwritten_memory_do_not_have_its_error() {
    let _guard = serial_guard();
    const LEN: usize = 1 << 18;
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::ones([LEN], &device);
        let indices = Tensor::<Wgsl, 1, Int>::arange(0..LEN as i64, &device) + 1;
        let bad = x.clone().select(0, indices);
        let kept = x.clone() + 1.0;
        let product = kept.clone() * bad;
        assert!(is_error(|| product));
        assert_eq!(read(kept), Ok(vec![2.0; LEN]));
    }
}

/// Returns an axis of two elements, and an index inside and one outside of it.
fn axis_and_indices(device: &WgslDevice) -> (Tensor<Wgsl, 1>, [Tensor<Wgsl, 1, Int>; 2]) {
    let indices = [1, 5000].map(|index| Tensor::from_ints([index], device));
    (Tensor::from_floats([4.0, 5.0], device), indices)
}

#[test]
fn errors_are_kept_if_a_later_submission_fails() {
    let _guard = serial_guard();
    for device in gpus() {
        let runtime = common::runtime_of(&device);
        let (axis, [inside, outside]) = axis_and_indices(&device);
        Wgsl::sync(&device).expect("nothing failed yet");
        let bad = axis.clone().select(0, outside);
        runtime.flush().expect("it is submitted");
        runtime.plan_fault(Fault::Submit, 0);
        // As many as are submitted at once, and some more. Their errors are not of interest.
        for _ in 0..70 {
            let _ = catch_unwind(AssertUnwindSafe(|| axis.clone().select(0, inside.clone())));
        }
        let _ = read(axis.clone() + 1.0);
        assert!(!runtime.cancel_fault(), "no submission failed on {device}");
        let error = read(bad).expect_err("its index is outside");
        assert!(error.contains("index 5000"), "{error}");
        let _ = Wgsl::sync(&device);
        assert_eq!(read(axis.select(0, inside)), Ok(vec![5.0]));
    }
}

/// Returns the error that `sync` reports.
fn sync_error(device: &WgslDevice) -> Option<String> {
    Wgsl::sync(device).err().map(|error| error.to_string())
}

#[test]
fn a_failed_copy_of_slots_loses_no_error() {
    /// The launches after which their slots are copied.
    const LAUNCHES: usize = 512;
    let _guard = serial_guard();
    for device in gpus() {
        let runtime = common::runtime_of(&device);
        let (axis, [inside, outside]) = axis_and_indices(&device);
        let select = |index: &Tensor<Wgsl, 1, Int>| axis.clone().select(0, index.clone());
        Wgsl::sync(&device).expect("nothing failed yet");
        let results: Vec<_> = (0..LAUNCHES).map(|_| select(&inside)).collect();
        runtime.flush().expect("they are submitted");
        runtime.plan_fault(Fault::Submit, 0);
        let bad = catch_unwind(AssertUnwindSafe(|| select(&outside)));
        assert!(!runtime.cancel_fault(), "the slots are copied on {device}");
        // Of the submission, of the index, or of both.
        let errors = [bad.err().map(|_| String::new()), sync_error(&device), sync_error(&device)];
        let has_index = errors.iter().flatten().any(|error| error.contains("index 5000"));
        assert!(has_index, "{errors:?} on {device}");
        for _ in 0..3 {
            let error = read(select(&outside)).expect_err("its index is outside");
            assert!(error.contains("index 5000"), "{error}");
            assert_eq!(read(select(&inside)), Ok(vec![5.0]));
        }
        for result in results {
            assert_eq!(read(result), Ok(vec![5.0]));
        }
    }
}

/// Of a program that reads nothing for many steps.
#[test]
fn an_error_is_known_without_a_reading() {
    let _guard = serial_guard();
    for device in gpus() {
        let (axis, [_, outside]) = axis_and_indices(&device);
        let first = Tensor::<Wgsl, 1, Int>::from_ints([0], &device);
        Wgsl::sync(&device).expect("nothing failed yet");
        let bad = axis.select(0, outside);
        // The slots are copied twice, with time for the device in between: the second copy reads the first.
        let is_known = (0..1500).any(|_| {
            thread::sleep(Duration::from_millis(1));
            catch_unwind(AssertUnwindSafe(|| drop(bad.clone().select(0, first.clone())))).is_err()
        });
        assert!(is_known, "on {device}");
        let _ = Wgsl::sync(&device);
    }
}

#[test]
fn sync_reports_indices_out_of_range() {
    let _guard = serial_guard();
    for device in gpus() {
        let unread = x(&device).select(0, list(&device));
        let error = Wgsl::sync(&device).expect_err("the index is outside").to_string();
        assert!(error.contains(&INDEX_OPS[2].message(-3)), "{error}");
        Wgsl::sync(&device).expect("the error is reported once");
        drop(unread);
        // Each error is reported once, the first one first.
        let (first, second) = (x(&device).gather(1, grid(&device)), values(&device));
        let second = second.select(0, list(&device));
        for op in [&INDEX_OPS[0], &INDEX_OPS[2]] {
            let error = Wgsl::sync(&device).expect_err("an index is outside").to_string();
            assert!(error.contains(&format!("{}: index {}", op.name, op.gpu)), "{error}");
        }
        Wgsl::sync(&device).expect("both errors are reported");
        drop((first, second));
    }
}

/// A label or a token out of range must not train in silence.
#[test]
fn labels_and_tokens_out_of_range_are_errors_on_every_device() {
    let _guard = serial_guard();
    for device in common::devices() {
        check_labels_and_tokens(&device, "is out of range");
    }
}

/// Computes losses and an embedding with indices outside their axis, each of which must fail.
fn check_labels_and_tokens(device: &WgslDevice, message: &str) {
    let device = *device;
    let text = panic_message(move || {
        let loss = CrossEntropyLossConfig::new().init::<B>(&device);
        let logits = Tensor::<B, 2>::ones([2, 4], &device);
        drop(loss.forward(logits, Tensor::from_ints([3, 7], &device)).into_data());
    });
    assert!(text.contains(&format!("float_gather: index 7 {message}")), "{text}");
    let text = panic_message(move || {
        let embedding = EmbeddingConfig::new(10, 3).init::<B>(&device);
        drop(embedding.forward(Tensor::from_ints([[0, 99]], &device)).into_data());
    });
    assert!(text.contains(&format!("embedding: index 99 {message}")), "{text}");
    let text = panic_message(move || {
        let ints = |values: &[i32]| Tensor::<B, 1, Int>::from_ints(values, &device);
        let log_probs = Tensor::<B, 3>::zeros([5, 1, 4], &device);
        let targets = ints(&[1, 7]).unsqueeze();
        let loss = CTCLossConfig::new().init();
        drop(loss.forward(log_probs, targets, ints(&[5]), ints(&[2])).into_data());
    });
    assert!(text.contains(&format!("ctc_loss: index 7 {message}")), "{text}");
}

#[test]
fn with_all_checks_the_op_itself_fails() {
    assert_success(&run_child(test_alone!("ops_fail"), &[("BURN_WGSL_CHECKED", "1")]));
}

#[test]
#[ignore = "runs in a child process"]
fn ops_fail() {
    for device in gpus() {
        for op in INDEX_OPS {
            let text = panic_message(move || drop((op.compute)(&device)));
            assert!(text.contains(&op.message(op.gpu)), "{text}");
        }
        check_labels_and_tokens(&device, "is out of range");
    }
}

#[test]
fn reports_can_be_switched_off() {
    assert_success(&run_child(
        test_alone!("nothing_is_reported"),
        &[("BURN_WGSL_INDEX_REPORTS", "0")],
    ));
}

#[test]
#[ignore = "runs in a child process"]
fn nothing_is_reported() {
    for device in gpus() {
        for op in INDEX_OPS {
            assert_eq!(read((op.compute)(&device)).as_deref(), Ok(op.result), "{}", op.name);
        }
        Wgsl::sync(&device).expect("nothing is reported");
    }
}

#[cfg(feature = "train")]
#[test]
fn labels_that_are_no_class_are_errors_of_a_confusion_matrix() {
    use burn_wgsl::train::Confusion;

    let _guard = serial_guard();
    for device in gpus() {
        for label in [-1, 3, 1000] {
            let scores = Tensor::<Wgsl, 2>::ones([1, 3], &device);
            let mut confusion = Confusion::new(3, &device);
            confusion.add(scores, Tensor::<Wgsl, 1, Int>::from_ints([label], &device));
            let error = confusion.read().and_then(|reading| reading.take()).expect_err("no class");
            assert!(error.to_string().contains("out of range"), "{label}: {error}");
        }
    }
}
