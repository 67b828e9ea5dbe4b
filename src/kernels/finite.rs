//! Whether the elements of many tensors are finite, such as the gradients of all parameters.

use crate::kernels::launch::{Launch, parts, variants_of};
use crate::kernels::ops::cases::{Arg, Case, cases, floats};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

static FINITE: Source =
    Source::new::<FiniteParams>("finite", wgsl!("../../shaders/finite/finite.wgsl"));

params! {
    struct FiniteParams {
        groups: u32,
        first_flag: u32,
        pad0: u32,
        pad1: u32,
        counts: [[u32; 4]; 11],
    }
}

/// The tensors that a launch can read, with one more binding: the limit of every adapter, somewhat
/// less than that of Metal, which is the lowest of GPUs outside of browsers, and more where an
/// adapter binds as many.
const TENSORS: [usize; 3] = [7, 24, 44];
/// Elements for each invocation of a launch, and the most workgroups.
const ELEMENTS: usize = 16;
const MAX_GROUPS: usize = 512;

/// The kernel.
#[derive(Debug, Clone, Copy, Hash)]
struct FiniteKernel {
    /// The number of tensors that it reads, one of [`TENSORS`].
    tensors: usize,
}

impl Kernel for FiniteKernel {
    type Params = FiniteParams;

    fn variant(&self) -> Variant {
        Variant::new(&FINITE)
            .flag("MANY", self.tensors >= TENSORS[1])
            .flag("MOST", self.tensors >= TENSORS[2])
    }
}

/// Returns whether an element of a tensor is infinite or NaN: a boolean tensor `[1]`. The tensors are f32.
///
/// # Errors
///
/// Returns an error if there is no tensor, if one is not f32, or if the memory is not available.
pub fn any_not_finite(tensors: Vec<Tensor>) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::Unsupported("a test of no tensor"));
    };
    if tensors.iter().any(|tensor| tensor.dtype() != DType::F32) {
        return Err(Error::Unsupported("a test of elements that are not f32"));
    }
    let runtime = first.runtime().clone();
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let packed = views::packed(tensor.clone())?;
        parts::each(std::slice::from_ref(&packed), &mut |part| {
            parts.push(views::packed(part[0].clone())?);
            Ok(())
        })?;
    }
    // The smallest kernel that reads all, or the largest that there is.
    let larger = TENSORS[1..].iter().zip(TENSORS);
    let larger = larger.take_while(|&(&tensors, smaller)| {
        parts.len() > smaller && policy::of(&runtime).reads_many_tensors(tensors)
    });
    let per_launch = larger.last().map_or(TENSORS[0], |(&tensors, _)| tensors);
    let longest = parts.iter().map(Tensor::len).max().unwrap_or(0);
    let launches = parts.chunks(per_launch);
    // An invocation reads a part of each tensor of a launch.
    let of_launch = |tensors: &[Tensor]| tensors.iter().map(Tensor::len).sum::<usize>();
    let most = launches.clone().map(of_launch).max().unwrap_or(0);
    let min_groups = most.div_ceil(64 * (policy::max_rounds(&runtime) - 2 * per_launch));
    let groups = longest.div_ceil(64 * ELEMENTS).clamp(1, MAX_GROUPS).max(min_groups);
    let flags = Tensor::empty(&runtime, &[launches.len() * groups], DType::Bool)?;
    for (launch, tensors) in launches.enumerate() {
        let mut counts = [[0; 4]; 11];
        for (at, tensor) in tensors.iter().enumerate() {
            counts[at / 4][at % 4] = tensor.len() as u32;
        }
        let inputs: Vec<&Tensor> =
            (0..per_launch).map(|at| tensors.get(at).unwrap_or(&tensors[0])).collect();
        Launch {
            kernel: &FiniteKernel { tensors: per_launch },
            inputs: &inputs,
            outputs: &[&flags],
            params: &FiniteParams {
                groups: groups as u32,
                first_flag: (launch * groups) as u32,
                pad0: 0,
                pad1: 0,
                counts,
            },
            workgroups: groups as u64,
            work: tensors.iter().map(|tensor| tensor.len() as u64).sum(),
            rounds: Some((of_launch(tensors).div_ceil(64 * groups) + 2 * per_launch) as u64),
        }
        .run()?;
    }
    views::reshape(reduce::all(Reduction::Any, flags)?, &[1])
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of(TENSORS.map(|tensors| FiniteKernel { tensors }))
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    any_not_finite(Arg::Tensors(&[floats(&[300, 7])]));
    any_not_finite(Arg::Tensors(&[floats(&[3]), floats(&[0]), floats(&[2, 2, 2])]));
    any_not_finite(Arg::Tensors(&[floats(&[40, 50]); 20]));
    any_not_finite(Arg::Tensors(&[floats(&[40, 50]); 70]));
};
