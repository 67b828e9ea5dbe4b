//! Normalisation of rows: layer norm and RMS norm, and their gradients.

use smallvec::{SmallVec, smallvec};

use crate::kernels::elementwise::{binary, scalar, unary};
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::launch::{Launch, PendingResult, Reads, variants_of};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::table::rows;
use crate::kernels::policy::MIN_TEAM_LEN;
use crate::kernels::policy::team::Team;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{create, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/row_stats", wgsl!("../../shaders/lib/row_stats.wgsl"))];

static NORM: Source = Source::new::<NormParams>("norm", wgsl!("../../shaders/norm/norm.wgsl"))
    .with_fragments(FRAGMENTS);
static NORM_BACKWARD: Source = Source::new::<NormBackwardParams>(
    "norm_backward",
    wgsl!("../../shaders/norm/norm_backward.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct NormParams {
        count: u32,
        len: u32,
        epsilon: f32,
        has_beta: u32,
    }
}

params! {
    struct NormBackwardParams {
        count: u32,
        len: u32,
        epsilon: f32,
        rounds: u32,
    }
}

/// The maximum number of rows of a workgroup that computes gradients: those whose statistics fit
/// into workgroup memory, where rows are read again, and at least one for each team.
const MAX_ROWS: usize = 64;

/// The kernel of both norms.
#[derive(Debug, Clone, Copy, Hash)]
struct NormKernel {
    /// Whether the mean is subtracted: layer norm, not RMS norm.
    center: bool,
    /// The invocations that reduce a row.
    team: Team,
    /// Whether rows are read in vec4s.
    vec4: bool,
    /// How many loads of a row each invocation holds: see [`policy::Policy::holding_team`].
    held: u32,
}

/// The maximum number of loads that an invocation holds.
const MAX_HELD: u32 = 16;
/// The same for gradients, where it holds four tensors: with 8, compilers for Apple's GPUs keep registers in memory.
const MAX_HELD_BACKWARD: u32 = 4;

impl Kernel for NormKernel {
    type Params = NormParams;

    fn variant(&self) -> Variant {
        let variant = Variant::new(&NORM).flag("CENTER", self.center).flag("VEC4", self.vec4);
        self.team.define_holding(self.held, variant)
    }
}

/// The kernel of the gradients of both norms.
#[derive(Debug, Clone, Copy, Hash)]
struct NormBackwardKernel(NormKernel);

impl Kernel for NormBackwardKernel {
    type Params = NormBackwardParams;

    fn variant(&self) -> Variant {
        let NormKernel { center, team, vec4, held } = self.0;
        let variant = Variant::new(&NORM_BACKWARD).flag("CENTER", center).flag("VEC4", vec4);
        let variant = variant.flag("ROUNDS", true).int("MAX_ROWS", MAX_ROWS as u32);
        team.define_holding(held, variant)
    }
}

/// Divides each row of `x` `[.., width]` by its root mean square and multiplies it by `gamma`
/// `[width]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn rms_norm(x: Tensor, gamma: Tensor, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, None, epsilon, false)
}

/// Subtracts the mean of each row of `x` `[.., width]`, divides by the standard deviation,
/// multiplies by `gamma` `[width]` and adds `beta` `[width]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn layer_norm(x: Tensor, gamma: Tensor, beta: Option<Tensor>, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, beta, epsilon, true)
}

/// Computes the gradients of [`rms_norm`] with respect to `x` and `gamma` from the gradient of its
/// result.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn rms_norm_backward(
    x: Tensor,
    gamma: Tensor,
    grad: Tensor,
    epsilon: f32,
) -> Result<(Tensor, Tensor)> {
    let (x_grad, gamma_grad, _) = backward(x, gamma, grad, epsilon, false)?;
    Ok((x_grad, gamma_grad))
}

/// Computes the gradients of [`layer_norm`] with respect to `x`, `gamma` and `beta` from the
/// gradient of its result.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn layer_norm_backward(
    x: Tensor,
    gamma: Tensor,
    grad: Tensor,
    epsilon: f32,
) -> Result<(Tensor, Tensor, Tensor)> {
    backward(x, gamma, grad, epsilon, true)
}

/// Returns the width of the rows of `x`, or an error if a parameter of a norm has another width.
fn check_parameter(x: &Tensor, parameter: &Tensor) -> Result<usize> {
    let width = x.shape().last().copied().unwrap_or(0);
    x.same_device(parameter)?;
    if parameter.shape() == [width] {
        return Ok(width);
    }
    Err(Error::Shape {
        lhs: x.shape().to_vec(),
        rhs: parameter.shape().to_vec(),
        rule: "gamma and beta must have one element per element of a row",
    })
}

