// The loop that matrix products and convolutions share: out[row, col] = sum over k of a[row, k] * b[k, col],
// for a batch of matrices. Who includes it says what a, b and out are, by defining
//   begin(batch), called once, a_at(row, k), Column + column(col), Inner + inner(k),
//   b_at(Inner, Column), bias_of_row(row), bias_of_col(col), where a result goes: `out` at
//   out_row(batch, row) + out_col(split, col), and a uniform p with `gemm: Gemm`.
// With B_QUAD it defines b_quad(k, col), four neighbouring columns in one load, instead of b_at; with
// A_QUAD a_quad(row, k), four steps of k in one load (k and its parts are multiples of four then); with OUT_QUAD four
// neighbouring columns are neighbours in `out`, which is of vec4.
// Two shapes: TILED for GPUs (64 x 64 tiles through workgroup memory, 4 x 4 per invocation), and the
// direct one for adapters where barriers are dear: a subgroup of eight lanes computes ROWS x 32, each lane
// bringing in one row in eight of a, which is spread by broadcasts (SUBGROUP), or read by all.
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
                out[out_row(batch, row) + out_col(split, col)] = acc[i][j] + bias_of_row(row) + bias_of_col(col);
            }
        }
    }
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
    let tile = group_index(group, groups);
    if (tile >= g.tiles) { return; }
    // Rows first: the panel of b that neighbouring workgroups read stays in the cache.
    let row0 = (tile % g.row_tiles) * ROWS;
    let col0 = ((tile / g.row_tiles % g.col_tiles) * 8u + lane) * 4u;
    let part = tile / g.row_tiles / g.col_tiles;
    let split = part % g.splits;
    let batch = part / g.splits;
    begin(batch);
    let k_end = min((split + 1u) * g.chunk, g.k);
    let last_row = g.m - 1u;
    // Past the edge, rows and columns repeat the last one: they write the same value once more.
//#if COL_QUAD
    let quad0 = min(col0, g.n - 4u);
    let cols = vec4<u32>(quad0, quad0 + 1u, quad0 + 2u, quad0 + 3u);
//#else
    let cols = min(vec4<u32>(col0, col0 + 1u, col0 + 2u, col0 + 3u), vec4<u32>(g.n - 1u));
//#endif
//#if !B_QUAD
    let c0 = column(cols.x);
    let c1 = column(cols.y);
    let c2 = column(cols.z);
    let c3 = column(cols.w);
//#endif
    let bias = vec4<f32>(bias_of_col(cols.x), bias_of_col(cols.y), bias_of_col(cols.z), bias_of_col(cols.w));
    var acc: array<vec4<f32>, ROWS>;
//#repeat H OCTETS
//#repeat I 8
    acc[H * 8 + I] = bias + bias_of_row(min(row0 + H * 8u + I, last_row));
//#end
//#end
//#if A_QUAD
    var a: array<vec4<f32>, OCTETS>;
    // Four steps of k at once: each lane brings in four elements of one row in eight.
    for (var k = split * g.chunk; k < k_end; k += 4u) {
//#repeat H OCTETS
        a[H] = a_quad(min(row0 + H * 8u + lane, last_row), k);
//#end
//#repeat U 4
        {
//#if B_QUAD
            let b = b_quad(k + U, quad0);
//#else
            let r = inner(k + U);
            let b = vec4<f32>(b_at(r, c0), b_at(r, c1), b_at(r, c2), b_at(r, c3));
//#endif
//#repeat H OCTETS
//#repeat I 8
            acc[H * 8 + I] = fma(vec4<f32>(subgroupBroadcast(a[H][U], I)), b, acc[H * 8 + I]);
//#end
//#end
        }
//#end
    }
//#else
    var a: array<f32, OCTETS>;
    for (var k = split * g.chunk; k < k_end; k++) {
//#if B_QUAD
        let b = b_quad(k, quad0);
//#else
        let r = inner(k);
        let b = vec4<f32>(b_at(r, c0), b_at(r, c1), b_at(r, c2), b_at(r, c3));
//#endif
//#repeat H OCTETS
//#if SUBGROUP
        a[H] = a_at(min(row0 + H * 8u + lane, last_row), k);
//#repeat I 8
        acc[H * 8 + I] = fma(vec4<f32>(subgroupBroadcast(a[H], I)), b, acc[H * 8 + I]);
//#end
//#else
//#repeat I 8
        acc[H * 8 + I] = fma(vec4<f32>(a_at(min(row0 + H * 8u + I, last_row), k)), b, acc[H * 8 + I]);
//#end
//#endif
//#end
    }
//#endif
//#if OUT_QUAD
    let at = out_col(split, cols.x);
//#repeat H OCTETS
//#repeat I 8
    out[(out_row(batch, min(row0 + H * 8u + I, last_row)) + at) >> 2u] = acc[H * 8 + I];
//#end
//#end
//#else
    let at = vec4<u32>(out_col(split, cols.x), out_col(split, cols.y), out_col(split, cols.z), out_col(split, cols.w));
//#repeat H OCTETS
//#repeat I 8
    {
        let row = out_row(batch, min(row0 + H * 8u + I, last_row));
        out[row + at.x] = acc[H * 8 + I].x;
        out[row + at.y] = acc[H * 8 + I].y;
        out[row + at.z] = acc[H * 8 + I].z;
        out[row + at.w] = acc[H * 8 + I].w;
    }
//#end
//#end
//#endif
}
//#endif
