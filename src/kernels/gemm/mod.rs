//! What matrix products and convolutions share: tilings, operands, and the WGSL `Gemm` parameters.
//! The kernels are `gemm_tiled.wgsl`, `gemm_units.wgsl` and `gemm_direct.wgsl` in `shaders/lib`.

pub(crate) mod definition;
pub mod tuning;
pub(crate) mod units;

use crate::device::{Limits, Units};
use crate::kernels::launch::div_up;
use crate::kernels::policy::listed_units::all_units;
use crate::kernels::policy::strategy::{GemmSizes, Strategy, Tile};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{cast, copy, policy, views};
use crate::params;
use crate::runtime::{Runtime, Variant};
use crate::tensor::{DType, Layout, Result, Shape, Tensor};

/// Operations above which a product pays for padded copies of its operands.
const PADDING_MIN_WORK: u64 = 1 << 24;

/// The mapping of a product to workgroups and invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tiling {
    /// A workgroup computes a tile of results from operands in workgroup memory: for GPUs.
    Tiled { tile: Tile },
    /// The same, by four subgroups with matrix units.
    Units { tile: Tile, units: Units },
    /// The invocations of a workgroup compute `rows` x `cols` results each, without workgroup memory: for software
    /// adapters, where barriers and loads are expensive.
    Direct {
        rows: u32,
        cols: u32,
        /// Whether the workgroup is a subgroup, whose lanes share loads of a by broadcasts.
        subgroup: bool,
    },
    /// A workgroup of 64 invocations computes tiles of 8 rows and four columns for each of `lanes`
    /// invocations: for small products on GPUs.
    Small { lanes: u32 },
}

impl Tiling {
    /// Returns the number of tiles that a workgroup computes.
    fn tiles_per_workgroup(self) -> u64 {
        match self {
            Self::Small { lanes } => u64::from(SMALL_WORKGROUP_SIZE / lanes),
            _ => 1,
        }
    }

    /// Returns whether GPUs use it. Software adapters have as few kernels as possible.
    pub fn is_for_gpus(self) -> bool {
        !matches!(self, Self::Direct { .. })
    }

    /// Returns the numbers of rows and columns of a tile.
    fn tile(self) -> (usize, usize) {
        match self {
            Self::Tiled { tile } | Self::Units { tile, .. } => {
                (tile.rows as usize, tile.cols as usize)
            }
            Self::Direct { rows, cols, subgroup } => {
                (rows as usize, (cols * direct_lanes(subgroup)) as usize)
            }
            Self::Small { lanes } => (8, 4 * lanes as usize),
        }
    }
}

/// The layout and type of a product's operands as the kernel reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct GemmOperands {
    /// Whether both are read in vec4s.
    pub vec4: bool,
    /// Whether a is contiguous along m instead of k; `false` for direct kernels, which do not
    /// depend on it.
    pub a_transposed: bool,
    /// Whether b is contiguous along k instead of n; `false` for direct kernels, which do not
    /// depend on it.
    pub b_transposed: bool,
    /// The type of 16-bit operands, which must be read in vec4s; `None` for f32.
    pub half: Option<DType>,
    /// Whether operands are gathered from where a convolution has them.
    pub gathered: bool,
}

/// The copies of operands that make a product faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repack {
    /// No copies.
    None,
    /// Copies of both operands that can be read in vec4s.
    Vec4,
    /// A copy of a with padded rows: their stride aliases in the CPU's L1 cache.
    Rows,
}

