// The parameters and states of connectionist temporal classification.
// A target of L labels has 2 L + 1 states: its labels, and a blank before, between and after them.
// The including shader must bind `p: Params`, `targets` [batch, labels], `input_lengths` [batch] and
// `target_lengths` [batch].
struct Params {
    // ctc: recursions, each by a workgroup. ctc_backward: invocations.
    count: u32,
    // Sizes of log_probs [steps, batch, classes] and of targets.
    steps: u32,
    batch: u32,
    classes: u32,
    labels: u32,
    // The class of blanks.
    blank: u32,
    // Rows per recursion in the buffer `rows`.
    rows: u32,
    pad0: u32,
}

// The number of steps of sequence n.
fn steps_of(n: u32) -> u32 {
    return u32(clamp(input_lengths[n], 0, i32(p.steps)));
}

// The number of states of the target of sequence n.
fn states_of(n: u32) -> u32 {
    return 2u * u32(clamp(target_lengths[n], 0, i32(p.labels))) + 1u;
}

// The class of a state. A label outside the classes is clamped to them; `ctc` reports it.
fn class_of(n: u32, state: u32) -> u32 {
    if ((state & 1u) == 0u) { return p.blank; }
    return u32(clamp(targets[n * p.labels + state / 2u], 0, i32(p.classes) - 1));
}