/// Returns the kernel for rows that holds them in registers, if it can.
fn holding(kernel: NormKernel, x: &Tensor, rows: usize, loads: usize, max_held: u32) -> NormKernel {
    if kernel.team == Team::SINGLE {
        return kernel;
    }
    let (team, held) = policy::of(x.runtime()).holding_team(rows, loads, max_held);
    NormKernel { team, held, ..kernel }
}

/// Returns how a kernel reads the rows.
fn reads(kernel: &NormKernel) -> Reads {
    if kernel.held > 0 { Reads::Once } else { Reads::AnyNumber }
}

/// Returns the kernel for rows, which reads them again, and the number of loads of a row.
fn kernel_for(x: &Tensor, width: usize, center: bool) -> (NormKernel, usize) {
    let vec4 = width.is_multiple_of(4);
    let loads = if vec4 { width / 4 } else { width };
    let team = policy::of(x.runtime()).team_of_line(x.len() / width, width, loads);
    (NormKernel { center, team, vec4, held: 0 }, loads)
}

/// Returns whether several workgroups reduce a row. Composed ops do, with more launches and reads.
fn is_split(x: &Tensor, width: usize) -> bool {
    let (NormKernel { team, .. }, loads) = kernel_for(x, width, true);
    // A gradient, in a workgroup of one row for each team.
    policy::of(x.runtime()).splits_lines(x.len() / width, width, rounds_per_row(team, loads))
}

/// Returns the rounds of an invocation for each row of its team, at most: it reads its loads of the row four times, and
/// each invocation adds up its columns of all rows of the workgroup.
fn rounds_per_row(team: Team, loads: usize) -> usize {
    5 * (loads.div_ceil(team.size as usize) + 1)
}

/// Returns the normalised rows, before they are multiplied by gamma, and 1 / sqrt(variance + epsilon)
/// of each, from composed ops.
fn normalised_in_splits(x: &Tensor, epsilon: f32, center: bool) -> Result<(Tensor, Tensor)> {
    let axis = x.shape().len() - 1;
    let mean_of = |tensor| reduce::dim(Reduction::Mean, tensor, axis);
    // Differences are computed again where they are used: that is cheaper than to store them.
    let without = |means: &[Tensor]| {
        means.iter().try_fold(x.clone(), |x, mean| binary(&rows::float_sub, x, mean.clone()))
    };
    let mut means: SmallVec<[Tensor; 2]> = SmallVec::new();
    // The mean is rounded. The mean of the differences from it is the rounding error.
    for _ in 0..if center { 2 } else { 0 } {
        let mean = mean_of(without(&means)?)?;
        means.push(mean);
    }
    let differences = without(&means)?;
    let squares = binary(&rows::float_mul, differences.clone(), differences)?;
    let epsilon = [ScalarValue::Float(epsilon)];
    let variance = scalar(&rows::float_add_scalar, mean_of(squares)?, &epsilon)?;
    let scale = unary(&rows::float_recip, unary(&rows::float_sqrt, variance)?)?;
    Ok((binary(&rows::float_mul, without(&means)?, scale.clone())?, scale))
}

/// Computes [`normalise`] by composed ops.
fn normalise_in_splits(
    x: &Tensor,
    gamma: Tensor,
    beta: Option<Tensor>,
    epsilon: f32,
    center: bool,
) -> Result<Tensor> {
    let (normalised, _) = normalised_in_splits(x, epsilon, center)?;
    let scaled = binary(&rows::float_mul, normalised, gamma)?;
    match beta {
        Some(beta) => binary(&rows::float_add, scaled, beta),
        None => Ok(scaled),
    }
}

/// Computes [`backward`] by composed ops.
fn backward_in_splits(
    x: &Tensor,
    gamma: &Tensor,
    grad: &Tensor,
    epsilon: f32,
    center: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let axis = x.shape().len() - 1;
    let width = x.shape()[axis];
    let mean_of = |tensor| reduce::dim(Reduction::Mean, tensor, axis);
    let (normalised, scale) = normalised_in_splits(x, epsilon, center)?;
    let scaled = || binary(&rows::float_mul, grad.clone(), gamma.clone());
    let slope = mean_of(binary(&rows::float_mul, scaled()?, normalised.clone())?)?;
    let mut out = scaled()?;
    if center {
        out = binary(&rows::float_sub, out, mean_of(scaled()?)?)?;
    }
    let along = binary(&rows::float_mul, normalised.clone(), slope)?;
    let out = binary(&rows::float_mul, binary(&rows::float_sub, out, along)?, scale)?;
    let sum_of_rows = |tensor: Tensor| {
        let count = tensor.len() / width;
        let sums = reduce::dim(Reduction::Sum, views::reshape(tensor, &[count, width])?, 0)?;
        views::reshape(sums, &[width])
    };
    let gamma_grad = sum_of_rows(binary(&rows::float_mul, grad.clone(), normalised)?)?;
    // RMS norm has no beta.
    let beta_grad = if center { sum_of_rows(grad.clone())? } else { gamma_grad.clone() };
    Ok((out, gamma_grad, beta_grad))
}

