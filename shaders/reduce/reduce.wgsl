// reduce: out[o] = FINISH(COMBINE over k of LOAD(x[o, k])), with k running over the reduced axes.
// A line is what one output reduces; it may be cut into `splits` parts, each an output of its own.
// Default: one invocation walks one part. ROW: LANES invocations walk one part together and combine
// through workgroup memory in a fixed tree. VEC4: parts are contiguous and aligned, read four at a time; WORDS: of 32 bits.
// COLUMNS: one invocation walks the same part of four lines that are neighbours in memory, a quad at a time.
// ARG: the result is the index along the line instead of the value.
// The order of combination depends on the shape alone, so results repeat bit for bit.
//#include "lib/grid"
//#include "lib/layout"
//#if WORDS
//#include "lib/quad"
//#endif

alias E = f32;
alias O = f32;
const LANES: u32 = 64u;
// Elements that one read brings.
const PER_LOAD: u32 = 1u;

struct Params {
    // Parts in all, parts per line, elements per line, elements per part.
    parts: u32,
    splits: u32,
    len: u32,
    chunk: u32,
    // For FINISH: what a mean is divided by.
    scale: f32,
    // Axes that are reduced, as a second walk.
    inner_rank: u32,
    pad0: u32,
    pad1: u32,
    walk: Walk,
    inner_shape: array<vec4<u32>, 3>,
    inner_steps: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if QUADS
//#if WORDS
@group(0) @binding(auto) var<storage, read> x: array<Quad>;

fn four(q: u32) -> vec4<E> {
    return bitcast<vec4<E>>(words_of(x[q]));
}
//#else
@group(0) @binding(auto) var<storage, read> x: array<vec4<E>>;

fn four(q: u32) -> vec4<E> {
    return x[q];
}
//#endif
//#else
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

alias T = f32;

fn combine(a: T, b: T) -> T {
    return COMBINE;
}

fn load(v: E) -> T {
    return LOAD;
}

fn finish(v: T) -> O {
    return O(FINISH);
}

// Where element k of a line lies, relative to the line's start.
fn inner(k: u32) -> u32 {
    if (p.inner_rank == 1u) { return k * p.inner_steps[0].x; }
    var rest = k;
    var at = 0u;
    for (var axis = p.inner_rank; axis > 0u; axis--) {
        let a = axis - 1u;
        let size = p.inner_shape[a >> 2u][a & 3u];
        let next = rest / size;
        at += (rest - next * size) * p.inner_steps[a >> 2u][a & 3u];
        rest = next;
    }
    return at;
}

//#if ROW
var<workgroup> shared_value: array<T, LANES>;
//#if ARG
var<workgroup> shared_index: array<u32, LANES>;
//#endif
//#endif

struct Best {
    value: T,
    index: u32,
}

// Whether a candidate replaces the best so far; of equals the first stays.
fn better(best: Best, value: T, index: u32) -> bool {
    let v = value;
    let b = best.value;
    return (BETTER) || (v == b && index < best.index);
}

//#if VEC4
fn of_four(q: u32) -> T {
    let v = four(q);
    return combine(combine(load(v.x), load(v.y)), combine(load(v.z), load(v.w)));
}
//#endif

//#if !COLUMNS
// Walks elements first, first + step, ... below end.
fn walk_part(base: u32, first: u32, step: u32, end: u32) -> Best {
    var best = Best(IDENTITY, first);
//#if VEC4
    // Two quads a turn: both loads are under way at once.
    var k = first;
    for (; k + step < end; k += 2u * step) {
        let here = of_four((base >> 2u) + k);
        best.value = combine(best.value, combine(here, of_four((base >> 2u) + k + step)));
    }
    if (k < end) {
        best.value = combine(best.value, of_four((base >> 2u) + k));
    }
//#else
//#if ARG
    if (first < end) {
        best.value = load(x[base + inner(first)]);
    }
    for (var k = first + step; k < end; k += step) {
        let value = load(x[base + inner(k)]);
        if (better(best, value, k)) {
            best = Best(value, k);
        }
    }
//#else
    for (var k = first; k < end; k += step) {
        best.value = combine(best.value, load(x[base + inner(k)]));
    }
//#endif
//#endif
    return best;
}

fn store(o: u32, best: Best) {
//#if ARG
    out[o] = O(best.index);
//#else
    out[o] = finish(best.value);
//#endif
}

//#endif

//#if ROW
@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let o = group_index(group, groups);
    if (o >= p.parts) { return; }
    let base = locate(o / p.splits).x;
    let start = (o % p.splits) * p.chunk;
    let end = min(start + p.chunk, p.len);
    var best = walk_part(base, start + lane, LANES, end);
    shared_value[lane] = best.value;
//#if ARG
    shared_index[lane] = best.index;
//#endif
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
//#if ARG
            // Lanes past the end of the line hold nothing.
            let other = shared_index[lane + half];
            if (other < end && better(Best(shared_value[lane], shared_index[lane]), shared_value[lane + half], other)) {
                shared_value[lane] = shared_value[lane + half];
                shared_index[lane] = other;
            }
//#else
            shared_value[lane] = combine(shared_value[lane], shared_value[lane + half]);
//#endif
        }
    }
    if (lane == 0u) {
//#if ARG
        store(o, Best(shared_value[0], shared_index[0]));
//#else
        store(o, Best(shared_value[0], 0u));
//#endif
    }
}
//#else
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbouring invocations walk neighbouring lines.
    let index = group_index(group, groups) * 64u + lane;
    if (index >= p.parts) { return; }
    let lines = p.parts / p.splits;
    let split = index / lines;
    let start = split * p.chunk;
    let end = min(start + p.chunk, p.len);
//#if COLUMNS
    let line = index % lines * 4u;
    let base = locate(line).x;
    var best = vec4<T>(IDENTITY);
    for (var k = start; k < end; k++) {
        let v = four((base + inner(k)) >> 2u);
        best = vec4<T>(
            combine(best.x, load(v.x)),
            combine(best.y, load(v.y)),
            combine(best.z, load(v.z)),
            combine(best.w, load(v.w)),
        );
    }
    let at = line * p.splits + split;
    out[at] = finish(best.x);
    out[at + p.splits] = finish(best.y);
    out[at + 2u * p.splits] = finish(best.z);
    out[at + 3u * p.splits] = finish(best.w);
//#else
    let line = index % lines;
    store(line * p.splits + split, walk_part(locate(line).x, start, 1u, end));
//#endif
}
//#endif
//#use "lib/math"
