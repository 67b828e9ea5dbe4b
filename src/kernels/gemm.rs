//! What matrix products and convolutions share: how one is computed, and how it is cut up.
//! The loop itself is `shaders/lib/gemm.wgsl`.

use std::cell::Cell;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use super::reduce::{self, Reduction};
use super::team::has_octets;
use super::{copy, div_up, tuning};
use crate::device::CAN_BLOCK;
use crate::runtime::{Runtime, Variant};
use crate::tensor::{DType, Layout, Result, Shape, Tensor};

/// How a product is spread over invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tiling {
    /// Through workgroup memory, in tiles of so many rows and columns: for GPUs.
    Tiled { size: u32 },
    /// A subgroup of eight on its own, so many rows at a time: for adapters where barriers are dear.
    Direct {
        rows: u32,
        /// Whether lanes spread a by broadcasts.
        subgroup: bool,
    },
}

/// What a launcher knows of its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Operands {
    /// Both are read, and the result is written, four neighbours at a time.
    pub quads: bool,
    /// Neighbours in a are rows, not steps of k.
    pub a_across: bool,
    /// Neighbours in b are steps of k, not columns.
    pub b_along: bool,
    /// The type of operands that are floats of 16 bits, which only quads are read from.
    pub half: Option<DType>,
}

/// What a strategy wishes of operands before it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repack {
    /// They can be read as they are.
    Nothing,
    /// That four neighbours can be read at once.
    Quads,
    /// That the rows of a do not all fall into the same few sets of the CPU's cache.
    Rows,
}

/// A product of so many operations is worth a kernel that takes a second to compile, in whatever program (in browsers software
/// adapters are slower); in one that has run for a while, one of [`SMALL`] is. Until then the plain kernels serve.
const HUGE: u64 = if CAN_BLOCK { 1 << 31 } else { 1 << 28 };
const SMALL: u64 = 1 << 20;

/// `BURN_WGSL_TILING` fixes the strategy wherever it can be had: `plain`, `quads`, `tiled64` or `tiled128`.
static FIXED: LazyLock<Option<Strategy>> = LazyLock::new(|| {
    let word = std::env::var("BURN_WGSL_TILING").ok()?;
    let strategy = word.parse().ok();
    if strategy.is_none() {
        log::warn!(
            "BURN_WGSL_TILING is {word:?}, which is none of plain, quads, tiled64 and tiled128: it is ignored"
        );
    }
    strategy
});

/// How a product is computed, by name: what is chosen, fixed or tuned. With the operands it makes a [`Tiling`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// One element at a time: any strides, quick to compile.
    Plain,
    /// Four at a time, 32 rows to a subgroup, or 16 where there are none.
    Quads,
    /// Tiles of 64 x 64.
    Tiled64,
    /// Tiles of 128 x 128.
    Tiled128,
}

impl Strategy {
    const EVERY: [(Self, &'static str); 4] = [
        (Self::Plain, "plain"),
        (Self::Quads, "quads"),
        (Self::Tiled64, "tiled64"),
        (Self::Tiled128, "tiled128"),
    ];

    /// Its name, as the environment and files have it.
    pub fn word(self) -> &'static str {
        Self::EVERY.iter().find(|(each, _)| *each == self).map_or("", |(_, word)| word)
    }
}

impl FromStr for Strategy {
    type Err = ();

    fn from_str(word: &str) -> std::result::Result<Self, ()> {
        Self::EVERY.iter().find(|(_, name)| *name == word).map(|(each, _)| *each).ok_or(())
    }
}

thread_local! {
    /// The strategy that products of this thread are computed in while it is tried.
    static TRIED: Cell<Option<Strategy>> = const { Cell::new(None) };
}

/// Runs something with every product in one strategy.
pub(crate) fn with_strategy<T>(strategy: Strategy, run: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also where `run` panics.
    struct Before(Option<Strategy>);
    impl Drop for Before {
        fn drop(&mut self) {
            TRIED.set(self.0);
        }
    }
    let _before = Before(TRIED.replace(Some(strategy)));
    run()
}

impl Strategy {
    fn choose(runtime: &Arc<Runtime>, batch: usize, m: usize, n: usize, k: usize) -> Self {
        let said = TRIED.get().or(*FIXED).or_else(|| tuning::found(runtime, batch, m, n, k));
        said.unwrap_or_else(|| Self::built_in(runtime, batch, m, n, k, runtime.is_warmed_up()))
    }

