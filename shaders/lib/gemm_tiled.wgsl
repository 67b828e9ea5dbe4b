// The matrix product for GPUs. A workgroup of 256 computes a tile of TILE x TILE through workgroup memory,
// each invocation BLOCKS x BLOCKS blocks of 4 x 4, which are 64 rows or columns apart.
// lib/gemm lists what the including shader must define, and lib/gemm_tiles the flags.
// ROW_BIAS: bias_at(row) is the bias of a row, instead of a column.
alias Loaded4 = vec4<f32>;

//#if VEC4
fn to_loaded(raw: Operand4) -> Loaded4 {
    return to_floats(raw);
}

//#endif
//#include "lib/gemm_tiles"

const TILE: u32 = 64u;
const BLOCKS: u32 = 1u;
// Steps of k in workgroup memory: each invocation loads four elements of a and four of b.
const STEP: u32 = 1024u / TILE;
// The tiles [STEP, TILE] of both operands, read in vec4s. A_WIDTH and B_WIDTH are the vec4s of a step.
// An operand that is contiguous along k is stored element by element. Its tile consists of scalars, because
// neighbouring invocations store to the same vec4, and a store to one component may rewrite all four. A step
// has four more scalars than needed, so that neighbouring steps are in different banks.
//#if A_TRANSPOSED
const A_WIDTH: u32 = TILE / 4u;
var<workgroup> a_tile: array<vec4<f32>, STEP * A_WIDTH>;

fn tile_a(i: u32) -> vec4<f32> {
    return a_tile[i];
}
//#else
const A_WIDTH: u32 = TILE / 4u + 1u;
var<workgroup> a_tile: array<f32, STEP * A_WIDTH * 4u>;

fn tile_a(i: u32) -> vec4<f32> {
    return vec4<f32>(a_tile[i * 4u], a_tile[i * 4u + 1u], a_tile[i * 4u + 2u], a_tile[i * 4u + 3u]);
}
//#endif
//#if B_TRANSPOSED
const B_WIDTH: u32 = TILE / 4u + 1u;
var<workgroup> b_tile: array<f32, STEP * B_WIDTH * 4u>;

fn tile_b(i: u32) -> vec4<f32> {
    return vec4<f32>(b_tile[i * 4u], b_tile[i * 4u + 1u], b_tile[i * 4u + 2u], b_tile[i * 4u + 3u]);
}
//#else
const B_WIDTH: u32 = TILE / 4u;
var<workgroup> b_tile: array<vec4<f32>, STEP * B_WIDTH>;

fn tile_b(i: u32) -> vec4<f32> {
    return b_tile[i];
}
//#endif

// Stores what an invocation loaded of a, from row `row` and step `k` of the tile on.
fn store_a(row: u32, k: u32, loaded: vec4<f32>) {
//#if A_TRANSPOSED
    a_tile[k * A_WIDTH + row / 4u] = loaded;
//#else
//#repeat I 4
    a_tile[(k + I) * A_WIDTH * 4u + row] = loaded[I];
//#end
//#endif
}

fn store_b(col: u32, k: u32, loaded: vec4<f32>) {
//#if B_TRANSPOSED
//#repeat I 4
    b_tile[(k + I) * B_WIDTH * 4u + col] = loaded[I];
//#end
//#else
    b_tile[k * B_WIDTH + col / 4u] = loaded;
//#endif
}

// The sums of an invocation: four columns of row I of block (H, J) are sums[(H * 4 + I) * BLOCKS + J].
alias Sums = array<vec4<f32>, 4u * BLOCKS * BLOCKS>;

// Adds the products of step `k` of the tiles.
fn multiply(k: u32, block_row: u32, block_col: u32, sums: ptr<function, Sums>) {
    var b_in: array<vec4<f32>, BLOCKS>;
//#repeat J BLOCKS
    b_in[J] = tile_b(k * B_WIDTH + J * 16u + block_col);
//#end
//#repeat H BLOCKS
    {
        let a_in = tile_a(k * A_WIDTH + H * 16u + block_row);
//#repeat J BLOCKS
//#repeat I 4
        (*sums)[(H * 4u + I) * BLOCKS + J] =
            fma(vec4<f32>(a_in[I]), b_in[J], (*sums)[(H * 4u + I) * BLOCKS + J]);
//#end
//#end
    }
//#end
}

@compute @workgroup_size(256)
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

    // The first of the four elements of a, and of b, that this invocation loads.
//#if GATHERED
    // The same steps of both: their position is computed once.
    let a_row = local_index % TILE;
    let b_col = a_row;
    let a_k = local_index / TILE * 4u;
    let b_k = a_k;
//#else
//#if A_TRANSPOSED
    let a_row = local_index % (TILE / 4u) * 4u;
    let a_k = local_index / (TILE / 4u);
//#else
    let a_row = local_index / (STEP / 4u);
    let a_k = local_index % (STEP / 4u) * 4u;
//#endif
//#if B_TRANSPOSED
    let b_col = local_index / (STEP / 4u);
    let b_k = local_index % (STEP / 4u) * 4u;
//#else
    let b_col = local_index % (TILE / 4u) * 4u;
    let b_k = local_index / (TILE / 4u);
//#endif
//#endif
    // The 4 x 4 block that this invocation computes, in every 64 x 64.
    let block_row = local_index / 16u;
    let block_col = local_index % 16u;

    var sums: Sums;
    if (k_start < k_end) {
        let rows = a_rows(tile.row + a_row);
        let cols = b_cols(tile.col + b_col);
        let tile_steps = position(STEP);
        var a_at = position(k_start + a_k);
        var b_at = position(k_start + b_k);
        var a_next = load_a(rows, a_at);
        var b_next = load_b(cols, b_at);
        for (var k0 = k_start; k0 < k_end; k0 += STEP) {
            if (k0 + STEP > k_end) {
                a_next = without_rest_a(a_next, k0 + a_k, k_end);
                b_next = without_rest_b(b_next, k0 + b_k, k_end);
            }
            store_a(a_row, a_k, a_next);
            store_b(b_col, b_k, b_next);
            workgroupBarrier();
            // The next loads are in flight while these steps are multiplied.
            a_at = moved(a_at, tile_steps);
//#if GATHERED
            b_at = a_at;
//#else
            b_at = moved(b_at, tile_steps);
//#endif
            a_next = load_a(rows, a_at);
            b_next = load_b(cols, b_at);
            for (var k = 0u; k < STEP; k++) {
                multiply(k, block_row, block_col, &sums);
            }
            workgroupBarrier();
        }
    }
//#repeat J BLOCKS
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
//#repeat H BLOCKS
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
                    sums[(H * 4u + I) * BLOCKS + J] + bias4,
                );
            }
        }
//#end
//#end
    }
//#end
}
