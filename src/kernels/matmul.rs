//! Matrix products: batched, broadcast over the batch, with transposed operands and a bias.

use std::sync::Arc;

use crate::device::{Limits, Units};
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::gemm::definition::ProductDefinition;
use crate::kernels::gemm::tuning::{self, Trial};
use crate::kernels::gemm::units::{self, UnitsKernel, units_for};
use crate::kernels::gemm::{self, Gemm, GemmOperands, GemmParams, Repack, Tiling};
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, PendingResult, parts, variants_of, workgroups_for};
use crate::kernels::matvec::{Order, matvec};
use crate::kernels::matvec_quantized::matvec_quantized;
use crate::kernels::ops::cases::{Case, cases, ints, permuted};
use crate::kernels::ops::table::rows;
use crate::kernels::policy::strategy::{GemmSizes, Strategy, Tile};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{cast, copy, elementwise, policy, views};
use crate::params;
use crate::runtime::{Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor, broadcast};

static MATMUL: Source =
    Source::new::<MatmulParams>("matmul", wgsl!("../../shaders/matmul/matmul.wgsl"));
static MATMUL_INT: Source =
    Source::new::<MatmulIntParams>("matmul_int", wgsl!("../../shaders/matmul/matmul_int.wgsl"));

params! {
    struct MatmulParams {
        gemm: GemmParams,
        a_row: i32,
        b_col: i32,
        has_bias: u32,
        pad0: u32,
        walk: Walk,
    }
}

params! {
    struct MatmulIntParams {
        count: u32,
        m: u32,
        n: u32,
        k: u32,
        a_row: i32,
        a_col: i32,
        b_row: i32,
        b_col: i32,
        walk: Walk,
    }
}

/// The kernel of a float product.
#[derive(Debug, Clone, Copy, Hash)]
struct MatmulKernel {
    /// The mapping of the product to workgroups.
    tiling: Tiling,
    /// How the operands are read.
    operands: GemmOperands,
    /// Whether the result is stored in vec4s.
    out_vec4: bool,
}

impl Kernel for MatmulKernel {
    type Params = MatmulParams;

    fn variant(&self) -> Variant {
        gemm::define(Variant::new(&MATMUL).flag("BIAS", true), self.tiling, self.operands)
            .flag("OUT_VEC4", self.out_vec4)
    }
}

/// The kernel of an integer product.
#[derive(Debug, Clone, Copy, Hash)]
struct MatmulIntKernel {
    /// The type of the elements.
    dtype: DType,
}

impl Kernel for MatmulIntKernel {
    type Params = MatmulIntParams;

    fn variant(&self) -> Variant {
        Variant::new(&MATMUL_INT).ty("E", self.dtype.wgsl())
    }
}

/// Returns whether a kernel of a float product reads its operands in vec4s; `None` for other kernels.
#[cfg(feature = "train")]
pub(crate) fn reads_vec4(kernel: &Variant) -> Option<bool> {
    let is_product = kernel.source.name == MATMUL.name;
    is_product.then(|| kernel.defs.iter().any(|(name, _)| *name == "VEC4"))
}

/// Computes `lhs @ rhs` over the last two axes, broadcast over the others. Products of 16-bit
/// floats are f32. The rows of the result may have gaps, of columns that were added to an operand.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so do the functions
/// below.
pub fn matmul(lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    product(lhs, rhs, None, Forced::default())
}

/// Computes [`matmul`] by a given strategy, at once.
fn matmul_by(lhs: Tensor, rhs: Tensor, strategy: Strategy) -> Result<Tensor> {
    let out = product(lhs, rhs, None, Forced { strategy: Some(strategy), units: None })?;
    out.buffer()?;
    Ok(out)
}

/// Returns the strategy for a product: forced by the environment variable, found by tuning, or
/// built in.
pub(crate) fn choose_strategy(runtime: &Arc<Runtime>, sizes: GemmSizes, dtype: DType) -> Strategy {
    let chosen = Strategy::forced().or_else(|| tuning::tuned(runtime, sizes, matmul_by));
    chosen
        .unwrap_or_else(|| policy::of(runtime).gemm_strategy(sizes, dtype, runtime.is_warmed_up()))
}