    /// What suits the adapter's class and the size of the product.
    pub fn built_in(
        runtime: &Runtime,
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        warm: bool,
    ) -> Self {
        let work = 2 * (batch * m) as u64 * (n * k) as u64;
        if runtime.is_software() {
            let worth = work > HUGE || warm && work > SMALL;
            return if worth { Self::Quads } else { Self::Plain };
        }
        // Large tiles read less, small ones keep more of the GPU busy.
        let tiles = batch * m.div_ceil(128) * n.div_ceil(128);
        if tiles >= 128 && m > 64 && n > 64 { Self::Tiled128 } else { Self::Tiled64 }
    }

    /// The strategies worth trying on an adapter, the plain one first.
    pub fn candidates(runtime: &Runtime) -> Vec<Self> {
        let sensible = |strategy: Self| match strategy {
            Self::Plain | Self::Tiled64 => true,
            Self::Quads => runtime.is_software() || has_octets(runtime),
            Self::Tiled128 => !runtime.is_software(),
        };
        Self::EVERY.into_iter().map(|(each, _)| each).filter(|&each| sensible(each)).collect()
    }

    fn tiling(self, runtime: &Runtime, m: usize, quads: bool) -> Tiling {
        match self {
            Self::Tiled64 => Tiling::Tiled { size: 64 },
            Self::Tiled128 => Tiling::Tiled { size: 128 },
            Self::Plain | Self::Quads => {
                let subgroup = has_octets(runtime);
                let most = if subgroup { 32 } else { 16 };
                Tiling::Direct { rows: if quads && m > 8 { most } else { 8 }, subgroup }
            }
        }
    }
}

impl Tiling {
    /// The rows and columns that one workgroup computes.
    fn tile(self) -> (usize, usize) {
        match self {
            Self::Tiled { size } => (size as usize, size as usize),
            Self::Direct { rows, .. } => (rows as usize, 32),
        }
    }
}

/// Defines how a product is spread and how its operands are read.
pub(crate) fn define(variant: Variant, tiling: Tiling, operands: Operands) -> Variant {
    let Operands { quads, a_across, b_along, half } = operands;
    let variant = variant
        .flag("HALF", half == Some(DType::F16))
        .flag("BFLOAT", half == Some(DType::BF16))
        .flag("QUADS", quads);
    match tiling {
        Tiling::Tiled { size } => variant
            .flag("TILED", true)
            .int("TILE", size)
            .int("QUARTERS", size / 64)
            .flag("A_ACROSS", a_across)
            .flag("B_ALONG", b_along),
        Tiling::Direct { rows, subgroup } => {
            variant.int("ROWS", rows).int("OCTETS", rows / 8).flag("SUBGROUP", subgroup)
        }
    }
}

/// Every way in which a product can be asked for.
pub(crate) fn every() -> Vec<(Tiling, Operands)> {
    let mut out = Vec::new();
    let plain = Operands::default();
    for size in [64, 128] {
        for bits in 0..8 {
            let on = |bit: u32| bits >> bit & 1 == 1;
            let operands = Operands { quads: on(0), a_across: on(1), b_along: on(2), half: None };
            out.push((Tiling::Tiled { size }, operands));
        }
    }
    let quads = Operands { quads: true, ..plain };
    for subgroup in [false, true] {
        out.extend([plain, quads].map(|operands| (Tiling::Direct { rows: 8, subgroup }, operands)));
    }
    out.extend(
        [(32, true), (16, false)]
            .map(|(rows, subgroup)| (Tiling::Direct { rows, subgroup }, quads)),
    );
    for half in DType::HALVES {
        let quads: Vec<_> =
            out.iter().filter(|(_, operands)| operands.quads && operands.half.is_none()).collect();
        let halves = quads
            .into_iter()
            .map(|&(tiling, operands)| (tiling, Operands { half: Some(half), ..operands }));
        out.extend(halves.collect::<Vec<_>>());
    }
    out
}

/// The sizes of a product and how it is cut up.
pub(crate) struct Gemm {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    /// Steps of k in a run, and the runs.
    pub inner: usize,
    pub outer: usize,
    pub k: usize,
    /// Parts that k is cut into, each a result of its own.
    pub splits: usize,
    /// Distances between neighbouring steps.
    pub a_step: isize,
    pub b_step: isize,
    pub strategy: Strategy,
}

impl Gemm {
    /// A product whose k is one run.
    pub fn new(runtime: &Arc<Runtime>, batch: usize, m: usize, n: usize, k: usize) -> Self {
        let strategy = Strategy::choose(runtime, batch, m, n, k);
        Self {
            batch,
            m,
            n,
            inner: k,
            outer: 1,
            k,
            splits: 1,
            a_step: 1,
            b_step: n.cast_signed(),
            strategy,
        }
    }

