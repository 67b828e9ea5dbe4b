// multiply_add: each invocation runs eight independent chains of multiply-adds in registers and
// writes one f32. A driver may contract each product and sum into a fused multiply-add.
//#include "lib/grid"

const STEPS: u32 = 32u;

struct Params {
    factor: f32,
    addend: f32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = group_index(group, groups) * 256u + local_index;
    let x = p.factor;
    let y = p.addend;
    var a = f32(local_index);
    var b = a + 0.1;
    var c = a + 0.2;
    var d = a + 0.3;
    var e = a + 0.4;
    var f = a + 0.5;
    var g = a + 0.6;
    var h = a + 0.7;
    for (var step = 0u; step < STEPS; step++) {
        //#repeat TIMES 8
        a = a * x + y;
        b = b * x + y;
        c = c * x + y;
        d = d * x + y;
        e = e * x + y;
        f = f * x + y;
        g = g * x + y;
        h = h * x + y;
        //#end
    }
    out[i] = a + b + c + d + e + f + g + h;
}