/// Specialises a kernel for a tiling and operands.
pub(crate) fn define(variant: Variant, tiling: Tiling, operands: GemmOperands) -> Variant {
    let GemmOperands { vec4, a_transposed, b_transposed, half, gathered } = operands;
    let variant = variant
        .flag("F16", half == Some(DType::F16))
        .flag("BF16", half == Some(DType::BF16))
        .flag("F32", vec4 && half.is_none())
        .flag("VEC4", vec4);
    match tiling {
        Tiling::Tiled { tile } => {
            variant
                .flag("TILED", true)
                .int("TILE_ROWS", tile.rows)
                .int("TILE_COLS", tile.cols)
                // 256 invocations load four elements of a each.
                .int("STEP", 1024 / tile.rows)
                .int("A_LOADS", 1)
                .int("B_LOADS", tile.cols / tile.rows)
                .int("ROW_BLOCKS", tile.rows / 64)
                .int("COL_BLOCKS", tile.cols / 64)
                .flag("A_TRANSPOSED", a_transposed)
                .flag("B_TRANSPOSED", b_transposed)
        }
        Tiling::Units { tile, units } => {
            let Units { size: unit, subgroup_size } = units;
            let variant = variant
                .flag("UNITS", true)
                .flag("UNIT_8", unit == 8)
                .flag("UNIT_16", unit == 16)
                .int("UNIT", unit)
                .int("SUBGROUP_SIZE", subgroup_size);
            let Staged { step, a_loads, b_loads } = Staged::with_units(tile, units, gathered);
            let stages_lines = units.loads_both_orders();
            let neighbours = |loads: u32| if stages_lines { 1 } else { loads.min(4) };
            variant
                .int("TILE_ROWS", tile.rows)
                .int("TILE_COLS", tile.cols)
                .int("STEP", step)
                .int("A_LOADS", a_loads)
                .int("B_LOADS", b_loads)
                .int("A_NEIGHBOURS", neighbours(a_loads))
                .int("B_NEIGHBOURS", neighbours(b_loads))
                .flag("A_LINES", stages_lines && a_transposed)
                .flag("B_LINES", stages_lines && !b_transposed)
                .int("ROW_FRAGMENTS", tile.rows / 2 / unit)
                .int("COL_FRAGMENTS", tile.cols / 2 / unit)
                .flag("A_TRANSPOSED", a_transposed)
                .flag("B_TRANSPOSED", b_transposed)
        }
        Tiling::Direct { rows, cols, subgroup } => {
            let variant = variant.int("ROWS", rows).int("ROW_BLOCKS", rows / 8);
            let variant = variant.int("COL_BLOCKS", cols / 4).int("LANES", direct_lanes(subgroup));
            variant.flag("WIDE", cols > 4).flag("SUBGROUP", subgroup)
        }
        Tiling::Small { lanes } => {
            let variant = variant.int("ROWS", 8).int("ROW_BLOCKS", 1).int("COL_BLOCKS", 1);
            variant.int("LANES", lanes).int("TILES", SMALL_WORKGROUP_SIZE / lanes)
        }
    }
}

/// Returns the number of invocations of a workgroup that computes results directly.
fn direct_lanes(subgroup: bool) -> u32 {
    if subgroup { 8 } else { 4 }
}

/// Returns every combination of tiling and operands that a launcher can request.
pub(crate) fn all() -> Vec<(Tiling, GemmOperands)> {
    let mut out = Vec::new();
    let scalar = GemmOperands::default();
    for tile in Tile::ALL {
        for bits in 0..8 {
            let bit = |index: u32| bits >> index & 1 == 1;
            let operands = GemmOperands {
                vec4: bit(0),
                a_transposed: bit(1),
                b_transposed: bit(2),
                half: None,
                gathered: false,
            };
            out.push((Tiling::Tiled { tile }, operands));
        }
    }
    let vec4 = GemmOperands { vec4: true, ..scalar };
    for subgroup in [false, true] {
        let tiling = Tiling::Direct { rows: 8, cols: 4, subgroup };
        out.extend([scalar, vec4].map(|operands| (tiling, operands)));
    }
    out.push((Tiling::Direct { rows: 32, cols: 4, subgroup: true }, vec4));
    let alone = |cols| Tiling::Direct { rows: 16, cols, subgroup: false };
    out.extend([8, 16].map(|cols| (alone(cols), vec4)));
    let vec4_products: Vec<_> = out.iter().copied().filter(|(_, operands)| operands.vec4).collect();
    for half in DType::HALF_TYPES {
        let with_half =
            |(tiling, operands)| (tiling, GemmOperands { half: Some(half), ..operands });
        out.extend(vec4_products.iter().copied().map(with_half));
    }
    out
}

/// Invocations of a workgroup that computes several tiles.
const SMALL_WORKGROUP_SIZE: u32 = 64;

/// Returns every combination of tiling and operands of small products.
pub(crate) fn all_small() -> Vec<(Tiling, GemmOperands)> {
    let vec4 = GemmOperands { vec4: true, ..GemmOperands::default() };
    let halves = DType::HALF_TYPES.map(|half| GemmOperands { half: Some(half), ..vec4 });
    let operands = [GemmOperands::default(), vec4].into_iter().chain(halves);
    operands.flat_map(|operands| [4, 8].map(|lanes| (Tiling::Small { lanes }, operands))).collect()
}

