//! What convolutions of every kind share: their sizes, how windows move, and inputs on grounds of zeros.

use super::copy;
use crate::tensor::{Error, Result, Shape, SliceAxis, Tensor};

/// How a kernel moves over its input: by depth, height and width.
#[derive(Debug, Clone, Copy)]
pub struct ConvOptions {
    /// Distance between neighbouring outputs.
    pub stride: [usize; 3],
    /// Zeros around the input.
    pub padding: [usize; 3],
    /// Distance between neighbouring taps.
    pub dilation: [usize; 3],
    /// Groups of channels that are convolved apart.
    pub groups: usize,
}

/// How a transposed convolution spreads its input.
#[derive(Debug, Clone, Copy)]
pub struct TransposedOptions {
    /// How the convolution moves that it turns round.
    pub conv: ConvOptions,
    /// Planes, rows and columns added at the far ends of the output.
    pub extra: [usize; 3],
}

/// Numbers for the last `N` of depth, height and width as numbers for all of them.
pub fn axes<const N: usize>(numbers: [usize; N], missing: usize) -> [usize; 3] {
    std::array::from_fn(|axis| (axis + N).checked_sub(3).map_or(missing, |i| numbers[i]))
}

/// The sizes of the axes after the first two as depth, height and width.
pub fn spatial(shape: &[usize]) -> Result<[usize; 3]> {
    match *shape.get(2..).unwrap_or_default() {
        [w] => Ok([1, 1, w]),
        [h, w] => Ok([1, h, w]),
        [d, h, w] => Ok([d, h, w]),
        _ => Err(Error::Shape {
            lhs: shape.to_vec(),
            rhs: Vec::new(),
            rule: "tensors of a convolution have two axes and one to three further ones",
        }),
    }
}

/// Every size of a convolution. Channels are per group.
pub struct Geometry {
    pub images: usize,
    pub in_c: usize,
    /// The padded input's.
    pub input: [usize; 3],
    pub out_c: usize,
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub options: ConvOptions,
    /// How many of the three axes the tensors have.
    pub axes: usize,
}

impl Geometry {
    /// From an input `[n, c, ..]` and a weight `[o, c / groups, ..]`.
    pub fn new(x: &[usize], weight: &[usize], options: ConvOptions) -> Result<Self> {
        let error = |rule| Error::Shape { lhs: x.to_vec(), rhs: weight.to_vec(), rule };
        let ConvOptions { stride, padding, dilation, groups } = options;
        let (size, kernel) = (spatial(x)?, spatial(weight)?);
        if x.len() != weight.len() {
            return Err(error(
                "a convolution needs x [n, c, ..] and a weight [o, c / groups, ..] of one rank",
            ));
        }
        if groups == 0 || stride.contains(&0) || dilation.contains(&0) {
            return Err(error("strides, dilations and groups must be above zero"));
        }
        if x[1] != weight[1] * groups || !weight[0].is_multiple_of(groups) {
            return Err(error(
                "channels must be the weight's times the groups, which divide the outputs",
            ));
        }
        let input = [0, 1, 2].map(|axis| size[axis] + 2 * padding[axis]);
        let reach = reach(kernel, dilation);
        if (0..3).any(|axis| kernel[axis] == 0 || input[axis] <= reach[axis]) {
            return Err(error("the kernel must not be larger than the padded input"));
        }
        Ok(Self {
            images: x[0],
            in_c: weight[1],
            input,
            out_c: weight[0] / groups,
            output: [0, 1, 2].map(|axis| (input[axis] - reach[axis] - 1) / stride[axis] + 1),
            kernel,
            options,
            axes: x.len() - 2,
        })
    }

    /// The same with the outputs that `grad` `[n, o, ..]` has: a transposed convolution with extra rows starts from
    /// fewer than fit.
    pub fn with_outputs(mut self, grad: &[usize]) -> Result<Self> {
        let output = spatial(grad)?;
        let channels = self.options.groups * self.out_c;
        let fewer = (0..3).all(|axis| output[axis] <= self.output[axis]);
        if grad[..2] != [self.images, channels] || !fewer {
            return Err(Error::Shape {
                lhs: grad.to_vec(),
                rhs: self.shape([self.images, channels], self.output).to_vec(),
                rule: "a gradient has the shape of what it is the gradient of",
            });
        }
        self.output = output;
        Ok(self)
    }

    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The output pixels of all images.
    pub fn out_pixels(&self) -> usize {
        self.images * self.output.iter().product::<usize>()
    }

