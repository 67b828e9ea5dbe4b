// attention_units: softmax(q @ k^T) @ v for many queries with matrix units; its operands are those of lib/attention.
// Rounds: fewer than 128 for each of its blocks of keys.
//
// A workgroup of four subgroups computes TILE rows, each subgroup a quarter, and goes over the keys in blocks of
// BLOCK. The matrices of queries and of the result stay in registers, where single elements cannot be reached:
// scores, weights and scales go through workgroup memory.
//
// Weights are relative to a reference of their row. It follows the maximum only when weights become too large, since
// the result must go through memory to be scaled. (The idea is from T. Shah et al., FlashAttention-4, 2026.)
//#include "lib/grid"
//#include "lib/attention"
//#include "lib/attention_units"

// Values are beside keys.
const WEIGHTED_AT: u32 = BESIDE_AT;
// What the result of each row is multiplied by at the end.
var<workgroup> scales: array<f32, TILE>;
// Element 0 is the number of blocks of keys. Multiplication by units must be in uniform control flow, as naga
// understands it.
var<workgroup> round_count: Padded;
// Whether rows of each subgroup have a new reference.
var<workgroup> has_risen: array<u32, 4>;

// The largest weight is e^HEADROOM when a row gets a new reference: smaller ones are then still normal numbers in
// 16 bits. It gets another when a weight exceeds e^(HEADROOM + MAX_RISE), 2^15.
const HEADROOM: f32 = 5.5451775;
const MAX_RISE: f32 = 4.8520303;

// e^x.
fn weights_of(x: vec4<f32>) -> vec4<f32> {
//#if F16
    return exp_of_16_bits(x);
//#else
    return exp4(x);
//#endif
}

// The maximum, or the sum, over the lanes of a row.
fn row_max(x: f32) -> f32 {
    var y = x;
    for (var d = 1u; d < ROW_LANES; d *= 2u) { y = max(y, subgroupShuffleXor(y, d)); }
    return y;
}

fn row_sum(x: f32) -> f32 {
    var y = x;
    for (var d = 1u; d < ROW_LANES; d *= 2u) { y += subgroupShuffleXor(y, d); }
    return y;
}

// The scores of a row of the tile that this lane has a share of, with those of keys from `end` on hidden.
fn masked_scores(work: Work, row: u32, part: u32, key0: u32, end: u32) -> array<vec4<f32>, LANE_VEC4S> {
    let query = vec4<u32>(work.row_block * TILE + row);
    var of_row: array<vec4<f32>, LANE_VEC4S>;
//#repeat N LANE_VEC4S
    {
        let col = (N * ROW_LANES + part) * 4u;
        let keys = key0 + col + vec4<u32>(0u, 1u, 2u, 3u);
        of_row[N] = scores_of(scores_at(row, col), work.batch, work.head, query, keys);
    }
//#end
    if (key0 + BLOCK > end) {
//#repeat N LANE_VEC4S
        {
            let keys = key0 + (N * ROW_LANES + part) * 4u + vec4<u32>(0u, 1u, 2u, 3u);
            of_row[N] = hide(of_row[N], keys, vec4<u32>(end));
        }
//#end
    }
    return of_row;
}

struct Weighed {
    reference: f32,
    // Whether the reference is new, and what sums and results so far are multiplied by.
    rises: bool,
    rescale: f32,
    // The sum of the lane's weights.
    sum: f32,
}

// Stores the weights of the scores of a lane.
fn weigh(of_row: array<vec4<f32>, LANE_VEC4S>, row: u32, part: u32, old: f32) -> Weighed {
    var maximum4 = of_row[0u];
//#repeat N LANE_VEC4S
    maximum4 = max(maximum4, of_row[N]);
//#end
    let maximum = row_max(max(max(maximum4.x, maximum4.y), max(maximum4.z, maximum4.w)));
    // The difference is exact near the limit, also where scores are large.
    let rises = maximum - old > HEADROOM + MAX_RISE;
    let reference = select(old, maximum - HEADROOM, rises);
    let shift = softmax_shift(reference);
    let rescale = select(1.0, weights_of(vec4<f32>(old - shift)).x, rises);
    var sum4 = vec4<f32>();
//#repeat N LANE_VEC4S
    sum4 += store_weights(row, (N * ROW_LANES + part) * 4u, weights_of(of_row[N] - shift));
//#end
    return Weighed(reference, rises, rescale, sum4.x + sum4.y + sum4.z + sum4.w);
}

