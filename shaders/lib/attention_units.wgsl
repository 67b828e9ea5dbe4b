// Attention and its gradients with matrix units: sizes, and what is in workgroup memory.
// A workgroup of four subgroups has TILE own rows, each subgroup a quarter, and goes over other rows in blocks of
// BLOCK.
// Single elements of a matrix cannot be reached, so scores and weights go through workgroup memory.
// WIDTH: elements of a row in workgroup memory, at least those of a key and of a value.
// UNIT_8, UNIT_16: the value of UNIT, the rows and columns of a matrix.
// COLUMNS: the other rows that weights are multiplied by are stored by columns, so that a lane loads contiguous
// elements of a matrix.
// The including shader must include lib/attention_scores, and define WEIGHTED_AT: where these rows begin in `rows`.

//#if F16
alias Element = f16;
//#else
alias Element = f32;
//#endif
//#if UNIT_16
alias Left = coop_mat16x16<Element, A>;
alias Right = coop_mat16x16<Element, B>;
alias Sum = coop_mat16x16<f32, C>;
//#endif
//#if UNIT_8
alias Left = coop_mat8x8<Element, A>;
alias Right = coop_mat8x8<Element, B>;
alias Sum = coop_mat8x8<f32, C>;
//#endif

const WIDTH: u32 = 64u;
const UNIT: u32 = 16u;
const SUBGROUP_SIZE: u32 = 32u;
const WORKGROUP_SIZE: u32 = 4u * SUBGROUP_SIZE;
// Rows of a subgroup.
const ROWS: u32 = 16u;
const TILE: u32 = 4u * ROWS;
// Other rows of a block.
const BLOCK: u32 = 2u * ROWS;
// Matrices along the rows of a subgroup, along the other rows of a block, and along a row of WIDTH elements.
const ROW_UNITS: u32 = 1u;
const BLOCK_UNITS: u32 = 2u;
const WIDTH_UNITS: u32 = 4u;
// Invocations that share a row, and rows of an invocation: one of them is 1.
const ROW_LANES: u32 = 2u;
const LANE_ROWS: u32 = 1u;
// Vec4s of an invocation in a row of BLOCK scores.
const LANE_VEC4S: u32 = 4u;
// Vec4s of the other rows of a block, and of those beside them, that an invocation loads, from neighbouring rows.
const LOADS: u32 = 4u;
// Parts of BLOCK columns of the result.
const PARTS: u32 = 2u;

// NVIDIA's driver does not align the matrices in workgroup memory to the 16 bytes that its instructions need: the bytes
// of every variable in it are a multiple of 16. A padded number is element 0.
alias Padded = array<u32, 4>;

// The workgroup's own rows; later the other rows of a block, and behind them the rows beside them: keys and values, or
// queries and gradients. Neighbouring rows are in different banks. With COLUMNS, the rows that weights are multiplied
// by are stored by columns: values or gradients in place of their rows, queries or keys once more behind all rows.
const STRIDE: u32 = WIDTH + 8u;
const BESIDE_AT: u32 = BLOCK * STRIDE;
//#if COLUMNS
// Vulkan asks for a multiple of 16 bytes.
const COLUMN_STRIDE: u32 = BLOCK + 8u;
var<workgroup> rows: array<Element, max(TILE * STRIDE, WEIGHTED_AT + WIDTH * COLUMN_STRIDE)>;
//#else
var<workgroup> rows: array<Element, TILE * STRIDE>;
//#endif
// Products of own and other rows, or BLOCK columns of the result.
const SCORE_STRIDE: u32 = BLOCK + 4u;
var<workgroup> scores: array<f32, TILE * SCORE_STRIDE>;
const WEIGHT_STRIDE: u32 = BLOCK + 8u;
var<workgroup> weights: array<Element, TILE * WEIGHT_STRIDE>;

// Stores a vec4 of a row.
fn store_row(row: u32, col: u32, loaded: Operand4) {
//#repeat I 4
    rows[row * STRIDE + col * 4u + I] = loaded[I];
//#end
}

