// pixels[y, x] = the channels of a pixel as bytes. SWAPS: the first is blue. Columns beyond the width are padding.
//#include "lib/grid"

struct Params {
    height: u32,
    width: u32,
    channels: u32,
    stride: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> image: array<f32>;
@group(0) @binding(auto) var<storage, read_write> pixels: array<u32>;

const SWAPS: u32 = 0u;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = group_index(group, groups) * 64u + local_index;
    let y = i / p.stride;
    let x = i % p.stride;
    if (y >= p.height || x >= p.width) { return; }
    let first = (y * p.width + x) * p.channels;
    var color = vec4<f32>(vec3<f32>(image[first]), 1.0);
    if (p.channels > 1u) {
        color.y = image[first + 1u];
        color.z = image[first + 2u];
    }
    if (p.channels > 3u) {
        color.w = image[first + 3u];
    }
    if (SWAPS == 1u) {
        color = color.zyxw;
    }
    pixels[i] = pack4x8unorm(color);
}
