// How tiled products load matrices in memory: the functions that lib/gemm_tiles lists.
// VEC4: elements are loaded as vec4s. A_TRANSPOSED, B_TRANSPOSED: as in lib/gemm_tiles.

fn a_place(local_index: u32, load: u32) -> vec2<u32> {
//#if A_TRANSPOSED
    return across_k(local_index, load, TILE_ROWS, A_NEIGHBOURS);
//#else
    return along_k(local_index, load);
//#endif
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
//#if B_TRANSPOSED
    return along_k(local_index, load);
//#else
    return across_k(local_index, load, TILE_COLS, B_NEIGHBOURS);
//#endif
}

// Where in k an invocation loads. It moves without divisions, which would cost more than the loads.
alias Position = u32;

fn position(k: u32) -> Position {
    return k;
}

fn moved(at: Position, by: Position) -> Position {
    return at + by;
}

// The steps of a split of k. The last splits may have fewer.
fn steps_per_split(k: u32) -> u32 {
    return min(p.gemm.outer_per_split * p.gemm.inner, k);
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

fn a_lines(tile: Tile, local_index: u32, load: u32) -> Rows {
    return a_rows(tile.row + a_place(local_index, load).x);
}

fn b_lines(tile: Tile, local_index: u32, load: u32) -> Cols {
    return b_cols(tile.col + b_place(local_index, load).x);
}

// Of the first load of each operand. The others are at fixed distances.
struct Positions {
    a: Position,
    b: Position,
}

fn first_positions(k_start: u32, local_index: u32) -> Positions {
    return Positions(
        position(k_start + a_place(local_index, 0u).y),
        position(k_start + b_place(local_index, 0u).y),
    );
}

fn a_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return (*loads).at.a + a_place(0u, load).y;
}

fn b_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return (*loads).at.b + b_place(0u, load).y;
}

fn move_a(loads: ptr<function, Loads>, steps: Position) {
    (*loads).at.a = moved((*loads).at.a, steps);
}

fn move_b(loads: ptr<function, Loads>, steps: Position) {
    (*loads).at.b = moved((*loads).at.b, steps);
}
