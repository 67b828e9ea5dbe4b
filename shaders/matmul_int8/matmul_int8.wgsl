// matmul_int8: out[n, i, j] = scale * sum over k of a[n, i, k] * b[n, k, j], for matrix n of a batch of 8-bit integers,
// four in a word, the first in the lowest bits. scale is the product of the scales of a and b.
// A workgroup of 256 computes a tile of 64 x 64 through workgroup memory, each invocation 4 x 4.
// Steps of k are neighbours in the words of a. In those of b they are with B_TRANSPOSED, otherwise columns are.
// Rounds: words, and two for each STEP of them.
//#include "lib/grid"
//#include "lib/walk"

struct Params {
    m: u32,
    n: u32,
    // The words of a row of k.
    words: u32,
    row_tiles: u32,
    // Tiles of a matrix, and of all matrices.
    matrix_tiles: u32,
    tiles: u32,
    // Words between rows of a, and between columns (B_TRANSPOSED) or steps of b.
    a_row: u32,
    b_line: u32,
    // The offset of each matrix in a (y) and b (z), in words.
    walk: Walk,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> a: array<u32>;
@group(0) @binding(auto) var<storage, read> a_scale: array<f32>;
@group(0) @binding(auto) var<storage, read> b: array<u32>;
@group(0) @binding(auto) var<storage, read> b_scale: array<f32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

const TILE: u32 = 64u;
// Words of k in workgroup memory: each invocation loads four of a and four of b.
const STEP: u32 = 16u;
// Four more than needed, so that neighbouring steps are in different banks.
const WIDTH: u32 = TILE + 4u;

// The tiles [STEP, TILE] of both operands, each word four steps of k.
var<workgroup> a_tile: array<u32, STEP * WIDTH>;
var<workgroup> b_tile: array<u32, STEP * WIDTH>;

// Four words of row `row` of a matrix that starts at `start`, from word `word` on. Zeros past the edges.
fn load_a(start: u32, row: u32, word: u32) -> vec4<u32> {
    var loaded = vec4<u32>();
    if (row < p.m) {
        let first = start + row * p.a_row;
//#repeat I 4
        if (word + I < p.words) { loaded[I] = a[first + word + I]; }
//#end
    }
    return loaded;
}

//#if B_TRANSPOSED
fn load_b(start: u32, col: u32, word: u32) -> vec4<u32> {
    var loaded = vec4<u32>();
    if (col < p.n) {
        let first = start + col * p.b_line;
//#repeat I 4
        if (word + I < p.words) { loaded[I] = b[first + word + I]; }
//#end
    }
    return loaded;
}
//#else
// The word `word` of four columns from `col` on, a multiple of four.
fn load_b(start: u32, col: u32, word: u32) -> vec4<u32> {
    if (col >= p.n || word >= p.words) { return vec4<u32>(); }
    // Row I has step I of all four columns.
    var rows: vec4<u32>;
//#repeat I 4
    rows[I] = b[start + (word * 4u + I) * p.b_line + col / 4u];
//#end
    return transposed(rows);
}

// Transposes a matrix of 4 x 4 bytes.
fn transposed(rows: vec4<u32>) -> vec4<u32> {
    let even = vec2<u32>(0x00ff00ffu);
    let odd = vec2<u32>(0xff00ff00u);
    // Pairs of rows: the bytes of columns 0 and 2, and those of 1 and 3.
    let upper = rows.xz;
    let lower = rows.yw;
    let columns_0_2 = (upper & even) | ((lower & even) << vec2<u32>(8u));
    let columns_1_3 = ((upper & odd) >> vec2<u32>(8u)) | (lower & odd);
    let first = vec2<u32>(columns_0_2.x, columns_1_3.x);
    let second = vec2<u32>(columns_0_2.y, columns_1_3.y);
    let low = (first & vec2<u32>(0xffffu)) | (second << vec2<u32>(16u));
    let high = (first >> vec2<u32>(16u)) | (second & vec2<u32>(0xffff0000u));
    return vec4<u32>(low, high);
}
//#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    if (index >= p.tiles) { return; }
    let batch = index / p.matrix_tiles;
    let in_matrix = index % p.matrix_tiles;
    let tile_row = in_matrix % p.row_tiles * TILE;
    let tile_col = in_matrix / p.row_tiles * TILE;
    let starts = locate(batch);

    // The first of the four words that this invocation loads.
    let a_row = local_index / 4u;
    let a_word = local_index % 4u * 4u;
//#if B_TRANSPOSED
    let b_col = a_row;
    let b_word = a_word;
//#else
    let b_col = local_index % 16u * 4u;
    let b_word = local_index / 16u;
//#endif
    // The 4 x 4 block that it computes.
    let block_row = local_index / 16u * 4u;
    let block_col = local_index % 16u * 4u;

    var sums: array<vec4<i32>, 4>;
    var a_next = load_a(starts.y, tile_row + a_row, a_word);
    var b_next = load_b(starts.z, tile_col + b_col, b_word);
    for (var word = 0u; word < p.words; word += STEP) {
//#repeat I 4
        a_tile[(a_word + I) * WIDTH + a_row] = a_next[I];
//#if B_TRANSPOSED
        b_tile[(b_word + I) * WIDTH + b_col] = b_next[I];
//#else
        b_tile[b_word * WIDTH + b_col + I] = b_next[I];
//#endif
//#end
        workgroupBarrier();
        // The next loads are in flight while these steps are multiplied.
        a_next = load_a(starts.y, tile_row + a_row, word + STEP + a_word);
        b_next = load_b(starts.z, tile_col + b_col, word + STEP + b_word);
        for (var step = 0u; step < STEP; step++) {
            let a_at = step * WIDTH + block_row;
            let b_at = step * WIDTH + block_col;
            let b_in = vec4<u32>(b_tile[b_at], b_tile[b_at + 1u], b_tile[b_at + 2u], b_tile[b_at + 3u]);
//#repeat I 4
            {
                let a_in = a_tile[a_at + I];
                sums[I] += vec4<i32>(
                    dot4I8Packed(a_in, b_in.x),
                    dot4I8Packed(a_in, b_in.y),
                    dot4I8Packed(a_in, b_in.z),
                    dot4I8Packed(a_in, b_in.w),
                );
            }
//#end
        }
        workgroupBarrier();
    }
    let scale = a_scale[0] * b_scale[0];
//#repeat I 4
    {
        let row = tile_row + block_row + I;
        let col = tile_col + block_col;
        if (row < p.m) {
            let at = (batch * p.m + row) * p.n + col;
            let sum = vec4<f32>(sums[I]) * scale;
//#repeat J 4
            if (col + J < p.n) { out[at + J] = sum[J]; }
//#end
        }
    }
//#end
}
