// scan: out[line, k] = COMBINE over j <= k of x[line, j], along one axis. x and out are packed.
// COMBINE: the launcher's expression of two elements `a` and `b`.
// TOTALS: out[line, chunk] = COMBINE over the elements of the chunk.
// CARRY: a chunk starts from carry[line, chunk - 1], which combines all chunks before it.
// Each invocation scans one chunk of a line, in order.
// Rounds: chunk_len.

// The element type.
alias E = f32;

struct Params {
    // Chunks of all lines.
    count: u32,
    // Chunks of a line.
    chunks: u32,
    // Elements of a line.
    len: u32,
    // Elements of a chunk; the last one may have fewer.
    chunk_len: u32,
    // Distance between the elements of a line.
    stride: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#if CARRY
@group(0) @binding(auto) var<storage, read> carry: array<E>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn combine(a: E, b: E) -> E {
    return COMBINE;
}

fn invocation(i: u32) {
    let line = i / p.chunks;
    let chunk = i % p.chunks;
    let base = (line / p.stride) * p.stride * p.len + line % p.stride;
    let first = chunk * p.chunk_len;
    let end = min(first + p.chunk_len, p.len);
    var total = x[base + first * p.stride];
//#if CARRY
    if (chunk > 0u) {
        total = combine(carry[i - 1u], total);
    }
//#endif
//#if !TOTALS
    out[base + first * p.stride] = total;
//#endif
    for (var k = first + 1u; k < end; k++) {
        total = combine(total, x[base + k * p.stride]);
//#if !TOTALS
        out[base + k * p.stride] = total;
//#endif
    }
//#if TOTALS
    out[i] = total;
//#endif
}
//#include "lib/invocation"
//#use "lib/math"
