// The entry point of kernels whose invocations reduce lines in teams: a workgroup of WORKGROUP_SIZE
// invocations consists of teams of TEAM_SIZE, and each team reduces one line.
// The local indices of a team's members are TEAM_STRIDE apart. With stride 1, members are neighbours. With
// stride TEAMS, neighbouring invocations are in different teams.
// The including shader must bind `p` with a field `count`, the number of lines, and define
//   reduce_line(line: u32, local_index: u32), which every member of a team calls;
//   the type `Partial`, the contribution of a member, and combine(Partial, Partial).
// The order of combination is the same for every line, so results repeat bit for bit.
// TEAM: a team may have several members. Without TEAM, each invocation is a team.
// SUBGROUP: a team is a subgroup of eight and needs no barrier. The including shader must define
// `shuffle_xor(Partial, mask)`.
// EXCHANGES: members exchange contributions by team_exchange. There is no team_combine, and the shader need not define
// combine.
// ROUNDS: each team reduces `p.rounds` lines. The lines of a workgroup are neighbours. After a barrier, every
// invocation calls finish_lines(group: u32, local_index: u32), also in workgroups without a line. A team without a
// line repeats the last one, and `is_repeated` is true.
//#include "lib/grid"

const WORKGROUP_SIZE: u32 = 64u;
const TEAM_SIZE: u32 = 1u;
const TEAM_STRIDE: u32 = 1u;
const TEAMS: u32 = WORKGROUP_SIZE / TEAM_SIZE;

// HOLD: each member holds its loads of a line in registers, HELD at most, so that the line is read once.
const HELD: u32 = 0u;

// Index of the team in its workgroup.
fn team_index(local_index: u32) -> u32 {
    return local_index / (TEAM_STRIDE * TEAM_SIZE) * TEAM_STRIDE + local_index % TEAM_STRIDE;
}

// Index of the invocation in its team.
fn member_index(local_index: u32) -> u32 {
    return local_index / TEAM_STRIDE % TEAM_SIZE;
}

// team_exchange returns the contribution of the member whose index differs in the bits of `mask`. Every invocation of
// the workgroup must call it, in uniform control flow.
//#if EXCHANGES TEAM SUBGROUP
fn team_exchange(local_index: u32, partial: Partial, mask: u32) -> Partial {
    return shuffle_xor(partial, mask);
}
//#endif
//#if EXCHANGES TEAM !SUBGROUP
// Two buffers in turns: what is written next is not what may still be read.
var<workgroup> exchanged: array<Partial, 2u * WORKGROUP_SIZE>;
var<private> exchange_start: u32;

fn team_exchange(local_index: u32, partial: Partial, mask: u32) -> Partial {
    exchange_start = WORKGROUP_SIZE - exchange_start;
    exchanged[exchange_start + local_index] = partial;
    workgroupBarrier();
    return exchanged[exchange_start + (local_index ^ (mask * TEAM_STRIDE))];
}
//#endif
//#if EXCHANGES !TEAM
fn team_exchange(local_index: u32, partial: Partial, mask: u32) -> Partial {
    return partial;
}
//#endif

// team_combine combines the contributions of all members of a team. Every member gets the result.
//#if TEAM SUBGROUP !EXCHANGES
fn team_combine(local_index: u32, partial: Partial) -> Partial {
    let of_two = combine(partial, shuffle_xor(partial, 1u));
    let of_four = combine(of_two, shuffle_xor(of_two, 2u));
    return combine(of_four, shuffle_xor(of_four, 4u));
}
//#endif
//#if TEAM !SUBGROUP !EXCHANGES
var<workgroup> partials: array<Partial, WORKGROUP_SIZE>;

fn team_combine(local_index: u32, partial: Partial) -> Partial {
    // The previous result may still be read.
    workgroupBarrier();
    partials[local_index] = partial;
    for (var half = TEAM_SIZE / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member_index(local_index) < half) {
            let other = partials[local_index + half * TEAM_STRIDE];
            partials[local_index] = combine(partials[local_index], other);
        }
    }
    workgroupBarrier();
    return partials[local_index - member_index(local_index) * TEAM_STRIDE];
}
//#endif
//#if !TEAM !EXCHANGES
fn team_combine(local_index: u32, partial: Partial) -> Partial {
    return partial;
}
//#endif

//#if ROUNDS
var<private> is_repeated: bool;
//#endif

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    // Neighbouring teams reduce neighbouring lines.
//#if ROUNDS
    let this_group = group_index(group, groups);
    for (var round = 0u; round < p.rounds; round++) {
        reduce_existing((this_group * p.rounds + round) * TEAMS + team_index(local_index), local_index);
    }
    workgroupBarrier();
    finish_lines(this_group, local_index);
//#else
    reduce_existing(group_index(group, groups) * TEAMS + team_index(local_index), local_index);
//#endif
}

fn reduce_existing(line: u32, local_index: u32) {
//#if TEAM
    // Members share barriers, so a team without a line repeats the last one.
//#if ROUNDS
    is_repeated = line >= p.count;
//#endif
    reduce_line(min(line, p.count - 1u), local_index);
//#else
    if (line < p.count) {
        reduce_line(line, local_index);
    }
//#endif
}
