// The loop that matrix products and convolutions share: out[row, col] = sum over k of a[row, k] * b[k, col],
// for a batch of matrices. k is walked in `outer` runs of `inner` steps: the taps of a convolution and the channels under
// each, say. Who includes it binds a, b and out, has a uniform p with `gemm: Gemm`, and says where things lie:
//   begin(batch), called once;
//   a[row_at(row) + a_outer(o) + i * a_step] and b[col_at(col) + b_outer(o) + i * b_step] for step i of run o;
//   out[out_row(batch, row) + out_col(split, col)], and bias_of_col(col), where each sum starts.
// With QUADS a and b are arrays of Four, four neighbours in one load: four steps of a row of a and four columns of b. They are
// floats of 32 bits, or of 16 (HALF, or BFLOAT for the upper half of 32): sums are of 32 bits always.
// TILED, for GPUs, goes through workgroup memory; there A_ACROSS takes quads of neighbouring rows of a, and B_ALONG quads of
// neighbouring steps of b. The other way is for adapters where barriers are dear and every load is: a subgroup of
// eight lanes computes ROWS x 32, each lane bringing in one row in eight of a, which broadcasts spread (SUBGROUP), or all of them.
// OUT_QUAD stores four columns at once; ROWS_FAST has neighbouring invocations store neighbouring rows.
struct Gemm {
    m: u32,
    n: u32,
    k: u32,
    inner: u32,
    outer: u32,
    // A part of k that is stored on its own is so many runs long.
    per_split: u32,
    splits: u32,
    row_tiles: u32,
    col_tiles: u32,
    tiles: u32,
    a_step: u32,
    b_step: u32,
}

//#include "lib/quad"

//#if HALF
alias Four = HalfQuad;

