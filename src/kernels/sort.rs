//! Sorting along an axis, stable and without readbacks: by digits on GPUs, else by merging.

use super::common::cases::{Arg, Case, case, ints, normal, positive};
use super::common::launch::{Launch, variants_of, workgroups_for};
use super::common::policy;
use super::composed::views;
use super::scan::{self, ScanOp};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

static SORT: Source = Source::new::<SortParams>("sort", wgsl!("../../shaders/sort/sort.wgsl"));

static SORT_LINE: Source =
    Source::new::<RadixLineParams>("sort_line", wgsl!("../../shaders/sort/sort_line.wgsl"));
static SORT_COUNT: Source =
    Source::new::<RadixParams>("sort_count", wgsl!("../../shaders/sort/sort_count.wgsl"));
static SORT_SCATTER: Source =
    Source::new::<RadixParams>("sort_scatter", wgsl!("../../shaders/sort/sort_scatter.wgsl"));

params! {
    struct RadixLineParams {
        lines: u32,
        line_len: u32,
        pad0: u32,
        pad1: u32,
    }
}

params! {
    struct RadixParams {
        count: u32,
        tiles: u32,
        line_len: u32,
        shift: u32,
    }
}

params! {
    struct SortParams {
        count: u32,
        line_len: u32,
        run_len: u32,
        pad0: u32,
    }
}

/// Elements of a block, which the first pass sorts.
const BLOCK_SIZE: usize = 32;

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct SortKernel {
    /// The type of the elements.
    dtype: DType,
    /// Whether the pass sorts blocks; otherwise it merges runs.
    block_pass: bool,
    /// Whether the order is descending.
    descending: bool,
}

impl Kernel for SortKernel {
    type Params = SortParams;

    fn variant(&self) -> Variant {
        let Self { dtype, block_pass, descending } = *self;
        Variant::new(&SORT)
            .ty("E", dtype.wgsl())
            .int("BLOCK_SIZE", BLOCK_SIZE as u32)
            .flag("FLOAT", dtype == DType::F32)
            .flag("BLOCK_PASS", block_pass)
            .flag("DESCENDING", descending)
    }
}

/// Elements of a tile, which a workgroup sorts.
const TILE: usize = 1024;
/// The longest lines that are merged on GPUs: a tile would be mostly empty.
const MAX_MERGED_LEN: usize = 128;
/// Bits of a key, and of a digit.
const KEY_BITS: u32 = 32;
const DIGIT_BITS: u32 = 8;

/// The kernels that sort by digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RadixPass {
    /// Sorts lines of at most one tile.
    Line,
    /// Counts the digits of each tile.
    Count,
    /// Moves the elements; `first` if they are in their original order.
    Scatter { first: bool },
}

impl RadixPass {
    const ALL: [Self; 4] =
        [Self::Line, Self::Count, Self::Scatter { first: true }, Self::Scatter { first: false }];
}

#[derive(Debug, Clone, Copy, Hash)]
struct RadixLineKernel(RadixKernel);

/// The kernel of a pass by digits.
#[derive(Debug, Clone, Copy, Hash)]
struct RadixKernel {
    /// The type of the elements, of 32 bits.
    dtype: DType,
    pass: RadixPass,
    /// Whether the order is descending.
    descending: bool,
}

impl RadixKernel {
    fn define(self) -> Variant {
        let Self { dtype, pass, descending } = self;
        let source = match pass {
            RadixPass::Line => &SORT_LINE,
            RadixPass::Count => &SORT_COUNT,
            RadixPass::Scatter { .. } => &SORT_SCATTER,
        };
        Variant::new(source)
            .flag("FLOAT", dtype == DType::F32)
            .flag("SIGNED", dtype == DType::I32)
            .flag("DESCENDING", descending)
            .flag("FIRST", pass == RadixPass::Scatter { first: true })
    }
}

impl Kernel for RadixKernel {
    type Params = RadixParams;

    fn variant(&self) -> Variant {
        self.define()
    }
}

impl Kernel for RadixLineKernel {
    type Params = RadixLineParams;

    fn variant(&self) -> Variant {
        self.0.define()
    }
}

