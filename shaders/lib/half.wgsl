// Conversions of 16-bit floats by their bits: the same result on every device, with or without hardware
// support. Conversions to 16 bits round to nearest, ties to even.

fn f16_to_f32(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let exponent = (bits >> 10u) & 0x1fu;
    let mantissa = bits & 0x3ffu;
    // Subnormals are multiples of 2^-24.
    let subnormal = bitcast<u32>(f32(mantissa) * 5.9604644775390625e-8);
    let normal = ((exponent + 112u) << 23u) | (mantissa << 13u);
    let special = 0x7f800000u | (mantissa << 13u);
    let magnitude = select(select(normal, subnormal, exponent == 0u), special, exponent == 31u);
    return bitcast<f32>(sign | magnitude);
}

fn f32_to_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    // NaN becomes a quiet NaN.
    if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
    // From 65520 on, the nearest value is infinity.
    if (magnitude >= 0x477ff000u) { return sign | 0x7c00u; }
    // Below 2^-14 the result is subnormal.
    if (magnitude < 0x38800000u) {
        return sign | u32(round(bitcast<f32>(magnitude) * 16777216.0));
    }
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    return sign | ((rounded - 0x38000000u) >> 13u);
}

fn f32_to_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    // NaN stays NaN: rounding must not carry into the exponent.
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// The element at an offset, of the word that holds it.
fn f16_value(word: u32, offset: u32) -> f32 {
    return f16_to_f32((word >> ((offset & 1u) * 16u)) & 0xffffu);
}

fn bf16_value(word: u32, offset: u32) -> f32 {
    return bitcast<f32>((word >> ((offset & 1u) * 16u)) << 16u);
}

// Four neighbours, of the words that hold them.
fn f16_values(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(
        f16_to_f32(words.x & 0xffffu),
        f16_to_f32(words.x >> 16u),
        f16_to_f32(words.y & 0xffffu),
        f16_to_f32(words.y >> 16u),
    );
}

fn bf16_values(words: vec2<u32>) -> vec4<f32> {
    let high = vec2<u32>(0xffff0000u);
    let odd = words & high;
    let even = words << vec2<u32>(16u);
    return bitcast<vec4<f32>>(vec4<u32>(even.x, odd.x, even.y, odd.y));
}

fn f16_words(values: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(
        f32_to_f16(values.x) | (f32_to_f16(values.y) << 16u),
        f32_to_f16(values.z) | (f32_to_f16(values.w) << 16u),
    );
}

fn bf16_words(values: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(
        f32_to_bf16(values.x) | (f32_to_bf16(values.y) << 16u),
        f32_to_bf16(values.z) | (f32_to_bf16(values.w) << 16u),
    );
}
