// The matrix product for GPUs with matrix units, which multiply matrices of UNIT x UNIT elements that a
// subgroup holds in its registers. A workgroup of four subgroups computes a tile of TILE x TILE through
// workgroup memory, each subgroup a quarter: FRAGMENTS x FRAGMENTS matrices.
// lib/gemm lists what the including shader must define, and lib/gemm_tiles the flags.
// UNIT_8, UNIT_16: the value of UNIT.
// ROW_BIAS: bias_at(row) is the bias of a row, instead of a column.
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

const TILE: u32 = 64u;
const UNIT: u32 = 16u;
const SUBGROUP_SIZE: u32 = 32u;
const WORKGROUP_SIZE: u32 = 4u * SUBGROUP_SIZE;
// Steps of k in workgroup memory.
const STEP: u32 = 32u;
// Matrices along each side of what a subgroup computes.
const FRAGMENTS: u32 = 2u;
// Loads of each operand by an invocation. If a load is of one step, NEIGHBOURS of them in a row are of neighbouring
// steps.
const LOADS: u32 = 4u;
const NEIGHBOURS: u32 = 4u;
// The tiles of both operands. Steps of k are contiguous, as units read them fastest. Neighbouring lines are in
// different banks.
const STRIDE: u32 = STEP + 8u;
var<workgroup> a_tile: array<Element, TILE * STRIDE>;
var<workgroup> b_tile: array<Element, TILE * STRIDE>;
// One matrix of sums of each subgroup. Single elements of those in registers cannot be reached.
var<workgroup> sum_tile: array<f32, 4u * UNIT * UNIT>;

// The line and the step of an invocation's load in a tile, of four steps.
fn along_k(local_index: u32, load: u32) -> vec2<u32> {
    let i = local_index + load * WORKGROUP_SIZE;
    return vec2<u32>(i / (STEP / 4u), i % (STEP / 4u) * 4u);
}

// The first line and the step of a load of one step of four lines.
fn across_k(local_index: u32, load: u32) -> vec2<u32> {
    let i = local_index + load / NEIGHBOURS * WORKGROUP_SIZE;
    return vec2<u32>(i % (TILE / 4u) * 4u, i / (TILE / 4u) * NEIGHBOURS + load % NEIGHBOURS);
}

//#if GATHERED
// The line and the first step of a load of four steps, by neighbouring invocations from neighbouring lines.
fn a_place(local_index: u32, load: u32) -> vec2<u32> {
    let i = local_index + load * WORKGROUP_SIZE;
    return vec2<u32>(i % TILE, i / TILE * 4u);
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
    return a_place(local_index, load);
}
//#else
fn a_place(local_index: u32, load: u32) -> vec2<u32> {
//#if A_TRANSPOSED
    return across_k(local_index, load);
//#else
    return along_k(local_index, load);
//#endif
}

fn b_place(local_index: u32, load: u32) -> vec2<u32> {
//#if B_TRANSPOSED
    return along_k(local_index, load);
//#else
    return across_k(local_index, load);
//#endif
}
//#endif

fn store_a(place: vec2<u32>, loaded: Loaded4) {
    let start = place.x * STRIDE + place.y;
//#repeat I 4
//#if A_TRANSPOSED
    a_tile[start + I * STRIDE] = loaded[I];
//#else
    a_tile[start + I] = loaded[I];
//#endif
//#end
}

fn store_b(place: vec2<u32>, loaded: Loaded4) {
    let start = place.x * STRIDE + place.y;
//#repeat I 4
//#if B_TRANSPOSED
    b_tile[start + I] = loaded[I];
//#else
    b_tile[start + I * STRIDE] = loaded[I];
//#endif
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
//#if GATHERED
    let most_steps = steps_per_split(g.k);
//#else
    let most_steps = min(g.outer_per_split * g.inner, g.k);
//#endif
    let rounds = (most_steps + STEP - 1u) / STEP;
    // The quarter that this subgroup computes.
    let quarter = subgroup % 4u;
    let sub_row = quarter / 2u * (TILE / 2u);
    let sub_col = quarter % 2u * (TILE / 2u);

    var sums: array<Sum, FRAGMENTS * FRAGMENTS>;
    var rows: array<Rows, LOADS>;
    var cols: array<Cols, LOADS>;
    var a_at: array<Position, LOADS>;
    var b_at: array<Position, LOADS>;
    var a_next: array<Loaded4, LOADS>;
    var b_next: array<Loaded4, LOADS>;
//#repeat L LOADS
    {
        let a_first = a_place(local_index, L);
        let b_first = b_place(local_index, L);
        rows[L] = a_rows(tile.row + a_first.x);
        cols[L] = b_cols(tile.col + b_first.x);
        a_at[L] = position(k_start + a_first.y);
        b_at[L] = position(k_start + b_first.y);
        a_next[L] = load_a(rows[L], a_at[L]);
        b_next[L] = load_b(cols[L], b_at[L]);
    }
//#end
    let tile_steps = position(STEP);
    for (var round = 0u; round < rounds; round++) {
        let k0 = k_start + round * STEP;
        if (k0 + STEP > k_end) {
//#repeat L LOADS
            a_next[L] = without_rest_a(a_next[L], k0 + a_place(local_index, L).y, k_end);
            b_next[L] = without_rest_b(b_next[L], k0 + b_place(local_index, L).y, k_end);
//#end
        }
//#repeat L LOADS
        store_a(a_place(local_index, L), a_next[L]);
//#end
//#repeat L LOADS
        store_b(b_place(local_index, L), b_next[L]);
//#end
        workgroupBarrier();
        // The next loads are in flight while these steps are multiplied.
//#repeat L LOADS
        a_at[L] = moved(a_at[L], tile_steps);
//#if GATHERED
        b_at[L] = a_at[L];
//#else
        b_at[L] = moved(b_at[L], tile_steps);
//#endif
        a_next[L] = load_a(rows[L], a_at[L]);
        b_next[L] = load_b(cols[L], b_at[L]);
//#end
        for (var k = 0u; k < STEP; k += UNIT) {
            var a_in: array<Left, FRAGMENTS>;
//#repeat H FRAGMENTS
            {
                let start = (sub_row + H * UNIT) * STRIDE + k;
                a_in[H] = coopLoadT<Left>(&a_tile[start], STRIDE);
            }
//#end
//#repeat J FRAGMENTS
            {
                let start = (sub_col + J * UNIT) * STRIDE + k;
                let b_in = coopLoad<Right>(&b_tile[start], STRIDE);
//#repeat H FRAGMENTS
                sums[H * FRAGMENTS + J] = coopMultiplyAdd(a_in[H], b_in, sums[H * FRAGMENTS + J]);
//#end
            }
//#end
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
//#repeat J FRAGMENTS
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
//#repeat H FRAGMENTS
        coopStoreT(sums[H * FRAGMENTS + J], &sum_tile[sum_start], UNIT);
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
        for (var i = local_index; i < TILE * TILE / 4u; i += WORKGROUP_SIZE) {
            let row = tile.row + i / (TILE / 4u);
            if (row < g.m) {
                let col = tile.col + i % (TILE / 4u) * 4u;
                store4(out_row_offset(tile.batch, row), out_cols(tile.split, col), vec4<f32>(nan()));
            }
        }
    }
}
//#use "lib/math"
