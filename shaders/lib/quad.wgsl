// Four neighbouring words in one load or store. Buffers that move so are arrays of Quad, whatever the words mean.
// Four floats of 16 bits are a HalfQuad, of half the size. With WIDE a quad is two words of 64 bits: half as many loads on software adapters, where each element of a load is
// checked and moved on its own.
//#if WIDE
alias Quad = vec2<u64>;
alias HalfQuad = u64;

fn words_of(quad: Quad) -> vec4<u32> {
    let low = vec2<u32>(quad);
    let high = vec2<u32>(quad >> vec2<u32>(32u));
    return vec4<u32>(low.x, high.x, low.y, high.y);
}

fn quad_of(words: vec4<u32>) -> Quad {
    return vec2<u64>(words.xz) | (vec2<u64>(words.yw) << vec2<u32>(32u));
}
fn half_words_of(quad: HalfQuad) -> vec2<u32> {
    return vec2<u32>(u32(quad), u32(quad >> 32u));
}
//#else
alias Quad = vec4<u32>;
alias HalfQuad = vec2<u32>;

fn words_of(quad: Quad) -> vec4<u32> {
    return quad;
}

fn quad_of(words: vec4<u32>) -> Quad {
    return words;
}

fn half_words_of(quad: HalfQuad) -> vec2<u32> {
    return quad;
}
//#endif
