// Functions that WGSL lacks or specifies with too little accuracy: asin, atan, log near one, sin and cos of
// large values, tanh (which may overflow). NAME_ replaces the WGSL function NAME.
// `//#use` keeps only the functions that a kernel calls.
// NaN and infinity are tested by their bits: Metal compiles with fast math, which assumes that neither exists
// and may fold comparisons with them. No condition relies on the result of a comparison with NaN.
// Polynomial coefficients: S. L. Moshier, Cephes (single precision), unless noted.

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_negative_inf(x: f32) -> bool {
    return bitcast<u32>(x) == 0xff800000u;
}

fn from_bits(bits: u32) -> f32 {
    // Uses a variable, because WGSL rejects constants that are not finite.
    var value = bits;
    return bitcast<f32>(value);
}

fn nan() -> f32 {
    return from_bits(0x7fc00000u);
}

fn inf() -> f32 {
    return from_bits(0x7f800000u);
}

// The maximum; NaN if either operand is NaN.
fn nan_max(a: f32, b: f32) -> f32 {
    return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
}

// The minimum; NaN if either operand is NaN.
fn nan_min(a: f32, b: f32) -> f32 {
    return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));
}

// The sign; NaN for NaN.
fn sign_of(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    return sign(x);
}

// x with the sign bit of y. It is selected: LLVM 22 merges masks of both into a wrong instruction.
fn with_sign(x: f32, y: f32) -> f32 {
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    return bitcast<f32>(select(magnitude, magnitude | 0x80000000u, bitcast<i32>(y) < 0));
}

// Natural logarithm, without branches: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then
// log m = 2 artanh((m-1)/(m+1)).
fn ln(x: f32) -> f32 {
    let is_small = bitcast<u32>(x) < 0x00800000u;
    let bits = select(bitcast<u32>(x), bitcast<u32>(x * 8388608.0), is_small);
    let significand = bitcast<f32>((bits & 0x007fffffu) | 0x3f800000u);
    let is_high = significand > 1.4142135;
    let m = select(significand, 0.5 * significand, is_high);
    let e = i32(bits >> 23u) - select(127, 150, is_small) + select(0, 1, is_high);
    let y = f32(e) * 0.6931472 + artanh_series((m - 1.0) / (m + 1.0));
    // Of infinity, x itself.
    let special = select(select(x, nan(), x < 0.0), -inf(), x == 0.0);
    return select(select(special, y, x > 0.0 && !is_inf(x)), x, is_nan(x));
}

// 2 artanh(z) for |z| <= 1/3, by its Taylor series.
fn artanh_series(z: f32) -> f32 {
    let w = z * z;
    let tail = w * (1.0 / 3.0 + w * (1.0 / 5.0 + w * (1.0 / 7.0 + w * (1.0 / 9.0
        + w * (1.0 / 11.0 + w * (1.0 / 13.0 + w * (1.0 / 15.0)))))));
    return 2.0 * (z + z * tail);
}

// log(1 + x), accurate near zero.
fn log1p(x: f32) -> f32 {
    if (abs(x) <= 0.5) { return artanh_series(x / (2.0 + x)); }
    return ln(1.0 + x);
}

// e^x = 2^n * 2^f, without branches. n is an exponent of normal numbers, so that f is at most one half, where exp2 has
// an error of few units in the last place, or the product overflows or underflows by itself.
// f = x / log(2) - n is a sum of two products with different factors: compilers would join n * a + n * b. The first is
// of r = x - n * 355/512, which is exact.
fn exp_(x: f32) -> f32 {
    let n = clamp(round(x * 1.442695), -126.0, 127.0);
    let r = fma(n, -0.693359375, x);
    let f = fma(x, 4.4151976e-4, r * 1.4422535);
    let y = exp2(f) * bitcast<f32>(u32(i32(n) + 127) << 23u);
    return select(y, x, is_nan(x));
}

fn exp4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_(x.x), exp_(x.y), exp_(x.z), exp_(x.w));
}

// The shift of the exponents of a softmax: the maximum, or zero while all elements are -inf, because
// -inf - -inf is NaN.
fn softmax_shift(maximum: f32) -> f32 {
    return select(maximum, 0.0, is_negative_inf(maximum));
}

// 1 - erf(x) for x >= 0 (W. H. Press et al., Numerical Recipes, erfcc). The formula has a relative error below
// 1.2e-7; in f32, which rounds x * x, it is 5e-7 below 1, and 2e-5 where the result is 1e-35.
fn erfc_positive(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * x);
    return t * exp_(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418
        + t * (-0.18628806 + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587
        + t * (-0.82215223 + t * 0.17087277)))))))));
}

