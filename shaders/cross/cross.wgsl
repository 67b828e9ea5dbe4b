// cross: out[i] = lhs[i] x rhs[i], the cross product of vectors of three components.
// Every tensor is accessed through its strides.
// Each invocation computes one vector.
//#include "lib/walk"

struct Params {
    // Vectors of out.
    count: u32,
    // Distances between the components of a vector.
    out_stride: u32,
    lhs_stride: u32,
    rhs_stride: u32,
    // The offset of each vector in out (x), lhs (y) and rhs (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> lhs: array<f32>;
@group(0) @binding(auto) var<storage, read> rhs: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

fn invocation(i: u32) {
    let starts = locate(i);
    let a = vec3(lhs[starts.y], lhs[starts.y + p.lhs_stride], lhs[starts.y + 2u * p.lhs_stride]);
    let b = vec3(rhs[starts.z], rhs[starts.z + p.rhs_stride], rhs[starts.z + 2u * p.rhs_stride]);
    let c = cross(a, b);
    out[starts.x] = c.x;
    out[starts.x + p.out_stride] = c.y;
    out[starts.x + 2u * p.out_stride] = c.z;
}
//#include "lib/invocation"
