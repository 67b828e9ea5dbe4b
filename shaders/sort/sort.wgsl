// sort: out[line, rank(k)] = x[line, k] and out_indices[line, rank(k)] = the original index of that element,
// for one pass of a stable merge sort of each line. All are [lines, line_len], packed.
// BLOCK_PASS: sorts blocks of BLOCK_SIZE elements. rank(k) is the start of the block, plus the number of
// elements of the block that sort before element k.
// Otherwise: merges pairs of sorted runs. rank(k) is the start of the pair, plus the index of element k in
// its own run, plus the number of elements of the other run that sort before it, which a binary search finds.
// FLOAT: floats are ordered by their bits, as in IEEE 754 totalOrder: -0 before 0, NaN after infinity.
// DESCENDING: larger elements sort first.
// Each invocation computes the rank of one element.
// Rounds: BLOCK_SIZE, or 32 of the binary search.

// The element type.
alias E = f32;
const BLOCK_SIZE: u32 = 32u;

struct Params {
    // Elements of x.
    count: u32,
    // Elements of a line.
    line_len: u32,
    // Elements of a sorted run; the last one of a line may have fewer.
    run_len: u32,
    pad0: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<E>;
//#if !BLOCK_PASS
@group(0) @binding(auto) var<storage, read> x_indices: array<i32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
@group(0) @binding(auto) var<storage, read_write> out_indices: array<i32>;

// The integer that orders an element.
//#if FLOAT
alias Key = i32;

fn key_of(v: E) -> Key {
    let bits = bitcast<i32>(v);
    return select(bits, bits ^ 0x7fffffff, bits < 0);
}
//#else
alias Key = E;

fn key_of(v: E) -> Key {
    return v;
}
//#endif

// Whether elements with key a sort before elements with key b.
fn precedes(a: Key, b: Key) -> bool {
//#if DESCENDING
    return a > b;
//#else
    return a < b;
//#endif
}

fn invocation(i: u32) {
    let index = i % p.line_len;
    let line_start = i - index;
    let value = x[i];
    let key = key_of(value);
//#if BLOCK_PASS
    let start = index - index % BLOCK_SIZE;
    let end = min(start + BLOCK_SIZE, p.line_len);
    var rank = 0u;
    for (var k = start; k < end; k++) {
        let other = key_of(x[line_start + k]);
        // Equal elements keep their order.
        rank += select(0u, 1u, precedes(other, key) || (k < index && !precedes(key, other)));
    }
    out[line_start + start + rank] = value;
    out_indices[line_start + start + rank] = i32(index);
//#else
    let start = index - index % (p.run_len * 2u);
    let middle = min(start + p.run_len, p.line_len);
    let in_left = index < middle;
    // Binary search for the insertion point in the other run. Of equal elements, the left run's come first.
    let other_start = select(start, middle, in_left);
    var low = other_start;
    var high = select(middle, min(middle + p.run_len, p.line_len), in_left);
    while (low < high) {
        let mid = (low + high) / 2u;
        let other = key_of(x[line_start + mid]);
        let precedes_this = select(!precedes(key, other), precedes(other, key), in_left);
        if (precedes_this) {
            low = mid + 1u;
        } else {
            high = mid;
        }
    }
    let index_in_run = index - select(middle, start, in_left);
    let dst = line_start + start + index_in_run + low - other_start;
    out[dst] = value;
    out_indices[dst] = x_indices[i];
//#endif
}
//#include "lib/invocation"
