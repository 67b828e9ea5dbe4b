// attention_units: softmax(q @ k^T) @ v for many queries with matrix units; its operands are those of lib/attention.
//
// A workgroup of four subgroups computes TILE rows, each subgroup a quarter, and goes over the keys in blocks of
// KEYS. The matrices of queries and of the result stay in registers, where single elements cannot be reached:
// scores, weights and scales go through workgroup memory.
//
// Weights are relative to a reference of their row. It follows the maximum only when weights become too large, since
// the result must go through memory to be scaled. (The idea is from T. Shah et al., FlashAttention-4, 2026.)
// WIDTH: elements of a row in workgroup memory, at least those of a key and of a value.
// UNIT_8, UNIT_16: the value of UNIT, the rows and columns of a matrix.
//#include "lib/grid"
//#include "lib/attention"

//#if F16
alias Element = f16;
//#else
alias Element = f32;
//#endif
//#if UNIT_16
alias Left = coop_mat16x16<Element, A>;
alias Right = coop_mat16x16<Element, B>;
alias Sum = coop_mat16x16<f32, C>;
//#endif
//#if UNIT_8
alias Left = coop_mat8x8<Element, A>;
alias Right = coop_mat8x8<Element, B>;
alias Sum = coop_mat8x8<f32, C>;
//#endif

const WIDTH: u32 = 64u;
const UNIT: u32 = 16u;
const SUBGROUP_SIZE: u32 = 32u;
const WORKGROUP_SIZE: u32 = 4u * SUBGROUP_SIZE;
// Rows of a subgroup.
const ROWS: u32 = 16u;
const TILE: u32 = 4u * ROWS;
const KEYS: u32 = 2u * ROWS;
// Matrices along the rows of a subgroup, along the keys of a block, and along a row of WIDTH elements.
const ROW_UNITS: u32 = 1u;
const KEY_UNITS: u32 = 2u;
const WIDTH_UNITS: u32 = 4u;
// Invocations that share a row, and rows of an invocation: one of them is 1.
const ROW_LANES: u32 = 2u;
const LANE_ROWS: u32 = 1u;
// Vec4s of an invocation in a row of KEYS scores.
const LANE_VEC4S: u32 = 4u;
// Vec4s of the keys, and of the values, of a block that an invocation loads, from rows LOAD_ROWS apart.
const LOADS: u32 = 4u;
const LOAD_ROWS: u32 = KEYS / LOADS;
// Parts of KEYS columns of the result.
const PARTS: u32 = 2u;

// The queries; later the keys of a block, and behind them its values. Neighbouring rows are in different banks.
const STRIDE: u32 = WIDTH + 8u;
var<workgroup> rows: array<Element, TILE * STRIDE>;
const VALUES_AT: u32 = KEYS * STRIDE;
// Scores, or KEYS columns of the result.
const SCORE_STRIDE: u32 = KEYS + 4u;
var<workgroup> scores: array<f32, TILE * SCORE_STRIDE>;
const WEIGHT_STRIDE: u32 = KEYS + 8u;
var<workgroup> weights: array<Element, TILE * WEIGHT_STRIDE>;
// What the result of each row is multiplied by at the end.
var<workgroup> scales: array<f32, TILE>;
// How many blocks of keys there are. Multiplication by units must be in uniform control flow, as naga understands it.
var<workgroup> round_count: u32;
// Whether rows of each subgroup have a new reference.
var<workgroup> has_risen: array<u32, 4>;

// The largest weight is e^HEADROOM when a row gets a new reference: smaller ones are then still normal numbers in
// 16 bits. It gets another when a weight exceeds e^(HEADROOM + MAX_RISE), 2^15.
const HEADROOM: f32 = 5.5451775;
const MAX_RISE: f32 = 4.8520303;

// e^x.
fn weights_of(x: vec4<f32>) -> vec4<f32> {
//#if F16
    // Exact enough for 16 bits. max() may drop NaN.
    let nan = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(exp2(max(x * 1.442695, vec4<f32>(-200.0))), x, nan);
//#else
    return softmax_weights(x);
//#endif
}

// Stores a vec4 of a row.
fn store_row(row: u32, col: u32, loaded: Operand4) {
//#repeat I 4
    rows[row * STRIDE + col * 4u + I] = loaded[I];
//#end
}

// Four columns of scores or of the result.
fn scores_at(row: u32, col: u32) -> vec4<f32> {
    let at = row * SCORE_STRIDE + col;
    return vec4<f32>(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]);
}

