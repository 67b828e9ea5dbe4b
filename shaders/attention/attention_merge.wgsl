// attention_merge: attention over all keys, from attention over splits of them.
//   out[row, c] = sum over s of e^maximum[row, s] * sum[row, s] * parts[row, s, c] / e^log_sum[row],
//   LOG_SUMS: log_sums[row] = log_sum[row] = ln(sum over s of e^maximum[row, s] * sum[row, s]), and what is rounded
//   away of it,
// where part_sums[row, s] is the maximum and the sum of split s; the sum is zero if all its keys are masked. If this
// holds for all splits, out is zero and log_sum is inf. All operands are packed.
// Each invocation computes a vec4.
// Rounds: 2 splits.

struct Params {
    // Vec4s of out.
    count: u32,
    // Vec4s of a row.
    width: u32,
    splits: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(auto) var<storage, read> part_sums: array<vec2<f32>>;
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;
//#if LOG_SUMS
@group(0) @binding(auto) var<storage, read_write> log_sums: array<vec2<f32>>;
//#include "lib/log_sum"
//#endif

fn invocation(i: u32) {
    let first = i / p.width * p.splits;
    let col = i % p.width;
    var maximum = -inf();
    for (var split = 0u; split < p.splits; split++) { maximum = max(maximum, part_sums[first + split].x); }
    let shift = softmax_shift(maximum);
    var sum = 0.0;
    var acc = vec4<f32>();
    for (var split = 0u; split < p.splits; split++) {
        let of_split = part_sums[first + split];
        let weight = exp_(of_split.x - shift) * of_split.y;
        sum += weight;
        acc += weight * parts[(first + split) * p.width + col];
    }
    out[i] = acc * select(1.0 / sum, 0.0, sum == 0.0);
//#if LOG_SUMS
    if (col == 0u) { log_sums[i / p.width] = log_sum_of(shift, sum, p.splits >> 31u); }
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