/// A tiled product with matrix units: its strategy and layouts, without the size of the units.
#[derive(Debug, Clone, Copy)]
struct ProductWithUnits {
    strategy: Strategy,
    /// As in [`GemmOperands`]: whether a is contiguous along m, and b along k.
    transposed: [bool; 2],
}

impl UnitsKernel for ProductWithUnits {
    fn fits(&self, limits: &Limits, units: Units, dtype: DType) -> bool {
        gemm::units_fit(limits, Tile::SMALLEST, units, dtype.size() as u32)
    }

    fn number(&self, dtype: DType) -> u32 {
        let [a, b] = self.transposed;
        let layout = [dtype == DType::F32, a, b];
        let layout = layout.into_iter().fold(0, |number, bit| number << 1 | u32::from(bit));
        (self.strategy.tile_index() as u32) << 3 | layout
    }

    fn name(&self) -> String {
        let layouts = self.transposed.map(|transposed| if transposed { "t" } else { "n" });
        format!("{:?} {}", self.strategy, layouts.concat())
    }

    fn is_right(&self, runtime: &Arc<Runtime>, dtype: DType, units: Units) -> Result<bool> {
        let definition = ProductDefinition { dtype };
        let [left, right] = definition.operands(runtime, self.transposed)?;
        let forced = Forced { strategy: Some(self.strategy), units: Some(units) };
        let found = units::download(&product(left, right, None, forced)?)?;
        Ok(found.into_iter().eq(definition.expected()))
    }
}

/// Tunes the strategies on this adapter: see [`tuning::tune`].
pub(crate) fn tune(runtime: &Arc<Runtime>, on_progress: impl FnMut(&Trial)) -> Result<Vec<Trial>> {
    tuning::tune(runtime, matmul_by, on_progress)
}

/// How a product must be computed. `None` leaves the choice to the sizes, [`choose_strategy`] and
/// [`units_for`].
#[derive(Debug, Clone, Copy, Default)]
struct Forced {
    strategy: Option<Strategy>,
    units: Option<Units>,
}

/// Computes `lhs @ rhs + bias`, with a bias of one element per column. The rows of the result may have gaps.
fn product(lhs: Tensor, rhs: Tensor, bias: Option<Tensor>, forced: Forced) -> Result<Tensor> {
    let mut batch = batch_shape(&lhs, &rhs, bias.as_ref())?;
    let rank = lhs.shape().len();
    let (m, n) = (lhs.shape()[rank - 2], rhs.shape()[rank - 1]);
    let dtype = lhs.dtype().compute_type();
    let shape = [&batch[..], &[m, n]].concat();
    if parts::any_oversized([&lhs, &rhs]) || parts::exceed_binding(lhs.runtime(), &shape, dtype) {
        let out = Tensor::empty(lhs.runtime(), &shape, dtype)?;
        write_product(&lhs, &rhs, bias.as_ref(), &out)?;
        return Ok(out);
    }
    if let Some(tall) = tall_layout(&lhs, &rhs, &batch) {
        let mut shape: Shape = lhs.shape().into();
        shape[rank - 1] = n;
        let right = views::reshape(rhs, &[tall.shape[1], n])?;
        return views::reshape(product(lhs.view(tall), right, bias, forced)?, &shape);
    }
    // A strategy is forced to time or to test it.
    let vectors = match forced.strategy {
        None => vector_product(&lhs, &rhs, &batch)?,
        Some(_) => None,
    };
    if let Some(out) = vectors {
        batch.extend([m, n]);
        let out = out.view(Layout::contiguous(&batch));
        return match bias {
            Some(bias) => add_bias(out, bias),
            None => Ok(out),
        };
    }
    if lhs.dtype().is_integer() {
        return integer_product(&lhs, &rhs, batch, forced);
    }
    float_product(lhs, rhs, bias, batch, forced)
}

