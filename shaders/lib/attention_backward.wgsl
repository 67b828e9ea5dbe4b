// The operands and weights of the gradients of attention (lib/attention) with respect to q, k and v, from the gradient
// g of its result. For query i and key j,
//   weight[i, j] = e^(score[i, j] - log_sum[i]), with the score of lib/attention,
//   d[i, j] = weight[i, j] * (sum over c of g[i, c] * v[j, c] - mean[i]) * scale * softcap'(scale * q[i] . k[j]),
//   q_grad[i] = sum over j of d[i, j] * k[j],
//   k_grad[j] = sum over i of d[i, j] * q[i],
//   v_grad[j] = sum over i of weight[i, j] * g[i].
// log_sum[i] is the logarithm of the sum over j of e^score[i, j], mean[i] the sum over c of g[i, c] * out[i, c].
// log_sum[i] is two numbers, of which the second is what is rounded away of the first.
// q is [batch, heads, queries, width], k is [batch, heads, keys, width], v and g are like them with value_width,
// with widths that are multiples of four. bias is [batch, heads, queries, keys] and contains the mask, as -inf: such a
// score is p.hidden_score, without a gradient.
// These are read through their strides. stats, [batch, heads, queries, 4], are both numbers of log_sum, mean, and the
// largest magnitude in g (attention_backward_stats). Gradients are packed.
// KEYS: gradients of keys or values, whose own rows are keys and other rows queries; otherwise it is the reverse.
// BIASED: there is a softcap or a bias.
//
// The weights are not stored: each kernel computes them again. (T. Dao et al., FlashAttention, 2022.)
//#include "lib/attention_scores"

struct Params {
    heads: u32,
    queries: u32,
    keys: u32,
    // Vec4s of a key, and of a value.
    width: u32,
    value_width: u32,
    // Blocks of own rows, and of vec4 columns, each of a workgroup.
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
    // The score of masked keys.
    hidden_score: f32,
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
@group(0) @binding(auto) var<storage, read> q: array<Operand4>;
@group(0) @binding(auto) var<storage, read> k: array<Operand4>;
@group(0) @binding(auto) var<storage, read> v: array<Operand4>;
@group(0) @binding(auto) var<storage, read> g: array<Operand4>;
@group(0) @binding(auto) var<storage, read> stats: array<vec4<f32>>;
//#if BIASED
// Without a bias it is the statistics, and not read.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif

// Rows of an operand, and those beside them: where the first ones are, and the distances to the next.
struct Rows {
    starts: vec2<u32>,
    strides: vec2<u32>,
}

// Queries, and beside them gradients.
fn query_rows(batch: u32, head: u32) -> Rows {
    let starts = vec2<u32>(start_of(p.q, batch, head), start_of(p.g, batch, head));
    return Rows(starts, vec2<u32>(p.q.row_stride, p.g.row_stride));
}

// Keys, and beside them values.
fn key_rows(batch: u32, head: u32) -> Rows {
    let starts = vec2<u32>(start_of(p.k, batch, head), start_of(p.v, batch, head));
    return Rows(starts, vec2<u32>(p.k.row_stride, p.v.row_stride));
}

// The own and the other rows, and those beside them.
//#if KEYS
fn own_rows(batch: u32, head: u32) -> Rows {
    return key_rows(batch, head);
}

fn other_rows(batch: u32, head: u32) -> Rows {
    return query_rows(batch, head);
}

fn own(i: u32) -> Operand4 {
    return k[i];
}

fn beside_own(i: u32) -> Operand4 {
    return v[i];
}

fn other(i: u32) -> Operand4 {
    return q[i];
}

fn beside_other(i: u32) -> Operand4 {
    return g[i];
}

fn own_count() -> u32 {
    return p.keys;
}

// The first and the end of the other rows that may have weights with the own rows from row0 to row_end.
fn other_range(row0: u32, row_end: u32) -> vec2<u32> {
    return vec2<u32>(select(0u, row0 + p.queries - p.keys, p.causal == 1u && row0 + p.queries > p.keys), p.queries);
}
//#else
fn own_rows(batch: u32, head: u32) -> Rows {
    return query_rows(batch, head);
}

fn other_rows(batch: u32, head: u32) -> Rows {
    return key_rows(batch, head);
}

fn own(i: u32) -> Operand4 {
    return q[i];
}

fn beside_own(i: u32) -> Operand4 {
    return g[i];
}

fn other(i: u32) -> Operand4 {
    return k[i];
}

fn beside_other(i: u32) -> Operand4 {
    return v[i];
}

fn own_count() -> u32 {
    return p.queries;
}

// The first and the end of the other rows that may have weights with the own rows from row0 to row_end.
fn other_range(row0: u32, row_end: u32) -> vec2<u32> {
    return vec2<u32>(0u, keys_end(row_end));
}
//#endif

// Both numbers of log_sum, and mean, of a query.
fn stats_of(matrix: u32, query: u32) -> vec3<f32> {
    return stats[matrix * p.queries + min(query, p.queries - 1u)].xyz;
}

// Whether four pairs of an own and another row have no weight. Own rows past the edge may seem to have one: nothing of
// them is stored.
fn are_hidden(own_indices: vec4<u32>, other_indices: vec4<u32>) -> vec4<bool> {
    var hidden: vec4<bool>;
//#repeat I 4
    {
        let range = other_range(own_indices[I], own_indices[I] + 1u);
        // A difference below zero wraps around.
        hidden[I] = other_indices[I] - range.x >= range.y - range.x;
    }
//#end
    return hidden;
}

// The log_sum of four queries.
struct LogSums {
    rounded: vec4<f32>,
    rest: vec4<f32>,
}

// e^(scores - log_sums).
fn weights_from(scores: vec4<f32>, log_sums: LogSums) -> vec4<f32> {
    let x = scores - log_sums.rounded - log_sums.rest;
//#if F16
    return exp_of_16_bits(x);
//#else
    // Above zero only where floats are so large that the scores are rounded otherwise than before. min() may drop NaN.
    return exp4(select(x, vec4<f32>(88.0), x > vec4<f32>(88.0)));
//#endif
}

struct Weights {
    weights: vec4<f32>,
    // The same times softcap', or zero for masked keys.
    sloped: vec4<f32>,
}

// The weights of four pairs of an own and another row, from the products of their rows.
fn weigh(
    products: vec4<f32>, log_sums: LogSums, batch: u32, head: u32, own_indices: vec4<u32>,
    other_indices: vec4<u32>,
) -> Weights {
    var scores = products * p.scale;
    var slopes = vec4<f32>(1.0);
//#if BIASED
    if (p.softcap > 0.0) {
        let bounded = tanh4(scores / p.softcap);
        scores = p.softcap * bounded;
        slopes = 1.0 - bounded * bounded;
    }
    if (p.has_bias == 1u) {
//#if KEYS
        let biases = biases_at(p.bias_offset + offsets_of(p.bias_strides, batch, head, other_indices, own_indices));
//#else
        let biases = biases_at(p.bias_offset + offsets_of(p.bias_strides, batch, head, own_indices, other_indices));
//#endif
        // -inf. The score of a masked key is a constant.
        let masked = bitcast<vec4<u32>>(biases) == vec4<u32>(0xff800000u);
        scores = select(scores + biases, vec4<f32>(p.hidden_score), masked);
        slopes = select(slopes, vec4<f32>(), masked);
    }
//#endif
    let weights = select(weights_from(scores, log_sums), vec4<f32>(), are_hidden(own_indices, other_indices));
    return Weights(weights, weights * slopes);
}