    /// Whether the product reads its operands four elements at a time, if they can be.
    pub fn wants_quads(&self) -> bool {
        self.strategy != Strategy::Plain
    }

    /// How the chosen strategy reads `[.., m, k]` and `[.., k, n]` as they are, and what it wishes of them first.
    pub fn reading(&self, runtime: &Runtime, [a, b]: [&Tensor; 2]) -> (Operands, Repack) {
        let (a, b) = (a.layout(), b.layout());
        let (row, col) = (a.rank() - 2, a.rank() - 1);
        let tiled = matches!(self.strategy, Strategy::Tiled64 | Strategy::Tiled128);
        let readable = |layout: &Layout| quads(layout, col) || tiled && quads(layout, row);
        let wanted = self.strategy != Strategy::Plain;
        if wanted && self.n.is_multiple_of(4) && readable(a) && readable(b) {
            let operands = Operands {
                quads: true,
                a_across: !quads(a, col),
                b_along: !quads(b, col),
                half: None,
            };
            let apart = a.strides[row];
            let aliases =
                runtime.is_software() && self.m > 8 && apart != 0 && apart % ALIASING == 0;
            return (operands, if aliases { Repack::Rows } else { Repack::Nothing });
        }
        let turned = |layout: &Layout| layout.strides[row] == 1 && layout.strides[col] != 1;
        let operands =
            Operands { quads: false, a_across: turned(a), b_along: turned(b), half: None };
        (operands, if wanted { Repack::Quads } else { Repack::Nothing })
    }

    /// The parts that k should be cut into so that the device has enough to do, at the price of summing them.
    /// It does not depend on the strategy.
    pub fn wanted_splits(&self, runtime: &Runtime) -> usize {
        let (rows, cols) = if runtime.is_software() { (32, 32) } else { (64, 64) };
        let tiles = self.batch * self.m.div_ceil(rows) * self.n.div_ceil(cols);
        let (enough, least) = if runtime.is_software() { (16, 512) } else { (256, 256) };
        if tiles >= enough { 1 } else { (enough / tiles.max(1)).min(self.k / least).max(1) }
    }

    /// Cuts k between its runs into the parts that are wanted.
    pub fn split_runs(&mut self, runtime: &Runtime) {
        let each = self.outer.div_ceil(self.wanted_splits(runtime)).max(1);
        self.splits = self.outer.div_ceil(each).max(1);
    }

    pub fn tiling(&self, runtime: &Runtime, quads: bool) -> Tiling {
        self.strategy.tiling(runtime, self.m, quads)
    }

    /// How many workgroups run, and the words of the shaders' `Gemm`.
    pub fn words(&self, tiling: Tiling) -> (u64, [u32; 12]) {
        let (rows, cols) = tiling.tile();
        let groups =
            div_up(self.m, rows) * div_up(self.n, cols) * (self.splits * self.batch) as u64;
        let words = [
            self.m as u32,
            self.n as u32,
            self.k as u32,
            self.inner as u32,
            self.outer as u32,
            self.outer.div_ceil(self.splits) as u32,
            self.splits as u32,
            self.m.div_ceil(rows) as u32,
            self.n.div_ceil(cols) as u32,
            groups as u32,
            self.a_step as i32 as u32,
            self.b_step as i32 as u32,
        ];
        (groups, words)
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

/// Rows that lie so many elements apart share the sets of a CPU's first cache, which then holds eight of them.
const ALIASING: isize = 512;

/// Whether four neighbours along `axis` can be read at once, wherever a multiple of four starts.
fn quads(layout: &Layout, axis: usize) -> bool {
    let others = (0..layout.rank()).filter(|&other| other != axis && layout.shape[other] > 1);
    layout.strides[axis] == 1
        && layout.shape[axis].is_multiple_of(4)
        && layout.offset.is_multiple_of(4)
        && others.into_iter().all(|other| layout.strides[other] % 4 == 0)
}

/// A copy of matrices whose rows lie apart by no power of two.
pub(crate) fn staggered(tensor: Tensor) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    let mut shape: Shape = tensor.shape().into();
    let len = shape[last];
    shape[last] = len.next_multiple_of(ALIASING.unsigned_abs()) + 16;
    let out = Tensor::empty(tensor.runtime(), &shape, tensor.dtype(), &[&tensor])?;
    let part = copy::narrow(out, last, 0, len)?;
    copy::write(&tensor, &part)?;
    Ok(part)
}

/// The tensor with the sizes of its axes filled up with zeros to multiples of four.
pub(crate) fn filled_up(tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_fold(tensor, |tensor, &axis| {
        let len = tensor.shape()[axis].next_multiple_of(4);
        copy::resized(tensor, axis, len)
    })
}