//#if COLUMNS
// Stores a vec4 of a row that weights are multiplied by. Neighbouring lanes begin with different elements, which are in
// different banks.
fn store_weighted(row: u32, col: u32, loaded: Operand4) {
    let first = col / 2u % 4u;
    let by_one = select(loaded, loaded.yzwx, first % 2u == 1u);
    let rotated = select(by_one, by_one.zwxy, first >= 2u);
//#repeat I 4
    rows[WEIGHTED_AT + (col * 4u + (first + I) % 4u) * COLUMN_STRIDE + row] = rotated[I];
//#end
}
//#endif

// Four columns of scores or of the result.
fn scores_at(row: u32, col: u32) -> vec4<f32> {
    let at = row * SCORE_STRIDE + col;
    return vec4<f32>(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]);
}

fn store_scores(row: u32, col: u32, stored: vec4<f32>) {
//#repeat I 4
    scores[row * SCORE_STRIDE + col + I] = stored[I];
//#end
}

// Stores four weights as they are multiplied, and returns them.
fn store_weights(row: u32, key: u32, stored: vec4<f32>) -> vec4<f32> {
    let rounded = Operand4(stored);
//#repeat I 4
    weights[row * WEIGHT_STRIDE + key + I] = rounded[I];
//#end
    return vec4<f32>(rounded);
}

fn weights_at(row: u32, key: u32) -> vec4<f32> {
    let at = row * WEIGHT_STRIDE + key;
    return vec4<f32>(Operand4(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]));
}

//#if F16
// e^x, exact enough for 16 bits. x is a difference of scores: one multiply-add for both would not be exact.
fn exp_of_16_bits(x: vec4<f32>) -> vec4<f32> {
    return exp2(x * 1.442695);
}
//#endif

// Stores the products of a subgroup's own rows with the rows of a block that begin at `start`, as scores.
fn store_products(own: ptr<function, array<Left, ROW_UNITS * WIDTH_UNITS>>, start: u32, sub_row: u32) {
//#repeat N BLOCK_UNITS
    {
        var products: array<Sum, ROW_UNITS>;
//#repeat R ROW_UNITS
        products[R] = Sum();
//#end
//#repeat E WIDTH_UNITS
        {
            let others = coopLoad<Right>(&rows[start + N * UNIT * STRIDE + E * UNIT], STRIDE);
//#repeat R ROW_UNITS
            products[R] = coopMultiplyAdd((*own)[R * WIDTH_UNITS + E], others, products[R]);
//#end
        }
//#end
//#repeat R ROW_UNITS
        coopStoreT(products[R], &scores[(sub_row + R * UNIT) * SCORE_STRIDE + N * UNIT], SCORE_STRIDE);
//#end
    }
//#end
}

// Adds other rows of a block times the weights of a subgroup's own rows.
fn add_weighted(result: ptr<function, array<Sum, ROW_UNITS * WIDTH_UNITS>>, sub_row: u32) {
//#repeat N BLOCK_UNITS
    {
        var of_rows: array<Left, ROW_UNITS>;
//#repeat R ROW_UNITS
        of_rows[R] = coopLoadT<Left>(&weights[(sub_row + R * UNIT) * WEIGHT_STRIDE + N * UNIT], WEIGHT_STRIDE);
//#end
//#repeat E WIDTH_UNITS
        {
//#if COLUMNS
            let start = WEIGHTED_AT + E * UNIT * COLUMN_STRIDE + N * UNIT;
            let others = coopLoad<Right>(&rows[start], COLUMN_STRIDE);
//#else
            let start = WEIGHTED_AT + N * UNIT * STRIDE + E * UNIT;
            let others = coopLoadT<Right>(&rows[start], STRIDE);
//#endif
//#repeat R ROW_UNITS
            (*result)[R * WIDTH_UNITS + E] = coopMultiplyAdd(of_rows[R], others, (*result)[R * WIDTH_UNITS + E]);
//#end
        }
//#end
    }
//#end
}
