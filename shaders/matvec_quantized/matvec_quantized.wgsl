// matvec_quantized: out[v, r] = sum over k of matrix[r, k] * x[v, k], for integers in blocks of neighbours, which are
// read once, as they are stored: matrix[r, k] = integer * scale of its block, plus a minimum of the block with MINIMA.
// The sums of a block are multiplied by its scale, not its elements. out is [splits, v, r], packed: k may be split.
// ADDS: something is added to the elements of a block: minima, or the sign of integers of 4 bits.
// BITS_4: integers have 4 bits, otherwise 8. The first of a word is in its lowest bits.
// LOAD_WORDS: the words of a load, 1, 2 or 4, all in one block. ONE_WORD, TWO_WORDS: they are 1, 2.
// SHARES: teams are single invocations of a subgroup of eight, which share what they read of the only vector.
// Each team sums one split of a line, which is a block of four rows of the matrix.
// Rounds: split_len / TEAM_SIZE.
//#include "lib/vector"
//#include "lib/team"
//#include "lib/matvec"

struct Params {
    // Splits of all lines.
    count: u32,
    rows: u32,
    // Blocks of four rows.
    lines: u32,
    // Loads of a row.
    len: u32,
    // Loads of a split; the last one may have fewer.
    split_len: u32,
    // The binary logarithm of the loads of a block.
    block_bits: u32,
    // The first vector, and the distance between vectors, in vec4s.
    x_start: u32,
    x_vector: u32,
    vectors: u32,
    out_row: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
//#if ONE_WORD
@group(0) @binding(auto) var<storage, read> integers: array<u32>;
//#endif
//#if TWO_WORDS
@group(0) @binding(auto) var<storage, read> integers: array<vec2<u32>>;
//#endif
//#if !ONE_WORD !TWO_WORDS
@group(0) @binding(auto) var<storage, read> integers: array<Words4>;
//#endif
@group(0) @binding(auto) var<storage, read> scales: array<f32>;
@group(0) @binding(auto) var<storage, read> x: array<Load>;
//#if MINIMA
@group(0) @binding(auto) var<storage, read> minima: array<f32>;
//#endif
@group(0) @binding(auto) var<storage, read_write> out: array<Words4>;

const LOAD_WORDS: u32 = 1u;
//#if BITS_4
// The vec4s of x that belong to a word.
const X_PER_WORD: u32 = 2u;
//#else
const X_PER_WORD: u32 = 1u;
//#endif

const X_PER_LOAD: u32 = LOAD_WORDS * X_PER_WORD;

// Returns the words of a load, which are repeated if they are fewer than four.
//#if ONE_WORD
fn words_of(load: u32) -> vec4<u32> {
    return vec4<u32>(load);
}
//#endif
//#if TWO_WORDS
fn words_of(load: vec2<u32>) -> vec4<u32> {
    return load.xyxy;
}
//#endif
//#if !ONE_WORD !TWO_WORDS
fn words_of(load: Words4) -> vec4<u32> {
    return to_words(load);
}
//#endif

//#if BITS_4
// The elements of a word are in two vec4s: those of even positions, and those of odd ones. Without their sign, they are
// larger by this number. (So infinite elements of x give NaN.)
const OFFSET: f32 = 8.0;

fn evens(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8((word ^ 0x88888888u) & 0x0f0f0f0fu));
}

fn odds(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(((word ^ 0x88888888u) >> 4u) & 0x0f0f0f0fu));
}
//#else
fn bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}
//#endif

// The distance of a vector from the first one. Vectors past the last one repeat it.
fn x_offset(vector: u32) -> u32 {
    return min(vector, p.vectors - 1u) * p.x_vector;
}

fn reduce_line(index: u32, local_index: u32) {
    let row = index % p.lines * 4u;
    let rows = vec4<u32>(row, row + 1u, row + 2u, row + 3u);
//#if SHARES
    // There is one split: the subgroup stays together.
    let split = 0u;
    let first = 0u;
    let end = p.len;
//#else
    let split = index / p.lines;
    let first = split * p.split_len + member_index(local_index);
    let end = split * p.split_len + min(p.split_len, p.len - split * p.split_len);
//#endif
    var sums: array<Partial, VECTORS>;
    for (var k = first; k < end; k += TEAM_SIZE) {
        let loads = rows * p.len + k;
        let blocks = loads >> vec4<u32>(p.block_bits);
        let scale = vec4<f32>(scales[blocks.x], scales[blocks.y], scales[blocks.z], scales[blocks.w]);
        let x_index = p.x_start + k * X_PER_LOAD;
//#if SHARES
        let share = to_values(x[x_index + local_index % X_PER_LOAD]);
//#endif
        var minimum: vec4<f32>;
//#if MINIMA
        minimum = vec4<f32>(minima[blocks.x], minima[blocks.y], minima[blocks.z], minima[blocks.w]);
//#endif
//#if BITS_4
        minimum -= OFFSET * scale;
//#endif
        // Four elements of each row, one row in a column. Those of x are in the same order.
        var elements: array<mat4x4<f32>, X_PER_LOAD>;
//#repeat R 4
        {
            let words = words_of(integers[loads[R]]);
//#repeat W LOAD_WORDS
//#if BITS_4
            elements[2u * W][R] = evens(words[W]);
            elements[2u * W + 1u][R] = odds(words[W]);
//#else
            elements[W][R] = bytes(words[W]);
//#endif
//#end
        }
//#end
//#repeat V VECTORS
        {
            var product: vec4<f32>;
            // The sum of the elements of x.
            var x_sum: f32;
//#repeat W LOAD_WORDS
            {
//#if SHARES
                let v = subgroupShuffle(share, W * X_PER_WORD);
//#else
                let v = to_values(x[x_index + x_offset(V) + W * X_PER_WORD]);
//#endif
//#if BITS_4
//#if SHARES
                let w = subgroupShuffle(share, 2u * W + 1u);
//#else
                let w = to_values(x[x_index + x_offset(V) + 2u * W + 1u]);
//#endif
                product += vec4<f32>(v.xz, w.xz) * elements[2u * W];
                product += vec4<f32>(v.yw, w.yw) * elements[2u * W + 1u];
                x_sum += sum_of(v) + sum_of(w);
//#else
                product += v * elements[W];
                x_sum += sum_of(v);
//#endif
            }
//#end
            sums[V] = fma(scale, product, sums[V]);
//#if ADDS
            sums[V] = fma(minimum, vec4<f32>(x_sum), sums[V]);
//#endif
        }
//#end
    }
    store_sums(local_index, split * p.rows * p.vectors, rows, sums);
}
