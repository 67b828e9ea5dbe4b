// attention_backward: the gradients of attention (attention.wgsl) with respect to q, k and v, from the gradient g
// of its result. For query i and key j,
//   weight[i, j] = e^(score[i, j] - log_sum[i]), with the score of attention.wgsl,
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
// A workgroup computes ROWS rows of q_grad, or with KEYS of k_grad and v_grad: its own rows. It goes over the other
// rows, the keys or with KEYS the queries, in blocks of WORKGROUP_SIZE. In each block, an invocation first computes d
// and weight of one other row with every own row. Then it adds to COLS vec4 columns of the own rows of its team. That
// takes d and weight of all invocations, which are exchanged through workgroup memory.
//#include "lib/grid"

const WORKGROUP_SIZE: u32 = 64u;
// A multiple of four for each team.
const ROWS: u32 = 16u;
// ROWS / 4.
const ROW_VEC4S: u32 = 4u;
// Vec4 columns per invocation.
const COLS: u32 = 1u;
// The invocations that cover the columns of a row.
const TEAM_SIZE: u32 = 16u;
// The own rows of a team, in vec4s of rows: ROWS / (WORKGROUP_SIZE / TEAM_SIZE) / 4.
const VEC4S: u32 = 1u;

// The layout of an operand, in vec4s.
struct OperandLayout {
    offset: u32,
    batch_stride: u32,
    head_stride: u32,
    row_stride: u32,
}