// erf: its Taylor series near zero, 1 - erfc elsewhere.
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let w = min(x * x, 1.0);
    let series = 1.1283792 * x * (1.0 - w * (1.0 / 3.0 - w * (1.0 / 10.0 - w * (1.0 / 42.0
        - w * (1.0 / 216.0 - w * (1.0 / 1320.0 - w * (1.0 / 9360.0 - w * (1.0 / 75600.0))))))));
    // NaN becomes 6.
    let far = with_sign(1.0 - erfc_positive(min(a, 6.0)), x);
    return select(far, series, a < 0.9 || is_nan(x));
}

// The cumulative distribution function of the normal distribution, without cancellation in the lower tail.
fn normal_cdf(x: f32) -> f32 {
    let tail = 0.5 * erfc_positive(abs(x) * 0.70710678);
    return select(tail, 1.0 - tail, x > 0.0);
}

fn gelu(x: f32) -> f32 {
    // Outside of 14, the result is zero or x: the product would be NaN for -infinity.
    let y = x * normal_cdf(clamp(x, -14.0, 14.0));
    return select(select(y, -0.0, x < -14.0), x, is_nan(x));
}

// The derivative of gelu.
fn gelu_slope(x: f32) -> f32 {
    let c = clamp(x, -14.0, 14.0);
    return select(normal_cdf(c) + c * 0.39894228 * exp_(-0.5 * c * c), x, is_nan(x));
}

