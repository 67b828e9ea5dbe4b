// Signed integers of BITS bits, VALUES of them in a 32-bit word, the first in the lowest bits.

// Integer `index` of a word, sign-extended.
fn unpack_int(word: u32, index: u32) -> i32 {
    return bitcast<i32>(word << (32u - BITS - BITS * index)) >> (32u - BITS);
}

// The low bits of `value` as integer `index` of a word; the other bits are zero.
fn pack_int(value: i32, index: u32) -> u32 {
    return (u32(value) & ((1u << BITS) - 1u)) << (BITS * index);
}
