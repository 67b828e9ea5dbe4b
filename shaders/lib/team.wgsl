// A workgroup of WORKGROUP_SIZE invocations in teams of TEAM_SIZE, each reducing a line of its own. The
// members of a team are TEAM_STRIDE apart in local index: 1, or TEAMS, so that neighbouring invocations
// are in different teams. The including shader defines `alias Partial`, what a member contributes, and
// `combine(Partial, Partial)`. The tree of combinations is the same for every line, so results repeat
// bit for bit.
// SUBGROUP: a team is a subgroup of eight and needs no barrier; the including shader defines
// `shuffle_xor(Partial, mask)`. Without TEAM, each invocation is a team.
const WORKGROUP_SIZE: u32 = 64u;
const TEAM_SIZE: u32 = 1u;
const TEAM_STRIDE: u32 = 1u;
const TEAMS: u32 = WORKGROUP_SIZE / TEAM_SIZE;

// Index of the team in its workgroup.
fn team_index(local_index: u32) -> u32 {
    return local_index / (TEAM_STRIDE * TEAM_SIZE) * TEAM_STRIDE + local_index % TEAM_STRIDE;
}

// Index of the invocation in its team.
fn member_index(local_index: u32) -> u32 {
    return local_index / TEAM_STRIDE % TEAM_SIZE;
}

// may_exit: whether a team without a line may return early. Teams that share barriers may not: they
// repeat the last line instead.
// team_combine: the contributions of all members, combined.
//#if TEAM
fn may_exit(line: u32, lines: u32) -> bool {
    return false;
}

//#if SUBGROUP
fn team_combine(local_index: u32, mine: Partial) -> Partial {
    let two = combine(mine, shuffle_xor(mine, 1u));
    let four = combine(two, shuffle_xor(two, 2u));
    return combine(four, shuffle_xor(four, 4u));
}
//#else
var<workgroup> partials: array<Partial, WORKGROUP_SIZE>;

fn team_combine(local_index: u32, mine: Partial) -> Partial {
    // The previous result may still be read.
    workgroupBarrier();
    partials[local_index] = mine;
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
//#else
fn may_exit(line: u32, lines: u32) -> bool {
    return line >= lines;
}

fn team_combine(local_index: u32, mine: Partial) -> Partial {
    return mine;
}
//#endif
