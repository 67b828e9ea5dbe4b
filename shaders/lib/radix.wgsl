// Sorts the TILE entries of a workgroup by digits of their keys. The order of entries with equal digits stays.
// lib/sort_key lists the flags.
//#include "lib/sort_key"

// The key of an entry, and where it comes from in the tile.
var<workgroup> keys: array<u32, TILE>;
var<workgroup> places: array<u32, TILE>;
// For each pair of digits and each invocation, how many entries have the first digit (low half) and the second
// (high half): its own and those of the invocations before it.
// After every eight invocations there is an unused entry, so that the invocations that add up eight of them read from
// different banks.
const PAIR_SIZE: u32 = WORKGROUP_SIZE + WORKGROUP_SIZE / 8u;
var<workgroup> counts: array<u32, 8u * PAIR_SIZE>;
// For each pair of digits, the sums of the counts of eight invocations.
var<workgroup> sums: array<u32, WORKGROUP_SIZE>;
// How many entries have a smaller digit.
var<workgroup> starts: array<u32, 16>;

fn count_index(pair: u32, owner: u32) -> u32 {
    return pair * PAIR_SIZE + owner + owner / 8u;
}

// The number of an invocation's entries with a digit, and of those of all invocations before it.
fn count_of(digit: u32, owner: u32) -> u32 {
    return (counts[count_index(digit / 2u, owner)] >> (digit % 2u * 16u)) & 0xffffu;
}

// Sorts the entries by the four bits of their keys from `shift` on. All invocations call it after a barrier;
// it ends with one.
fn sort_by_digit(shift: u32, local_index: u32) {
    var own_keys: array<u32, OWN>;
    var own_places: array<u32, OWN>;
    var digits: array<u32, OWN>;
    // How many earlier entries of this invocation have the same digit.
    var ranks: array<u32, OWN>;
//#repeat I 8
    own_keys[I] = keys[local_index * OWN + I];
    own_places[I] = places[local_index * OWN + I];
    digits[I] = (own_keys[I] >> shift) & 15u;
//#end
//#repeat W 8
    {
        var pair = 0u;
//#repeat I 8
        pair += select(0u, 1u << (digits[I] % 2u * 16u), digits[I] / 2u == W);
//#end
        counts[count_index(W, local_index)] = pair;
    }
//#end
//#repeat I 8
    {
        var rank = 0u;
        for (var k = 0u; k < I; k++) {
            let other = (keys[local_index * OWN + k] >> shift) & 15u;
            rank += select(0u, 1u, other == digits[I]);
        }
        ranks[I] = rank;
    }
//#end
    workgroupBarrier();
    // Each invocation adds up the counts of eight invocations for one pair of digits.
    let pair = local_index / 16u;
    let part = local_index % 16u;
    var sum = 0u;
    for (var k = 0u; k < 8u; k++) {
        sum += counts[count_index(pair, part * 8u + k)];
    }
    sums[local_index] = sum;
    workgroupBarrier();
    var before = 0u;
    for (var k = 0u; k < part; k++) {
        before += sums[pair * 16u + k];
    }
    for (var k = 0u; k < 8u; k++) {
        let index = count_index(pair, part * 8u + k);
        before += counts[index];
        counts[index] = before;
    }
    workgroupBarrier();
    if (local_index < 16u) {
        var start = 0u;
        for (var digit = 0u; digit < local_index; digit++) {
            start += count_of(digit, WORKGROUP_SIZE - 1u);
        }
        starts[local_index] = start;
    }
    workgroupBarrier();
//#repeat I 8
    {
        var smaller = starts[digits[I]] + ranks[I];
        if (local_index > 0u) { smaller += count_of(digits[I], local_index - 1u); }
        keys[smaller] = own_keys[I];
        places[smaller] = own_places[I];
    }
//#end
    workgroupBarrier();
}
