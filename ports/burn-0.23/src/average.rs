//! Average pooling. Burn 0.21 has none with gaps between the elements of a window: there it is a convolution with ones,
//! divided by the number of elements.

use burn_backend::ops::ConvOptions;
use burn_backend::ops::conv::calculate_pool_output_size;
use burn_backend_021::ops::{FloatTensorOps, ModuleOps};
use burn_backend_021::{Shape, TensorData, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

use crate::ops::padding::{Place, padded, unpadded};
use crate::ops::windows::{Axis, Windows};

/// The settings of pooling along `N` axes.
#[derive(Clone, Copy)]
pub(crate) struct Pool<const N: usize> {
    pub kernel: [usize; N],
    pub stride: [usize; N],
    pub padding: [usize; N],
    pub dilation: [usize; N],
    pub ceil_mode: bool,
}

impl<const N: usize> Pool<N> {
    /// Returns the settings along some of the axes.
    pub fn along<const M: usize>(&self, axes: [usize; M]) -> Pool<M> {
        let of = |setting: [usize; N]| axes.map(|axis| setting[axis]);
        Pool {
            kernel: of(self.kernel),
            stride: of(self.stride),
            padding: of(self.padding),
            dilation: of(self.dilation),
            ceil_mode: self.ceil_mode,
        }
    }

    /// Returns the settings with windows of one element along another axis, the last.
    pub fn with_plain_axis<const M: usize>(&self) -> Pool<M> {
        let with = |setting: [usize; N], plain| {
            std::array::from_fn(|axis| setting.get(axis).copied().unwrap_or(plain))
        };
        Pool {
            kernel: with(self.kernel, 1),
            stride: with(self.stride, 1),
            padding: with(self.padding, 0),
            dilation: with(self.dilation, 1),
            ceil_mode: self.ceil_mode,
        }
    }

    fn axis(&self, axis: usize) -> Axis {
        Axis {
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            padding: self.padding[axis],
            dilation: self.dilation[axis],
        }
    }

    /// Returns the number of windows along an axis of `size` elements.
    pub fn windows(&self, axis: usize, size: usize) -> usize {
        let Axis { kernel, stride, padding, dilation } = self.axis(axis);
        calculate_pool_output_size(kernel, stride, padding, dilation, size, self.ceil_mode)
    }
}

impl Pool<2> {
    pub fn windows_of(&self, x: &WgslTensor) -> Windows<2> {
        Windows::new(x, [self.axis(0), self.axis(1)], self.ceil_mode)
    }
}

/// Averages images `[batch, channels, height, width]`.
pub(crate) fn average(x: WgslTensor, pool: Pool<2>, counts_padding: bool) -> WgslTensor {
    if pool.dilation == [1; 2] {
        let Pool { kernel, stride, padding, .. } = pool;
        let windows = pool.windows_of(&x);
        let pooled =
            Wgsl::avg_pool2d(x, kernel, stride, padding, counts_padding, windows.ceil_mode);
        return windows.cut(pooled);
    }
    let sums = Sums::of(&x, pool, counts_padding);
    let (image, options, _) = sums.padded(x);
    let pooled = Wgsl::conv2d(image, sums.weight, None, options);
    Wgsl::float_reshape(Wgsl::float_div(pooled, sums.divisors), sums.shape)
}

/// Returns the gradient for `x` from that of the result.
pub(crate) fn average_backward(
    x: WgslTensor,
    grad: WgslTensor,
    pool: Pool<2>,
    counts_padding: bool,
) -> WgslTensor {
    if pool.dilation == [1; 2] {
        let Pool { kernel, stride, padding, .. } = pool;
        let windows = pool.windows_of(&x);
        let (grad, ceil_mode) = (windows.grown(grad), windows.ceil_mode);
        return Wgsl::avg_pool2d_backward(
            x,
            grad,
            kernel,
            stride,
            padding,
            counts_padding,
            ceil_mode,
        );
    }
    let shape = x.shape();
    let sums = Sums::of(&x, pool, counts_padding);
    let [_, _, height, width] = [0, 1, 2, 3].map(|axis| sums.shape[axis]);
    let grad = Wgsl::float_reshape(grad, Shape::new([shape[0] * shape[1], 1, height, width]));
    let grad = Wgsl::float_div(grad, sums.divisors.clone());
    let (image, options, place) = sums.padded(x);
    let grad = Wgsl::conv2d_x_backward(image, sums.weight, grad, options);
    Wgsl::float_reshape(unpadded(grad, place), shape)
}

/// The sums over windows as a convolution of images of one channel.
struct Sums {
    /// Ones.
    weight: WgslTensor,
    /// The number of elements of each window, `[1, 1, height, width]`.
    divisors: WgslTensor,
    options: ConvOptions<2>,
    /// The shape of the result.
    shape: Shape,
}

impl Sums {
    fn of(x: &WgslTensor, pool: Pool<2>, counts_padding: bool) -> Self {
        let (device, dtype, shape) = (Wgsl::float_device(x), x.dtype().into(), x.shape());
        let sizes = [shape[2], shape[3]];
        let windows = [0, 1].map(|axis| pool.windows(axis, sizes[axis]));
        let padding = [0, 1].map(|axis| {
            let Axis { kernel, stride, padding, dilation } = pool.axis(axis);
            // To the end of the last window.
            let len = (windows[axis].max(1) - 1) * stride + (kernel - 1) * dilation + 1;
            (padding, len.saturating_sub(padding + sizes[axis]))
        });
        let counts = [0, 1].map(|axis| {
            let Axis { kernel, stride, padding, dilation } = pool.axis(axis);
            let counted = match counts_padding {
                true => 0..sizes[axis] + 2 * padding,
                false => padding..padding + sizes[axis],
            };
            let count = |window: usize| {
                let element = |tap: usize| counted.contains(&(window * stride + tap * dilation));
                (0..kernel).filter(|&tap| element(tap)).count().max(1)
            };
            (0..windows[axis]).map(count).collect::<Vec<_>>()
        });
        let [rows, columns] = &counts;
        let divisors = rows.iter().flat_map(|row| columns.iter().map(move |column| row * column));
        let divisors: Vec<f32> = divisors.map(|count| count as f32).collect();
        let divisors = TensorData::new(divisors, [1, 1, windows[0], windows[1]]);
        let divisors = Wgsl::float_cast(Wgsl::float_from_data(divisors, &device), dtype);
        let ones = Shape::new([1, 1, pool.kernel[0], pool.kernel[1]]);
        Self {
            weight: Wgsl::float_ones(ones, &device, dtype),
            divisors,
            options: ConvOptions::new_with_padding(pool.stride, padding, pool.dilation, 1),
            shape: Shape::new([shape[0], shape[1], windows[0], windows[1]]),
        }
    }

    /// Returns the padded images of one channel, with the options of the convolution.
    fn padded(&self, x: WgslTensor) -> (WgslTensor, burn_backend_021::ops::ConvOptions<2>, Place) {
        let shape = x.shape();
        let image = Shape::new([shape[0] * shape[1], 1, shape[2], shape[3]]);
        padded(Wgsl::float_reshape(x, image), self.options.clone())
    }
}
