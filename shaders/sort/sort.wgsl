// sort: one step of a stable merge sort of every line x[o, ..], carrying along where each element came from.
// FIRST: an element finds its place in a block of BLOCK neighbours by counting those that go before it.
// Otherwise: runs of `run` sorted elements are merged in pairs; an element finds its place by counting, with a binary
// search in the other run, those that go before it. No step waits for another invocation.
// Floats are ordered by their bits, as IEEE 754's totalOrder: -0 before 0, NaN after infinity.
//#include "lib/grid"

alias E = f32;
const BLOCK: u32 = 32u;

struct Params {
    len: u32,
    // Elements per line, and per sorted run.
    line: u32,
    run: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#if !FIRST
@group(0) @binding(auto) var<storage, read> from_index: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
@group(0) @binding(auto) var<storage, read_write> out_index: array<i32>;

//#if FLOAT
alias Key = i32;

fn key(v: E) -> Key {
    let bits = bitcast<i32>(v);
    return select(bits, bits ^ 0x7fffffff, bits < 0);
}
//#else
alias Key = E;

fn key(v: E) -> Key {
    return v;
}
//#endif

fn before(a: Key, b: Key) -> bool {
//#if DESCENDING
    return a > b;
//#else
    return a < b;
//#endif
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let at = i % p.line;
    let line = i - at;
    let value = x[i];
    let k = key(value);
//#if FIRST
    let start = at - at % BLOCK;
    let end = min(start + BLOCK, p.line);
    var rank = 0u;
    for (var j = start; j < end; j++) {
        let other = key(x[line + j]);
        // Of equals the first stays first.
        rank += select(0u, 1u, before(other, k) || (j < at && !before(k, other)));
    }
    out[line + start + rank] = value;
    out_index[line + start + rank] = i32(at);
//#else
    let start = at - at % (p.run * 2u);
    let middle = min(start + p.run, p.line);
    let left = at < middle;
    // Where this element would be inserted in the other run.
    var low = select(start, middle, left);
    let first = low;
    var high = select(middle, min(middle + p.run, p.line), left);
    while (low < high) {
        let mid = (low + high) / 2u;
        let other = key(x[line + mid]);
        let precedes = select(!before(k, other), before(other, k), left);
        if (precedes) {
            low = mid + 1u;
        } else {
            high = mid;
        }
    }
    let own = at - select(middle, start, left);
    let to = line + start + own + low - first;
    out[to] = value;
    out_index[to] = from_index[i];
//#endif
}
