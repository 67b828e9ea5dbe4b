// winograd_input: v[6 i + j, channel, tile] = (B^t x B)[i, j], for the 6 x 6 pixels x of each tile and channel.
// See winograd_weight. x is [n, channels, height, width], packed, with zeros around it; v is [36, channels, cols].
// Columns past the last tile are zero.

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> v: array<f32>;

//#include "lib/winograd"

alias Six = array<f32, 6>;

// S^2 + L^2.
const SUM: f32 = 97.0 / 36.0;

// B^t d.
fn transformed(d: Six) -> Six {
    let even_s = d[4u] - 9.0 / 4.0 * d[2u];
    let even_l = d[4u] - 4.0 / 9.0 * d[2u];
    let odd_s = 2.0 / 3.0 * d[3u] - 3.0 / 2.0 * d[1u];
    let odd_l = 3.0 / 2.0 * d[3u] - 2.0 / 3.0 * d[1u];
    return Six(
        d[0u] - SUM * d[2u] + d[4u],
        even_s + odd_s,
        even_s - odd_s,
        even_l + odd_l,
        even_l - odd_l,
        d[1u] - SUM * d[3u] + d[5u],
    );
}

fn invocation(i: u32) {
    let tile = tile_of(i % p.cols);
    let plane = (tile.image * p.channels + i / p.cols) * p.height * p.width;
    // Above or left of the image a coordinate wraps and is too large.
    let row0 = tile.row - p.padding_h;
    let col0 = tile.col - p.padding_w;
    var columns: array<Six, 6>;
//#repeat J 6
    {
        let col = col0 + J;
        let is_col = tile.is_tile && col < p.width;
        var d: Six;
//#repeat I 6
        if (is_col && row0 + I < p.height) {
            d[I] = x[plane + (row0 + I) * p.width + col];
        }
//#end
        columns[J] = transformed(d);
    }
//#end
//#repeat I 6
    {
        let row = transformed(
            Six(columns[0u][I], columns[1u][I], columns[2u][I], columns[3u][I], columns[4u][I], columns[5u][I]),
        );
//#repeat J 6
        v[(I * 6u + J) * p.count + i] = row[J];
//#end
    }
//#end
}
//#include "lib/invocation"