/// Returns the layout in which the operands on the left are one tall matrix, if there is one matrix on the right for
/// all of them.
fn tall_layout(lhs: &Tensor, rhs: &Tensor, batch: &[usize]) -> Option<Layout> {
    let rank = lhs.shape().len();
    let shared_rhs = rhs.shape()[..rank - 2].iter().all(|&size| size == 1);
    let is_batch = batch.iter().product::<usize>() > 1 && lhs.dtype().is_float();
    let height: usize = lhs.shape()[..rank - 1].iter().product();
    let tall = [height, lhs.shape()[rank - 1]];
    (shared_rhs && is_batch).then(|| lhs.layout().reshape(&tall)).flatten()
}

/// Computes a product of integers, in parts of k if it would take an invocation too many rounds.
fn integer_product(lhs: &Tensor, rhs: &Tensor, mut batch: Shape, forced: Forced) -> Result<Tensor> {
    let rank = lhs.shape().len();
    let (m, k, n) = (lhs.shape()[rank - 2], lhs.shape()[rank - 1], rhs.shape()[rank - 1]);
    if k > policy::max_rounds(lhs.runtime()) {
        let [first, second] = parts::halves(k).map(|(start, len)| {
            let part =
                |tensor: &Tensor, axis| tensor.view(tensor.layout().narrow(axis, start, len));
            product(part(lhs, rank - 1), part(rhs, rank - 2), None, forced)
        });
        return elementwise::binary(&rows::int_add, first?, second?);
    }
    let walk = batch_walk(lhs, rhs, &batch)?;
    batch.extend([m, n]);
    int_product(lhs, rhs, &batch, walk)
}

/// How a product of floats is computed.
enum ProductPlan {
    /// As the sum of splits, to which the bias is added.
    BiasAfterSplits,
    /// From f32 operands.
    Widened,
    /// From copies of the operands.
    Repacked(Repack),
    /// By the kernel.
    Kernel(Gemm, GemmOperands),
}

impl ProductPlan {
    /// Chooses how matrices are multiplied, `batch` of them.
    fn of(lhs: &Tensor, rhs: &Tensor, batch: &[usize], has_bias: bool, forced: Forced) -> Self {
        let rank = lhs.shape().len();
        let (m, k, n) = (lhs.shape()[rank - 2], lhs.shape()[rank - 1], rhs.shape()[rank - 1]);
        let runtime = lhs.runtime();
        let sizes = GemmSizes { batch: batch.iter().product(), m, n, k };
        let strategy = forced.strategy.unwrap_or_else(|| match Strategy::forced() {
            None if policy::of(runtime).is_small_product(sizes) => Strategy::Small,
            _ => choose_strategy(runtime, sizes, lhs.dtype()),
        });
        let mut gemm = Gemm::new(sizes, strategy, lhs.dtype());
        if has_bias && gemm.wanted_splits(runtime) > 1 {
            return Self::BiasAfterSplits;
        }
        let half = Some(lhs.dtype()).filter(|dtype| dtype.is_half());
        let (operands, mut repack) = gemm.operands(runtime, [lhs, rhs]);
        if half.is_some() {
            let pads = policy::of(runtime).keeps_halves() && gemm.pays_to_repack(runtime, repack);
            if !operands.vec4 && !pads {
                return Self::Widened;
            }
            // Rows of 16-bit elements have half the stride and do not alias.
            if repack == Repack::Rows {
                repack = Repack::None;
            }
        }
        if gemm.pays_to_repack(runtime, repack) {
            return Self::Repacked(repack);
        }
        if !has_bias {
            // Each split is one run of k.
            gemm.inner = k.div_ceil(gemm.wanted_splits(runtime)).next_multiple_of(4).max(4);
            gemm.outer = k.div_ceil(gemm.inner).max(1);
            gemm.splits = gemm.outer;
        }
        ([_, gemm.a_step], [gemm.b_step, _]) = (matrix_strides(lhs), matrix_strides(rhs));
        Self::Kernel(gemm, GemmOperands { half, ..operands })
    }
}

