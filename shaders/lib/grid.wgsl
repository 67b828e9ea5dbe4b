// Unfolds the grid: the index of this workgroup among all of a dispatch. A count of workgroups past
// 65535 is folded into y and z, so there may be a few groups too many: every kernel checks its index.
fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}
