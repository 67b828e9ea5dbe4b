// winograd_weight: u[6 i + j, row, col] = (G w G^t)[i, j], for the 3 x 3 taps w of each row and column of a weight.
// A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, 2015: F(4 x 4, 3 x 3), at the points
// 0, S, -S, L, -L and infinity with S = 2/3 and L = 3/2. Since S * L = 1, the coefficients of
// A and B are between 0.3 and 3.4, and rounding errors half as large as at the usual points 1 and 2.
// weight is packed, and its taps are neighbours; u is [36, rows, cols].
// FLIPPED: taps are read from the last to the first.

struct Params {
    // Rows times columns.
    count: u32,
    cols: u32,
    // Distances between the taps of neighbouring rows and columns.
    row_stride: u32,
    col_stride: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> weight: array<f32>;
@group(0) @binding(auto) var<storage, read_write> u: array<f32>;

// 1 / (2 S^2 (S^2 - L^2)) and 1 / (2 L^2 (L^2 - S^2)).
const OF_S: f32 = -81.0 / 130.0;
const OF_L: f32 = 8.0 / 65.0;

// G w.
fn transformed(w: vec3<f32>) -> array<f32, 6> {
    let even_s = w.x + 4.0 / 9.0 * w.z;
    let even_l = w.x + 9.0 / 4.0 * w.z;
    return array<f32, 6>(
        w.x,
        OF_S * (even_s + 2.0 / 3.0 * w.y),
        OF_S * (even_s - 2.0 / 3.0 * w.y),
        OF_L * (even_l + 3.0 / 2.0 * w.y),
        OF_L * (even_l - 3.0 / 2.0 * w.y),
        w.z,
    );
}

fn tap(first: u32, index: u32) -> f32 {
//#if FLIPPED
    return weight[first + 8u - index];
//#else
    return weight[first + index];
//#endif
}

fn invocation(i: u32) {
    let first = i / p.cols * p.row_stride + i % p.cols * p.col_stride;
    var columns: array<array<f32, 6>, 3>;
//#repeat J 3
    columns[J] = transformed(vec3<f32>(tap(first, J), tap(first, 3u + J), tap(first, 6u + J)));
//#end
//#repeat I 6
    {
        let row = transformed(vec3<f32>(columns[0u][I], columns[1u][I], columns[2u][I]));
//#repeat J 6
        u[(I * 6u + J) * p.count + i] = row[J];
//#end
    }
//#end
}
//#include "lib/invocation"
