//! Pooling in two dimensions and its gradients: maximum, average, adaptive average.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, Params, cast, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static POOL2D: Source =
    Source { name: "pool2d", text: include_str!("../../shaders/pool/pool2d.wgsl") };
static POOL2D_BACKWARD: Source = Source {
    name: "pool2d_backward",
    text: include_str!("../../shaders/pool/pool2d_backward.wgsl"),
};

/// The rows that one invocation makes, as the shaders have it.
const LINES: usize = 4;

/// How a window moves over its input: height, then width.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The window's size.
    pub kernel: [usize; 2],
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Elements around the input.
    pub padding: [usize; 2],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 2],
    /// Whether a last window may hang over the edge.
    pub ceil: bool,
    /// Whether an average counts the padding.
    pub count_padding: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Max,
    MaxWithIndices,
    Average,
    Adaptive,
}

impl Mode {
    fn variant(self, source: &'static Source) -> Variant {
        Variant::new(source)
            .flag("MAX", matches!(self, Self::Max | Self::MaxWithIndices))
            .flag("INDICES", self == Self::MaxWithIndices)
            .flag("ADAPTIVE", self == Self::Adaptive)
            .int("LINES", LINES as u32)
    }
}

impl Window {
    /// A window whose place and size follow from the sizes alone.
    fn adaptive() -> Self {
        Self {
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            ceil: false,
            count_padding: false,
        }
    }

    fn output(&self, x: &[usize]) -> Result<[usize; 2]> {
        let error = || Error::Shape {
            lhs: x.to_vec(),
            rhs: self.kernel.to_vec(),
            rule: "pooling needs x [n, c, h, w], windows and strides above zero, no larger than the padded input",
        };
        let mut out = [0; 2];
        for axis in 0..2 {
            let [kernel, stride] = [self.kernel[axis], self.stride[axis]];
            if x.len() != 4 || kernel == 0 || stride == 0 {
                return Err(error());
            }
            let padded = x[axis + 2] + 2 * self.padding[axis];
            let room = padded.checked_sub(self.dilation[axis] * (kernel - 1) + 1);
            out[axis] = match room {
                Some(room) if self.ceil => room.div_ceil(stride) + 1,
                Some(room) => room / stride + 1,
                // One window, which hangs over the edge.
                None if self.ceil => 1,
                None => return Err(error()),
            };
        }
        Ok(out)
    }

    fn params(&self, lines: usize, input: [usize; 2], output: [usize; 2]) -> Params {
        let mut words: Params = SmallVec::new();
        words.push(lines as u32);
        for pair in [input, output, self.kernel, self.stride, self.padding, self.dilation] {
            words.extend(pair.map(|v| v as u32));
        }
        words.extend([u32::from(self.count_padding), 0, 0]);
        words
    }
}

/// Workgroups for a result of so many rows: each invocation makes one column of [`LINES`].
fn workgroups(lines: usize, width: usize) -> u64 {
    div_up(lines.div_ceil(LINES) * width, 64)
}

fn forward(
    mode: Mode,
    x: Tensor,
    window: Window,
    output: [usize; 2],
) -> Result<(Tensor, Option<Tensor>)> {
    let x = copy::packed(x)?;
    let [n, c, h, w] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let shape = [n, c, output[0], output[1]];
    let out = Tensor::empty(x.runtime(), &shape, DType::F32, &[&x])?;
    let indices = match mode {
        Mode::MaxWithIndices => Some(Tensor::empty(x.runtime(), &shape, DType::I32, &[&x])?),
        _ => None,
    };
    let outputs: SmallVec<[&Tensor; 2]> = std::iter::once(&out).chain(&indices).collect();
    Launch {
        variant: &mode.variant(&POOL2D),
        inputs: &[&x],
        outputs: &outputs,
        params: &window.params(n * c * output[0], [h, w], output),
        groups: workgroups(n * c * output[0], output[1]),
        work: (x.len() + out.len()) as u64,
    }
    .run()?;
    drop(outputs);
    Ok((out, indices))
}

