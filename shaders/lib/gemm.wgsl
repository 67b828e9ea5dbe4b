// The loop that matrix products and convolutions share: out[row, col] = sum over k of a[row, k] * b[k, col],
// for a batch of matrices. Who includes it says what a, b and out are, by defining
//   begin(batch), called once, a_at(row, k), Column + column(col), Inner + inner(k),
//   b_at(Inner, Column), store(batch, split, row, col, value), and a uniform p with `gemm: Gemm`.
// With B_QUAD it defines b_quad(k, col), four neighbouring columns in one load, instead of b_at.
// Two shapes: TILED for GPUs (64 x 64 tiles through workgroup memory, 4 x 4 per invocation), and the
// direct one for adapters where barriers are dear (ROWS x 4 per invocation, a read uniformly).
struct Gemm {
    m: u32,
    n: u32,
    k: u32,
    // k is cut into `splits` parts of `chunk`, each stored on its own.
    chunk: u32,
    splits: u32,
    row_tiles: u32,
    col_tiles: u32,
    tiles: u32,
}

//#if TILED
const STEP: u32 = 16u;
var<workgroup> a_tile: array<f32, 1088>;
var<workgroup> b_tile: array<f32, 1024>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let g = p.gemm;
    let tile = group_index(group, groups);
    if (tile >= g.tiles) { return; }
    let row0 = (tile % g.row_tiles) * 64u;
    let col0 = (tile / g.row_tiles % g.col_tiles) * 64u;
    let part = tile / g.row_tiles / g.col_tiles;
    let split = part % g.splits;
    let batch = part / g.splits;
    begin(batch);
    let k_end = min((split + 1u) * g.chunk, g.k);
    let my_row = (lane / 16u) * 4u;
    let my_col = (lane % 16u) * 4u;
    // The column whose elements of b this invocation brings in.
    let b_col = column(min(col0 + lane % 64u, g.n - 1u));
    var acc: array<vec4<f32>, 4>;
    for (var k0 = split * g.chunk; k0 < k_end; k0 += STEP) {
        for (var e = 0u; e < 4u; e++) {
            let at = lane + e * 256u;
//#if A_ACROSS
            let row = at % 64u;
            let ka = at / 64u;
//#else
            let row = at / 16u;
            let ka = at % 16u;
//#endif
            var a = 0.0;
            if (k0 + ka < k_end) {
                a = a_at(min(row0 + row, g.m - 1u), k0 + ka);
            }
            a_tile[ka * 68u + row] = a;
            let kb = lane / 64u + e * 4u;
            var b = 0.0;
            if (k0 + kb < k_end) {
                b = b_at(inner(k0 + kb), b_col);
            }
            b_tile[kb * 64u + lane % 64u] = b;
        }
        workgroupBarrier();
        for (var k = 0u; k < STEP; k++) {
            let bt = k * 64u + my_col;
            let b = vec4<f32>(b_tile[bt], b_tile[bt + 1u], b_tile[bt + 2u], b_tile[bt + 3u]);
            for (var i = 0u; i < 4u; i++) {
                acc[i] = fma(vec4<f32>(a_tile[k * 68u + my_row + i]), b, acc[i]);
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let row = row0 + my_row + i;
        for (var j = 0u; j < 4u; j++) {
            let col = col0 + my_col + j;
            if (row < g.m && col < g.n) {
                store(batch, split, row, col, acc[i][j]);
            }
        }
    }
}
//#else
const LANES: u32 = 8u;
const ROWS: u32 = 8u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let g = p.gemm;
    let tile = group_index(group, groups);
    if (tile >= g.tiles) { return; }
    // Rows first: the panel of b that neighbouring workgroups read stays in the cache.
    let row0 = (tile % g.row_tiles) * ROWS;
    let col0 = ((tile / g.row_tiles % g.col_tiles) * LANES + lane) * 4u;
    let part = tile / g.row_tiles / g.col_tiles;
    let split = part % g.splits;
    let batch = part / g.splits;
    begin(batch);
    let k_end = min((split + 1u) * g.chunk, g.k);
    let last = g.n - 1u;
//#if B_QUAD
    let b_col = min(col0, g.n - 4u);
//#else
    let c0 = column(min(col0, last));
    let c1 = column(min(col0 + 1u, last));
    let c2 = column(min(col0 + 2u, last));
    let c3 = column(min(col0 + 3u, last));
//#endif
    var acc: array<vec4<f32>, ROWS>;
    for (var k = split * g.chunk; k < k_end; k++) {
//#if B_QUAD
        let b = b_quad(k, b_col);
//#else
        let r = inner(k);
        let b = vec4<f32>(b_at(r, c0), b_at(r, c1), b_at(r, c2), b_at(r, c3));
//#endif
        for (var i = 0u; i < ROWS; i++) {
            acc[i] = fma(vec4<f32>(a_at(min(row0 + i, g.m - 1u), k)), b, acc[i]);
        }
    }
    for (var i = 0u; i < ROWS; i++) {
        for (var j = 0u; j < 4u; j++) {
            if (row0 + i < g.m && col0 + j < g.n) {
                store(batch, split, row0 + i, col0 + j, acc[i][j]);
            }
        }
    }
}
//#endif
