// norm: out[row, k] = (x[row, k] - mean) * gamma[k] / sqrt(mean of (x[row] - mean)^2 + epsilon) + beta[k].
// x and out are [rows, width], gamma and beta are [width]; all are packed.
// CENTER: layer norm (J. L. Ba et al., 2016). Otherwise RMS norm (B. Zhang and R. Sennrich, 2019): the mean
// is replaced by zero, and there is no beta.
// Each team computes one row.
// Rounds: 3 len / TEAM_SIZE.
//#include "lib/vector"
//#include "lib/team"

struct Params {
    // Rows.
    count: u32,
    // Loads of a row.
    len: u32,
    epsilon: f32,
    has_beta: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Load>;
@group(0) @binding(auto) var<storage, read> gamma: array<Load>;
//#if CENTER
// The layout requires a binding; without a beta it is gamma, and not read.
@group(0) @binding(auto) var<storage, read> beta: array<Load>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<Load>;

//#include "lib/row_stats"

fn reduce_line(row: u32, local_index: u32) {
    let base = row * p.len;
    let stats = row_stats(base, local_index);
//#if HOLD
//#repeat K HELD
    {
        let k = member_index(local_index) + K * TEAM_SIZE;
        if (k < p.len) { out[base + k] = from_values(normalised(held[K], k, stats)); }
    }
//#end
//#else
    for (var k = member_index(local_index); k < p.len; k += TEAM_SIZE) {
        out[base + k] = from_values(normalised(to_values(x[base + k]), k, stats));
    }
//#endif
}

// Returns the result for the values of the load k of a row.
fn normalised(v: Values, k: u32, stats: RowStats) -> Values {
    let y = (v - stats.mean - stats.mean_error) * stats.scale * to_values(gamma[k]);
//#if CENTER
    if (p.has_beta == 1u) { return y + to_values(beta[k]); }
//#endif
    return y;
}