fn backward(
    mode: Mode,
    x: &[usize],
    grad: Tensor,
    indices: Option<Tensor>,
    window: Window,
) -> Result<Tensor> {
    let fit = window.output(x)?;
    let output = match (mode, grad.shape()) {
        // Any size can be spread evenly.
        (Mode::Adaptive, &[_, _, h, w]) => [h, w],
        _ => fit,
    };
    let wanted = [x[0], x[1], output[0], output[1]];
    let misfit = std::iter::once(&grad).chain(&indices).find(|tensor| tensor.shape() != wanted);
    if let Some(misfit) = misfit {
        let (lhs, rhs) = (misfit.shape().to_vec(), wanted.to_vec());
        return Err(Error::Shape {
            lhs,
            rhs,
            rule: "a gradient, and the places of maxima, have the shape of the pooled tensor",
        });
    }
    let grad = copy::packed(grad)?;
    let indices = indices.map(copy::packed).transpose()?;
    let mut inputs: SmallVec<[&Tensor; 2]> = SmallVec::from_slice(&[&grad]);
    inputs.extend(&indices);
    let out = Tensor::empty(grad.runtime(), x, DType::F32, &inputs)?;
    let lines = x[..3].iter().product();
    Launch {
        variant: &mode.variant(&POOL2D_BACKWARD),
        inputs: &inputs,
        outputs: &[&out],
        params: &window.params(lines, [x[2], x[3]], output),
        groups: workgroups(lines, x[3]),
        work: (grad.len() + out.len()) as u64 * 4,
    }
    .run()?;
    Ok(out)
}

/// The maximum of each window of `x` `[n, c, h, w]`.
///
/// # Errors
///
/// When the window does not fit or the memory is not there; so too for the functions below.
pub fn max_pool2d(x: Tensor, window: Window) -> Result<Tensor> {
    let output = window.output(x.shape())?;
    Ok(forward(Mode::Max, x, window, output)?.0)
}

/// [`max_pool2d`], and where in its image each maximum is: row * width + column.
pub fn max_pool2d_with_indices(x: Tensor, window: Window) -> Result<(Tensor, Tensor)> {
    let output = window.output(x.shape())?;
    let (out, indices) = forward(Mode::MaxWithIndices, x, window, output)?;
    let indices = indices.unwrap_or_else(|| out.clone().bitcast(DType::I32));
    Ok((out, indices))
}

/// The gradient of [`max_pool2d`] with respect to `x`, whose shape is given.
pub fn max_pool2d_backward(
    x: &[usize],
    grad: Tensor,
    indices: Tensor,
    window: Window,
) -> Result<Tensor> {
    backward(Mode::Max, x, grad, Some(cast::indices(indices)?), window)
}

/// The average of each window of `x` `[n, c, h, w]`.
pub fn avg_pool2d(x: Tensor, window: Window) -> Result<Tensor> {
    let output = window.output(x.shape())?;
    Ok(forward(Mode::Average, x, window, output)?.0)
}

/// The gradient of [`avg_pool2d`] with respect to `x`, whose shape is given.
pub fn avg_pool2d_backward(x: &[usize], grad: Tensor, window: Window) -> Result<Tensor> {
    backward(Mode::Average, x, grad, None, window)
}

/// The averages of windows that cover `x` `[n, c, h, w]` evenly.
pub fn adaptive_avg_pool2d(x: Tensor, output: [usize; 2]) -> Result<Tensor> {
    Window::adaptive().output(x.shape())?;
    Ok(forward(Mode::Adaptive, x, Window::adaptive(), output)?.0)
}

