//! Deformable convolution in two dimensions and its gradients.
//!
//! The input is sampled at the offset positions into columns `[c * taps, n * pixels]`. The rest are
//! matrix products with the weight, one per group.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernels::conv::geometry::ConvGeometry;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::ops::options::{ConvOptions, DeformOptions};
use crate::kernels::ops::table::rows;
use crate::kernels::{conv, elementwise, matmul, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[
    ("lib/bilinear", wgsl!("../../shaders/lib/bilinear.wgsl")),
    ("lib/deform", wgsl!("../../shaders/lib/deform.wgsl")),
];

static DEFORM_COLUMNS: Source = Source::new::<DeformParams>(
    "deform_columns",
    wgsl!("../../shaders/deform/deform_columns.wgsl"),
)
.with_fragments(FRAGMENTS);
static DEFORM_OFFSET_BACKWARD: Source = Source::new::<DeformParams>(
    "deform_offset_backward",
    wgsl!("../../shaders/deform/deform_offset_backward.wgsl"),
)
.with_fragments(FRAGMENTS);
static DEFORM_X_BACKWARD: Source = Source::new::<DeformParams>(
    "deform_x_backward",
    wgsl!("../../shaders/deform/deform_x_backward.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct DeformParams {
        count: u32,
        images: u32,
        channels: u32,
        offset_groups: u32,
        in_h: u32,
        in_w: u32,
        out_h: u32,
        out_w: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride_h: u32,
        stride_w: u32,
        padding_h: u32,
        padding_w: u32,
        dilation_h: u32,
        dilation_w: u32,
        bands: u32,
        first_sample: u32,
        end_sample: u32,
        pad0: u32,
    }
}

/// The kernels of a deformable convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DeformPass {
    /// The columns of samples.
    Columns,
    /// The gradients of the offset and the mask.
    OffsetBackward,
    /// The gradient of the input.
    XBackward,
}

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct DeformKernel {
    /// What the kernel computes.
    pass: DeformPass,
    /// Whether there is a mask.
    mask: bool,
}

impl Kernel for DeformKernel {
    type Params = DeformParams;

    fn variant(&self) -> Variant {
        let source = match self.pass {
            DeformPass::Columns => &DEFORM_COLUMNS,
            DeformPass::OffsetBackward => &DEFORM_OFFSET_BACKWARD,
            DeformPass::XBackward => &DEFORM_X_BACKWARD,
        };
        Variant::new(source).flag("MASK", self.mask)
    }
}

/// The gradients of a deformable convolution.
#[derive(Debug)]
pub struct DeformGradients {
    /// With respect to the input.
    pub x: Tensor,
    /// With respect to the offset.
    pub offset: Tensor,
    /// With respect to the weight.
    pub weight: Tensor,
    /// With respect to the mask; `None` without a mask.
    pub mask: Option<Tensor>,
    /// With respect to the bias; `None` without a bias.
    pub bias: Option<Tensor>,
}

/// Returns the sizes of a deformable convolution.
///
/// # Errors
///
/// Returns an error if the shapes do not fit.
fn geometry(
    x: &[usize],
    offset: &[usize],
    weight: &[usize],
    mask: Option<&[usize]>,
    options: DeformOptions,
) -> Result<ConvGeometry> {
    let offset_groups = options.offset_groups;
    let g = ConvGeometry::new(x, weight, options.conv)?;
    let [_, h, w] = g.output;
    let error =
        |rhs: &[usize], rule| Err(Error::Shape { lhs: x.to_vec(), rhs: rhs.to_vec(), rule });
    // Positions are f32.
    if g.input.iter().any(|&size| size > 1 << 24) {
        return error(
            weight,
            "the padded input of a deformable convolution can have at most 2^24 rows and columns",
        );
    }
    if x.len() != 4 || offset_groups == 0 || !x[1].is_multiple_of(offset_groups) {
        return error(
            &[offset_groups],
            "a deformable convolution needs x [n, c, h, w] and offset groups that divide the channels",
        );
    }
    let channels = |per_tap: usize| offset_groups.checked_mul(g.taps() * per_tap);
    let fits = |shape: &[usize], per_tap| {
        channels(per_tap).is_some_and(|channels| shape == [g.images, channels, h, w])
    };
    let misfit = [(Some(offset), 2), (mask, 1)]
        .into_iter()
        .filter_map(|(shape, per_tap)| shape.filter(|shape| !fits(shape, per_tap)))
        .next();
    match misfit {
        None => Ok(g),
        Some(shape) => error(
            shape,
            "an offset must be [n, groups * taps * 2, h, w] and a mask [n, groups * taps, h, w], with h and w of \
             the output",
        ),
    }
}