/// The most steps of k that a kernel has in workgroup memory, a multiple of those of each other
/// kernel.
pub(crate) const MAX_STEPS: u32 = 32;

/// The steps of k that the tiles of operands in workgroup memory have, and how often an invocation
/// loads four elements of each operand for them.
#[derive(Debug, Clone, Copy)]
struct Staged {
    step: u32,
    a_loads: u32,
    b_loads: u32,
}

impl Staged {
    /// Returns those of a kernel with matrix units: up to eight loads of each operand, more in small
    /// subgroups. Gathered operands, whose addresses take more registers, have up to four.
    fn with_units(tile: Tile, units: Units, gathered: bool) -> Self {
        let loads = |lines: u32, step: u32| lines * step / (16 * units.subgroup_size);
        let max_loads = if gathered { 4 } else { 8 };
        let step = if loads(tile.cols, MAX_STEPS) <= max_loads { MAX_STEPS } else { 16 };
        Self { step, a_loads: loads(tile.rows, step), b_loads: loads(tile.cols, step) }
    }
}

/// Returns whether the tiles of two operands, whose elements have so many bytes, and a matrix of sums
/// of each subgroup fit into workgroup memory (`shaders/lib/gemm_units.wgsl`).
pub(crate) fn units_fit(limits: &Limits, tile: Tile, units: Units, element_bytes: u32) -> bool {
    let step = Staged::with_units(tile, units, false).step;
    let tiles = (tile.rows + tile.cols) * (step + 8) * element_bytes;
    let sums = 4 * units.size * units.size * 4;
    tiles + sums <= limits.workgroup_memory
}

/// Returns every combination of tiling and operands with matrix units that a launcher can request.
pub(crate) fn all_with_units() -> Vec<(Tiling, GemmOperands)> {
    let mut out = Vec::new();
    for (dtype, units) in all_units() {
        let half = Some(dtype).filter(|dtype| dtype.is_half());
        let tiles = Tile::ALL.into_iter().filter(|tile| tile.is_held_by(units));
        for (tile, bits) in tiles.flat_map(|tile| (0..4).map(move |bits| (tile, bits))) {
            let (a_transposed, b_transposed) = (bits & 1 == 1, bits & 2 == 2);
            let operands =
                GemmOperands { vec4: true, a_transposed, b_transposed, half, gathered: false };
            out.push((Tiling::Units { tile, units }, operands));
        }
    }
    out
}

params! {
    /// The WGSL `Gemm`.
    pub(crate) struct GemmParams {
        m: u32,
        n: u32,
        k: u32,
        inner: u32,
        outer: u32,
        outer_per_split: u32,
        splits: u32,
        row_tiles: u32,
        col_tiles: u32,
        tiles: u32,
        a_step: i32,
        b_step: i32,
    }
}

/// The sizes of a product, its loop over k and its strategy.
pub(crate) struct Gemm {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Steps of k per run. For a convolution, a run is the channels under one tap.
    pub inner: usize,
    /// Runs.
    pub outer: usize,
    /// Splits of k, each with its own result.
    pub splits: usize,
    /// Stride of a along k within a run.
    pub a_step: isize,
    /// Stride of b along k within a run.
    pub b_step: isize,
    pub strategy: Strategy,
    /// The type of the operands.
    pub dtype: DType,
}

impl Gemm {
    /// Creates a product whose k is a single run.
    pub fn new(sizes: GemmSizes, strategy: Strategy, dtype: DType) -> Self {
        let GemmSizes { batch, m, n, k } = sizes;
        let b_step = n.cast_signed();
        Self { batch, m, n, k, inner: k, outer: 1, splits: 1, a_step: 1, b_step, strategy, dtype }
    }

