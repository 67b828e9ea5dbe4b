//! The sizes of a convolution: the Rust side of `shaders/lib/window.wgsl`.

use crate::kernels::ops::options::ConvOptions;
use crate::params;
use crate::tensor::{Error, Result, Shape, strided_len};

params! {
    /// The WGSL `Window`: sizes and distances along depth, height and width.
    pub(crate) struct Window {
        in_d: u32,
        in_h: u32,
        in_w: u32,
        out_d: u32,
        out_h: u32,
        out_w: u32,
        kernel_d: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride_d: u32,
        stride_h: u32,
        stride_w: u32,
        dilation_d: u32,
        dilation_h: u32,
        dilation_w: u32,
        pad0: u32,
    }
}

/// Extends an option of the last `N` spatial axes to depth, height and width. The other axes get
/// `default`.
pub fn spatial_options<const N: usize>(options: [usize; N], default: usize) -> [usize; 3] {
    std::array::from_fn(|axis| (axis + N).checked_sub(3).map_or(default, |i| options[i]))
}

/// Returns the sizes of the axes after the first two as depth, height and width. Missing axes have
/// size 1.
///
/// # Errors
///
/// Returns an error if the shape does not have one to three spatial axes.
pub fn spatial_sizes(shape: &[usize]) -> Result<[usize; 3]> {
    match *shape.get(2..).unwrap_or_default() {
        [w] => Ok([1, 1, w]),
        [h, w] => Ok([1, h, w]),
        [d, h, w] => Ok([d, h, w]),
        _ => Err(Error::Shape {
            lhs: shape.to_vec(),
            rhs: Vec::new(),
            rule: "a convolution needs tensors with batch, channels and one to three spatial axes",
        }),
    }
}

/// The sizes and options of a convolution.
pub struct ConvGeometry {
    /// Batch size.
    pub images: usize,
    /// Input channels per group.
    pub in_channels: usize,
    /// Size of the padded input.
    pub input: [usize; 3],
    /// Output channels per group.
    pub out_channels: usize,
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub options: ConvOptions,
    /// Number of spatial axes of the tensors: one to three.
    pub axes: usize,
}

impl ConvGeometry {
    /// Computes the geometry for an input `[n, c, ..]` and a weight `[o, c / groups, ..]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the shapes or options do not fit together.
    pub fn new(x: &[usize], weight: &[usize], options: ConvOptions) -> Result<Self> {
        let error = |rule| Error::Shape { lhs: x.to_vec(), rhs: weight.to_vec(), rule };
        let ConvOptions { stride, padding, dilation, groups } = options;
        let (size, kernel) = (spatial_sizes(x)?, spatial_sizes(weight)?);
        if x.len() != weight.len() {
            return Err(error(
                "x [n, c, ..] and weight [o, c / groups, ..] must have the same rank",
            ));
        }
        if groups == 0 || stride.contains(&0) || dilation.contains(&0) {
            return Err(error("strides, dilations and groups must be positive"));
        }
        if Some(x[1]) != weight[1].checked_mul(groups) || !weight[0].is_multiple_of(groups) {
            return Err(error(
                "x [n, c, ..] needs a weight [o, c / groups, ..], and the groups must divide o",
            ));
        }
        let (mut input, mut extent) = ([0; 3], [0; 3]);
        for axis in 0..3 {
            let [kernel, stride] = [kernel[axis], stride[axis]];
            let sizes =
                addressable_window(size[axis], kernel, stride, padding[axis], dilation[axis]);
            (input[axis], extent[axis]) = sizes.ok_or_else(|| error(TOO_LARGE))?;
        }
        if (0..3).any(|axis| kernel[axis] == 0 || input[axis] <= extent[axis]) {
            return Err(error("the kernel must not be larger than the padded input"));
        }
        let output = [0, 1, 2].map(|axis| (input[axis] - extent[axis] - 1) / stride[axis] + 1);
        let [d, h, w] = output;
        if strided_len(&[x[0], weight[0], d, h, w]).is_none() {
            return Err(error(TOO_LARGE));
        }
        Ok(Self {
            images: x[0],
            in_channels: weight[1],
            input,
            out_channels: weight[0] / groups,
            output,
            kernel,
            options,
            axes: x.len() - 2,
        })
    }

