// The logarithm of e^maximum * sum, and what is rounded away of it; inf and zero for a sum of zero.
// `zero` must be zero, and unknown at compile time, so that fast math cannot simplify differences of sums.
fn log_sum_of(maximum: f32, sum: f32, zero: u32) -> vec2<f32> {
    let logarithm = ln(sum);
    let log_sum = bitcast<f32>(bitcast<u32>(maximum + logarithm) ^ zero);
    let rest = bitcast<f32>(bitcast<u32>(maximum - log_sum) ^ zero) + logarithm;
    return select(vec2<f32>(log_sum, rest), vec2<f32>(inf(), 0.0), sum == 0.0);
}
