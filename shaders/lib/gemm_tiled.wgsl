// The matrix product for GPUs. A workgroup computes a tile of TILE_ROWS x TILE_COLS through workgroup memory,
// each invocation ROW_BLOCKS x COL_BLOCKS blocks of 4 x 4, which are 64 rows or columns apart.
// lib/gemm lists what the including shader must define, and lib/gemm_tiles the flags.
// ROW_BIAS: bias_at(row) is the bias of a row, instead of a column.
alias Loaded4 = vec4<f32>;

//#if VEC4
fn to_loaded(raw: Operand4) -> Loaded4 {
    return to_floats(raw);
}

//#endif
//#include "lib/gemm_tiles"

const WORKGROUP_SIZE: u32 = 256u;
const ROW_BLOCKS: u32 = 1u;
const COL_BLOCKS: u32 = 1u;
// The tiles of both operands, a line of each step, read in vec4s. A_WIDTH and B_WIDTH are the vec4s of a step.
// An operand that is contiguous along k is stored element by element. Its tile consists of scalars, because
// neighbouring invocations store to the same vec4, and a store to one component may rewrite all four. A step
// has four more scalars than needed, so that neighbouring steps are in different banks.
//#if A_TRANSPOSED
const A_WIDTH: u32 = TILE_ROWS / 4u;
var<workgroup> a_tile: array<vec4<f32>, STEP * A_WIDTH>;

fn tile_a(i: u32) -> vec4<f32> {
    return a_tile[i];
}
//#else
const A_WIDTH: u32 = TILE_ROWS / 4u + 1u;
var<workgroup> a_tile: array<f32, STEP * A_WIDTH * 4u>;

fn tile_a(i: u32) -> vec4<f32> {
    return vec4<f32>(a_tile[i * 4u], a_tile[i * 4u + 1u], a_tile[i * 4u + 2u], a_tile[i * 4u + 3u]);
}
//#endif
//#if B_TRANSPOSED
const B_WIDTH: u32 = TILE_COLS / 4u + 1u;
var<workgroup> b_tile: array<f32, STEP * B_WIDTH * 4u>;

fn tile_b(i: u32) -> vec4<f32> {
    return vec4<f32>(b_tile[i * 4u], b_tile[i * 4u + 1u], b_tile[i * 4u + 2u], b_tile[i * 4u + 3u]);
}
//#else
const B_WIDTH: u32 = TILE_COLS / 4u;
var<workgroup> b_tile: array<vec4<f32>, STEP * B_WIDTH>;

fn tile_b(i: u32) -> vec4<f32> {
    return b_tile[i];
}
//#endif

// Stores what an invocation loaded of an operand.
fn store_a(place: vec2<u32>, loaded: vec4<f32>) {
//#if A_TRANSPOSED
    a_tile[place.y * A_WIDTH + place.x / 4u] = loaded;
//#else
//#repeat I 4
    a_tile[(place.y + I) * A_WIDTH * 4u + place.x] = loaded[I];
//#end
//#endif
}

fn store_b(place: vec2<u32>, loaded: vec4<f32>) {
//#if B_TRANSPOSED
//#repeat I 4
    b_tile[(place.y + I) * B_WIDTH * 4u + place.x] = loaded[I];
//#end
//#else
    b_tile[place.y * B_WIDTH + place.x / 4u] = loaded;
//#endif
}

// The sums of an invocation: four columns of row I of block (H, J) are sums[(H * 4 + I) * COL_BLOCKS + J].
alias Sums = array<vec4<f32>, 4u * ROW_BLOCKS * COL_BLOCKS>;

// Adds the products of step `k` of the tiles.
fn multiply(k: u32, block_row: u32, block_col: u32, sums: ptr<function, Sums>) {
    var b_in: array<vec4<f32>, COL_BLOCKS>;
//#repeat J COL_BLOCKS
    b_in[J] = tile_b(k * B_WIDTH + J * 16u + block_col);
//#end
//#repeat H ROW_BLOCKS
    {
        let a_in = tile_a(k * A_WIDTH + H * 16u + block_row);
//#repeat J COL_BLOCKS
//#repeat I 4
        (*sums)[(H * 4u + I) * COL_BLOCKS + J] =
            fma(vec4<f32>(a_in[I]), b_in[J], (*sums)[(H * 4u + I) * COL_BLOCKS + J]);
//#end
//#end
    }
//#end
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let g = p.gemm;
    let index = group_index(group, groups);
    if (index >= g.tiles) { return; }
    let tile = banded_tile_of(index);
    begin(tile.batch);
    let k_steps = k_range(tile);
    let k_start = k_steps.x;
    let k_end = k_steps.y;

    // The 4 x 4 block that this invocation computes, in every 64 x 64.
    let block_row = local_index / 16u;
    let block_col = local_index % 16u;

    var sums: Sums;
    if (k_start < k_end) {
        var loads = first_loads(tile, k_start, local_index);
        let tile_steps = position(STEP);
        for (var k0 = k_start; k0 < k_end; k0 += STEP) {
            store_loads(&loads, local_index, k0, k_end);
            workgroupBarrier();
            // The next loads are in flight while these steps are multiplied.
            next_a(&loads, tile_steps);
            next_b(&loads, tile_steps);
            // Unrolled: NVIDIA's compiler loads operands ahead only within a block.
//#repeat K STEP
            multiply(K, block_row, block_col, &sums);
//#end
            workgroupBarrier();
        }
    }
//#repeat J COL_BLOCKS
    {
        let col = tile.col + J * 64u + block_col * 4u;
        let cols = out_cols(tile.split, col);
//#if !ROW_BIAS
        let last = g.n - 1u;
        let bias4 = vec4<f32>(
            bias_at(min(col, last)),
            bias_at(min(col + 1u, last)),
            bias_at(min(col + 2u, last)),
            bias_at(min(col + 3u, last)),
        );
//#endif
//#repeat H ROW_BLOCKS
//#repeat I 4
        {
            let row = tile.row + H * 64u + block_row * 4u + I;
            if (row < g.m) {
//#if ROW_BIAS
                let bias4 = vec4<f32>(bias_at(row));
//#endif
                store4(
                    out_row_offset(tile.batch, row),
                    cols,
                    sums[(H * 4u + I) * COL_BLOCKS + J] + bias4,
                );
            }
        }
//#end
//#end
    }
//#end
}
