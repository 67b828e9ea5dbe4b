// scatter: out[.., indices[.., k, ..], ..] = COMBINE of itself and values[.., k, ..] for each k in order,
// along one axis. indices and values have the same shape. Every tensor is accessed through its strides.
// COMBINE: the launcher's expression of the element `a` and the update `b`.
// An index outside the axis is reported and skipped, so that every write is in bounds.
// Each invocation applies all updates of one line along the axis, so that their order and rounding are fixed.
// Rounds: len.
//#include "lib/walk"

// The element type.
alias E = f32;

struct Params {
    // Lines along the axis.
    count: u32,
    // Updates of a line.
    len: u32,
    // The strides of indices and values along the axis.
    index_stride: u32,
    value_stride: u32,
    // The axis of out: its size and stride.
    size: u32,
    stride: u32,
    pad0: u32,
    pad1: u32,
    // The offset of each line in out (x), indices (y) and values (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> indices: array<i32>;
@group(0) @binding(auto) var<storage, read> values: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
//#include "lib/report"

fn invocation(line: u32) {
    let starts = locate(line);
    for (var k = 0u; k < p.len; k++) {
        let index = indices[starts.y + k * p.index_stride];
        if (u32(index) >= p.size) {
            report_index(0u, index);
        } else {
            let dst = starts.x + u32(index) * p.stride;
            let a = out[dst];
            let b = values[starts.z + k * p.value_stride];
            out[dst] = COMBINE;
        }
    }
}
//#include "lib/invocation"
