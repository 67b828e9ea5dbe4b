//! Kernels and elementwise ops of your own.
//!
//! A [`Kernel`] is a WGSL text with a signature. It reads and writes Burn tensors:
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_wgsl::custom::Kernel;
//! use burn_wgsl::{Wgsl, WgslDevice, kernel_params};
//!
//! kernel_params! {
//!     struct Sizes {
//!         rows: u32,
//!         cols: u32,
//!     }
//! }
//!
//! static SPREAD: Kernel<Sizes> = Kernel::new(
//!     "spread",
//!     "x: f32[rows, cols] -> spread: f32[rows]",
//!     "
//!     //#include \"lib/grid\"
//!     struct Params {
//!         rows: u32,
//!         cols: u32,
//!     }
//!     @group(0) @binding(auto) var<uniform> p: Params;
//!     @group(0) @binding(auto) var<storage, read> x: array<f32>;
//!     @group(0) @binding(auto) var<storage, read_write> spread: array<f32>;
//!
//!     @compute @workgroup_size(64)
//!     fn main(
//!         @builtin(workgroup_id) group: vec3<u32>,
//!         @builtin(num_workgroups) groups: vec3<u32>,
//!         @builtin(local_invocation_index) local_index: u32,
//!     ) {
//!         let row = group_index(group, groups) * 64u + local_index;
//!         if (row >= p.rows) { return; }
//!         var least = x[row * p.cols];
//!         var largest = least;
//!         for (var col = 1u; col < p.cols; col++) {
//!             least = min(least, x[row * p.cols + col]);
//!             largest = max(largest, x[row * p.cols + col]);
//!         }
//!         spread[row] = largest - least;
//!     }
//!     ",
//! )
//! .on_cpu(|sizes, inputs| {
//!     let x = inputs[0].to_vec::<f32>().unwrap();
//!     let spreads = x.chunks(sizes.cols as usize).map(|row| {
//!         row.iter().copied().fold(f32::MIN, f32::max) - row.iter().copied().fold(f32::MAX, f32::min)
//!     });
//!     vec![burn::tensor::TensorData::new(spreads.collect(), [sizes.rows as usize])]
//! });
//!
//! let x = Tensor::<Wgsl, 2>::from_floats([[1.0, 5.0, 2.0], [7.0, 7.0, 7.0]], &WgslDevice::default());
//! let spread: Tensor<Wgsl, 1> = SPREAD.call(&x, Sizes { rows: 2, cols: 3 }).run(1)?;
//! assert_eq!(spread.into_data().to_vec::<f32>().unwrap(), [4.0, 0.0]);
//! # Ok::<(), burn_wgsl::custom::KernelError>(())
//! ```
//!
//! - [`Kernel::on_cpu`] gives a kernel a function for [`WgslDevice::Cpu`](crate::WgslDevice::Cpu).
//! - [`wgsl_file!`](crate::wgsl_file) takes the text from a file, which may change while the program runs.
//! - [`with_gradient`] gives a computation a gradient of its own.
//! - [`Unary`] and [`Binary`] are elementwise expressions, which the kernels of neighbouring ops compute.
//!
//! `docs/kernels.md` in the repository describes the text of a kernel: declarations, fragments, checks and errors.

mod elementwise;
mod error;
#[cfg(feature = "autodiff")]
mod gradient;
mod kernel;
mod limits;
mod params;
mod signature;
mod tensors;
mod text;

pub use elementwise::{Binary, Unary};
pub use error::KernelError;
#[cfg(feature = "autodiff")]
pub use gradient::{Differentiable, with_gradient};
pub use kernel::{Call, CpuFunction, Kernel};
#[doc(hidden)]
pub use params::write_field;
pub use params::{ParamType, Params};
pub use tensors::{FromTensor, Inputs, Operand, Outputs};
pub use text::WgslFile;