fn store_scores(row: u32, col: u32, stored: vec4<f32>) {
//#repeat I 4
    scores[row * SCORE_STRIDE + col + I] = stored[I];
//#end
}

// Stores four weights as they are multiplied, and returns them.
fn store_weights(row: u32, key: u32, stored: vec4<f32>) -> vec4<f32> {
    let rounded = Operand4(stored);
//#repeat I 4
    weights[row * WEIGHT_STRIDE + key + I] = rounded[I];
//#end
    return vec4<f32>(rounded);
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
    let batch = work.batch;
    let head = work.head;
    let row0 = work.row_block * TILE;
    // Rows and keys past the edge repeat the last ones.
    let last_row = p.queries - 1u;
    let last_key = p.keys - 1u;
    let q_start = start_of(p.q, batch, head);
    let k_start = start_of(p.k, batch, head);
    let v_start = start_of(p.v, batch, head);
    let first_key = work.split * p.keys_per_split;
    if (local_index == 0u) {
        let end = end_of(work.split, row0 + TILE);
        round_count = select(0u, (end - first_key + KEYS - 1u) / KEYS, end > first_key && is_tile);
    }
    let rounds = workgroupUniformLoad(&round_count);
    let quarter = subgroup % 4u;
    let lane = subgroup_lane % SUBGROUP_SIZE;
    let sub_row = quarter * ROWS;
    // The first row of the tile that a lane has a share of, and its share.
    let lane_row = sub_row + lane / ROW_LANES;
    let part = lane % ROW_LANES;
    let load_row = local_index / (WIDTH / 4u);
    let load_col = local_index % (WIDTH / 4u);
    let is_key_col = load_col < p.width;
    let is_value_col = load_col < p.value_width;
    let key_col = min(load_col, p.width - 1u);
    let value_col = min(load_col, p.value_width - 1u);

//#repeat L LOADS
//#repeat H 2
    {
        let row = H * KEYS + L * LOAD_ROWS + load_row;
        let loaded = q[q_start + min(row0 + row, last_row) * p.q.row_stride + key_col];
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
//#repeat M LANE_ROWS
    references[M] = -inf();
//#end
    var k_next: array<Operand4, LOADS>;
    var v_next: array<Operand4, LOADS>;
//#repeat L LOADS
    {
        let key = min(first_key + L * LOAD_ROWS + load_row, last_key);
        k_next[L] = k[k_start + key * p.k.row_stride + key_col];
        v_next[L] = v[v_start + key * p.v.row_stride + value_col];
    }
//#end
    for (var round = 0u; round < rounds; round++) {
        let key0 = first_key + round * KEYS;
        // The queries, or the keys and values before, may still be read.
        workgroupBarrier();
//#repeat L LOADS
        store_row(L * LOAD_ROWS + load_row, load_col, select(Operand4(), k_next[L], is_key_col));
        {
            // The weights of keys past the end are zero, which inf would turn into NaN.
            let is_value = is_value_col && key0 + L * LOAD_ROWS + load_row <= last_key;
            store_row(KEYS + L * LOAD_ROWS + load_row, load_col, select(Operand4(), v_next[L], is_value));
        }
//#end
        workgroupBarrier();
        // The next loads are in flight while these keys are multiplied.
//#repeat L LOADS
        {
            let key = min(key0 + KEYS + L * LOAD_ROWS + load_row, last_key);
            k_next[L] = k[k_start + key * p.k.row_stride + key_col];
            v_next[L] = v[v_start + key * p.v.row_stride + value_col];
        }
//#end
//#repeat N KEY_UNITS
        {
            var products: array<Sum, ROW_UNITS>;
//#repeat R ROW_UNITS
            products[R] = Sum();
//#end
//#repeat E WIDTH_UNITS
            {
                let start = N * UNIT * STRIDE + E * UNIT;
                let keys = coopLoad<Right>(&rows[start], STRIDE);
//#repeat R ROW_UNITS
                products[R] = coopMultiplyAdd(queries[R * WIDTH_UNITS + E], keys, products[R]);
//#end
            }
//#end
//#repeat R ROW_UNITS
            {
                let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
                coopStoreT(products[R], &scores[start], SCORE_STRIDE);
            }
//#end
        }
//#end
        workgroupBarrier();
        var is_rise = false;
        var rescales: array<f32, LANE_ROWS>;
//#repeat M LANE_ROWS
        {
            let row = lane_row + M * SUBGROUP_SIZE;
            let query = min(row0 + row, last_row);
            var of_row: array<vec4<f32>, LANE_VEC4S>;
            var maximum4 = vec4<f32>(-inf());
//#repeat N LANE_VEC4S
            {
                let col = (N * ROW_LANES + part) * 4u;
                let products = scores_at(row, col);
//#repeat I 4
                of_row[N][I] = score_of(products[I], batch, head, query, key0 + col + I);
//#end
                maximum4 = max(maximum4, of_row[N]);
            }
//#end
            let maximum = row_max(max(max(maximum4.x, maximum4.y), max(maximum4.z, maximum4.w)));
            let old = references[M];
            // The difference is exact near the limit, also where scores are large.
            let rises = maximum - old > HEADROOM + MAX_RISE;
            references[M] = select(old, maximum - HEADROOM, rises);
            let shift = softmax_shift(references[M]);
            rescales[M] = select(1.0, weights_of(vec4<f32>(old - shift)).x, rises);
            is_rise = is_rise || rises;
            var sum4 = vec4<f32>();
//#repeat N LANE_VEC4S
            sum4 += store_weights(row, (N * ROW_LANES + part) * 4u, weights_of(of_row[N] - shift));
//#end
            sums[M] = sums[M] * rescales[M] + sum4.x + sum4.y + sum4.z + sum4.w;
        }
//#end
        is_rise = subgroupAny(is_rise);
        // In the first block, there is no result yet.
        if (lane == 0u) { has_risen[quarter] = u32(is_rise && round > 0u); }
        let risen = workgroupUniformLoad(&has_risen);
        if ((risen[0] | risen[1] | risen[2] | risen[3]) != 0u) {
//#repeat C PARTS
            workgroupBarrier();
//#repeat N KEY_UNITS
//#repeat R ROW_UNITS
            {
                let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
                coopStoreT(result[R * WIDTH_UNITS + C * KEY_UNITS + N], &scores[start], SCORE_STRIDE);
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
//#repeat N KEY_UNITS
//#repeat R ROW_UNITS
            {
                let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
                result[R * WIDTH_UNITS + C * KEY_UNITS + N] = coopLoadT<Sum>(&scores[start], SCORE_STRIDE);
            }
//#end
//#end
//#end
        }
//#repeat N KEY_UNITS
        {
            var of_rows: array<Left, ROW_UNITS>;
//#repeat R ROW_UNITS
            {
                let start = (sub_row + R * UNIT) * WEIGHT_STRIDE + N * UNIT;
                of_rows[R] = coopLoadT<Left>(&weights[start], WEIGHT_STRIDE);
            }
//#end
//#repeat E WIDTH_UNITS
            {
                let start = VALUES_AT + N * UNIT * STRIDE + E * UNIT;
                let values = coopLoadT<Right>(&rows[start], STRIDE);
//#repeat R ROW_UNITS
                result[R * WIDTH_UNITS + E] = coopMultiplyAdd(of_rows[R], values, result[R * WIDTH_UNITS + E]);
//#end
            }
//#end
        }
//#end
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
//#repeat C PARTS
    // The scores, or the columns before, may still be read.
    workgroupBarrier();
//#repeat N KEY_UNITS
//#repeat R ROW_UNITS
    {
        let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
        coopStoreT(result[R * WIDTH_UNITS + C * KEY_UNITS + N], &scores[start], SCORE_STRIDE);
    }
//#end
//#end
    workgroupBarrier();
    for (var i = lane / (KEYS / 4u); i < ROWS; i += SUBGROUP_SIZE / (KEYS / 4u)) {
        let row = sub_row + i;
        let col = lane % (KEYS / 4u);
        let out_col = C * (KEYS / 4u) + col;
        if (row0 + row < row_count && out_col < p.value_width) {
            out[result_row(work, row0 + row) * p.value_width + out_col] = scores_at(row, col * 4u) * scales[row];
        }
    }
//#end
    if (is_tile && !is_size) {
        for (var i = local_index; i < TILE * p.value_width; i += WORKGROUP_SIZE) {
            let row = row0 + i / p.value_width;
            if (row < p.queries) {
                out[result_row(work, row) * p.value_width + i % p.value_width] = vec4<f32>(nan());
            }
        }
    }
}
//#use "lib/math"