/// Sorts the elements along an axis, and returns them and their original indices. The sort is
/// stable. Floats are ordered by their bits: NaN is greater than infinity, or less than
/// -infinity if its sign bit is set.
///
/// # Errors
///
/// Returns an error if the memory is not available; so do the functions below.
pub fn with_indices(tensor: Tensor, axis: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    let last = tensor.shape().len() - 1;
    let swapped = |tensor: Tensor| views::swap_dims(tensor, axis, last);
    let tensor = views::packed(swapped(tensor)?)?;
    let line_len = tensor.shape()[last];
    let has_keys = [DType::F32, DType::I32, DType::U32].contains(&tensor.dtype());
    let by_digits = has_keys && policy::has_fast_barriers(tensor.runtime());
    if by_digits && line_len > MAX_MERGED_LEN && !tensor.is_empty() {
        let (values, indices) = match line_len <= TILE {
            true => sort_lines(&tensor, descending)?,
            false => sort_by_digits(&tensor, descending)?,
        };
        return Ok((swapped(values)?, swapped(indices)?));
    }
    let (mut values, mut indices) = sort_pass(&[&tensor], line_len, None, descending)?;
    let mut run_len = BLOCK_SIZE;
    while run_len < line_len {
        (values, indices) = sort_pass(&[&values, &indices], line_len, Some(run_len), descending)?;
        run_len *= 2;
    }
    Ok((swapped(values)?, swapped(indices)?))
}

/// Sorts the lines of a packed tensor `[.., line_len]`, of which each fits into a tile.
fn sort_lines(values: &Tensor, descending: bool) -> Result<(Tensor, Tensor)> {
    let line_len = values.shape()[values.shape().len() - 1];
    let lines = values.len() / line_len;
    let empty = |dtype| Tensor::empty(values.runtime(), values.shape(), dtype);
    let (sorted, indices) = (empty(values.dtype())?, empty(DType::I32)?);
    let kernel = RadixKernel { dtype: values.dtype(), pass: RadixPass::Line, descending };
    Launch {
        kernel: &RadixLineKernel(kernel),
        inputs: &[values],
        outputs: &[&sorted, &indices],
        params: &RadixLineParams {
            lines: lines as u32,
            line_len: line_len as u32,
            pad0: 0,
            pad1: 0,
        },
        workgroups: lines as u64,
        work: lines as u64 * TILE as u64 * u64::from(KEY_BITS),
    }
    .run()?;
    Ok((sorted, indices))
}

/// Sorts the lines of a packed tensor `[.., line_len]` by one digit after another, from the lowest
/// on. Each pass counts the digits of each tile, adds up the counts, and moves the elements.
fn sort_by_digits(tensor: &Tensor, descending: bool) -> Result<(Tensor, Tensor)> {
    let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
    let line_len = tensor.shape()[tensor.shape().len() - 1];
    let lines = tensor.len() / line_len;
    let tiles = line_len.div_ceil(TILE);
    let (mut values, mut indices) = (tensor.clone(), None);
    for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
        let launch = |pass, inputs: &[&Tensor], outputs: &[&Tensor]| {
            Launch {
                kernel: &RadixKernel { dtype, pass, descending },
                inputs,
                outputs,
                params: &RadixParams {
                    count: (lines * tiles) as u32,
                    tiles: tiles as u32,
                    line_len: line_len as u32,
                    shift,
                },
                workgroups: (lines * tiles) as u64,
                work: tensor.len() as u64 * u64::from(DIGIT_BITS),
            }
            .run()
        };
        let counts = Tensor::empty(runtime, &[lines, tiles << DIGIT_BITS], DType::U32)?;
        launch(RadixPass::Count, &[&values], &[&counts])?;
        let ends = scan::scan(ScanOp::Sum, counts, 1)?;
        let empty = |dtype| Tensor::empty(runtime, tensor.shape(), dtype);
        let (moved, moved_indices) = (empty(dtype)?, empty(DType::I32)?);
        let outputs = [&moved, &moved_indices];
        match &indices {
            None => launch(RadixPass::Scatter { first: true }, &[&values, &ends], &outputs)?,
            Some(indices) => {
                let inputs = [&values, &ends, indices];
                launch(RadixPass::Scatter { first: false }, &inputs, &outputs)?;
            }
        }
        (values, indices) = (moved, Some(moved_indices));
    }
    // There is at least one pass.
    let indices = indices.map_or_else(|| Tensor::empty(runtime, tensor.shape(), DType::I32), Ok)?;
    Ok((values, indices))
}

