// The parameters of pooling and its gradients, and the window of output pixel (h, w). The including shader
// must bind `p: Params`.
struct Params {
    // Invocations.
    count: u32,
    // Lines of the result: its rows, of all channels and images.
    lines: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    padding_h: u32,
    padding_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // 1 if an average counts padding elements.
    count_include_pad: u32,
    pad0: u32,
}

// Lines that one invocation computes.
const LINES: u32 = 4u;

// a * b / n and the remainder, where a <= n, b < n and n <= 2^31. The product need not fit 32 bits.
fn scaled(a: u32, b: u32, n: u32) -> vec2<u32> {
    if (n <= 65536u) { return vec2<u32>(a * b / n, a * b % n); }
    // Long division of the sum of b * 2^k over the bits of a, from the highest that is set: compilers unroll loops of
    // a constant length.
    var quotient = 0u;
    var rest = 0u;
    for (var shift = 32u - countLeadingZeros(a); shift > 0u; shift--) {
        quotient <<= 1u;
        rest <<= 1u;
        if (rest >= n) {
            rest -= n;
            quotient++;
        }
        if (((a >> (shift - 1u)) & 1u) == 1u) {
            rest += b;
            if (rest >= n) {
                rest -= n;
                quotient++;
            }
        }
    }
    return vec2<u32>(quotient, rest);
}

// An adaptive window along one axis: output `o` covers the inputs window_start..window_end, which are
// o * input / output rounded down, and (o + 1) * input / output rounded up.
fn window_start(o: u32, input: u32, output: u32) -> u32 {
    return o * (input / output) + scaled(o, input % output, output).x;
}

fn window_end(o: u32, input: u32, output: u32) -> u32 {
    let rest = scaled(o + 1u, input % output, output);
    return (o + 1u) * (input / output) + rest.x + u32(rest.y > 0u);
}

// The divisor of an average: the elements of the window inside the input, or inside the padded input.
fn window_count(h: u32, w: u32) -> f32 {
    let top = i32(h * p.stride_h) - i32(p.padding_h);
    let left = i32(w * p.stride_w) - i32(p.padding_w);
    var low_h = 0;
    var low_w = 0;
    var high_h = i32(p.in_h);
    var high_w = i32(p.in_w);
    if (p.count_include_pad == 1u) {
        low_h = -i32(p.padding_h);
        low_w = -i32(p.padding_w);
        high_h += i32(p.padding_h);
        high_w += i32(p.padding_w);
    }
    let rows = min(top + i32(p.kernel_h), high_h) - max(top, low_h);
    let cols = min(left + i32(p.kernel_w), high_w) - max(left, low_w);
    // Not as integers: padding can make windows larger than any tensor.
    return max(f32(max(rows, 0)) * f32(max(cols, 0)), 1.0);
}
