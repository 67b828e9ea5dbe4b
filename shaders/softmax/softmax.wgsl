// softmax: out[line, k] = e^(x[line, k] - maximum) / sum over j of e^(x[line, j] - maximum), along one axis.
// x and out are packed and have the same shape.
// LOG: out is the logarithm of that.
// Each team computes one line. Maximum and sum are found in one pass: the sum is rescaled whenever the
// maximum grows (M. Milakov and N. Gimelshein, Online normaliser calculation for softmax, 2018).
// HOLD: each member finds the maximum of its loads first, and computes each power once.
// A maximum may pass over NaN: the sum, and so each result of the line, is NaN.
// Rounds: 2 len / TEAM_SIZE.
//#include "lib/vector"
//#include "lib/team"

struct Params {
    // Lines.
    count: u32,
    // Loads of a line.
    len: u32,
    // Distance between the loads of a line.
    stride: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Load>;
@group(0) @binding(auto) var<storage, read_write> out: array<Load>;

// A maximum, and the sum of e^(x - maximum).
struct Partial {
    maximum: f32,
    sum: f32,
}

//#if VEC4
fn max_of(v: Values) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

fn exp_of(v: Values) -> Values {
    return exp4(v);
}
//#else
fn max_of(v: Values) -> f32 {
    return v;
}

fn exp_of(v: Values) -> Values {
    return exp_(v);
}
//#endif

fn combine(a: Partial, b: Partial) -> Partial {
    let maximum = max(a.maximum, b.maximum);
    let shift = softmax_shift(maximum);
    return Partial(maximum, a.sum * exp_(a.maximum - shift) + b.sum * exp_(b.maximum - shift));
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return Partial(subgroupShuffleXor(partial.maximum, mask), subgroupShuffleXor(partial.sum, mask));
}
//#endif

// Adds the elements of a load.
fn accumulate(total: Partial, v: Values) -> Partial {
    let maximum = max(total.maximum, max_of(v));
    let shift = softmax_shift(maximum);
    return Partial(maximum, total.sum * exp_(total.maximum - shift) + sum_of(exp_of(v - shift)));
}

fn reduce_line(line: u32, local_index: u32) {
    let base = (line / p.stride) * p.stride * p.len + line % p.stride;
    let first = base + member_index(local_index) * p.stride;
    let step = TEAM_SIZE * p.stride;
    let end = base + p.len * p.stride;
    var total = Partial(-inf(), 0.0);
//#if HOLD
    var held: array<Values, HELD>;
//#repeat K HELD
    held[K] = Values(-inf());
    if (first + K * step < end) { held[K] = to_values(x[first + K * step]); }
    total.maximum = max(total.maximum, max_of(held[K]));
//#end
    let member_maximum = total.maximum;
    let shift = softmax_shift(member_maximum);
//#repeat K HELD
//#if LOG
    total.sum += sum_of(exp_of(held[K] - shift));
//#else
    held[K] = exp_of(held[K] - shift);
    total.sum += sum_of(held[K]);
//#endif
//#end
//#else
    for (var i = first; i < end; i += step) {
        total = accumulate(total, to_values(x[i]));
    }
//#endif
    total = team_combine(local_index, total);
    // The result of a line of -inf is NaN.
//#if LOG
    let log_sum = ln(total.sum);
//#else
    var factor = 1.0 / total.sum;
//#if HOLD
    let rescale = exp_(member_maximum - softmax_shift(total.maximum));
    factor = select(factor * rescale, nan(), is_negative_inf(total.maximum));
//#endif
//#endif
//#if HOLD
//#repeat K HELD
    if (first + K * step < end) {
//#if LOG
        out[first + K * step] = from_values(held[K] - total.maximum - log_sum);
//#else
        out[first + K * step] = from_values(held[K] * factor);
//#endif
    }
//#end
//#else
    for (var i = first; i < end; i += step) {
        let v = to_values(x[i]);
//#if LOG
        out[i] = from_values(v - total.maximum - log_sum);
//#else
        out[i] = from_values(exp_of(v - total.maximum) * factor);
//#endif
    }
//#endif
}
//#use "lib/math"