/// Returns the shape of the result of [`deform_conv2d`].
///
/// # Errors
///
/// Returns an error if the shapes do not fit.
pub fn deform_shape(
    x: &[usize],
    offset: &[usize],
    weight: &[usize],
    mask: Option<&[usize]>,
    options: DeformOptions,
) -> Result<Shape> {
    let g = geometry(x, offset, weight, mask, options)?;
    Ok(g.shape([g.images, g.all_out_channels()], g.output))
}

/// What the invocations of a launch go over.
struct LaunchExtent {
    invocations: usize,
    /// Bands of rows of each plane of the input.
    bands: usize,
    /// The samples that a launch adds to the bands.
    samples: Range<usize>,
    /// Rounds of the loops of an invocation, and operations of a round.
    rounds: usize,
    ops: usize,
}

/// The sizes of a deformable convolution, and the packed operands that its kernels read.
struct DeformProblem {
    g: ConvGeometry,
    offset_groups: usize,
    x: Tensor,
    offset: Tensor,
    mask: Option<Tensor>,
}

impl DeformProblem {
    /// Checks the shapes and packs the operands.
    fn new(
        x: Tensor,
        offset: Tensor,
        weight: &[usize],
        mask: Option<Tensor>,
        options: DeformOptions,
    ) -> Result<Self> {
        x.same_device(&offset)?;
        mask.iter().try_for_each(|mask| x.same_device(mask))?;
        let mask_shape = mask.as_ref().map(Tensor::shape);
        let g = geometry(x.shape(), offset.shape(), weight, mask_shape, options)?;
        let (x, offset) = (views::packed(x)?, views::packed(offset)?);
        let mask = mask.map(views::packed).transpose()?;
        Ok(Self { g, offset_groups: options.offset_groups, x, offset, mask })
    }

    /// Returns the shape of the columns, `[groups, c / groups * taps, n * pixels]`.
    fn columns_shape(&self) -> [usize; 3] {
        [self.g.options.groups, self.g.in_channels * self.g.taps(), self.g.out_pixels()]
    }

    /// Returns the inputs of a kernel in binding order: offset, mask if there is one, and `others`.
    fn inputs<'a>(&'a self, others: &[&'a Tensor]) -> SmallVec<[&'a Tensor; 4]> {
        let mut inputs: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(&[&self.offset]);
        inputs.extend(&self.mask);
        inputs.extend_from_slice(others);
        inputs
    }

    /// Returns the extent of a kernel whose invocations go over the channels that share a tap of an output pixel.
    fn of_taps(&self, ops: usize) -> LaunchExtent {
        let rounds = self.x.shape()[1] / self.offset_groups;
        LaunchExtent { invocations: self.offset.len() / 2, bands: 1, samples: 0..0, rounds, ops }
    }

    fn launch(
        &self,
        pass: DeformPass,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        extent: LaunchExtent,
    ) -> Result<()> {
        let LaunchExtent { invocations, bands, samples, rounds, ops } = extent;
        let ConvOptions { stride, padding, dilation, .. } = self.g.options;
        let [images, channels, in_h, in_w] = [0, 1, 2, 3].map(|axis| self.x.shape()[axis] as u32);
        let [_, out_h, out_w] = self.g.output.map(|size| size as u32);
        let [_, kernel_h, kernel_w] = self.g.kernel.map(|size| size as u32);
        let [_, stride_h, stride_w] = stride.map(|step| step as u32);
        let [_, padding_h, padding_w] = padding.map(|size| size as u32);
        let [_, dilation_h, dilation_w] = dilation.map(|step| step as u32);
        Launch {
            kernel: &DeformKernel { pass, mask: self.mask.is_some() },
            inputs,
            outputs,
            params: &DeformParams {
                count: invocations as u32,
                images,
                channels,
                offset_groups: self.offset_groups as u32,
                in_h,
                in_w,
                out_h,
                out_w,
                kernel_h,
                kernel_w,
                stride_h,
                stride_w,
                padding_h,
                padding_w,
                dilation_h,
                dilation_w,
                bands: bands as u32,
                first_sample: samples.start as u32,
                end_sample: samples.end as u32,
                pad0: 0,
            },
            workgroups: workgroups_for(invocations),
            work: invocations as u64 * rounds as u64 * ops as u64,
            rounds: Some(rounds as u64),
        }
        .run()
    }