fn sigmoid(x: f32) -> f32 {
    let e = exp_(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn log_sigmoid(x: f32) -> f32 {
    // min() may pass over NaN, and the rest does not. Of log(1 + e), e is at most one.
    let e = exp_(-abs(x));
    return min(x, 0.0) - artanh_series(e / (2.0 + e));
}

fn tanh_(x: f32) -> f32 {
    let a = abs(x);
    let w = min(x * x, 1.0);
    let near = fma(((((-5.70498872745e-3 * w + 2.06390887954e-2) * w - 5.37397155531e-2) * w
        + 1.33314422036e-1) * w - 3.33332819422e-1) * w, x, x);
    // NaN becomes 20.
    let far = with_sign(1.0 - 2.0 / (exp_(2.0 * min(a, 20.0)) + 1.0), x);
    return select(far, near, a < 0.625 || is_nan(x));
}

fn sinh_(x: f32) -> f32 {
    if (abs(x) < 1.0) {
        let w = x * x;
        return fma(((2.03721912945e-4 * w + 8.33028376239e-3) * w + 1.66667160211e-1) * w, x, x);
    }
    // Multiplies by e^(|x|/2) twice, because e^|x| may overflow where sinh does not.
    let e = exp_(0.5 * abs(x));
    return with_sign(0.5 * e * e - 0.5 / e / e, x);
}

fn cosh_(x: f32) -> f32 {
    let e = exp_(0.5 * abs(x));
    return 0.5 * e * e + 0.5 / e / e;
}

// Sine and cosine for |x| <= pi/4.
fn sin_small(x: f32) -> f32 {
    let w = x * x;
    return fma(((-1.9515295891e-4 * w + 8.3321608736e-3) * w - 1.6666654611e-1) * w, x, x);
}

fn cos_small(x: f32) -> f32 {
    let w = x * x;
    return ((2.443315711809948e-5 * w - 1.388731625493765e-3) * w + 4.166664568298827e-2) * w * w
        - 0.5 * w + 1.0;
}

// e^(-2 pi i k / n) as (real, imaginary), for n = 4 * 2^bits and k < n. The angle is reduced in integers: by
// multiples of 90 degrees, then to the distance from the nearer end of the quadrant.
fn unit_root(k: u32, bits: u32) -> vec2<f32> {
    let quarter = 1u << bits;
    let turns = k >> bits;
    let rest = k & (quarter - 1u);
    let far = 2u * rest > quarter;
    let angle = 1.5707964 * (f32(select(rest, quarter - rest, far)) / f32(quarter));
    let near = vec2<f32>(cos_small(angle), sin_small(angle));
    let first = select(near, near.yx, far) * vec2<f32>(1.0, -1.0);
    let second = select(first, vec2<f32>(first.y, -first.x), (turns & 1u) == 1u);
    return select(second, -second, (turns & 2u) == 2u);
}

// |x| modulo pi/2, in [-pi/4, pi/4], and the number of multiples of pi/2 modulo 4, for a finite |x|.
fn reduce_angle(a: f32) -> vec2<f32> {
    if (a > 8192.0) { return reduce_large_angle(a); }
    // pi/2 is split into three parts. The products of n with the first two are exact, so fma may round twice.
    let n = round(a * 0.63661977);
    let r = fma(n, -7.549789948768648e-8, fma(n, -4.837512969970703125e-4, fma(n, -1.5703125, a)));
    return vec2<f32>(r, f32(u32(n) & 3u));
}

// reduce_angle for a >= 64, in integers (M. Payne and R. Hanek, Radian reduction for trigonometric functions,
// 1983). The relative error of the first component is below 2e-7 for every float.
fn reduce_large_angle(a: f32) -> vec2<f32> {
    let bits = bitcast<u32>(a);
    let significand = (bits << 8u) | 0x80000000u;
    // a is the significand, read as a fraction, times 2^e. 96 bits of 2/pi are enough: the bits before them
    // contribute multiples of 4, those after them less than the error.
    let e = (bits >> 23u) - 126u;
    let shift = e & 31u;
    let word = e >> 5u;
    var high = two_over_pi(word);
    var mid = two_over_pi(word + 1u);
    var low = two_over_pi(word + 2u);
    if (shift > 0u) {
        high = (high << shift) | (mid >> (32u - shift));
        mid = (mid << shift) | (low >> (32u - shift));
        low = (low << shift) | (two_over_pi(word + 3u) >> (32u - shift));
    }
    // The product modulo 4 in units of 2^-62.
    let product_low = mul_extended(significand, low).x;
    let product_mid = mul_extended(significand, mid);
    var p_low = product_mid.y + product_low;
    var p_high = product_mid.x + u32(p_low < product_low) + significand * high;
    // The nearest integer, and the distance from it.
    let turns = (p_high + 0x20000000u) >> 30u;
    p_high -= turns << 30u;
    let negative = p_high >= 0x80000000u;
    if (negative) {
        p_low = 0u - p_low;
        p_high = ~p_high + u32(p_low == 0u);
    }
    // The distance as a float: its leading 32 bits, shifted by the zeros before them.
    var zeros = countLeadingZeros(p_high);
    if (zeros == 32u) {
        zeros += countLeadingZeros(p_low);
        p_high = p_low << (zeros - 32u);
    } else if (zeros > 0u) {
        p_high = (p_high << zeros) | (p_low >> (32u - zeros));
    }
    let r = f32(p_high) * bitcast<f32>((97u - zeros) << 23u) * 1.5707964;
    return vec2<f32>(select(r, -r, negative), f32(turns & 3u));
}

// Word `index` of the bits of 2/pi, the first of which counts 4 * 2^-32 and has two leading zeros.
fn two_over_pi(index: u32) -> u32 {
    switch (index) {
        case 1u: { return 0x28be60dbu; }
        case 2u: { return 0x9391054au; }
        case 3u: { return 0x7f09d5f4u; }
        case 4u: { return 0x7d4d3770u; }
        case 5u: { return 0x36d8a566u; }
        case 6u: { return 0x4f10e410u; }
        default: { return 0u; }
    }
}

// The high word (x) and the low word (y) of the 64-bit product.
fn mul_extended(a: u32, b: u32) -> vec2<u32> {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let low = a_low * b_low;
    let mid = a_high * b_low + (low >> 16u);
    let mid2 = a_low * b_high + (mid & 0xffffu);
    return vec2<u32>(a_high * b_high + (mid >> 16u) + (mid2 >> 16u), a * b);
}

// The sine of x + turns * pi/2, for turns 0 or 1. The error is below 2e-7 for every float.
fn sin_shifted(x: f32, turns: i32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan(); }
    let reduced = reduce_angle(abs(x));
    let angle = select(reduced, -reduced, (bitcast<u32>(x) & 0x80000000u) != 0u);
    let r = angle.x;
    let quadrant = i32(angle.y) + turns;
    let y = select(sin_small(r), cos_small(r), (quadrant & 1) == 1);
    return select(y, -y, (quadrant & 2) == 2);
}

fn sin_(x: f32) -> f32 {
    return sin_shifted(x, 0);
}

fn cos_(x: f32) -> f32 {
    return sin_shifted(x, 1);
}

fn tan_(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan(); }
    let reduced = reduce_angle(abs(x));
    let s = sin_small(reduced.x);
    let c = cos_small(reduced.x);
    let y = select(s / c, -c / s, (u32(reduced.y) & 1u) == 1u);
    return select(y, -y, (bitcast<u32>(x) & 0x80000000u) != 0u);
}

