//! Matrix products: batched, broadcast over the batch, transposed without a copy, with a bias.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, permuted};
use super::gemm::{self, Gemm, Operands, Repack, Tiling};
use super::matvec::matvec;
use super::reduce::{self, Reduction};
use super::table::rows;
use super::{Launch, Params, cast, copy, div_up, elementwise, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor, broadcast};

static MATMUL: Source =
    Source { name: "matmul", text: include_str!("../../shaders/matmul/matmul.wgsl") };
static MATMUL_INT: Source =
    Source { name: "matmul_int", text: include_str!("../../shaders/matmul/matmul_int.wgsl") };

/// A product of so many operations is worth a copy of its operands.
const WORTH_PACKING: u64 = 1 << 24;

fn int_variant(dtype: DType) -> Variant {
    Variant::new(&MATMUL_INT).ty("E", dtype.wgsl())
}

fn variant(tiling: Tiling, operands: Operands) -> Variant {
    gemm::define(Variant::new(&MATMUL), tiling, operands).flag("OUT_QUAD", operands.quads)
}

/// The product of the last two axes, broadcast over the others. That of floats of 16 bits is in f32.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn matmul(lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    product(lhs, rhs, None)
}

/// `lhs @ rhs + bias`, with a bias of one element per column.
///
/// # Errors
///
/// As [`matmul`].
pub fn product(lhs: Tensor, rhs: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    lhs.same_device(&rhs)?;
    let fits = |rule| Error::Shape { lhs: lhs.shape().to_vec(), rhs: rhs.shape().to_vec(), rule };
    let rank = lhs.shape().len();
    if rank < 2 || rhs.shape().len() != rank || lhs.shape()[rank - 1] != rhs.shape()[rank - 2] {
        return Err(fits("a product needs matrices [.., m, k] and [.., k, n] of one rank"));
    }
    if lhs.dtype() != rhs.dtype() {
        return Err(Error::Unsupported("a product of matrices of two element types"));
    }
    let (m, k, n) = (lhs.shape()[rank - 2], lhs.shape()[rank - 1], rhs.shape()[rank - 1]);
    if let Some(bias) = bias.as_ref().filter(|bias| bias.shape() != [n]) {
        let (lhs, rhs) = (bias.shape().to_vec(), rhs.shape().to_vec());
        return Err(Error::Shape { lhs, rhs, rule: "a bias has one element for each column" });
    }
    let mut batch = broadcast(&lhs.shape()[..rank - 2], &rhs.shape()[..rank - 2])
        .ok_or_else(|| fits("the axes before the matrices must broadcast"))?;
    // One matrix on the right for all on the left: a single tall product.
    let rhs_alone = rhs.shape()[..rank - 2].iter().all(|&size| size == 1);
    if rhs_alone && batch.iter().product::<usize>() > 1 && lhs.dtype().is_float() {
        let rows: usize = lhs.shape()[..rank - 1].iter().product();
        if let Some(tall) = lhs.layout().reshape(&[rows, k]) {
            let mut shape: Shape = lhs.shape().into();
            shape[rank - 1] = n;
            let right = copy::reshape(rhs, &[k, n])?;
            let out = product(lhs.view(tall), right, bias)?;
            return Ok(out.view(Layout::contiguous(&shape)));
        }
    }
    if let Some(out) = vector_product(&lhs, &rhs, &batch)? {
        batch.extend([m, n]);
        let out = out.view(Layout::contiguous(&batch));
        return match bias {
            Some(bias) => elementwise::binary(&rows::float_add, out, copy::expand(bias, &batch)?),
            None => Ok(out),
        };
    }
    let count: usize = batch.iter().product();
    // Where the matrices of the batch start.
    let starts = |tensor: &Tensor| {
        let layout = tensor.layout();
        let start = Layout {
            shape: layout.shape[..rank - 2].into(),
            strides: layout.strides[..rank - 2].into(),
            offset: layout.offset,
        };
        start.expand(&batch).ok_or_else(|| fits("the axes before the matrices must broadcast"))
    };
    let (lhs_starts, rhs_starts) = (starts(&lhs)?, starts(&rhs)?);
    let (words, _) = walk(&[&Layout::contiguous(&batch), &lhs_starts, &rhs_starts])?;
    let stride = |tensor: &Tensor, axis: usize| tensor.layout().strides[axis];
    let strides = [
        stride(&lhs, rank - 2),
        stride(&lhs, rank - 1),
        stride(&rhs, rank - 2),
        stride(&rhs, rank - 1),
    ];
    let strides32 = strides.map(|s| s as i32 as u32);
    batch.extend([m, n]);
    let mut bias = bias.map(cast::computed).transpose()?.map(copy::packed).transpose()?;
    let mut params: Params = SmallVec::new();
    let mut inputs: SmallVec<[&Tensor; 3]> = SmallVec::from_slice(&[&lhs, &rhs]);
    if lhs.dtype().is_integer() {
        let out = Tensor::empty(lhs.runtime(), &batch, lhs.dtype(), &inputs)?;
        params.extend_from_slice(&[out.len() as u32, m as u32, n as u32, k as u32]);
        params.extend_from_slice(&strides32);
        params.extend_from_slice(&words);
        Launch {
            variant: &int_variant(lhs.dtype()),
            inputs: &inputs,
            outputs: &[&out],
            params: &params,
            groups: div_up(out.len(), 64),
            work: 2 * (out.len() * k) as u64,
        }
        .run()?;
        return Ok(out);
    }
    let runtime = lhs.runtime();
    let mut gemm = Gemm::new(runtime, count, m, n, k);
    if let Some(bias) = bias.take_if(|_| gemm.wanted_splits(runtime) > 1) {
        // The parts' sum comes first.
        drop(inputs);
        let bias = copy::expand(bias, &batch)?;
        return elementwise::binary(&rows::float_add, product(lhs, rhs, None)?, bias);
    }
    let half = Some(lhs.dtype()).filter(|dtype| dtype.is_half());
    let (operands, mut wish) = gemm.reading(runtime, [&lhs, &rhs]);
    if half.is_some() {
        if !operands.quads {
            drop(inputs);
            return product(cast::computed(lhs)?, cast::computed(rhs)?, bias);
        }
        // Rows of half the size.
        wish = Repack::Nothing;
    }
    if wish != Repack::Nothing && gemm.work() > WORTH_PACKING {
        drop(inputs);
        return packed_product(lhs, rhs, bias, wish);
    }
    let operands = Operands { half, ..operands };
    if bias.is_none() {
        gemm.inner = k.div_ceil(gemm.wanted_splits(runtime)).next_multiple_of(4).max(4);
        gemm.outer = k.div_ceil(gemm.inner).max(1);
        gemm.splits = gemm.outer;
    }
    (gemm.a_step, gemm.b_step) = (strides[1], strides[2]);
    // Without a bias something must still be bound in its place.
    inputs.push(bias.as_ref().unwrap_or(&rhs));
    let out = Tensor::empty(runtime, &[gemm.splits, count * m * n], DType::F32, &inputs)?;
    if !out.is_empty() {
        let tiling = gemm.tiling(runtime, operands.quads);
        let (groups, sizes) = gemm.words(tiling);
        params.extend_from_slice(&sizes);
        params.extend([strides32[0], strides32[3], u32::from(bias.is_some()), 0]);
        params.extend_from_slice(&words);
        Launch {
            variant: &variant(tiling, operands),
            inputs: &inputs,
            outputs: &[&out],
            params: &params,
            groups,
            work: gemm.work(),
        }
        .run()?;
    }
    gemm.join(out, &batch)
}

