// Buffers of floats that move one element per load or store, or four with VEC4. Buffers are arrays of Load,
// arithmetic is on Values.
//#if VEC4
//#include "lib/vec4"
alias Load = Words4;
alias Values = vec4<f32>;
const VALUES_PER_LOAD: u32 = 4u;

fn to_values(raw: Load) -> Values {
    return bitcast<vec4<f32>>(to_words(raw));
}

fn from_values(values: Values) -> Load {
    return from_words(bitcast<vec4<u32>>(values));
}

// The sum of the elements of one load.
fn sum_of(v: Values) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
//#else
alias Load = f32;
alias Values = f32;
const VALUES_PER_LOAD: u32 = 1u;

fn to_values(raw: Load) -> Values {
    return raw;
}

fn from_values(values: Values) -> Load {
    return values;
}

fn sum_of(v: Values) -> f32 {
    return v;
}
//#endif
