//! Padded inputs of convolutions: a tensor among zeros.

use super::conv_geometry::{ConvGeometry, spatial_sizes};
use crate::kernels::composed::views;
use crate::tensor::{Result, SliceAxis, Tensor};

/// Where the pixels of a tensor are in a padded input, along depth, height and width. Pixels
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
    /// Zeros on each side, as the convolution's options say.
    pub fn of(g: &ConvGeometry) -> Self {
        Self { start: g.options.padding.map(usize::cast_signed), step: [1; 3], size: g.input }
    }

    /// Whether `x` `[n, c, d, h, w]` is the padded input already.
    pub fn is_identity(&self, x: &Tensor) -> bool {
        self.start == [0; 3] && self.step == [1; 3] && x.shape()[2..] == self.size
    }

    /// Along each axis, the pixels of an input of `size` that are kept, and their positions.
    fn slices(&self, size: [usize; 3]) -> [(SliceAxis, SliceAxis); 3] {
        [0, 1, 2].map(|axis| {
            let (start, step, end) =
                (self.start[axis], self.step[axis], self.size[axis].cast_signed());
            let first = (-start).max(0).cast_unsigned().div_ceil(step);
            let position = (first * step).cast_signed() + start;
            let fit = (end - position).max(0).cast_unsigned().div_ceil(step);
            let len = size[axis].saturating_sub(first).min(fit);
            let to = SliceAxis { start: position.cast_unsigned(), step: step.cast_signed(), len };
            (SliceAxis { start: first, step: 1, len }, to)
        })
    }

    /// Writes out the padded input of `x` `[n, c, ..]` with channels last: `[n, d, h, w, groups *
    /// channels]`, the channels of each group padded with zeros to `channels`.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available.
    pub fn channels_last(&self, x: Tensor, groups: usize, channels: usize) -> Result<Tensor> {
        let x = with_three_axes(x)?;
        let [n, c] = [x.shape()[0], x.shape()[1] / groups.max(1)];
        let identity = self.is_identity(&x) && c == channels;
        let last = views::permute(x, &[0, 2, 3, 4, 1])?;
        if identity {
            return views::packed(last);
        }
        let [d, h, w] = self.size;
        let padded = views::zeros_apart_from(&last, &[n, d, h, w, groups * channels])?;
        let all = |len: usize| SliceAxis { start: 0, step: 1, len };
        let (mut from, mut to) = (vec![all(n)], vec![all(n)]);
        for (source, target) in self.slices([1, 2, 3].map(|axis| last.shape()[axis])) {
            from.push(source);
            to.push(target);
        }
        from.push(all(groups * c));
        to.extend([all(groups), all(c)]);
        let last = views::slice(last, &from)?;
        let shape = [&last.shape()[..4], &[groups, c]].concat();
        let last = views::reshape(last, &shape)?;
        let by_group = views::reshape(padded.clone(), &[n, d, h, w, groups, channels])?;
        views::write(&last, &views::slice(by_group, &to)?)?;
        Ok(padded)
    }
}

/// `x` `[n, c, ..]` as `[n, c, d, h, w]`.
///
/// # Errors
///
/// Returns an error if `x` does not have one to three spatial axes.
pub fn with_three_axes(x: Tensor) -> Result<Tensor> {
    let [d, h, w] = spatial_sizes(x.shape())?;
    let [n, c] = [x.shape()[0], x.shape()[1]];
    views::reshape(x, &[n, c, d, h, w])
}
