// attention: out[b, h, i, c] = sum over keys j of weight[i, j] * v[b, h, j, c], each row of weights a softmax of
//   score[i, j] = softcap(scale * sum over e of q[b, h, i, e] * k[b, h, j, e]) + bias[b, h, i, j],
// -inf where masked. A row that is masked everywhere gives zeros. No matrix of scores is ever stored: keys come in
// blocks of LANES, and what a row has summed is scaled down whenever a block brings a larger maximum.
// (M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, 2018; T. Dao et al., FlashAttention, 2022.)
// A workgroup computes ROWS rows. In each block a lane first scores one key for every row. Then it sums COLS quads of
// columns of its share of the rows, one in TEAMS, for which it needs the weights of all lanes: through workgroup memory,
// or, where a workgroup is one subgroup of eight lanes (SUBGROUP), by shuffles and without a barrier.
// Operands are vec4, read through their strides; an index into the scores would not always fit 32 bits.
//#include "lib/grid"

const LANES: u32 = 64u;
const ROWS: u32 = 8u;
const COLS: u32 = 1u;
const TEAMS: u32 = 4u;
// The rows of a lane's sums.
const OWN: u32 = 2u;
// The lanes that cover a row's columns.
const SPAN: u32 = LANES / TEAMS;

struct Params {
    heads: u32,
    queries: u32,
    keys: u32,
    // Quads in a key, and in a value.
    width: u32,
    value_width: u32,
    row_blocks: u32,
    col_blocks: u32,
    groups: u32,
    scale: f32,
    // Zero for none.
    softcap: f32,
    causal: u32,
    has_mask: u32,
    has_bias: u32,
    mask_offset: u32,
    bias_offset: u32,
    pad0: u32,
    // In quads: where the operand starts, and its strides of batch, head and row.
    q: vec4<u32>,
    k: vec4<u32>,
    v: vec4<u32>,
    // In elements: strides of batch, head, row and column.
    mask: vec4<u32>,
    bias: vec4<u32>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>;
//#if BIASED
@group(0) @binding(auto) var<storage, read> mask: array<u32>;
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;

//#if !SUBGROUP
// Lanes that share a row while weights are made of scores.
const SHARE: u32 = LANES / ROWS;
// The block's scores, then weights: [key][row].
var<workgroup> weights: array<f32, LANES * ROWS>;
var<workgroup> gathered: array<f32, LANES>;
var<workgroup> scales: array<f32, ROWS>;
//#endif

// Where a head of a batch starts.
fn start(operand: vec4<u32>, at: vec2<u32>) -> u32 {
    return operand.x + at.x * operand.y + at.y * operand.z;
}

// The score of a key, of the product of query and key.
fn score(product: f32, at: vec2<u32>, row: u32, key: u32) -> f32 {
    // The last query sees the last key.
    let hidden = p.causal == 1u && key + p.queries > row + p.keys;
    var s = product * p.scale;
//#if BIASED
    if (p.softcap > 0.0) { s = p.softcap * tanh_(s / p.softcap); }
    let place = vec4<u32>(at, row, min(key, p.keys - 1u));
    if (p.has_mask == 1u) {
        let steps = place * p.mask;
        if (mask[p.mask_offset + steps.x + steps.y + steps.z + steps.w] != 0u) { s = -inf(); }
    }
    if (p.has_bias == 1u) {
        let steps = place * p.bias;
        s += bias[p.bias_offset + steps.x + steps.y + steps.z + steps.w];
    }
//#endif
    return select(s, -inf(), hidden || key >= p.keys);
}

// What scores of a row are counted from: its maximum, unless all are masked so far.
fn origin(top: f32) -> f32 {
    return select(top, 0.0, top == -inf());
}

//#if SUBGROUP
// Of eight lanes. (Where these are used, a compiler takes longer over subgroupMax and subgroupAdd.)
fn octet_max(x: f32) -> f32 {
    var y = max(x, subgroupShuffleXor(x, 1u));
    y = max(y, subgroupShuffleXor(y, 2u));
    return max(y, subgroupShuffleXor(y, 4u));
}

fn octet_sum(x: f32) -> f32 {
    var y = x + subgroupShuffleXor(x, 1u);
    y += subgroupShuffleXor(y, 2u);
    return y + subgroupShuffleXor(y, 4u);
}
//#endif

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group_index(group, groups);
    if (block >= p.groups) { return; }
    let row0 = block / p.col_blocks % p.row_blocks * ROWS;
    let matrix = block / p.col_blocks / p.row_blocks;
    let at = vec2<u32>(matrix / p.heads, matrix % p.heads);
    // Past the edges, rows and columns repeat the last one: they write the same value once more.
    let last_row = p.queries - 1u;
    let team_row = row0 + lane / SPAN * OWN;
    let q_start = start(p.q, at);
    let k_start = start(p.k, at);
    let v_start = start(p.v, at);
    var cols: array<u32, COLS>;
//#repeat J COLS
    cols[J] = min((block % p.col_blocks * COLS + J) * SPAN + lane % SPAN, p.value_width - 1u);
//#end
    // No row of the block sees keys past this.
    var end = p.keys;
    if (p.causal == 1u) {
        let seen = min(row0 + ROWS, p.queries) + p.keys;
        end = min(end, select(0u, seen - p.queries, seen > p.queries));
    }
    var acc: array<vec4<f32>, OWN * COLS>;
//#if SUBGROUP
    var tops: array<f32, ROWS>;
    var sums: array<f32, ROWS>;
//#repeat I ROWS
    tops[I] = -inf();
//#end
//#else
    // The row whose weights this lane makes together with its neighbours, and its place among them.
    let row = lane / SHARE;
    let place = lane % SHARE;
    var row_top = -inf();
    var row_sum = 0.0;
//#endif
    for (var key0 = 0u; key0 < end; key0 += LANES) {
        let key = key0 + lane;
        let k_row = k_start + min(key, p.keys - 1u) * p.k.w;
        let count = min(LANES, p.keys - key0);
        var s: array<f32, ROWS>;
//#repeat I ROWS
        s[I] = 0.0;
//#end
//#if SUBGROUP
        for (var e0 = 0u; e0 < p.width; e0 += LANES) {
            // Each lane brings one of eight quads of the queries.
            var part: array<vec4<f32>, ROWS>;
            let mine = q_start + min(e0 + lane, p.width - 1u);
//#repeat I ROWS
            part[I] = q[mine + min(row0 + I, last_row) * p.q.w];
//#end
            let quads = min(LANES, p.width - e0);
            for (var e = 0u; e < quads; e++) {
                let x = k[k_row + e0 + e];
//#repeat I ROWS
                s[I] += dot(subgroupShuffle(part[I], e), x);
//#end
            }
        }
//#else
        for (var e = 0u; e < p.width; e++) {
            let x = k[k_row + e];
//#repeat I ROWS
            s[I] += dot(q[q_start + min(row0 + I, last_row) * p.q.w + e], x);
//#end
        }
//#endif
//#repeat I ROWS
        s[I] = score(s[I], at, min(row0 + I, last_row), key);
//#end
//#if SUBGROUP
//#repeat I ROWS
        {
            let top = max(tops[I], octet_max(s[I]));
            let scale = exp_(tops[I] - origin(top));
            s[I] = exp_(s[I] - origin(top));
            sums[I] = sums[I] * scale + s[I];
            tops[I] = top;
//#repeat J COLS
            acc[I * COLS + J] *= scale;
//#end
        }
//#end
//#else
        // The last block's weights are no longer needed.
        workgroupBarrier();
//#repeat I ROWS
        weights[lane * ROWS + I] = s[I];
//#end
        workgroupBarrier();
        var top = row_top;
        for (var j = place; j < LANES; j += SHARE) {
            top = max(top, weights[j * ROWS + row]);
        }
        gathered[lane] = top;
        workgroupBarrier();
        for (var j = 0u; j < SHARE; j++) {
            top = max(top, gathered[row * SHARE + j]);
        }
        let scale = exp_(row_top - origin(top));
        row_sum *= scale;
        row_top = top;
        for (var j = place; j < LANES; j += SHARE) {
            let weight = exp_(weights[j * ROWS + row] - origin(top));
            weights[j * ROWS + row] = weight;
            row_sum += weight;
        }
        if (place == 0u) { scales[row] = scale; }
        workgroupBarrier();
        let team = lane / SPAN * OWN;
//#repeat I OWN
//#repeat J COLS
        acc[I * COLS + J] *= scales[team + I];
//#end
//#end
//#endif
        for (var j = 0u; j < count; j++) {
            let v_row = v_start + (key0 + j) * p.v.w;
            var x: array<vec4<f32>, COLS>;
//#repeat J COLS
            x[J] = v[v_row + cols[J]];
//#end
//#repeat I OWN
            {
//#if SUBGROUP
                let weight = subgroupShuffle(s[I], j);
//#else
                let weight = weights[j * ROWS + team + I];
//#endif
//#repeat J COLS
                acc[I * COLS + J] += weight * x[J];
//#end
            }
//#end
        }
    }
//#if !SUBGROUP
    gathered[lane] = row_sum;
    workgroupBarrier();
//#endif
//#repeat I OWN
    {
//#if SUBGROUP
        let sum = octet_sum(sums[I]);
//#else
        var sum = 0.0;
        for (var j = 0u; j < SHARE; j++) { sum += gathered[(lane / SPAN * OWN + I) * SHARE + j]; }
//#endif
        let scale = select(1.0 / sum, 0.0, sum == 0.0);
        let out_row = (matrix * p.queries + min(team_row + I, last_row)) * p.value_width;
//#repeat J COLS
        out[out_row + cols[J]] = acc[I * COLS + J] * scale;
//#end
    }
//#end
}
//#use "lib/math"