/// Computes a product of floats. `batch` are the axes before the matrices.
fn float_product(
    lhs: Tensor,
    rhs: Tensor,
    bias: Option<Tensor>,
    mut batch: Shape,
    forced: Forced,
) -> Result<Tensor> {
    let (lhs, rhs) = (cast::as_stored(lhs)?, cast::as_stored(rhs)?);
    let walk = batch_walk(&lhs, &rhs, &batch)?;
    let bias = bias.map(cast::to_compute_type).transpose()?.map(views::packed).transpose()?;
    let (gemm, operands) = match ProductPlan::of(&lhs, &rhs, &batch, bias.is_some(), forced) {
        ProductPlan::BiasAfterSplits => {
            let out = product(lhs, rhs, None, forced)?;
            return match bias {
                Some(bias) => add_bias(out, bias),
                None => Ok(out),
            };
        }
        ProductPlan::Widened => return product(as_f32(lhs)?, as_f32(rhs)?, bias, forced),
        ProductPlan::Repacked(repack) => return repacked_product(lhs, rhs, bias, repack, forced),
        ProductPlan::Kernel(gemm, operands) => (gemm, operands),
    };
    let out = launch(&gemm, operands, [&lhs, &rhs], bias.as_ref(), walk, forced)?;
    batch.extend([gemm.m, gemm.n]);
    gemm.sum_splits(out, &batch)
}

/// Launches the kernel of a plan. Returns the products of the splits of k, one after the other.
fn launch(
    gemm: &Gemm,
    operands: GemmOperands,
    [lhs, rhs]: [&Tensor; 2],
    bias: Option<&Tensor>,
    walk: Walk,
    forced: Forced,
) -> Result<Tensor> {
    let runtime = lhs.runtime();
    let Gemm { batch, m, n, k, .. } = *gemm;
    // 16-bit operands that are read as f32.
    let prologues = prologue::conversions(&[lhs, rhs]);
    // The layout requires a bias binding. Without a bias it is not read.
    let unread;
    let bias_or_unread = match bias {
        Some(bias) => bias,
        None if prologues.is_empty() => rhs,
        None => {
            unread = Tensor::empty(runtime, &[1], DType::F32)?;
            &unread
        }
    };
    let units = (operands.vec4 && k > 0 && gemm.strategy.is_tiled())
        .then(|| {
            let transposed = [operands.a_transposed, operands.b_transposed];
            let kernel = ProductWithUnits { strategy: gemm.strategy, transposed };
            forced.units.or_else(|| units_for(runtime, lhs.dtype(), &kernel))
        })
        .flatten();
    let tiling = gemm.tiling(runtime, operands.vec4, units);
    let (workgroups, params) = gemm.params(tiling);
    let ([a_row, _], [_, b_col]) = (matrix_strides(lhs), matrix_strides(rhs));
    let out_vec4 = operands.vec4 || tiling.is_for_gpus() && n.is_multiple_of(4);
    Launch {
        kernel: &MatmulKernel { tiling, operands, out_vec4 },
        inputs: &[lhs, rhs, bias_or_unread],
        outputs: &[],
        params: &MatmulParams {
            gemm: params,
            a_row: a_row as i32,
            b_col: b_col as i32,
            has_bias: u32::from(bias.is_some()),
            pad0: 0,
            walk,
        },
        workgroups,
        work: gemm.work(),
        rounds: Some(gemm.rounds(tiling, operands.vec4)),
    }
    .defer(&PendingResult {
        vec4: out_vec4,
        large_kernel: true,
        prologues: &prologues,
        ..PendingResult::scalars(runtime, &[gemm.splits, batch * m * n], DType::F32)
    })
}