/// Normalises each row of `x`; `center`: subtracts the mean and supports `beta`.
fn normalise(
    x: Tensor,
    gamma: Tensor,
    beta: Option<Tensor>,
    epsilon: f32,
    center: bool,
) -> Result<Tensor> {
    let width = check_parameter(&x, &gamma)?;
    if let Some(beta) = &beta {
        check_parameter(&x, beta)?;
    }
    let (x, gamma) = (views::packed(x)?, views::packed(gamma)?);
    let beta = beta.map(views::packed).transpose()?;
    if x.is_empty() {
        return Tensor::empty(x.runtime(), x.shape(), DType::F32);
    }
    if is_split(&x, width) {
        return normalise_in_splits(&x, gamma, beta, epsilon, center);
    }
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![&x, &gamma];
    if center {
        // The layout requires a beta binding; without a beta it is gamma.
        inputs.push(beta.as_ref().unwrap_or(&gamma));
    }
    let rows = x.len() / width;
    let (kernel, loads) = kernel_for(&x, width, center);
    let kernel = holding(kernel, &x, rows, loads, MAX_HELD);
    let mut prologues = prologue::conversions(&inputs);
    prologues.retain(|(input, _)| *input > 0);
    prologues.push((0, reads(&kernel)));
    Launch {
        kernel: &kernel,
        inputs: &inputs,
        outputs: &[],
        params: &NormParams {
            count: rows as u32,
            len: loads as u32,
            epsilon,
            has_beta: u32::from(beta.is_some()),
        },
        workgroups: kernel.team.workgroups(rows),
        work: x.len() as u64 * 8,
        rounds: Some(rounds_per_row(kernel.team, loads) as u64),
    }
    .defer(&PendingResult {
        vec4: kernel.vec4,
        prologues: &prologues,
        ..PendingResult::scalars(x.runtime(), x.shape(), DType::F32)
    })
}

/// Computes the gradients of a norm with respect to `x`, `gamma` and `beta`; `center`: of layer
/// norm.
fn backward(
    x: Tensor,
    gamma: Tensor,
    grad: Tensor,
    epsilon: f32,
    center: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let width = check_parameter(&x, &gamma)?;
    x.same_device(&grad)?;
    if x.shape() != grad.shape() {
        return Err(Error::Shape {
            lhs: x.shape().to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "a result and its gradient must have the same shape",
        });
    }
    let runtime = x.runtime().clone();
    if x.is_empty() {
        let zeros =
            |shape: &[usize]| create::full(&runtime, shape, ScalarValue::Float(0.0), DType::F32);
        return Ok((zeros(x.shape())?, zeros(&[width])?, zeros(&[width])?));
    }
    let (x, gamma, grad) = (views::packed(x)?, views::packed(gamma)?, views::packed(grad)?);
    if is_split(&x, width) {
        return backward_in_splits(&x, &gamma, &grad, epsilon, center);
    }
    let rows = x.len() / width;
    let (kernel, loads) = kernel_for(&x, width, center);
    let kernel = holding(kernel, &x, rows, loads, MAX_HELD_BACKWARD);
    let teams = (kernel.team.workgroup_size / kernel.team.size) as usize;
    let rounds_per_row = rounds_per_row(kernel.team, loads);
    let rounds = policy::of(&runtime).norm_rounds(rows, teams, MAX_ROWS / teams, rounds_per_row);
    let groups = rows.div_ceil(rounds * teams);
    let out = Tensor::empty(&runtime, x.shape(), DType::F32)?;
    let sums = Tensor::empty(&runtime, &[groups, 2 * width], DType::F32)?;
    Launch {
        kernel: &NormBackwardKernel(kernel),
        inputs: &[&x, &gamma, &grad],
        outputs: &[&out, &sums],
        params: &NormBackwardParams {
            count: rows as u32,
            len: loads as u32,
            epsilon,
            rounds: rounds as u32,
        },
        workgroups: groups as u64,
        work: x.len() as u64 * 16,
        rounds: Some((rounds * rounds_per_row) as u64),
    }
    .run_with_prologues(&[0, 2].map(|input| (input, reads(&kernel))))?;
    let sums = if groups == 1 { sums } else { reduce::dim(Reduction::Sum, sums, 0)? };
    let sums = views::reshape(sums, &[2 * width])?;
    let gamma_grad = views::narrow(sums.clone(), 0, 0, width)?;
    let beta_grad = views::narrow(sums, 0, width, width)?;
    Ok((out, gamma_grad, beta_grad))
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let of = |center, team, vec4, held| NormKernel { center, team, vec4, held };
    let holding = |min_loads, vec4, max_held| {
        let teams = policy::all_holding_teams(min_loads, max_held);
        teams.map(move |(team, held)| (team, vec4, held))
    };
    let kernels = |max_held| {
        let singles = [true, false].map(|vec4| (Team::SINGLE, vec4, 0));
        let vec4s = holding(MIN_TEAM_LEN / 4, true, max_held);
        let all = vec4s.chain(holding(MIN_TEAM_LEN, false, max_held)).chain(singles);
        all.flat_map(|(team, vec4, held)| [true, false].map(|center| of(center, team, vec4, held)))
    };
    let backward: Vec<_> = kernels(MAX_HELD_BACKWARD).map(NormBackwardKernel).collect();
    let kernels: Vec<NormKernel> = kernels(MAX_HELD).collect();
    let mut variants = variants_of(kernels.iter().copied());
    variants.extend(variants_of(backward.iter().copied()));
    variants.extend(epilogue::samples(kernels.iter().copied()));
    for input in [1, 2] {
        let has_input = |kernel: &&NormKernel| input == 1 || kernel.center;
        let kernels: Vec<_> = kernels.iter().filter(has_input).copied().collect();
        variants.extend(prologue::samples_of_conversions(&kernels, input));
    }
    variants.extend(prologue::samples(kernels, 0));
    variants.extend(prologue::samples(backward.iter().copied(), 0));
    variants.extend(prologue::samples(backward, 2));
    variants
}

