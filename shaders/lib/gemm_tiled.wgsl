// The matrix product for GPUs. A workgroup of 256 computes a tile of TILE x TILE through workgroup memory,
// each invocation BLOCKS x BLOCKS blocks of 4 x 4, which are 64 rows or columns apart.
// lib/gemm lists what the including shader must define.
// A_TRANSPOSED: rows of a, not steps of k, are contiguous. B_TRANSPOSED: steps of k, not columns of b, are
// contiguous. ROWS_FAST: neighbouring invocations store neighbouring rows, not columns.
//#include "lib/gemm"

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

// load_a, load_b: four elements; zero from k_end on. Rows and columns past the edge repeat the last ones.
//#if VEC4
fn load_a(row: u32, k: u32, k_end: u32) -> vec4<f32> {
    if (k >= k_end) { return vec4<f32>(0.0); }
//#if A_TRANSPOSED
    let first = min(row, p.gemm.m - 4u);
//#else
    let first = min(row, p.gemm.m - 1u);
//#endif
    let o = k / p.gemm.inner;
    let step = (k - o * p.gemm.inner) * p.gemm.a_step;
    return to_floats(a[(a_row_offset(first) + a_run_offset(o) + step) >> 2u]);
}

fn load_b(k: u32, col: u32, k_end: u32) -> vec4<f32> {
    if (k >= k_end) { return vec4<f32>(0.0); }
//#if B_TRANSPOSED
    let first = min(col, p.gemm.n - 1u);
//#else
    let first = min(col, p.gemm.n - 4u);
//#endif
    let o = k / p.gemm.inner;
    let step = (k - o * p.gemm.inner) * p.gemm.b_step;
    return to_floats(b[(b_col_offset(first) + b_run_offset(o) + step) >> 2u]);
}
//#else
fn load_a1(row: u32, k: u32, k_end: u32) -> f32 {
    if (k >= k_end) { return 0.0; }
    let o = k / p.gemm.inner;
    let step = (k - o * p.gemm.inner) * p.gemm.a_step;
    return a[a_row_offset(min(row, p.gemm.m - 1u)) + a_run_offset(o) + step];
}

fn load_b1(k: u32, col: u32, k_end: u32) -> f32 {
    if (k >= k_end) { return 0.0; }
    let o = k / p.gemm.inner;
    let step = (k - o * p.gemm.inner) * p.gemm.b_step;
    return b[b_col_offset(min(col, p.gemm.n - 1u)) + b_run_offset(o) + step];
}

fn load_a(row: u32, k: u32, k_end: u32) -> vec4<f32> {
    var loaded: vec4<f32>;
//#repeat I 4
//#if A_TRANSPOSED
    loaded[I] = load_a1(row + I, k, k_end);
//#else
    loaded[I] = load_a1(row, k + I, k_end);
//#endif
//#end
    return loaded;
}

fn load_b(k: u32, col: u32, k_end: u32) -> vec4<f32> {
    var loaded: vec4<f32>;
//#repeat I 4
//#if B_TRANSPOSED
    loaded[I] = load_b1(k + I, col, k_end);
//#else
    loaded[I] = load_b1(k, col + I, k_end);
//#endif
//#end
    return loaded;
}
//#endif

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

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let g = p.gemm;
    let index = group_index(group, groups);
    if (index >= g.tiles) { return; }
    let tile = tile_of(index, TILE, TILE);
    begin(tile.batch);
    let k_start = tile.split * g.outer_per_split * g.inner;
    let k_end = min(k_start + g.outer_per_split * g.inner, g.k);

    // The first of the four elements of a, and of b, that this invocation loads.
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
    // The 4 x 4 block that this invocation computes, in every 64 x 64.
//#if ROWS_FAST
    let block_row = local_index % 16u;
    let block_col = local_index / 16u;
//#else
    let block_row = local_index / 16u;
    let block_col = local_index % 16u;
//#endif

    var acc: array<vec4<f32>, 4u * BLOCKS * BLOCKS>;
    var a_next = load_a(tile.row + a_row, k_start + a_k, k_end);
    var b_next = load_b(k_start + b_k, tile.col + b_col, k_end);
    for (var k0 = k_start; k0 < k_end; k0 += STEP) {
//#if A_TRANSPOSED
        a_tile[a_k * A_WIDTH + a_row / 4u] = a_next;
//#else
//#repeat I 4
        a_tile[(a_k + I) * A_WIDTH * 4u + a_row] = a_next[I];
//#end
//#endif
//#if B_TRANSPOSED
//#repeat I 4
        b_tile[(b_k + I) * B_WIDTH * 4u + b_col] = b_next[I];
//#end
//#else
        b_tile[b_k * B_WIDTH + b_col / 4u] = b_next;
//#endif
        workgroupBarrier();
        // The next loads are in flight while these steps are multiplied.
        a_next = load_a(tile.row + a_row, k0 + STEP + a_k, k_end);
        b_next = load_b(k0 + STEP + b_k, tile.col + b_col, k_end);
        for (var k = 0u; k < STEP; k++) {
            var b_in: array<vec4<f32>, BLOCKS>;
//#repeat J BLOCKS
            b_in[J] = tile_b(k * B_WIDTH + J * 16u + block_col);
//#end
//#repeat H BLOCKS
            {
                let a_in = tile_a(k * A_WIDTH + H * 16u + block_row);
//#repeat J BLOCKS
//#repeat I 4
                acc[(H * 4u + I) * BLOCKS + J] =
                    fma(vec4<f32>(a_in[I]), b_in[J], acc[(H * 4u + I) * BLOCKS + J]);
//#end
//#end
            }
//#end
        }
        workgroupBarrier();
    }
//#repeat J BLOCKS
    {
        let col = tile.col + J * 64u + block_col * 4u;
        let last = g.n - 1u;
        let bias4 = vec4<f32>(
            bias_at(min(col, last)),
            bias_at(min(col + 1u, last)),
            bias_at(min(col + 2u, last)),
            bias_at(min(col + 3u, last)),
        );
//#repeat H BLOCKS
//#repeat I 4
        {
            let row = tile.row + H * 64u + block_row * 4u + I;
            if (row < g.m) {
                store4(
                    out_row_offset(tile.batch, row),
                    tile.split,
                    col,
                    acc[(H * 4u + I) * BLOCKS + J] + bias4,
                );
            }
        }
//#end
//#end
    }
//#end
}