/// Computes the product to `out`, in parts if an operand or `out` is larger than a binding.
fn write_product(lhs: &Tensor, rhs: &Tensor, bias: Option<&Tensor>, out: &Tensor) -> Result<()> {
    let rank = out.shape().len();
    let [m, n] = [rank - 2, rank - 1];
    // Axes of the product: those of `out`, and k after them.
    let k = rank;
    let axis_of_lhs = parts::longest_axis(lhs).map(|axis| if axis == n { k } else { axis });
    let axis_of_rhs = parts::longest_axis(rhs).map(|axis| if axis == m { k } else { axis });
    let Some(axis) = axis_of_lhs.or(axis_of_rhs).or_else(|| parts::longest_axis(out)) else {
        let part = product(lhs.clone(), rhs.clone(), bias.cloned(), Forced::default())?;
        return copy::write(&part, out);
    };
    let len = if axis == k { lhs.shape()[n] } else { out.shape()[axis] };
    let halves = parts::halves(len).map(|(start, len)| {
        let narrow = |tensor: &Tensor, axis: usize| match tensor.shape()[axis] {
            // Broadcast over the batch.
            1 => tensor.clone(),
            _ => tensor.view(tensor.layout().narrow(axis, start, len)),
        };
        let lhs = match axis {
            _ if axis == n => lhs.clone(),
            _ => narrow(lhs, axis.min(n)),
        };
        let rhs = match axis {
            _ if axis == m => rhs.clone(),
            _ if axis == k => narrow(rhs, m),
            _ => narrow(rhs, axis),
        };
        let bias = match axis {
            _ if axis == n => bias.map(|bias| narrow(bias, 0)),
            // The bias is added once.
            _ if axis == k && start > 0 => None,
            _ => bias.cloned(),
        };
        (lhs, rhs, bias, (start, len))
    });
    if axis == k {
        let [first, second] =
            halves.map(|(lhs, rhs, bias, _)| product(lhs, rhs, bias, Forced::default()));
        let add = if out.dtype().is_float() { &rows::float_add } else { &rows::int_add };
        return copy::write(&elementwise::binary(add, first?, second?)?, out);
    }
    for (lhs, rhs, bias, (start, len)) in halves {
        let part = out.view(out.layout().narrow(axis, start, len));
        write_product(&lhs, &rhs, bias.as_ref(), &part)?;
    }
    Ok(())
}

/// Computes `lhs @ rhs` for integers, of the given shape. `walk` is the result of [`batch_walk`].
fn int_product(lhs: &Tensor, rhs: &Tensor, shape: &[usize], walk: Walk) -> Result<Tensor> {
    let rank = shape.len();
    let (m, n, k) = (shape[rank - 2], shape[rank - 1], lhs.shape()[rank - 1]);
    let ([a_row, a_col], [b_row, b_col]) = (matrix_strides(lhs), matrix_strides(rhs));
    let out = Tensor::empty(lhs.runtime(), shape, lhs.dtype())?;
    Launch {
        kernel: &MatmulIntKernel { dtype: lhs.dtype() },
        inputs: &[lhs, rhs],
        outputs: &[&out],
        params: &MatmulIntParams {
            count: out.len() as u32,
            m: m as u32,
            n: n as u32,
            k: k as u32,
            a_row: a_row as i32,
            a_col: a_col as i32,
            b_row: b_row as i32,
            b_col: b_col as i32,
            walk,
        },
        workgroups: workgroups_for(out.len()),
        work: 2 * out.len() as u64 * k as u64,
        rounds: Some(k as u64),
    }
    .run()?;
    Ok(out)
}

/// Adds a bias of one element per column.
fn add_bias(out: Tensor, bias: Tensor) -> Result<Tensor> {
    let bias = views::expand(bias, out.shape())?;
    elementwise::binary(&rows::float_add, out, bias)
}

/// Returns the strides of the last two axes.
fn matrix_strides(tensor: &Tensor) -> [isize; 2] {
    let layout = tensor.layout();
    [2, 1].map(|from_end| layout.strides[layout.rank() - from_end])
}

/// Checks that the operands fit, and returns the shape of the batch.
fn batch_shape(lhs: &Tensor, rhs: &Tensor, bias: Option<&Tensor>) -> Result<Shape> {
    lhs.same_device(rhs)?;
    if lhs.dtype() != rhs.dtype() {
        return Err(Error::Unsupported("a product of matrices of two element types"));
    }
    let mut shape = product_shape(lhs.shape(), rhs.shape(), bias.map(Tensor::shape))?;
    shape.truncate(shape.len() - 2);
    Ok(shape)
}

