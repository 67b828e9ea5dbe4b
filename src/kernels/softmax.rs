//! Softmax and its logarithm along an axis, and their gradients.

use smallvec::SmallVec;

use crate::kernels::elementwise::{binary, unary};
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::launch::{Launch, PendingResult, Reads, variants_of};
use crate::kernels::ops::cases::{Case, cases, permuted, positive};
use crate::kernels::ops::table::rows;
use crate::kernels::policy::MIN_TEAM_LEN;
use crate::kernels::policy::team::Team;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

static SOFTMAX: Source =
    Source::new::<SoftmaxParams>("softmax", wgsl!("../../shaders/softmax/softmax.wgsl"));
static SOFTMAX_BACKWARD: Source = Source::new::<SoftmaxParams>(
    "softmax_backward",
    wgsl!("../../shaders/softmax/softmax_backward.wgsl"),
);

params! {
    struct SoftmaxParams {
        count: u32,
        len: u32,
        stride: u32,
        pad0: u32,
    }
}

/// The kernel of the softmax, of its logarithm, and of their gradients.
#[derive(Debug, Clone, Copy, Hash)]
struct SoftmaxKernel {
    /// Whether it computes the gradient.
    backward: bool,
    /// Whether the result is the logarithm.
    log: bool,
    /// The invocations that reduce a line.
    team: Team,
    /// Whether lines are read in vec4s.
    vec4: bool,
    /// How many loads of a line each invocation holds: see [`policy::Policy::holding_team`].
    held: u32,
}

impl Kernel for SoftmaxKernel {
    type Params = SoftmaxParams;

    fn variant(&self) -> Variant {
        let source = if self.backward { &SOFTMAX_BACKWARD } else { &SOFTMAX };
        let variant = Variant::new(source).flag("LOG", self.log).flag("VEC4", self.vec4);
        self.team.define_holding(self.held, variant)
    }
}

/// Computes `e^x / sum of e^x` along an axis.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn softmax(tensor: Tensor, axis: usize) -> Result<Tensor> {
    softmax_along(tensor, axis, false)
}

/// Computes the logarithm of [`softmax`] directly, so that small results do not underflow.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn log_softmax(tensor: Tensor, axis: usize) -> Result<Tensor> {
    softmax_along(tensor, axis, true)
}

/// Computes the gradient of [`softmax`] from its result and the gradient of the result.
///
/// # Errors
///
/// Returns an error if the shapes differ or the memory is not available.
pub fn softmax_backward(out: Tensor, grad: Tensor, axis: usize) -> Result<Tensor> {
    backward(out, grad, axis, false)
}

/// Computes the gradient of [`log_softmax`] from its result and the gradient of the result.
///
/// # Errors
///
/// Returns an error if the shapes differ or the memory is not available.
pub fn log_softmax_backward(out: Tensor, grad: Tensor, axis: usize) -> Result<Tensor> {
    backward(out, grad, axis, true)
}

/// Computes the softmax along an axis, or its logarithm if `log`.
fn softmax_along(tensor: Tensor, axis: usize, log: bool) -> Result<Tensor> {
    let tensor = views::packed(tensor)?;
    if !is_split(&tensor, axis) {
        return launch(&[&tensor], axis, log);
    }
    let maxima = reduce::dim(Reduction::Max, tensor.clone(), axis)?;
    // The differences are computed twice: that is cheaper than to store them.
    let differences = || binary(&rows::float_sub, tensor.clone(), maxima.clone());
    let sums = reduce::dim(Reduction::Sum, unary(&rows::float_exp, differences()?)?, axis)?;
    match log {
        true => binary(&rows::float_sub, differences()?, unary(&rows::float_log, sums)?),
        false => binary(&rows::float_div, unary(&rows::float_exp, differences()?)?, sums),
    }
}

/// Returns whether several workgroups reduce a line. Composed ops do, with more launches and reads.
fn is_split(tensor: &Tensor, axis: usize) -> bool {
    let len = tensor.shape()[axis];
    !tensor.is_empty() && {
        let RowAccess { lines, loads, team, .. } = line_access(tensor, axis);
        policy::of(tensor.runtime()).splits_lines(lines, len, rounds(team, loads))
    }
}

/// How the lines along an axis are read.
struct RowAccess {
    lines: usize,
    /// Loads of a line.
    loads: usize,
    /// Distance between the elements of a line.
    stride: usize,
    /// Whether a load has four elements.
    vec4: bool,
    team: Team,
}

/// Returns how the lines of a packed tensor that is not empty are read.
fn line_access(tensor: &Tensor, axis: usize) -> RowAccess {
    let len = tensor.shape()[axis];
    let stride: usize = tensor.shape()[axis + 1..].iter().product();
    let lines = tensor.len() / len;
    let vec4 = stride == 1 && len >= MIN_TEAM_LEN && len.is_multiple_of(4);
    let loads = if vec4 { len / 4 } else { len };
    let team = match stride {
        1 => policy::of(tensor.runtime()).team_of_line(lines, len, loads),
        _ => Team::SINGLE,
    };
    RowAccess { lines, loads, stride, vec4, team }
}

