// 8-bit integers, four per word, the first in the lowest byte.

// Byte `index` of a word, sign-extended.
fn unpack_int8(word: u32, index: u32) -> i32 {
    return bitcast<i32>(word << (24u - 8u * index)) >> 24u;
}

// The low byte of `value` as byte `index` of a word; the other bytes are zero.
fn pack_int8(value: i32, index: u32) -> u32 {
    return (u32(value) & 255u) << (8u * index);
}
