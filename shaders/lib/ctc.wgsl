// What the kernels of connectionist temporal classification share: the parameters and the states. A target of
// L labels has 2 L + 1 states: its labels, and a blank before, between and after them. The including shader
// binds `targets` [batch, labels], `input_lengths` [batch] and `target_lengths` [batch].
struct Params {
    // The recursions of ctc, or the invocations of ctc_backward.
    count: u32,
    // Sizes of log_probs [steps, batch, classes] and of targets.
    steps: u32,
    batch: u32,
    classes: u32,
    labels: u32,
    blank: u32,
    // Rows that each recursion keeps.
    rows: u32,
    pad0: u32,
}

// The steps of a sequence.
fn steps_of(n: u32) -> u32 {
    return u32(clamp(input_lengths[n], 0, i32(p.steps)));
}

// The states of the target of a sequence.
fn states_of(n: u32) -> u32 {
    return 2u * u32(clamp(target_lengths[n], 0, i32(p.labels))) + 1u;
}

// The class of a state. Labels that are no class are clamped.
fn class_of(n: u32, state: u32) -> u32 {
    if ((state & 1u) == 0u) { return p.blank; }
    return u32(clamp(targets[n * p.labels + state / 2u], 0, i32(p.classes) - 1));
}
