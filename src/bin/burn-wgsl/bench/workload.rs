//! The workloads as rows of data: default sizes, setup, op, and cost in FLOPs and bytes.

use burn::tensor::activation::{gelu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::{attention, conv2d};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions, PaddedConvOptions};
use burn::tensor::{Distribution, FloatDType, Int, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use clap::ValueEnum;
use serde::Serialize;

use super::cost::Cost;
use super::job::{Job, JobOutput, host_time, op};
use super::train::{self, Weights};

/// A group of workloads in which a size has the same meaning. The doc comments are help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Square f32 matrix multiplication (size: side length)
    Matmul,
    /// Additions in f32 and f16, GELU and a chain of eight ops on vectors (size: number of elements)
    Elementwise,
    /// Row sums, column sums and softmax of a square f32 matrix (size: side length)
    Reduce,
    /// 3x3 convolution, batch 16, 64 channels (size: image side length)
    Conv,
    /// Attention, batch 4, 8 heads of width 64 (size: sequence length)
    Attention,
    /// Uploads to the device and readbacks to the host (size: MiB)
    Transfer,
    /// Time and error of f32, f16 and bf16 matrix multiplication (size: side length)
    Precision,
    /// Training steps of an MLP, a CNN, a transformer encoder and an LSTM (size: batch size)
    Train,
    /// The host's time to record small additions and selections (size: their number) and training steps
    /// (size: batch size), without waiting for the device
    Host,
    /// Training steps of ResNet-18, ResNet-50 and a GPT of GPT-2's size, in f32 and with products in f16 (size: batch
    /// size). Not part of `all`
    Networks,
    /// A token from a GPT of GPT-2's size, with keys and values of those before it, and with weights in f32, f16, and
    /// integers of 8 and 4 bits (size: number of tokens). Not part of `all`
    Decode,
    /// Small results that the host waits for, one by one (size: number of elements)
    Wait,
    /// Batches of images: workers, prefetch and form of the upload, and how long steps wait. Not part of `all`
    Loader,
    /// The mean of the gradients of several workers, by their size. Not part of `all`
    Allreduce,
    /// All suites
    All,
}

/// An op or a training step that can be measured at any size.
pub struct Workload {
    pub suite: Suite,
    pub name: &'static str,
    /// Shapes and settings in words. Refers to the size by the name in `unit`.
    pub description: &'static str,
    /// The name of the size, such as `n`, or its unit, such as `MiB`.
    pub unit: &'static str,
    /// Default sizes, in ascending order.
    pub sizes: &'static [usize],
    /// Default sizes with `--quick`, in ascending order.
    pub quick_sizes: &'static [usize],
    /// Maximum size that the command line accepts. It rejects typing errors.
    pub max_size: usize,
    /// Returns the cost of one run at a size.
    pub cost: fn(usize) -> Cost,
    /// Creates the tensors of a size on a device and returns the job to time.
    pub prepare: fn(usize, &WgslDevice) -> Box<dyn Job>,
    /// Returns the relative error of the result: the norm of its difference from an f64 reference,
    /// divided by the norm of the reference.
    pub error: Option<fn(usize, &WgslDevice) -> f64>,
    /// Whether the CPU device is skipped.
    pub gpu_only: bool,
}

