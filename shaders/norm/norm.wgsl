// norm: out[row, k] = (x[row, k] - mean) * gamma[k] / sqrt(mean of (x[row] - mean)^2 + epsilon) + beta[k].
// x and out are [rows, width], gamma and beta are [width]; all are packed.
// CENTER: layer norm (J. L. Ba et al., 2016). Otherwise RMS norm (B. Zhang and R. Sennrich, 2019): the mean
// is replaced by zero, and there is no beta.
// Each team computes one row.
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

// Sums of the differences from the mean, and of their squares.
alias Partial = vec2<f32>;

fn combine(a: Partial, b: Partial) -> Partial {
    return a + b;
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return subgroupShuffleXor(partial, mask);
}
//#endif

fn reduce_line(row: u32, local_index: u32) {
    let base = row * p.len;
    let first = member_index(local_index);
    let count = f32(p.len * VALUES_PER_LOAD);
    var mean = 0.0;
//#if CENTER
    for (var k = first; k < p.len; k += TEAM_SIZE) {
        mean += sum_of(to_values(x[base + k]));
    }
    mean = team_combine(local_index, vec2<f32>(mean, 0.0)).x / count;
//#endif
    var moments = vec2<f32>();
    for (var k = first; k < p.len; k += TEAM_SIZE) {
        let differences = to_values(x[base + k]) - mean;
        moments += vec2<f32>(sum_of(differences), sum_of(differences * differences));
    }
    moments = team_combine(local_index, moments) / count;
    // The mean is rounded. The mean of the differences from it is the rounding error.
    var mean_error = 0.0;
//#if CENTER
    mean_error = moments.x;
//#endif
    let variance = max(moments.y - mean_error * mean_error, 0.0);
    let scale = 1.0 / sqrt(variance + p.epsilon);
    for (var k = first; k < p.len; k += TEAM_SIZE) {
        var y = (to_values(x[base + k]) - mean - mean_error) * scale * to_values(gamma[k]);
//#if CENTER
        if (p.has_beta == 1u) { y += to_values(beta[k]); }
//#endif
        out[base + k] = from_values(y);
    }
}
