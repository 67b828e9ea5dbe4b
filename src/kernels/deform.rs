//! Deformable convolution in two dimensions and its gradients. The image is sampled where the offsets say into
//! columns, `[c * taps, n * pixels]`, and the rest are products with the weight: one for each of its groups.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::geometry::{ConvOptions, Geometry};
use super::table::rows;
use super::{Launch, Params, conv, copy, div_up, elementwise, matmul};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static DEFORM_COLUMNS: Source =
    Source { name: "deform_columns", text: include_str!("../../shaders/conv/deform_columns.wgsl") };
static DEFORM_OFFSET_BACKWARD: Source = Source {
    name: "deform_offset_backward",
    text: include_str!("../../shaders/conv/deform_offset_backward.wgsl"),
};
static DEFORM_X_BACKWARD: Source = Source {
    name: "deform_x_backward",
    text: include_str!("../../shaders/conv/deform_x_backward.wgsl"),
};

/// How a deformable kernel moves over its input.
#[derive(Debug, Clone, Copy)]
pub struct DeformOptions {
    /// As any other kernel; the groups are the weight's.
    pub conv: ConvOptions,
    /// Groups of channels that have offsets, and masks, of their own.
    pub offset_groups: usize,
}

/// The gradients of a deformable convolution.
#[derive(Debug)]
pub struct Gradients {
    /// With respect to the input.
    pub x: Tensor,
    /// With respect to the offset.
    pub offset: Tensor,
    /// With respect to the weight.
    pub weight: Tensor,
    /// With respect to the mask, if there is one.
    pub mask: Option<Tensor>,
    /// With respect to the bias, if there is one.
    pub bias: Option<Tensor>,
}

/// The operands that its kernels read, packed, and every size.
struct Deform {
    g: Geometry,
    offset_groups: usize,
    x: Tensor,
    offset: Tensor,
    mask: Option<Tensor>,
}

impl Deform {
    fn new(
        x: Tensor,
        offset: Tensor,
        weight: &[usize],
        mask: Option<Tensor>,
        options: DeformOptions,
    ) -> Result<Self> {
        let DeformOptions { conv, offset_groups } = options;
        let g = Geometry::new(x.shape(), weight, conv)?;
        let [_, h, w] = g.output;
        if x.shape().len() != 4 || offset_groups == 0 || !x.shape()[1].is_multiple_of(offset_groups)
        {
            return Err(Error::Shape {
                lhs: x.shape().to_vec(),
                rhs: vec![offset_groups],
                rule: "a deformable convolution needs x [n, c, h, w], and offset groups that divide the channels",
            });
        }
        let fits = |tensor: &Tensor, each: usize| {
            x.same_device(tensor)?;
            if tensor.shape() == [g.images, offset_groups * g.taps() * each, h, w] {
                return Ok(());
            }
            Err(Error::Shape {
                lhs: x.shape().to_vec(),
                rhs: tensor.shape().to_vec(),
                rule: "an offset is [n, groups * taps * 2, h, w], a mask [n, groups * taps, h, w] of the output",
            })
        };
        fits(&offset, 2)?;
        if let Some(mask) = &mask {
            fits(mask, 1)?;
        }
        let (x, offset) = (copy::packed(x)?, copy::packed(offset)?);
        let mask = mask.map(copy::packed).transpose()?;
        Ok(Self { g, offset_groups, x, offset, mask })
    }

    /// The shape of the columns, `[groups, c / groups * taps, n * pixels]`.
    fn columns_shape(&self) -> [usize; 3] {
        [self.g.options.groups, self.g.in_c * self.g.taps(), self.g.out_pixels()]
    }

    /// The offset, the mask if there is one, and others: what a kernel binds.
    fn inputs<'a>(&'a self, others: &[&'a Tensor]) -> SmallVec<[&'a Tensor; 4]> {
        let mut inputs: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(&[&self.offset]);
        inputs.extend(&self.mask);
        inputs.extend_from_slice(others);
        inputs
    }

    fn launch(
        &self,
        source: &'static Source,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        len: usize,
        bands: usize,
        work: usize,
    ) -> Result<()> {
        let size = self.x.shape();
        let ConvOptions { stride, padding, dilation, .. } = self.g.options;
        let mut params: Params = SmallVec::new();
        params.extend(
            [len, size[0], size[1], self.offset_groups, size[2], size[3]].map(|v| v as u32),
        );
        for [_, h, w] in [self.g.output, self.g.kernel, stride, padding, dilation] {
            params.extend([h as u32, w as u32]);
        }
        params.extend([bands as u32, 0, 0, 0]);
        Launch {
            variant: &variant(source, self.mask.is_some()),
            inputs,
            outputs,
            params: &params,
            groups: div_up(len, 64),
            work: work as u64,
        }
        .run()
    }

