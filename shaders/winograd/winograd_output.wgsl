// winograd_output: the 4 x 4 pixels A^t m A + bias of each tile and channel, from its 36 sums m.
// See winograd_weight. m is [36, channels, cols]; out is [n, channels, height, width], packed.
// Pixels outside the image are not stored.

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> m: array<f32>;
// The layout requires a binding; without a bias it is m, and not read.
@group(0) @binding(auto) var<storage, read> bias: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

//#include "lib/winograd"

// A^t d.
fn transformed(d: array<f32, 6>) -> vec4<f32> {
    let even_s = d[1u] + d[2u];
    let even_l = d[3u] + d[4u];
    let odd_s = d[1u] - d[2u];
    let odd_l = d[3u] - d[4u];
    return vec4<f32>(
        d[0u] + even_s + even_l,
        2.0 / 3.0 * odd_s + 3.0 / 2.0 * odd_l,
        4.0 / 9.0 * even_s + 9.0 / 4.0 * even_l,
        8.0 / 27.0 * odd_s + 27.0 / 8.0 * odd_l + d[5u],
    );
}

fn invocation(i: u32) {
    let tile = tile_of(i % p.cols);
    if (!tile.is_tile) { return; }
    let channel = i / p.cols;
    var columns: array<vec4<f32>, 6>;
//#repeat J 6
    {
        var d: array<f32, 6>;
//#repeat I 6
        d[I] = m[(I * 6u + J) * p.count + i];
//#end
        columns[J] = transformed(d);
    }
//#end
    var added = 0.0;
    if (p.has_bias == 1u) { added = bias[channel]; }
    let plane = (tile.image * p.channels + channel) * p.height * p.width;
//#repeat I 4
    if (tile.row + I < p.height) {
        let pixels = added + transformed(array<f32, 6>(
            columns[0u][I], columns[1u][I], columns[2u][I], columns[3u][I], columns[4u][I], columns[5u][I],
        ));
        let first = plane + (tile.row + I) * p.width + tile.col;
//#repeat J 4
        if (tile.col + J < p.width) { out[first + J] = pixels[J]; }
//#end
    }
//#end
}
//#include "lib/invocation"
