// Buffers that move four elements per load or store, of any type: Words4 is four 32-bit words, Halves4 four
// 16-bit words.
// LOADS_U64, for software adapters: 32-bit words move in pairs as u64, because there every element of a load
// is bounds-checked and moved separately.
//#if LOADS_U64
alias Words4 = vec2<u64>;
alias Halves4 = u64;

fn to_words(raw: Words4) -> vec4<u32> {
    let low = vec2<u32>(raw);
    let high = vec2<u32>(raw >> vec2<u32>(32u));
    return vec4<u32>(low.x, high.x, low.y, high.y);
}

fn from_words(words: vec4<u32>) -> Words4 {
    return vec2<u64>(words.xz) | (vec2<u64>(words.yw) << vec2<u32>(32u));
}

fn halves_to_words(raw: Halves4) -> vec2<u32> {
    return vec2<u32>(u32(raw), u32(raw >> 32u));
}

fn halves_from_words(words: vec2<u32>) -> Halves4 {
    return u64(words.x) | (u64(words.y) << 32u);
}
//#else
alias Words4 = vec4<u32>;
alias Halves4 = vec2<u32>;

fn to_words(raw: Words4) -> vec4<u32> {
    return raw;
}

fn from_words(words: vec4<u32>) -> Words4 {
    return words;
}

fn halves_to_words(raw: Halves4) -> vec2<u32> {
    return raw;
}

fn halves_from_words(words: vec2<u32>) -> Halves4 {
    return words;
}
//#endif