/// The gradient of [`adaptive_avg_pool2d`] with respect to `x`, whose shape is given.
pub fn adaptive_avg_pool2d_backward(x: &[usize], grad: Tensor) -> Result<Tensor> {
    backward(Mode::Adaptive, x, grad, None, Window::adaptive())
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let forward = [Mode::Max, Mode::MaxWithIndices, Mode::Average, Mode::Adaptive];
    let backward = [Mode::Max, Mode::Average, Mode::Adaptive];
    let forward = forward.map(|mode| mode.variant(&POOL2D));
    forward.into_iter().chain(backward.map(|mode| mode.variant(&POOL2D_BACKWARD))).collect()
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const TWO: Arg = Arg::Sizes(&[2, 2]);
    const ONE: Arg = Arg::Sizes(&[1, 1]);
    const NONE: Arg = Arg::Sizes(&[0, 0]);
    const THREE: Arg = Arg::Sizes(&[3, 2]);
    // In one dimension.
    const ONE_1: Arg = Arg::Int(1);
    const TWO_1: Arg = Arg::Int(2);
    const THREE_1: Arg = Arg::Int(3);
    const FOUR: Arg = Arg::Int(4);
    const NO: Arg = Arg::Switch(false);
    const YES: Arg = Arg::Switch(true);
    &[
        case("max_pool2d", &[normal(&[2, 3, 8, 8]), TWO, TWO, NONE, ONE, NO]),
        case("max_pool2d", &[normal(&[2, 3, 9, 7]), THREE, TWO, ONE, TWO, NO]),
        case("max_pool2d", &[normal(&[2, 3, 9, 7]), THREE, TWO, ONE, ONE, YES]),
        case("max_pool2d_with_indices", &[normal(&[2, 3, 9, 7]), THREE, ONE, ONE, ONE, NO]),
        case("max_pool1d", &[normal(&[2, 3, 10]), FOUR, THREE_1, ONE_1, TWO_1, YES]),
        case("max_pool1d_with_indices", &[normal(&[2, 3, 9]), THREE_1, TWO_1, ONE_1, ONE_1, NO]),
        case(
            "max_pool1d_with_indices",
            &[permuted(&[9, 3, 2], &[2, 1, 0]), TWO_1, ONE_1, Arg::Int(0), TWO_1, YES],
        ),
        // Windows larger than their input.
        case("max_pool2d_with_indices", &[normal(&[2, 3, 2, 9]), THREE, TWO, NONE, ONE, YES]),
        case("avg_pool2d", &[normal(&[2, 3, 2, 9]), THREE, TWO, NONE, NO, YES]),
        case(
            "max_pool1d",
            &[normal(&[2, 3, 9]), Arg::Int(3), Arg::Int(2), Arg::Int(1), Arg::Int(1), NO],
        ),
        case("avg_pool2d", &[normal(&[2, 3, 8, 8]), TWO, TWO, NONE, YES, NO]),
        case("avg_pool2d", &[normal(&[2, 3, 9, 7]), THREE, ONE, ONE, NO, NO]),
        case("avg_pool2d", &[normal(&[2, 3, 9, 7]), THREE, TWO, ONE, YES, YES]),
        case(
            "avg_pool2d_backward",
            &[normal(&[2, 3, 8, 8]), normal(&[2, 3, 4, 4]), TWO, TWO, NONE, YES, NO],
        ),
        case(
            "avg_pool2d_backward",
            &[normal(&[2, 3, 9, 7]), normal(&[2, 3, 9, 8]), THREE, ONE, ONE, NO, NO],
        ),
        case("avg_pool1d", &[normal(&[2, 3, 9]), Arg::Int(3), Arg::Int(2), Arg::Int(1), YES, NO]),
        case("avg_pool1d", &[permuted(&[9, 3, 2], &[2, 1, 0]), FOUR, THREE_1, ONE_1, NO, YES]),
        case(
            "avg_pool1d_backward",
            &[normal(&[2, 3, 9]), normal(&[2, 3, 5]), THREE_1, TWO_1, ONE_1, YES, NO],
        ),
        case(
            "avg_pool1d_backward",
            &[normal(&[2, 3, 9]), normal(&[2, 3, 9]), THREE_1, ONE_1, ONE_1, NO, NO],
        ),
        case("adaptive_avg_pool2d", &[normal(&[2, 3, 9, 7]), THREE]),
        case("adaptive_avg_pool2d", &[normal(&[2, 3, 4, 5]), Arg::Sizes(&[7, 5])]),
        case("adaptive_avg_pool2d_backward", &[normal(&[2, 3, 9, 7]), normal(&[2, 3, 3, 2])]),
        case("adaptive_avg_pool2d_backward", &[normal(&[2, 3, 4, 5]), normal(&[2, 3, 7, 5])]),
        case("adaptive_avg_pool1d", &[normal(&[2, 3, 9]), FOUR]),
        case("adaptive_avg_pool1d", &[permuted(&[5, 3, 2], &[2, 1, 0]), Arg::Int(7)]),
        case("adaptive_avg_pool1d_backward", &[normal(&[2, 3, 9]), normal(&[2, 3, 4])]),
        case(
            "adaptive_avg_pool1d_backward",
            &[normal(&[2, 3, 5]), permuted(&[7, 3, 2], &[2, 1, 0])],
        ),
    ]
};
