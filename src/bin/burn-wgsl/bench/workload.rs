//! What is measured, as data: each workload names its sizes, builds its tensors, and knows its operations and bytes.

use burn::tensor::activation::{gelu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::{attention, conv2d};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions, PaddedConvOptions};
use burn::tensor::{Distribution, FloatDType, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use clap::ValueEnum;
use serde::Serialize;

use super::job::{Job, op};
use super::train;

/// A family of workloads that share the meaning of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Products of square f32 matrices; the size is their side
    Matmul,
    /// Addition and gelu; the size is the number of elements
    Elementwise,
    /// Sums of rows and of columns, and softmax; the size is the side of a square matrix
    Reduce,
    /// A 3x3 convolution of 64 channels; the size is the side of the images
    Conv,
    /// Attention with 8 heads; the size is the length of the sequence
    Attention,
    /// Copies from the host to the device and back; the size is in MiB
    Transfer,
    /// Matrix products in f32, f16 and bf16: time, and error against f64; the size is their side
    Precision,
    /// Training steps of three small models; the size is the batch
    Train,
    /// All of these
    All,
}

/// One op or training step, at any size.
pub struct Workload {
    pub suite: Suite,
    pub name: &'static str,
    /// Shapes and settings, with the size by the name in `unit`.
    pub what: &'static str,
    pub unit: &'static str,
    pub sizes: &'static [usize],
    /// The sizes of a quick run.
    pub quick: &'static [usize],
    /// A size beyond this is a slip of the finger.
    pub largest: usize,
    pub cost: fn(usize) -> Cost,
    pub prepare: fn(usize, &WgslDevice) -> Box<dyn Job>,
    /// How far the result is from the truth: the norm of the difference over the norm of the truth.
    pub error: Option<fn(usize, &WgslDevice) -> f64>,
    /// Whether it means nothing on the CPU device.
    pub gpu_only: bool,
}

/// What one run takes, by the definition of the op rather than by what a kernel happens to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Floating-point operations; 0 where nobody counts them alike.
    pub flops: f64,
    /// Bytes read and written if every operand is read once and every result written once; 0 where that says nothing.
    pub bytes: f64,
    /// The bytes of the largest tensor.
    pub largest: f64,
    /// The bytes of everything that is alive at once.
    pub memory: f64,
}

