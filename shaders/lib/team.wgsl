// A workgroup of LANES invocations in teams of SPAN, each with a line of its own; the members of a team are APART from
// one another, 1 or TEAMS. The kernel's `alias Part` says what a member brings, its `joined` what two of them make. The
// tree is the same for every line, so results repeat bit for bit.
// SUBGROUP: a team is a subgroup of eight, and needs no barrier; the kernel says by `shuffled` what a member whose number
// differs in the bits of a mask has. Without TEAM each invocation is a team.
const LANES: u32 = 64u;
const SPAN: u32 = 1u;
const APART: u32 = 1u;
const TEAMS: u32 = LANES / SPAN;

fn team_of(lane: u32) -> u32 {
    return lane / (APART * SPAN) * APART + lane % APART;
}

fn member_of(lane: u32) -> u32 {
    return lane / APART % SPAN;
}

// is_spare: whether there is no line of this number for a team, which then may leave. A team that shares barriers may not: it
// takes the last line once more. over_team: what all members of the team bring, joined.
//#if TEAM
fn is_spare(index: u32, lines: u32) -> bool {
    return false;
}

//#if SUBGROUP
fn over_team(lane: u32, mine: Part) -> Part {
    let two = joined(mine, shuffled(mine, 1u));
    let four = joined(two, shuffled(two, 2u));
    return joined(four, shuffled(four, 4u));
}
//#else
var<workgroup> parts: array<Part, LANES>;

fn over_team(lane: u32, mine: Part) -> Part {
    workgroupBarrier(); // those who still read the last result
    parts[lane] = mine;
    for (var half = SPAN / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member_of(lane) < half) {
            parts[lane] = joined(parts[lane], parts[lane + half * APART]);
        }
    }
    workgroupBarrier();
    return parts[lane - member_of(lane) * APART];
}
//#endif
//#else
fn is_spare(index: u32, lines: u32) -> bool {
    return index >= lines;
}

fn over_team(lane: u32, mine: Part) -> Part {
    return mine;
}
//#endif
