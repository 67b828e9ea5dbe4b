// What the kernels of matrix products share: out[row, col] = bias[col] + sum over k of a[row, k] * b[k, col],
// for a batch of matrices. k is walked in `outer` runs of `inner` steps: in a convolution, the taps and the
// channels under each tap. Split-K: each of `splits` ranges of runs has a result of its own.
// Step i of run o multiplies two elements, and the sum is stored in a third:
//   a[a_row_offset(row) + a_run_offset(o) + i * a_step],
//   b[b_col_offset(col) + b_run_offset(o) + i * b_step],
//   out[out_row_offset(batch, row) + out_col_offset(split, col)].
// The including shader must bind `p` with a field `gemm: Gemm`, and define these six functions,
// bias_at(col), the bias of a column, and begin(batch), which is called before the others.
// With GATHERED (lib/gemm_tiles), only the offsets in out and the last two, and splits are ranges of steps.
// VEC4: a and b are read in vec4s of F16, BF16 or F32 elements. Otherwise they are f32. Sums are always f32.
// GATHERED: b is read element by element in any case.
// OUT_VEC4: four columns of out are stored at once. BIAS: there is a binding for the bias.
struct Gemm {
    m: u32,
    n: u32,
    k: u32,
    inner: u32,
    outer: u32,
    // Runs of a split.
    outer_per_split: u32,
    splits: u32,
    // Tiles along the rows and columns of a matrix, and of all splits and matrices.
    row_tiles: u32,
    col_tiles: u32,
    tiles: u32,
    // Strides along k within a run.
    a_step: u32,
    b_step: u32,
}

//#include "lib/grid"
//#include "lib/operand"

// An element of an operand that is read element by element, or of a tile for matrix units.
//#if UNITS
//#if F16
alias Element = f16;
//#else
alias Element = f32;
//#endif
//#else
alias Element = f32;
//#endif

//#if VEC4
@group(0) @binding(auto) var<storage, read> a: array<Operand4>;
//#if GATHERED
@group(0) @binding(auto) var<storage, read> b: array<Element>;
//#else
@group(0) @binding(auto) var<storage, read> b: array<Operand4>;
//#endif
//#else
@group(0) @binding(auto) var<storage, read> a: array<Element>;
@group(0) @binding(auto) var<storage, read> b: array<Element>;
//#endif
//#if BIAS
// The layout requires a binding, which is not read without a bias.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
//#if OUT_VEC4
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

// What a workgroup, or a part of it, computes: a tile that starts at (row, col), of one split of one matrix.
struct Tile {
    row: u32,
    col: u32,
    split: u32,
    batch: u32,
}

// The tile with an index. Neighbours read the same columns of b, which stay in the cache.
fn tile_of(index: u32, rows: u32, cols: u32) -> Tile {
    let g = p.gemm;
    let result = index / g.row_tiles / g.col_tiles;
    let row_tile = index % g.row_tiles;
    let col_tile = index / g.row_tiles % g.col_tiles;
    return Tile(row_tile * rows, col_tile * cols, result % g.splits, result / g.splits);
}
