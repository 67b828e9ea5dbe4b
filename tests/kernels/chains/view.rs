//! Ops that rearrange elements without computing.

use burn_backend::{Slice, TensorMetadata};

use super::program::{Choices, Kind, MAX_ELEMENTS, MAX_RANK, num_elements, op_enum};

op_enum! {
    /// Ops that rearrange elements.
    pub enum View {
        Permute, SwapDims, Flip, Slice, Expand, Merge, Split, Insert, Remove, Repeat, Unfold,
    }
}

impl View {
    /// Applies the op, or returns `x` unchanged if the op does not apply to it.
    pub fn apply<K: Kind>(self, x: K::Primitive, choices: &mut Choices) -> K::Primitive {
        let mut shape = x.shape().to_vec();
        let rank = shape.len();
        let axis = choices.below(rank);
        let times = 1 + choices.below(4);
        let fits = num_elements(&shape) * times <= MAX_ELEMENTS;
        let can_add_axis = rank < MAX_RANK;
        match self {
            Self::Permute => K::permute(x, &choices.permutation(rank)),
            Self::SwapDims => K::swap_dims(x, axis, choices.below(rank)),
            Self::Flip => {
                let axes: Vec<usize> = (0..rank).filter(|_| choices.below(2) == 1).collect();
                K::flip(x, &axes)
            }
            Self::Slice => K::slice(x, &slices(&shape, choices)),
            Self::Expand if fits && shape[axis] == 1 => {
                shape[axis] = times;
                K::expand(x, shape.into())
            }
            Self::Expand if fits && can_add_axis => {
                shape.insert(0, times);
                K::expand(x, shape.into())
            }
            Self::Merge if axis + 1 < rank => {
                shape[axis] *= shape.remove(axis + 1);
                K::reshape(x, shape.into())
            }
            Self::Split if can_add_axis && shape[axis].is_multiple_of(times) => {
                shape[axis] /= times;
                shape.insert(axis + choices.below(2), times);
                K::reshape(x, shape.into())
            }
            Self::Insert if can_add_axis => {
                shape.insert(axis, 1);
                K::reshape(x, shape.into())
            }
            Self::Remove if rank > 1 && shape[axis] == 1 => {
                shape.remove(axis);
                K::reshape(x, shape.into())
            }
            Self::Repeat if fits => K::repeat_dim(x, axis, times),
            Self::Unfold if fits && can_add_axis && times <= shape[axis] => {
                K::unfold(x, axis, times, 1 + choices.below(3))
            }
            _ => x,
        }
    }
}

/// Returns a random slice per axis, with a step of 1, 2, 3, -1 or -2. Some slices keep multiples of
/// four.
pub fn slices(shape: &[usize], choices: &mut Choices) -> Vec<Slice> {
    let slice = |&size: &usize| {
        if size > 0 && size.is_multiple_of(4) && choices.below(2) == 1 {
            let step = [1, -1][choices.below(2)];
            let start = 4 * choices.below((size / 4).min(3));
            let end = size - 4 * choices.below(((size - start) / 4).min(3));
            return Slice::new(start as isize, Some(end as isize), step);
        }
        let step = [1, -1, 2, -2, 3][choices.below(5)];
        let start = choices.below(size.min(3) + 1);
        let end = size - choices.below((size - start).min(3) + 1);
        Slice::new(start as isize, Some(end as isize), step)
    };
    shape.iter().map(slice).collect()
}