/// Returns the shape of a product of matrices `[.., m, k]` and `[.., k, n]`, with a bias `[n]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit.
pub fn product_shape(lhs: &[usize], rhs: &[usize], bias: Option<&[usize]>) -> Result<Shape> {
    let error = |rule| Error::Shape { lhs: lhs.to_vec(), rhs: rhs.to_vec(), rule };
    let rank = lhs.len();
    if rank < 2 || rhs.len() != rank || lhs[rank - 1] != rhs[rank - 2] {
        return Err(error("a matrix product needs [.., m, k] and [.., k, n] of the same rank"));
    }
    let n = rhs[rank - 1];
    if let Some(bias) = bias.filter(|bias| *bias != [n]) {
        let (lhs, rhs) = (bias.to_vec(), rhs.to_vec());
        return Err(Error::Shape { lhs, rhs, rule: "a bias must have one element per column" });
    }
    let batch = broadcast(&lhs[..rank - 2], &rhs[..rank - 2])
        .ok_or_else(|| error("the axes before the matrices must broadcast"))?;
    Ok(batch.into_iter().chain([lhs[rank - 2], n]).collect())
}

/// Returns the shape of [`linear`] for `x` `[.., k]`, a weight `[k, n]` and a bias `[n]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit.
pub fn linear_shape(x: &[usize], weight: &[usize], bias: Option<&[usize]>) -> Result<Shape> {
    match (weight, x.split_last()) {
        (&[k, n], Some((&last, outer))) if k == last => {
            product_shape(&[1, k], weight, bias)?;
            Ok(outer.iter().copied().chain([n]).collect())
        }
        _ => Err(Error::Shape {
            lhs: x.to_vec(),
            rhs: weight.to_vec(),
            rule: "a linear layer needs x [.., k] and a weight [k, n]",
        }),
    }
}

/// Returns the walk over the matrices of the batch: where they start in lhs (y) and rhs (z).
fn batch_walk(lhs: &Tensor, rhs: &Tensor, batch: &[usize]) -> Result<Walk> {
    let starts = |tensor: &Tensor| {
        let starts = tensor.layout().leading(batch.len());
        starts.expand(batch).ok_or_else(|| Error::Shape {
            lhs: lhs.shape().to_vec(),
            rhs: rhs.shape().to_vec(),
            rule: "the axes before the matrices must broadcast",
        })
    };
    Walk::new(&[&Layout::contiguous(batch), &starts(lhs)?, &starts(rhs)?])
}

/// Computes the product if one side is a vector or a few of them, or a batch of such, and [`matvec`]
/// can read the other side.
fn vector_product(lhs: &Tensor, rhs: &Tensor, batch: &[usize]) -> Result<Option<Tensor>> {
    let rank = batch.len() + 2;
    let (left, right) = (lhs.layout().clone(), rhs.layout().swap(rank - 2, rank - 1));
    // Both are [.., rows, k] now; a vector is a row.
    let max = policy::of(lhs.runtime()).max_vectors();
    let (m, n, left_k) = (left.shape[rank - 2], right.shape[rank - 2], left.shape[rank - 1]);
    let ((a, a_layout), (x, x_layout), order) = match n <= m {
        true if n <= max => ((lhs, left), (rhs, right), Order::RowsFirst),
        false if m <= max => ((rhs, right), (lhs, left), Order::VectorsFirst),
        _ => return Ok(None),
    };
    let sizes = GemmSizes { batch: batch.iter().product(), m, n, k: left_k };
    if m.min(n) > 8 && policy::of(lhs.runtime()).is_small_product(sizes) {
        return Ok(None);
    }
    let is_dense = |tensor: &Tensor| tensor.layout().dense_order().is_some();
    let widened;
    let (a, x) = match a.dtype() {
        DType::F32 => (a, x),
        // The kernel widens 16-bit operands as it reads them.
        dtype if dtype.is_half() && is_enabled() && is_dense(a) && is_dense(x) => {
            widened = (cast::widened(a)?, cast::widened(x)?);
            (&widened.0, &widened.1)
        }
        _ => return Ok(None),
    };
    let expanded = |layout: &Layout| {
        let matrix = &layout.shape[rank - 2..];
        layout.expand(&[batch, matrix].concat())
    };
    let (Some(a_layout), Some(x_layout)) = (expanded(&a_layout), expanded(&x_layout)) else {
        return Ok(None);
    };
    if order == Order::VectorsFirst
        && let Some(out) = matvec_quantized((a, &a_layout), (x, &x_layout))?
    {
        return Ok(Some(out));
    }
    matvec((a, &a_layout), (x, &x_layout), order)
}

