//! Matrix products: batched, broadcast over the batch, transposed without a copy, with a bias.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, permuted};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy, div_up, walk};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor, broadcast};

static MATMUL: Source = Source {
    name: "matmul",
    text: include_str!("../../shaders/matmul/matmul.wgsl"),
};
static MATMUL_INT: Source = Source {
    name: "matmul_int",
    text: include_str!("../../shaders/matmul/matmul_int.wgsl"),
};

/// The shape in which a product is computed; see `shaders/lib/gemm.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tiling {
    /// Through workgroup memory.
    Tiled,
    /// Each invocation on its own: rows of four, workgroups of so many invocations.
    Direct { rows: u32, lanes: u32 },
}

impl Tiling {
    pub const EVERY: [Self; 3] = [
        Self::Tiled,
        Self::Direct { rows: 8, lanes: 8 },
        Self::Direct { rows: 2, lanes: 8 },
    ];

    /// What suits the adapter's class and the count of rows.
    pub fn choose(runtime: &Runtime, m: usize) -> Self {
        if runtime.is_software() {
            Self::Direct {
                rows: if m <= 2 { 2 } else { 8 },
                lanes: 8,
            }
        } else {
            Self::Tiled
        }
    }

    /// The rows and columns that one workgroup computes.
    fn tile(self) -> (usize, usize) {
        match self {
            Self::Tiled => (64, 64),
            Self::Direct { rows, lanes } => (rows as usize, lanes as usize * 4),
        }
    }

    pub fn define(self, variant: Variant) -> Variant {
        match self {
            Self::Tiled => variant.flag("TILED", true),
            Self::Direct { rows, lanes } => variant.int("ROWS", rows).int("LANES", lanes),
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
        let tiling = Tiling::choose(runtime, m);
        let (rows, cols) = tiling.tile();
        let tiles = batch * m.div_ceil(rows) * n.div_ceil(cols);
        let (enough, least) = if runtime.is_software() {
            (16, 1024)
        } else {
            (256, 256)
        };
        let splits = if tiles >= enough {
            1
        } else {
            (enough / tiles.max(1)).min(k / least).max(1)
        };
        Self {
            batch,
            m,
            n,
            k,
            splits: k.div_ceil(k.div_ceil(splits).max(1)).max(1),
            tiling,
        }
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
            self.k.div_ceil(self.splits) as u32,
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
        let out = if self.splits == 1 {
            out
        } else {
            reduce::dim(Reduction::Sum, out, 0)?
        };
        Ok(out.view(Layout::contiguous(shape)))
    }
}

fn variant(tiling: Tiling, quad: bool, across: bool, bias: bool) -> Variant {
    let tiled = tiling == Tiling::Tiled;
    tiling
        .define(Variant::new(&MATMUL))
        .flag("B_QUAD", quad && !tiled)
        .flag("A_ACROSS", across && tiled)
        .flag("BIAS", bias)
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
    let fits = |rule| Error::Shape {
        lhs: lhs.shape().to_vec(),
        rhs: rhs.shape().to_vec(),
        rule,
    };
    let rank = lhs.shape().len();
    if rank < 2 || rhs.shape().len() != rank || lhs.shape()[rank - 1] != rhs.shape()[rank - 2] {
        return Err(fits(
            "a product needs matrices [.., m, k] and [.., k, n] of one rank",
        ));
    }
    let (m, k, n) = (
        lhs.shape()[rank - 2],
        lhs.shape()[rank - 1],
        rhs.shape()[rank - 1],
    );
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
        start
            .expand(&batch)
            .ok_or_else(|| fits("the axes before the matrices must broadcast"))
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
    let bias = bias.map(copy::packed).transpose()?;
    let mut params: Params = SmallVec::new();
    let mut inputs: SmallVec<[&Tensor; 3]> = SmallVec::from_slice(&[&lhs, &rhs]);
    if lhs.dtype() == DType::I32 {
        let out = Tensor::empty(lhs.runtime(), &batch, DType::I32, &inputs)?;
        params.extend_from_slice(&[out.len() as u32, m as u32, n as u32, k as u32]);
        params.extend_from_slice(&strides32);
        params.extend_from_slice(&words);
        Launch {
            variant: &Variant::new(&MATMUL_INT),
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
    inputs.extend(&bias);
    let out = Tensor::empty(
        lhs.runtime(),
        &[gemm.splits, count * m * n],
        DType::F32,
        &inputs,
    )?;
    if !out.is_empty() {
        let quad = strides[3] == 1
            && n.is_multiple_of(4)
            && strides[2] % 4 == 0
            && rhs_starts.offset.is_multiple_of(4)
            && rhs_starts.strides.iter().all(|&s| s % 4 == 0);
        params.extend_from_slice(&gemm.words());
        params.extend_from_slice(&strides32);
        params.extend_from_slice(&words);
        Launch {
            variant: &variant(
                gemm.tiling,
                quad,
                strides[0] == 1 && strides[1] != 1,
                bias.is_some(),
            ),
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
    let (width, outer) = tensor
        .shape()
        .split_last()
        .map_or((1, &[][..]), |(w, o)| (*w, o));
    (outer.iter().product(), width)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = vec![Variant::new(&MATMUL_INT)];
    for tiling in Tiling::EVERY {
        for bias in [true, false] {
            for special in [true, false] {
                out.push(variant(tiling, special, special, bias));
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
    case(
        "float_matmul",
        &[permuted(&[30, 20], &[1, 0]), normal(&[30, 12])],
    ),
    case(
        "float_matmul",
        &[normal(&[20, 30]), permuted(&[12, 30], &[1, 0])],
    ),
    case(
        "float_matmul",
        &[normal(&[2, 3, 6, 5]), normal(&[2, 3, 5, 8])],
    ),
    case(
        "float_matmul",
        &[normal(&[2, 1, 6, 5]), normal(&[1, 3, 5, 8])],
    ),
    case("float_matmul", &[normal(&[4, 6, 5]), normal(&[1, 5, 8])]),
    case("float_matmul", &[normal(&[1, 6, 5]), normal(&[4, 5, 8])]),
    case(
        "float_matmul",
        &[
            permuted(&[4, 8, 3, 5], &[0, 2, 1, 3]),
            permuted(&[4, 8, 3, 5], &[0, 2, 3, 1]),
        ],
    ),
    case("int_matmul", &[ints(&[2, 5, 7]), ints(&[2, 7, 3])]),
    case(
        "linear",
        &[normal(&[9, 12]), normal(&[12, 5]), normal(&[5])],
    ),
    case(
        "linear",
        &[normal(&[2, 9, 12]), normal(&[12, 8]), Arg::Without],
    ),
    case("linear", &[normal(&[12]), normal(&[12, 8]), normal(&[8])]),
    case("linear_x_backward", &[normal(&[12, 8]), normal(&[3, 4, 8])]),
    case(
        "linear_weight_backward",
        &[normal(&[3, 4, 12]), normal(&[3, 4, 8])],
    ),
    case("linear_bias_backward", &[normal(&[3, 4, 8])]),
];
