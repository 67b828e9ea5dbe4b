//! Padded inputs of convolutions: a tensor with zeros around and between its pixels.

use crate::kernels::conv::geometry::{ConvGeometry, spatial_sizes};
use crate::kernels::{copy, views};
use crate::tensor::{Result, SliceAxis, Tensor};

/// The positions of a tensor's pixels in a padded input, along depth, height and width. Pixels
/// outside the padded input are dropped.
pub struct PaddedInput {
    /// Position of the first pixel.
    pub start: [isize; 3],
    /// Distance between neighbouring pixels; more than 1 leaves zeros between them.
    pub step: [usize; 3],
    /// Size of the padded input.
    pub size: [usize; 3],
}

impl PaddedInput {
    /// Returns the padding by the convolution's options: zeros on each side.
    pub fn of(g: &ConvGeometry) -> Self {
        Self { start: g.options.padding.map(usize::cast_signed), step: [1; 3], size: g.input }
    }

    /// Returns whether `x` `[n, c, d, h, w]` is its own padded input.
    pub fn is_identity(&self, x: &Tensor) -> bool {
        self.start == [0; 3] && self.step == [1; 3] && x.shape()[2..] == self.size
    }

    /// Returns, for each axis of a tensor of `size`, the pixels inside the padded input and their
    /// positions there.
    fn slices(&self, size: [usize; 3]) -> [(SliceAxis, SliceAxis); 3] {
        [0, 1, 2].map(|axis| {
            let (start, step, end) =
                (self.start[axis], self.step[axis], self.size[axis].cast_signed());
            let first = (-start).max(0).cast_unsigned().div_ceil(step);
            let position = (first * step).cast_signed() + start;
            let room = (end - position).max(0).cast_unsigned().div_ceil(step);
            let len = size[axis].saturating_sub(first).min(room);
            let to = SliceAxis { start: position.cast_unsigned(), step: step.cast_signed(), len };
            (SliceAxis { start: first, step: 1, len }, to)
        })
    }

    /// Returns the padded input of `x` `[n, c, ..]` with channels last: `[n, d, h, w, groups *
    /// channels]`. The channels of each group are padded with zeros to `channels`.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available.
    pub fn channels_last(&self, x: Tensor, groups: usize, channels: usize) -> Result<Tensor> {
        let x = with_three_axes(x)?;
        let [n, c] = [x.shape()[0], x.shape()[1] / groups.max(1)];
        let identity = self.is_identity(&x) && c == channels;
        let x = views::permute(x, &[0, 2, 3, 4, 1])?;
        if identity {
            return views::packed(x);
        }
        let [d, h, w] = self.size;
        let padded = views::zeros_in_other_buffer(&x, &[n, d, h, w, groups * channels])?;
        let (mut from, mut to) = (vec![SliceAxis::full(n)], vec![SliceAxis::full(n)]);
        for (source, target) in self.slices([1, 2, 3].map(|axis| x.shape()[axis])) {
            from.push(source);
            to.push(target);
        }
        from.push(SliceAxis::full(groups * c));
        to.extend([SliceAxis::full(groups), SliceAxis::full(c)]);
        let x = views::slice(x, &from)?;
        let shape = [&x.shape()[..4], &[groups, c]].concat();
        let x = views::reshape(x, &shape)?;
        let padded_by_group = views::reshape(padded.clone(), &[n, d, h, w, groups, channels])?;
        copy::write(&x, &views::slice(padded_by_group, &to)?)?;
        Ok(padded)
    }
}

/// Reshapes `x` `[n, c, ..]` to `[n, c, d, h, w]`.
///
/// # Errors
///
/// Returns an error if `x` does not have one to three spatial axes.
pub fn with_three_axes(x: Tensor) -> Result<Tensor> {
    let [d, h, w] = spatial_sizes(x.shape())?;
    let [n, c] = [x.shape()[0], x.shape()[1]];
    views::reshape(x, &[n, c, d, h, w])
}
