// The operands and scores of attention, which its kernels share.
//   out[b, h, i, c] = sum over j of softmax(score[b, h, i])[j] * v[b, h, j, c], where
//   score[b, h, i, j] = softcap(scale * sum over e of q[b, h, i, e] * k[b, h, j, e]) + bias[b, h, i, j],
//   softcap(s) = p.softcap * tanh(s / p.softcap), or s without a softcap,
// or p.hidden_score if key j is masked: -inf, or what the program fills in. A row of nothing but -inf gives zeros.
// q is [batch, heads, queries, width], k is [batch, heads, keys, width] and v is
// [batch, heads, keys, value_width], with widths that are multiples of four. mask and bias are
// [batch, heads, queries, keys]. All are read through their strides: a linear index into the scores may not
// fit into 32 bits.
// out is packed: [batch, heads, queries, splits, value_width]. Each split attends to keys_per_split keys only.
// BIASED: there is a softcap, a mask or a bias.
// LOG_SUMS: log_sums[b, h, i] = ln(sum over j of e^score[b, h, i, j]), or inf if all keys are masked, and what is
// rounded away of it. With several splits, log_sums[b, h, i, split] are two numbers, m and the sum over the keys j of
// the split of e^(score[b, h, i, j] - m), where m is near the maximum of the scores: the logarithm of the sum would
// vanish in a large m.
//
// The scores are never stored. Kernels go over the keys in blocks, and rescale the running sums when a block raises
// the maximum. (M. Milakov and N. Gimelshein, Online normaliser calculation for softmax, 2018; T. Dao et al.,
// FlashAttention, 2022.)
//#include "lib/attention_scores"

struct Params {
    heads: u32,
    queries: u32,
    keys: u32,
    // Vec4s of a key, and of a value.
    width: u32,
    value_width: u32,
    // Blocks of rows, and of vec4 columns, each of a workgroup.
    row_blocks: u32,
    col_blocks: u32,
    workgroups: u32,
    scale: f32,
    // Zero if there is none.
    softcap: f32,
    // 1 if query i attends to the keys j with j + queries <= i + keys only.
    causal: u32,
    has_mask: u32,
    has_bias: u32,
    mask_offset: u32,
    bias_offset: u32,
    keys_per_split: u32,
    // The score of masked keys.
    hidden_score: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    q: OperandLayout,
    k: OperandLayout,
    v: OperandLayout,
    // Strides in elements, along batch, heads, queries and keys.
    mask_strides: vec4<u32>,
    bias_strides: vec4<u32>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> q: array<Operand4>;
@group(0) @binding(auto) var<storage, read> k: array<Operand4>;
@group(0) @binding(auto) var<storage, read> v: array<Operand4>;
//#if BIASED
// The layout requires both bindings; a missing mask or bias is another one, and not read.
@group(0) @binding(auto) var<storage, read> mask: array<u32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#if LOG_SUMS
@group(0) @binding(auto) var<storage, read_write> log_sums: array<f32>;
//#endif

// The scores of four queries and keys, from their dot products.
fn scores_of(products: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>, keys: vec4<u32>) -> vec4<f32> {
    var scores = products * p.scale;
//#if BIASED
    if (p.softcap > 0.0) { scores = p.softcap * tanh4(scores / p.softcap); }
    if (p.has_bias == 1u) {
        scores += biases_at(p.bias_offset + offsets_of(p.bias_strides, batch, head, queries, keys));
    }
    // After the bias, which may be inf for hidden keys.
    if (p.has_mask == 1u) {
        let at = p.mask_offset + offsets_of(p.mask_strides, batch, head, queries, keys);
        let masked = vec4<u32>(mask[at.x], mask[at.y], mask[at.z], mask[at.w]) != vec4<u32>();
        scores = select(scores, vec4<f32>(p.hidden_score), masked);
    }
//#endif
    return scores;
}

// The ends of the keys that each of four queries attends to.
fn key_ends(queries: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(
        keys_end(queries.x + 1u), keys_end(queries.y + 1u), keys_end(queries.z + 1u), keys_end(queries.w + 1u),
    );
}

// Scores, or -inf for keys that their queries do not attend to.
fn hide(scores: vec4<f32>, keys: vec4<u32>, ends: vec4<u32>) -> vec4<f32> {
    return select(scores, vec4<f32>(-inf()), keys >= ends);
}

//#if LOG_SUMS
//#include "lib/log_sum"

// Stores the logarithm of e^maximum * sum, or both for one of several splits.
fn store_log_sum(row: u32, splits: u32, maximum: f32, sum: f32) {
    // There are fewer than 2^31 queries.
    let stored = select(log_sum_of(maximum, sum, p.queries >> 31u), vec2<f32>(maximum, sum), splits > 1u);
    log_sums[2u * row] = stored.x;
    log_sums[2u * row + 1u] = stored.y;
}
//#endif

// What a workgroup computes.
struct Work {
    batch: u32,
    head: u32,
    // batch * heads + head.
    matrix: u32,
    row_block: u32,
    col_block: u32,
    split: u32,
    splits: u32,
}

fn work_of(index: u32) -> Work {
    let splits = (p.keys - 1u) / p.keys_per_split + 1u;
    let split = index % splits;
    let col_block = index / splits % p.col_blocks;
    let row_block = index / splits / p.col_blocks % p.row_blocks;
    let matrix = index / splits / p.col_blocks / p.row_blocks;
    return Work(matrix / p.heads, matrix % p.heads, matrix, row_block, col_block, split, splits);
}

// The end of the keys of a split that the rows below row_end attend to.
fn end_of(split: u32, row_end: u32) -> u32 {
    return min(keys_end(row_end), (split + 1u) * p.keys_per_split);
}

// The row of a query in out and log_sums.
fn result_row(work: Work, query: u32) -> u32 {
    return (work.matrix * p.queries + query) * work.splits + work.split;
}
