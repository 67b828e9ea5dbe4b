// attention_backward: the gradients of attention (attention.wgsl) with respect to q, k and v, from the gradient g
// of its result. For query i and key j,
//   weight[i, j] = e^(score[i, j] - log_sum[i]), with the score of lib/attention,
//   d[i, j] = weight[i, j] * (sum over c of g[i, c] * v[j, c] - mean[i]) * scale * softcap'(scale * q[i] . k[j]),
//   q_grad[i] = sum over j of d[i, j] * k[j].
//   KEYS: k_grad[j] = sum over i of d[i, j] * q[i], and v_grad[j] = sum over i of weight[i, j] * g[i].
// log_sum[i] is the logarithm of the sum over j of e^score[i, j], mean[i] the sum over c of g[i, c] * out[i, c].
// q is [batch, heads, queries, width], k is [batch, heads, keys, width], v and g are like them with value_width,
// with widths that are multiples of four. bias is [batch, heads, queries, keys] and contains the mask, as -inf.
// These are read through their strides. stats is [2, batch, heads, queries]: log_sum and mean. Gradients are packed.
// BIASED: there is a softcap or a bias.
//
// The weights are not stored: both kernels compute them again. (T. Dao et al., FlashAttention, 2022.)
// A workgroup computes TILE rows of q_grad, or with KEYS of k_grad and v_grad: its own rows. It goes over the other
// rows, the keys or with KEYS the queries, in blocks of TILE. In each block it first computes d and weight of all
// pairs of rows. They then go through workgroup memory, and each invocation adds to COLS vec4 columns of the own rows
// of its team, with other rows read directly.
//#include "lib/grid"
//#include "lib/attention_tile"
//#include "lib/attention_scores"

// Vec4 columns per invocation.
const COLS: u32 = 1u;

