// As lib/gemm_gathered, where STEP steps are of one tap: a position is the same for all invocations. The shader also
// defines rows_from(rows, steps), cols_from(cols, steps) and later(at, steps), which advance their first argument by
// fewer than STEP steps.
// a is loaded along k, as it is in memory, since positions need not be shared.
const SPLIT_STEPS: u32 = STEP;
//#include "lib/gemm_gather"

fn a_place(local_index: u32, load: u32) -> vec2<u32> {
    return along_k(local_index, load);
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
    return gathered_place(local_index, load);
}

// The step of an invocation's first load is part of its lines.
fn a_lines(tile: Tile, local_index: u32, load: u32) -> Rows {
    return rows_from(a_rows(tile.row + a_place(local_index, load).x), a_place(local_index, 0u).y);
}

fn b_lines(tile: Tile, local_index: u32, load: u32) -> Cols {
    return cols_from(b_cols(tile.col + b_place(local_index, load).x), b_place(local_index, 0u).y);
}

// Of the first of STEP steps.
alias Positions = Position;

fn first_positions(k_start: u32, local_index: u32) -> Positions {
    return position(k_start);
}

fn a_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return later((*loads).at, a_place(0u, load).y);
}

fn b_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return later((*loads).at, b_place(0u, load).y);
}

fn move_a(loads: ptr<function, Loads>, steps: Position) {
    (*loads).at = moved((*loads).at, steps);
}

// The position is that of a.
fn move_b(loads: ptr<function, Loads>, steps: Position) {}
