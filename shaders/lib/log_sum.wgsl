// The logarithm of e^maximum * sum, and what is rounded away of it; inf and zero for a sum of zero.
// `zero` must be zero, which no compiler knows: otherwise it would know that the second number is zero but for rounding.
fn log_sum_of(maximum: f32, sum: f32, zero: u32) -> vec2<f32> {
    let logarithm = ln(sum);
    let log_sum = bitcast<f32>(bitcast<u32>(maximum + logarithm) ^ zero);
    return select(vec2<f32>(log_sum, maximum - log_sum + logarithm), vec2<f32>(inf(), 0.0), sum == 0.0);
}
