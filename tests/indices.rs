//! Indices outside their axis: the CPU panics, and kernels, which cannot, report them with the next
//! readback.

mod common;

use burn::backend::Autodiff;
use burn::nn::EmbeddingConfig;
use burn::nn::loss::{CTCLossConfig, CrossEntropyLossConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{assert_success, gpus, panic_message, run_child, serial_guard};

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
            // The error is reported once. The kernel read the nearest element, and wrote none.
            assert_eq!(read(result).as_deref(), Ok(op.result), "{} on {device}", op.name);
        }
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
        // Of several ops, the first one is reported.
        let (first, second) = (x(&device).gather(1, grid(&device)), values(&device));
        let second = read(second.select(0, list(&device)));
        let error = second.expect_err("the index is outside");
        assert!(error.contains(&INDEX_OPS[0].message(-1)), "{error}");
        drop(first);
    }
}

/// More kinds of launches than the runtime tells apart between two readbacks.
#[test]
fn launches_on_axes_of_many_sizes_report_the_first_ones() {
    let _guard = serial_guard();
    for device in gpus() {
        let axis = Tensor::<Wgsl, 1>::ones([2000], &device);
        let outside = Tensor::from_ints([5000], &device);
        for size in 1..2000 {
            drop(axis.clone().narrow(0, 0, size).select(0, outside.clone()));
        }
        let error = read(axis.clone()).expect_err("the index is outside");
        let expected = "float_select: index 5000 is out of range for axis 0 of size 1";
        assert!(error.contains(expected), "{error}");
        assert_eq!(read(axis), Ok(vec![1.0; 2000]));
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
    assert_success(&run_child("ops_fail", &[("BURN_WGSL_CHECKED", "1")]));
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
    assert_success(&run_child("nothing_is_reported", &[("BURN_WGSL_INDEX_REPORTS", "0")]));
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