/// The product where one side is a vector, or one for each of a batch, and the other can be read as [`matvec`] does.
fn vector_product(lhs: &Tensor, rhs: &Tensor, batch: &[usize]) -> Result<Option<Tensor>> {
    let rank = batch.len() + 2;
    let (left, right) = (lhs.layout().clone(), rhs.layout().swap(rank - 2, rank - 1));
    // Both [.., rows, k] now: one of them has a single row.
    let ((matrix, rows), (vector, mut row)) = match (left.shape[rank - 2], right.shape[rank - 2]) {
        (_, 1) => ((lhs, left), (rhs, right)),
        (1, _) => ((rhs, right), (lhs, left)),
        _ => return Ok(None),
    };
    if matrix.dtype() != DType::F32 {
        return Ok(None);
    }
    row.shape.remove(rank - 2);
    row.strides.remove(rank - 2);
    let k = row.shape[rank - 2];
    let full = |layout: Layout, inner: &[usize]| layout.expand(&[batch, inner].concat());
    match (full(rows.clone(), &[rows.shape[rank - 2], k]), full(row, &[k])) {
        (Some(rows), Some(row)) => matvec((matrix, &rows), (vector, &row)),
        _ => Ok(None),
    }
}

/// The product of copies that can be read as the chosen strategy wishes.
fn packed_product(lhs: Tensor, rhs: Tensor, bias: Option<Tensor>, wish: Repack) -> Result<Tensor> {
    let rank = lhs.shape().len();
    let n = rhs.shape()[rank - 1];
    if wish == Repack::Rows {
        return product(gemm::staggered(lhs)?, rhs, bias);
    }
    let lhs = copy::packed(gemm::filled_up(lhs, &[rank - 1])?)?;
    let rhs = copy::packed(gemm::filled_up(rhs, &[rank - 2, rank - 1])?)?;
    let bias = bias.map(|bias| gemm::filled_up(bias, &[0])).transpose()?;
    copy::narrow(product(lhs, rhs, bias)?, rank - 1, 0, n)
}