    /// A shape of as many axes as the tensors have.
    pub fn shape(&self, outer: [usize; 2], sizes: [usize; 3]) -> Shape {
        outer.iter().chain(&sizes[3 - self.axes..]).copied().collect()
    }

    /// The words of the shaders' `Window`, over an input of this size.
    pub fn words(&self, input: [usize; 3]) -> [u32; 16] {
        let ConvOptions { stride, dilation, .. } = self.options;
        let mut words = [0; 16];
        let triples = [input, self.output, self.kernel, stride, dilation];
        words.iter_mut().zip(triples.as_flattened()).for_each(|(word, &size)| *word = size as u32);
        words
    }
}

/// How far a window's last tap lies from its first.
pub fn reach(kernel: [usize; 3], dilation: [usize; 3]) -> [usize; 3] {
    [0, 1, 2].map(|axis| dilation[axis] * (kernel[axis].max(1) - 1))
}

/// Along depth, height and width: where a tensor's first pixel lands on a ground of zeros, how far apart the others
/// do, and how large the ground is. What lands outside is lost.
pub struct Ground {
    pub start: [isize; 3],
    pub step: [usize; 3],
    pub size: [usize; 3],
}

impl Ground {
    /// What of an input of `size` lands, and where.
    fn slices(&self, size: [usize; 3]) -> [(SliceAxis, SliceAxis); 3] {
        [0, 1, 2].map(|axis| {
            let (start, step, room) =
                (self.start[axis], self.step[axis], self.size[axis].cast_signed());
            let first = (-start).max(0).cast_unsigned().div_ceil(step);
            let lands = (first * step).cast_signed() + start;
            let fit = (room - lands).max(0).cast_unsigned().div_ceil(step);
            let len = size[axis].saturating_sub(first).min(fit);
            let to = SliceAxis { start: lands.cast_unsigned(), step: step.cast_signed(), len };
            (SliceAxis { start: first, step: 1, len }, to)
        })
    }

    /// `x` `[n, c, ..]` on the ground with its channels last, `[n, d, h, w, groups * channels]`: those of a group filled up with zeros.
    pub fn place(&self, x: Tensor, groups: usize, channels: usize) -> Result<Tensor> {
        let x = volumes(x)?;
        let [n, c] = [x.shape()[0], x.shape()[1] / groups.max(1)];
        let bare = self.is_bare(&x) && c == channels;
        let last = copy::permute(x, &[0, 2, 3, 4, 1])?;
        if bare {
            return copy::packed(last);
        }
        let [d, h, w] = self.size;
        let ground = copy::zeros_beside(&last, &[n, d, h, w, groups * channels])?;
        let whole = |len: usize| SliceAxis { start: 0, step: 1, len };
        let (mut from, mut to) = (vec![whole(n)], vec![whole(n)]);
        for (source, target) in self.slices([1, 2, 3].map(|axis| last.shape()[axis])) {
            from.push(source);
            to.push(target);
        }
        from.push(whole(groups * c));
        to.extend([whole(groups), whole(c)]);
        let last = copy::slice(last, &from)?;
        let shape = [&last.shape()[..4], &[groups, c]].concat();
        let last = copy::reshape(last, &shape)?;
        let apart = copy::reshape(ground.clone(), &[n, d, h, w, groups, channels])?;
        copy::write(&last, &copy::slice(apart, &to)?)?;
        Ok(ground)
    }

    pub fn is_bare(&self, x: &Tensor) -> bool {
        self.start == [0; 3] && self.step == [1; 3] && x.shape()[2..] == self.size
    }
}

/// `x` `[n, c, ..]` with all three axes.
pub fn volumes(x: Tensor) -> Result<Tensor> {
    let [d, h, w] = spatial(x.shape())?;
    let [n, c] = [x.shape()[0], x.shape()[1]];
    copy::reshape(x, &[n, c, d, h, w])
}

/// The zeros around an input.
pub fn padding(g: &Geometry) -> Ground {
    Ground { start: g.options.padding.map(usize::cast_signed), step: [1; 3], size: g.input }
}
