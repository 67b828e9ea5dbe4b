// The four elements of x around a position. The including shader must bind `x` [planes, in_h, in_w], and `p`
// with fields `in_h` and `in_w`.

// The neighbours of (row, column) in a plane, in the order of `bilinear_weights`; zero outside the plane.
fn neighbours(plane: u32, position: vec2<f32>) -> vec4<f32> {
    let row = i32(floor(position.x));
    let col = i32(floor(position.y));
    return vec4<f32>(
        element(plane, row, col),
        element(plane, row, col + 1),
        element(plane, row + 1, col),
        element(plane, row + 1, col + 1),
    );
}

fn element(plane: u32, row: i32, col: i32) -> f32 {
    // Above or left of the plane a coordinate wraps and is too large.
    if (u32(row) >= p.in_h || u32(col) >= p.in_w) { return 0.0; }
    return x[(plane * p.in_h + u32(row)) * p.in_w + u32(col)];
}
