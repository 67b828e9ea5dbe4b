//! Matrix products: batched, broadcast over the batch, transposed without a copy, with a bias.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, permuted};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy, div_up, walk};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor, broadcast};

static MATMUL: Source = Source { name: "matmul", text: include_str!("../../shaders/matmul/matmul.wgsl") };
static MATMUL_INT: Source = Source { name: "matmul_int", text: include_str!("../../shaders/matmul/matmul_int.wgsl") };

/// The shape in which a product is computed; see `shaders/lib/gemm.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tiling {
    /// Through workgroup memory.
    Tiled,
    /// Each subgroup on its own, so many rows at a time.
    Direct {
        rows: u32,
        /// Whether lanes spread a by broadcasts.
        subgroup: bool,
        /// How much is made of vec4: each step is faster and takes longer to compile.
        effort: Effort,
    },
}

/// How much of a product may move as vec4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// Nothing: one kernel for all small products.
    Plain,
    /// b and the result.
    Columns,
    /// Everything.
    Full,
}

/// What of a product may move as vec4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quads {
    /// Four steps of k of a row of a.
    pub a: bool,
    /// Four columns of b.
    pub b: bool,
    /// Four columns of the result.
    pub out: bool,
    /// Neighbours in a are rows, not steps of k: who brings in what is turned round.
    pub a_across: bool,
}

impl Quads {
    /// The combination of a number's bits, to list them all.
    pub fn of_bits(bits: u32) -> Self {
        let on = |bit: u32| bits >> bit & 1 == 1;
        Self { a: on(0), b: on(1), out: on(2), a_across: on(3) }
    }
}

/// Whether a workgroup of eight invocations is a subgroup.
pub(crate) fn has_octets(runtime: &Runtime) -> bool {
    let facts = runtime.facts();
    let eight = facts.limits.min_subgroup_size == 8 && facts.limits.max_subgroup_size == 8;
    facts.features.subgroups && eight
}

impl Tiling {
    pub const EVERY: [Self; 6] = [
        Self::Tiled,
        Self::Direct { rows: 8, subgroup: false, effort: Effort::Plain },
        Self::Direct { rows: 8, subgroup: true, effort: Effort::Plain },
        Self::Direct { rows: 8, subgroup: true, effort: Effort::Columns },
        Self::Direct { rows: 8, subgroup: true, effort: Effort::Full },
        Self::Direct { rows: 16, subgroup: true, effort: Effort::Full },
    ];

    /// What suits the adapter's class, the count of rows and the count of operations.
    pub fn choose(runtime: &Runtime, m: usize, work: u64) -> Self {
        if !runtime.is_software() {
            return Self::Tiled;
        }
        let subgroup = has_octets(runtime);
        let effort = match work {
            _ if !subgroup => Effort::Plain,
            0..4_000_000 => Effort::Plain,
            4_000_000..64_000_000 => Effort::Columns,
            _ => Effort::Full,
        };
        let rows = if effort == Effort::Full && m > 8 { 16 } else { 8 };
        Self::Direct { rows, subgroup, effort }
    }

    /// The rows and columns that one workgroup computes.
    fn tile(self) -> (usize, usize) {
        match self {
            Self::Tiled => (64, 64),
            Self::Direct { rows, .. } => (rows as usize, 32),
        }
    }

    /// Defines the shape, and what may move as vec4.
    pub fn define(self, variant: Variant, quads: Quads) -> Variant {
        match self {
            Self::Tiled => variant.flag("TILED", true).flag("A_ACROSS", quads.a_across),
            Self::Direct { rows, subgroup, effort } => {
                let columns = effort >= Effort::Columns;
                variant
                    .int("ROWS", rows)
                    .int("OCTETS", rows / 8)
                    .flag("SUBGROUP", subgroup)
                    .flag("A_QUAD", quads.a && effort == Effort::Full)
                    .flag("B_QUAD", quads.b && columns)
                    .flag("OUT_QUAD", quads.out && columns)
                    .flag("COL_QUAD", (quads.b || quads.out) && columns)
            }
        }
    }
}

