// reduce: out[line] = FINISH(COMBINE over k of LOAD(x[line, k])), with k over the reduced axes.
// A line is the elements that one output reduces. x is read through its strides.
// out is [splits, lines], packed. A long line may be split; a second launch then combines the splits.
// LOAD, COMBINE, FINISH, IDENTITY, BETTER: expressions of the launcher, in the functions below.
// SCALAR: the result is the combination. COMPENSATED: it is a sum, with the errors of its additions.
// ARG: it is the index, within its line, of the best element.
// ALONG: a load has four neighbours of a line.
// ACROSS: a load has one element of each of four neighbouring lines.
// VEC4: ALONG or ACROSS. WORDS: with VEC4, elements have 32 bits. STORES_WORDS4: ACROSS and WORDS.
// FLAT: at most one axis is reduced.
// Each team reduces one split of a line; with ACROSS, of four lines. The order of combination depends only on
// the layout and the adapter, so results repeat bit for bit.
// Rounds: split_len / TEAM_SIZE; for several reduced axes, times one more than there are.
//#include "lib/walk"
//#include "lib/team"
//#if WORDS
//#include "lib/vec4"
//#endif

// The types of the elements and of the result.
alias E = f32;
alias O = f32;
// Elements of a line per load.
const LINE_ELEMENTS_PER_LOAD: u32 = 1u;

struct Params {
    // Splits of all lines.
    count: u32,
    // Lines; with ACROSS, groups of four lines.
    lines: u32,
    // Loads of a line.
    len: u32,
    // Loads of a split; the last one may have fewer.
    split_len: u32,
    // The divisor of a mean, for FINISH.
    divisor: f32,
    // FLAT: distance between the loads of a line, in loads.
    stride: u32,
    // Number of the reduced axes.
    inner_rank: u32,
    // Zero, unknown at compile time.
    zero: u32,
    // The offset of each line, in elements.
    walk: Walk,
    // Sizes of the reduced axes and their strides, in loads.
    inner_shape: array<vec4<u32>, 3>,
    inner_strides: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if VEC4
//#if WORDS
@group(0) @binding(auto) var<storage, read> x: array<Words4>;

fn load_vec4(i: u32) -> vec4<E> {
    return bitcast<vec4<E>>(to_words(x[i]));
}
//#else
@group(0) @binding(auto) var<storage, read> x: array<vec4<E>>;

fn load_vec4(i: u32) -> vec4<E> {
    return x[i];
}
//#endif
//#else
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#endif
//#if STORES_WORDS4 !LOADS_U64
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;
//#else
// Software adapters, too, store elements one by one: this is faster there.
@group(0) @binding(auto) var<storage, read_write> out: array<O>;
//#endif

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
// The offset of load k from the start of its line, in loads.
fn inner_offset(k: u32) -> u32 {
    var rest = k;
    var offset = 0u;
    for (var axis = p.inner_rank - 1u; axis > 0u; axis--) {
        let size = p.inner_shape[axis >> 2u][axis & 3u];
        let next = rest / size;
        offset += (rest - next * size) * p.inner_strides[axis >> 2u][axis & 3u];
        rest = next;
    }
    offset += rest * p.inner_strides[0].x;
    return offset;
}
//#endif

// ARG, COMPENSATED, ACROSS and SCALAR each define:
//   Partial: the contribution of a member of a team;
//   identity(): the contribution of no elements;
//   combine(Partial, Partial);
//   load(i, k): the contribution of load k of a line, which is x[i];
//   store(split, line, Partial): stores the result of a split.
//#if ARG
struct Partial {
    value: T,
    index: u32,
}

const NO_INDEX: u32 = 0xffffffffu;

fn identity() -> Partial {
    return Partial(T(), NO_INDEX);
}

// Of equal elements, the first is the best.
fn combine(best: Partial, next: Partial) -> Partial {
    let v = next.value;
    let b = best.value;
    let index = next.index;
    let better = (BETTER) || (v == b && index < best.index);
    if (index != NO_INDEX && (best.index == NO_INDEX || better)) { return next; }
    return best;
}

fn load(i: u32, k: u32) -> Partial {
    return Partial(convert(x[i]), k);
}

fn store(split: u32, line: u32, best: Partial) {
    out[split * p.lines + line] = O(best.index);
}
//#endif
//#if COMPENSATED
// A sum, and the error that its additions have rounded away.
alias Partial = vec2<f32>;

fn identity() -> Partial {
    return Partial();
}

// x, of which nothing is known at compile time: fast math would take the difference between a sum and a term for the
// other term.
fn opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}