    /// Returns how the strategy reads operands `[.., m, k]` and `[.., k, n]` without copies, and
    /// the copies that it prefers.
    pub fn operands(&self, runtime: &Runtime, [a, b]: [&Tensor; 2]) -> (GemmOperands, Repack) {
        let (a, b) = (a.layout(), b.layout());
        let (row, col) = (a.rank() - 2, a.rank() - 1);
        let readable = |layout: &Layout| {
            can_load_vec4(layout, col) || self.strategy.is_tiled() && can_load_vec4(layout, row)
        };
        let prefers_vec4 = self.strategy.prefers_vec4();
        if prefers_vec4 && self.n.is_multiple_of(4) && readable(a) && readable(b) {
            let operands = GemmOperands {
                vec4: true,
                a_transposed: !can_load_vec4(a, col),
                b_transposed: !can_load_vec4(b, col),
                half: None,
                gathered: false,
            };
            let aliases = self.m > 8 && policy::of(runtime).rows_alias(a.strides[row]);
            return (operands, if aliases { Repack::Rows } else { Repack::None });
        }
        let transposed = |layout: &Layout| {
            self.strategy.is_tiled() && layout.strides[row] == 1 && layout.strides[col] != 1
        };
        let operands = GemmOperands {
            vec4: false,
            a_transposed: transposed(a),
            b_transposed: transposed(b),
            half: None,
            gathered: false,
        };
        // A small product costs little more than a copy.
        let repacks = prefers_vec4 && self.strategy != Strategy::Small;
        (operands, if repacks { Repack::Vec4 } else { Repack::None })
    }

    /// Returns whether the copies that [`Self::operands`] prefers make the product faster.
    pub fn pays_to_repack(&self, runtime: &Runtime, repack: Repack) -> bool {
        // Without padding, an operand is copied in one launch, if at all.
        let without_padding = self.n.is_multiple_of(4) && self.k.is_multiple_of(4);
        match repack {
            Repack::None => false,
            Repack::Vec4 if without_padding => self.work() > policy::of(runtime).repack_min_work(),
            Repack::Vec4 | Repack::Rows => self.work() > PADDING_MIN_WORK,
        }
    }

    /// Returns the number of splits of k that keeps the device busy, limited so that one binding holds all results.
    pub fn wanted_splits(&self, runtime: &Runtime) -> usize {
        let bytes = [self.batch, self.m, self.n, size_of::<f32>()].map(|factor| factor as u64);
        let result_bytes = bytes.into_iter().product::<u64>().max(1);
        let bindable = usize::try_from(runtime.max_binding() / result_bytes).unwrap_or(usize::MAX);
        let wanted = policy::of(runtime).splits_of_k(self.sizes(), self.dtype, self.strategy);
        wanted.max(self.min_splits(runtime)).min(bindable).max(1)
    }

    /// Returns the number of splits of k that keeps the loops of an invocation short enough, for any tiling. Splits
    /// consist of runs; a single run is divided.
    pub fn min_splits(&self, runtime: &Runtime) -> usize {
        let max_rounds = policy::max_rounds(runtime);
        if self.outer == 1 {
            return self.k.div_ceil(max_rounds - 8);
        }
        let max_runs = ((max_rounds - 8) / self.inner.max(1)).max(1);
        self.outer.div_ceil(max_runs)
    }

    /// Returns the rounds of the loops of an invocation, at most.
    pub fn rounds(&self, tiling: Tiling, vec4: bool) -> u64 {
        let runs = self.outer.div_ceil(self.splits);
        // The steps of k of one round, at least.
        let step = match tiling {
            Tiling::Direct { .. } | Tiling::Small { .. } if vec4 => 4,
            Tiling::Direct { .. } | Tiling::Small { .. } => 1,
            // The fewest steps of k for each round: those in workgroup memory, in an outer and an inner loop.
            Tiling::Tiled { .. } | Tiling::Units { .. } => 4,
        };
        let steps = match tiling {
            Tiling::Direct { .. } | Tiling::Small { .. } => runs * self.inner.div_ceil(step) + 2,
            Tiling::Tiled { .. } | Tiling::Units { .. } => (runs * self.inner).div_ceil(step) + 2,
        };
        (steps as u64).max(1)
    }

    /// Sets `splits` such that a split consists of whole runs.
    pub fn split_between_runs(&mut self, runtime: &Runtime) {
        let runs_per_split = self.outer.div_ceil(self.wanted_splits(runtime)).max(1);
        self.splits = self.outer.div_ceil(runs_per_split).max(1);
    }

