// softmax_backward: the gradient of softmax along one axis, from its result y and the gradient g of y:
//   out[line, k] = y[line, k] * (g[line, k] - sum over j of y[line, j] * g[line, j]).
// LOG: of the logarithm of softmax, whose result is y: out[line, k] = g[line, k] - e^y[line, k] * sum of g[line].
// y, g and out are packed and have the same shape. Each team computes one line.
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
@group(0) @binding(auto) var<storage, read> y: array<Load>;
@group(0) @binding(auto) var<storage, read> g: array<Load>;
@group(0) @binding(auto) var<storage, read_write> out: array<Load>;

alias Partial = f32;

fn combine(a: Partial, b: Partial) -> Partial {
    return a + b;
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return subgroupShuffleXor(partial, mask);
}
//#endif

//#if LOG
//#if VEC4
fn exp_of(v: Values) -> Values {
    return exp4(v);
}
//#else
fn exp_of(v: Values) -> Values {
    return exp_(v);
}
//#endif
//#endif

fn reduce_line(line: u32, local_index: u32) {
    let base = (line / p.stride) * p.stride * p.len + line % p.stride;
    let first = base + member_index(local_index) * p.stride;
    let step = TEAM_SIZE * p.stride;
    let end = base + p.len * p.stride;
    var sum = 0.0;
//#if HOLD
    var held_y: array<Values, HELD>;
    var held_g: array<Values, HELD>;
//#repeat K HELD
    held_y[K] = Values();
    held_g[K] = Values();
    if (first + K * step < end) {
        held_y[K] = to_values(y[first + K * step]);
        held_g[K] = to_values(g[first + K * step]);
    }
//#if LOG
    sum += sum_of(held_g[K]);
//#else
    sum += sum_of(held_y[K] * held_g[K]);
//#endif
//#end
    sum = team_combine(local_index, sum);
//#repeat K HELD
    if (first + K * step < end) {
//#if LOG
        out[first + K * step] = from_values(held_g[K] - exp_of(held_y[K]) * sum);
//#else
        out[first + K * step] = from_values(held_y[K] * (held_g[K] - sum));
//#endif
    }
//#end
//#else
    for (var i = first; i < end; i += step) {
//#if LOG
        sum += sum_of(to_values(g[i]));
//#else
        sum += sum_of(to_values(y[i]) * to_values(g[i]));
//#endif
    }
    sum = team_combine(local_index, sum);
    for (var i = first; i < end; i += step) {
//#if LOG
        out[i] = from_values(to_values(g[i]) - exp_of(to_values(y[i])) * sum);
//#else
        out[i] = from_values(to_values(y[i]) * (to_values(g[i]) - sum));
//#endif
    }
//#endif
}
//#use "lib/math"