    /// The samples.
    fn columns(&self) -> Result<Tensor> {
        let inputs = self.inputs(&[&self.x]);
        let out = Tensor::empty(self.x.runtime(), &self.columns_shape(), DType::F32, &inputs)?;
        self.launch(&DEFORM_COLUMNS, &inputs, &[&out], self.offset.len() / 2, 1, out.len() * 8)?;
        Ok(out)
    }

    /// The gradients of the offset and the mask, from that of the columns.
    fn offset_backward(&self, columns_grad: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let inputs = self.inputs(&[&self.x, columns_grad]);
        let like =
            |tensor: &Tensor| Tensor::empty(self.x.runtime(), tensor.shape(), DType::F32, &inputs);
        let offset = like(&self.offset)?;
        let mask = self.mask.as_ref().map(like).transpose()?;
        let outputs: SmallVec<[&Tensor; 2]> = std::iter::once(&offset).chain(&mask).collect();
        self.launch(
            &DEFORM_OFFSET_BACKWARD,
            &inputs,
            &outputs,
            offset.len() / 2,
            1,
            columns_grad.len() * 16,
        )?;
        drop(outputs);
        Ok((offset, mask))
    }

    /// The gradient of the input, from that of the columns.
    fn x_backward(&self, columns_grad: &Tensor) -> Result<Tensor> {
        let inputs = self.inputs(&[columns_grad]);
        let size = self.x.shape();
        let out = Tensor::empty(self.x.runtime(), size, DType::F32, &inputs)?;
        // Every band of a plane walks all of its taps: no more bands than keep the device busy.
        let planes = size[0] * size[1];
        let busy: usize = if self.x.runtime().is_software() { 16 } else { 16384 };
        let bands = busy.div_ceil(planes.max(1)).min(size[2]).max(1);
        let work = columns_grad.len() * bands * 8;
        self.launch(&DEFORM_X_BACKWARD, &inputs, &[&out], planes * bands, bands, work)?;
        Ok(out)
    }
}

fn variant(source: &'static Source, mask: bool) -> Variant {
    Variant::new(source).flag("MASK", mask)
}

/// The convolution of `x` `[n, c, h, w]` with `weight` `[o, c / groups, i, j]`, each tap of each output pixel moved
/// by its `offset` `[n, offset_groups * i * j * 2, ..]`, rows first, and multiplied by its `mask`
/// `[n, offset_groups * i * j, ..]`. Between elements `x` is interpolated; outside it is zero.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there; so too for its gradients.
pub fn deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: DeformOptions,
) -> Result<Tensor> {
    x.same_device(&weight)?;
    let deform = Deform::new(x, offset, weight.shape(), mask, options)?;
    let [groups, rows, _] = deform.columns_shape();
    let Geometry { images, out_c, output: [_, h, w], .. } = deform.g;
    let weight = copy::reshape(weight, &[groups, out_c, rows])?;
    // [o, n, h, w]
    let out = matmul::matmul(weight, deform.columns()?)?;
    let out = out.view(Layout::contiguous(&[groups * out_c, images, h, w]));
    let out = copy::swap_dims(out, 0, 1)?;
    match bias {
        Some(bias) => {
            let bias = copy::reshape(bias, &[1, groups * out_c, 1, 1])?;
            elementwise::binary(&rows::float_add, out, bias)
        }
        None => Ok(out),
    }
}

