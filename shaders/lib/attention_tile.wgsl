// Tiles of attention and of its gradients: products of TILE rows with TILE other rows, which are staged in
// workgroup memory, and sums of other rows with weights from such products.
// Invocations are numbered by team and lane. A team shares four rows; a lane computes products with the other rows
// lane, lane + LANES, and so on.
const TILE: u32 = 64u;
// Vec4 columns that are staged at a time.
const STEP: u32 = 4u;
// The invocations of a team. There are as many teams.
const LANES: u32 = 16u;
const WORKGROUP_SIZE: u32 = LANES * LANES;

// The staged columns of rows, [STEP, TILE], and of other rows, [STEP, TILE]; or the weights, [TILE other rows,
// LANES teams].
// What neighbouring invocations store is swizzled (by xor) over the banks.
var<workgroup> tile: array<vec4<f32>, TILE * LANES>;
const OTHER_ROWS_AT: u32 = STEP * TILE;
// Behind the staged columns, which other invocations may still read.
const FREE_AT: u32 = 2u * STEP * TILE;

// The row that an invocation stages.
fn staged_row(local_index: u32) -> u32 {
    return local_index / STEP;
}

// The column that an invocation stages.
fn staged_col(local_index: u32) -> u32 {
    return local_index % STEP;
}

// Stages columns of rows and of other rows: a vec4 of each from every invocation.
fn stage(local_index: u32, row: vec4<f32>, other: vec4<f32>) {
    let col = staged_col(local_index);
    let at = col * TILE + (staged_row(local_index) ^ (col * 2u));
    // What the tile holds may still be read.
    workgroupBarrier();
    tile[at] = row;
    tile[OTHER_ROWS_AT + at] = other;
    workgroupBarrier();
}

// Adds the products of the staged columns: of the four rows of a team with each other row of a lane.
fn add_products(products: ptr<function, array<vec4<f32>, 4>>, team: u32, lane: u32) {
//#repeat E 4
    {
        var other_rows: array<vec4<f32>, 4>;
//#repeat N 4
        other_rows[N] = tile[OTHER_ROWS_AT + E * TILE + N * LANES + (lane ^ (E * 2u))];
//#end
//#repeat I 4
        {
            let row = tile[E * TILE + ((team * 4u + I) ^ (E * 2u))];
//#repeat C 4
//#repeat N 4
            (*products)[N][I] += row[C] * other_rows[N][C];
//#end
//#end
        }
//#end
    }
//#end
}

// Stores the weights of the four rows of a team for each other row of a lane.
fn store_weights(weights: array<vec4<f32>, 4>, team: u32, lane: u32) {
//#repeat N 4
    tile[(N * LANES + lane) * LANES + (team ^ lane)] = weights[N];
//#end
}

// The weights of the four rows of a team for another row.
fn weights_of(other: u32, team: u32) -> vec4<f32> {
    return tile[other * LANES + (team ^ (other % LANES))];
}
