// What the connectionist temporal classification kernels share. A target of L labels has 2 L + 1 states: its labels, and a blank
// before, between and after them. Who includes it has a uniform p of it, and targets, input_lengths and target_lengths.
struct Ctc {
    // Steps, sequences, classes and labels, as the tensors have room for.
    steps: u32,
    batch: u32,
    classes: u32,
    labels: u32,
    blank: u32,
    // For the recursions: how many there are, and how many rows each keeps.
    sequences: u32,
    rows: u32,
    pad0: u32,
}

// The steps of a sequence.
fn steps_of(n: u32) -> u32 {
    return u32(clamp(input_lengths[n], 0, i32(p.steps)));
}

// The states of its target.
fn states_of(n: u32) -> u32 {
    return 2u * u32(clamp(target_lengths[n], 0, i32(p.labels))) + 1u;
}

// The class of a state. One that does not exist is clamped to those that do.
fn class_of(n: u32, state: u32) -> u32 {
    if ((state & 1u) == 0u) { return p.blank; }
    return u32(clamp(targets[n * p.labels + state / 2u], 0, i32(p.classes) - 1));
}
