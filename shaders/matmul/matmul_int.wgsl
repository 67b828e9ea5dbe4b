// matmul_int: out[b, i, j] = sum over k of a[b, i, k] * b[b, k, j] for integers, wrapping.
//#include "lib/walk"

alias E = i32;

struct Params {
    // Elements of out.
    count: u32,
    m: u32,
    n: u32,
    k: u32,
    // Strides of the matrices.
    a_row: u32,
    a_col: u32,
    b_row: u32,
    b_col: u32,
    // Where the matrices of the batch start, in a (y) and b (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<E>;
@group(0) @binding(auto) var<storage, read> b: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn invocation(i: u32) {
    let start = locate(i / (p.m * p.n));
    let row = start.y + (i / p.n % p.m) * p.a_row;
    let col = start.z + (i % p.n) * p.b_col;
    var sum = E(0);
    for (var k = 0u; k < p.k; k++) {
        sum += a[row + k * p.a_col] * b[col + k * p.b_row];
    }
    out[i] = sum;
}
//#include "lib/invocation"
