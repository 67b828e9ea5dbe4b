// Products of matrices and a few vectors: a team has the sums of four rows of a matrix for each vector. Its members add
// up their shares, and store the results.
// VECTORS: the number of vectors, rounded up to a power of two.
// COMBINED: the number of vectors whose sums a team combines together, at most its size. BLOCKS: VECTORS / COMBINED.
// HALVES_1, HALVES_2, HALVES_4, HALVES_8: COMBINED is larger than 1, 2, 4, 8.
// OUT_VEC4: rows of out are neighbours, a multiple of four, and four are stored at once.
// The including shader must include lib/vector and lib/team, and bind `out`, and `p` with the fields `rows`, `vectors`
// and `out_row`, the distance between the rows of out: 1 or the number of vectors.

// The sums of four rows.
alias Partial = vec4<f32>;

//#if SUBGROUP
fn shuffle_xor(partial: Partial, mask: u32) -> Partial {
    return subgroupShuffleXor(partial, mask);
}
//#endif

const VECTORS: u32 = 1u;
const COMBINED: u32 = 1u;

// Halves the sums of two members whose indices differ in `mask`: one keeps `low`, the other `high`. Each sends the sum
// that it does not keep, and adds the one that it receives.
fn traded(local_index: u32, low: Partial, high: Partial, mask: u32) -> Partial {
    let keeps_high = (member_index(local_index) & mask) != 0u;
    let got = team_exchange(local_index, select(high, low, keeps_high), mask);
    return select(low, high, keeps_high) + got;
}

// Stores the sums over a team of what its members have, for `rows` of the matrix whose results begin at `start`.
fn store_sums(local_index: u32, start: u32, rows: vec4<u32>, of_member: array<Partial, VECTORS>) {
    var sums = of_member;
    let out_vector = select(1u, p.rows, p.out_row == 1u);
    let member = member_index(local_index);
//#repeat B BLOCKS
    {
        // Each step halves the number of sums that a member keeps. After the last one, sums[B * COMBINED] of member m
        // belongs to vector m % COMBINED of the block.
//#for H in 8 4 2 1
//#if HALVES_H
//#repeat V H
        sums[B * COMBINED + V] =
            traded(local_index, sums[B * COMBINED + V], sums[B * COMBINED + V + H], H);
//#end
//#endif
//#end
        var sum = sums[B * COMBINED];
        for (var mask = COMBINED; mask < TEAM_SIZE; mask *= 2u) {
            sum += team_exchange(local_index, sum, mask);
        }
        if (member < COMBINED) {
            let first_row = start + min(B * COMBINED + member, p.vectors - 1u) * out_vector;
//#if OUT_VEC4
            out[(first_row + rows[0]) >> 2u] = from_values(sum);
//#else
//#repeat I 4
            out[first_row + rows[I] * p.out_row] = sum[I];
//#end
//#endif
        }
    }
//#end
}
