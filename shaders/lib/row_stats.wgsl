// The mean and the inverse deviation of a row, which a team computes together.
// The including shader must include lib/vector and lib/team and bind `x`, packed rows, and `p` with the fields
// `len`, the number of loads of a row, and `epsilon`, which is added to the variance.
// HOLD: the loads of a member are in `held` afterwards.
// CENTER: otherwise the mean is replaced by zero, and the deviation is the root mean square.

// Sums of two numbers.
alias Partial = vec2<f32>;

struct RowStats {
    mean: f32,
    // The mean is rounded. The mean of the differences from it is the rounding error.
    mean_error: f32,
    // 1 / sqrt(variance + epsilon).
    scale: f32,
}

fn combine(a: Partial, b: Partial) -> Partial {
    return a + b;
}

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return subgroupShuffleXor(partial, mask);
}
//#endif

//#if HOLD
var<private> held: array<Values, HELD>;
//#endif

// Returns the statistics of the row that starts at the load `base`.
fn row_stats(base: u32, local_index: u32) -> RowStats {
    let first = member_index(local_index);
    let count = f32(p.len * VALUES_PER_LOAD);
    var stats = RowStats();
//#if HOLD
//#repeat K HELD
    held[K] = Values();
    if (first + K * TEAM_SIZE < p.len) { held[K] = to_values(x[base + first + K * TEAM_SIZE]); }
//#if CENTER
    stats.mean += sum_of(held[K]);
//#endif
//#end
//#endif
//#if CENTER
//#if HOLD
//#else
    for (var k = first; k < p.len; k += TEAM_SIZE) {
        stats.mean += sum_of(to_values(x[base + k]));
    }
//#endif
    stats.mean = team_combine(local_index, vec2<f32>(stats.mean, 0.0)).x / count;
//#endif
    var moments = vec2<f32>();
//#if HOLD
//#repeat K HELD
    if (first + K * TEAM_SIZE < p.len) {
        let differences = held[K] - stats.mean;
        moments += vec2<f32>(sum_of(differences), sum_of(differences * differences));
    }
//#end
//#else
    for (var k = first; k < p.len; k += TEAM_SIZE) {
        let differences = to_values(x[base + k]) - stats.mean;
        moments += vec2<f32>(sum_of(differences), sum_of(differences * differences));
    }
//#endif
    moments = team_combine(local_index, moments) / count;
//#if CENTER
    stats.mean_error = moments.x;
    // The difference may be negative by rounding.
    let variance = max(moments.y - stats.mean_error * stats.mean_error, 0.0);
//#else
    // No maximum, which could make zero of NaN.
    let variance = moments.y;
//#endif
    stats.scale = 1.0 / sqrt(variance + p.epsilon);
    return stats;
}
