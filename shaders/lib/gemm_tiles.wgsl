// How tiled products load their operands and store their results.
// The including shader must define Loaded4, four elements as it computes with them, and to_loaded(raw), which
// converts an Operand4 to it.
// RUNS: k is walked in several runs, as in a convolution. Otherwise its steps are equally far apart in memory.
// A_TRANSPOSED: rows of a, not steps of k, are contiguous. B_TRANSPOSED: steps of k, not columns of b, are
// contiguous.
//#include "lib/gemm"

// Where in k an invocation loads. It moves without divisions, which would cost more than the loads.
//#if RUNS
struct Position {
    run: u32,
    // The step within the run.
    step: u32,
}

fn position(k: u32) -> Position {
    let run = k / p.gemm.inner;
    return Position(run, k - run * p.gemm.inner);
}

fn moved(at: Position, by: Position) -> Position {
    let step = at.step + by.step;
    let wraps = step >= p.gemm.inner;
    return Position(at.run + by.run + u32(wraps), select(step, step - p.gemm.inner, wraps));
}

// The offsets of a position. Past the end of k, those of other elements, which zeros replace.
fn a_k_offset(at: Position) -> u32 {
    return a_run_offset(min(at.run, p.gemm.outer - 1u)) + at.step * p.gemm.a_step;
}

fn b_k_offset(at: Position) -> u32 {
    return b_run_offset(min(at.run, p.gemm.outer - 1u)) + at.step * p.gemm.b_step;
}
//#else
alias Position = u32;

fn position(k: u32) -> Position {
    return k;
}

fn moved(at: Position, by: Position) -> Position {
    return at + by;
}

fn a_k_offset(at: Position) -> u32 {
    return min(at, p.gemm.k - A_STEPS) * p.gemm.a_step;
}

fn b_k_offset(at: Position) -> u32 {
    return min(at, p.gemm.k - B_STEPS) * p.gemm.b_step;
}
//#endif

// a_rows: the offsets of the rows that an invocation loads. load_a: four elements of a. Rows past the edge
// repeat the last ones. A_STEPS: the steps of k in one load.
//#if VEC4
alias Rows = u32;
//#if A_TRANSPOSED
const A_STEPS: u32 = 1u;

fn a_rows(row: u32) -> Rows {
    return a_row_offset(min(row, p.gemm.m - 4u));
}
//#else
const A_STEPS: u32 = 4u;

fn a_rows(row: u32) -> Rows {
    return a_row_offset(min(row, p.gemm.m - 1u));
}
//#endif

fn load_a(rows: Rows, at: Position) -> Loaded4 {
    return to_loaded(a[(rows + a_k_offset(at)) >> 2u]);
}
//#else
const A_STEPS: u32 = 1u;
//#if A_TRANSPOSED
alias Rows = vec4<u32>;

fn a_rows(row: u32) -> Rows {
    var rows: Rows;
//#repeat I 4
    rows[I] = a_row_offset(min(row + I, p.gemm.m - 1u));
//#end
    return rows;
}

fn load_a(rows: Rows, at: Position) -> Loaded4 {
    let first = rows + a_k_offset(at);
    return Loaded4(a[first.x], a[first.y], a[first.z], a[first.w]);
}
//#else
alias Rows = u32;

fn a_rows(row: u32) -> Rows {
    return a_row_offset(min(row, p.gemm.m - 1u));
}

fn load_a(rows: Rows, at: Position) -> Loaded4 {
    var loaded: Loaded4;
    var next = at;
//#repeat I 4
    loaded[I] = a[rows + a_k_offset(next)];
    next = moved(next, position(1u));
//#end
    return loaded;
}
//#endif
//#endif

// The same for the columns of b.
//#if VEC4
alias Cols = u32;
//#if B_TRANSPOSED
const B_STEPS: u32 = 4u;

fn b_cols(col: u32) -> Cols {
    return b_col_offset(min(col, p.gemm.n - 1u));
}
//#else
const B_STEPS: u32 = 1u;

fn b_cols(col: u32) -> Cols {
    return b_col_offset(min(col, p.gemm.n - 4u));
}
//#endif

fn load_b(cols: Cols, at: Position) -> Loaded4 {
    return to_loaded(b[(cols + b_k_offset(at)) >> 2u]);
}
//#else
const B_STEPS: u32 = 1u;
//#if B_TRANSPOSED
alias Cols = u32;

fn b_cols(col: u32) -> Cols {
    return b_col_offset(min(col, p.gemm.n - 1u));
}

fn load_b(cols: Cols, at: Position) -> Loaded4 {
    var loaded: Loaded4;
    var next = at;
//#repeat I 4
    loaded[I] = b[cols + b_k_offset(next)];
    next = moved(next, position(1u));
//#end
    return loaded;
}
//#else
alias Cols = vec4<u32>;

fn b_cols(col: u32) -> Cols {
    var cols: Cols;
//#repeat I 4
    cols[I] = b_col_offset(min(col + I, p.gemm.n - 1u));
//#end
    return cols;
}

fn load_b(cols: Cols, at: Position) -> Loaded4 {
    let first = cols + b_k_offset(at);
    return Loaded4(b[first.x], b[first.y], b[first.z], b[first.w]);
}
//#endif
//#endif

// Replaces the steps from k_end on by zeros, in what was loaded from step `k` on.
fn without_rest_a(loaded: Loaded4, k: u32, k_end: u32) -> Loaded4 {
//#if A_TRANSPOSED
    let steps = vec4<u32>(k);
//#else
    let steps = k + vec4<u32>(0u, 1u, 2u, 3u);
//#endif
    return select(Loaded4(), loaded, steps < vec4<u32>(k_end));
}

fn without_rest_b(loaded: Loaded4, k: u32, k_end: u32) -> Loaded4 {
//#if B_TRANSPOSED
    let steps = k + vec4<u32>(0u, 1u, 2u, 3u);
//#else
    let steps = vec4<u32>(k);
//#endif
    return select(Loaded4(), loaded, steps < vec4<u32>(k_end));
}

// Stores four columns of the row of out that starts at `row_start`. Columns past the edge are skipped.
fn store4(row_start: u32, split: u32, col: u32, sum: vec4<f32>) {
//#if OUT_VEC4
    if (col < p.gemm.n) {
        out[(row_start + out_col_offset(split, col)) >> 2u] = from_words(bitcast<vec4<u32>>(sum));
    }
//#else
//#repeat C 4
    if (col + C < p.gemm.n) {
        out[row_start + out_col_offset(split, col + C)] = sum[C];
    }
//#end
//#endif
}