/// Returns a 16-bit operand as f32. On GPUs, the kernel of the product reads it as it is stored.
fn as_f32(tensor: Tensor) -> Result<Tensor> {
    if !policy::of(tensor.runtime()).keeps_halves() {
        return cast::to_compute_type(tensor);
    }
    // The conversion alone is pending.
    tensor.buffer()?;
    cast::widened(&tensor)
}

/// Computes the product of copies in the layout that the strategy prefers.
fn repacked_product(
    lhs: Tensor,
    rhs: Tensor,
    bias: Option<Tensor>,
    repack: Repack,
    forced: Forced,
) -> Result<Tensor> {
    let rank = lhs.shape().len();
    let n = rhs.shape()[rank - 1];
    if repack == Repack::Rows {
        return product(gemm::with_padded_rows(lhs)?, rhs, bias, forced);
    }
    let lhs = views::packed(gemm::padded_to_vec4(lhs, &[rank - 1])?)?;
    let rhs = views::packed(gemm::padded_to_vec4(rhs, &[rank - 2, rank - 1])?)?;
    let bias = bias.map(|bias| gemm::padded_to_vec4(bias, &[0])).transpose()?;
    views::narrow(product(lhs, rhs, bias, forced)?, rank - 1, 0, n)
}

/// Computes `x @ weight + bias` for `x` `[.., in]`, `weight` `[in, out]` and `bias` `[out]`.
pub fn linear(x: Tensor, weight: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let (height, width) = matrix_size(&x);
    let shape = linear_shape(x.shape(), weight.shape(), bias.as_ref().map(Tensor::shape))?;
    let x = views::reshape(x, &[height, width])?;
    views::reshape(product(x, weight, bias, Forced::default())?, &shape)
}

/// Computes the gradient of [`linear`] with respect to `x`: `grad @ weightᵀ`.
pub fn linear_x_backward(weight: Tensor, grad: Tensor) -> Result<Tensor> {
    linear(grad, views::swap_dims(weight, 0, 1)?, None)
}

/// Computes the gradient of [`linear`] with respect to its weight: `xᵀ @ grad`, one product over
/// the rows of the whole batch.
pub fn linear_weight_backward(x: Tensor, grad: Tensor) -> Result<Tensor> {
    let (height, in_width) = matrix_size(&x);
    let (_, out_width) = matrix_size(&grad);
    let x = views::swap_dims(views::reshape(x, &[height, in_width])?, 0, 1)?;
    matmul(x, views::reshape(grad, &[height, out_width])?)
}

/// Computes the gradient of [`linear`] with respect to its bias: the sum over the rows.
pub fn linear_bias_backward(grad: Tensor) -> Result<Tensor> {
    let (height, width) = matrix_size(&grad);
    let out = reduce::dim(Reduction::Sum, views::reshape(grad, &[height, width])?, 0)?;
    Ok(out.view(Layout::contiguous(&[width])))
}

