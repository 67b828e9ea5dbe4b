// The linear index of this workgroup in the dispatch. The runtime folds more than 65535 workgroups into
// y and z, which may add a few workgroups at the end: every kernel checks its index.
fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}
