//! Tensors of almost 2 GiB, the most that the software adapter has in one, and views of almost 2^32 elements, the most
//! that kernels count. They take up to 6 GiB of memory and minutes: `cargo xtask test --only large`. Right values are
//! counted. Kernels that need an operand in one binding have their largest, which is 128 MiB on some software adapters.

use burn::tensor::module::max_pool2d;
use burn::tensor::{DType, Distribution, IndexingUpdateOp, Int, Tensor, s};
use burn_backend::Backend;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, failure, gpus, serial_guard};

/// Rows of 2^15 elements, which take almost 2 GiB.
const ROWS: usize = (1 << 14) - 1;
/// Almost as many elements, for kernels that read four at once to have a rest.
const ODD: usize = (ROWS << 15) - 5;
/// Elements in the largest binding.
const BOUND: usize = (1 << 25) - 3;

/// Runs a test on each device, one at a time, and gives its memory back.
fn on_each(test: impl Fn(&WgslDevice)) {
    let _guard = serial_guard();
    for device in devices() {
        test(&device);
        burn_wgsl::memory::trim(&device, 0).expect("there is such a device");
    }
}

/// Returns 0, 1, 2 ... in memory: `arange` alone is a pending result, which is fused into what reads it.
fn counted(len: usize, device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
    let numbers = Tensor::arange(0..len as i64, (device, DType::I32));
    Wgsl::sync(device).expect("the device works");
    numbers
}

fn ones<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    let ones = Tensor::ones(shape, (device, DType::F32));
    Wgsl::sync(device).expect("the device works");
    ones
}

fn integers<const D: usize>(tensor: Tensor<Wgsl, D, Int>) -> Vec<i32> {
    tensor.cast(DType::I32).into_data().to_vec().expect("i32")
}

fn numbers<const D: usize>(tensor: Tensor<Wgsl, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32")
}

#[test]
#[ignore = "takes 2 GiB"]
fn sums_and_means() {
    on_each(|device| {
        let x = ones([ROWS, 1 << 15], device);
        assert_eq!(numbers(x.clone().sum()), [(ROWS << 15) as f32], "{device}");
        assert_eq!(numbers(x.clone().mean()), [1.0], "{device}");
        assert!(numbers(x.clone().sum_dim(0)).iter().all(|&sum| sum == ROWS as f32), "{device}");
        assert!(numbers(x.sum_dim(1)).iter().all(|&sum| sum == 32_768.0), "{device}");
    });
}

#[test]
#[ignore = "takes minutes"]
fn means_of_views_of_as_many_elements_as_kernels_count() {
    on_each(|device| {
        // On the CPU a view is packed before it is reduced.
        let columns = if *device == WgslDevice::Cpu { 1 << 26 } else { 1_425_000_001 };
        let x = Tensor::<Wgsl, 2>::from_floats([[1.0], [2.0], [6.0]], device);
        assert_eq!(numbers(x.expand([3, columns]).mean()), [3.0], "{device}");
    });
}

#[test]
#[ignore = "takes 6 GiB"]
fn the_last_elements_are_found() {
    on_each(|device| {
        let last = ODD as i32 - 1;
        let x = counted(ODD, device);
        assert_eq!(integers(x.clone().argmax(0)), [last], "{device}");
        assert_eq!(integers(x.clone().max()), [last], "{device}");
        assert_eq!(integers(x.clone().slice(ODD - 3..ODD)), [last - 2, last - 1, last], "{device}");
        assert_eq!(integers(x.clone().flip([0]).slice(0..2)), [last, last - 1], "{device}");
        let x = x.slice_assign(s![ODD - 1..ODD], Tensor::from_ints([-7], device));
        assert_eq!(integers(x.slice(ODD - 2..ODD)), [last - 1, -7], "{device}");
    });
}

#[test]
#[ignore = "takes minutes"]
fn the_last_elements_of_a_binding_are_found() {
    on_each(|device| {
        let last = BOUND as i32 - 1;
        let x = counted(BOUND, device);
        let indices = Tensor::<Wgsl, 1, Int>::from_ints([last, 0, last / 2], device);
        assert_eq!(integers(x.clone().select(0, indices.clone())), [last, 0, last / 2], "{device}");
        assert_eq!(integers(x.clone().gather(0, indices)), [last, 0, last / 2], "{device}");
        assert_eq!(integers(x.equal_elem(last).argwhere()), [last], "{device}");
    });
}

