// The matrix product for GPUs with matrix units, which multiply matrices of UNIT x UNIT elements that a
// subgroup holds in its registers. A workgroup of four subgroups computes a tile of TILE_ROWS x TILE_COLS
// through workgroup memory, each subgroup a quarter: ROW_FRAGMENTS x COL_FRAGMENTS matrices.
// lib/gemm lists what the including shader must define, and lib/gemm_tiles the flags.
// UNIT_8, UNIT_16: the value of UNIT.
// ROW_BIAS: bias_at(row) is the bias of a row, instead of a column.
// A_LINES, B_LINES: the tile of an operand is [step][line], as it is loaded. Otherwise it is [line][step].
//#if F16
alias Loaded4 = vec4<f16>;
//#else
alias Loaded4 = vec4<f32>;
//#endif

//#if VEC4
fn to_loaded(raw: Operand4) -> Loaded4 {
//#if F16
    return raw;
//#else
    return to_floats(raw);
//#endif
}
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
//#include "lib/gemm_tiles"

const UNIT: u32 = 16u;
const SUBGROUP_SIZE: u32 = 32u;
const WORKGROUP_SIZE: u32 = 4u * SUBGROUP_SIZE;
// Matrices along each side of what a subgroup computes.
const ROW_FRAGMENTS: u32 = 2u;
const COL_FRAGMENTS: u32 = 2u;
// The tiles of both operands. Neighbouring lines, or steps, are in different banks.
//#if A_LINES
const A_STRIDE: u32 = TILE_ROWS + 8u;
var<workgroup> a_tile: array<Element, STEP * A_STRIDE>;
//#else
const A_STRIDE: u32 = STEP + 8u;
var<workgroup> a_tile: array<Element, TILE_ROWS * A_STRIDE>;
//#endif
//#if B_LINES
const B_STRIDE: u32 = TILE_COLS + 8u;
var<workgroup> b_tile: array<Element, STEP * B_STRIDE>;
//#else
const B_STRIDE: u32 = STEP + 8u;
var<workgroup> b_tile: array<Element, TILE_COLS * B_STRIDE>;
//#endif
// One matrix of sums of each subgroup. Single elements of those in registers cannot be reached.
var<workgroup> sum_tile: array<f32, 4u * UNIT * UNIT>;

fn store_a(place: vec2<u32>, loaded: Loaded4) {
//#repeat I 4
//#if A_LINES
    a_tile[place.y * A_STRIDE + place.x + I] = loaded[I];
//#else
//#if A_TRANSPOSED
    a_tile[(place.x + I) * A_STRIDE + place.y] = loaded[I];
//#else
    a_tile[place.x * A_STRIDE + place.y + I] = loaded[I];
//#endif
//#endif
//#end
}

fn store_b(place: vec2<u32>, loaded: Loaded4) {
//#repeat I 4
//#if B_LINES
    b_tile[place.y * B_STRIDE + place.x + I] = loaded[I];
//#else
//#if B_TRANSPOSED
    b_tile[place.x * B_STRIDE + place.y + I] = loaded[I];
//#else
    b_tile[(place.x + I) * B_STRIDE + place.y] = loaded[I];
//#endif
//#endif
//#end
}

// The sums of a subgroup.
alias Sums = array<Sum, ROW_FRAGMENTS * COL_FRAGMENTS>;