/// `x @ weight + bias` for `x` `[.., in]` and `weight` `[in, out]`.
///
/// # Errors
///
/// As [`matmul`].
pub fn linear(x: Tensor, weight: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let (rows, width) = flat_rows(&x);
    let mut shape: Shape = x.shape().into();
    if let Some(last) = shape.last_mut() {
        *last = weight.shape()[1];
    }
    let out = product(copy::reshape(x, &[rows, width])?, weight, bias)?;
    Ok(out.view(Layout::contiguous(&shape)))
}

/// The gradient of [`linear`] with respect to `x`: `grad @ weightᵀ`.
///
/// # Errors
///
/// As [`matmul`].
pub fn linear_x_backward(weight: Tensor, grad: Tensor) -> Result<Tensor> {
    linear(grad, copy::swap_dims(weight, 0, 1)?, None)
}

/// The gradient of [`linear`] with respect to its weight: `xᵀ @ grad`, one product for the whole batch.
///
/// # Errors
///
/// As [`matmul`].
pub fn linear_weight_backward(x: Tensor, grad: Tensor) -> Result<Tensor> {
    let (rows, width) = flat_rows(&x);
    let (_, out) = flat_rows(&grad);
    let x = copy::swap_dims(copy::reshape(x, &[rows, width])?, 0, 1)?;
    product(x, copy::reshape(grad, &[rows, out])?, None)
}

/// The gradient of [`linear`] with respect to its bias: the sum over the rows.
///
/// # Errors
///
/// As [`matmul`].
pub fn linear_bias_backward(grad: Tensor) -> Result<Tensor> {
    let (rows, width) = flat_rows(&grad);
    let out = reduce::dim(Reduction::Sum, copy::reshape(grad, &[rows, width])?, 0)?;
    Ok(out.view(Layout::contiguous(&[width])))
}

/// A tensor `[.., width]` as so many rows.
fn flat_rows(tensor: &Tensor) -> (usize, usize) {
    let (width, outer) = tensor.shape().split_last().map_or((1, &[][..]), |(w, o)| (*w, o));
    (outer.iter().product(), width)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let products = gemm::every().into_iter().map(|(tiling, operands)| variant(tiling, operands));
    DType::INTEGERS.map(int_variant).into_iter().chain(products).collect()
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_matmul", &[normal(&[5, 7]), normal(&[7, 3])]),
    case("float_matmul", &[normal(&[64, 64]), normal(&[64, 64])]),
    case("float_matmul", &[normal(&[33, 130]), normal(&[130, 68])]),
    case("float_matmul", &[normal(&[1, 70]), normal(&[70, 9])]),
    case("float_matmul", &[normal(&[70, 1]), normal(&[1, 9])]),
    // With a k of one, rows and columns are neighbours both.
    case("float_matmul", &[normal(&[64, 1]), normal(&[1, 12])]),
    case("float_matmul", &[normal(&[2, 8, 1]), normal(&[2, 1, 8])]),
    case("float_matmul", &[normal(&[4, 9000]), normal(&[9000, 5])]),
    case("float_matmul", &[normal(&[3, 0]), normal(&[0, 5])]),
    // Large enough to be copied into quads, or into rows that do not alias.
    case("float_matmul", &[normal(&[130, 270]), permuted(&[250, 270], &[1, 0])]),
    case("float_matmul", &[normal(&[64, 1024]), normal(&[1024, 132])]),
    // Few rows, of quads.
    case("float_matmul", &[normal(&[4, 64]), normal(&[64, 2052])]),
    case("float_matmul", &[permuted(&[30, 20], &[1, 0]), normal(&[30, 12])]),
    case("float_matmul", &[normal(&[20, 30]), permuted(&[12, 30], &[1, 0])]),
    case("float_matmul", &[normal(&[2, 3, 6, 5]), normal(&[2, 3, 5, 8])]),
    case("float_matmul", &[normal(&[2, 1, 6, 5]), normal(&[1, 3, 5, 8])]),
    case("float_matmul", &[normal(&[4, 6, 5]), normal(&[1, 5, 8])]),
    case("float_matmul", &[normal(&[1, 6, 5]), normal(&[4, 5, 8])]),
    case(
        "float_matmul",
        &[permuted(&[4, 8, 3, 5], &[0, 2, 1, 3]), permuted(&[4, 8, 3, 5], &[0, 2, 3, 1])],
    ),
    case("int_matmul", &[ints(&[2, 5, 7]), ints(&[2, 7, 3])]),
    case("linear", &[normal(&[9, 12]), normal(&[12, 5]), normal(&[5])]),
    // Cut along k, with a bias.
    case("linear", &[normal(&[4, 2100]), normal(&[2100, 12]), normal(&[12])]),
    case("linear", &[normal(&[2, 9, 12]), normal(&[12, 8]), Arg::Without]),
    case("linear_x_backward", &[normal(&[12, 8]), normal(&[3, 4, 8])]),
    case("linear_weight_backward", &[normal(&[3, 4, 12]), normal(&[3, 4, 8])]),
    case("linear_bias_backward", &[normal(&[3, 4, 8])]),
];
