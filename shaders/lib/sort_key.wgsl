// The keys of elements, for sorts by digits, and the size of their workgroups.
// Elements of 32 bits are read as u32, so that floats keep all bits.
// FLOAT: floats are ordered by their bits, as in IEEE 754 totalOrder: -0 before 0, NaN after infinity, or before
// -infinity if its sign bit is set.
// SIGNED: the elements are signed integers. DESCENDING: larger elements sort first.
const WORKGROUP_SIZE: u32 = 128u;
// Entries of an invocation: neighbours.
const OWN: u32 = 8u;
const TILE: u32 = WORKGROUP_SIZE * OWN;

// Unsigned integers in the order of the elements.
fn key_of(bits: u32) -> u32 {
    var key = bits;
//#if FLOAT
    key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
//#endif
//#if SIGNED
    key = bits ^ 0x80000000u;
//#endif
//#if DESCENDING
    key = ~key;
//#endif
    return key;
}

// The element with a key.
fn element_of(key: u32) -> u32 {
    var bits = key;
//#if DESCENDING
    bits = ~bits;
//#endif
//#if FLOAT
    bits = select(~bits, bits & 0x7fffffffu, bits >= 0x80000000u);
//#endif
//#if SIGNED
    bits ^= 0x80000000u;
//#endif
    return bits;
}
