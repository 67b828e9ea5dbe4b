// norm: out[r, k] = (x[r, k] - mean) * gamma[k] / sqrt(mean of (x - mean)^2 + epsilon) + beta[k], the means over the
// elements of a row. CENTER: with its mean (J. L. Ba et al., 2016); otherwise zero stands for it, and there
// is no beta (B. Zhang and R. Sennrich, 2019). A team walks a row.
//#include "lib/grid"
//#include "lib/row"
//#include "lib/team"

struct Params {
    rows: u32,
    // Words of a row.
    len: u32,
    epsilon: f32,
    has_beta: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Word>;
@group(0) @binding(auto) var<storage, read> gamma: array<Word>;
//#if CENTER
@group(0) @binding(auto) var<storage, read> beta: array<Word>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<Word>;

alias Part = vec2<f32>;

fn joined(a: Part, b: Part) -> Part {
    return a + b;
}

//#if SUBGROUP
fn shuffled(part: Part, mask: u32) -> Part {
    return subgroupShuffleXor(part, mask);
}
//#endif

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let team = group_index(group, groups) * TEAMS + team_of(lane);
    if (is_spare(team, p.rows)) { return; }
    let row = min(team, p.rows - 1u);
    let base = row * p.len;
    let first = member_of(lane);
    let count = f32(p.len * HELD);
    var mean = 0.0;
//#if CENTER
    for (var k = first; k < p.len; k += SPAN) {
        mean += sum_of(values_of(x[base + k]));
    }
    mean = over_team(lane, vec2<f32>(mean, 0.0)).x / count;
//#endif
    var moments = vec2<f32>();
    for (var k = first; k < p.len; k += SPAN) {
        let d = values_of(x[base + k]) - mean;
        moments += vec2<f32>(sum_of(d), sum_of(d * d));
    }
    moments = over_team(lane, moments) / count;
    // A large mean is rounded; what it is off by is the mean of the differences.
    var rest = 0.0;
//#if CENTER
    rest = moments.x;
//#endif
    let scale = 1.0 / sqrt(max(moments.y - rest * rest, 0.0) + p.epsilon);
    for (var k = first; k < p.len; k += SPAN) {
        var y = (values_of(x[base + k]) - mean - rest) * scale * values_of(gamma[k]);
//#if CENTER
        if (p.has_beta == 1u) { y += values_of(beta[k]); }
//#endif
        out[base + k] = word_of(y);
    }
}
//#use "lib/math"