fn asin_small(x: f32) -> f32 {
    let w = x * x;
    return fma(((((4.2163199048e-2 * w + 2.4181311049e-2) * w + 4.5470025998e-2) * w
        + 7.4953002686e-2) * w + 1.6666752422e-1) * w, x, x);
}

fn asin_(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a > 1.0) { return nan(); }
    if (a <= 0.5) { return asin_small(x); }
    return with_sign(1.57079633 - 2.0 * asin_small(sqrt(0.5 - 0.5 * a)), x);
}

fn acos_(x: f32) -> f32 {
    if (is_nan(x) || abs(x) > 1.0) { return nan(); }
    if (x > 0.5) { return 2.0 * asin_small(sqrt(0.5 - 0.5 * x)); }
    if (x < -0.5) { return 3.14159265 - 2.0 * asin_small(sqrt(0.5 + 0.5 * x)); }
    return 1.57079633 - asin_small(x);
}

fn atan_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    var base = 0.0;
    var r = a;
    if (a > 2.414213562) {
        base = 1.57079633;
        r = -1.0 / a;
    } else if (a > 0.414213562) {
        base = 0.785398163;
        r = (a - 1.0) / (a + 1.0);
    }
    let w = r * r;
    let y = fma((((8.05374449538e-2 * w - 1.38776856032e-1) * w + 1.99777106478e-1) * w
        - 3.33329491539e-1) * w, r, r);
    return with_sign(base + y, x);
}

// The angle of (x, y) in (-pi, pi], with the signs of zeros as in C.
fn atan2_(y: f32, x: f32) -> f32 {
    if (is_nan(x) || is_nan(y)) { return nan(); }
    let negative = (bitcast<u32>(x) & 0x80000000u) != 0u;
    var angle: f32;
    if (is_inf(x) && is_inf(y)) {
        angle = 0.785398163;
    } else if (x == 0.0 && y == 0.0) {
        angle = 0.0;
    } else if (abs(y) > abs(x)) {
        angle = 1.57079633 - atan_(abs(x) / abs(y));
    } else {
        angle = atan_(abs(y) / abs(x));
    }
    if (negative) { angle = 3.14159265 - angle; }
    return with_sign(angle, y);
}

fn asinh_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    if (a > 1.0e15) { return with_sign(ln(a) + 0.69314718, x); }
    return with_sign(log1p(a + a * a / (1.0 + sqrt(1.0 + a * a))), x);
}

fn acosh_(x: f32) -> f32 {
    if (is_nan(x) || x < 1.0) { return nan(); }
    if (x > 1.0e15) { return ln(x) + 0.69314718; }
    let t = x - 1.0;
    return log1p(t + sqrt(t * (2.0 + t)));
}

fn atanh_(x: f32) -> f32 {
    if (is_nan(x) || abs(x) > 1.0) { return nan(); }
    if (abs(x) == 1.0) { return with_sign(inf(), x); }
    return with_sign(0.5 * log1p(2.0 * abs(x) / (1.0 - abs(x))), x);
}

// a^n by repeated squaring: exact if the result is representable.
fn pow_whole(a: f32, n: u32) -> f32 {
    var base = a;
    var exponent = n;
    var y = 1.0;
    while (exponent > 0u) {
        if ((exponent & 1u) == 1u) { y *= base; }
        base *= base;
        exponent >>= 1u;
    }
    return y;
}

// a^b with the special cases of C: a negative base needs an integer exponent.
fn pow_(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) { return 1.0; }
    if (is_nan(a) || is_nan(b)) { return nan(); }
    let whole = abs(b) < 16777216.0 && floor(b) == b;
    if (whole && abs(b) <= 64.0) {
        let y = pow_whole(a, u32(abs(b)));
        return select(y, 1.0 / y, b < 0.0);
    }
    // From 2^24 on, every float is an even integer.
    let even = abs(b) >= 16777216.0;
    if (a < 0.0 && !whole && !even) { return nan(); }
    let m = abs(a);
    var y: f32;
    if (is_inf(b)) {
        y = select(select(0.0, inf(), (m > 1.0) == (b > 0.0)), 1.0, m == 1.0);
    } else if (m == 0.0 || is_inf(m)) {
        y = select(0.0, inf(), (m == 0.0) == (b < 0.0));
    } else {
        y = exp_(b * ln(m));
    }
    let odd = whole && (i32(abs(b)) & 1) == 1;
    return select(y, -y, odd && (bitcast<u32>(a) & 0x80000000u) != 0u);
}

