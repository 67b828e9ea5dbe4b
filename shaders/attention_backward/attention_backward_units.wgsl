// attention_backward_units: a gradient of attention with matrix units: see lib/attention_backward.
// It is the gradient with respect to q, or with KEYS with respect to k, or with VALUES too with respect to v.
// Rounds: fewer than 128 for each block of other rows.
//
// A workgroup computes TILE own rows of the gradient, and goes over the other rows in blocks of BLOCK. The matrices of
// own rows, of those beside them and of the gradient stay in registers.
// VALUES: the gradient is the sum of weights times g, and not of d times other rows.
//#include "lib/grid"
//#include "lib/attention_backward"
//#include "lib/attention_units"

// Where the rows begin that weights, or d, are multiplied by. Gradients are only multiplied by weights; queries and
// keys are also multiplied by own rows, so that with COLUMNS they are stored twice.
//#if VALUES
const WEIGHTED_AT: u32 = BESIDE_AT;
//#else
//#if COLUMNS
const WEIGHTED_AT: u32 = TILE * STRIDE;
//#else
const WEIGHTED_AT: u32 = 0u;
//#endif
//#endif

// BOUNDED: d is brought into the range of f16. value_bounds, [batch, heads, keys], are the largest magnitudes in v.
//#if BOUNDED
@group(0) @binding(auto) var<storage, read> value_bounds: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> grad: array<vec4<f32>>;

// How many blocks there are. Multiplication by units must be in uniform control flow, as naga understands it.
var<workgroup> block_count: Padded;
//#if KEYS
// log_sum and mean of the other rows of a block.
var<workgroup> other_stats: array<vec3<f32>, BLOCK>;
//#endif

// Weights are at most 1. Times this, small ones are normal numbers in f16.
const WEIGHT_SCALE: f32 = 1024.0;
// Where floats are so large that scores are rounded otherwise than before, they can be larger.
const MAX_WEIGHT: vec4<f32> = vec4<f32>(2.0 * WEIGHT_SCALE);

//#if BOUNDED
// The bits of the largest magnitudes in the rows of g (0) and of v (1) that have weights with the tile, and of the
// means of those queries (2). The bits of floats that are not negative have the order of the floats. Workgroup memory
// is used in multiples of 16 bytes.
var<workgroup> largest: array<atomic<u32>, 4>;

fn note_largest(matrix: u32, own_range: vec2<u32>, other_range: vec2<u32>, local_index: u32) {
//#if KEYS
    let queries = other_range;
    let keys = own_range;
//#else
    let queries = own_range;
    let keys = other_range;
//#endif
    var bounds = vec3<f32>();
    for (var i = queries.x + local_index; i < queries.y; i += WORKGROUP_SIZE) {
        let of_query = stats[matrix * p.queries + i];
        bounds = max(bounds, vec3<f32>(of_query.w, 0.0, abs(of_query.z)));
    }
    for (var i = keys.x + local_index; i < keys.y; i += WORKGROUP_SIZE) {
        bounds.y = max(bounds.y, value_bounds[matrix * p.keys + i]);
    }
//#repeat I 3
    atomicMax(&largest[I], bitcast<u32>(bounds[I]));
//#end
}
//#endif

//#if BOUNDED KEYS
// The means are of products with other values, too.
fn largest_mean(largest_product: f32) -> f32 {
    return bitcast<f32>(atomicLoad(&largest[2]));
}
//#endif
//#if BOUNDED !KEYS
// A query without keys has no mean.
fn largest_mean(largest_product: f32) -> f32 {
    return largest_product;
}
//#endif

// The power of two that brings d into the range of f16, and its reciprocal.
//#if BOUNDED
fn range_scales() -> vec2<f32> {
    let largest_g = bitcast<f32>(atomicLoad(&largest[0]));
    let largest_v = bitcast<f32>(atomicLoad(&largest[1]));
    // Of a product of a gradient and a value, which has 4 * value_width terms.
    let product = 4.0 * f32(p.value_width) * largest_g * largest_v;
    // Of d for a weight of 1.
    let bound = (product + largest_mean(product)) * abs(p.scale);
    // The next larger power of two becomes 2^14. Weights are at most 2.
    let exponent = clamp(bitcast<u32>(bound) >> 23u, 67u, 187u);
    return bitcast<vec2<f32>>(vec2<u32>(267u - exponent, exponent - 13u) << vec2<u32>(23u));
}
//#endif
//#if !BOUNDED !VALUES
fn range_scales() -> vec2<f32> {
    return vec2<f32>(1.0);
}
//#endif

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
    let tile_index = min(index, p.workgroups - 1u);
    let row0 = tile_index % p.row_blocks * TILE;
    let matrix = tile_index / p.row_blocks;
    let batch = matrix / p.heads;
    let head = matrix % p.heads;
    let own_at = own_rows(batch, head);
    let other_at = other_rows(batch, head);
    let range = other_range(row0, row0 + TILE);
    if (local_index == 0u) {
        block_count[0] = select(0u, (range.y - range.x + BLOCK - 1u) / BLOCK, range.y > range.x && is_tile);
//#if BOUNDED
//#repeat I 3
        atomicStore(&largest[I], 0u);
//#end
//#endif
    }
    let blocks = workgroupUniformLoad(&block_count)[0];
