// How tiled products load operands that are not matrices in memory: the functions that lib/gemm_tiles lists. The shader
// defines Position, Rows, Cols, a_rows(row), b_cols(col), position(k), moved(at, by), load_a and load_b.
// Loads of both operands are at the same steps.
const SPLIT_STEPS: u32 = 4u;
//#include "lib/gemm_gather"

fn a_place(local_index: u32, load: u32) -> vec2<u32> {
    return gathered_place(local_index, load);
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
    return gathered_place(local_index, load);
}

fn a_lines(tile: Tile, local_index: u32, load: u32) -> Rows {
    return a_rows(tile.row + a_place(local_index, load).x);
}

fn b_lines(tile: Tile, local_index: u32, load: u32) -> Cols {
    return b_cols(tile.col + b_place(local_index, load).x);
}

// Of each load of a, and of b at the same steps.
alias Positions = array<Position, A_LOADS>;

fn first_positions(k_start: u32, local_index: u32) -> Positions {
    var at: Positions;
//#repeat L A_LOADS
    at[L] = position(k_start + a_place(local_index, L).y);
//#end
    return at;
}

fn a_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return (*loads).at[load];
}

fn b_position(loads: ptr<function, Loads>, load: u32) -> Position {
    return (*loads).at[load % A_LOADS];
}

fn move_a(loads: ptr<function, Loads>, steps: Position) {
//#repeat L A_LOADS
    (*loads).at[L] = moved((*loads).at[L], steps);
//#end
}

// The positions are those of a.
fn move_b(loads: ptr<function, Loads>, steps: Position) {}
