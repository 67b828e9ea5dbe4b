// elementwise: out[i] = EXPR, from the elements a, b, c of up to three tensors that broadcast to the
// output's shape, two scalars s and t, and the element's index i.
// Each invocation computes four neighbours at a time. PACKED: every tensor is contiguous and aligned,
// and moves as vec4; an input that nobody else holds may be the output's own memory (SAME_A, SAME_B, SAME_C).
// STRIDED: every tensor is read, and the output written, through its strides. Neither: through strides too, but along the
// innermost axis four elements are neighbours in memory, or one and the same for inputs marked ONE_A, ONE_B, ONE_C.
// WORDS: all types have 32 bits, and move as quads.
//#include "lib/grid"
//#if WORDS
//#include "lib/quad"
//#endif
//#if !PACKED
//#include "lib/layout"
//#endif

alias A = f32;
alias B = f32;
alias C = f32;
alias S = f32;
alias O = f32;
// The bits of an integer.
const BITS: u32 = 32u;

struct Params {
    len: u32,
    // How many times an invocation computes four neighbours.
    rounds: u32,
    s: u32,
    t: u32,
    // 1 when four neighbours never cross the end of the innermost axis.
    inner_quads: u32,
    // The upper halves of scalars of 64 bits.
    s_high: u32,
    t_high: u32,
    pad0: u32,
//#if PACKED
    // Where out, a, b and c start, in vec4s.
    starts: vec4<u32>,
//#else
    walk: Walk,
//#endif
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if WORDS
alias A4 = Quad;
alias B4 = Quad;
alias C4 = Quad;
alias O4 = Quad;
//#else
//#if PACKED
alias A4 = vec4<A>;
alias B4 = vec4<B>;
alias C4 = vec4<C>;
alias O4 = vec4<O>;
//#else
alias A4 = A;
alias B4 = B;
alias C4 = C;
alias O4 = O;
//#endif
//#endif
//#if IN_A
@group(0) @binding(auto) var<storage, read> a_in: array<A4>;
//#endif
//#if IN_B
@group(0) @binding(auto) var<storage, read> b_in: array<B4>;
//#endif
//#if IN_C
@group(0) @binding(auto) var<storage, read> c_in: array<C4>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<O4>;

fn op(a: A, b: B, c: C, i: u32) -> O {
//#if WIDE_SCALARS
    let s = S(p.s) | (S(p.s_high) << 32u);
    let t = S(p.t) | (S(p.t_high) << 32u);
//#else
    let s = bitcast<S>(p.s);
    let t = bitcast<S>(p.t);
//#endif
    return O(EXPR);
}

//#if !STRIDED
//#if WORDS
fn a_of(quad: A4) -> vec4<A> {
    return bitcast<vec4<A>>(words_of(quad));
}

fn b_of(quad: B4) -> vec4<B> {
    return bitcast<vec4<B>>(words_of(quad));
}

fn c_of(quad: C4) -> vec4<C> {
    return bitcast<vec4<C>>(words_of(quad));
}

fn quad_from(result: vec4<O>) -> O4 {
    return quad_of(bitcast<vec4<u32>>(result));
}
//#else
fn a_of(quad: A4) -> vec4<A> {
    return quad;
}

fn b_of(quad: B4) -> vec4<B> {
    return quad;
}

fn c_of(quad: C4) -> vec4<C> {
    return quad;
}

fn quad_from(result: vec4<O>) -> O4 {
    return result;
}
//#endif

fn quad(q: u32) {
    let i = q * 4u;
//#if PACKED
    let at = p.starts + vec4<u32>(q);
//#else
    let place = locate(i);
    let at = place >> vec4<u32>(2u);
//#endif
    var a = vec4<A>();
    var b = vec4<B>();
    var c = vec4<C>();
//#if IN_A
    a = a_of(a_in[at.y]);
//#endif
//#if ONE_A
    a = vec4<A>(a[place.y & 3u]);
//#endif
//#if SAME_A
    a = a_of(out[at.x]);
//#endif
//#if IN_B
    b = b_of(b_in[at.z]);
//#endif
//#if ONE_B
    b = vec4<B>(b[place.z & 3u]);
//#endif
//#if SAME_B
    b = b_of(out[at.x]);
//#endif
//#if IN_C
    c = c_of(c_in[at.w]);
//#endif
//#if ONE_C
    c = vec4<C>(c[place.w & 3u]);
//#endif
//#if SAME_C
    c = c_of(out[at.x]);
//#endif
    let result = vec4<O>(
        op(a.x, b.x, c.x, i),
        op(a.y, b.y, c.y, i + 1u),
        op(a.z, b.z, c.z, i + 2u),
        op(a.w, b.w, c.w, i + 3u),
    );
    out[at.x] = quad_from(result);
}
//#else
fn one(at: vec4<u32>, i: u32) {
    var a = A();
    var b = B();
    var c = C();
//#if IN_A
    a = a_in[at.y];
//#endif
//#if IN_B
    b = b_in[at.z];
//#endif
//#if IN_C
    c = c_in[at.w];
//#endif
    out[at.x] = op(a, b, c, i);
}

fn quad(q: u32) {
    var at = vec4<u32>();
    for (var k = 0u; k < 4u && q * 4u + k < p.len; k++) {
        if (k == 0u || p.inner_quads == 0u) {
            at = locate(q * 4u + k);
        } else {
            at += p.walk.steps[p.walk.rank - 1u];
        }
        one(at, q * 4u + k);
    }
}
//#endif

const LANES: u32 = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Eight invocations walk through their rounds side by side, so that what a CPU's vector reads goes on where it was.
    let first = (group_index(group, groups) * LANES + lane / 8u * 8u) * p.rounds + lane % 8u;
    let end = min(first + p.rounds * 8u, (p.len + 3u) / 4u);
    for (var q = first; q < end; q += 8u) {
        quad(q);
    }
}
//#use "lib/math"
//#use "lib/integer"
//#use "lib/convert"
