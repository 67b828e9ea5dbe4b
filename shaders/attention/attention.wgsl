// attention: softmax(q @ k^T) @ v for few queries or on software adapters; its operands are those of lib/attention.
// Rounds: those of a key block, about 2 (width + value_width) + WORKGROUP_SIZE + 64, for each of its key blocks.
//
// Keys are processed in blocks of WORKGROUP_SIZE. Each workgroup computes ROWS rows. In each block, an invocation
// first computes the scores of one key for every row. Then it adds to COLS vec4 columns of the rows of its team. That
// takes the weights of all invocations, which are exchanged through workgroup memory.
// SUBGROUP: the workgroup is one subgroup of eight, whose lanes are numbered by local index. Shuffles
// exchange the weights without a barrier.
// STAGED: the queries, which have MAX_STAGED vec4s at most, are read once, into workgroup memory. So the kernel may
// compute them.
//#include "lib/grid"
//#include "lib/attention"

const WORKGROUP_SIZE: u32 = 64u;
const ROWS: u32 = 8u;
// Vec4 columns per invocation.
const COLS: u32 = 1u;
// The invocations that cover the columns of a row.
const TEAM_SIZE: u32 = 16u;
// ROWS / (WORKGROUP_SIZE / TEAM_SIZE).
const ROWS_PER_TEAM: u32 = 2u;

//#if STAGED
const MAX_STAGED: u32 = 32u;
// The queries of the rows: [ROWS, p.width].
var<workgroup> staged: array<vec4<f32>, ROWS * MAX_STAGED>;
//#endif

//#if !SUBGROUP
// The invocations that compute the weights of a row from its scores.
const SOFTMAX_SIZE: u32 = WORKGROUP_SIZE / ROWS;
// The scores of the block of keys, later the weights: [WORKGROUP_SIZE, ROWS].
var<workgroup> weights: array<f32, WORKGROUP_SIZE * ROWS>;
// What each invocation contributes to the maximum or the sum of its row.
var<workgroup> partials: array<f32, WORKGROUP_SIZE>;
var<workgroup> rescales: array<f32, ROWS>;
//#endif

//#if SUBGROUP
// Reductions over the eight lanes. On software adapters, subgroupMax and subgroupAdd take longer to compile.
fn subgroup_max(x: f32) -> f32 {
    var y = max(x, subgroupShuffleXor(x, 1u));
    y = max(y, subgroupShuffleXor(y, 2u));
    return max(y, subgroupShuffleXor(y, 4u));
}

fn subgroup_sum(x: f32) -> f32 {
    var y = x + subgroupShuffleXor(x, 1u);
    y += subgroupShuffleXor(y, 2u);
    return y + subgroupShuffleXor(y, 4u);
}
//#endif

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
    let row0 = work.row_block * ROWS;
    // Rows and columns past the edge repeat the last ones and store the same values again.
    let last_row = p.queries - 1u;
    // The first row of the invocation's team, from row0.
    let team_row = local_index / TEAM_SIZE * ROWS_PER_TEAM;
    let q_start = start_of(p.q, batch, head);
    let k_start = start_of(p.k, batch, head);
    let v_start = start_of(p.v, batch, head);
    var cols: array<u32, COLS>;
//#repeat J COLS
    cols[J] = min((work.col_block * COLS + J) * TEAM_SIZE + local_index % TEAM_SIZE, p.value_width - 1u);
//#end
    let end = end_of(work.split, row0 + ROWS);
//#if STAGED
    for (var i = local_index; i < ROWS * p.width; i += WORKGROUP_SIZE) {
        staged[i] = q[q_start + min(row0 + i / p.width, last_row) * p.q.row_stride + i % p.width];
    }
    workgroupBarrier();
//#endif
    var acc: array<vec4<f32>, ROWS_PER_TEAM * COLS>;
//#if SUBGROUP
    var maxima: array<f32, ROWS>;
    var sums: array<f32, ROWS>;
//#repeat I ROWS
    maxima[I] = -inf();
//#end
//#else
    // SOFTMAX_SIZE invocations turn the scores of a row into weights: the row, and the index among them.
    let softmax_row = local_index / SOFTMAX_SIZE;
    let softmax_index = local_index % SOFTMAX_SIZE;
    var old_max = -inf();
    var row_sum = 0.0;
