// attention_backward_stats: what the gradients of attention (lib/attention_backward) need of each query, as a vec4:
// both numbers of log_sum, mean = sum over c of g[c] * out[c], and the largest magnitude in g.
// out and g are read through their strides, in vec4s. log_sums is [rows, 2], stats is [rows, 4]; both are packed.
// A team computes the statistics of a query.
// Rounds: len / TEAM_SIZE.
//#include "lib/walk"
//#include "lib/vector"
//#include "lib/team"

struct Params {
    // Queries of all matrices.
    count: u32,
    // Vec4s of a row.
    len: u32,
    pad0: u32,
    pad1: u32,
    // The first element of each row of out (x) and of g (y).
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> out: array<Load>;
@group(0) @binding(auto) var<storage, read> g: array<Load>;
@group(0) @binding(auto) var<storage, read> log_sums: array<f32>;
@group(0) @binding(auto) var<storage, read_write> stats: array<vec4<f32>>;

// A mean, and a largest magnitude.
alias Partial = vec2<f32>;

fn combine(left: Partial, right: Partial) -> Partial {
    return vec2<f32>(left.x + right.x, max(left.y, right.y));
}

fn reduce_line(row: u32, local_index: u32) {
    let starts = locate(row).xy >> vec2<u32>(2u);
    var partial: Partial;
    for (var i = member_index(local_index); i < p.len; i += TEAM_SIZE) {
        let gradient = to_values(g[starts.y + i]);
        let magnitudes = abs(gradient);
        let largest = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
        partial = combine(partial, vec2<f32>(dot(to_values(out[starts.x + i]), gradient), largest));
    }
    let of_row = team_combine(local_index, partial);
    if (member_index(local_index) == 0u) {
        stats[row] = vec4<f32>(log_sums[2u * row], log_sums[2u * row + 1u], of_row);
    }
}
