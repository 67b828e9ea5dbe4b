// elementwise: out[i] = EXPR, the launcher's expression of the elements a, b, c of up to three tensors that
// broadcast to the shape of out, of two scalars s and t, and of the index i of the element.
// READ_X: operand X (A, B or C) has a binding. IN_PLACE_X: operand X is read from out.
// PACKED: every tensor is contiguous and aligned, and moves in vec4s.
// STRIDED: every tensor is read, and out is written, element by element through its strides.
// Neither: through strides too, but along the innermost axis four elements are contiguous and move in a vec4.
// BROADCAST_X: the four elements of operand X are the same one.
// WORDS: all types have 32 bits, and vec4s move as Words4. SCALARS_64: s and t have 64 bits.
// Each invocation computes four neighbours per round.
// Rounds: those of lib/rounds, and in each those of the op.
//#include "lib/grid"
//#if WORDS
//#include "lib/vec4"
//#endif
//#if !PACKED
//#include "lib/walk"
//#endif

// For each operand: the type of an element, the type of a load, and the component of its offset in a vec4 of
// offsets, of which component 0 is out.
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
    // Rounds of an invocation.
    rounds: u32,
    // The scalars; the lower halves of 64-bit ones.
    s: u32,
    t: u32,
    // 1 if four neighbours never cross the end of the innermost axis.
    whole_vec4s: u32,
    // The upper halves of 64-bit scalars.
    s_high: u32,
    t_high: u32,
    pad0: u32,
//#if PACKED
    // The offsets of out, a, b and c, in vec4s.
    starts: vec4<u32>,
//#else
    // The offset of each element in out (x), a (y), b (z) and c (w).
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
// Computes element i, whose offsets in out, a, b and c are given.
fn compute(offsets: vec4<u32>, i: u32) {
//#for X in A B C
    var X_value: X;
//#if READ_X
    X_value = X_in[offsets[X_slot]];
//#endif
//#end
    out[offsets.x] = op(A_value, B_value, C_value, i);
}

// Computes the elements i, .., i + 3 that exist.
fn compute4(i: u32) {
    var offsets = vec4<u32>();
    for (var k = 0u; k < 4u && i + k < p.len; k++) {
        if (k == 0u || p.whole_vec4s == 0u) {
            offsets = locate(i + k);
        } else {
            offsets += p.walk.strides[p.walk.rank - 1u];
        }
        compute(offsets, i + k);
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

// Computes the elements i, .., i + 3.
fn compute4(i: u32) {
//#if PACKED
    let vec4_offsets = p.starts + vec4<u32>(i >> 2u);
//#else
    let offsets = locate(i);
    let vec4_offsets = offsets >> vec4<u32>(2u);
//#endif
//#for X in A B C
    var X_value: vec4<X>;
//#if READ_X
    X_value = X_values(X_in[vec4_offsets[X_slot]]);
//#endif
//#if IN_PLACE_X
    X_value = X_values(out[vec4_offsets.x]);
//#endif
//#if BROADCAST_X
    X_value = vec4<X>(X_value[offsets[X_slot] & 3u]);
//#endif
//#end
    let result = vec4<O>(
        op(A_value.x, B_value.x, C_value.x, i),
        op(A_value.y, B_value.y, C_value.y, i + 1u),
        op(A_value.z, B_value.z, C_value.z, i + 2u),
        op(A_value.w, B_value.w, C_value.w, i + 3u),
    );
    out[vec4_offsets.x] = O_from_values(result);
}
//#endif

//#include "lib/rounds"
//#use "lib/integer"
//#use "lib/convert"
//#use "lib/math"