//#if BOUNDED
    note_largest(matrix, vec2<u32>(row0, min(row0 + TILE, own_count())), range, local_index);
//#endif
    let lane = subgroup_lane % SUBGROUP_SIZE;
    let sub_row = subgroup % 4u * ROWS;
    // The first row of the tile that a lane has a share of, and its share.
    let lane_row = sub_row + lane / ROW_LANES;
    let part = lane % ROW_LANES;
    let load_row = local_index / (WIDTH / 4u) * LOADS;
    let load_col = local_index % (WIDTH / 4u);
    let is_col = load_col < p.width;
    let is_beside_col = load_col < p.value_width;
    let col = min(load_col, p.width - 1u);
    let beside_col = min(load_col, p.value_width - 1u);

//#repeat L LOADS
//#repeat H 2
    {
        // Rows past the edge repeat the last one, and are not stored.
        let row = H * BLOCK + load_row + L;
        let at = own_at.starts.x + min(row0 + row, own_count() - 1u) * own_at.strides.x;
        store_row(row, load_col, select(Operand4(), own(at + col), is_col));
    }
//#end
//#end
    workgroupBarrier();
    var owns: array<Left, ROW_UNITS * WIDTH_UNITS>;
//#repeat R ROW_UNITS
//#repeat E WIDTH_UNITS
    owns[R * WIDTH_UNITS + E] = coopLoadT<Left>(&rows[(sub_row + R * UNIT) * STRIDE + E * UNIT], STRIDE);
//#end
//#end
//#if !VALUES
    workgroupBarrier();
//#repeat L LOADS
//#repeat H 2
    {
        let row = H * BLOCK + load_row + L;
        let at = own_at.starts.y + min(row0 + row, own_count() - 1u) * own_at.strides.y;
        store_row(row, load_col, select(Operand4(), beside_own(at + beside_col), is_beside_col));
    }
//#end
//#end
    workgroupBarrier();
    var besides: array<Left, ROW_UNITS * WIDTH_UNITS>;
//#repeat R ROW_UNITS
//#repeat E WIDTH_UNITS
    besides[R * WIDTH_UNITS + E] = coopLoadT<Left>(&rows[(sub_row + R * UNIT) * STRIDE + E * UNIT], STRIDE);
//#end
//#end
//#endif
//#if !KEYS
    var row_stats: array<vec3<f32>, LANE_ROWS>;
//#repeat M LANE_ROWS
    row_stats[M] = stats_of(matrix, row0 + lane_row + M * SUBGROUP_SIZE);
//#end
//#endif
//#if VALUES
    let result_scale = 1.0 / WEIGHT_SCALE;
//#else
    let scales = range_scales();
    let d_scale = scales.x * (p.scale / WEIGHT_SCALE);
    let result_scale = scales.y;
//#endif

    var result: array<Sum, ROW_UNITS * WIDTH_UNITS>;
    var next: array<Operand4, LOADS>;
    var beside_next: array<Operand4, LOADS>;
//#repeat L LOADS
    {
        // There may be none: see keys_end.
        let row = min(range.x + load_row + L, max(range.y, 1u) - 1u);
        let at = other_at.starts + row * other_at.strides;
        next[L] = other(at.x + col);
        beside_next[L] = beside_other(at.y + beside_col);
    }
