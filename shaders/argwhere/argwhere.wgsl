// argwhere: out[counts[i] - 1] = the coordinates of element i, for each i with x[i] != 0.
// counts[i] is the number of such elements up to and including i. out is [found, rank]. All are packed.
// Each invocation reads one element.

struct Params {
    // Elements of x.
    count: u32,
    rank: u32,
    // Rows of out.
    found: u32,
    pad0: u32,
    // Shape of x.
    shape: array<vec4<u32>, 3>,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<u32>;
@group(0) @binding(auto) var<storage, read> counts: array<i32>;
@group(0) @binding(auto) var<storage, read_write> out: array<i32>;

fn invocation(i: u32) {
    if (x[i] == 0u) { return; }
    let row = u32(counts[i] - 1);
    // A program may write a buffer that it has lent between the count and this kernel.
    if (row >= p.found) { return; }
    let row_start = row * p.rank;
    var rest = i;
    for (var axis = p.rank; axis > 0u; axis--) {
        let size = p.shape[(axis - 1u) >> 2u][(axis - 1u) & 3u];
        out[row_start + axis - 1u] = i32(rest % size);
        rest /= size;
    }
}
//#include "lib/invocation"
