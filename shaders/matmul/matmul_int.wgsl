// matmul_int: out[n, i, j] = sum over k of a[n, i, k] * b[n, k, j], for matrix n of a batch. Integers wrap.
// The operands are read through their strides. out is packed.
// Each invocation computes one element.
// Rounds: k.
//#include "lib/walk"

// The element type.
alias E = i32;

struct Params {
    // Elements of out.
    count: u32,
    m: u32,
    n: u32,
    k: u32,
    // Distances between the rows and between the columns of a matrix.
    a_row: u32,
    a_col: u32,
    b_row: u32,
    b_col: u32,
    // The offset of each matrix in a (y) and b (z).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<E>;
@group(0) @binding(auto) var<storage, read> b: array<E>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;

fn invocation(i: u32) {
    let starts = locate(i / (p.m * p.n));
    let a_start = starts.y + (i / p.n % p.m) * p.a_row;
    let b_start = starts.z + (i % p.n) * p.b_col;
    var sum = E(0);
    for (var k = 0u; k < p.k; k++) {
        sum += a[a_start + k * p.a_col] * b[b_start + k * p.b_row];
    }
    out[i] = sum;
}
//#include "lib/invocation"
