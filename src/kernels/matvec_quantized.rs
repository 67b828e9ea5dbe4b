//! Products of a matrix of integers with scales, as it is stored, and a few vectors.

use crate::kernels::dequantize::{PendingFloats, pending_floats};
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::launch::{Launch, PendingResult, variants_of};
use crate::kernels::matvec::{FRAGMENTS, define_sums, prologues};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::policy;
use crate::kernels::policy::team::Team;
use crate::kernels::reduce::{self, Reduction};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

static MATVEC_QUANTIZED: Source = Source::new::<MatvecQuantizedParams>(
    "matvec_quantized",
    wgsl!("../../shaders/matvec_quantized/matvec_quantized.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct MatvecQuantizedParams {
        count: u32,
        rows: u32,
        lines: u32,
        len: u32,
        split_len: u32,
        block_bits: u32,
        x_start: u32,
        x_vector: u32,
        vectors: u32,
        out_row: u32,
        pad0: u32,
        pad1: u32,
    }
}

/// The most vectors of a launch. More would keep registers in memory on some GPUs.
const MAX_VECTORS: usize = 8;

/// The kernel of products with integers.
#[derive(Debug, Clone, Copy, Hash)]
struct MatvecQuantizedKernel {
    /// The bits of an integer, 4 or 8.
    bits: u32,
    /// The words of a load.
    words: u32,
    /// Whether blocks have minima.
    minima: bool,
    /// The invocations that reduce a row.
    team: Team,
    /// The number of vectors, rounded up to a power of two.
    vectors: u32,
}

impl Kernel for MatvecQuantizedKernel {
    type Params = MatvecQuantizedParams;

    fn variant(&self) -> Variant {
        let variant = Variant::new(&MATVEC_QUANTIZED)
            .flag("BITS_4", self.bits == 4)
            .flag("MINIMA", self.minima)
            .flag("ADDS", self.minima || self.bits == 4)
            .flag("SHARES", self.team.shares())
            .flag("ONE_WORD", self.words == 1)
            .flag("TWO_WORDS", self.words == 2)
            .int("LOAD_WORDS", self.words);
        define_sums(variant, self.team, self.vectors, true)
    }
}

/// Multiplies a matrix of a layout `[.., rows, k]` whose elements are pending floats of integers by vectors of a layout
/// `[.., vectors, k]`. Returns a result per vector and row; `None` for several matrices, elements that are not pending
/// integers, or sizes that do not fit.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn matvec_quantized(
    (a, a_layout): (&Tensor, &Layout),
    (x, x_layout): (&Tensor, &Layout),
) -> Result<Option<Tensor>> {
    // The number of axes before the matrices.
    let batch = a_layout.rank() - 2;
    let (rows, k, vectors) =
        (a_layout.shape[batch], a_layout.shape[batch + 1], x_layout.shape[batch]);
    let [x_vector, x_step] = [x_layout.strides[batch], x_layout.strides[batch + 1]];
    let in_vec4s = x.dtype() == DType::F32
        && x_layout.offset.is_multiple_of(4)
        && x_step == 1
        && (vectors == 1 || x_vector >= 0 && x_vector % 4 == 0);
    let is_whole = a_layout.is_packed() && a_layout.len() == rows * k && !a_layout.is_empty();
    let floats =
        if vectors <= MAX_VECTORS && in_vec4s && is_whole { pending_floats(a) } else { None };
    let Some(PendingFloats { words, scales, minima, bits, block }) = floats else {
        return Ok(None);
    };
    let runtime = a.runtime();
    let words_per_load = policy::of(runtime).words_per_load(bits);
    let per_load = (words_per_load * 32 / bits) as usize;
    // A single block may be of any size.
    let blocks_fit = scales.len() == 1 || block.is_power_of_two() && block >= per_load;
    if !rows.is_multiple_of(4) || !k.is_multiple_of(per_load) || !blocks_fit {
        return Ok(None);
    }
    let lines = rows / 4;
    let team = policy::of(runtime).team_of_integers(lines, k / per_load);
    let max_len = policy::max_rounds(runtime) * per_load;
    let split_len = match team.shares() {
        // What is shared belongs to one split.
        true if k > max_len => return Ok(None),
        true => k,
        false => policy::of(runtime).split_len(true, rows, k).min(max_len),
    };
    let split_len = split_len.next_multiple_of(per_load);
    let splits = k.div_ceil(split_len);
    let kernel = MatvecQuantizedKernel {
        bits,
        words: words_per_load,
        minima: minima.is_some(),
        team,
        vectors: vectors.next_power_of_two() as u32,
    };
    let prologues = prologues(None, (2, x), lines)?;
    let inputs = [&words, &scales, x, minima.as_ref().unwrap_or(x)];
    let out = Launch {
        kernel: &kernel,
        inputs: &inputs[..if minima.is_some() { 4 } else { 3 }],
        outputs: &[],
        params: &MatvecQuantizedParams {
            count: (lines * splits) as u32,
            rows: rows as u32,
            lines: lines as u32,
            len: (k / per_load) as u32,
            split_len: (split_len / per_load) as u32,
            block_bits: if scales.len() == 1 { 31 } else { (block / per_load).ilog2() },
            x_start: (x_layout.offset / 4) as u32,
            x_vector: (x_vector / 4) as u32,
            vectors: vectors as u32,
            out_row: 1,
            pad0: 0,
            pad1: 0,
        },
        workgroups: team.workgroups(lines * splits),
        work: 2 * (rows * vectors * k) as u64,
        rounds: Some((split_len / per_load).div_ceil(team.size as usize) as u64),
    }
    .defer(&PendingResult {
        vec4: true,
        reads_parameter: true,
        prologues: &prologues,
        ..PendingResult::scalars(runtime, &[splits, vectors * rows], DType::F32)
    })?;
    Ok(Some(if splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? }))
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let of = |bits, (team, words), vectors| {
        [false, true].map(|minima| MatvecQuantizedKernel { bits, words, minima, team, vectors })
    };
    let kernels = [4, 8].into_iter().flat_map(|bits| {
        let on_gpus = policy::gpu_loads_of_integers(bits).flat_map(move |loads| {
            (0..=MAX_VECTORS.ilog2()).flat_map(move |log| of(bits, loads, 1 << log))
        });
        let on_software =
            policy::software_loads_of_integers().flat_map(move |loads| of(bits, loads, 1));
        on_gpus.chain(on_software)
    });
    let kernels: Vec<_> = kernels.collect();
    let mut variants = variants_of(kernels.iter().copied());
    variants.extend(epilogue::samples(kernels.iter().copied()));
    variants.extend(prologue::samples(kernels.iter().copied(), 2));
    variants
}

/// No cases: arguments of a case cannot be quantised tensors. `tests/kernels/quantized.rs` tests them.
pub const CASES: &[Case] = cases! {};
