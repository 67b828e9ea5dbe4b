// norm_backward: the gradients of norm. With
//   h[row, k] = (x[row, k] - mean) / sqrt(mean of (x[row] - mean)^2 + epsilon) and d[row, k] = g[row, k] * gamma[k]:
//   out[row, k] = (d[row, k] - mean of d[row] - h[row, k] * mean of (d[row] * h[row])) / sqrt(..).
//   sums[group, 0, k] = sum of g[row, k] * h[row, k], and sums[group, 1, k] = sum of g[row, k], over the rows of
//   a workgroup: its share of the gradients of gamma and beta.
// x, g and out are [rows, width], gamma is [width], sums is [groups, 2, width]; all are packed.
// CENTER: layer norm. Otherwise RMS norm: both means that are subtracted are replaced by zero.
// Each team computes rows, one after the other.
// HOLD: each member adds up its columns in registers, and the teams of a workgroup, whose members are neighbours
// (TEAM_STRIDE = 1), add up theirs in the end. Otherwise, each invocation adds up columns of the workgroup's rows in
// the end, which are still in the cache.
// Rounds: for each row of a team, 5 len / TEAM_SIZE.
//#include "lib/vector"
//#include "lib/team"

// The rows of a workgroup, at most: those whose statistics fit into workgroup memory.
const MAX_ROWS: u32 = 64u;

struct Params {
    // Rows.
    count: u32,
    // Loads of a row.
    len: u32,
    epsilon: f32,
    // Rows of each team.
    rounds: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Load>;
@group(0) @binding(auto) var<storage, read> gamma: array<Load>;
@group(0) @binding(auto) var<storage, read> g: array<Load>;
@group(0) @binding(auto) var<storage, read_write> out: array<Load>;
@group(0) @binding(auto) var<storage, read_write> sums: array<Load>;
//#include "lib/row_stats"

//#if HOLD
var<private> of_gamma: array<Values, HELD>;
var<private> of_beta: array<Values, HELD>;
var<workgroup> of_members: array<array<Values, 2>, WORKGROUP_SIZE>;
//#else
var<workgroup> stats_of_rows: array<RowStats, MAX_ROWS>;
//#endif

fn normalised(values: Values, stats: RowStats) -> Values {
    return (values - stats.mean - stats.mean_error) * stats.scale;
}

fn reduce_line(row: u32, local_index: u32) {
    let base = row * p.len;
    let stats = row_stats(base, local_index);
//#if HOLD
    let first = member_index(local_index);
    var d: array<Values, HELD>;
    // Sums of d, and of d * h.
    var means = vec2<f32>();
//#repeat K HELD
    d[K] = Values();
    if (first + K * TEAM_SIZE < p.len) {
        let gradient = to_values(g[base + first + K * TEAM_SIZE]);
        held[K] = normalised(held[K], stats);
        if (!is_repeated) {
            of_gamma[K] += gradient * held[K];
            of_beta[K] += gradient;
        }
        d[K] = gradient * to_values(gamma[first + K * TEAM_SIZE]);
        means += vec2<f32>(sum_of(d[K]), sum_of(d[K] * held[K]));
    }
//#end
    means = team_combine(local_index, means) / f32(p.len * VALUES_PER_LOAD);
//#if !CENTER
    means.x = 0.0;
//#endif
//#repeat K HELD
    if (first + K * TEAM_SIZE < p.len) {
        out[base + first + K * TEAM_SIZE] =
            from_values((d[K] - means.x - held[K] * means.y) * stats.scale);
    }
//#end
//#else
    if (member_index(local_index) == 0u) {
        stats_of_rows[row % (p.rounds * TEAMS)] = stats;
    }
    // Sums of d, and of d * h.
    var means = vec2<f32>();
    for (var k = member_index(local_index); k < p.len; k += TEAM_SIZE) {
        let d = to_values(g[base + k]) * to_values(gamma[k]);
        means += vec2<f32>(sum_of(d), sum_of(d * normalised(to_values(x[base + k]), stats)));
    }
    means = team_combine(local_index, means) / f32(p.len * VALUES_PER_LOAD);
//#if !CENTER
    means.x = 0.0;
//#endif
    for (var k = member_index(local_index); k < p.len; k += TEAM_SIZE) {
        let d = to_values(g[base + k]) * to_values(gamma[k]);
        let h = normalised(to_values(x[base + k]), stats);
        out[base + k] = from_values((d - means.x - h * means.y) * stats.scale);
    }
//#endif
}

fn finish_lines(group: u32, local_index: u32) {
    let rows = p.rounds * TEAMS;
    let first = group * rows;
//#if HOLD
//#repeat K HELD
    of_members[local_index] = array<Values, 2>(of_gamma[K], of_beta[K]);
    workgroupBarrier();
    // A large grid may have more workgroups than there are rows.
    if (local_index < TEAM_SIZE && local_index + K * TEAM_SIZE < p.len && first < p.count) {
        var total = of_members[local_index];
        for (var other = local_index + TEAM_SIZE; other < WORKGROUP_SIZE; other += TEAM_SIZE) {
            total[0] += of_members[other][0];
            total[1] += of_members[other][1];
        }
        sums[group * 2u * p.len + local_index + K * TEAM_SIZE] = from_values(total[0]);
        sums[(group * 2u + 1u) * p.len + local_index + K * TEAM_SIZE] = from_values(total[1]);
    }
    workgroupBarrier();
//#end
//#else
    // A large grid may have more workgroups than there are rows.
    if (first >= p.count) { return; }
    let end = min(rows, p.count - first);
    for (var k = local_index; k < p.len; k += WORKGROUP_SIZE) {
        var of_gamma = Values();
        var of_beta = Values();
        for (var row = 0u; row < end; row++) {
            let i = (first + row) * p.len + k;
            let gradient = to_values(g[i]);
            of_gamma += gradient * normalised(to_values(x[i]), stats_of_rows[row]);
            of_beta += gradient;
        }
        sums[group * 2u * p.len + k] = from_values(of_gamma);
        sums[(group * 2u + 1u) * p.len + k] = from_values(of_beta);
    }
//#endif
}