    /// Samples `x` into the columns.
    fn columns(&self) -> Result<Tensor> {
        let inputs = self.inputs(&[&self.x]);
        let out = Tensor::empty(self.x.runtime(), &self.columns_shape(), DType::F32)?;
        self.launch(DeformPass::Columns, &inputs, &[&out], self.of_taps(8))?;
        Ok(out)
    }

    /// Computes the gradients of the offset and the mask from the gradient of the columns.
    fn offset_backward(&self, columns_grad: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let inputs = self.inputs(&[&self.x, columns_grad]);
        let empty_like =
            |tensor: &Tensor| Tensor::empty(self.x.runtime(), tensor.shape(), DType::F32);
        let offset = empty_like(&self.offset)?;
        let mask = self.mask.as_ref().map(empty_like).transpose()?;
        let outputs: SmallVec<[&Tensor; 2]> = std::iter::once(&offset).chain(&mask).collect();
        self.launch(DeformPass::OffsetBackward, &inputs, &outputs, self.of_taps(16))?;
        drop(outputs);
        Ok((offset, mask))
    }

    /// Computes the gradient of the input from the gradient of the columns.
    fn x_backward(&self, columns_grad: &Tensor) -> Result<Tensor> {
        let inputs = self.inputs(&[columns_grad]);
        let size = self.x.shape();
        let out = Tensor::empty(self.x.runtime(), size, DType::F32)?;
        // Each band of a plane walks all taps of the plane, so there are only as many bands as keep
        // the device busy.
        let planes = size[0] * size[1];
        let busy = policy::of(self.x.runtime()).busy_bands();
        let bands = busy.div_ceil(planes.max(1)).min(size[2]).max(1);
        // The first launch clears each band, in at most half of the rounds.
        let max_rounds = policy::max_rounds(self.x.runtime());
        let max_rows = (max_rounds / 2 / size[3].max(1)).max(1);
        let bands = bands.max(size[2].div_ceil(max_rows));
        // The taps of all output pixels, in order: the first launch clears the band, later ones add to it.
        let len = self.g.taps() * self.g.output.iter().product::<usize>();
        let cleared = size[2].div_ceil(bands) * size[3];
        for first in (0..len.max(1)).step_by(max_rounds / 2) {
            let samples = first..len.min(first + max_rounds / 2);
            let rounds = samples.len() + if first == 0 { cleared } else { 0 };
            let extent =
                LaunchExtent { invocations: planes * bands, bands, samples, rounds, ops: 8 };
            self.launch(DeformPass::XBackward, &inputs, &[&out], extent)?;
        }
        Ok(out)
    }
}

/// Computes the convolution of `x` `[n, c, h, w]` with `weight` `[o, c / groups, i, j]`, whose taps
/// sample `x` at displaced positions.
///
/// Each tap of each output pixel is displaced by `offset` `[n, offset_groups * i * j * 2, ..]`, row
/// before column, and its sample is multiplied by `mask` `[n, offset_groups * i * j, ..]`. Between
/// elements `x` is interpolated bilinearly; outside it is zero.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so does
/// [`deform_conv2d_backward`].
pub fn deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: DeformOptions,
) -> Result<Tensor> {
    x.same_device(&weight)?;
    let problem = DeformProblem::new(x, offset, weight.shape(), mask, options)?;
    let [groups, k, _] = problem.columns_shape();
    let ConvGeometry { images, out_channels, output: [_, h, w], .. } = problem.g;
    let weight = views::reshape(weight, &[groups, out_channels, k])?;
    // [o, n, h, w]
    let out = matmul::matmul(weight, problem.columns()?)?;
    let out = views::reshape(out, &[groups * out_channels, images, h, w])?;
    let out = views::swap_dims(out, 0, 1)?;
    match bias {
        Some(bias) => {
            let bias = views::reshape(bias, &[1, groups * out_channels, 1, 1])?;
            elementwise::binary(&rows::float_add, out, bias)
        }
        None => Ok(out),
    }
}

