//! Ops that move elements but do not compute.

use burn_backend::{Slice, TensorMetadata};

use crate::program::{Choices, Kind, LARGEST, MAX_RANK, count};

#[derive(Debug, Clone, Copy)]
pub enum View {
    Permute,
    SwapDims,
    Flip,
    Slice,
    Expand,
    Merge,
    Split,
    Insert,
    Remove,
    Repeat,
    Unfold,
}

impl View {
    pub const ALL: &[Self] = {
        use View::*;
        &[Permute, SwapDims, Flip, Slice, Expand, Merge, Split, Insert, Remove, Repeat, Unfold]
    };

    /// The view, or the value as it is where the view does not apply.
    pub fn of<K: Kind>(self, x: K::Primitive, choices: &mut Choices) -> K::Primitive {
        let mut shape = x.shape().to_vec();
        let rank = shape.len();
        let axis = choices.below(rank);
        let times = 1 + choices.below(4);
        let room = count(&shape) * times <= LARGEST;
        let grows = rank < MAX_RANK;
        match self {
            Self::Permute => K::permute(x, &choices.order(rank)),
            Self::SwapDims => K::swap_dims(x, axis, choices.below(rank)),
            Self::Flip => {
                let axes: Vec<usize> = (0..rank).filter(|_| choices.below(2) == 1).collect();
                K::flip(x, &axes)
            }
            Self::Slice => K::slice(x, &slices(&shape, choices)),
            Self::Expand if room && shape[axis] == 1 => {
                shape[axis] = times;
                K::expand(x, shape.into())
            }
            Self::Expand if room && grows => {
                shape.insert(0, times);
                K::expand(x, shape.into())
            }
            Self::Merge if axis + 1 < rank => {
                shape[axis] *= shape.remove(axis + 1);
                K::reshape(x, shape.into())
            }
            Self::Split if grows && shape[axis].is_multiple_of(times) => {
                shape[axis] /= times;
                shape.insert(axis + choices.below(2), times);
                K::reshape(x, shape.into())
            }
            Self::Insert if grows => {
                shape.insert(axis, 1);
                K::reshape(x, shape.into())
            }
            Self::Remove if rank > 1 && shape[axis] == 1 => {
                shape.remove(axis);
                K::reshape(x, shape.into())
            }
            Self::Repeat if room => K::repeat_dim(x, axis, times),
            Self::Unfold if room && grows && times <= shape[axis] => {
                K::unfold(x, axis, times, 1 + choices.below(3))
            }
            _ => x,
        }
    }
}

/// A range of each axis, in steps of up to three, forwards or backwards.
pub fn slices(shape: &[usize], choices: &mut Choices) -> Vec<Slice> {
    let slice = |&size: &usize| {
        let step = [1, -1, 2, -2, 3][choices.below(5)];
        let start = choices.below(size.min(3) + 1);
        let end = size - choices.below((size - start).min(3) + 1);
        Slice::new(start as isize, Some(end as isize), step)
    };
    shape.iter().map(slice).collect()
}