    /// Returns the tiling of the strategy for these sizes, with matrix units if there are.
    pub fn tiling(&self, runtime: &Runtime, vec4: bool, units: Option<Units>) -> Tiling {
        let tiled = |tile: Tile| match units {
            // Larger tiles than the smallest are of 16-bit elements.
            Some(units)
                if tile.is_held_by(units) && units_fit(&runtime.info().limits, tile, units, 2) =>
            {
                Tiling::Units { tile, units }
            }
            Some(units) => Tiling::Units { tile: Tile::SMALLEST, units },
            None => Tiling::Tiled { tile },
        };
        if let Some(tile) = self.strategy.tile() {
            return tiled(tile);
        }
        match self.strategy {
            Strategy::Small => Tiling::Small { lanes: if self.n <= 16 { 4 } else { 8 } },
            _ => {
                let subgroup = policy::of(runtime).has_subgroups_of_8();
                let [rows, cols] = if !vec4 || self.m <= 8 {
                    [8, 4]
                } else if subgroup {
                    [32, 4]
                } else {
                    // Loads that lanes do not share cost most.
                    [16, if self.n > 32 { 16 } else { 8 }]
                };
                Tiling::Direct { rows, cols, subgroup }
            }
        }
    }

    /// Returns the number of workgroups and the parameters of the kernel.
    pub fn params(&self, tiling: Tiling) -> (u64, GemmParams) {
        let (rows, cols) = tiling.tile();
        let tiles = div_up(self.m, rows) * div_up(self.n, cols) * (self.splits * self.batch) as u64;
        let params = GemmParams {
            m: self.m as u32,
            n: self.n as u32,
            k: self.k as u32,
            inner: self.inner as u32,
            // A product over nothing has no runs.
            outer: if self.k == 0 { 0 } else { self.outer as u32 },
            outer_per_split: self.outer.div_ceil(self.splits) as u32,
            splits: self.splits as u32,
            row_tiles: self.m.div_ceil(rows) as u32,
            col_tiles: self.n.div_ceil(cols) as u32,
            tiles: tiles as u32,
            a_step: self.a_step as i32,
            b_step: self.b_step as i32,
        };
        (tiles.div_ceil(tiling.tiles_per_workgroup()), params)
    }

    /// Returns the number of floating-point operations.
    pub fn work(&self) -> u64 {
        self.sizes().work()
    }

    fn sizes(&self) -> GemmSizes {
        GemmSizes { batch: self.batch, m: self.m, n: self.n, k: self.k }
    }

    /// Sums the splits of a result `[splits, ..]` and reshapes the sum to `shape`.
    pub fn sum_splits(&self, out: Tensor, shape: &[usize]) -> Result<Tensor> {
        let out = if self.splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? };
        Ok(out.view(Layout::contiguous(shape)))
    }
}

/// Returns whether four neighbours along `axis` can be read as a vec4, from any index that is a
/// multiple of four.
fn can_load_vec4(layout: &Layout, axis: usize) -> bool {
    let mut others = (0..layout.rank()).filter(|&other| other != axis && layout.shape[other] > 1);
    layout.strides[axis] == 1
        && layout.shape[axis].is_multiple_of(4)
        && layout.offset.is_multiple_of(4)
        && others.all(|other| layout.strides[other] % 4 == 0)
}

/// Returns a copy of matrices with a row stride that does not alias in a CPU's L1 cache.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn with_padded_rows(tensor: Tensor) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    let mut shape: Shape = tensor.shape().into();
    let len = shape[last];
    shape[last] = policy::padded_stride(len);
    let out = Tensor::empty(tensor.runtime(), &shape, tensor.dtype())?;
    let view = views::narrow(out, last, 0, len)?;
    copy::write(&tensor, &view)?;
    Ok(view)
}

/// Pads the sizes of `axes` with zeros to multiples of four.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn padded_to_vec4(tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    let dtype = tensor.dtype();
    if dtype.is_half() && axes.iter().any(|&axis| !tensor.shape()[axis].is_multiple_of(4)) {
        // Single elements of 16 bits cannot be written.
        let padded = padded_to_vec4(cast::to_compute_type(tensor)?, axes)?;
        return cast::convert_half(&padded, dtype);
    }
    axes.iter().try_fold(tensor, |tensor, &axis| {
        let len = tensor.shape()[axis].next_multiple_of(4);
        views::resized(tensor, axis, len)
    })
}