#[test]
#[ignore = "takes 4 GiB"]
fn scans_and_scatters_count() {
    on_each(|device| {
        let x = counted(BOUND, device);
        let of_ones = x.ones_like().cumsum(0);
        assert_eq!(integers((of_ones - x.clone() - 1).abs().max()), [0], "{device}");
        // Each of 16 counters gets as many ones.
        let counters = Tensor::<Wgsl, 1, Int>::zeros([16], (device, DType::I32));
        let into = x.clone().remainder_scalar(16);
        let counted = counters.scatter(0, into, x.ones_like(), IndexingUpdateOp::Add);
        let expected: Vec<i32> = (0..16).map(|i| (1 << 21) - i32::from(i >= 13)).collect();
        assert_eq!(integers(counted), expected, "{device}");
    });
}

#[test]
#[ignore = "takes 5 GiB"]
fn sorted_in_reverse() {
    on_each(|device| {
        let len = (1 << 24) + 3;
        let x = counted(len, device);
        let (sorted, indices) = x.clone().flip([0]).sort_with_indices(0);
        assert_eq!(integers((sorted - x.clone()).abs().max()), [0], "{device}");
        assert_eq!(integers((indices + x - (len as i32 - 1)).abs().max()), [0], "{device}");
    });
}

#[test]
#[ignore = "takes 4 GiB"]
fn products_fill_tensors() {
    on_each(|device| {
        let [rows, columns] = [1 << 15, ROWS];
        let left = counted(rows, device).float().reshape([rows, 1]).repeat_dim(1, 4);
        let right = counted(columns, device).float().reshape([1, columns]).repeat_dim(0, 4);
        let product = left.matmul(right);
        for [row, column] in [[0, 0], [1, 1], [rows - 1, 1], [1, columns - 1], [4096, 2048]] {
            let found = numbers(product.clone().slice([row..row + 1, column..column + 1]));
            assert_eq!(found, [(4 * row * column) as f32], "[{row}, {column}] on {device}");
        }
        let last = product.slice([rows - 1..rows, columns - 1..columns]);
        assert_eq!(numbers(last), [4.0 * 32_767.0 * 16_382.0], "{device}");
    });
}

#[test]
#[ignore = "takes minutes"]
fn pooling_reads_a_whole_binding() {
    on_each(|device| {
        let x = ones([2, 1, 1 << 12, 1 << 12], device);
        let last = (1 << 12) - 1;
        let seven = Tensor::from_floats([[[[7.0]]]], device);
        let x = x.slice_assign([1..2, 0..1, last..last + 1, last..last + 1], seven);
        let pooled = max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], false);
        assert_eq!(numbers(pooled.clone().sum()), [(1 << 23) as f32 + 6.0], "{device}");
        let corner = [1..2, 0..1, last / 2..last / 2 + 1, last / 2..last / 2 + 1];
        assert_eq!(numbers(pooled.slice(corner)), [7.0], "{device}");
    });
}

#[test]
#[ignore = "takes 3 GiB"]
fn random_numbers_do_not_repeat() {
    on_each(|device| {
        let len = 1 << 28;
        let x = Tensor::<Wgsl, 1>::random([len], Distribution::Default, (device, DType::F32));
        Wgsl::sync(device).expect("the device works");
        let [first, second] = [0..len / 2, len / 2..len].map(|half| x.clone().slice(half));
        for half in [&first, &second] {
            let mean = numbers(half.clone().mean())[0];
            // Six standard deviations.
            assert!((mean - 0.5).abs() < 6.0 * 0.2887 / 11_585.0, "{mean} on {device}");
        }
        // Numbers have 24 bits: 2^27 pairs have eight that are equal by chance.
        let equal = numbers(first.equal(second).float().sum())[0];
        assert!(equal < 40.0, "{equal} pairs on {device}");
    });
}

#[test]
#[ignore = "takes 2 GiB where there is more"]
fn more_than_an_adapter_has_is_refused_by_name() {
    let _guard = serial_guard();
    for device in gpus() {
        let filled = std::panic::catch_unwind(|| ones([ROWS + 1, 1 << 15], &device));
        // An adapter that has more fills it.
        if let Err(panic) = filled {
            let message = failure("", panic);
            assert!(message.contains(&format!("float_ones on {device}:")), "{message}");
        }
    }
}