/// Computes the gradients of [`deform_conv2d`] from `grad`, the gradient of its result.
pub fn deform_conv2d_backward(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Option<Tensor>,
    has_bias: bool,
    grad: Tensor,
    options: DeformOptions,
) -> Result<DeformGradients> {
    x.same_device(&weight)?;
    x.same_device(&grad)?;
    let problem = DeformProblem::new(x, offset, weight.shape(), mask, options)?;
    let [groups, k, pixels] = problem.columns_shape();
    let ConvGeometry { images, out_channels, output: [_, h, w], .. } = problem.g;
    if grad.shape() != [images, groups * out_channels, h, w] {
        return Err(Error::Shape {
            lhs: grad.shape().to_vec(),
            rhs: vec![images, groups * out_channels, h, w],
            rule: "a gradient must have the shape of the output",
        });
    }
    let bias = if has_bias { Some(conv::bias_backward(grad.clone())?) } else { None };
    let grad = views::reshape(views::swap_dims(grad, 0, 1)?, &[groups, out_channels, pixels])?;
    let columns = views::swap_dims(problem.columns()?, 1, 2)?;
    let weight_grad = matmul::matmul(grad.clone(), columns)?;
    let weight_by_groups = views::reshape(weight.clone(), &[groups, out_channels, k])?;
    let transposed_weight = views::swap_dims(weight_by_groups, 1, 2)?;
    let columns_grad = views::packed(matmul::matmul(transposed_weight, grad)?)?;
    let (offset, mask) = problem.offset_backward(&columns_grad)?;
    Ok(DeformGradients {
        x: problem.x_backward(&columns_grad)?,
        offset,
        weight: views::reshape(weight_grad, weight.shape())?,
        mask,
        bias,
    })
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let passes = [DeformPass::Columns, DeformPass::OffsetBackward, DeformPass::XBackward];
    let kernels = |pass| [false, true].map(|mask| DeformKernel { pass, mask });
    variants_of(passes.into_iter().flat_map(kernels))
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Deform(&[1, 1], &[1, 1], &[1, 1], 1, 1);
    const MIXED: Arg = Arg::Deform(&[2, 1], &[0, 1], &[1, 2], 1, 2);
    const GROUPED: Arg = Arg::Deform(&[1, 1], &[1, 1], &[1, 1], 2, 4);
    const ONE_TAP: Arg = Arg::Deform(&[1, 2], &[0, 0], &[1, 1], 3, 1);
    cases! {
        deform_conv2d([2, 4, 7, 6], [2, 18, 7, 6], [6, 4, 3, 3], [2, 9, 7, 6], [6], SAME);
        deform_conv2d([2, 4, 8, 7], [2, 24, 3, 7], [5, 4, 3, 2], _, _, MIXED);
        // Large enough for products that are padded to vec4s.
        deform_conv2d([1, 24, 27, 13], [1, 18, 27, 13], [118, 24, 3, 3], _, _, SAME);
        deform_conv2d([3, 8, 6, 6], permuted(&[3, 72, 6, 6], &[0, 1, 3, 2]), [4, 4, 3, 3],
            [3, 36, 6, 6], _, GROUPED);
        deform_conv2d(permuted(&[1, 5, 7, 6], &[0, 3, 1, 2]), [1, 2, 5, 4], [3, 2, 1, 1], _, [3],
            ONE_TAP);
        deform_conv2d_backward([0, 4, 7, 6], [0, 18, 7, 6], [6, 4, 3, 3], [0, 9, 7, 6], [6],
            [0, 6, 7, 6], SAME);
        deform_conv2d([0, 4, 7, 6], [0, 18, 7, 6], [6, 4, 3, 3], [0, 9, 7, 6], [6], SAME);
        deform_conv2d_backward([2, 4, 7, 6], [2, 18, 7, 6], [6, 4, 3, 3], [2, 9, 7, 6], [6],
            [2, 6, 7, 6], SAME);
        deform_conv2d_backward([1, 21, 27, 13], [1, 18, 27, 13], [135, 21, 3, 3], _, _,
            [1, 135, 27, 13], SAME);
        deform_conv2d_backward([2, 4, 8, 7], [2, 24, 3, 7], [5, 4, 3, 2], _, _, [2, 5, 3, 7],
            MIXED);
        deform_conv2d_backward([3, 8, 6, 6], [3, 72, 6, 6], [4, 4, 3, 3], [3, 36, 6, 6], _,
            [3, 4, 6, 6], GROUPED);
    }
};
