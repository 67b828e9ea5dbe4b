// fused: several elementwise ops in one kernel, which passes values from op to op in registers.
// CODE: the operands, a function for each op, and compute4(i), which computes the elements i, .., i + 3.
// WORDS: the length of the array of parameters that CODE reads.
// BATCHED: the kernel computes results of several tensors. A table of ENTRY words for each tells where they are:
// its first workgroup, its number of elements, and the start of each operand, which CODE reads. CODE has
// compute_batched(i), which computes ELEMENTS elements.
// Rounds: those of lib/rounds, and in each those of the ops.
//#include "lib/grid"
//#include "lib/vec4"

// The type of integers.
alias A = i32;
const WORDS: u32 = 1u;

struct Params {
    // The number of elements; BATCHED: of tensors.
    len: u32,
    // Rounds of an invocation; BATCHED: 1.
    rounds: u32,
    pad0: u32,
    pad1: u32,
    words: array<vec4<u32>, WORDS>,
}

@group(0) @binding(auto) var<uniform> p: Params;

//#if BATCHED
const ENTRY: u32 = 2u;
// The elements of an invocation.
const ELEMENTS: u32 = 4u;
// The first word in the table of the tensor that this workgroup computes.
var<private> entry: u32;
//#endif

CODE
//#if BATCHED
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups);
    // The last tensor that does not begin after this workgroup.
    var low = 0u;
    var high = p.len;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (table[middle * ENTRY] <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    entry = low * ENTRY;
    let i = ((index - table[entry]) * 64u + local_index) * ELEMENTS;
    if (i < table[entry + 1u]) { compute_batched(i); }
}
//#else
//#include "lib/rounds"
//#endif
//#use "lib/integer"
//#use "lib/convert"
//#use "lib/half"
//#use "lib/math"