/// The cases that the family must pass. burn-flex is wrong for rows with a large mean;
/// `tests/kernels/definitions.rs` tests them.
pub const CASES: &[Case] = cases! {
    rms_norm([5, 64], [64], Arg::Float(1e-5));
    rms_norm([2, 3, 7], [7], Arg::Float(1e-5));
    rms_norm(permuted(&[300, 4], &[1, 0]), [300], Arg::Float(1e-5));
    layer_norm([5, 64], [64], [64], Arg::Float(1e-5));
    layer_norm([5, 64], [64], _, Arg::Float(1e-5));
    layer_norm([70, 3, 7], [7], [7], Arg::Float(1e-3));
    layer_norm([9, 1], [1], [1], Arg::Float(1e-5));
    layer_norm([1000], [1000], [1000], Arg::Float(1e-5));
    layer_norm(permuted(&[300, 4], &[1, 0]), [300], [300], Arg::Float(1e-5));
    layer_norm([0, 7], [7], _, Arg::Float(1e-5));
    rms_norm_backward([5, 64], [64], [5, 64], Arg::Float(1e-5));
    rms_norm_backward([700, 7], [7], [700, 7], Arg::Float(1e-5));
    rms_norm_backward([9, 301], [301], [9, 301], Arg::Float(1e-5));
    layer_norm_backward([5, 64], [64], [5, 64], Arg::Float(1e-5));
    layer_norm_backward([70, 3, 8], [8], [70, 3, 8], Arg::Float(1e-3));
    layer_norm_backward([70, 3, 7], [7], [70, 3, 7], Arg::Float(1e-3));
    layer_norm_backward([2100, 64], [64], [2100, 64], Arg::Float(1e-3));
    layer_norm_backward(permuted(&[300, 4], &[1, 0]), [300], [4, 300], Arg::Float(1e-5));
    // Several rows for each team of a GPU.
    layer_norm_backward([1100, 1000], [1000], [1100, 1000], Arg::Float(1e-5));
    layer_norm_backward([3, 1000], [1000], [3, 1000], Arg::Float(1e-5));
    layer_norm_backward([3, 35], [35], [3, 35], Arg::Float(1e-5));
    // Few long rows.
    rms_norm([2, 9000], [9000], Arg::Float(1e-5));
    layer_norm([2, 1, 9001], [9001], [9001], Arg::Float(1e-5));
    layer_norm([9000], [9000], _, Arg::Float(1e-5));
    rms_norm_backward([2, 9001], [9001], [2, 9001], Arg::Float(1e-5));
    layer_norm_backward([2, 1, 9000], [9000], [2, 1, 9000], Arg::Float(1e-5));
    layer_norm_backward([0, 7], [7], [0, 7], Arg::Float(1e-5));
};
