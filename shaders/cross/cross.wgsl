// cross: out[i] = lhs[i] x rhs[i], the cross product of vectors of three components.
//#include "lib/walk"

struct Params {
    // Vectors of out.
    count: u32,
    // Strides between the components of a vector.
    out_stride: u32,
    lhs_stride: u32,
    rhs_stride: u32,
    // Where each vector starts: in out (x), lhs (y) and rhs (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> lhs: array<f32>;
@group(0) @binding(auto) var<storage, read> rhs: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let at = locate(i);
    let a = vec3(lhs[at.y], lhs[at.y + p.lhs_stride], lhs[at.y + 2u * p.lhs_stride]);
    let b = vec3(rhs[at.z], rhs[at.z + p.rhs_stride], rhs[at.z + 2u * p.rhs_stride]);
    let c = cross(a, b);
    out[at.x] = c.x;
    out[at.x + p.out_stride] = c.y;
    out[at.x + 2u * p.out_stride] = c.z;
}
//#include "lib/invocation"
