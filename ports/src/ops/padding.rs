//! Convolutions with more padding on one side of an axis, which Burn 0.21 does not have: their
//! input is padded first.

use burn_backend::ops::ConvOptions;
use burn_backend_021::ops::{ConvOptions as ConvOptions021, FloatTensorOps};
use burn_backend_021::{Slice, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

/// Where an input is in a larger one; `None` if it is not padded.
pub(crate) type Place = Option<Vec<Slice>>;

/// Returns an input `[batch, channels, axes..]` and options that Burn 0.21 has: with zeros around
/// the input if the padding is not the same on both sides.
pub(crate) fn padded<const N: usize>(
    input: WgslTensor,
    options: ConvOptions<N>,
) -> (WgslTensor, ConvOptions021<N>, Place) {
    let with_padding =
        |padding| ConvOptions021::new(options.stride, padding, options.dilation, options.groups);
    if !options.is_asymmetric() {
        return (input, with_padding(options.padding_begin()), None);
    }
    let mut shape = input.shape();
    let mut place = vec![Slice::full(); 2];
    for (axis, (begin, end)) in options.padding.into_iter().enumerate() {
        let size = shape[2 + axis];
        place.push(Slice::new(begin as isize, Some((begin + size) as isize), 1));
        shape[2 + axis] = begin + size + end;
    }
    let zeros = Wgsl::float_zeros(shape, &Wgsl::float_device(&input), input.dtype().into());
    let input = Wgsl::float_slice_assign(zeros, &place, input);
    (input, with_padding([0; N]), Some(place))
}

/// Returns the gradient for an input from that for the padded one.
pub(crate) fn unpadded(grad: WgslTensor, place: Place) -> WgslTensor {
    match place {
        Some(place) => Wgsl::float_slice(grad, &place),
        None => grad,
    }
}
