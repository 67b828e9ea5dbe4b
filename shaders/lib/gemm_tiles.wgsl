// How tiled products load their operands and store their results.
// The including shader must define Loaded4, four elements as it computes with them, and to_loaded(raw), which
// converts an Operand4 to it.
// A_TRANSPOSED: rows of a, not steps of k, are contiguous. B_TRANSPOSED: steps of k, not columns of b, are
// contiguous.
// GATHERED: the shader itself defines Position, Rows, Cols and the functions below that use them, for operands that are
// not matrices in memory. Loads are of four steps of k, so B_TRANSPOSED is set and A_TRANSPOSED is not.
// UNIFORM_TAP, with GATHERED: positions are those of the first of STEP steps, the same for all invocations. The shader
// defines rows_from(rows, steps), cols_from(cols, steps) and later(at, steps), which advance their first argument by
// fewer than STEP steps.
// HOLES: the shader defines is_stored(col), whether a column below n belongs to the result.
//#include "lib/gemm"

// The rows and columns of a tile: not more rows than columns.
const TILE_ROWS: u32 = 64u;
const TILE_COLS: u32 = 64u;
// Steps of k in workgroup memory.
const STEP: u32 = 16u;
// Loads of four elements of each operand by an invocation. If each is of one step of four lines, NEIGHBOURS of them
// in a row are of neighbouring steps of the same lines.
const A_LOADS: u32 = 1u;
const B_LOADS: u32 = 1u;
const A_NEIGHBOURS: u32 = 1u;
const B_NEIGHBOURS: u32 = 1u;
// The rows of tiles in a band.
const BAND: u32 = 1024u / TILE_ROWS;

// The tile with an index. Tiles follow each other down the rows of a band, then along it: workgroups that run at the
// same time read few rows of a and few columns of b, which stay in the cache.
fn banded_tile_of(index: u32) -> Tile {
    let g = p.gemm;
    let in_result = index % (g.row_tiles * g.col_tiles);
    let result = index / (g.row_tiles * g.col_tiles);
    let first_row = in_result / (BAND * g.col_tiles) * BAND;
    let rows = min(g.row_tiles - first_row, BAND);
    let in_band = in_result - first_row * g.col_tiles;
    let row_tile = first_row + in_band % rows;
    return Tile(row_tile * TILE_ROWS, in_band / rows * TILE_COLS, result % g.splits, result / g.splits);
}

//#if GATHERED
// Loads of an invocation at the same steps, and the steps from those to the next ones.
const LINE_LOADS: u32 = max(TILE_ROWS / WORKGROUP_SIZE, 1u);
const LOAD_STEPS: u32 = max(WORKGROUP_SIZE / TILE_ROWS, 1u) * 4u;

// Four steps of a line. Neighbouring invocations load from neighbouring lines. Loads of both operands are at the same
// steps, so that their position in k is computed once.
fn gathered_place(local_index: u32, load: u32) -> vec2<u32> {
    let line = local_index % TILE_ROWS + load % LINE_LOADS * WORKGROUP_SIZE + load / A_LOADS * TILE_ROWS;
    return vec2<u32>(line, local_index / TILE_ROWS * 4u + load % A_LOADS / LINE_LOADS * LOAD_STEPS);
}

//#endif
// The lines between the loads of an invocation.
const LOAD_LINES: u32 = WORKGROUP_SIZE / (STEP / 4u);
//#if UNITS
// 16 invocations store SPREAD lines at once. In f16, lines that are NEAR_LINES / SPREAD apart are in different banks.
const NEAR_LINES: u32 = min(8u, LOAD_LINES);
const SPREAD: u32 = 64u / STEP;
//#endif

// Four steps of a line: the same steps in each load.
fn along_k(local_index: u32, load: u32) -> vec2<u32> {
    let index = local_index / (STEP / 4u);
//#if UNITS
    let near = index % NEAR_LINES;
    let line = index - near + near % SPREAD * (NEAR_LINES / SPREAD) + near / SPREAD;
//#else
    let line = index;
//#endif
    return vec2<u32>(line + load * LOAD_LINES, local_index % (STEP / 4u) * 4u);
}

// One step of four lines, of `lines` in the tile: the same lines in each load.
fn across_k(local_index: u32, load: u32, lines: u32, neighbours: u32) -> vec2<u32> {
    let step = local_index / (lines / 4u) + load / neighbours * (WORKGROUP_SIZE / (lines / 4u));
    return vec2<u32>(local_index % (lines / 4u) * 4u, step * neighbours + load % neighbours);
}

