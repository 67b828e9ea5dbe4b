// The linear index of this workgroup in the launch. The runtime folds more than 65535 workgroups into y and z,
// which may add a few workgroups at the end: every kernel checks its index. A long launch is dispatched in
// parts, each from `first_group` on. The expander adds `launch` to the parameters.
fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return p.launch.first_group + group.x + groups.x * (group.y + groups.y * group.z);
}