//#endif
    for (var key0 = work.split * p.keys_per_split; key0 < end; key0 += WORKGROUP_SIZE) {
        let key = key0 + local_index;
        let k_row = k_start + min(key, p.keys - 1u) * p.k.row_stride;
        let keys = min(WORKGROUP_SIZE, end - key0);
        var scores: array<f32, ROWS>;
//#repeat I ROWS
        scores[I] = 0.0;
//#end
//#if SUBGROUP
        for (var e0 = 0u; e0 < p.width; e0 += WORKGROUP_SIZE) {
            // Each lane loads one of eight vec4s of every query.
            var q_vec4s: array<vec4<f32>, ROWS>;
            let q_col = q_start + min(e0 + local_index, p.width - 1u);
//#repeat I ROWS
            q_vec4s[I] = to_floats(q[q_col + min(row0 + I, last_row) * p.q.row_stride]);
//#end
            let vec4s = min(WORKGROUP_SIZE, p.width - e0);
            for (var e = 0u; e < vec4s; e++) {
                let k_vec4 = to_floats(k[k_row + e0 + e]);
//#repeat I ROWS
                scores[I] += dot(subgroupShuffle(q_vec4s[I], e), k_vec4);
//#end
            }
        }
//#else
        for (var e = 0u; e < p.width; e++) {
            let k_vec4 = to_floats(k[k_row + e]);
//#repeat I ROWS
//#if STAGED
            scores[I] += dot(staged[I * p.width + e], k_vec4);
//#else
            scores[I] +=
                dot(to_floats(q[q_start + min(row0 + I, last_row) * p.q.row_stride + e]), k_vec4);
//#endif
//#end
        }
//#endif
        // ROWS is 8.
//#repeat N 2
        {
            let queries = row0 + N * 4u + vec4<u32>(0u, 1u, 2u, 3u);
            var of_rows: vec4<f32>;
//#repeat I 4
            of_rows[I] = scores[N * 4u + I];
//#end
            of_rows = scores_of(of_rows, batch, head, queries, vec4<u32>(key));
            of_rows = hide(of_rows, vec4<u32>(key), key_ends(queries));
//#repeat I 4
            scores[N * 4u + I] = of_rows[I];
//#end
        }
//#end
//#if SUBGROUP
//#repeat I ROWS
        {
            let row_max = max(maxima[I], subgroup_max(scores[I]));
            let rescale = exp_(maxima[I] - softmax_shift(row_max));
            scores[I] = exp_(scores[I] - softmax_shift(row_max));
            sums[I] = sums[I] * rescale + scores[I];
            maxima[I] = row_max;
//#repeat J COLS
            acc[I * COLS + J] *= rescale;
//#end
        }
//#end
//#else
        // The weights of the previous block may still be read.
        workgroupBarrier();
//#repeat I ROWS
        weights[local_index * ROWS + I] = scores[I];
//#end
        workgroupBarrier();
        var row_max = old_max;
        for (var j = softmax_index; j < WORKGROUP_SIZE; j += SOFTMAX_SIZE) {
            row_max = max(row_max, weights[j * ROWS + softmax_row]);
        }
        partials[local_index] = row_max;
        workgroupBarrier();
        for (var j = 0u; j < SOFTMAX_SIZE; j++) {
            row_max = max(row_max, partials[softmax_row * SOFTMAX_SIZE + j]);
        }
        let rescale = exp_(old_max - softmax_shift(row_max));
        row_sum *= rescale;
        old_max = row_max;
        for (var j = softmax_index; j < WORKGROUP_SIZE; j += SOFTMAX_SIZE) {
            let weight = exp_(weights[j * ROWS + softmax_row] - softmax_shift(row_max));
            weights[j * ROWS + softmax_row] = weight;
            row_sum += weight;
        }
        if (softmax_index == 0u) { rescales[softmax_row] = rescale; }
        workgroupBarrier();
//#repeat I ROWS_PER_TEAM
//#repeat J COLS
        acc[I * COLS + J] *= rescales[team_row + I];
//#end
//#end
//#endif
        for (var j = 0u; j < keys; j++) {
            let v_row = v_start + (key0 + j) * p.v.row_stride;
            var v_vec4s: array<vec4<f32>, COLS>;
//#repeat J COLS
            v_vec4s[J] = to_floats(v[v_row + cols[J]]);
//#end
//#repeat I ROWS_PER_TEAM
            {
//#if SUBGROUP
                let weight = subgroupShuffle(scores[I], j);
//#else
                let weight = weights[j * ROWS + team_row + I];
//#endif
//#repeat J COLS
                acc[I * COLS + J] += weight * v_vec4s[J];
//#end
            }
//#end
        }
    }
//#if !SUBGROUP
    partials[local_index] = row_sum;
    workgroupBarrier();
//#if LOG_SUMS
    if (softmax_index == 0u && work.col_block == 0u && row0 + softmax_row <= last_row) {
        var sum = 0.0;
        for (var j = 0u; j < SOFTMAX_SIZE; j++) { sum += partials[softmax_row * SOFTMAX_SIZE + j]; }
        store_log_sum(result_row(work, row0 + softmax_row), work.splits, old_max, sum);
    }
//#endif
//#endif
//#repeat I ROWS_PER_TEAM
    {
//#if SUBGROUP
        let sum = subgroup_sum(sums[I]);
//#if LOG_SUMS
        if (local_index == 0u && work.col_block == 0u) {
            store_log_sum(result_row(work, min(row0 + I, last_row)), work.splits, maxima[I], sum);
        }
//#endif
//#else
        var sum = 0.0;
        for (var j = 0u; j < SOFTMAX_SIZE; j++) { sum += partials[(team_row + I) * SOFTMAX_SIZE + j]; }
//#endif
        let scale = select(1.0 / sum, 0.0, sum == 0.0);
        let out_start = result_row(work, min(row0 + team_row + I, last_row)) * p.value_width;
//#repeat J COLS
        out[out_start + cols[J]] = acc[I * COLS + J] * scale;
//#end
    }
//#end
}
//#use "lib/math"