// Multiplies rows of the result, which go through workgroup memory.
fn rescale(
    result: ptr<function, array<Sum, ROW_UNITS * WIDTH_UNITS>>,
    rescales: array<f32, LANE_ROWS>,
    sub_row: u32,
    lane_row: u32,
    part: u32,
) {
//#repeat C PARTS
    workgroupBarrier();
//#repeat N BLOCK_UNITS
//#repeat R ROW_UNITS
    {
        let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
        coopStoreT((*result)[R * WIDTH_UNITS + C * BLOCK_UNITS + N], &scores[start], SCORE_STRIDE);
    }
//#end
//#end
    workgroupBarrier();
//#repeat M LANE_ROWS
    for (var n = 0u; n < LANE_VEC4S; n++) {
        let row = lane_row + M * SUBGROUP_SIZE;
        let col = (n * ROW_LANES + part) * 4u;
        store_scores(row, col, scores_at(row, col) * rescales[M]);
    }
//#end
    workgroupBarrier();
//#repeat N BLOCK_UNITS
//#repeat R ROW_UNITS
    {
        let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
        (*result)[R * WIDTH_UNITS + C * BLOCK_UNITS + N] = coopLoadT<Sum>(&scores[start], SCORE_STRIDE);
    }
//#end
//#end
//#end
}

// Stores a subgroup's rows of the result below `row_count`, scaled.
fn store_result(
    result: ptr<function, array<Sum, ROW_UNITS * WIDTH_UNITS>>,
    work: Work,
    sub_row: u32,
    lane: u32,
    row_count: u32,
) {
    let row0 = work.row_block * TILE;
//#repeat C PARTS
    // The scores, or the columns before, may still be read.
    workgroupBarrier();
//#repeat N BLOCK_UNITS
//#repeat R ROW_UNITS
    {
        let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
        coopStoreT((*result)[R * WIDTH_UNITS + C * BLOCK_UNITS + N], &scores[start], SCORE_STRIDE);
    }
//#end
//#end
    workgroupBarrier();
    for (var i = lane / (BLOCK / 4u); i < ROWS; i += SUBGROUP_SIZE / (BLOCK / 4u)) {
        let row = sub_row + i;
        let col = lane % (BLOCK / 4u);
        let out_col = C * (BLOCK / 4u) + col;
        if (row0 + row < row_count && out_col < p.value_width) {
            out[result_row(work, row0 + row) * p.value_width + out_col] = scores_at(row, col * 4u) * scales[row];
        }
    }
//#end
}

