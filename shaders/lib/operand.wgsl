// Four neighbouring elements of an operand, as a buffer holds them.
// F16, BF16: 16-bit floats, in words, but for UNITS, which multiply f16. F32: f32, in words. Without these flags:
// vec4<f32>.
//#include "lib/vec4"

//#if F16 UNITS
alias Operand4 = vec4<f16>;

fn to_floats(raw: Operand4) -> vec4<f32> {
    return vec4<f32>(raw);
}
//#endif
//#if F16 !UNITS
alias Operand4 = Halves4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    let words = halves_to_words(raw);
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
//#endif
//#if BF16 !F16
alias Operand4 = Halves4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    let words = halves_to_words(raw).xxyy;
    let low = words << vec4<u32>(16u);
    let high = words & vec4<u32>(0xffff0000u);
    return bitcast<vec4<f32>>(select(high, low, vec4<bool>(true, false, true, false)));
}
//#endif
//#if F32 !F16 !BF16
alias Operand4 = Words4;

fn to_floats(raw: Operand4) -> vec4<f32> {
    return bitcast<vec4<f32>>(to_words(raw));
}
//#endif
//#if !F32 !F16 !BF16
alias Operand4 = vec4<f32>;

fn to_floats(raw: Operand4) -> vec4<f32> {
    return raw;
}
//#endif
