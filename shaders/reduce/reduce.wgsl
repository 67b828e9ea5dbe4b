// reduce: out[o] = FINISH(COMBINE over k of LOAD(x[o, k])), with k running over the reduced axes.
// A line is what one output reduces; it may be cut into `splits` parts, whose results lie [split][line].
// A team walks a part. ALONG: parts are contiguous and aligned, read four elements at a time. ACROSS: a team walks the
// same part of four lines that are neighbours in memory, a quad at a time. WORDS: quads are of 32-bit words.
// ARG: the result is the index along the line instead of the value.
// The order of combination depends on the layout and the adapter alone, so results repeat bit for bit.
// FLAT: one axis is reduced.
//#include "lib/grid"
//#include "lib/layout"
//#include "lib/team"
//#if WORDS
//#include "lib/quad"
//#endif

alias E = f32;
alias O = f32;
// Elements of a line that one read brings.
const PER_LOAD: u32 = 1u;

struct Params {
    // Lines, or quads of them; parts per line; reads per line; reads per part.
    lines: u32,
    splits: u32,
    len: u32,
    chunk: u32,
    // For FINISH: what a mean is divided by.
    scale: f32,
    // From one read of a line to the next.
    step: u32,
    // Axes that are reduced, as a second walk, in reads.
    inner_rank: u32,
    pad0: u32,
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

//#if !FLAT
// Where read k of a line lies, relative to the line's start.
fn inner(k: u32) -> u32 {
    var rest = k;
    var at = 0u;
    for (var axis = p.inner_rank - 1u; axis > 0u; axis--) {
        let size = p.inner_shape[axis >> 2u][axis & 3u];
        let next = rest / size;
        at += (rest - next * size) * p.inner_steps[axis >> 2u][axis & 3u];
        rest = next;
    }
    at += rest * p.inner_steps[0].x;
    return at;
}
//#endif

// Part: what a member of a team brings. taken: what read k of a line brings, `at` its place. store: the result.
//#if ARG
struct Part {
    value: T,
    index: u32,
}

// The index of nothing.
const NONE: u32 = 0xffffffffu;

fn nothing() -> Part {
    return Part(T(), NONE);
}

// Of equals the first stays.
fn joined(best: Part, next: Part) -> Part {
    let v = next.value;
    let b = best.value;
    let index = next.index;
    let better = (BETTER) || (v == b && index < best.index);
    if (index != NONE && (best.index == NONE || better)) { return next; }
    return best;
}

fn taken(at: u32, k: u32) -> Part {
    return Part(load(x[at]), k);
}

fn store(split: u32, line: u32, best: Part) {
    out[split * p.lines + line] = O(best.index);
}
//#else
fn nothing() -> Part {
    return Part(IDENTITY);
}

//#if ACROSS
alias Part = vec4<T>;

fn joined(a: Part, b: Part) -> Part {
    return Part(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w));
}

fn taken(at: u32, k: u32) -> Part {
    let v = four(at);
    return Part(load(v.x), load(v.y), load(v.z), load(v.w));
}

fn store(split: u32, line: u32, best: Part) {
    let at = (split * p.lines + line) * 4u;
    out[at] = finish(best.x);
    out[at + 1u] = finish(best.y);
    out[at + 2u] = finish(best.z);
    out[at + 3u] = finish(best.w);
}
//#else
alias Part = T;

fn joined(a: Part, b: Part) -> Part {
    return combine(a, b);
}

fn taken(at: u32, k: u32) -> Part {
//#if ALONG
    let v = four(at);
    return combine(combine(load(v.x), load(v.y)), combine(load(v.z), load(v.w)));
//#else
    return load(x[at]);
//#endif
}

fn store(split: u32, line: u32, best: Part) {
    out[split * p.lines + line] = finish(best);
}
//#endif
//#endif

//#if SUBGROUP
fn shuffled(part: Part, mask: u32) -> Part {
//#if ARG
    return Part(subgroupShuffleXor(part.value, mask), subgroupShuffleXor(part.index, mask));
//#else
    return subgroupShuffleXor(part, mask);
//#endif
}
//#endif

// The reads first, first + SPAN, ... below end.
fn walk(base: u32, first: u32, end: u32) -> Part {
    var best = nothing();
//#if FLAT
    // Two a turn, which are under way at once. Places are added up: as products they take a CPU twice as long.
    let step = SPAN * p.step;
    var at = base + first * p.step;
    var k = first;
    for (; k + SPAN < end; k += 2u * SPAN) {
        let one = taken(at, k);
        best = joined(best, joined(one, taken(at + step, k + SPAN)));
        at += 2u * step;
    }
    if (k < end) {
        best = joined(best, taken(at, k));
    }
//#else
    for (var k = first; k < end; k += SPAN) {
        best = joined(best, taken(base + inner(k), k));
    }
//#endif
    return best;
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbouring teams walk neighbouring lines.
    let team = group_index(group, groups) * TEAMS + team_of(lane);
    if (is_spare(team, p.lines * p.splits)) { return; }
    let index = min(team, p.lines * p.splits - 1u);
    let split = index / p.lines;
    let line = index % p.lines;
    let start = split * p.chunk;
    let end = start + min(p.chunk, p.len - start);
//#if ACROSS
    let base = locate(line * 4u).x >> 2u;
//#else
    let base = locate(line).x / PER_LOAD;
//#endif
    let best = over_team(lane, walk(base, start + member_of(lane), end));
    if (member_of(lane) == 0u) {
        store(split, line, best);
    }
}
//#use "lib/math"
