// finite: flags[first_flag + w] = whether workgroup w finds an infinity or NaN in one of many tensors of f32.
// There are 7 tensors; MANY: 24; MANY and MOST: 44. Unused bindings repeat another tensor and have a count
// of 0.
// The workgroups walk through each tensor together, neighbouring invocations over neighbouring elements.
// Rounds: elements of all tensors / invocations, and two for each tensor.
//#include "lib/grid"

struct Params {
    groups: u32,
    first_flag: u32,
    pad0: u32,
    pad1: u32,
    // Elements of each tensor.
    counts: array<vec4<u32>, 11>,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#for T in 0 1 2 3 4 5 6
@group(0) @binding(auto) var<storage, read> x_T: array<u32>;
//#end
//#if MANY
//#for T in 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
@group(0) @binding(auto) var<storage, read> x_T: array<u32>;
//#end
//#endif
//#if MOST
//#for T in 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
@group(0) @binding(auto) var<storage, read> x_T: array<u32>;
//#end
//#endif
@group(0) @binding(auto) var<storage, read_write> flags: array<u32>;

var<workgroup> found: atomic<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.groups) { return; }
    // The runtime does not clear workgroup memory.
    if (local_index == 0u) { atomicStore(&found, 0u); }
    workgroupBarrier();
    let first = index * 64u + local_index;
    let step = p.groups * 64u;
    // Magnitudes are ordered as their bits. Comparing floats would not find NaN on every GPU.
    var largest = 0u;
//#for T in 0 1 2 3 4 5 6
    for (var i = first; i < p.counts[T / 4][T % 4]; i += step) {
        largest = max(largest, x_T[i] & 0x7fffffffu);
    }
//#end
//#if MANY
//#for T in 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    for (var i = first; i < p.counts[T / 4][T % 4]; i += step) {
        largest = max(largest, x_T[i] & 0x7fffffffu);
    }
//#end
//#endif
//#if MOST
//#for T in 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
    for (var i = first; i < p.counts[T / 4][T % 4]; i += step) {
        largest = max(largest, x_T[i] & 0x7fffffffu);
    }
//#end
//#endif
    if (largest >= 0x7f800000u) { atomicStore(&found, 1u); }
    workgroupBarrier();
    if (local_index == 0u) { flags[p.first_flag + index] = atomicLoad(&found); }
}