/// Returns the height and the width of a tensor `[.., width]` as one matrix.
fn matrix_size(tensor: &Tensor) -> (usize, usize) {
    let (width, outer) = tensor.shape().split_last().map_or((1, &[][..]), |(w, o)| (*w, o));
    (outer.iter().product(), width)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let int_products = variants_of(DType::INTEGERS.map(|dtype| MatmulIntKernel { dtype }));
    let kernels = [gemm::all(), gemm::all_with_units(), gemm::all_small()].into_iter().flatten();
    let products: Vec<_> = kernels
        .flat_map(|(tiling, operands)| {
            let stores = match operands.vec4 {
                true => &[true][..],
                false if tiling.is_for_gpus() => &[false, true],
                false => &[false],
            };
            stores.iter().map(move |&out_vec4| MatmulKernel { tiling, operands, out_vec4 })
        })
        .collect();
    let with_epilogue = epilogue::samples(products.iter().copied());
    let of_f32 =
        |kernel: &MatmulKernel| kernel.operands.half.is_none() && kernel.tiling.is_for_gpus();
    let of_f32: Vec<_> = products.iter().copied().filter(of_f32).collect();
    let with_prologue = [0, 1].map(|input| prologue::samples_of_conversions(&of_f32, input));
    [int_products, variants_of(products), with_epilogue, with_prologue.concat()].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_matmul([5, 7], [7, 3]);
    float_matmul([64, 64], [64, 64]);
    // Transposed, and not in vec4s.
    float_matmul([40, 33], permuted(&[37, 33], &[1, 0]));
    // The same, with columns that are stored in vec4s.
    float_matmul(permuted(&[63, 71], &[1, 0]), [63, 68]);
    float_matmul(permuted(&[63, 71], &[1, 0]), permuted(&[68, 63], &[1, 0]));
    // Small products: several tiles per workgroup, of 16 or 32 columns, at the edges.
    float_matmul([70, 16, 12], [70, 12, 16]);
    float_matmul([3, 17, 9], [3, 9, 13]);
    float_matmul([9, 32, 32], [9, 32, 32]);
    float_matmul([5, 30, 20], permuted(&[5, 31, 20], &[0, 2, 1]));
    float_matmul(permuted(&[12, 40, 20], &[1, 2, 0]), [40, 12, 20]);
    float_matmul([33, 130], [130, 68]);
    float_matmul([1, 70], [70, 9]);
    float_matmul([70, 1], [1, 9]);
    // With a k of 1, rows and columns are both contiguous.
    float_matmul([64, 1], [1, 12]);
    float_matmul([2, 8, 1], [2, 1, 8]);
    float_matmul([4, 9000], [9000, 5]);
    float_matmul([3, 0], [0, 5]);
    // Large enough to be repacked for vec4 loads, or into rows that do not alias.
    float_matmul([130, 270], permuted(&[250, 270], &[1, 0]));
    float_matmul([64, 1024], [1024, 132]);
    // Transposed, and large enough for a copy without padding.
    float_matmul(permuted(&[64, 128], &[1, 0]), [64, 64]);
    // Several bands of tiles, the last of fewer rows.
    float_matmul([1100, 24], [24, 140]);
    float_matmul([32, 128], permuted(&[128, 128], &[1, 0]));
    // Few rows, in vec4s.
    float_matmul([4, 64], [64, 2052]);
    float_matmul(permuted(&[30, 20], &[1, 0]), [30, 24]);
    float_matmul([20, 30], permuted(&[12, 30], &[1, 0]));
    float_matmul([2, 3, 6, 5], [2, 3, 5, 8]);
    float_matmul([2, 1, 6, 5], [1, 3, 5, 8]);
    float_matmul([4, 6, 5], [1, 5, 8]);
    float_matmul([1, 6, 5], [4, 5, 8]);
    float_matmul(permuted(&[4, 8, 3, 5], &[0, 2, 1, 3]), permuted(&[4, 8, 3, 5], &[0, 2, 3, 1]));
    int_matmul(ints(&[2, 5, 7]), ints(&[2, 7, 3]));
    // Small products.
    linear([20, 12], [12, 16], [16]);
    linear([20, 12], [12, 24], _);
    linear([9, 12], [12, 5], [5]);
    // Split-K with a bias.
    linear([4, 2100], [2100, 12], [12]);
    linear([2, 9, 12], [12, 8], _);
    // Both operands transposed, with and without vec4s; few rows and more.
    linear(permuted(&[64, 72], &[1, 0]), permuted(&[68, 64], &[1, 0]), [68]);
    linear(permuted(&[63, 71], &[1, 0]), permuted(&[69, 63], &[1, 0]), [69]);
    linear([6, 256], [256, 256], [256]);
    linear([40, 128], [128, 128], [128]);
    linear([128, 64], [64, 24], [24]);
    // The same, padded to vec4s: the rows of the result have gaps.
    linear([5, 91, 128], [128, 151], [151]);
    linear([5, 91, 126], [126, 151], _);
    linear_x_backward([12, 8], [3, 4, 8]);
    linear_weight_backward([3, 4, 12], [3, 4, 8]);
    linear_bias_backward([3, 4, 8]);
};
