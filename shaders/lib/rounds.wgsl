// The entry point of elementwise kernels. The including shader must define compute4(i), which computes the
// elements i, .., i + 3, and bind `p` with the number of elements, `len`, and of an invocation's rounds.
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    // In each round, eight neighbouring invocations compute eight neighbouring vec4s. The next round
    // continues where they end, so that a vector unit of a CPU reads consecutive memory.
    let first_of_eight = group_index(group, groups) * 64u + local_index / 8u * 8u;
    let first = first_of_eight * p.rounds + local_index % 8u;
    let end = min(first + p.rounds * 8u, (p.len + 3u) / 4u);
    for (var vec4_index = first; vec4_index < end; vec4_index += 8u) {
        compute4(vec4_index * 4u);
    }
}