fn floats(four: Four) -> vec4<f32> {
    let words = half_words_of(four);
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
//#else
//#if BFLOAT
alias Four = HalfQuad;

fn floats(four: Four) -> vec4<f32> {
    let words = half_words_of(four).xxyy;
    return bitcast<vec4<f32>>(select(words & vec4<u32>(0xffff0000u), words << vec4<u32>(16u), vec4<bool>(true, false, true, false)));
}
//#else
alias Four = Quad;

fn floats(four: Four) -> vec4<f32> {
    return bitcast<vec4<f32>>(words_of(four));
}
//#endif
//#endif

// The part of the result that a workgroup computes.
struct Tile {
    row: u32,
    col: u32,
    split: u32,
    batch: u32,
}

// Rows first: the columns of b that neighbouring workgroups read stay in the cache.
fn tile_of(index: u32, rows: u32, cols: u32) -> Tile {
    let g = p.gemm;
    let part = index / g.row_tiles / g.col_tiles;
    return Tile(index % g.row_tiles * rows, index / g.row_tiles % g.col_tiles * cols, part % g.splits, part / g.splits);
}

//#if TILED
// A workgroup of 256 computes TILE x TILE, QUARTERS x QUARTERS times 4 x 4 per invocation.
const TILE: u32 = 64u;
const QUARTERS: u32 = 1u;
const STEP: u32 = 1024u / TILE;
// The row of a's tile is longer than needed so that its columns fall into different banks.
const A_WIDTH: u32 = TILE / 4u + 1u;
const B_WIDTH: u32 = TILE / 4u;
var<workgroup> a_tile: array<vec4<f32>, STEP * A_WIDTH>;
var<workgroup> b_tile: array<vec4<f32>, STEP * B_WIDTH>;

// Element (row, k) of a and (k, col) of b; zero past the last k, and the last row or column repeated.
//#if !QUADS
fn a_one(row: u32, k: u32, k_end: u32) -> f32 {
    if (k >= k_end) { return 0.0; }
    let o = k / p.gemm.inner;
    return a[row_at(min(row, p.gemm.m - 1u)) + a_outer(o) + (k - o * p.gemm.inner) * p.gemm.a_step];
}

fn b_one(k: u32, col: u32, k_end: u32) -> f32 {
    if (k >= k_end) { return 0.0; }
    let o = k / p.gemm.inner;
    return b[col_at(min(col, p.gemm.n - 1u)) + b_outer(o) + (k - o * p.gemm.inner) * p.gemm.b_step];
}
//#endif

// The quad of a that starts at (row, k), along k or across rows.
fn a_four(row: u32, k: u32, k_end: u32) -> vec4<f32> {
//#if QUADS
    if (k >= k_end) { return vec4<f32>(0.0); }
    let o = k / p.gemm.inner;
//#if A_ACROSS
    let first = min(row, p.gemm.m - 4u);
//#else
    let first = min(row, p.gemm.m - 1u);
//#endif
    return floats(a[(row_at(first) + a_outer(o) + (k - o * p.gemm.inner) * p.gemm.a_step) >> 2u]);
//#else
//#if A_ACROSS
    return vec4<f32>(a_one(row, k, k_end), a_one(row + 1u, k, k_end), a_one(row + 2u, k, k_end), a_one(row + 3u, k, k_end));
//#else
    return vec4<f32>(a_one(row, k, k_end), a_one(row, k + 1u, k_end), a_one(row, k + 2u, k_end), a_one(row, k + 3u, k_end));
//#endif
//#endif
}

fn b_four(k: u32, col: u32, k_end: u32) -> vec4<f32> {
//#if QUADS
    if (k >= k_end) { return vec4<f32>(0.0); }
    let o = k / p.gemm.inner;
//#if B_ALONG
    let first = min(col, p.gemm.n - 1u);
//#else
    let first = min(col, p.gemm.n - 4u);
//#endif
    return floats(b[(col_at(first) + b_outer(o) + (k - o * p.gemm.inner) * p.gemm.b_step) >> 2u]);
//#else
//#if B_ALONG
    return vec4<f32>(b_one(k, col, k_end), b_one(k + 1u, col, k_end), b_one(k + 2u, col, k_end), b_one(k + 3u, col, k_end));
//#else
    return vec4<f32>(b_one(k, col, k_end), b_one(k, col + 1u, k_end), b_one(k, col + 2u, k_end), b_one(k, col + 3u, k_end));
//#endif
//#endif
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let g = p.gemm;
    let index = group_index(group, groups);
    if (index >= g.tiles) { return; }
    let tile = tile_of(index, TILE, TILE);
    begin(tile.batch);
    let k_end = min((tile.split + 1u) * g.per_split * g.inner, g.k);
    // What this invocation brings in: one quad of a and one of b.
//#if A_ACROSS
    let a_row = lane % (TILE / 4u) * 4u;
    let a_k = lane / (TILE / 4u);
//#else
    let a_row = lane / (STEP / 4u);
    let a_k = lane % (STEP / 4u) * 4u;
//#endif
//#if B_ALONG
    let b_col = lane / (STEP / 4u);
    let b_k = lane % (STEP / 4u) * 4u;
//#else
    let b_col = lane % (TILE / 4u) * 4u;
    let b_k = lane / (TILE / 4u);
//#endif
    // What it computes.
//#if ROWS_FAST
    let my_row = lane % 16u;
    let my_col = lane / 16u;
//#else
    let my_row = lane / 16u;
    let my_col = lane % 16u;
//#endif
    var acc: array<vec4<f32>, 4u * QUARTERS * QUARTERS>;
    var a_next = a_four(tile.row + a_row, tile.split * g.per_split * g.inner + a_k, k_end);
    var b_next = b_four(tile.split * g.per_split * g.inner + b_k, tile.col + b_col, k_end);
    for (var k0 = tile.split * g.per_split * g.inner; k0 < k_end; k0 += STEP) {
//#if A_ACROSS
        a_tile[a_k * A_WIDTH + a_row / 4u] = a_next;
//#else
//#repeat I 4
        a_tile[(a_k + I) * A_WIDTH + a_row / 4u][a_row % 4u] = a_next[I];
//#end
//#endif
//#if B_ALONG
//#repeat I 4
        b_tile[(b_k + I) * B_WIDTH + b_col / 4u][b_col % 4u] = b_next[I];
//#end
//#else
        b_tile[b_k * B_WIDTH + b_col / 4u] = b_next;
//#endif
        workgroupBarrier();
        // The next quads are on their way while this tile is worked on.
        a_next = a_four(tile.row + a_row, k0 + STEP + a_k, k_end);
        b_next = b_four(k0 + STEP + b_k, tile.col + b_col, k_end);
        for (var k = 0u; k < STEP; k++) {
            var b_in: array<vec4<f32>, QUARTERS>;
//#repeat J QUARTERS
            b_in[J] = b_tile[k * B_WIDTH + J * 16u + my_col];
//#end
//#repeat H QUARTERS
            {
                let a_in = a_tile[k * A_WIDTH + H * 16u + my_row];
//#repeat J QUARTERS
//#repeat I 4
                acc[(H * 4u + I) * QUARTERS + J] = fma(vec4<f32>(a_in[I]), b_in[J], acc[(H * 4u + I) * QUARTERS + J]);
//#end
//#end
            }
//#end
        }
        workgroupBarrier();
    }
//#repeat J QUARTERS
    {
        let col = tile.col + J * 64u + my_col * 4u;
        let last = g.n - 1u;
        let bias = vec4<f32>(
            bias_of_col(min(col, last)),
            bias_of_col(min(col + 1u, last)),
            bias_of_col(min(col + 2u, last)),
            bias_of_col(min(col + 3u, last)),
        );
//#repeat H QUARTERS
//#repeat I 4
        {
            let row = tile.row + H * 64u + my_row * 4u + I;
            let sum = acc[(H * 4u + I) * QUARTERS + J] + bias;
            if (row < g.m) {
//#if OUT_QUAD
                if (col < g.n) {
                    out[(out_row(tile.batch, row) + out_col(tile.split, col)) >> 2u] = quad_of(bitcast<vec4<u32>>(sum));
                }
//#else
//#repeat C 4
                if (col + C < g.n) {
                    out[out_row(tile.batch, row) + out_col(tile.split, col + C)] = sum[C];
                }
//#end
//#endif
            }
        }
//#end
//#end
    }
//#end
}
//#else
const ROWS: u32 = 8u;
const OCTETS: u32 = 1u;

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let g = p.gemm;
    let index = group_index(group, groups);
    if (index >= g.tiles) { return; }
    let tile = tile_of(index, ROWS, 32u);
    begin(tile.batch);
    let last_row = g.m - 1u;
    let first_col = tile.col + lane * 4u;
    // Past the edge, columns repeat the last ones: they write the same value once more.
//#if QUADS
    let quad_col = min(first_col, g.n - 4u);
    let cols = vec4<u32>(quad_col, quad_col + 1u, quad_col + 2u, quad_col + 3u);
//#else
    let cols = min(vec4<u32>(first_col, first_col + 1u, first_col + 2u, first_col + 3u), vec4<u32>(g.n - 1u));
//#endif
    let bias = vec4<f32>(bias_of_col(cols.x), bias_of_col(cols.y), bias_of_col(cols.z), bias_of_col(cols.w));
    var acc: array<vec4<f32>, ROWS>;
//#if SUBGROUP
    var rows: array<u32, OCTETS>;
//#else
    var rows: array<u32, ROWS>;
//#endif
//#repeat H OCTETS
//#if SUBGROUP
    rows[H] = row_at(min(tile.row + H * 8u + lane, last_row));
//#endif
//#repeat I 8
//#if !SUBGROUP
    rows[H * 8u + I] = row_at(min(tile.row + H * 8u + I, last_row));
//#endif
    acc[H * 8u + I] = bias;
//#end
//#end
    let o_end = min((tile.split + 1u) * g.per_split, g.outer);
//#if QUADS
    let b_col = col_at(quad_col);
    for (var o = tile.split * g.per_split; o < o_end; o++) {
        let a_start = a_outer(o);
        let b_start = b_col + b_outer(o);
        let steps = min(g.inner, g.k - o * g.inner);
        // Four steps at once: each lane brings in four elements of one row in eight, or of every row.
        for (var i = 0u; i < steps; i += 4u) {
            var b_in: array<vec4<f32>, 4>;
//#repeat U 4
            b_in[U] = floats(b[(b_start + (i + U) * g.b_step) >> 2u]);
//#end
//#if !SUBGROUP
//#repeat I ROWS
            {
                let a_in = floats(a[(rows[I] + a_start + i) >> 2u]);
//#repeat U 4
                acc[I] = fma(vec4<f32>(a_in[U]), b_in[U], acc[I]);
//#end
            }
//#end
//#else
            var a_in: array<vec4<f32>, OCTETS>;
//#repeat H OCTETS
            a_in[H] = floats(a[(rows[H] + a_start + i) >> 2u]);
//#end
//#repeat H OCTETS
//#repeat I 8
//#repeat U 4
            acc[H * 8u + I] = fma(vec4<f32>(subgroupBroadcast(a_in[H][U], I)), b_in[U], acc[H * 8u + I]);
//#end
//#end
//#end
//#endif
        }
    }
//#else
    let b_cols = vec4<u32>(col_at(cols.x), col_at(cols.y), col_at(cols.z), col_at(cols.w));
    for (var o = tile.split * g.per_split; o < o_end; o++) {
        let a_start = a_outer(o);
        let b_start = b_cols + b_outer(o);
        let steps = min(g.inner, g.k - o * g.inner);
        for (var i = 0u; i < steps; i++) {
            let at = b_start + i * g.b_step;
            let b_in = vec4<f32>(b[at.x], b[at.y], b[at.z], b[at.w]);
            let a_at = a_start + i * g.a_step;
//#if SUBGROUP
            var a_in: array<f32, OCTETS>;
//#endif
//#repeat H OCTETS
//#if SUBGROUP
            a_in[H] = a[rows[H] + a_at];
//#repeat I 8
            acc[H * 8u + I] = fma(vec4<f32>(subgroupBroadcast(a_in[H], I)), b_in, acc[H * 8u + I]);
//#end
//#else
//#repeat I 8
            acc[H * 8u + I] = fma(vec4<f32>(a[rows[H * 8u + I] + a_at]), b_in, acc[H * 8u + I]);
//#end
//#endif
//#end
        }
    }
//#endif
    let at = vec4<u32>(
        out_col(tile.split, cols.x),
        out_col(tile.split, cols.y),
        out_col(tile.split, cols.z),
        out_col(tile.split, cols.w),
    );
    // A loop whose length the compiler does not know: written out, the stores would be most of what it compiles.
//#repeat H OCTETS
    for (var r = 0u; r < 8u && tile.row + H * 8u + r < g.m; r++) {
        var sum = acc[H * 8u];
//#repeat I 8
        sum = select(sum, acc[H * 8u + I], vec4<bool>(r == I));
//#end
        let row = out_row(tile.batch, tile.row + H * 8u + r);
//#if OUT_QUAD
        out[(row + at.x) >> 2u] = quad_of(bitcast<vec4<u32>>(sum));
//#else
        out[row + at.x] = sum.x;
        out[row + at.y] = sum.y;
        out[row + at.z] = sum.z;
        out[row + at.w] = sum.w;
//#endif
    }
//#end
}
//#endif