// a_place, b_place: where in a tile an invocation loads: the line (a row of a, a column of b) and the step of k.
// With UNIFORM_TAP, a is loaded along k, as it is in memory, since positions need not be shared.
fn a_place(local_index: u32, load: u32) -> vec2<u32> {
//#if GATHERED !UNIFORM_TAP
    return gathered_place(local_index, load);
//#else
//#if A_TRANSPOSED
    return across_k(local_index, load, TILE_ROWS, A_NEIGHBOURS);
//#else
    return along_k(local_index, load);
//#endif
//#endif
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
//#if GATHERED
    return gathered_place(local_index, load);
//#else
//#if B_TRANSPOSED
    return along_k(local_index, load);
//#else
    return across_k(local_index, load, TILE_COLS, B_NEIGHBOURS);
//#endif
//#endif
}

//#if GATHERED
// The steps of a split are a multiple of this: of STEP where STEP steps must be of one tap.
//#if UNIFORM_TAP
const SPLIT_STEPS: u32 = STEP;
//#else
const SPLIT_STEPS: u32 = 4u;
//#endif

// The steps of a split of k. The last splits may have fewer.
fn steps_per_split(k: u32) -> u32 {
    return (k / SPLIT_STEPS + p.gemm.splits - 1u) / p.gemm.splits * SPLIT_STEPS;
}

// The first step of a tile's split of k, and the one after the last.
fn split_range(tile: Tile, k: u32) -> vec2<u32> {
    let steps = steps_per_split(k);
    let start = min(tile.split * steps, k);
    return vec2<u32>(start, start + min(steps, k - start));
}
//#else
// Where in k an invocation loads. It moves without divisions, which would cost more than the loads.
alias Position = u32;

fn position(k: u32) -> Position {
    return k;
}

fn moved(at: Position, by: Position) -> Position {
    return at + by;
}

// The first step of k of a tile, and the one after the last.
fn k_range(tile: Tile) -> vec2<u32> {
    let steps = p.gemm.outer_per_split * p.gemm.inner;
    return vec2<u32>(tile.split * steps, min((tile.split + 1u) * steps, p.gemm.k));
}

// The offsets of a position. Past the end of k, those of other elements, which zeros replace.
fn a_k_offset(at: Position) -> u32 {
    return min(at, p.gemm.k - A_STEPS) * p.gemm.a_step;
}

fn b_k_offset(at: Position) -> u32 {
    return min(at, p.gemm.k - B_STEPS) * p.gemm.b_step;
}

