// Maps a linear index over a shape to element offsets in up to four tensors of that shape. Negative
// strides work because u32 arithmetic wraps. The including shader must bind `p` with a field `walk: Walk`.
struct Walk {
    // Sizes of the axes, outermost first.
    shape: array<vec4<u32>, 3>,
    // The offset of the first element in each tensor.
    offsets: vec4<u32>,
    rank: u32,
    // The strides along each axis, one component per tensor.
    strides: array<vec4<u32>, 12>,
}

fn axis_size(axis: u32) -> u32 {
    return p.walk.shape[axis >> 2u][axis & 3u];
}

// The offset of element i in each tensor.
fn locate(i: u32) -> vec4<u32> {
    var rest = i;
    var offsets = p.walk.offsets;
    for (var axis = p.walk.rank; axis > 1u; axis--) {
        let size = axis_size(axis - 1u);
        let next = rest / size;
        offsets += (rest - next * size) * p.walk.strides[axis - 1u];
        rest = next;
    }
    // The outermost axis needs no division.
    return offsets + rest * p.walk.strides[0];
}