// a / b, rounded to nearest, except next to a midpoint and unless a, b or the quotient is tiny. WGSL allows errors of
// 2.5 units in the last place, and GPUs make them: 21 / 7 is not 3. They also flush the reciprocal of a divisor above
// 2^126 to zero.
fn div(a: f32, b: f32) -> f32 {
    let scale = select(1.0, 0.25, abs(b) > 4.2535296e37);
    let n = a * scale;
    let d = b * scale;
    // The parts of the quotient, of 12 bits, are from its bits: a compiler that multiplies by a reciprocal may contract
    // the product with a sum, in which the quotient is not rounded.
    let bits = bitcast<u32>(n / d);
    let q_high = bitcast<f32>(bits & 0xfffff000u);
    let q_low = f32(bits & 0xfffu) * (bitcast<f32>(bits & 0xff800000u) * 1.1920929e-7);
    let d_high = bitcast<f32>(bitcast<u32>(d) & 0xfffff000u);
    let d_low = d - d_high;
    // What remains is exact: the products have 24 bits, so fma may round twice.
    let r = fma(-q_low, d_low, fma(-q_low, d_high, fma(-q_high, d_low, fma(-q_high, d_high, n))));
    let q = bitcast<f32>(bits);
    let nearer = (q_high + q_low) + r / d;
    // Parts of numbers below 2^-80 may be flushed to zero.
    let is_exact = min(min(abs(n), abs(d)), abs(q)) > 1e-24;
    let is_finite = (bitcast<u32>(nearer) & 0x7fffffffu) < 0x7f800000u;
    return select(q, nearer, is_exact && is_finite && r != 0.0);
}

// The remainder with the sign of the divisor: exact if a and b have the same sign, else rounded once.
fn rem(a: f32, b: f32) -> f32 {
    // Bits, because a GPU may read subnormal floats as zero.
    let dividend = bitcast<u32>(a) & 0x7fffffffu;
    let divisor = bitcast<u32>(b) & 0x7fffffffu;
    if (dividend >= 0x7f800000u || divisor > 0x7f800000u || divisor == 0u) { return nan(); }
    let same_sign = ((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u) == 0u;
    if (is_inf(b)) { return select(b, a, same_sign || dividend == 0u); }
    let r = rem_magnitude(dividend, divisor);
    return with_sign(select(bitcast<f32>(divisor) - r, r, same_sign || bitcast<u32>(r) == 0u), b);
}

// a modulo b, exactly, for the bits of finite floats a >= 0 and b > 0.
fn rem_magnitude(a_bits: u32, b_bits: u32) -> f32 {
    let a = bitcast<f32>(a_bits);
    let b = bitcast<f32>(b_bits);
    if (a_bits < b_bits) { return a; }
    if (b > 1.0e-30 && b < 1.0e35 && a < 1024.0 * b) {
        // The quotient has 11 bits and the parts of b have 12: the products are exact, so fma may round twice.
        let q = round(a / b);
        let b_high = bitcast<f32>(b_bits & 0xfffff000u);
        let r = fma(-q, b - b_high, fma(-q, b_high, a));
        return select(r, r + b, r < 0.0);
    }
    // Long division of the significands, eight bits at a time.
    let x = normalized(a_bits);
    let y = normalized(b_bits);
    let divisor = u32(y.x);
    var r = u32(x.x) % divisor;
    for (var bits = x.y - y.y; bits > 0; bits -= 8) {
        r = (r << u32(min(bits, 8))) % divisor;
    }
    if (r == 0u) { return 0.0; }
    let zeros = countLeadingZeros(r) - 8u;
    let e = y.y - i32(zeros);
    if (e > 0) { return bitcast<f32>((u32(e) << 23u) + (r << zeros) - 0x00800000u); }
    // The result is subnormal: its last bit counts 2^-149.
    if (y.y < 1) { return bitcast<f32>(r >> u32(1 - y.y)); }
    return bitcast<f32>(r << u32(y.y - 1));
}

// The 24-bit significand (x) and the biased exponent (y) of a positive finite float. The exponent of a
// subnormal float is below one.
fn normalized(bits: u32) -> vec2<i32> {
    if (bits >= 0x00800000u) {
        return vec2<i32>(i32((bits & 0x007fffffu) | 0x00800000u), i32(bits >> 23u));
    }
    let zeros = countLeadingZeros(bits) - 8u;
    return vec2<i32>(i32(bits << zeros), 1 - i32(zeros));
}