/// Returns the rounds of an invocation that reads its loads of a line twice.
fn rounds(team: Team, loads: usize) -> usize {
    2 * (loads.div_ceil(team.size as usize) + 1)
}

/// Computes the gradient of the softmax along an axis, or of its logarithm if `log`.
fn backward(out: Tensor, grad: Tensor, axis: usize, log: bool) -> Result<Tensor> {
    out.same_device(&grad)?;
    if out.shape() != grad.shape() {
        return Err(Error::Shape {
            lhs: out.shape().to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "a result and its gradient must have the same shape",
        });
    }
    let (out, grad) = (views::packed(out)?, views::packed(grad)?);
    if !is_split(&out, axis) {
        return launch(&[&out, &grad], axis, log);
    }
    if log {
        let sums = reduce::dim(Reduction::Sum, grad.clone(), axis)?;
        let scaled = binary(&rows::float_mul, unary(&rows::float_exp, out)?, sums)?;
        return binary(&rows::float_sub, grad, scaled);
    }
    let products = binary(&rows::float_mul, out.clone(), grad.clone())?;
    let sums = reduce::dim(Reduction::Sum, products, axis)?;
    binary(&rows::float_mul, out, binary(&rows::float_sub, grad, sums)?)
}

/// Returns the maximum number of loads that an invocation holds of each input.
fn max_held(backward: bool) -> u32 {
    // The gradient has two inputs.
    if backward { 8 } else { 16 }
}

/// Launches the kernel for one packed input, or that of the gradient for two.
fn launch(inputs: &[&Tensor], axis: usize, log: bool) -> Result<Tensor> {
    let tensor = inputs[0];
    if tensor.is_empty() {
        return Tensor::empty(tensor.runtime(), tensor.shape(), DType::F32);
    }
    let RowAccess { lines, loads, stride, vec4, team } = line_access(tensor, axis);
    let is_backward = inputs.len() > 1;
    let (team, held) = match team {
        Team::SINGLE => (team, 0),
        _ => policy::of(tensor.runtime()).holding_team(lines, loads, max_held(is_backward)),
    };
    let reads = if held > 0 { Reads::Once } else { Reads::AnyNumber };
    let reads: SmallVec<[(usize, Reads); 2]> =
        (0..inputs.len()).map(|input| (input, reads)).collect();
    Launch {
        kernel: &SoftmaxKernel { backward: is_backward, log, team, vec4, held },
        inputs,
        outputs: &[],
        params: &SoftmaxParams {
            count: lines as u32,
            len: loads as u32,
            stride: stride as u32,
            pad0: 0,
        },
        workgroups: team.workgroups(lines),
        work: tensor.len() as u64 * 8,
        rounds: Some(rounds(team, loads) as u64),
    }
    .defer(&PendingResult {
        vec4,
        prologues: &reads,
        ..PendingResult::scalars(tensor.runtime(), tensor.shape(), DType::F32)
    })
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let kernels: Vec<SoftmaxKernel> = kinds
        .into_iter()
        .flat_map(|(backward, log)| {
            let teams = |min_loads| policy::all_holding_teams(min_loads, max_held(backward));
            let vec4s = teams(MIN_TEAM_LEN / 4).map(|team| (team, true));
            let scalars = teams(MIN_TEAM_LEN).map(|team| (team, false));
            let all = std::iter::once(((Team::SINGLE, 0), false)).chain(vec4s).chain(scalars);
            all.map(move |((team, held), vec4)| SoftmaxKernel { backward, log, team, vec4, held })
        })
        .collect();
    let sampled: Vec<_> = kernels.iter().filter(|kernel| kernel.log).copied().collect();
    let mut variants = variants_of(kernels);
    variants.extend(epilogue::samples(sampled.iter().filter(|kernel| !kernel.backward).copied()));
    let backward = sampled.iter().filter(|kernel| kernel.backward).copied();
    variants.extend(prologue::samples(backward, 1));
    variants.extend(prologue::samples(sampled, 0));
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    softmax([7, 10], 1);
    softmax([7, 300], 1);
    softmax([3, 40, 5], 1);
    softmax(permuted(&[40, 6], &[1, 0]), 1);
    log_softmax([64, 10], 1);
    log_softmax([9, 1000], 1);
    log_softmax([9, 3], 0);
    softmax([5, 301], 1);
    log_softmax([3, 65], 1);
    softmin([9, 3], 1);
    softmax_backward(positive(&[7, 10]), [7, 10], 1);
    softmax_backward(positive(&[7, 300]), [7, 300], 1);
    softmax_backward(positive(&[5, 301]), [5, 301], 1);
    softmax_backward(positive(&[3, 40, 5]), [3, 40, 5], 1);
    log_softmax_backward([64, 10], [64, 10], 1);
    log_softmax_backward([9, 1000], permuted(&[1000, 9], &[1, 0]), 1);
    log_softmax_backward([3, 65], [3, 65], 1);
    log_softmax_backward([9, 3], [9, 3], 0);
    // Few long lines.
    softmax([2, 9000], 1);
    log_softmax([2, 9001, 3], 1);
    softmax_backward(positive(&[2, 9001, 3]), [2, 9001, 3], 1);
    log_softmax_backward([2, 9000], [2, 9000], 1);
};