struct Params {
    heads: u32,
    queries: u32,
    keys: u32,
    // Vec4s of a key, and of a value.
    width: u32,
    value_width: u32,
    // Blocks of TILE own rows, and of COLS * LANES vec4 columns.
    row_blocks: u32,
    col_blocks: u32,
    workgroups: u32,
    scale: f32,
    // Zero if there is none.
    softcap: f32,
    // 1 if query i attends to the keys j with j + queries <= i + keys only.
    causal: u32,
    has_bias: u32,
    bias_offset: u32,
    // batch * heads * queries.
    rows: u32,
    pad0: u32,
    pad1: u32,
    q: OperandLayout,
    k: OperandLayout,
    v: OperandLayout,
    g: OperandLayout,
    // Strides in elements, along batch, heads, queries and keys.
    bias_strides: vec4<u32>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> g: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> stats: array<f32>;
//#if BIASED
// Without a bias it is the statistics, and not read.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
//#if KEYS
@group(0) @binding(auto) var<storage, read_write> k_grad: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read_write> v_grad: array<vec4<f32>>;
//#else
@group(0) @binding(auto) var<storage, read_write> q_grad: array<vec4<f32>>;
//#endif

// The operands: a row, and the row of values or gradients beside it.
//#if KEYS
fn own(i: u32) -> vec4<f32> {
    return k[i];
}

fn own_value(i: u32) -> vec4<f32> {
    return v[i];
}

fn other(i: u32) -> vec4<f32> {
    return q[i];
}

fn other_value(i: u32) -> vec4<f32> {
    return g[i];
}
//#else
fn own(i: u32) -> vec4<f32> {
    return q[i];
}

fn own_value(i: u32) -> vec4<f32> {
    return g[i];
}

fn other(i: u32) -> vec4<f32> {
    return k[i];
}

fn other_value(i: u32) -> vec4<f32> {
    return v[i];
}
//#endif

// log_sum and mean of a query.
fn stats_of(matrix: u32, query: u32) -> vec2<f32> {
    let i = matrix * p.queries + min(query, p.queries - 1u);
    return vec2<f32>(stats[i], stats[p.rows + i]);
}

// d and the weight of a query and a key, from the products of their rows and of gradient and value.
fn weigh(
    product: f32, value_product: f32, query_stats: vec2<f32>, batch: u32, head: u32, query: u32, key: u32,
) -> vec2<f32> {
    var score = product * p.scale;
    var slope = p.scale;
//#if BIASED
    if (p.softcap > 0.0) {
        let bounded = tanh_(score / p.softcap);
        score = p.softcap * bounded;
        slope *= 1.0 - bounded * bounded;
    }
    if (p.has_bias == 1u) { score += bias[p.bias_offset + offset_of(p.bias_strides, batch, head, query, key)]; }
//#endif
    let hidden = is_causally_masked(query, key) || key >= p.keys || query >= p.queries;
    let weight = select(exp_(score - query_stats.x), 0.0, hidden);
    return vec2<f32>(weight * (value_product - query_stats.y) * slope, weight);
}

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
    let q_starts = vec2<u32>(start_of(p.q, batch, head), start_of(p.g, batch, head));
    let k_starts = vec2<u32>(start_of(p.k, batch, head), start_of(p.v, batch, head));
    let q_strides = vec2<u32>(p.q.row_stride, p.g.row_stride);
    let k_strides = vec2<u32>(p.k.row_stride, p.v.row_stride);
    // The range of the other rows.
    var first = 0u;
//#if KEYS
    let rows = p.keys;
    let own_starts = k_starts;
    let own_strides = k_strides;
    let other_starts = q_starts;
    let other_strides = q_strides;
    let end = p.queries;
    if (p.causal == 1u && row0 + p.queries > p.keys) { first = row0 + p.queries - p.keys; }
//#else
    let rows = p.queries;
    let own_starts = q_starts;
    let own_strides = q_strides;
    let other_starts = k_starts;
    let other_strides = k_strides;
    let end = keys_end(row0 + TILE);
//#endif
    let lane = local_index % LANES;
    let team = local_index / LANES;
    let first_col = col_block * COLS * LANES + lane;
    // Rows past the edge repeat the last one. Their weights are zero, or they are not stored.
    let own_row = own_starts + min(row0 + staged_row(local_index), rows - 1u) * own_strides;
    var acc: array<vec4<f32>, 4u * COLS>;
//#if KEYS
    var value_acc: array<vec4<f32>, 4u * COLS>;
//#else
    var row_stats: array<vec2<f32>, 4>;
//#repeat I 4
    row_stats[I] = stats_of(matrix, row0 + team * 4u + I);
//#end
//#endif
    for (var other0 = first; other0 < end; other0 += TILE) {
        let other_row = other_starts + min(other0 + staged_row(local_index), end - 1u) * other_strides;
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
                select(vec4<f32>(), own_value(own_row.y + col), is_col),
                select(vec4<f32>(), other_value(other_row.y + col), is_col),
            );
            add_products(&value_products, team, lane);
        }
        // They become d and weights. Those of each other row go through the first place, which keeps the code short.
        for (var n = 0u; n < 4u; n++) {
            let other_index = other0 + n * LANES + lane;
//#if KEYS
            let of_query = stats_of(matrix, other_index);
//#endif
            var d = vec4<f32>();
            var weights = vec4<f32>();
//#repeat I 4
            {
                let own_index = row0 + team * 4u + I;
                let product = products[0u][I];
                let value_product = value_products[0u][I];
//#if KEYS
                let both = weigh(product, value_product, of_query, batch, head, other_index, own_index);
//#else
                let both = weigh(product, value_product, row_stats[I], batch, head, own_index, other_index);
//#endif
                d[I] = both.x;
                weights[I] = both.y;
            }
//#end
//#repeat N 3
            products[N] = products[N + 1u];
            value_products[N] = value_products[N + 1u];
//#end
            products[3u] = d;
            value_products[3u] = weights;
        }
        let other_rows = min(TILE, end - other0);
//#if KEYS
        // The staged columns may still be read.
        workgroupBarrier();
        store_weights(value_products, team, lane);
        workgroupBarrier();
        for (var j0 = 0u; j0 < other_rows; j0 += 4u) {
//#repeat K 4
            {
                let row = other_starts.y + min(other0 + j0 + K, end - 1u) * other_strides.y;
                let weights_of_rows = weights_of(j0 + K, team);
//#repeat C COLS
                {
                    let x = other_value(row + min(first_col + C * LANES, p.value_width - 1u));
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
        for (var j0 = 0u; j0 < other_rows; j0 += 4u) {
//#repeat K 4
            {
                let row = other_starts.x + min(other0 + j0 + K, end - 1u) * other_strides.x;
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
        if (row < rows) {
            let i = matrix * rows + row;
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