// Adds the products of UNIT steps of the tiles, from step `k` on.
fn multiply(k: u32, sub_row: u32, sub_col: u32, sums: ptr<function, Sums>) {
    var a_in: array<Left, ROW_FRAGMENTS>;
//#repeat H ROW_FRAGMENTS
    {
        let row = sub_row + H * UNIT;
//#if A_LINES
        a_in[H] = coopLoad<Left>(&a_tile[k * A_STRIDE + row], A_STRIDE);
//#else
        a_in[H] = coopLoadT<Left>(&a_tile[row * A_STRIDE + k], A_STRIDE);
//#endif
    }
//#end
//#repeat J COL_FRAGMENTS
    {
        let col = sub_col + J * UNIT;
//#if B_LINES
        let b_in = coopLoadT<Right>(&b_tile[k * B_STRIDE + col], B_STRIDE);
//#else
        let b_in = coopLoad<Right>(&b_tile[col * B_STRIDE + k], B_STRIDE);
//#endif
//#repeat H ROW_FRAGMENTS
        (*sums)[H * COL_FRAGMENTS + J] = coopMultiplyAdd(a_in[H], b_in, (*sums)[H * COL_FRAGMENTS + J]);
//#end
    }
//#end
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) subgroup_size: u32,
) {
    let g = p.gemm;
    let index = group_index(group, groups);
    // Multiplication by units must be in uniform control flow, as naga understands it: workgroups without a tile
    // compute the last one again.
    let tile = banded_tile_of(min(index, g.tiles - 1u));
    begin(tile.batch);
    let k_steps = k_range(tile);
    let k_start = k_steps.x;
    let k_end = k_steps.y;
    // Splits may have fewer steps, which zeros replace.
    let rounds = (steps_per_split(g.k) + STEP - 1u) / STEP;
    // The quarter that this subgroup computes.
    let quarter = subgroup % 4u;
    let sub_row = quarter / 2u * (TILE_ROWS / 2u);
    let sub_col = quarter % 2u * (TILE_COLS / 2u);

    var sums: Sums;
    var loads = first_loads(tile, k_start, local_index);
    let tile_steps = position(STEP);
    for (var round = 0u; round < rounds; round++) {
        store_loads(&loads, local_index, k_start + round * STEP, k_end);
        workgroupBarrier();
        // The next loads are in flight while these steps are multiplied. Caches deliver them faster in two parts.
        next_a(&loads, tile_steps);
        multiply(0u, sub_row, sub_col, &sums);
        next_b(&loads, tile_steps);
        for (var k = UNIT; k < STEP; k += UNIT) {
            multiply(k, sub_row, sub_col, &sums);
        }
        workgroupBarrier();
    }
//#if !ROW_BIAS
    let last = g.n - 1u;
//#endif
    let sum_start = quarter * (UNIT * UNIT);
    let is_tile = index < g.tiles;
    // If subgroups have another size, the sums are wrong, and NaN is stored instead: the test of the units finds it.
    let is_size = subgroup_size == SUBGROUP_SIZE;
    let row_count = select(0u, g.m, is_tile && is_size);
//#repeat J COL_FRAGMENTS
    {
        // A lane stores the same four columns of every row.
        let lane_col = lane % (UNIT / 4u) * 4u;
        let col = tile.col + sub_col + J * UNIT + lane_col;
        let cols = out_cols(tile.split, col);
//#if !ROW_BIAS
        let bias4 = vec4<f32>(
            bias_at(min(col, last)),
            bias_at(min(col + 1u, last)),
            bias_at(min(col + 2u, last)),
            bias_at(min(col + 3u, last)),
        );
//#endif
//#repeat H ROW_FRAGMENTS
        coopStoreT(sums[H * COL_FRAGMENTS + J], &sum_tile[sum_start], UNIT);
        workgroupBarrier();
        for (var i = lane / (UNIT / 4u); i < UNIT; i += SUBGROUP_SIZE / (UNIT / 4u)) {
            let row = tile.row + sub_row + H * UNIT + i;
            if (row < row_count) {
//#if ROW_BIAS
                let bias4 = vec4<f32>(bias_at(row));
//#endif
                let start = sum_start + i * UNIT + lane_col;
                let sum = vec4<f32>(
                    sum_tile[start],
                    sum_tile[start + 1u],
                    sum_tile[start + 2u],
                    sum_tile[start + 3u],
                );
                store4(out_row_offset(tile.batch, row), cols, sum + bias4);
            }
        }
        workgroupBarrier();
//#end
    }
//#end
    if (is_tile && !is_size) {
        for (var i = local_index; i < TILE_ROWS * TILE_COLS / 4u; i += WORKGROUP_SIZE) {
            let row = tile.row + i / (TILE_COLS / 4u);
            if (row < g.m) {
                let col = tile.col + i % (TILE_COLS / 4u) * 4u;
                store4(out_row_offset(tile.batch, row), out_cols(tile.split, col), vec4<f32>(nan()));
            }
        }
    }
}
//#use "lib/math"