/// The sizes of a product and how it is cut up: the shaders' `Gemm`.
pub(crate) struct Gemm {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Parts that k is cut into, each a result of its own.
    pub splits: usize,
    pub tiling: Tiling,
}

impl Gemm {
    /// A product cut so that the device has enough to do, at the price of summing parts.
    pub fn new(runtime: &Runtime, batch: usize, m: usize, n: usize, k: usize) -> Self {
        let work = 2 * (batch * m) as u64 * (n * k) as u64;
        let tiling = Tiling::choose(runtime, m, work);
        let (rows, cols) = tiling.tile();
        let tiles = batch * m.div_ceil(rows) * n.div_ceil(cols);
        let (enough, least) = if runtime.is_software() { (16, 512) } else { (256, 256) };
        let wanted = if tiles >= enough { 1 } else { (enough / tiles.max(1)).min(k / least).max(1) };
        Self { batch, m, n, k, splits: wanted, tiling }
    }

    /// The steps of k that one part has.
    fn chunk(&self) -> usize {
        self.k.div_ceil(self.splits).next_multiple_of(4)
    }

    pub fn groups(&self) -> u64 {
        let (rows, cols) = self.tiling.tile();
        div_up(self.m, rows) * div_up(self.n, cols) * (self.splits * self.batch) as u64
    }

    pub fn words(&self) -> [u32; 8] {
        let (rows, cols) = self.tiling.tile();
        [
            self.m as u32,
            self.n as u32,
            self.k as u32,
            self.chunk() as u32,
            self.splits as u32,
            self.m.div_ceil(rows) as u32,
            self.n.div_ceil(cols) as u32,
            self.groups() as u32,
        ]
    }

    pub fn work(&self) -> u64 {
        2 * (self.batch * self.m) as u64 * (self.n * self.k) as u64
    }

    /// Sums the parts of a result `[splits, ..]`.
    pub fn join(&self, out: Tensor, shape: &[usize]) -> Result<Tensor> {
        let out = if self.splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? };
        Ok(out.view(Layout::contiguous(shape)))
    }
}

fn int_variant(dtype: DType) -> Variant {
    Variant::new(&MATMUL_INT).ty("E", dtype.wgsl())
}

fn variant(tiling: Tiling, quads: Quads) -> Variant {
    tiling.define(Variant::new(&MATMUL), quads)
}

