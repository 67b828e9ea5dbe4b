//! Ops with exact results: on small whole floats, and on integers, which wrap.

use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{Scalar, TensorMetadata};

use super::program::{Chain, Choices, Kind, MAX_ELEMENTS, num_elements, op_enum};
use super::view::slices;

op_enum! {
    /// Ops with exact results.
    pub enum Exact {
        Add, Sub, SubFrom, Mul, Square, Neg, Abs, Sign, AddScalar, MulScalar, Clamp, Remainder,
        MaskLarger, MaskFill, Sum, SumDim, ProdDim, MaxDim, MinDim, ArgMax, ArgMin, AnyDim, AllDim,
        CumSum, Sort, Matmul, Cat, Gather, Scatter, Select, SelectAdd, SliceAssign,
    }
}

/// Returns a whole number in -8..=8.
pub fn whole_float(random: u64) -> f64 {
    (random % 17) as f64 - 8.0
}

/// Returns a small integer, an integer at which arithmetic wraps, or one of arbitrary bits.
pub fn integer(random: u64) -> f64 {
    let special = [i32::MIN, i32::MIN + 1, i32::MAX, -1, 0, 1, 1 << 16, -(1 << 16), 46_341];
    let bits = random >> 8;
    match random % 4 {
        0 => f64::from(special[bits as usize % special.len()]),
        1 => f64::from(bits as i32),
        _ => (bits % 21) as f64 - 10.0,
    }
}

/// Applies an op, or returns `x` unchanged if the op does not apply to it.
pub fn step<K: Kind>(
    chain: &mut Chain,
    op: Exact,
    x: K::Primitive,
    choices: &mut Choices,
) -> K::Primitive {
    let mut shape = x.shape().to_vec();
    let rank = shape.len();
    let axis = choices.below(rank);
    let length = shape[axis];
    // The lines along the axis.
    let lines = (num_elements(&shape) / length.max(1)).max(1);
    let scalar = Scalar::Int(choices.below(7) as i64 - 3);
    // Keeps integer sums from overflowing: burn-flex panics on overflow in debug builds.
    let small = |x| K::clamp(x, Scalar::Int(-1000), Scalar::Int(1000));
    let add = IndexingUpdateOp::Add;
    let value = match op {
        Exact::Add => K::add(x, chain.broadcast_operand::<K>(&shape, choices)),
        Exact::Sub => K::sub(x, chain.broadcast_operand::<K>(&shape, choices)),
        Exact::SubFrom => K::sub(chain.broadcast_operand::<K>(&shape, choices), x),
        Exact::Mul => K::mul(x, chain.broadcast_operand::<K>(&shape, choices)),
        Exact::Square => K::mul(x.clone(), x),
        Exact::Neg => K::neg(x),
        Exact::Abs => K::abs(x),
        Exact::Sign => K::sign(x),
        Exact::AddScalar => K::add_scalar(x, scalar),
        Exact::MulScalar => K::mul_scalar(x, scalar),
        Exact::Clamp => K::clamp(x, Scalar::Int(-3), Scalar::Int(5)),
        Exact::Remainder => {
            let divisor = chain.broadcast_operand::<K>(&shape, choices);
            K::remainder(x, K::clamp_min(divisor, Scalar::Int(1)))
        }
        Exact::MaskLarger => {
            let other = chain.random_tensor::<K>(&shape, choices);
            K::mask_where(x.clone(), K::greater(other.clone(), x), other)
        }
        Exact::MaskFill => {
            let mask = K::equal_elem(x.clone(), scalar);
            K::mask_fill(x, mask, Scalar::Int(9))
        }
        Exact::Sum => K::sum(x),
        Exact::SumDim => K::sum_dim(x, axis),
        Exact::ProdDim if length <= 16 => {
            K::prod_dim(K::clamp(x, Scalar::Int(-2), Scalar::Int(2)), axis)
        }
        Exact::MaxDim if length > 0 => K::max_dim(x, axis),
        Exact::MinDim if length > 0 => K::min_dim(x, axis),
        Exact::ArgMax if length > 0 => K::from_int(K::argmax(x, axis)),
        Exact::ArgMin if length > 0 => K::from_int(K::argmin(x, axis)),
        // burn-flex panics on empty tensors.
        Exact::AnyDim if num_elements(&shape) > 0 => K::from_bool(K::any_dim(x, axis)),
        Exact::AllDim if num_elements(&shape) > 0 => K::from_bool(K::all_dim(x, axis)),
        Exact::CumSum => K::cumsum(small(x), axis),
        Exact::Sort => K::sort(x, axis, choices.below(2) == 1),
        // burn-flex panics on an empty product of integer matrices.
        Exact::Matmul
            if rank > 1 && (1..MAX_ELEMENTS / 6).contains(&num_elements(&shape[..rank - 1])) =>
        {
            let mut other = shape.clone();
            for batch in &mut other[..rank - 2] {
                *batch = if choices.below(3) == 2 { 1 } else { *batch };
            }
            other[rank - 2] = shape[rank - 1];
            // Rows of the result and of the other operand.
            let rows = num_elements(&shape[..rank - 1]).max(num_elements(&other[..rank - 1]));
            other[rank - 1] = choices.size_up_to(MAX_ELEMENTS / rows).max(1);
            K::matmul(x, chain.random_tensor::<K>(&other, choices))
        }
        Exact::Cat if num_elements(&shape) / length.max(1) * (length + 3) <= MAX_ELEMENTS => {
            shape[axis] = choices.below(4);
            let other = chain.random_tensor::<K>(&shape, choices);
            let x_first = choices.below(2) == 1;
            K::cat(if x_first { vec![x, other] } else { vec![other, x] }, axis)
        }
        Exact::Gather if length > 0 => {
            shape[axis] = choices.size_up_to(MAX_ELEMENTS / lines);
            K::gather(axis, x, chain.indices(&shape, length, choices))
        }
        Exact::Scatter if length > 0 => {
            shape[axis] = choices.size_up_to(MAX_ELEMENTS / lines);
            let indices = chain.indices(&shape, length, choices);
            let values = small(chain.random_tensor::<K>(&shape, choices));
            K::scatter(axis, small(x), indices, values, add)
        }
        Exact::Select if length > 0 => {
            let num_indices = choices.size_up_to(MAX_ELEMENTS / lines);
            K::select(x, axis, chain.indices(&[num_indices], length, choices))
        }
        Exact::SelectAdd if length > 0 => {
            shape[axis] = choices.size_up_to(MAX_ELEMENTS / lines);
            let indices = chain.indices(&[shape[axis]], length, choices);
            let values = small(chain.random_tensor::<K>(&shape, choices));
            K::select_assign(small(x), axis, indices, values, add)
        }
        Exact::SliceAssign => {
            let slices = slices(&shape, choices);
            let slice_shape = K::slice(x.clone(), &slices).shape();
            K::slice_assign(x, &slices, chain.random_tensor::<K>(&slice_shape, choices))
        }
        _ => x,
    };
    K::bounded(value)
}