/// The cost of an op of f32 tensors of so many elements, which all live at once.
fn floats<const N: usize>(flops: f64, tensors: [f64; N]) -> Cost {
    let bytes = 4.0 * tensors.iter().sum::<f64>();
    let largest = 4.0 * tensors.iter().copied().fold(0.0, f64::max);
    Cost { flops, bytes, largest, memory: bytes }
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// What most workloads have in common.
const PLAIN: Workload = Workload {
    suite: Suite::All,
    name: "",
    what: "",
    unit: "n",
    sizes: &[],
    quick: &[],
    largest: 0,
    cost: |_| Cost { flops: 0.0, bytes: 0.0, largest: 0.0, memory: 0.0 },
    prepare: |_, _| op(|| ()),
    error: None,
    gpu_only: false,
};

const MATMUL: Workload = Workload {
    suite: Suite::Matmul,
    name: "matmul",
    what: "[n, n] x [n, n], f32",
    sizes: &[64, 128, 256, 512, 1024, 2048],
    quick: &[64, 128, 256, 512, 1024],
    largest: 1 << 15,
    cost: |n| floats(2.0 * (n as f64).powi(3), [(n as f64).powi(2); 3]),
    prepare: |n, device| product(n, device, FloatDType::F32),
    ..PLAIN
};

const ELEMENTWISE: Workload = Workload {
    suite: Suite::Elementwise,
    sizes: &[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24],
    quick: &[1 << 10, 1 << 14, 1 << 18, 1 << 22],
    largest: 1 << 31,
    ..PLAIN
};

const REDUCE: Workload = Workload {
    suite: Suite::Reduce,
    sizes: &[64, 128, 256, 512, 1024, 2048, 4096],
    quick: &[64, 256, 1024, 2048],
    largest: 1 << 15,
    ..PLAIN
};

const PRECISION: Workload = Workload {
    suite: Suite::Precision,
    sizes: &[256, 512, 1024],
    quick: &[256, 512],
    // The truth takes a product in f64 on the CPU.
    largest: 1 << 12,
    ..PLAIN
};

const TRANSFER: Workload = Workload {
    suite: Suite::Transfer,
    unit: "MiB",
    sizes: &[1, 4, 16, 64, 256, 1024],
    quick: &[1, 8, 64],
    largest: 1 << 16,
    gpu_only: true,
    ..PLAIN
};

/// Everything that can be measured, in the order of the report.
pub const WORKLOADS: &[Workload] = &[
    MATMUL,
    Workload {
        name: "add",
        what: "a + b of n elements, f32",
        cost: |n| floats(n as f64, [n as f64; 3]),
        prepare: |n, device| {
            let [a, b] = [0; 2].map(|_| random([n], device));
            op(move || a.clone() + b.clone())
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "gelu",
        what: "gelu of n elements, f32",
        cost: |n| floats(0.0, [n as f64; 2]),
        prepare: |n, device| {
            let a = random([n], device);
            op(move || gelu(a.clone()))
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "sum rows",
        what: "[n, n] summed along its last axis, f32",
        cost: |n| floats((n as f64).powi(2), [(n as f64).powi(2), n as f64]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || a.clone().sum_dim(1))
        },
        ..REDUCE
    },
    Workload {
        name: "sum columns",
        what: "[n, n] summed along its first axis, f32",
        cost: |n| floats((n as f64).powi(2), [(n as f64).powi(2), n as f64]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || a.clone().sum_dim(0))
        },
        ..REDUCE
    },
    Workload {
        name: "softmax",
        what: "softmax of the rows of [n, n], f32",
        cost: |n| floats(0.0, [(n as f64).powi(2); 2]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || softmax(a.clone(), 1))
        },
        ..REDUCE
    },
    Workload {
        suite: Suite::Conv,
        name: "conv2d",
        what: "[16, 64, n, n] with 64 filters of 3x3, padded to keep its size, f32",
        sizes: &[4, 8, 16, 32, 64],
        quick: &[4, 8, 16, 32],
        largest: 1 << 12,
        cost: |n| {
            let pixels = 16.0 * (n as f64).powi(2);
            floats(
                2.0 * pixels * 64.0 * 64.0 * 9.0,
                [pixels * 64.0, 64.0 * 64.0 * 9.0, pixels * 64.0],
            )
        },
        prepare: |n, device| {
            let (x, weight) = (random([16, 64, n, n], device), random([64, 64, 3, 3], device));
            let options = PaddedConvOptions::from(ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
            op(move || conv2d(x.clone(), weight.clone(), None, options.clone()))
        },
        ..PLAIN
    },
    Workload {
        suite: Suite::Attention,
        name: "attention",
        what: "batch 4, 8 heads of 64, sequence n, no mask, f32",
        sizes: &[32, 64, 128, 256, 512, 1024],
        quick: &[32, 128, 256],
        largest: 1 << 14,
        cost: |n| {
            let rows = 4.0 * 8.0 * n as f64;
            let cost = floats(4.0 * rows * n as f64 * 64.0, [rows * 64.0; 4]);
            // Where it is not fused, the weights are a tensor too.
            let weights = 4.0 * rows * n as f64;
            Cost { largest: cost.largest.max(weights), memory: cost.memory + 2.0 * weights, ..cost }
        },
        prepare: |n, device| {
            let [q, k, v] = [0; 3].map(|_| random([4, 8, n, 64], device));
            op(move || {
                attention(
                    q.clone(),
                    k.clone(),
                    v.clone(),
                    None,
                    None,
                    AttentionModuleOptions::default(),
                )
            })
        },
        ..PLAIN
    },
    Workload {
        name: "upload",
        what: "f32 data of the host to the device",
        cost: transferred,
        prepare: |mib, device| Box::new(Upload::new(mib, device)),
        ..TRANSFER
    },
    Workload {
        name: "readback",
        what: "an f32 tensor of the device to the host",
        cost: transferred,
        prepare: |mib, device| {
            let x = Tensor::<Wgsl, 1>::ones([mib << 18], device);
            op(move || x.to_data())
        },
        ..TRANSFER
    },
    Workload {
        name: "matmul f32",
        what: "[n, n] x [n, n], f32",
        cost: |n| Cost { bytes: 0.0, ..(MATMUL.cost)(n) },
        prepare: |n, device| product(n, device, FloatDType::F32),
        error: Some(|n, device| product_error(n, device, FloatDType::F32)),
        ..PRECISION
    },
    Workload {
        name: "matmul f16",
        what: "[n, n] x [n, n], f16",
        cost: half_product,
        prepare: |n, device| product(n, device, FloatDType::F16),
        error: Some(|n, device| product_error(n, device, FloatDType::F16)),
        ..PRECISION
    },
    Workload {
        name: "matmul bf16",
        what: "[n, n] x [n, n], bf16",
        cost: half_product,
        prepare: |n, device| product(n, device, FloatDType::BF16),
        error: Some(|n, device| product_error(n, device, FloatDType::BF16)),
        ..PRECISION
    },
    Workload {
        suite: Suite::Train,
        name: "mlp",
        what: "a training step of 784-512-10 with Adam",
        unit: "batch",
        sizes: &[256],
        quick: &[256],
        largest: 1 << 16,
        cost: train::mlp_cost,
        prepare: train::mlp,
        ..PLAIN
    },
    Workload {
        suite: Suite::Train,
        name: "cnn",
        what: "a training step on 28x28 images with Adam: 3x3 filters (32, then 64), each with pooling, then 128 and 10",
        unit: "batch",
        sizes: &[64],
        quick: &[64],
        largest: 1 << 13,
        cost: train::cnn_cost,
        prepare: train::cnn,
        ..PLAIN
    },
    Workload {
        suite: Suite::Train,
        name: "transformer",
        what: "a training step of an encoder with Adam: width 128, 2 layers, 4 heads, sequence 64",
        unit: "batch",
        sizes: &[16],
        quick: &[16],
        largest: 1 << 12,
        cost: train::transformer_cost,
        prepare: train::transformer,
        ..PLAIN
    },
];

/// What the multiply-add ceiling of the CPU is measured with.
pub fn product(n: usize, device: &WgslDevice, dtype: FloatDType) -> Box<dyn Job> {
    let [a, b] = [0; 2].map(|_| random([n, n], device).cast(dtype));
    op(move || a.clone().matmul(b.clone()))
}

fn half_product(n: usize) -> Cost {
    let cost = (MATMUL.cost)(n);
    // The kernels compute in f32: operands and result exist in both widths.
    Cost { bytes: 0.0, memory: cost.memory * 1.5, ..cost }
}

/// The error of a product in a type. The truth is computed in f64 from the same f32 numbers, so what is lost when they
/// are rounded to the type counts too.
fn product_error(n: usize, device: &WgslDevice, dtype: FloatDType) -> f64 {
    Wgsl::seed(&WgslDevice::Cpu, 7);
    let [a, b] = [0; 2].map(|_| random([n, n], &WgslDevice::Cpu));
    let wide = |x: &Tensor<Wgsl, 2>| x.clone().cast(FloatDType::F64);
    let truth = wide(&a).matmul(wide(&b)).into_data();
    let [a, b] = [a, b].map(|x| x.to_device(device).cast(dtype));
    let result = a.matmul(b).cast(FloatDType::F32).into_data();
    let pairs = truth.iter::<f64>().zip(result.iter::<f64>());
    let (difference, norm) = pairs.fold((0.0, 0.0), |(difference, norm), (truth, result)| {
        (difference + (truth - result).powi(2), norm + truth.powi(2))
    });
    (difference / norm).sqrt()
}

/// The host has its copy, and the driver one more on the way.
fn transferred(mib: usize) -> Cost {
    let bytes = (mib as f64) * f64::from(1 << 20);
    Cost { flops: 0.0, bytes, largest: bytes, memory: 4.0 * bytes }
}

/// Uses up its data, as uploads do: there is a copy for each run.
struct Upload {
    data: TensorData,
    stock: Vec<TensorData>,
    device: WgslDevice,
}

impl Upload {
    fn new(mib: usize, device: &WgslDevice) -> Self {
        let elements = mib << 18;
        Self {
            data: TensorData::new(vec![1.0_f32; elements], [elements]),
            stock: Vec::new(),
            device: *device,
        }
    }
}

impl Job for Upload {
    fn stock(&mut self, runs: usize) {
        self.stock.resize(runs, self.data.clone());
    }

    fn run(&mut self) {
        if let Some(data) = self.stock.pop() {
            drop(Tensor::<Wgsl, 1>::from_data(data, &self.device));
        }
    }

    fn most_runs(&self) -> usize {
        ((128 << 20) / self.data.bytes.len()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_whole() {
        let mut names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len(), "names are what results are found by");
        for Workload { suite, name, what, sizes, quick, largest, cost, .. } in WORKLOADS {
            assert!(*suite != Suite::All && !name.is_empty() && !what.is_empty());
            for list in [sizes, quick] {
                assert!(
                    !list.is_empty() && list.is_sorted() && list.iter().all(|size| size <= largest),
                    "{name}"
                );
            }
            let Cost { flops, bytes, largest, memory } = cost(sizes[0]);
            assert!(flops + bytes > 0.0 && largest > 0.0 && memory >= largest, "{name}");
        }
        for suite in Suite::value_variants().iter().filter(|suite| **suite != Suite::All) {
            assert!(WORKLOADS.iter().any(|workload| workload.suite == *suite), "{suite:?}");
        }
    }

    #[test]
    fn an_upload_has_data_for_each_run() {
        let mut upload = Upload::new(1, &WgslDevice::Cpu);
        upload.stock(3);
        for left in [2, 1, 0] {
            upload.run();
            assert_eq!(upload.stock.len(), left);
        }
        assert_eq!(upload.most_runs(), 128);
    }

    #[test]
    fn an_error_is_that_of_its_type() {
        let error = |dtype| product_error(48, &WgslDevice::Cpu, dtype);
        let (single, half, brain) =
            (error(FloatDType::F32), error(FloatDType::F16), error(FloatDType::BF16));
        assert!(single > 0.0 && single < 1e-6, "{single}");
        assert!(half > 1e-5 && half < 2e-3, "{half}");
        assert!(brain > half && brain < 2e-2, "{brain}");
    }
}