//#if VEC4
// The offset of steps in vec4s, of one in elements, a multiple of four that may be negative. Those of rows and of steps
// are divided separately: that of the rows before the loop, that of the steps once for all loads at the same step.
fn in_vec4s(offset: u32) -> u32 {
    return bitcast<u32>(bitcast<i32>(offset) >> 2u);
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
    return to_loaded(a[(rows >> 2u) + in_vec4s(a_k_offset(at))]);
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
    return to_loaded(b[(cols >> 2u) + in_vec4s(b_k_offset(at))]);
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

// What an invocation loads of both operands: from where, and four elements at a time. The including shader defines
// store_a(place, loaded) and store_b, which store them in workgroup memory.
struct Loads {
    rows: array<Rows, A_LOADS>,
    cols: array<Cols, B_LOADS>,
//#if UNIFORM_TAP
    // Of the first of STEP steps. The step of an invocation's first load is part of `rows` and `cols`.
    at: Position,
//#else
//#if GATHERED
    at: array<Position, A_LOADS>,
//#else
    // Of the first load. The others are at fixed distances.
    a_at: Position,
    b_at: Position,
//#endif
//#endif
    a: array<Loaded4, A_LOADS>,
    b: array<Loaded4, B_LOADS>,
}

// The position of a load.
fn a_position(loads: ptr<function, Loads>, load: u32) -> Position {
//#if UNIFORM_TAP
    return later((*loads).at, a_place(0u, load).y);
//#else
//#if GATHERED
    return (*loads).at[load];
//#else
    return (*loads).a_at + a_place(0u, load).y;
//#endif
//#endif
}

fn b_position(loads: ptr<function, Loads>, load: u32) -> Position {
//#if UNIFORM_TAP
    return later((*loads).at, b_place(0u, load).y);
//#else
//#if GATHERED
    return (*loads).at[load % A_LOADS];
//#else
    return (*loads).b_at + b_place(0u, load).y;
//#endif
//#endif
}

// Loads the first steps of a tile.
fn first_loads(tile: Tile, k_start: u32, local_index: u32) -> Loads {
    var loads: Loads;
//#if UNIFORM_TAP
    loads.at = position(k_start);
//#else
//#if GATHERED
//#repeat L A_LOADS
    loads.at[L] = position(k_start + a_place(local_index, L).y);
//#end
//#else
    loads.a_at = position(k_start + a_place(local_index, 0u).y);
    loads.b_at = position(k_start + b_place(local_index, 0u).y);
//#endif
//#endif
//#repeat L A_LOADS
    loads.rows[L] = a_rows(tile.row + a_place(local_index, L).x);
//#if UNIFORM_TAP
    loads.rows[L] = rows_from(loads.rows[L], a_place(local_index, 0u).y);
//#endif
    loads.a[L] = load_a(loads.rows[L], a_position(&loads, L));
//#end
//#repeat L B_LOADS
    loads.cols[L] = b_cols(tile.col + b_place(local_index, L).x);
//#if UNIFORM_TAP
    loads.cols[L] = cols_from(loads.cols[L], b_place(local_index, 0u).y);
//#endif
    loads.b[L] = load_b(loads.cols[L], b_position(&loads, L));
//#end
    return loads;
}

// Stores what was loaded, with zeros from k_end on. `k`: the first step of the tile.
fn store_loads(loads: ptr<function, Loads>, local_index: u32, k: u32, k_end: u32) {
    if (k + STEP > k_end) {
//#repeat L A_LOADS
        (*loads).a[L] = without_rest_a((*loads).a[L], k + a_place(local_index, L).y, k_end);
//#end
//#repeat L B_LOADS
        (*loads).b[L] = without_rest_b((*loads).b[L], k + b_place(local_index, L).y, k_end);
//#end
    }
//#repeat L A_LOADS
    store_a(a_place(local_index, L), (*loads).a[L]);
//#end
//#repeat L B_LOADS
    store_b(b_place(local_index, L), (*loads).b[L]);
//#end
}

// Load what follows in k: first of a, then of b, which may use positions of a. `steps`: the position of step STEP.
fn next_a(loads: ptr<function, Loads>, steps: Position) {
//#if UNIFORM_TAP
    (*loads).at = moved((*loads).at, steps);
//#else
//#if GATHERED
//#repeat L A_LOADS
    (*loads).at[L] = moved((*loads).at[L], steps);
//#end
//#else
    (*loads).a_at = moved((*loads).a_at, steps);
//#endif
//#endif
//#repeat L A_LOADS
    (*loads).a[L] = load_a((*loads).rows[L], a_position(loads, L));
//#end
}

fn next_b(loads: ptr<function, Loads>, steps: Position) {
//#if !GATHERED
    (*loads).b_at = moved((*loads).b_at, steps);
//#endif
//#repeat L B_LOADS
    (*loads).b[L] = load_b((*loads).cols[L], b_position(loads, L));
//#end
}

const NOT_STORED: u32 = 0xffffffffu;

fn out_col(split: u32, col: u32) -> u32 {
    var is_column = col < p.gemm.n;
//#if HOLES
    is_column = is_column && is_stored(col);
//#endif
    return select(NOT_STORED, out_col_offset(split, col), is_column);
}

// The offsets in a row of out of four columns from `col` on. Columns past the edge are NOT_STORED.
fn out_cols(split: u32, col: u32) -> vec4<u32> {
//#if OUT_VEC4
    return vec4<u32>(out_col(split, col), NOT_STORED, NOT_STORED, NOT_STORED);
//#else
    return vec4<u32>(
        out_col(split, col),
        out_col(split, col + 1u),
        out_col(split, col + 2u),
        out_col(split, col + 3u),
    );
//#endif
}

// Stores four columns, the result of out_cols, of the row of out that starts at `row_start`.
fn store4(row_start: u32, cols: vec4<u32>, sum: vec4<f32>) {
//#if OUT_VEC4
    if (cols.x != NOT_STORED) {
        out[(row_start + cols.x) >> 2u] = from_words(bitcast<vec4<u32>>(sum));
    }
//#else
//#repeat C 4
    if (cols[C] != NOT_STORED) {
        out[row_start + cols[C]] = sum[C];
    }
//#end
//#endif
}