// Stores NaN as the result of a workgroup.
fn store_nan(work: Work, local_index: u32) {
    for (var i = local_index; i < TILE * p.value_width; i += WORKGROUP_SIZE) {
        let row = work.row_block * TILE + i / p.value_width;
        if (row < p.queries) {
            out[result_row(work, row) * p.value_width + i % p.value_width] = vec4<f32>(nan());
        }
    }
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_size) subgroup_size: u32,
) {
    let index = group_index(group, groups);
    let is_tile = index < p.workgroups;
    let work = work_of(min(index, p.workgroups - 1u));
    let row0 = work.row_block * TILE;
    // Rows and keys past the edge repeat the last ones.
    let last_row = p.queries - 1u;
    let last_key = p.keys - 1u;
    let q_start = start_of(p.q, work.batch, work.head);
    let k_start = start_of(p.k, work.batch, work.head);
    let v_start = start_of(p.v, work.batch, work.head);
    let first_key = work.split * p.keys_per_split;
    if (local_index == 0u) {
        let end = end_of(work.split, row0 + TILE);
        round_count[0] = select(0u, (end - first_key + BLOCK - 1u) / BLOCK, end > first_key && is_tile);
    }
    let rounds = workgroupUniformLoad(&round_count)[0];
    let quarter = subgroup % 4u;
    let lane = subgroup_lane % SUBGROUP_SIZE;
    let sub_row = quarter * ROWS;
    // The first row of the tile that a lane has a share of, and its share.
    let lane_row = sub_row + lane / ROW_LANES;
    let part = lane % ROW_LANES;
    let load_row = local_index / (WIDTH / 4u) * LOADS;
    let load_col = local_index % (WIDTH / 4u);
    let is_key_col = load_col < p.width;
    let q_col = q_start + min(load_col, p.width - 1u);
    let k_col = k_start + min(load_col, p.width - 1u);
    let v_col = v_start + min(load_col, p.value_width - 1u);

//#repeat L LOADS
//#repeat H 2
    {
        let row = H * BLOCK + load_row + L;
        let loaded = q[q_col + min(row0 + row, last_row) * p.q.row_stride];
        store_row(row, load_col, select(Operand4(), loaded, is_key_col));
    }
//#end
//#end
    workgroupBarrier();
    var queries: array<Left, ROW_UNITS * WIDTH_UNITS>;
//#repeat R ROW_UNITS
//#repeat E WIDTH_UNITS
    {
        let start = (sub_row + R * UNIT) * STRIDE + E * UNIT;
        queries[R * WIDTH_UNITS + E] = coopLoadT<Left>(&rows[start], STRIDE);
    }
//#end
//#end

    var result: array<Sum, ROW_UNITS * WIDTH_UNITS>;
    // Of the rows of a lane. The sums are of this lane's keys.
    var references: array<f32, LANE_ROWS>;
    var sums: array<f32, LANE_ROWS>;
    var ends: array<u32, LANE_ROWS>;
//#repeat M LANE_ROWS
    references[M] = -inf();
    ends[M] = keys_end(row0 + lane_row + M * SUBGROUP_SIZE + 1u);
//#end
    var k_next: array<Operand4, LOADS>;
    var v_next: array<Operand4, LOADS>;
//#repeat L LOADS
    {
        let key = min(first_key + load_row + L, last_key);
        k_next[L] = k[k_col + key * p.k.row_stride];
        v_next[L] = v[v_col + key * p.v.row_stride];
    }
//#end
    for (var round = 0u; round < rounds; round++) {
        let key0 = first_key + round * BLOCK;
        // The queries, or the keys and values before, may still be read.
        workgroupBarrier();
        if (key0 + BLOCK > p.keys || !is_key_col) {
            // Columns past the last one are zero. So are values past the end: their weights are, and zero times inf
            // is NaN.
//#repeat L LOADS
            k_next[L] = select(Operand4(), k_next[L], is_key_col);
            v_next[L] = select(Operand4(), v_next[L], key0 + load_row + L < p.keys);
//#end
        }
//#repeat L LOADS
        store_row(load_row + L, load_col, k_next[L]);
//#if COLUMNS
        store_weighted(load_row + L, load_col, v_next[L]);
//#else
        store_row(BLOCK + load_row + L, load_col, v_next[L]);
//#endif
//#end
        workgroupBarrier();
        // The next loads are in flight while these keys are multiplied.
//#repeat L LOADS
        {
            let key = min(key0 + BLOCK + load_row + L, last_key);
            k_next[L] = k[k_col + key * p.k.row_stride];
            v_next[L] = v[v_col + key * p.v.row_stride];
        }
//#end
        store_products(&queries, 0u, sub_row);
        workgroupBarrier();
        var is_rise = false;
        var rescales: array<f32, LANE_ROWS>;
//#repeat M LANE_ROWS
        {
            let row = lane_row + M * SUBGROUP_SIZE;
            let weighed = weigh(masked_scores(work, row, part, key0, ends[M]), row, part, references[M]);
            references[M] = weighed.reference;
            rescales[M] = weighed.rescale;
            is_rise = is_rise || weighed.rises;
            sums[M] = sums[M] * weighed.rescale + weighed.sum;
        }
//#end
        is_rise = subgroupAny(is_rise);
        // In the first block, there is no result yet.
        if (lane == 0u) { has_risen[quarter] = u32(is_rise && round > 0u); }
        let risen = workgroupUniformLoad(&has_risen);
        if ((risen[0] | risen[1] | risen[2] | risen[3]) != 0u) { rescale(&result, rescales, sub_row, lane_row, part); }
        add_weighted(&result, sub_row);
    }
//#repeat M LANE_ROWS
    {
        let row = lane_row + M * SUBGROUP_SIZE;
        let sum = row_sum(sums[M]);
        if (part == 0u) {
            scales[row] = select(1.0 / sum, 0.0, sum == 0.0);
//#if LOG_SUMS
            if (is_tile && row0 + row <= last_row) {
                store_log_sum(result_row(work, row0 + row), work.splits, references[M], sum);
            }
//#endif
        }
    }
//#end
    // If subgroups have another size, the result is wrong, and NaN is stored instead: the test of the units finds it.
    let is_size = subgroup_size == SUBGROUP_SIZE;
    let row_count = select(0u, p.queries, is_tile && is_size);
    store_result(&result, work, sub_row, lane, row_count);
    if (is_tile && !is_size) { store_nan(work, local_index); }
}
//#use "lib/math"
