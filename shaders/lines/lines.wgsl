// lines: reductions of the lines of tensors, and elementwise ops before and after them, in one kernel.
// Values that exist once per line stay in registers; values of elements are computed again in each round that needs
// them.
// CODE: the operands, a function for each op, the type Partial with combine and shuffle_xor, and reduce_line.
// WORDS: the length of the array of parameters that CODE reads.
// ELEMENTS: the elements of a line that an invocation reads at once.
// Each team computes one line.
// Rounds: those of CODE over a line, each of len / (TEAM_SIZE * ELEMENTS), and in each those of the ops.
//#include "lib/vec4"
//#include "lib/team"

// The type of integers.
alias A = i32;
const WORDS: u32 = 1u;
const ELEMENTS: u32 = 1u;

struct Params {
    // Lines.
    count: u32,
    // Elements of a line.
    len: u32,
    pad0: u32,
    pad1: u32,
    words: array<vec4<u32>, WORDS>,
}

@group(0) @binding(auto) var<uniform> p: Params;

CODE
//#use "lib/integer"
//#use "lib/convert"
//#use "lib/half"
//#use "lib/math"
