// attention_tiled: softmax(q @ k^T) @ v for many queries; its operands are those of lib/attention.
// Rounds: about 2 (width + value_width) + 128 for each of its blocks of TILE keys.
//
// A workgroup computes TILE rows, and goes over the keys in blocks of TILE. In each block it first multiplies queries
// and keys. The weights then go through workgroup memory, and each invocation adds to COLS vec4 columns of the rows of
// its team, with values read directly.
//#include "lib/grid"
//#include "lib/attention"
//#include "lib/attention_tile"

// Vec4 columns of the result per invocation.
const COLS: u32 = 1u;

// The sums of an invocation: column J of row I of its team is acc[I * COLS + J].
alias Sums = array<vec4<f32>, 4u * COLS>;

// Adds the value that starts at `row`, with the weights of the four rows.
fn add_value(acc: ptr<function, Sums>, row: u32, cols: array<u32, COLS>, weights: vec4<f32>) {
//#repeat J COLS
    {
        let value = v[row + cols[J]];
//#repeat I 4
        (*acc)[I * COLS + J] += weights[I] * value;
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
    let index = group_index(group, groups);
    if (index >= p.workgroups) { return; }
    let work = work_of(index);
    let batch = work.batch;
    let head = work.head;
    let row0 = work.row_block * TILE;
    // Rows and keys past the edge repeat the last ones. Values do not: with a weight of 0, inf would be NaN.
    let last_row = p.queries - 1u;
    let last_key = p.keys - 1u;
    let q_start = start_of(p.q, batch, head);
    let k_start = start_of(p.k, batch, head);
    let v_start = start_of(p.v, batch, head);
    let lane = local_index % LANES;
    let team = local_index / LANES;
    var cols: array<u32, COLS>;
//#repeat J COLS
    cols[J] = min((work.col_block * COLS + J) * LANES + lane, p.value_width - 1u);
//#end
    let q_row = q_start + min(row0 + staged_row(local_index), last_row) * p.q.row_stride;
    var acc: Sums;
    // Of the four rows. The sums are of this lane's keys.
    var maxima = vec4<f32>(-inf());
    var sums = vec4<f32>();
    let end = end_of(work.split, row0 + TILE);
    for (var key0 = work.split * p.keys_per_split; key0 < end; key0 += TILE) {
        let k_row = k_start + min(key0 + staged_row(local_index), last_key) * p.k.row_stride;
        // Scores of the rows with each of the keys lane, lane + LANES, and so on.
        var scores: array<vec4<f32>, 4>;
        for (var e0 = 0u; e0 < p.width; e0 += STEP) {
            let e = e0 + staged_col(local_index);
            // Columns past the last one are zero.
            let is_col = e < p.width;
            let col = min(e, p.width - 1u);
            let query = select(vec4<f32>(), q[q_row + col], is_col);
            stage(local_index, query, select(vec4<f32>(), k[k_row + col], is_col));
            add_products(&scores, team, lane);
        }
        let queries = row0 + team * 4u + vec4<u32>(0u, 1u, 2u, 3u);
//#if BIASED
        // Rotates the array, so that the loop indexes it by constants although it is not unrolled.
        for (var n = 0u; n < 4u; n++) {
            let keys = vec4<u32>(key0 + n * LANES + lane);
            let of_key = hide(scores_of(scores[0u], batch, head, queries, keys), keys, key_ends(queries));
            scores[0u] = scores[1u];
            scores[1u] = scores[2u];
            scores[2u] = scores[3u];
            scores[3u] = of_key;
        }
//#else
        let ends = key_ends(queries);
//#repeat N 4
        {
            let keys = vec4<u32>(key0 + N * LANES + lane);
            scores[N] = hide(scores_of(scores[N], batch, head, queries, keys), keys, ends);
        }
//#end
//#endif
        tile[FREE_AT + local_index] = max(max(scores[0u], scores[1u]), max(scores[2u], scores[3u]));
        workgroupBarrier();
        var maximum = maxima;
        for (var j = 0u; j < LANES; j++) { maximum = max(maximum, tile[FREE_AT + team * LANES + j]); }
        let shift = vec4<f32>(
            softmax_shift(maximum.x), softmax_shift(maximum.y), softmax_shift(maximum.z), softmax_shift(maximum.w),
        );
        let rescale = exp4(maxima - shift);
        maxima = maximum;
        sums *= rescale;
//#repeat I 4
//#repeat J COLS
        acc[I * COLS + J] *= rescale[I];
//#end
//#end
//#repeat N 4
        scores[N] = exp4(scores[N] - shift);
        sums += scores[N];
//#end
        // The maxima may still be read.
        workgroupBarrier();
        store_weights(scores, team, lane);
        workgroupBarrier();
        let keys = min(TILE, end - key0);
        let v_rows = v_start + key0 * p.v.row_stride;
        let in_fours = keys & ~3u;
        for (var j = 0u; j < in_fours; j += 4u) {
//#repeat K 4
            add_value(&acc, v_rows + (j + K) * p.v.row_stride, cols, weights_of(j + K, team));
//#end
        }
        for (var j = in_fours; j < keys; j++) {
            add_value(&acc, v_rows + j * p.v.row_stride, cols, weights_of(j, team));
        }
    }
    // The weights may still be read.
    workgroupBarrier();
    tile[local_index] = sums;
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var j = 0u; j < LANES; j++) { sum += tile[team * LANES + j]; }
//#repeat I 4
    if (row0 + team * 4u + I <= last_row) {
        let row = result_row(work, row0 + team * 4u + I);
        let scale = select(1.0 / sum[I], 0.0, sum[I] == 0.0);
//#repeat J COLS
        // Lanes past the edge store the last column again.
        out[row * p.value_width + cols[J]] = acc[I * COLS + J] * scale;
//#end
//#if LOG_SUMS
        if (lane == 0u && work.col_block == 0u) { store_log_sum(row, work.splits, maxima[I], sum[I]); }
//#endif
    }
//#end
}
//#use "lib/math"