struct Params {
    heads: u32,
    queries: u32,
    keys: u32,
    // Vec4s of a key, and of a value.
    width: u32,
    value_width: u32,
    // Blocks of ROWS own rows, and of COLS * TEAM_SIZE vec4 columns.
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

// d of a block, four own rows in a vec4: [WORKGROUP_SIZE, ROW_VEC4S]. Rows are padded so that neighbouring invocations
// store to different banks.
const PITCH: u32 = ROW_VEC4S + 1u;
var<workgroup> d_of_block: array<vec4<f32>, WORKGROUP_SIZE * PITCH>;
//#if KEYS
var<workgroup> weights_of_block: array<vec4<f32>, WORKGROUP_SIZE * PITCH>;
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

// The offset of the first row of a matrix.
fn start_of(operand: OperandLayout, batch: u32, head: u32) -> u32 {
    return operand.offset + batch * operand.batch_stride + head * operand.head_stride;
}

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
    if (p.has_bias == 1u) {
        let coordinates = vec4<u32>(batch, head, min(query, p.queries - 1u), min(key, p.keys - 1u));
        let offsets = coordinates * p.bias_strides;
        score += bias[p.bias_offset + offsets.x + offsets.y + offsets.z + offsets.w];
    }
//#endif
    let causally_masked = p.causal == 1u && key + p.queries > query + p.keys;
    let hidden = causally_masked || key >= p.keys || query >= p.queries;
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
    let row0 = index / p.col_blocks % p.row_blocks * ROWS;
    let matrix = index / p.col_blocks / p.row_blocks;
    let batch = matrix / p.heads;
    let head = matrix % p.heads;
    let q_starts = vec2<u32>(start_of(p.q, batch, head), start_of(p.g, batch, head));
    let k_starts = vec2<u32>(start_of(p.k, batch, head), start_of(p.v, batch, head));
    let q_strides = vec2<u32>(p.q.row_stride, p.g.row_stride);
    let k_strides = vec2<u32>(p.k.row_stride, p.v.row_stride);
    // The range of the others. Query i attends to the keys j with j + queries <= i + keys.
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
    var end = p.keys;
    if (p.causal == 1u) {
        let end_plus_queries = min(row0 + ROWS, p.queries) + p.keys;
        end = min(end, select(0u, end_plus_queries - p.queries, end_plus_queries > p.queries));
    }
//#endif
    // Rows past the edge repeat the last one. Their weights are zero, or they are not stored.
    var own_rows: array<vec2<u32>, ROWS>;
//#repeat I ROWS
    own_rows[I] = own_starts + min(row0 + I, rows - 1u) * own_strides;
//#end
    // The columns of this invocation, and the first own row of its team, in vec4s.
    let first_col = col_block * COLS * TEAM_SIZE + local_index % TEAM_SIZE;
    let team_vec4 = local_index / TEAM_SIZE * VEC4S;
    var acc: array<vec4<f32>, 4u * VEC4S * COLS>;
//#if KEYS
    var value_acc: array<vec4<f32>, 4u * VEC4S * COLS>;
//#endif
    for (var other0 = first; other0 < end; other0 += WORKGROUP_SIZE) {
        let this_other = other0 + local_index;
        let other_row = other_starts + min(this_other, end - 1u) * other_strides;
        var products: array<f32, ROWS>;
        var value_products: array<f32, ROWS>;
        for (var e = 0u; e < p.width; e++) {
            let x = other(other_row.x + e);
//#repeat I ROWS
            products[I] += dot(own(own_rows[I].x + e), x);
//#end
        }
        for (var e = 0u; e < p.value_width; e++) {
            let x = other_value(other_row.y + e);
//#repeat I ROWS
            value_products[I] += dot(own_value(own_rows[I].y + e), x);
//#end
        }
//#if KEYS
        let of_query = stats_of(matrix, this_other);
//#endif
//#if KEYS
        var weights: array<f32, ROWS>;
//#endif
//#repeat I ROWS
        {
//#if KEYS
            let both = weigh(products[I], value_products[I], of_query, batch, head, this_other, row0 + I);
            weights[I] = both.y;
//#else
            let of_query = stats_of(matrix, row0 + I);
            let both = weigh(products[I], value_products[I], of_query, batch, head, row0 + I, this_other);
//#endif
            products[I] = both.x;
        }
//#end
        // Those of the previous block may still be read.
        workgroupBarrier();
//#repeat H ROW_VEC4S
        d_of_block[local_index * PITCH + H] =
            vec4<f32>(products[H * 4u], products[H * 4u + 1u], products[H * 4u + 2u], products[H * 4u + 3u]);
//#if KEYS
        weights_of_block[local_index * PITCH + H] =
            vec4<f32>(weights[H * 4u], weights[H * 4u + 1u], weights[H * 4u + 2u], weights[H * 4u + 3u]);
//#endif
//#end
        workgroupBarrier();
        let others = min(WORKGROUP_SIZE, end - other0);
        for (var j = 0u; j < others; j++) {
            let starts = other_starts + (other0 + j) * other_strides;
            var x: array<vec4<f32>, COLS>;
//#repeat C COLS
            x[C] = other(starts.x + min(first_col + C * TEAM_SIZE, p.width - 1u));
//#end
//#if KEYS
            var y: array<vec4<f32>, COLS>;
//#repeat C COLS
            y[C] = other_value(starts.y + min(first_col + C * TEAM_SIZE, p.value_width - 1u));
//#end
//#endif
//#repeat H VEC4S
            {
                let d = d_of_block[j * PITCH + team_vec4 + H];
//#if KEYS
                let weight = weights_of_block[j * PITCH + team_vec4 + H];
//#endif
//#repeat I 4
//#repeat C COLS
                acc[(H * 4u + I) * COLS + C] += d[I] * x[C];
//#if KEYS
                value_acc[(H * 4u + I) * COLS + C] += weight[I] * y[C];
//#endif
//#end
//#end
            }
//#end
        }
    }
//#repeat H VEC4S
//#repeat I 4
    {
        let row = row0 + (team_vec4 + H) * 4u + I;
        if (row < rows) {
            let i = matrix * rows + row;
//#repeat C COLS
            {
                let col = first_col + C * TEAM_SIZE;
//#if KEYS
                if (col < p.width) { k_grad[i * p.width + col] = acc[(H * 4u + I) * COLS + C]; }
                if (col < p.value_width) { v_grad[i * p.value_width + col] = value_acc[(H * 4u + I) * COLS + C]; }
//#else
                if (col < p.width) { q_grad[i * p.width + col] = acc[(H * 4u + I) * COLS + C]; }
//#endif
            }
//#end
        }
    }
//#end
//#end
}
//#use "lib/math"
