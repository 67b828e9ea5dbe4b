//! The WGSL of kernels that reduce lines: what `shaders/lines/lines.wgsl` leaves open.
//!
//! For `y = e / sum_dim(e, 1)` with `e = exp(x)`, and x in memory:
//!
//! ```wgsl
//! fn reduce_line(line: u32, local_index: u32) {
//!     let i = line;
//!     let base = line * p.len;
//!     let first = member_index(local_index) * ELEMENTS;
//!     var total1 = 0.0;
//!     for (var k = first; k < p.len; k += TEAM_SIZE * ELEMENTS) {
//!         let i = base + k;
//!         let x0 = bitcast<vec4<f32>>(to_words(lines_in0[i >> 2u]));
//!         let y0 = vec4<f32>(lines_step0(x0.x, i), lines_step0(x0.y, i + 1u), ..);
//!         total1 = total1 + ((y0.x + y0.y) + (y0.z + y0.w));
//!     }
//!     let round0 = team_combine(local_index, Partial(total1));
//!     let y1 = round0.v0;
//!     for (..) {
//!         let i = base + k;
//!         let x0 = ..;
//!         let y0 = ..;
//!         let y2 = vec4<f32>(lines_step2(y0.x, y1, i), ..);
//!         lines_out0[i >> 2u] = from_words(bitcast<vec4<u32>>(y2));
//!     }
//! }
//! ```
//!
//! Each round reads the line again, from a cache but for the first, and computes what it needs.

use crate::kernels::fusion::graph::ArgSource;
use crate::kernels::fusion::program::{Program, StepKind};
use crate::kernels::fusion::text::{Text, Writer};
use crate::tensor::{DType, ReduceOp};

impl ReduceOp {
    /// Returns the WGSL expression of the partial result of no elements.
    fn identity(self) -> &'static str {
        match self {
            Self::Sum | Self::Mean => "0.0",
            Self::Max => "-inf()",
            Self::Min => "inf()",
        }
    }

    /// Returns the WGSL expression that combines two partial results.
    fn combined(self, a: &str, b: &str) -> String {
        match self {
            Self::Sum | Self::Mean => format!("({a} + {b})"),
            Self::Max => format!("nan_max({a}, {b})"),
            Self::Min => format!("nan_min({a}, {b})"),
        }
    }
}

/// A round over the elements of a line.
struct Round {
    /// The reductions that end with it.
    reductions: Vec<(usize, ReduceOp)>,
    /// Which steps and leaves it computes and reads of each element.
    steps: Vec<bool>,
    leaves: Vec<bool>,
}

impl Program {
    /// Returns for each step the number of rounds that must end before it can be computed.
    fn levels(&self) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::new();
        for step in &self.steps {
            let level = |&(source, _): &(ArgSource, DType)| match source {
                ArgSource::Node(node) => levels[usize::from(node)],
                ArgSource::Leaf(_) => 0,
            };
            let level = step.args.iter().map(level).max().unwrap_or(0);
            levels.push(level + usize::from(matches!(step.kind, StepKind::Reduction(_))));
        }
        levels
    }

    /// Returns the number of rounds over the elements of a line.
    pub fn rounds_over_line(&self) -> usize {
        let writes = |step: u8| self.steps[usize::from(step)].kind == StepKind::Element;
        let writes_elements = self.outputs.iter().any(|output| writes(output.step));
        self.levels().into_iter().max().unwrap_or(0) + usize::from(writes_elements)
    }

    /// Returns the rounds over the elements of a line. The last one stores the results of all elements.
    fn rounds_on_lines(&self, levels: &[usize]) -> Vec<Round> {
        let steps = || self.steps.iter().enumerate();
        (0..self.rounds_over_line())
            .map(|round| {
                let ends = |(index, kind): (usize, StepKind)| match kind {
                    StepKind::Reduction(op) if levels[index] == round + 1 => Some((index, op)),
                    _ => None,
                };
                let reductions: Vec<(usize, ReduceOp)> =
                    steps().filter_map(|(index, step)| ends((index, step.kind))).collect();
                let mut needed = Needed::new(self);
                for &(index, _) in &reductions {
                    self.steps[index].args.iter().for_each(|&(source, _)| needed.add(source));
                }
                if reductions.is_empty() {
                    self.outputs.iter().for_each(|output| needed.add(ArgSource::Node(output.step)));
                }
                Round { reductions, steps: needed.steps, leaves: needed.leaves }
            })
            .collect()
    }

    /// Returns the text of the kernel, which reads `lanes` elements of a line at once, and all of them in several
    /// rounds. The function of each step is named after one of `ops` in a comment. With subgroups, members of a team
    /// exchange values by them.
    pub fn text_on_lines(&self, ops: &[&str], lanes: usize, has_subgroups: bool) -> Text {
        let mut writer = Writer::new(self, lanes, "lines_".to_owned(), 0);
        writer.inputs();
        writer.outputs();
        writer.steps(ops);
        let words = (writer.leaf_words(), writer.locate());
        let levels = self.levels();
        let rounds = self.rounds_on_lines(&levels);
        writer.partials(&rounds, has_subgroups);
        writer.reduce_line(&rounds, &levels, &words);
        Text { code: writer.out, entry: 0, integer: self.integer() }
    }
}