impl Workload {
    /// Returns whether each run waits for the device, or copies to or from it.
    pub fn waits(&self) -> bool {
        matches!(self.suite, Suite::Wait | Suite::Transfer)
    }
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Default values of the fields.
const DEFAULT: Workload = Workload {
    suite: Suite::All,
    name: "",
    description: "",
    unit: "n",
    sizes: &[],
    quick_sizes: &[],
    max_size: 0,
    cost: |_| Cost { flops: 0.0, bytes: 0.0, largest_tensor: 0.0, memory: 0.0 },
    prepare: |_, _| op(|| ()),
    error: None,
    gpu_only: false,
};

const MATMUL: Workload = Workload {
    suite: Suite::Matmul,
    name: "matmul",
    description: "[n, n] x [n, n], f32",
    sizes: &[64, 128, 256, 512, 1024, 2048],
    quick_sizes: &[64, 128, 256, 512, 1024],
    max_size: 1 << 15,
    cost: |n| Cost::of_f32_op(2.0 * (n as f64).powi(3), [(n as f64).powi(2); 3]),
    prepare: |n, device| matmul(n, device, FloatDType::F32),
    ..DEFAULT
};

const ELEMENTWISE: Workload = Workload {
    suite: Suite::Elementwise,
    sizes: &[1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24],
    quick_sizes: &[1 << 10, 1 << 14, 1 << 18, 1 << 22],
    max_size: 1 << 31,
    ..DEFAULT
};

const REDUCE: Workload = Workload {
    suite: Suite::Reduce,
    sizes: &[64, 128, 256, 512, 1024, 2048, 4096],
    quick_sizes: &[64, 256, 1024, 2048],
    max_size: 1 << 15,
    ..DEFAULT
};

const PRECISION: Workload = Workload {
    suite: Suite::Precision,
    sizes: &[256, 512, 1024],
    quick_sizes: &[256, 512],
    // The reference is an f64 product on the CPU, which is slow.
    max_size: 1 << 12,
    ..DEFAULT
};

const TRANSFER: Workload = Workload {
    suite: Suite::Transfer,
    unit: "MiB",
    sizes: &[1, 4, 16, 64, 256, 1024],
    quick_sizes: &[1, 8, 64],
    max_size: 1 << 16,
    gpu_only: true,
    ..DEFAULT
};

const NETWORK: Workload =
    Workload { suite: Suite::Networks, unit: "batch", max_size: 1 << 10, ..DEFAULT };

const DECODE: Workload = Workload {
    suite: Suite::Decode,
    sizes: &[128, 512, 1024],
    quick_sizes: &[512],
    max_size: 1 << 15,
    ..DEFAULT
};

const WAIT: Workload = Workload {
    suite: Suite::Wait,
    sizes: &[1, 1 << 10, 1 << 14],
    quick_sizes: &[1, 1 << 10],
    max_size: 1 << 20,
    cost: |n| host_cost(Cost::of_f32_op(0.0, [n as f64; 3])),
    ..DEFAULT
};

const HOST: Workload = Workload { suite: Suite::Host, unit: "batch", gpu_only: true, ..DEFAULT };

/// All workloads, in the order of the report.
pub const WORKLOADS: &[Workload] = &[
    MATMUL,
    Workload {
        name: "add",
        description: "a + b, n elements, f32",
        cost: |n| Cost::of_f32_op(n as f64, [n as f64; 3]),
        prepare: |n, device| {
            let [a, b] = [0; 2].map(|_| random([n], device));
            op(move || a.clone() + b.clone())
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "gelu",
        description: "GELU of n elements, f32",
        cost: |n| Cost::of_f32_op(0.0, [n as f64; 2]),
        prepare: |n, device| {
            let a = random([n], device);
            op(move || gelu(a.clone()))
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "chain",
        description: "eight ops on n elements, f32: five on one operand, three on two",
        cost: |n| Cost::of_f32_op(8.0 * n as f64, [n as f64; 3]),
        prepare: |n, device| {
            let [a, b] = [0; 2].map(|_| random([n], device));
            op(move || {
                let x = (a.clone() * 0.5 + b.clone()).abs() + 1.0;
                (x * b.clone() - a.clone()).clamp(-1.0, 1.0) * 2.0
            })
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "add f16",
        description: "a + b, n elements, f16",
        cost: |n| Cost {
            flops: n as f64,
            bytes: 6.0 * n as f64,
            ..Cost::of_f32_op(0.0, [n as f64; 3])
        },
        prepare: |n, device| {
            let [a, b] = [0; 2].map(|_| random([n], device).cast(FloatDType::F16));
            op(move || a.clone() + b.clone())
        },
        ..ELEMENTWISE
    },
    Workload {
        name: "sum rows",
        description: "sum of [n, n] along the last axis, f32",
        cost: |n| Cost::of_f32_op((n as f64).powi(2), [(n as f64).powi(2), n as f64]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || a.clone().sum_dim(1))
        },
        ..REDUCE
    },
    Workload {
        name: "sum columns",
        description: "sum of [n, n] along the first axis, f32",
        cost: |n| Cost::of_f32_op((n as f64).powi(2), [(n as f64).powi(2), n as f64]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || a.clone().sum_dim(0))
        },
        ..REDUCE
    },
    Workload {
        name: "softmax",
        description: "softmax of [n, n] along the last axis, f32",
        cost: |n| Cost::of_f32_op(0.0, [(n as f64).powi(2); 2]),
        prepare: |n, device| {
            let a = random([n, n], device);
            op(move || softmax(a.clone(), 1))
        },
        ..REDUCE
    },
    Workload {
        suite: Suite::Conv,
        name: "conv2d",
        description: "[16, 64, n, n], 64 filters of 3x3, padding 1, f32",
        sizes: &[4, 8, 16, 32, 64],
        quick_sizes: &[4, 8, 16, 32],
        max_size: 1 << 12,
        cost: |n| {
            let pixels = 16.0 * (n as f64).powi(2);
            Cost::of_f32_op(
                2.0 * pixels * 64.0 * 64.0 * 9.0,
                [pixels * 64.0, 64.0 * 64.0 * 9.0, pixels * 64.0],
            )
        },
        prepare: |n, device| {
            let (x, weight) = (random([16, 64, n, n], device), random([64, 64, 3, 3], device));
            let options = PaddedConvOptions::from(ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
            op(move || conv2d(x.clone(), weight.clone(), None, options.clone()))
        },
        ..DEFAULT
    },
    Workload {
        suite: Suite::Attention,
        name: "attention",
        description: "batch 4, 8 heads of 64, sequence n, no mask, f32",
        sizes: &[32, 64, 128, 256, 512, 1024],
        quick_sizes: &[32, 128, 256],
        max_size: 1 << 14,
        cost: |n| {
            let rows = 4.0 * 8.0 * n as f64;
            let cost = Cost::of_f32_op(4.0 * rows * n as f64 * 64.0, [rows * 64.0; 4]);
            // Unfused attention stores the attention weights as a tensor.
            let weights_bytes = 4.0 * rows * n as f64;
            Cost {
                largest_tensor: cost.largest_tensor.max(weights_bytes),
                memory: cost.memory + 2.0 * weights_bytes,
                ..cost
            }
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
        ..DEFAULT
    },
    Workload {
        name: "upload",
        description: "f32 data from the host to the device",
        cost: transfer_cost,
        prepare: |mib, device| Box::new(Upload::new(mib, device)),
        ..TRANSFER
    },
    Workload {
        name: "readback",
        description: "f32 tensor from the device to the host",
        cost: transfer_cost,
        prepare: |mib, device| {
            let x = Tensor::<Wgsl, 1>::ones([mib << 18], device);
            op(move || x.to_data())
        },
        ..TRANSFER
    },
    Workload {
        name: "matmul f32",
        description: "[n, n] x [n, n], f32",
        cost: |n| Cost { bytes: 0.0, ..(MATMUL.cost)(n) },
        prepare: |n, device| matmul(n, device, FloatDType::F32),
        error: Some(|n, device| matmul_error(n, device, FloatDType::F32)),
        ..PRECISION
    },
    Workload {
        name: "matmul f16",
        description: "[n, n] x [n, n], f16",
        cost: half_matmul_cost,
        prepare: |n, device| matmul(n, device, FloatDType::F16),
        error: Some(|n, device| matmul_error(n, device, FloatDType::F16)),
        ..PRECISION
    },
    Workload {
        name: "matmul bf16",
        description: "[n, n] x [n, n], bf16",
        cost: half_matmul_cost,
        prepare: |n, device| matmul(n, device, FloatDType::BF16),
        error: Some(|n, device| matmul_error(n, device, FloatDType::BF16)),
        ..PRECISION
    },
    Workload {
        suite: Suite::Train,
        name: "mlp",
        description: "training step of a 784-512-10 MLP, Adam",
        unit: "batch",
        sizes: &[256],
        quick_sizes: &[256],
        max_size: 1 << 16,
        cost: train::mlp_cost,
        prepare: train::mlp,
        ..DEFAULT
    },
    Workload {
        suite: Suite::Train,
        name: "cnn",
        description: "training step of a CNN on 28x28 images, Adam: two 3x3 convolutions (32 and \
             64 filters) with pooling, two linear layers (128 and 10 outputs)",
        unit: "batch",
        sizes: &[64],
        quick_sizes: &[64],
        max_size: 1 << 13,
        cost: train::cnn_cost,
        prepare: train::cnn,
        ..DEFAULT
    },
    Workload {
        suite: Suite::Train,
        name: "transformer",
        description: "training step of a transformer encoder, Adam: width 128, 2 layers, 4 heads, \
             sequence 64",
        unit: "batch",
        sizes: &[16],
        quick_sizes: &[16],
        max_size: 1 << 12,
        cost: train::transformer_cost,
        prepare: train::transformer,
        ..DEFAULT
    },
    Workload {
        suite: Suite::Train,
        name: "lstm",
        description: "training step of an LSTM, Adam: width 128, sequence 64",
        unit: "batch",
        sizes: &[32],
        quick_sizes: &[32],
        max_size: 1 << 12,
        cost: train::lstm_cost,
        prepare: train::lstm,
        ..DEFAULT
    },
    Workload {
        name: "resnet18",
        description: "training step of ResNet-18 on 224x224 images, Adam",
        sizes: &[32],
        quick_sizes: &[4],
        cost: |n| train::resnet_cost(train::RESNET18, n),
        prepare: |n, device| train::resnet(train::RESNET18, n, device),
        ..NETWORK
    },
    Workload {
        name: "resnet18 f16",
        description: "training step of ResNet-18 on 224x224 images, Adam, products in f16",
        sizes: &[32],
        quick_sizes: &[4],
        cost: |n| train::resnet_cost(train::RESNET18, n),
        prepare: |n, device| train::in_f16(train::resnet(train::RESNET18, n, device), device),
        ..NETWORK
    },
    Workload {
        name: "resnet50",
        description: "training step of ResNet-50 on 224x224 images, Adam",
        sizes: &[32],
        quick_sizes: &[4],
        cost: |n| train::resnet_cost(train::RESNET50, n),
        prepare: |n, device| train::resnet(train::RESNET50, n, device),
        ..NETWORK
    },
    Workload {
        name: "resnet50 f16",
        description: "training step of ResNet-50 on 224x224 images, Adam, products in f16",
        sizes: &[32],
        quick_sizes: &[4],
        cost: |n| train::resnet_cost(train::RESNET50, n),
        prepare: |n, device| train::in_f16(train::resnet(train::RESNET50, n, device), device),
        ..NETWORK
    },
    Workload {
        name: "gpt2",
        description: "training step of a GPT of GPT-2's size on 512 tokens, Adam",
        sizes: &[4],
        quick_sizes: &[1],
        cost: |n| train::gpt2_cost(n),
        prepare: |n, device| train::gpt2(n, device),
        ..NETWORK
    },
    Workload {
        name: "gpt2 f16",
        description: "training step of a GPT of GPT-2's size on 512 tokens, Adam, products in f16",
        sizes: &[4],
        quick_sizes: &[1],
        cost: |n| train::gpt2_cost(n),
        prepare: |n, device| train::in_f16(train::gpt2(n, device), device),
        ..NETWORK
    },
    Workload {
        name: "decode f32",
        description: "a token from a GPT of GPT-2's size after n - 1 others, weights in f32",
        cost: |n| train::gpt2_token_cost(Weights::F32, n),
        prepare: |n, device| train::gpt2_token(Weights::F32, n, device),
        ..DECODE
    },
    Workload {
        name: "decode f16",
        description: "a token from a GPT of GPT-2's size after n - 1 others, weights and all else in f16",
        cost: |n| train::gpt2_token_cost(Weights::F16, n),
        prepare: |n, device| train::gpt2_token(Weights::F16, n, device),
        ..DECODE
    },
    Workload {
        name: "decode q8",
        description: "a token from a GPT of GPT-2's size after n - 1 others, weights in 8 bits, blocks of 32",
        cost: |n| train::gpt2_token_cost(Weights::Q8, n),
        prepare: |n, device| train::gpt2_token(Weights::Q8, n, device),
        ..DECODE
    },
    Workload {
        name: "decode q4",
        description: "a token from a GPT of GPT-2's size after n - 1 others, weights in 4 bits, blocks of 32",
        cost: |n| train::gpt2_token_cost(Weights::Q4, n),
        prepare: |n, device| train::gpt2_token(Weights::Q4, n, device),
        ..DECODE
    },
    Workload {
        name: "add and sync",
        description: "a + b, n elements, f32, and a wait for the device",
        prepare: |n, device| {
            let ([a, b], device) = ([0; 2].map(|_| random([n], device)), *device);
            op(move || {
                let sum = a.clone() + b.clone();
                Wgsl::sync(&device).expect("the device computes an addition");
                sum
            })
        },
        ..WAIT
    },
    Workload {
        name: "add and read",
        description: "a + b, n elements, f32, and a readback of the result",
        prepare: |n, device| {
            let [a, b] = [0; 2].map(|_| random([n], device));
            op(move || (a.clone() + b.clone()).into_data())
        },
        ..WAIT
    },
    Workload {
        name: "record adds",
        description: "n additions of [16, 16] to one tensor",
        unit: "n",
        sizes: &[1000],
        quick_sizes: &[1000],
        max_size: 10_000,
        cost: |n| host_cost(Cost::of_f32_op(0.0, [256.0 * n as f64])),
        prepare: |n, device| {
            let (x, y) = (random([16, 16], device), random([16, 16], device));
            host_time(op(move || (0..n).fold(x.clone(), |sum, _| sum + y.clone())))
        },
        ..HOST
    },
    Workload {
        name: "record selects",
        description: "n selections of 16 rows of [16, 16], each of the result before",
        unit: "n",
        sizes: &[1000],
        quick_sizes: &[1000],
        max_size: 10_000,
        cost: |n| host_cost(Cost::of_f32_op(0.0, [256.0 * n as f64])),
        prepare: |n, device| {
            let x = random([16, 16], device);
            let rows = Tensor::<Wgsl, 1, Int>::arange(0..16, device);
            host_time(op(move || (0..n).fold(x.clone(), |x, _| x.select(0, rows.clone()))))
        },
        ..HOST
    },
    Workload {
        name: "record mlp",
        description: "the training step of `mlp`",
        sizes: &[256],
        quick_sizes: &[256],
        max_size: 1 << 16,
        cost: |n| host_cost(train::mlp_cost(n)),
        prepare: |n, device| host_time(train::mlp(n, device)),
        ..HOST
    },
    Workload {
        name: "record cnn",
        description: "the training step of `cnn`",
        sizes: &[64],
        quick_sizes: &[64],
        max_size: 1 << 13,
        cost: |n| host_cost(train::cnn_cost(n)),
        prepare: |n, device| host_time(train::cnn(n, device)),
        ..HOST
    },
    Workload {
        name: "record transformer",
        description: "the training step of `transformer`",
        sizes: &[16],
        quick_sizes: &[16],
        max_size: 1 << 12,
        cost: |n| host_cost(train::transformer_cost(n)),
        prepare: |n, device| host_time(train::transformer(n, device)),
        ..HOST
    },
    Workload {
        name: "record lstm",
        description: "the training step of `lstm`",
        sizes: &[32],
        quick_sizes: &[32],
        max_size: 1 << 12,
        cost: |n| host_cost(train::lstm_cost(n)),
        prepare: |n, device| host_time(train::lstm(n, device)),
        ..HOST
    },
];

/// Returns the cost of work of which the host's time is measured: it needs the memory, but rates would mean nothing.
fn host_cost(work: Cost) -> Cost {
    Cost { flops: 0.0, bytes: 0.0, ..work }
}

/// Returns a job that multiplies two random `[n, n]` matrices. Also used for the CPU's peak rate.
pub fn matmul(n: usize, device: &WgslDevice, dtype: FloatDType) -> Box<dyn Job> {
    let [a, b] = [0; 2].map(|_| random([n, n], device).cast(dtype));
    op(move || a.clone().matmul(b.clone()))
}

fn half_matmul_cost(n: usize) -> Cost {
    let cost = (MATMUL.cost)(n);
    // Counts operands and result both as 16-bit and as f32 tensors.
    Cost { bytes: 0.0, memory: cost.memory * 1.5, ..cost }
}

/// Returns the relative error of a matrix product in `dtype`. The f64 reference uses the same f32
/// operands, so rounding the operands to `dtype` is part of the error.
fn matmul_error(n: usize, device: &WgslDevice, dtype: FloatDType) -> f64 {
    Wgsl::seed(&WgslDevice::Cpu, 7);
    let [a, b] = [0; 2].map(|_| random([n, n], &WgslDevice::Cpu));
    let to_f64 = |x: &Tensor<Wgsl, 2>| x.clone().cast(FloatDType::F64);
    let reference = to_f64(&a).matmul(to_f64(&b)).into_data();
    let [a, b] = [a, b].map(|x| x.to_device(device).cast(dtype));
    let result = a.matmul(b).cast(FloatDType::F32).into_data();
    let pairs = reference.iter::<f64>().zip(result.iter::<f64>());
    let (difference, norm) = pairs.fold((0.0, 0.0), |(difference, norm), (reference, result)| {
        (difference + (reference - result).powi(2), norm + reference.powi(2))
    });
    (difference / norm).sqrt()
}

/// Returns the cost of a transfer. Its memory includes a copy of the data on the host and another
/// one in the driver.
fn transfer_cost(mib: usize) -> Cost {
    let bytes = (mib as f64) * f64::from(1 << 20);
    Cost { flops: 0.0, bytes, largest_tensor: bytes, memory: 4.0 * bytes }
}

/// Uploads f32 data. An upload consumes its data, so every run needs a copy.
struct Upload {
    data: TensorData,
    inputs: Vec<TensorData>,
    device: WgslDevice,
}

impl Upload {
    fn new(mib: usize, device: &WgslDevice) -> Self {
        let elements = mib << 18;
        Self {
            data: TensorData::new(vec![1.0_f32; elements], [elements]),
            inputs: Vec::new(),
            device: *device,
        }
    }
}

impl Job for Upload {
    fn create_inputs(&mut self, runs: usize) {
        self.inputs.resize(runs, self.data.clone());
    }

    fn run(&mut self) -> JobOutput {
        let data = self.inputs.pop();
        Box::new(data.map(|data| Tensor::<Wgsl, 1>::from_data(data, &self.device)))
    }

    fn max_runs(&self) -> usize {
        // At most 128 MiB of copies.
        ((128 << 20) / self.data.bytes.len()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_unique_names_valid_sizes_and_costs() {
        let mut names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len(), "results are looked up by name");
        for workload in WORKLOADS {
            let Workload { suite, name, description, sizes, quick_sizes, max_size, cost, .. } =
                workload;
            assert!(*suite != Suite::All && !name.is_empty() && !description.is_empty());
            for sizes in [sizes, quick_sizes] {
                assert!(!sizes.is_empty() && sizes.is_sorted(), "{name}");
                assert!(sizes.iter().all(|size| size <= max_size), "{name}");
            }
            let Cost { flops, bytes, largest_tensor, memory } = cost(sizes[0]);
            let has_no_rates = matches!(suite, Suite::Host | Suite::Wait);
            assert!(flops + bytes > 0.0 || has_no_rates, "{name}");
            assert!(largest_tensor > 0.0 && memory >= largest_tensor, "{name}");
        }
        let with_workloads =
            |suite: &&Suite| !matches!(suite, Suite::All | Suite::Loader | Suite::Allreduce);
        for suite in Suite::value_variants().iter().filter(with_workloads) {
            assert!(WORKLOADS.iter().any(|workload| workload.suite == *suite), "{suite:?}");
        }
    }

    #[test]
    fn upload_consumes_one_input_per_run() {
        let mut upload = Upload::new(1, &WgslDevice::Cpu);
        upload.create_inputs(3);
        for left in [2, 1, 0] {
            upload.run();
            assert_eq!(upload.inputs.len(), left);
        }
        assert_eq!(upload.max_runs(), 128);
    }

    #[test]
    fn matmul_error_matches_the_precision_of_the_type() {
        let error = |dtype| matmul_error(48, &WgslDevice::Cpu, dtype);
        let (f32_error, f16_error, bf16_error) =
            (error(FloatDType::F32), error(FloatDType::F16), error(FloatDType::BF16));
        assert!(f32_error > 0.0 && f32_error < 1e-6, "{f32_error}");
        assert!(f16_error > 1e-5 && f16_error < 2e-3, "{f16_error}");
        assert!(bf16_error > f16_error && bf16_error < 2e-2, "{bf16_error}");
    }
}
