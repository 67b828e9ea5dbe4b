// What lib/gemm_gathered and lib/gemm_tap share: places of loads, and splits of k into ranges of steps.
// SPLIT_STEPS: the steps of a split are a multiple of this.

// Loads of an invocation at the same steps, and the steps from those to the next ones.
const LINE_LOADS: u32 = max(TILE_ROWS / WORKGROUP_SIZE, 1u);
const LOAD_STEPS: u32 = max(WORKGROUP_SIZE / TILE_ROWS, 1u) * 4u;

// Four steps of a line. Neighbouring invocations load from neighbouring lines. Loads of both operands are at the same
// steps, so that their position in k is computed once.
fn gathered_place(local_index: u32, load: u32) -> vec2<u32> {
    let line = local_index % TILE_ROWS + load % LINE_LOADS * WORKGROUP_SIZE + load / A_LOADS * TILE_ROWS;
    return vec2<u32>(line, local_index / TILE_ROWS * 4u + load % A_LOADS / LINE_LOADS * LOAD_STEPS);
}

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