/// What is computed and read of each element.
struct Needed<'a> {
    program: &'a Program,
    steps: Vec<bool>,
    leaves: Vec<bool>,
}

impl<'a> Needed<'a> {
    fn new(program: &'a Program) -> Self {
        let (steps, leaves) = (program.steps.len(), program.leaves.len());
        Self { program, steps: vec![false; steps], leaves: vec![false; leaves] }
    }

    /// Adds what a value needs, unless there is one value for each line.
    fn add(&mut self, source: ArgSource) {
        match source {
            ArgSource::Leaf(leaf) => {
                let leaf = usize::from(leaf);
                self.leaves[leaf] |= !self.program.leaves[leaf].access.is_per_line();
            }
            ArgSource::Node(step) => {
                let (index, program) = (usize::from(step), self.program);
                if program.steps[index].kind != StepKind::Element || self.steps[index] {
                    return;
                }
                self.steps[index] = true;
                program.steps[index].args.iter().for_each(|&(source, _)| self.add(source));
            }
        }
    }
}

/// The words of leaves, but for strides, and of the innermost strides.
type LeafWords = (Vec<Vec<String>>, Vec<String>);

impl Writer<'_> {
    /// Writes what the members of a team combine.
    fn partials(&mut self, rounds: &[Round], has_subgroups: bool) {
        let slots = rounds.iter().map(|round| round.reductions.len()).max().unwrap_or(0).max(1);
        let fields =
            |field: &dyn Fn(usize) -> String| (0..slots).map(field).collect::<Vec<_>>().join(", ");
        let declared = fields(&|slot| format!("v{slot}: f32"));
        self.line(format_args!("struct Partial {{ {declared} }}"));
        self.line(format_args!("var<private> round_index: u32;"));
        self.line(format_args!("fn combine(a: Partial, b: Partial) -> Partial {{"));
        let of_round = |round: &Round| {
            fields(&|slot| match round.reductions.get(slot) {
                Some((_, op)) => op.combined(&format!("a.v{slot}"), &format!("b.v{slot}")),
                None => format!("(a.v{slot} + b.v{slot})"),
            })
        };
        let mut combined: Vec<String> = rounds.iter().map(of_round).collect();
        let last = combined.pop().unwrap_or_else(|| fields(&|slot| format!("a.v{slot}")));
        for (index, combined) in combined.iter().enumerate().filter(|(_, other)| **other != last) {
            self.line(format_args!(
                "    if (round_index == {index}u) {{ return Partial({combined}); }}"
            ));
        }
        self.line(format_args!("    return Partial({last});"));
        self.line(format_args!("}}"));
        if !has_subgroups {
            return;
        }
        self.line(format_args!("fn shuffle_xor(partial: Partial, mask: u32) -> Partial {{"));
        let shuffled = fields(&|slot| format!("subgroupShuffleXor(partial.v{slot}, mask)"));
        self.line(format_args!("    return Partial({shuffled});"));
        self.line(format_args!("}}"));
    }

    /// Writes the function that reduces a line.
    fn reduce_line(&mut self, rounds: &[Round], levels: &[usize], words: &LeafWords) {
        let (program, lanes) = (self.program, self.lanes);
        self.line(format_args!("fn reduce_line(line: u32, local_index: u32) {{"));
        // The index of what there is for each line.
        self.line(format_args!("    let i = line;"));
        self.line(format_args!("    let base = line * p.len;"));
        self.line(format_args!("    let first = member_index(local_index) * ELEMENTS;"));
        let of_line = |index: usize, level: usize| {
            program.steps[index].kind == StepKind::Line && levels[index] == level
        };
        self.lanes = 1;
        self.load_leaves(&words.0, &[], |leaf| program.leaves[leaf].access.is_per_line());
        self.call_steps(|index| of_line(index, 0));
        for (index, round) in rounds.iter().enumerate() {
            self.lanes = lanes;
            self.round(round, words);
            self.lanes = 1;
            if !round.reductions.is_empty() {
                self.combine_round(index, rounds);
                self.call_steps(|step| of_line(step, index + 1));
            }
        }
        self.line(format_args!("    if (member_index(local_index) == 0u) {{"));
        self.store_outputs(|step| program.steps[step].kind != StepKind::Element);
        self.line(format_args!("    }}"));
        self.line(format_args!("}}"));
    }

    /// Writes the loop of a round.
    fn round(&mut self, round: &Round, (leaf_words, stride_words): &LeafWords) {
        let program = self.program;
        for (index, op) in &round.reductions {
            self.line(format_args!("    var total{index} = {};", op.identity()));
        }
        self.line(format_args!("    for (var k = first; k < p.len; k += TEAM_SIZE * ELEMENTS) {{"));
        self.line(format_args!("    let i = base + k;"));
        let walks = |(leaf, needed): (usize, &bool)| *needed && program.leaves[leaf].access.walks();
        if round.leaves.iter().enumerate().any(walks) {
            self.locate_elements();
        }
        self.load_leaves(leaf_words, stride_words, |leaf| round.leaves[leaf]);
        self.call_steps(|step| round.steps[step]);
        for &(index, op) in &round.reductions {
            let (source, dtype) = program.steps[index].args[0];
            let part = |component: &str| self.argument(source, dtype, component);
            let of_lanes = match self.lanes {
                1 => part(""),
                _ => {
                    let [x, y, z, w] = [".x", ".y", ".z", ".w"].map(part);
                    op.combined(&op.combined(&x, &y), &op.combined(&z, &w))
                }
            };
            let total = op.combined(&format!("total{index}"), &of_lanes);
            self.line(format_args!("    total{index} = {total};"));
        }
        if round.reductions.is_empty() {
            self.store_outputs(|step| program.steps[step].kind == StepKind::Element);
        }
        self.line(format_args!("    }}"));
    }

    /// Combines what the members of a team have after a round.
    fn combine_round(&mut self, index: usize, rounds: &[Round]) {
        let slots = rounds.iter().map(|round| round.reductions.len()).max().unwrap_or(0);
        let reductions = &rounds[index].reductions;
        let totals = (0..slots).map(|slot| match reductions.get(slot) {
            Some((step, _)) => format!("total{step}"),
            None => "0.0".to_owned(),
        });
        let totals: Vec<String> = totals.collect();
        self.line(format_args!("    round_index = {index}u;"));
        self.line(format_args!(
            "    let round{index} = team_combine(local_index, Partial({}));",
            totals.join(", ")
        ));
        for (slot, (step, op)) in reductions.iter().enumerate() {
            let value = format!("round{index}.v{slot}");
            match op {
                ReduceOp::Mean => {
                    self.line(format_args!("    let y{step} = div({value}, f32(p.len));"))
                }
                _ => self.line(format_args!("    let y{step} = {value};")),
            }
        }
    }
}
