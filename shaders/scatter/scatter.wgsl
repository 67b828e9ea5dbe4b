// scatter: out[.., indices[k], ..] = COMBINE(itself, values[k]) for each k in order, along one axis.
// One invocation applies all updates along one line of the axis, so their order and rounding are fixed.
// An index outside the axis is skipped, so that every write is in bounds.
//#include "lib/walk"

alias E = f32;

struct Params {
    // Lines along the axis.
    count: u32,
    // Updates of a line, and the strides along it of indices and values.
    len: u32,
    index_stride: u32,
    value_stride: u32,
    // The axis of out: its size and stride.
    size: u32,
    stride: u32,
    pad0: u32,
    pad1: u32,
    // Where each line starts: in out (x), indices (y) and values (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
@group(0) @binding(auto) var<storage, read> values: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn invocation(line: u32) {
    let at = locate(line);
    for (var k = 0u; k < p.len; k++) {
        let index = indices[at.y + k * p.index_stride];
        if (index >= 0 && u32(index) < p.size) {
            let to = at.x + u32(index) * p.stride;
            let a = out[to];
            let b = values[at.z + k * p.value_stride];
            out[to] = COMBINE;
        }
    }
}
//#include "lib/invocation"
