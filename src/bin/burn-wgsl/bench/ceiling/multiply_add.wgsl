// multiply_add: eight chains of multiply-adds of four lanes each, in registers; memory sees one write an invocation.
// Written as a product and a sum, which drivers contract where that is faster.
//#include "lib/grid"

const STEPS: u32 = 64u;

struct Params {
    factor: f32,
    summand: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 256u + lane;
    let start = vec4<f32>(f32(lane), f32(lane) + 0.25, f32(lane) + 0.5, f32(lane) + 0.75);
    var a0 = start;
    var a1 = start + 1.0;
    var a2 = start + 2.0;
    var a3 = start + 3.0;
    var a4 = start + 4.0;
    var a5 = start + 5.0;
    var a6 = start + 6.0;
    var a7 = start + 7.0;
    for (var step = 0u; step < STEPS; step++) {
        a0 = a0 * p.factor + p.summand;
        a1 = a1 * p.factor + p.summand;
        a2 = a2 * p.factor + p.summand;
        a3 = a3 * p.factor + p.summand;
        a4 = a4 * p.factor + p.summand;
        a5 = a5 * p.factor + p.summand;
        a6 = a6 * p.factor + p.summand;
        a7 = a7 * p.factor + p.summand;
    }
    let sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;
    out[i] = sum.x + sum.y + sum.z + sum.w;
}
