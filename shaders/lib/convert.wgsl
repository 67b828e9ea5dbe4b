// Conversions between element types with the rules of Rust's `as`. Floats become integers by rounding towards
// zero; they saturate, and NaN becomes zero. The including shader must use lib/math after this fragment.

fn to_i32(x: f32) -> i32 {
    if (is_nan(x)) { return 0; }
    if (x >= 2147483648.0) { return 0x7fffffff; }
    if (x <= -2147483648.0) { return i32(-0x7fffffff) - 1; }
    return i32(x);
}

fn to_u32(x: f32) -> u32 {
    if (is_nan(x) || x < 1.0) { return 0u; }
    if (x >= 4294967296.0) { return 0xffffffffu; }
    return u32(x);
}

// From 2^32 on, the 24-bit significand is shifted into place: drivers differ in the direct conversion.
fn to_u64(x: f32) -> u64 {
    if (is_nan(x) || x < 1.0) { return u64(0u); }
    if (x >= 18446744073709551616.0) { return ~u64(0u); }
    if (x < 4294967296.0) { return u64(u32(x)); }
    let bits = bitcast<u32>(x);
    return u64((bits & 0x7fffffu) | 0x800000u) << ((bits >> 23u) - 150u);
}

fn to_i64(x: f32) -> i64 {
    if (is_nan(x)) { return i64(0); }
    if (x >= 9223372036854775808.0) { return i64(~u64(0u) >> 1u); }
    if (x <= -9223372036854775808.0) { return i64(u64(1u) << 63u); }
    let magnitude = i64(to_u64(abs(x)));
    return select(magnitude, -magnitude, x < 0.0);
}

// Rounded to the nearest float, ties to even.
fn u64_to_float(x: u64) -> f32 {
    let high = u32(x >> 32u);
    if (high == 0u) { return f32(u32(x)); }
    // Keeps the 32 leading bits. The bits below them are merged into the last one, for the rounding.
    let shift = 32u - countLeadingZeros(high);
    let rest = select(0u, 1u, (x & ((u64(1u) << shift) - u64(1u))) != u64(0u));
    return f32(u32(x >> shift) | rest) * bitcast<f32>((127u + shift) << 23u);
}

fn i64_to_float(x: i64) -> f32 {
    let magnitude = u64_to_float(u64(select(x, -x, x < i64(0))));
    return select(magnitude, -magnitude, x < i64(0));
}