/// The gradients of [`deform_conv2d`].
pub fn deform_conv2d_backward(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Option<Tensor>,
    has_bias: bool,
    grad: Tensor,
    options: DeformOptions,
) -> Result<Gradients> {
    x.same_device(&weight)?;
    x.same_device(&grad)?;
    let deform = Deform::new(x, offset, weight.shape(), mask, options)?;
    let [groups, rows, pixels] = deform.columns_shape();
    let Geometry { images, out_c, output: [_, h, w], .. } = deform.g;
    if grad.shape() != [images, groups * out_c, h, w] {
        return Err(Error::Shape {
            lhs: grad.shape().to_vec(),
            rhs: vec![images, groups * out_c, h, w],
            rule: "a gradient has the shape of what it is the gradient of",
        });
    }
    let bias = if has_bias { Some(conv::bias_backward(grad.clone())?) } else { None };
    let grad = copy::reshape(copy::swap_dims(grad, 0, 1)?, &[groups, out_c, pixels])?;
    let columns = copy::swap_dims(deform.columns()?, 1, 2)?;
    let weight_grad = matmul::matmul(grad.clone(), columns)?;
    let turned = copy::swap_dims(copy::reshape(weight.clone(), &[groups, out_c, rows])?, 1, 2)?;
    let columns_grad = copy::packed(matmul::matmul(turned, grad)?)?;
    let (offset, mask) = deform.offset_backward(&columns_grad)?;
    Ok(Gradients {
        x: deform.x_backward(&columns_grad)?,
        offset,
        weight: weight_grad.view(Layout::contiguous(weight.shape())),
        mask,
        bias,
    })
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let sources = [&DEFORM_COLUMNS, &DEFORM_OFFSET_BACKWARD, &DEFORM_X_BACKWARD];
    sources.into_iter().flat_map(|source| [variant(source, false), variant(source, true)]).collect()
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Deform(&[1, 1], &[1, 1], &[1, 1], 1, 1);
    const WIDE: Arg = Arg::Deform(&[2, 1], &[0, 1], &[1, 2], 1, 2);
    const GROUPED: Arg = Arg::Deform(&[1, 1], &[1, 1], &[1, 1], 2, 4);
    const POINT: Arg = Arg::Deform(&[1, 2], &[0, 0], &[1, 1], 3, 1);
    &[
        case(
            "deform_conv2d",
            &[
                normal(&[2, 4, 7, 6]),
                normal(&[2, 18, 7, 6]),
                normal(&[6, 4, 3, 3]),
                normal(&[2, 9, 7, 6]),
                normal(&[6]),
                SAME,
            ],
        ),
        case(
            "deform_conv2d",
            &[
                normal(&[2, 4, 8, 7]),
                normal(&[2, 24, 3, 7]),
                normal(&[5, 4, 3, 2]),
                Arg::Without,
                Arg::Without,
                WIDE,
            ],
        ),
        case(
            "deform_conv2d",
            &[
                normal(&[3, 8, 6, 6]),
                permuted(&[3, 72, 6, 6], &[0, 1, 3, 2]),
                normal(&[4, 4, 3, 3]),
                normal(&[3, 36, 6, 6]),
                Arg::Without,
                GROUPED,
            ],
        ),
        case(
            "deform_conv2d",
            &[
                permuted(&[1, 5, 7, 6], &[0, 3, 1, 2]),
                normal(&[1, 2, 5, 4]),
                normal(&[3, 2, 1, 1]),
                Arg::Without,
                normal(&[3]),
                POINT,
            ],
        ),
        case(
            "deform_conv2d_backward",
            &[
                normal(&[0, 4, 7, 6]),
                normal(&[0, 18, 7, 6]),
                normal(&[6, 4, 3, 3]),
                normal(&[0, 9, 7, 6]),
                normal(&[6]),
                normal(&[0, 6, 7, 6]),
                SAME,
            ],
        ),
        case(
            "deform_conv2d",
            &[
                normal(&[0, 4, 7, 6]),
                normal(&[0, 18, 7, 6]),
                normal(&[6, 4, 3, 3]),
                normal(&[0, 9, 7, 6]),
                normal(&[6]),
                SAME,
            ],
        ),
        case(
            "deform_conv2d_backward",
            &[
                normal(&[2, 4, 7, 6]),
                normal(&[2, 18, 7, 6]),
                normal(&[6, 4, 3, 3]),
                normal(&[2, 9, 7, 6]),
                normal(&[6]),
                normal(&[2, 6, 7, 6]),
                SAME,
            ],
        ),
        case(
            "deform_conv2d_backward",
            &[
                normal(&[2, 4, 8, 7]),
                normal(&[2, 24, 3, 7]),
                normal(&[5, 4, 3, 2]),
                Arg::Without,
                Arg::Without,
                normal(&[2, 5, 3, 7]),
                WIDE,
            ],
        ),
        case(
            "deform_conv2d_backward",
            &[
                normal(&[3, 8, 6, 6]),
                normal(&[3, 72, 6, 6]),
                normal(&[4, 4, 3, 3]),
                normal(&[3, 36, 6, 6]),
                Arg::Without,
                normal(&[3, 4, 6, 6]),
                GROUPED,
            ],
        ),
    ]
};
