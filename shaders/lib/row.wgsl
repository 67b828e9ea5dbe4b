// Rows of neighbouring floats, read and written one at a time or, with QUADS, four.
//#if QUADS
//#include "lib/quad"
alias Word = Quad;
alias Values = vec4<f32>;
// Values that a word holds.
const HELD: u32 = 4u;

fn values_of(word: Word) -> Values {
    return bitcast<vec4<f32>>(words_of(word));
}

fn word_of(values: Values) -> Word {
    return quad_of(bitcast<vec4<u32>>(values));
}

fn sum_of(v: Values) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
//#else
alias Word = f32;
alias Values = f32;
const HELD: u32 = 1u;

fn values_of(word: Word) -> Values {
    return word;
}

fn word_of(values: Values) -> Word {
    return values;
}

fn sum_of(v: Values) -> f32 {
    return v;
}
//#endif
