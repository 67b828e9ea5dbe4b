// attention_backward: the gradients of attention with respect to q, or with KEYS with respect to k and v: see
// lib/attention_backward.
// Rounds: fewer than width + value_width + 64 for each block of TILE other rows.
//
// A workgroup computes TILE rows of q_grad, or with KEYS of k_grad and v_grad: its own rows. It goes over the other
// rows, the keys or with KEYS the queries, in blocks of TILE. In each block it first computes d and weight of all
// pairs of rows. They then go through workgroup memory, and each invocation adds to COLS vec4 columns of the own rows
// of its team, with other rows read directly.
//#include "lib/grid"
//#include "lib/attention_tile"
//#include "lib/attention_backward"

// Vec4 columns per invocation.
const COLS: u32 = 1u;

//#if KEYS
@group(0) @binding(auto) var<storage, read_write> k_grad: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read_write> v_grad: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> q_grad: array<vec4<f32>>;
//#endif

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.workgroups) { return; }
    let col_block = index % p.col_blocks;
    let row0 = index / p.col_blocks % p.row_blocks * TILE;
    let matrix = index / p.col_blocks / p.row_blocks;
    let batch = matrix / p.heads;
    let head = matrix % p.heads;
    let own_at = own_rows(batch, head);
    let other_at = other_rows(batch, head);
    let range = other_range(row0, row0 + TILE);
    let end = range.y;
    let lane = local_index % LANES;
    let team = local_index / LANES;
    let first_col = col_block * COLS * LANES + lane;
    // Rows past the edge repeat the last one. Their weights are zero, or they are not stored.
    let own_row = own_at.starts + min(row0 + staged_row(local_index), own_count() - 1u) * own_at.strides;
    var acc: array<vec4<f32>, 4u * COLS>;
//#if KEYS
    var value_acc: array<vec4<f32>, 4u * COLS>;
//#endif
    for (var other0 = range.x; other0 < end; other0 += TILE) {
        let other_row = other_at.starts + min(other0 + staged_row(local_index), end - 1u) * other_at.strides;
        // Of the four own rows with each other row of this lane.
        var products: array<vec4<f32>, 4>;
        var value_products: array<vec4<f32>, 4>;
        for (var e0 = 0u; e0 < p.width; e0 += STEP) {
            let e = e0 + staged_col(local_index);
            // Columns past the last one are zero.
            let is_col = e < p.width;
            let col = min(e, p.width - 1u);
            stage(
                local_index,
                select(vec4<f32>(), own(own_row.x + col), is_col),
                select(vec4<f32>(), other(other_row.x + col), is_col),
            );
            add_products(&products, team, lane);
        }
        for (var e0 = 0u; e0 < p.value_width; e0 += STEP) {
            let e = e0 + staged_col(local_index);
            let is_col = e < p.value_width;
            let col = min(e, p.value_width - 1u);
            stage(
                local_index,
                select(vec4<f32>(), beside_own(own_row.y + col), is_col),
                select(vec4<f32>(), beside_other(other_row.y + col), is_col),
            );
            add_products(&value_products, team, lane);
        }
        // They become d and weights. Those of each other row go through the first place, which keeps the code short.
        for (var n = 0u; n < 4u; n++) {
            let other_index = other0 + n * LANES + lane;
//#if KEYS
            let of_query = stats_of(matrix, other_index);
//#else
            // Loaded again for each block: they would fill registers.
            var row_stats: array<vec3<f32>, 4>;
//#repeat I 4
            row_stats[I] = stats_of(matrix, row0 + team * 4u + I);
//#end
//#endif
            let own_indices = row0 + team * 4u + vec4<u32>(0u, 1u, 2u, 3u);
//#if KEYS
            let log_sums = LogSums(vec4<f32>(of_query.x), vec4<f32>(of_query.y));
            let means = vec4<f32>(of_query.z);
//#else
            let log_sums = LogSums(
                vec4<f32>(row_stats[0u].x, row_stats[1u].x, row_stats[2u].x, row_stats[3u].x),
                vec4<f32>(row_stats[0u].y, row_stats[1u].y, row_stats[2u].y, row_stats[3u].y),
            );
            let means = vec4<f32>(row_stats[0u].z, row_stats[1u].z, row_stats[2u].z, row_stats[3u].z);
//#endif
            let both = weigh(products[0u], log_sums, batch, head, own_indices, vec4<u32>(other_index));
            let d = both.sloped * (value_products[0u] - means) * p.scale;
//#repeat N 3
            products[N] = products[N + 1u];
            value_products[N] = value_products[N + 1u];
//#end
            products[3u] = d;
            value_products[3u] = both.weights;
        }
        let other_count = min(TILE, end - other0);
//#if KEYS
        // The staged columns may still be read.
        workgroupBarrier();
        store_weights(value_products, team, lane);
        workgroupBarrier();
        for (var j0 = 0u; j0 < other_count; j0 += 4u) {
//#repeat K 4
            {
                let row = other_at.starts.y + min(other0 + j0 + K, end - 1u) * other_at.strides.y;
                let weights_of_rows = weights_of(j0 + K, team);
//#repeat C COLS
                {
                    let x = beside_other(row + min(first_col + C * LANES, p.value_width - 1u));
//#repeat I 4
                    value_acc[I * COLS + C] += weights_of_rows[I] * x;
//#end
                }
//#end
            }
//#end
        }
//#endif
        // The staged columns or the weights may still be read.
        workgroupBarrier();
        store_weights(products, team, lane);
        workgroupBarrier();
        for (var j0 = 0u; j0 < other_count; j0 += 4u) {
//#repeat K 4
            {
                let row = other_at.starts.x + min(other0 + j0 + K, end - 1u) * other_at.strides.x;
                let d_of_rows = weights_of(j0 + K, team);
//#repeat C COLS
                {
                    let x = other(row + min(first_col + C * LANES, p.width - 1u));
//#repeat I 4
                    acc[I * COLS + C] += d_of_rows[I] * x;
//#end
                }
//#end
            }
//#end
        }
    }
//#repeat I 4
    {
        let row = row0 + team * 4u + I;
        if (row < own_count()) {
            let i = matrix * own_count() + row;
//#repeat C COLS
            {
                let col = first_col + C * LANES;
//#if KEYS
                if (col < p.width) { k_grad[i * p.width + col] = acc[I * COLS + C]; }
                if (col < p.value_width) { v_grad[i * p.value_width + col] = value_acc[I * COLS + C]; }
//#else
                if (col < p.width) { q_grad[i * p.width + col] = acc[I * COLS + C]; }
//#endif
            }
//#end
        }
    }
//#end
}
//#use "lib/math"