/// Runs one pass of merging: sorts the blocks of the values, or, given `run_len`, merges pairs of sorted runs
/// of the values and their indices.
fn sort_pass(
    inputs: &[&Tensor],
    line_len: usize,
    run_len: Option<usize>,
    descending: bool,
) -> Result<(Tensor, Tensor)> {
    let values = inputs[0];
    let empty = |dtype| Tensor::empty(values.runtime(), values.shape(), dtype);
    let (sorted, indices) = (empty(values.dtype())?, empty(DType::I32)?);
    if !values.is_empty() {
        Launch {
            kernel: &SortKernel {
                dtype: values.dtype(),
                block_pass: run_len.is_none(),
                descending,
            },
            inputs,
            outputs: &[&sorted, &indices],
            params: &SortParams {
                count: values.len() as u32,
                line_len: line_len as u32,
                run_len: run_len.unwrap_or(0) as u32,
                pad0: 0,
            },
            workgroups: workgroups_for(values.len()),
            work: values.len() as u64 * BLOCK_SIZE as u64,
        }
        .run()?;
    }
    Ok((sorted, indices))
}

/// Sorts the elements along an axis.
pub fn sort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.0)
}

/// Returns the original indices of the sorted elements.
pub fn argsort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.1)
}

/// Returns the `count` largest elements along an axis, in descending order.
pub fn topk(tensor: Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let count = count.min(tensor.shape()[axis]);
    views::packed(views::narrow(sort(tensor, axis, true)?, axis, 0, count)?)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for descending in [false, true] {
            kernels.extend([false, true].map(|block_pass| SortKernel {
                dtype,
                block_pass,
                descending,
            }));
        }
    }
    let mut variants = variants_of(kernels);
    for (dtype, descending) in [DType::F32, DType::I32, DType::U32]
        .into_iter()
        .flat_map(|dtype| [(dtype, false), (dtype, true)])
    {
        let of = |pass| RadixKernel { dtype, pass, descending };
        variants.extend(RadixPass::ALL.map(|pass| of(pass).define()));
    }
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = &[
    case("float_sort", &[normal(&[7]), Arg::Int(0), Arg::Flag(false)]),
    case("float_sort", &[positive(&[3, 1000]), Arg::Int(1), Arg::Flag(true)]),
    case("float_sort", &[positive(&[65, 3, 2]), Arg::Int(0), Arg::Flag(false)]),
    case("float_sort", &[normal(&[2, 0]), Arg::Int(1), Arg::Flag(false)]),
    case("float_sort", &[positive(&[40, 9]), Arg::Int(0), Arg::Flag(true)]),
    case(
        "float_sort_with_indices",
        &[positive(&[3, 100]), Arg::Int(1), Arg::Flag(false), Arg::IntType],
    ),
    case("float_argsort", &[positive(&[33, 4]), Arg::Int(0), Arg::Flag(true), Arg::IntType]),
    case("float_topk", &[positive(&[5, 90]), Arg::Int(1), Arg::Int(7)]),
    case("int_sort", &[ints(&[4, 130]), Arg::Int(1), Arg::Flag(false)]),
    case("int_sort", &[ints(&[70, 2]), Arg::Int(0), Arg::Flag(true)]),
    // Lines of up to a tile, and of several. The gradients of equal floats depend on their order, which
    // the reference leaves open.
    case("float_sort", &[positive(&[3, 200]), Arg::Int(1), Arg::Flag(false)]),
    case("int_sort", &[ints(&[2, 1500]), Arg::Int(1), Arg::Flag(false)]),
    case("int_sort", &[ints(&[2, 1500]), Arg::Int(1), Arg::Flag(true)]),
    case("int_sort", &[ints(&[2, 400]), Arg::Int(1), Arg::Flag(false)]),
    case("int_sort", &[ints(&[2, 400]), Arg::Int(1), Arg::Flag(true)]),
    // The reference, the CPU backend, is stable only for few elements.
    case("int_sort_with_indices", &[ints(&[3, 15]), Arg::Int(1), Arg::Flag(true)]),
    case("int_argsort", &[ints(&[15, 3]), Arg::Int(0), Arg::Flag(false)]),
    case("int_topk", &[ints(&[5, 90]), Arg::Int(0), Arg::Int(2)]),
];
