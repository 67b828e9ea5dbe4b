// interpolate: out[n, i, j] = sum over k, l of a[i, k] * b[j, l] * x[n, k, l], for plane n.
// x and out are packed. Each row of the matrices a [out_h, in_h] and b [out_w, in_w] has one band of
// consecutive weights and is zero elsewhere. The host computes them for each mode, and for the gradient.
// Each invocation computes one element.
// Rounds: the weights of a row of a times those of a row of b.

struct Params {
    // Elements of out.
    count: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
// Two words (first, start) for each row of a and for the end of a, the same for b, then all weights.
@group(0) @binding(auto) var<storage, read> matrices: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

struct Band {
    // The column of the first weight.
    first: u32,
    // The weights are the words start..end of `matrices`. `end` is the start of the next band.
    start: u32,
    end: u32,
}

fn band(row: u32) -> Band {
    return Band(matrices[2u * row], matrices[2u * row + 1u], matrices[2u * row + 3u]);
}

fn weight(word: u32) -> f32 {
    return bitcast<f32>(matrices[word]);
}

fn invocation(i: u32) {
    let a_band = band(i / p.out_w % p.out_h);
    let b_band = band(p.out_h + 1u + i % p.out_w);
    // The first element of a row of x that contributes.
    var x_first = (i / (p.out_w * p.out_h) * p.in_h + a_band.first) * p.in_w + b_band.first;
    var sum = 0.0;
    for (var j = a_band.start; j < a_band.end; j++) {
        var row_sum = 0.0;
        for (var k = b_band.start; k < b_band.end; k++) {
            row_sum += weight(k) * x[x_first + k - b_band.start];
        }
        sum += weight(j) * row_sum;
        x_first += p.in_w;
    }
    out[i] = sum;
}
//#include "lib/invocation"
