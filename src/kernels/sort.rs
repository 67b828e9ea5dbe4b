//! Sorting along an axis, stable and without readbacks: by digits on GPUs, else by merging.

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, ints, positive};
use crate::kernels::scan::{self, ScanOp};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[
    ("lib/radix", wgsl!("../../shaders/lib/radix.wgsl")),
    ("lib/sort_key", wgsl!("../../shaders/lib/sort_key.wgsl")),
];

static SORT: Source = Source::new::<SortParams>("sort", wgsl!("../../shaders/sort/sort.wgsl"));

static SORT_LINE: Source =
    Source::new::<RadixLineParams>("sort_line", wgsl!("../../shaders/sort/sort_line.wgsl"))
        .with_fragments(FRAGMENTS);
static SORT_COUNT: Source =
    Source::new::<RadixParams>("sort_count", wgsl!("../../shaders/sort/sort_count.wgsl"))
        .with_fragments(FRAGMENTS);
static SORT_SCATTER: Source =
    Source::new::<RadixParams>("sort_scatter", wgsl!("../../shaders/sort/sort_scatter.wgsl"))
        .with_fragments(FRAGMENTS);

params! {
    struct RadixLineParams {
        count: u32,
        tiles: u32,
        line_len: u32,
        keep: u32,
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
/// Lines up to this length are merged on GPUs too, because they would leave most of a tile empty.
const MAX_MERGED_LEN: usize = 128;
/// The most elements that are selected tile by tile: a quarter of a tile.
const MAX_SELECTED: usize = TILE / 4;
/// Bits of a key, and of a digit.
const KEY_BITS: u32 = 32;
const DIGIT_BITS: u32 = 8;

/// The kernels that sort by digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RadixPass {
    /// Sorts tiles; `first` if the elements are in their original order.
    Line { first: bool },
    /// Counts the digits of each tile.
    Count,
    /// Moves the elements; `first` if they are in their original order.
    Scatter { first: bool },
}

impl RadixPass {
    const ALL: [Self; 5] = [
        Self::Line { first: true },
        Self::Line { first: false },
        Self::Count,
        Self::Scatter { first: true },
        Self::Scatter { first: false },
    ];
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
        let is_first =
            matches!(pass, RadixPass::Line { first: true } | RadixPass::Scatter { first: true });
        let source = match pass {
            RadixPass::Line { .. } => &SORT_LINE,
            RadixPass::Count => &SORT_COUNT,
            RadixPass::Scatter { .. } => &SORT_SCATTER,
        };
        Variant::new(source)
            .flag("FLOAT", dtype == DType::F32)
            .flag("SIGNED", dtype == DType::I32)
            .flag("DESCENDING", descending)
            .flag("FIRST", is_first)
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
    if sorts_by_digits(&tensor) {
        let (values, indices) = match line_len <= TILE {
            true => first_of_lines(&tensor, line_len, descending)?,
            false => sort_by_digits(&tensor, descending, KEY_BITS)?,
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

/// Sorts one-dimensional i32 locations below `count`, as [`with_indices`] does, in fewer passes. Skipped
/// updates, which have the location -1, are first or last.
pub(super) fn locations(locations: Tensor, count: usize) -> Result<(Tensor, Tensor)> {
    let locations = views::packed(locations)?;
    if !sorts_by_digits(&locations) || locations.len() <= TILE {
        return with_indices(locations, 0, false);
    }
    // In these bits -1 is greater than every location.
    sort_by_digits(&locations, false, usize::BITS - count.leading_zeros())
}

/// Returns whether the lines of a packed tensor `[.., line_len]` are sorted by digits.
fn sorts_by_digits(tensor: &Tensor) -> bool {
    let has_keys = [DType::F32, DType::I32, DType::U32].contains(&tensor.dtype());
    let is_long = tensor.shape().last().is_some_and(|&len| len > MAX_MERGED_LEN);
    has_keys && is_long && !tensor.is_empty() && policy::of(tensor.runtime()).has_fast_barriers()
}

/// Returns the `count` first elements in sorted order of each line of a packed tensor `[.., line_len]`,
/// and their original indices. Each tile of a line keeps its first elements, until one tile has all.
fn first_of_lines(tensor: &Tensor, count: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
    let (&last, outer) = tensor.shape().split_last().unwrap_or((&1, &[]));
    let lines: usize = outer.iter().product();
    let mut line_len = last;
    let (mut values, mut indices) = (tensor.clone(), None);
    loop {
        let tiles = line_len.div_ceil(TILE);
        let shape = [outer, &[tiles * count]].concat();
        let kept = Tensor::empty(runtime, &shape, dtype)?;
        let kept_indices = Tensor::empty(runtime, &shape, DType::I32)?;
        let launch = |inputs: &[&Tensor]| {
            let pass = RadixPass::Line { first: inputs.len() == 1 };
            Launch {
                kernel: &RadixLineKernel(RadixKernel { dtype, pass, descending }),
                inputs,
                outputs: &[&kept, &kept_indices],
                params: &RadixLineParams {
                    count: (lines * tiles) as u32,
                    tiles: tiles as u32,
                    line_len: line_len as u32,
                    keep: count as u32,
                },
                workgroups: (lines * tiles) as u64,
                work: (lines * tiles) as u64 * TILE as u64 * u64::from(KEY_BITS),
                rounds: Some(u64::from(KEY_BITS / DIGIT_BITS) * TILE as u64),
            }
            .run()
        };
        match &indices {
            None => launch(&[&values]),
            Some(indices) => launch(&[&values, indices]),
        }?;
        if tiles == 1 {
            return Ok((kept, kept_indices));
        }
        (values, indices, line_len) = (kept, Some(kept_indices), tiles * count);
    }
}

/// Sorts the lines of a packed tensor `[.., line_len]` by one digit after another of the `bits` lowest
/// bits of their keys, from the lowest on. Each pass counts the digits of each tile, adds up the counts,
/// and moves the elements.
fn sort_by_digits(tensor: &Tensor, descending: bool, bits: u32) -> Result<(Tensor, Tensor)> {
    let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
    let line_len = tensor.shape()[tensor.shape().len() - 1];
    let lines = tensor.len() / line_len;
    let tiles = line_len.div_ceil(TILE);
    let (mut values, mut indices) = (tensor.clone(), None);
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
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
                rounds: Some(TILE as u64),
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
    // There is at least one pass: `bits` is above zero.
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
            rounds: Some(BLOCK_SIZE as u64 + 1),
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
    views::packed(largest(tensor, axis, count)?.0)
}

/// Returns the indices of the `count` largest elements along an axis, in descending order of these.
pub fn argtopk(tensor: Tensor, axis: usize, count: usize) -> Result<Tensor> {
    views::packed(largest(tensor, axis, count)?.1)
}

/// Returns the `count` largest elements along an axis, in descending order, and their indices.
fn largest(tensor: Tensor, axis: usize, count: usize) -> Result<(Tensor, Tensor)> {
    let count = count.min(tensor.shape()[axis]);
    let last = tensor.shape().len() - 1;
    let swapped = |tensor: Tensor| views::swap_dims(tensor, axis, last);
    let tensor = views::packed(swapped(tensor)?)?;
    let (values, indices) = match sorts_by_digits(&tensor) && (1..=MAX_SELECTED).contains(&count) {
        true => first_of_lines(&tensor, count, true)?,
        false => {
            let (values, indices) = with_indices(tensor, last, true)?;
            (views::narrow(values, last, 0, count)?, views::narrow(indices, last, 0, count)?)
        }
    };
    Ok((swapped(values)?, swapped(indices)?))
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
        // Only the largest elements are selected in several passes.
        let exists = |pass: &RadixPass| descending || *pass != RadixPass::Line { first: false };
        let passes = RadixPass::ALL.into_iter().filter(exists);
        variants.extend(passes.map(|pass| of(pass).define()));
    }
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_sort([7], 0, false);
    float_sort(positive(&[3, 1000]), 1, true);
    float_sort(positive(&[65, 3, 2]), 0, false);
    float_sort([2, 0], 1, false);
    float_sort(positive(&[40, 9]), 0, true);
    float_sort_with_indices(positive(&[3, 100]), 1, false, Arg::IntType);
    float_argsort(positive(&[33, 4]), 0, true, Arg::IntType);
    float_topk(positive(&[5, 90]), 1, 7);
    int_sort(ints(&[4, 130]), 1, false);
    int_sort(ints(&[70, 2]), 0, true);
    // Lines of up to a tile, and of several. The gradients of equal floats depend on their order, which
    // the reference leaves open.
    float_sort(positive(&[3, 200]), 1, false);
    int_sort(ints(&[2, 1500]), 1, false);
    int_sort(ints(&[2, 1500]), 1, true);
    int_sort(ints(&[2, 400]), 1, false);
    int_sort(ints(&[2, 400]), 1, true);
    // The reference, the CPU backend, is stable only for few elements.
    int_sort_with_indices(ints(&[3, 15]), 1, true);
    int_argsort(ints(&[15, 3]), 0, false);
    int_topk(ints(&[5, 90]), 0, 2);
    // Selected tile by tile.
    float_topk(positive(&[1500, 2]), 0, 3);
    int_topk(ints(&[2, 5000]), 1, 250);
};
