// How tiled products load their operands and store their results.
// The including shader must define Loaded4, four elements as it computes with them, and to_loaded(raw), which
// converts an Operand4 to it.
// A_TRANSPOSED: rows of a, not steps of k, are contiguous. B_TRANSPOSED: steps of k, not columns of b, are
// contiguous.
// Operands are loaded by one of three files, which define
// - a_place(local_index, load), b_place: where in a tile an invocation loads, the line (a row of a, a column of b)
// and the
//   step of k;
// - Position, where in k an invocation loads, Rows and Cols, the lines; load_a(rows, at) and load_b(cols, at);
// - a_lines(tile, local_index, load) and b_lines, the lines of a load;
// - Positions, those of an invocation, which first_positions(k_start, local_index) returns; a_position(loads, load) and
//   b_position, that of a load; move_a(loads, steps) and move_b, which go on by `steps`.
// lib/gemm_matrix: matrices in memory. lib/gemm_gathered (GATHERED) and lib/gemm_tap (GATHERED UNIFORM_TAP): the shader
// itself defines Position, Rows, Cols and the functions that load. Loads are of four steps of k, so B_TRANSPOSED is set
// and A_TRANSPOSED is not.
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

//#if GATHERED
//#if UNIFORM_TAP
//#include "lib/gemm_tap"
//#else
//#include "lib/gemm_gathered"
//#endif
//#else
//#include "lib/gemm_matrix"
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
    at: Positions,
    a: array<Loaded4, A_LOADS>,
    b: array<Loaded4, B_LOADS>,
}

// Loads the first steps of a tile.
fn first_loads(tile: Tile, k_start: u32, local_index: u32) -> Loads {
    var loads: Loads;
    loads.at = first_positions(k_start, local_index);
//#repeat L A_LOADS
    loads.rows[L] = a_lines(tile, local_index, L);
    loads.a[L] = load_a(loads.rows[L], a_position(&loads, L));
//#end
//#repeat L B_LOADS
    loads.cols[L] = b_lines(tile, local_index, L);
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
    move_a(loads, steps);
//#repeat L A_LOADS
    (*loads).a[L] = load_a((*loads).rows[L], a_position(loads, L));
//#end
}

fn next_b(loads: ptr<function, Loads>, steps: Position) {
    move_b(loads, steps);
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
