// The entry point of kernels whose invocations are independent. The including shader must bind `p` with a
// field `count`, and define `invocation(i: u32)`, which is called once for each i below p.count.
//#include "lib/grid"

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = group_index(group, groups) * 64u + local_index;
    if (i < p.count) {
        invocation(i);
    }
}
