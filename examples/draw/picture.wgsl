// Two pictures side by side, and a bar of the progress below them.

struct Frame {
    progress: f32,
}

@group(0) @binding(0) var<uniform> frame: Frame;
@group(0) @binding(1) var wanted: texture_2d<f32>;
@group(0) @binding(2) var painted: texture_2d<f32>;
@group(0) @binding(3) var smooth_sampler: sampler;

struct Corner {
    @builtin(position) position: vec4<f32>,
    @location(0) at: vec2<f32>,
}

// One triangle that covers the target.
@vertex
fn corner(@builtin(vertex_index) index: u32) -> Corner {
    let at = vec2<f32>(f32((index << 1u) & 2u), f32(index & 2u));
    return Corner(vec4<f32>(at * vec2<f32>(2.0, -2.0) + vec2<f32>(-1.0, 1.0), 0.0, 1.0), at);
}

@fragment
fn color(corner: Corner) -> @location(0) vec4<f32> {
    let at = corner.at;
    if (at.y > 0.94) {
        let filled = at.x < frame.progress;
        return select(vec4<f32>(0.1, 0.1, 0.1, 1.0), vec4<f32>(0.3, 0.8, 0.4, 1.0), filled);
    }
    let place = vec2<f32>(fract(at.x * 2.0), at.y / 0.94);
    let left = textureSampleLevel(wanted, smooth_sampler, place, 0.0);
    let right = textureSampleLevel(painted, smooth_sampler, place, 0.0);
    return select(right, left, at.x < 0.5);
}