    /// Replaces the output size by that of `grad` `[n, o, ..]`, which may be smaller: the input of
    /// a transposed convolution with output padding can be smaller than the convolution of its
    /// output.
    ///
    /// # Errors
    ///
    /// Returns an error if `grad` does not have the shape of an output.
    pub fn with_output_of(mut self, grad: &[usize]) -> Result<Self> {
        let output = spatial_sizes(grad)?;
        let channels = self.options.groups * self.out_channels;
        let fits = (0..3).all(|axis| output[axis] <= self.output[axis]);
        if grad[..2] != [self.images, channels] || !fits {
            return Err(Error::Shape {
                lhs: grad.to_vec(),
                rhs: self.shape([self.images, channels], self.output).to_vec(),
                rule: "a gradient must have the shape of the output",
            });
        }
        self.output = output;
        Ok(self)
    }

    /// Returns the number of elements of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns the number of output pixels of all images.
    pub fn out_pixels(&self) -> usize {
        self.images * self.output.iter().product::<usize>()
    }

    /// Returns the number of output channels of all groups.
    pub fn all_out_channels(&self) -> usize {
        self.options.groups * self.out_channels
    }

    /// Returns the shape with the axes `outer` and the last [`axes`](Self::axes) of the spatial
    /// `sizes`.
    pub fn shape(&self, outer: [usize; 2], sizes: [usize; 3]) -> Shape {
        outer.iter().chain(&sizes[3 - self.axes..]).copied().collect()
    }

    /// Returns the kernel parameters for an input of size `input`: the padded input, or the input
    /// without padding if the kernel itself pads.
    pub fn window(&self, input: [usize; 3]) -> Window {
        let ConvOptions { stride, dilation, .. } = self.options;
        let [in_d, in_h, in_w] = input.map(|size| size as u32);
        let [out_d, out_h, out_w] = self.output.map(|size| size as u32);
        let [kernel_d, kernel_h, kernel_w] = self.kernel.map(|size| size as u32);
        let [stride_d, stride_h, stride_w] = stride.map(|step| step as u32);
        let [dilation_d, dilation_h, dilation_w] = dilation.map(|step| step as u32);
        Window {
            in_d,
            in_h,
            in_w,
            out_d,
            out_h,
            out_w,
            kernel_d,
            kernel_h,
            kernel_w,
            stride_d,
            stride_h,
            stride_w,
            dilation_d,
            dilation_h,
            dilation_w,
            pad0: 0,
        }
    }
}

/// The limit of the sizes, strides, dilations and padding of windows, so that kernels can compute positions in 32 bits.
const MAX_WINDOW: usize = 1 << 30;
/// The message about larger ones.
pub const TOO_LARGE: &str =
    "kernels, strides, dilations, padding and the padded input must be below 2^30 along each axis";

/// Returns the size of a padded input along an axis, and the distance from the first tap of a window to the last;
/// `None` if one of the sizes is too large.
pub fn addressable_window(
    input: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Option<(usize, usize)> {
    let padded = padding.checked_mul(2)?.checked_add(input)?;
    let extent = dilation.checked_mul(kernel.max(1) - 1)?;
    let is_small = |size: &usize| *size < MAX_WINDOW;
    let fits = [kernel, stride, padding, dilation, padded, extent].iter().all(is_small);
    fits.then_some((padded, extent))
}

/// Returns the distance from the first tap of a kernel to the last along each axis, in input
/// elements. None of the sizes is too large: see [`addressable_window`].
pub fn kernel_extent(kernel: [usize; 3], dilation: [usize; 3]) -> [usize; 3] {
    [0, 1, 2].map(|axis| dilation[axis] * (kernel[axis].max(1) - 1))
}
