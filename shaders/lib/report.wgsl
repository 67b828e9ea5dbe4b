// Reports of indices outside their axis. The runtime reads them with the next readback, and names the op.
// The including shader must declare all other operands before.
@group(0) @binding(auto) var<storage, read_write> reports: array<atomic<u32>>;

// Reports an index outside its axis. `axis` counts the axes that the indices address.
fn report_index(axis: u32, index: i32) {
    atomicMax(&reports[axis], u32(index));
}
