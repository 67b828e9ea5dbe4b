// What the kernels of matrix products share: out[row, col] = sum over k of a[row, k] * b[k, col], for a
// batch of matrices. k is walked in `outer` runs of `inner` steps: for a convolution, the taps and the
// channels under each tap. The including shader binds `p` with a field `gemm: Gemm`, and defines
//   begin(batch): called once, before the others;
//   row_at(row), col_at(col): the start of a row of a and of a column of b;
//   a_outer(o), b_outer(o): the offset of run o;
//   out_row(batch, row), out_col(split, col): the two parts of the result's position;
//   bias_of_col(col): the initial value of the sums.
// Step i of run o reads a[row_at(row) + a_outer(o) + i * a_step] and b[col_at(col) + b_outer(o) + i * b_step].
// VEC4: a, b are read four elements at a time, along k and along columns. F16, BF16: they are 16-bit
// floats; sums are f32 always. OUT_VEC4: four columns of out are stored at once.
struct Gemm {
    m: u32,
    n: u32,
    k: u32,
    inner: u32,
    outer: u32,
    // Runs in a part of k that has a result of its own.
    outer_per_split: u32,
    splits: u32,
    row_tiles: u32,
    col_tiles: u32,
    tiles: u32,
    a_step: u32,
    b_step: u32,
}

//#include "lib/grid"
//#include "lib/vec4"

//#if F16
alias Operand4 = Halves4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    let words = halves_to_words(raw);
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
//#endif
//#if BF16
alias Operand4 = Halves4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    let words = halves_to_words(raw).xxyy;
    let low = words << vec4<u32>(16u);
    let high = words & vec4<u32>(0xffff0000u);
    return bitcast<vec4<f32>>(select(high, low, vec4<bool>(true, false, true, false)));
}
//#endif
//#if F32
alias Operand4 = Words4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    return bitcast<vec4<f32>>(to_words(raw));
}
//#endif

//#if VEC4
@group(0) @binding(auto) var<storage, read> a: array<Operand4>;
@group(0) @binding(auto) var<storage, read> b: array<Operand4>;
//#else
@group(0) @binding(auto) var<storage, read> a: array<f32>;
@group(0) @binding(auto) var<storage, read> b: array<f32>;
//#endif
//#if BIAS
// The layout requires a binding; without a bias it is b, and not read.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
//#if OUT_VEC4
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;
//#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;
//#endif

// The part of the result that a workgroup computes: its first row and column, its part of k, its matrix.
struct Tile {
    row: u32,
    col: u32,
    split: u32,
    batch: u32,
}

// Rows first: neighbouring workgroups read the same columns of b, which stay in the cache.
fn tile_of(index: u32, rows: u32, cols: u32) -> Tile {
    let g = p.gemm;
    let part = index / g.row_tiles / g.col_tiles;
    let row_tile = index % g.row_tiles;
    let col_tile = index / g.row_tiles % g.col_tiles;
    return Tile(row_tile * rows, col_tile * cols, part % g.splits, part / g.splits);
}