//#end
    for (var block = 0u; block < blocks; block++) {
        let other0 = range.x + block * BLOCK;
        // The own rows, or the other rows before, may still be read.
        workgroupBarrier();
        if (other0 + BLOCK > range.y || !is_col || !is_beside_col) {
            // Rows past the end have no weights: inf would turn them into NaN.
//#repeat L LOADS
            {
                let is_row = other0 + load_row + L < range.y;
                next[L] = select(Operand4(), next[L], is_row && is_col);
                beside_next[L] = select(Operand4(), beside_next[L], is_row && is_beside_col);
            }
//#end
        }
//#repeat L LOADS
        store_row(load_row + L, load_col, next[L]);
//#if COLUMNS VALUES
        store_weighted(load_row + L, load_col, beside_next[L]);
//#else
        store_row(BLOCK + load_row + L, load_col, beside_next[L]);
//#endif
//#if COLUMNS !VALUES
        store_weighted(load_row + L, load_col, next[L]);
//#endif
//#end
//#if KEYS
        if (local_index < BLOCK) { other_stats[local_index] = stats_of(matrix, other0 + local_index); }
//#endif
        workgroupBarrier();
        // The next loads are in flight while these rows are multiplied.
//#repeat L LOADS
        {
            let row = min(other0 + BLOCK + load_row + L, range.y - 1u);
            let at = other_at.starts + row * other_at.strides;
            next[L] = other(at.x + col);
            beside_next[L] = beside_other(at.y + beside_col);
        }
//#end
        store_products(&owns, 0u, sub_row);
        workgroupBarrier();
//#repeat M LANE_ROWS
        for (var n = 0u; n < LANE_VEC4S; n++) {
            let row = lane_row + M * SUBGROUP_SIZE;
            let first = (n * ROW_LANES + part) * 4u;
            let products = scores_at(row, first);
            let own_indices = vec4<u32>(row0 + row);
            let other_indices = other0 + first + vec4<u32>(0u, 1u, 2u, 3u);
//#if KEYS
            var log_sums: LogSums;
//#repeat I 4
            log_sums.rounded[I] = other_stats[first + I].x;
            log_sums.rest[I] = other_stats[first + I].y;
//#end
//#else
            let log_sums = LogSums(vec4<f32>(row_stats[M].x), vec4<f32>(row_stats[M].y));
//#endif
            let both = weigh(products, log_sums, batch, head, own_indices, other_indices);
//#if VALUES
            let weights4 = both.weights * WEIGHT_SCALE;
//#else
            let weights4 = both.sloped * WEIGHT_SCALE;
//#endif
            // min() may drop NaN.
            store_weights(row, first, select(weights4, MAX_WEIGHT, weights4 > MAX_WEIGHT));
        }
//#end
//#if !VALUES
        // The products may still be read.
        workgroupBarrier();
        store_products(&besides, BESIDE_AT, sub_row);
        workgroupBarrier();
        // The weights become d.
//#repeat M LANE_ROWS
        for (var n = 0u; n < LANE_VEC4S; n++) {
            let row = lane_row + M * SUBGROUP_SIZE;
            let first = (n * ROW_LANES + part) * 4u;
//#if KEYS
            var means = vec4<f32>();
//#repeat I 4
            means[I] = other_stats[first + I].z;
//#end
//#else
            let means = vec4<f32>(row_stats[M].z);
//#endif
            store_weights(row, first, weights_at(row, first) * (scores_at(row, first) - means) * d_scale);
        }
//#end
//#endif
        workgroupBarrier();
        add_weighted(&result, sub_row);
    }
//#if VALUES
    let width = p.value_width;
//#else
    let width = p.width;
//#endif
    // If subgroups have another size, the result is wrong, and NaN is stored instead: the test of the units finds it.
    let is_size = subgroup_size == SUBGROUP_SIZE;
    let row_end = select(0u, own_count(), is_tile && is_size);
//#repeat C PARTS
    // The scores, or the columns before, may still be read.
    workgroupBarrier();
//#repeat N BLOCK_UNITS
//#repeat R ROW_UNITS
    {
        let start = (sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT;
        coopStoreT(result[R * WIDTH_UNITS + C * BLOCK_UNITS + N], &scores[start], SCORE_STRIDE);
    }
//#end
//#end
    workgroupBarrier();
    for (var i = lane / (BLOCK / 4u); i < ROWS; i += SUBGROUP_SIZE / (BLOCK / 4u)) {
        let row = sub_row + i;
        let part_col = lane % (BLOCK / 4u);
        let out_col = C * (BLOCK / 4u) + part_col;
        if (row0 + row < row_end && out_col < width) {
            grad[(matrix * own_count() + row0 + row) * width + out_col] = scores_at(row, part_col * 4u) * result_scale;
        }
    }
//#end
    if (is_tile && !is_size) {
        for (var i = local_index; i < TILE * width; i += WORKGROUP_SIZE) {
            let row = row0 + i / width;
            if (row < own_count()) {
                grad[(matrix * own_count() + row) * width + i % width] = vec4<f32>(nan());
            }
        }
    }
}
//#use "lib/math"
