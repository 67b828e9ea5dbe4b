//! `relu(lhs * rhs + bias)` as one kernel, and its gradient.

use burn::tensor::{Tensor, activation::relu, backend::Backend};
use burn_wgsl::custom::{Kernel, KernelError, with_gradient};
use burn_wgsl::{Autodiff, Wgsl, kernel_params, wgsl_file};

kernel_params! {
    struct Sizes {
        m: u32,
        n: u32,
        k: u32,
    }
}

static MATMUL_ADD_RELU: Kernel<Sizes> = Kernel::of_file(
    "matmul_add_relu",
    "lhs: f32[b, m, k], rhs: f32[b, k, n], bias: f32[b, m, n] -> out: f32[b, m, n]",
    wgsl_file!("fused.wgsl"),
);

/// The rows and columns that a workgroup computes.
const TILE: [usize; 2] = [64, 16];

/// Computes `relu(lhs * rhs + bias)` with the kernel.
///
/// # Errors
///
/// Returns an error if the shapes do not fit, or the kernel does not compile.
pub fn forward(
    lhs: &Tensor<Wgsl, 3>,
    rhs: &Tensor<Wgsl, 3>,
    bias: &Tensor<Wgsl, 3>,
) -> Result<Tensor<Wgsl, 3>, KernelError> {
    let ([b, m, k], [_, _, n]) = (lhs.dims(), rhs.dims());
    let sizes = Sizes { m: m as u32, n: n as u32, k: k as u32 };
    let workgroups = b * m.div_ceil(TILE[0]) * n.div_ceil(TILE[1]);
    let call = MATMUL_ADD_RELU.call((lhs, rhs, bias), sizes);
    call.work(2 * (b * m * n * k) as u64).run(workgroups)
}

/// The same, with a gradient.
///
/// # Panics
///
/// Panics if the shapes do not fit, as Burn's ops do.
pub fn matmul_add_relu(
    lhs: Tensor<Autodiff<Wgsl>, 3>,
    rhs: Tensor<Autodiff<Wgsl>, 3>,
    bias: Tensor<Autodiff<Wgsl>, 3>,
) -> Tensor<Autodiff<Wgsl>, 3> {
    with_gradient(
        (lhs, rhs, bias),
        |(lhs, rhs, bias)| {
            let out = forward(&lhs, &rhs, &bias).unwrap_or_else(|error| panic!("{error}"));
            (out.clone(), (lhs, rhs, out))
        },
        |(lhs, rhs, out), gradient| {
            let of_sum = gradient.mask_fill(out.equal_elem(0.0), 0.0);
            let of_lhs = of_sum.clone().matmul(rhs.transpose());
            let of_rhs = lhs.transpose().matmul(of_sum.clone());
            (of_lhs, of_rhs, of_sum)
        },
    )
}

/// The same, composed of Burn's ops.
pub fn composed<B: Backend>(
    lhs: Tensor<B, 3>,
    rhs: Tensor<B, 3>,
    bias: Tensor<B, 3>,
) -> Tensor<B, 3> {
    relu(lhs.matmul(rhs) + bias)
}