/// The product of the last two axes, broadcast over the others.
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
    let (m, k, n) = (lhs.shape()[rank - 2], lhs.shape()[rank - 1], rhs.shape()[rank - 1]);
    let mut batch = broadcast(&lhs.shape()[..rank - 2], &rhs.shape()[..rank - 2])
        .ok_or_else(|| fits("the axes before the matrices must broadcast"))?;
    // One matrix on the right for all on the left: a single tall product.
    let rhs_alone = rhs.shape()[..rank - 2].iter().all(|&size| size == 1);
    if rhs_alone && batch.iter().product::<usize>() > 1 && lhs.dtype() == DType::F32 {
        let rows: usize = lhs.shape()[..rank - 1].iter().product();
        if let Some(tall) = lhs.layout().reshape(&[rows, k]) {
            let mut shape: Shape = lhs.shape().into();
            shape[rank - 1] = n;
            let right = copy::reshape(rhs, &[k, n])?;
            let out = product(lhs.view(tall), right, bias)?;
            return Ok(out.view(Layout::contiguous(&shape)));
        }
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
    let strides = [stride(&lhs, rank - 2), stride(&lhs, rank - 1), stride(&rhs, rank - 2), stride(&rhs, rank - 1)];
    let strides32 = strides.map(|s| s as i32 as u32);
    batch.extend([m, n]);
    let bias = bias.map(copy::packed).transpose()?;
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
    let mut gemm = Gemm::new(lhs.runtime(), count, m, n, k);
    if bias.is_some() {
        gemm.splits = 1;
    }
    // Without a bias something must still be bound in its place.
    inputs.push(bias.as_ref().unwrap_or(&rhs));
    let out = Tensor::empty(lhs.runtime(), &[gemm.splits, count * m * n], DType::F32, &inputs)?;
    if !out.is_empty() {
        // Whether rows can be read as vec4: neighbours in memory, each row and matrix aligned.
        let aligned = |inner: isize, outer: isize, starts: &Layout| {
            inner == 1
                && outer % 4 == 0
                && starts.offset.is_multiple_of(4)
                && starts.strides.iter().zip(&starts.shape).all(|(&s, &size)| size == 1 || s % 4 == 0)
        };
        let quads = Quads {
            a: k.is_multiple_of(4) && aligned(strides[1], strides[0], &lhs_starts),
            b: n.is_multiple_of(4) && aligned(strides[3], strides[2], &rhs_starts),
            out: n.is_multiple_of(4),
            a_across: strides[0] == 1 && strides[1] != 1,
        };
        params.extend_from_slice(&gemm.words());
        params.extend_from_slice(&strides32);
        params.extend([u32::from(bias.is_some()), 0, 0, 0]);
        params.extend_from_slice(&words);
        Launch {
            variant: &variant(gemm.tiling, quads),
            inputs: &inputs,
            outputs: &[&out],
            params: &params,
            groups: gemm.groups(),
            work: gemm.work(),
        }
        .run()?;
    }
    gemm.join(out, &batch)
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
    let mut out: Vec<Variant> = DType::INTEGERS.map(int_variant).into();
    for tiling in Tiling::EVERY {
        for bits in 0..16 {
            let variant = variant(tiling, Quads::of_bits(bits));
            if !out.contains(&variant) {
                out.push(variant);
            }
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_matmul", &[normal(&[5, 7]), normal(&[7, 3])]),
    case("float_matmul", &[normal(&[64, 64]), normal(&[64, 64])]),
    case("float_matmul", &[normal(&[33, 130]), normal(&[130, 68])]),
    case("float_matmul", &[normal(&[1, 70]), normal(&[70, 9])]),
    case("float_matmul", &[normal(&[70, 1]), normal(&[1, 9])]),
    case("float_matmul", &[normal(&[4, 9000]), normal(&[9000, 5])]),
    case("float_matmul", &[normal(&[3, 0]), normal(&[0, 5])]),
    case("float_matmul", &[permuted(&[30, 20], &[1, 0]), normal(&[30, 12])]),
    case("float_matmul", &[normal(&[20, 30]), permuted(&[12, 30], &[1, 0])]),
    case("float_matmul", &[normal(&[2, 3, 6, 5]), normal(&[2, 3, 5, 8])]),
    case("float_matmul", &[normal(&[2, 1, 6, 5]), normal(&[1, 3, 5, 8])]),
    case("float_matmul", &[normal(&[4, 6, 5]), normal(&[1, 5, 8])]),
    case("float_matmul", &[normal(&[1, 6, 5]), normal(&[4, 5, 8])]),
    case("float_matmul", &[permuted(&[4, 8, 3, 5], &[0, 2, 1, 3]), permuted(&[4, 8, 3, 5], &[0, 2, 3, 1])]),
    case("int_matmul", &[ints(&[2, 5, 7]), ints(&[2, 7, 3])]),
    case("linear", &[normal(&[9, 12]), normal(&[12, 5]), normal(&[5])]),
    case("linear", &[normal(&[2, 9, 12]), normal(&[12, 8]), Arg::Without]),
    case("linear_x_backward", &[normal(&[12, 8]), normal(&[3, 4, 8])]),
    case("linear_weight_backward", &[normal(&[3, 4, 12]), normal(&[3, 4, 8])]),
    case("linear_bias_backward", &[normal(&[3, 4, 8])]),
];
