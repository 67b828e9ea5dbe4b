// elementwise: out[i] = EXPR, from the elements a, b, c of up to three tensors that broadcast to the shape
// of out, two scalars s and t, and the index i of the element. Each invocation computes four neighbours per
// round. READ_X: operand X is a binding of its own; INPLACE_X: it is read from out.
// PACKED: every tensor is contiguous and aligned, and moves in vec4s.
// STRIDED: every tensor is read, and out written, element by element through its strides.
// Neither: strided, but along the innermost axis four elements are contiguous and move in vec4s, or are one
// element for operands with BROADCAST_X.
// WORDS: all types have 32 bits, so that loads and stores move Words4.
//#include "lib/grid"
//#if WORDS
//#include "lib/vec4"
//#endif
//#if !PACKED
//#include "lib/walk"
//#endif

// The element types, what one load moves, and the index of the operand in `locate`'s result.
//#for X in A B C O
alias X = f32;
//#if STRIDED
alias X_load = X;
//#else
//#if WORDS
alias X_load = Words4;
//#else
alias X_load = vec4<X>;
//#endif
//#endif
//#end
const A_slot: u32 = 1u;
const B_slot: u32 = 2u;
const C_slot: u32 = 3u;
// The type of the scalars.
alias S = f32;
// Bits of an integer of type A.
const BITS: u32 = 32u;

struct Params {
    len: u32,
    // Times that an invocation computes four neighbours.
    rounds: u32,
    s: u32,
    t: u32,
    // 1 if four neighbours never cross the end of the innermost axis.
    whole_vec4s: u32,
    // The upper halves of 64-bit scalars.
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
//#for X in A B C
//#if READ_X
@group(0) @binding(auto) var<storage, read> X_in: array<X_load>;
//#endif
//#end
@group(0) @binding(auto) var<storage, read_write> out: array<O_load>;

fn op(a: A, b: B, c: C, i: u32) -> O {
//#if SCALARS_64
    let s = S(p.s) | (S(p.s_high) << 32u);
    let t = S(p.t) | (S(p.t_high) << 32u);
//#else
    let s = bitcast<S>(p.s);
    let t = bitcast<S>(p.t);
//#endif
    return O(EXPR);
}

//#if STRIDED
fn compute(at: vec4<u32>, i: u32) {
//#for X in A B C
    var X_value = X();
//#if READ_X
    X_value = X_in[at[X_slot]];
//#endif
//#end
    out[at.x] = op(A_value, B_value, C_value, i);
}

fn compute4(first: u32) {
    var at = vec4<u32>();
    for (var k = 0u; k < 4u && first + k < p.len; k++) {
        if (k == 0u || p.whole_vec4s == 0u) {
            at = locate(first + k);
        } else {
            at += p.walk.strides[p.walk.rank - 1u];
        }
        compute(at, first + k);
    }
}
//#else
//#for X in A B C
fn X_values(raw: X_load) -> vec4<X> {
//#if WORDS
    return bitcast<vec4<X>>(to_words(raw));
//#else
    return raw;
//#endif
}
//#end

fn O_from_values(result: vec4<O>) -> O_load {
//#if WORDS
    return from_words(bitcast<vec4<u32>>(result));
//#else
    return result;
//#endif
}

fn compute4(i: u32) {
//#if PACKED
    let at = p.starts + vec4<u32>(i >> 2u);
//#else
    let element = locate(i);
    let at = element >> vec4<u32>(2u);
//#endif
//#for X in A B C
    var X_value = vec4<X>();
//#if READ_X
    X_value = X_values(X_in[at[X_slot]]);
//#endif
//#if INPLACE_X
    X_value = X_values(out[at.x]);
//#endif
//#if BROADCAST_X
    X_value = vec4<X>(X_value[element[X_slot] & 3u]);
//#endif
//#end
    let result = vec4<O>(
        op(A_value.x, B_value.x, C_value.x, i),
        op(A_value.y, B_value.y, C_value.y, i + 1u),
        op(A_value.z, B_value.z, C_value.z, i + 2u),
        op(A_value.w, B_value.w, C_value.w, i + 3u),
    );
    out[at.x] = O_from_values(result);
}
//#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    // Eight neighbouring invocations advance together, eight vec4s per round: consecutive rounds of a
    // software adapter's vector read consecutive memory.
    let octet = group_index(group, groups) * 64u + local_index / 8u * 8u;
    let first = octet * p.rounds + local_index % 8u;
    let end = min(first + p.rounds * 8u, (p.len + 3u) / 4u);
    for (var q = first; q < end; q += 8u) {
        compute4(q * 4u);
    }
}
//#use "lib/math"
//#use "lib/integer"
//#use "lib/convert"
