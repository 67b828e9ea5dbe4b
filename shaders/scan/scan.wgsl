// scan: out[o, k] = x[o, 0] COMBINE ... COMBINE x[o, k], along one axis whose elements are `stride` apart.
// One invocation walks one chunk of a line in order. TOTALS: it writes only what the chunk comes to.
// CARRY: it starts from the running total of the chunks before its own.
//#include "lib/grid"

alias E = f32;

struct Params {
    // Chunks in all, chunks per line, elements per line, elements per chunk.
    parts: u32,
    splits: u32,
    len: u32,
    chunk: u32,
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

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let part = group_index(group, groups) * 64u + lane;
    if (part >= p.parts) { return; }
    let line = part / p.splits;
    let split = part % p.splits;
    let base = (line / p.stride) * p.stride * p.len + line % p.stride;
    let first = split * p.chunk;
    let end = min(first + p.chunk, p.len);
    var total = x[base + first * p.stride];
//#if CARRY
    if (split > 0u) {
        total = combine(carry[part - 1u], total);
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
    out[part] = total;
//#endif
}
//#use "lib/math"
