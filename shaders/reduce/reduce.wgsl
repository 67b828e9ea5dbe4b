// reduce: out[l] = FINISH(COMBINE over k of LOAD(x[l, k])), with k over the reduced axes.
// A line is the elements that one output reduces. A line may be cut into `splits` parts; their results are
// [splits, lines]. A team reduces one part.
// ALONG: the elements of a line are contiguous and read in vec4s. ACROSS: a team reduces the same part of four
// neighbouring lines, read in vec4s. WORDS: elements have 32 bits. FLAT: one axis is reduced.
// ARG: the result is the index of the element within its line.
// The order of combination depends only on the layout and the adapter, so results repeat bit for bit.
//#include "lib/grid"
//#include "lib/walk"
//#include "lib/team"
//#if WORDS
//#include "lib/vec4"
//#endif

alias E = f32;
alias O = f32;
// Elements of a line per load.
const LINE_ELEMENTS_PER_LOAD: u32 = 1u;

struct Params {
    // Lines; with ACROSS, groups of four lines.
    lines: u32,
    splits: u32,
    // Loads of a line.
    len: u32,
    // Loads of a split; the last one may have fewer.
    split_len: u32,
    // The divisor of a mean, for FINISH.
    divisor: f32,
    // Stride of the loads if one axis is reduced.
    stride: u32,
    // The reduced axes: sizes and strides in loads.
    inner_rank: u32,
    pad0: u32,
    walk: Walk,
    inner_shape: array<vec4<u32>, 3>,
    inner_strides: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if VEC4
//#if WORDS
@group(0) @binding(auto) var<storage, read> x: array<Words4>;

fn load_vec4(at: u32) -> vec4<E> {
    return bitcast<vec4<E>>(to_words(x[at]));
}
//#else
@group(0) @binding(auto) var<storage, read> x: array<vec4<E>>;

fn load_vec4(at: u32) -> vec4<E> {
    return x[at];
}
//#endif
//#else
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<O>;

// The type of partial results.
alias T = f32;

fn combine_values(a: T, b: T) -> T {
    return COMBINE;
}

fn convert(v: E) -> T {
    return LOAD;
}

fn finish(v: T) -> O {
    return O(FINISH);
}

//#if !FLAT
// Offset of load k from the start of its line.
fn inner_offset(k: u32) -> u32 {
    var rest = k;
    var at = 0u;
    for (var axis = p.inner_rank - 1u; axis > 0u; axis--) {
        let size = p.inner_shape[axis >> 2u][axis & 3u];
        let next = rest / size;
        at += (rest - next * size) * p.inner_strides[axis >> 2u][axis & 3u];
        rest = next;
    }
    at += rest * p.inner_strides[0].x;
    return at;
}
//#endif

// Each kind of reduction defines:
// Partial: the contribution of a member of the team; identity: that of no elements;
// load: load k of a line, at offset `at`; store: writes the result of a split.
//#if ARG
struct Partial {
    value: T,
    index: u32,
}

const NO_INDEX: u32 = 0xffffffffu;

fn identity() -> Partial {
    return Partial(T(), NO_INDEX);
}

// The first of equal elements wins.
fn combine(best: Partial, next: Partial) -> Partial {
    let v = next.value;
    let b = best.value;
    let index = next.index;
    let better = (BETTER) || (v == b && index < best.index);
    if (index != NO_INDEX && (best.index == NO_INDEX || better)) { return next; }
    return best;
}

fn load(at: u32, k: u32) -> Partial {
    return Partial(convert(x[at]), k);
}

fn store(split: u32, line: u32, best: Partial) {
    out[split * p.lines + line] = O(best.index);
}
//#endif
//#if !ARG
fn identity() -> Partial {
    return Partial(IDENTITY);
}
//#endif
//#if ACROSS
alias Partial = vec4<T>;

fn combine(a: Partial, b: Partial) -> Partial {
    return Partial(
        combine_values(a.x, b.x),
        combine_values(a.y, b.y),
        combine_values(a.z, b.z),
        combine_values(a.w, b.w),
    );
}

fn load(at: u32, k: u32) -> Partial {
    let v = load_vec4(at);
    return Partial(convert(v.x), convert(v.y), convert(v.z), convert(v.w));
}

fn store(split: u32, line: u32, total: Partial) {
    let at = (split * p.lines + line) * 4u;
    out[at] = finish(total.x);
    out[at + 1u] = finish(total.y);
    out[at + 2u] = finish(total.z);
    out[at + 3u] = finish(total.w);
}
//#endif
//#if SCALAR
alias Partial = T;

fn combine(a: Partial, b: Partial) -> Partial {
    return combine_values(a, b);
}

fn load(at: u32, k: u32) -> Partial {
//#if ALONG
    let v = load_vec4(at);
    let low = combine_values(convert(v.x), convert(v.y));
    return combine_values(low, combine_values(convert(v.z), convert(v.w)));
//#else
    return convert(x[at]);
//#endif
}

fn store(split: u32, line: u32, total: Partial) {
    out[split * p.lines + line] = finish(total);
}
//#endif

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
//#if ARG
    return Partial(subgroupShuffleXor(partial.value, mask), subgroupShuffleXor(partial.index, mask));
//#else
    return subgroupShuffleXor(partial, mask);
//#endif
}
//#endif

// Combines the loads first, first + TEAM_SIZE, ... below end, of the line that starts at `base`.
fn reduce_loads(base: u32, first: u32, end: u32) -> Partial {
    var total = identity();
//#if FLAT
    // Two loads per iteration, in flight together. The offset is added up, because CPUs multiply slowly.
    let stride = TEAM_SIZE * p.stride;
    var at = base + first * p.stride;
    var k = first;
    for (; k + TEAM_SIZE < end; k += 2u * TEAM_SIZE) {
        let one = load(at, k);
        total = combine(total, combine(one, load(at + stride, k + TEAM_SIZE)));
        at += 2u * stride;
    }
    if (k < end) {
        total = combine(total, load(at, k));
    }
//#else
    for (var k = first; k < end; k += TEAM_SIZE) {
        total = combine(total, load(base + inner_offset(k), k));
    }
//#endif
    return total;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    // Neighbouring teams reduce neighbouring lines.
    let team = group_index(group, groups) * TEAMS + team_index(local_index);
    if (may_exit(team, p.lines * p.splits)) { return; }
    let index = min(team, p.lines * p.splits - 1u);
    let split = index / p.lines;
    let line = index % p.lines;
    let start = split * p.split_len;
    let end = start + min(p.split_len, p.len - start);
//#if ACROSS
    let base = locate(line * 4u).x >> 2u;
//#else
    let base = locate(line).x / LINE_ELEMENTS_PER_LOAD;
//#endif
    let mine = reduce_loads(base, start + member_index(local_index), end);
    let total = team_combine(local_index, mine);
    if (member_index(local_index) == 0u) {
        store(split, line, total);
    }
}
//#use "lib/math"
