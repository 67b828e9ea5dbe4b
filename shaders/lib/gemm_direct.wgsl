// The matrix product without workgroup memory: for software adapters, where barriers are expensive, and for small
// products on GPUs. LANES invocations compute a tile of ROWS rows and 4 * LANES * COL_BLOCKS columns; each computes
// COL_BLOCKS groups of four columns, 4 * LANES apart. A workgroup computes TILES tiles. ROWS is 8 * ROW_BLOCKS.
// WIDE: with VEC4 and without SUBGROUP, COL_BLOCKS is more than 1.
// lib/gemm lists what the including shader must define.
// SUBGROUP: the workgroup is a subgroup of eight, whose lanes are numbered by local index. Each lane loads one of
// eight rows of a, and broadcasts share them. Otherwise every invocation loads all rows.
//#include "lib/gemm"

const ROWS: u32 = 8u;
const ROW_BLOCKS: u32 = 1u;
const COL_BLOCKS: u32 = 1u;
const LANES: u32 = 8u;
const TILES: u32 = 1u;
const WORKGROUP_SIZE: u32 = LANES * TILES;
// The steps of k that an iteration takes.
//#if VEC4
const STEP: u32 = 4u;
//#else
const STEP: u32 = 1u;
//#endif

// A local array of vec4<u32> would have the type of the words in the parameters, whose layout is not valid for locals.
struct Columns {
    of_block: vec4<u32>,
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let g = p.gemm;
//#if SUBGROUP
    // The same for all lanes, as broadcasts require.
    let index = group_index(group, groups);
//#else
    let index = group_index(group, groups) * TILES + local_index / LANES;
//#endif
    if (index >= g.tiles) { return; }
    let tile = tile_of(index, ROWS, LANES * 4u * COL_BLOCKS);
    begin(tile.batch);
    let last_row = g.m - 1u;
    // Columns past the edge repeat the last ones and store the same values again.
    let last_cols = max(g.n, 4u) - 4u;
    var cols: array<Columns, COL_BLOCKS>;
    // [ROWS, COL_BLOCKS], row-major.
    var acc: array<vec4<f32>, ROWS * COL_BLOCKS>;
//#repeat C COL_BLOCKS
    {
        let first_col = tile.col + (C * LANES + local_index % LANES) * 4u;
        let block = min(min(first_col, last_cols) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(g.n - 1u));
        let bias4 = vec4<f32>(bias_at(block.x), bias_at(block.y), bias_at(block.z), bias_at(block.w));
        cols[C].of_block = block;
//#repeat R ROWS
        acc[R * COL_BLOCKS + C] = bias4;
//#end
    }
//#end
    // The offsets of the rows of a that this invocation loads: its row of each block, or all rows.
//#if SUBGROUP
    var rows: array<u32, ROW_BLOCKS>;
//#repeat H ROW_BLOCKS
    rows[H] = a_row_offset(min(tile.row + H * 8u + local_index, last_row));
//#end
//#else
    var rows: array<u32, ROWS>;
//#repeat R ROWS
    rows[R] = a_row_offset(min(tile.row + R, last_row));
//#end
//#endif
//#if VEC4
    var b_cols: array<u32, COL_BLOCKS>;
//#repeat C COL_BLOCKS
    b_cols[C] = b_col_offset(cols[C].of_block.x);
//#end
//#else
    let b_cols = vec4<u32>(
        b_col_offset(cols[0].of_block.x),
        b_col_offset(cols[0].of_block.y),
        b_col_offset(cols[0].of_block.z),
        b_col_offset(cols[0].of_block.w),
    );
//#endif
    let o_end = min((tile.split + 1u) * g.outer_per_split, g.outer);
    var o = tile.split * g.outer_per_split;
    var a_start = 0u;
    var b_start = 0u;
    var steps = 0u;
    // The runs and their steps are one loop. Of two, the outer one would copy all sums at each of its turns, on
    // adapters that keep them in memory.
    for (var i = 0u; ; i += STEP) {
        if (i >= steps) {
            if (o >= o_end) { break; }
            a_start = a_run_offset(o);
            b_start = b_run_offset(o);
            steps = min(g.inner, g.k - o * g.inner);
            i = 0u;
            o++;
        }
//#if VEC4
//#if !WIDE
        var b_in: array<vec4<f32>, 4>;
//#repeat U 4
        b_in[U] = to_floats(b[(b_cols[0] + b_start + (i + U) * g.b_step) >> 2u]);
//#end
//#endif
//#if SUBGROUP
        var a_in: array<vec4<f32>, ROW_BLOCKS>;
//#repeat H ROW_BLOCKS
        a_in[H] = to_floats(a[(rows[H] + a_start + i) >> 2u]);
//#end
//#repeat H ROW_BLOCKS
//#repeat I 8
//#repeat U 4
        acc[H * 8u + I] = fma(vec4<f32>(subgroupBroadcast(a_in[H][U], I)), b_in[U], acc[H * 8u + I]);
//#end
//#end
//#end
//#endif
//#if !SUBGROUP !WIDE
//#repeat R ROWS
        {
            let a_in = to_floats(a[(rows[R] + a_start + i) >> 2u]);
//#repeat U 4
            acc[R] = fma(vec4<f32>(a_in[U]), b_in[U], acc[R]);
//#end
        }
//#end
//#endif
//#if WIDE
        var a_in: array<vec4<f32>, ROWS>;
//#repeat R ROWS
        a_in[R] = to_floats(a[(rows[R] + a_start + i) >> 2u]);
//#end
//#repeat C COL_BLOCKS
        {
            let b_at = b_cols[C] + b_start + i * g.b_step;
            let b_0 = to_floats(b[b_at >> 2u]);
            let b_1 = to_floats(b[(b_at + g.b_step) >> 2u]);
            let b_2 = to_floats(b[(b_at + 2u * g.b_step) >> 2u]);
            let b_3 = to_floats(b[(b_at + 3u * g.b_step) >> 2u]);
            // Without variables, which some adapters keep in memory.
//#repeat R ROWS
            {
                let row = a_in[R];
                let sum = fma(vec4<f32>(row.x), b_0, acc[R * COL_BLOCKS + C]);
                acc[R * COL_BLOCKS + C] =
                    fma(vec4<f32>(row.w), b_3, fma(vec4<f32>(row.z), b_2, fma(vec4<f32>(row.y), b_1, sum)));
            }
//#end
        }
//#end
//#endif
//#else
        let b_offsets = b_cols + b_start + i * g.b_step;
        let b_in = vec4<f32>(b[b_offsets.x], b[b_offsets.y], b[b_offsets.z], b[b_offsets.w]);
        let a_offset = a_start + i * g.a_step;
//#if SUBGROUP
        var a_in: array<f32, ROW_BLOCKS>;
//#repeat H ROW_BLOCKS
        a_in[H] = a[rows[H] + a_offset];
//#repeat I 8
        acc[H * 8u + I] = fma(vec4<f32>(subgroupBroadcast(a_in[H], I)), b_in, acc[H * 8u + I]);
//#end
//#end
//#else
//#repeat R ROWS
        acc[R] = fma(vec4<f32>(a[rows[R] + a_offset]), b_in, acc[R]);
//#end
//#endif
//#endif
    }
//#repeat C COL_BLOCKS
    {
        let out_cols = vec4<u32>(
            out_col_offset(tile.split, cols[C].of_block.x),
            out_col_offset(tile.split, cols[C].of_block.y),
            out_col_offset(tile.split, cols[C].of_block.z),
            out_col_offset(tile.split, cols[C].of_block.w),
        );
        // Not unrolled: the stores would be most of the code that the adapter compiles.
//#repeat H ROW_BLOCKS
        for (var r = 0u; r < 8u && tile.row + H * 8u + r < g.m; r++) {
            var sum = acc[H * 8u * COL_BLOCKS + C];
//#repeat I 8
            sum = select(sum, acc[(H * 8u + I) * COL_BLOCKS + C], vec4<bool>(r == I));
//#end
            let row_start = out_row_offset(tile.batch, tile.row + H * 8u + r);
//#if OUT_VEC4
            out[(row_start + out_cols.x) >> 2u] = from_words(bitcast<vec4<u32>>(sum));
//#else
            out[row_start + out_cols.x] = sum.x;
            out[row_start + out_cols.y] = sum.y;
            out[row_start + out_cols.z] = sum.z;
            out[row_start + out_cols.w] = sum.w;
//#endif
        }
//#end
    }
//#end
}
