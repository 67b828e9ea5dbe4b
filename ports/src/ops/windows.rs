//! The windows of pooling. With `ceil_mode`, Burn 0.22 drops a last window that starts past the
//! input; Burn 0.21 keeps it.

use burn_backend::ops::conv::calculate_pool_output_size;
use burn_backend_021::ops::{FloatTensorOps, IntTensorOps};
use burn_backend_021::{Shape, Slice, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

/// The settings of pooling along an axis.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

/// How pooling in Burn 0.21 gives the windows of Burn 0.22.
pub(crate) struct Windows<const N: usize> {
    /// The mode for Burn 0.21.
    pub ceil_mode: bool,
    /// Its numbers of windows, and those of Burn 0.22, if they differ.
    cut: Option<[[usize; N]; 2]>,
}

impl<const N: usize> Windows<N> {
    /// Finds the mode for an input `[batch, channels, axes..]`.
    pub fn new(x: &WgslTensor, axes: [Axis; N], ceil_mode: bool) -> Self {
        let floor_mode = Self { ceil_mode: false, cut: None };
        if !ceil_mode {
            return floor_mode;
        }
        let shape = x.shape();
        let sizes = |size: &dyn Fn(usize, Axis) -> usize| {
            std::array::from_fn(|axis| size(shape[2 + axis], axes[axis]))
        };
        let wanted: [usize; N] = sizes(&|size, Axis { kernel, stride, padding, dilation }| {
            calculate_pool_output_size(kernel, stride, padding, dilation, size, true)
        });
        // The padded input without the first window, which can be larger than it.
        let rest = |size: usize, Axis { kernel, padding, dilation, .. }: Axis| {
            (size + 2 * padding).checked_sub(dilation * (kernel - 1) + 1)
        };
        let without_last =
            sizes(&|size, axis| rest(size, axis).map_or(0, |rest| rest / axis.stride + 1));
        if wanted == without_last {
            return floor_mode;
        }
        let with_last =
            sizes(&|size, axis| rest(size, axis).map_or(1, |rest| rest.div_ceil(axis.stride) + 1));
        Self { ceil_mode: true, cut: (wanted != with_last).then_some([with_last, wanted]) }
    }

    fn place(wanted: [usize; N]) -> Vec<Slice> {
        let axes = wanted.into_iter().map(|size| Slice::new(0, Some(size as isize), 1));
        [Slice::full(); 2].into_iter().chain(axes).collect()
    }

    /// The shape of a tensor with all windows of Burn 0.21.
    fn larger(tensor: &WgslTensor, with_last: [usize; N]) -> Shape {
        let mut shape = tensor.shape();
        for (axis, size) in with_last.into_iter().enumerate() {
            shape[2 + axis] = size;
        }
        shape
    }

    /// Drops windows of a result.
    pub fn cut(&self, result: WgslTensor) -> WgslTensor {
        match self.cut {
            Some([_, wanted]) => Wgsl::float_slice(result, &Self::place(wanted)),
            None => result,
        }
    }

    /// Drops windows of indices.
    pub fn cut_indices(&self, indices: WgslTensor) -> WgslTensor {
        match self.cut {
            Some([_, wanted]) => Wgsl::int_slice(indices, &Self::place(wanted)),
            None => indices,
        }
    }

    /// Adds the dropped windows to a gradient, with zeros.
    pub fn grown(&self, grad: WgslTensor) -> WgslTensor {
        let Some([with_last, wanted]) = self.cut else { return grad };
        let shape = Self::larger(&grad, with_last);
        let zeros = Wgsl::float_zeros(shape, &Wgsl::float_device(&grad), grad.dtype().into());
        Wgsl::float_slice_assign(zeros, &Self::place(wanted), grad)
    }

    /// Adds the dropped windows to indices.
    pub fn grown_indices(&self, indices: WgslTensor) -> WgslTensor {
        let Some([with_last, wanted]) = self.cut else { return indices };
        let shape = Self::larger(&indices, with_last);
        let zeros = Wgsl::int_zeros(shape, &Wgsl::int_device(&indices), indices.dtype().into());
        Wgsl::int_slice_assign(zeros, &Self::place(wanted), indices)
    }
}