fn combine(a: Partial, b: Partial) -> Partial {
    let sum = opaque(a.x + b.x);
    let of_b = opaque(sum - a.x);
    let of_a = opaque(sum - of_b);
    return Partial(sum, a.y + b.y + (opaque(a.x - of_a) + opaque(b.x - of_b)));
}

fn load(i: u32, k: u32) -> Partial {
    return Partial(x[i], 0.0);
}

fn store(split: u32, line: u32, total: Partial) {
    // The error of an infinite sum is NaN.
    let is_finite = (bitcast<u32>(total.x) & 0x7f800000u) != 0x7f800000u;
    out[split * p.lines + line] = total.x + select(0.0, total.y, is_finite);
}
//#endif
//#if !ARG !COMPENSATED
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

fn load(i: u32, k: u32) -> Partial {
    let v = load_vec4(i);
    return Partial(convert(v.x), convert(v.y), convert(v.z), convert(v.w));
}

fn store(split: u32, line: u32, total: Partial) {
    let group = split * p.lines + line;
    let results = vec4<O>(finish(total.x), finish(total.y), finish(total.z), finish(total.w));
//#if STORES_WORDS4 !LOADS_U64
    out[group] = from_words(bitcast<vec4<u32>>(results));
//#else
    out[group * 4u] = results.x;
    out[group * 4u + 1u] = results.y;
    out[group * 4u + 2u] = results.z;
    out[group * 4u + 3u] = results.w;
//#endif
}
//#endif
//#if SCALAR
alias Partial = T;

fn combine(a: Partial, b: Partial) -> Partial {
    return combine_values(a, b);
}

fn load(i: u32, k: u32) -> Partial {
//#if ALONG
    let v = load_vec4(i);
    let low = combine_values(convert(v.x), convert(v.y));
    return combine_values(low, combine_values(convert(v.z), convert(v.w)));
//#else
    return convert(x[i]);
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

// Combines the loads first, first + TEAM_SIZE, ... below end, of the line that starts at load `base`.
fn reduce_loads(base: u32, first: u32, end: u32) -> Partial {
    var total = identity();
//#if FLAT
    // Two loads per iteration, in flight together. `i` is incremented, because CPUs multiply slowly.
    let stride = TEAM_SIZE * p.stride;
    var i = base + first * p.stride;
    var k = first;
    for (; k + TEAM_SIZE < end; k += 2u * TEAM_SIZE) {
        let next = load(i, k);
        total = combine(total, combine(next, load(i + stride, k + TEAM_SIZE)));
        i += 2u * stride;
    }
    if (k < end) {
        total = combine(total, load(i, k));
    }
//#else
    for (var k = first; k < end; k += TEAM_SIZE) {
        total = combine(total, load(base + inner_offset(k), k));
    }
//#endif
    return total;
}

fn reduce_line(index: u32, local_index: u32) {
    let split = index / p.lines;
    let line = index % p.lines;
    let start = split * p.split_len;
    let end = start + min(p.split_len, p.len - start);
//#if ACROSS
    let base = locate(line * 4u).x >> 2u;
//#else
    let base = locate(line).x / LINE_ELEMENTS_PER_LOAD;
//#endif
    let partial = reduce_loads(base, start + member_index(local_index), end);
    let total = team_combine(local_index, partial);
    if (member_index(local_index) == 0u) {
        store(split, line, total);
    }
}
//#use "lib/math"
