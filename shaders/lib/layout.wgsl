// Where element `i` of a shape lies in up to four tensors at once. `steps[axis]` holds the strides of
// the four tensors along that axis; negative strides work because u32 arithmetic wraps.
struct Walk {
    shape: array<vec4<u32>, 3>,
    offsets: vec4<u32>,
    rank: u32,
    steps: array<vec4<u32>, 12>,
}

fn walk_size(axis: u32) -> u32 {
    return p.walk.shape[axis >> 2u][axis & 3u];
}

fn locate(i: u32) -> vec4<u32> {
    var rest = i;
    var at = p.walk.offsets;
    for (var axis = p.walk.rank; axis > 1u; axis--) {
        let size = walk_size(axis - 1u);
        let next = rest / size;
        at += (rest - next * size) * p.walk.steps[axis - 1u];
        rest = next;
    }
    // The outermost axis needs no division.
    return at + rest * p.walk.steps[0];
}
