//! The identity of a fused kernel, and its parameters.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::graph::{ArgSource, Graph, Leaf, LineShape, PendingNode};
use crate::kernels::ops::map::Map;
use crate::runtime::Expr;
use crate::tensor::{DType, Layout, ReduceOp, collapse};

/// What a fused kernel computes and how it accesses memory: all that its text depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub leaves: SmallVec<[LeafCode; 4]>,
    pub steps: SmallVec<[Step; 8]>,
    pub outputs: SmallVec<[ProgramOutput; 4]>,
    /// The number of axes that strided leaves have.
    pub rank: u8,
    /// Whether four neighbours never cross the end of the innermost axis.
    pub whole_vec4s: bool,
    /// The number of GPU buffers, if the kernel computes the results of several graphs; otherwise
    /// 0.
    pub pages: u8,
}

/// A tensor that the kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeafCode {
    pub dtype: DType,
    pub access: Access,
    /// The output that overwrites it, if any.
    pub overwritten_by: Option<u8>,
}

/// How four neighbouring elements are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// As a vec4, at the index of the first.
    Packed,
    /// As [`Packed`](Self::Packed), from an offset on.
    Offset,
    /// All elements are the same one.
    Single,
    /// Contiguous elements, each of them repeated: a power of two of neighbours, at least four, are
    /// the same one.
    Runs,
    /// As a vec4, at an offset that depends on the strides.
    Vec4,
    /// The four are the same one, at an offset that depends on the strides.
    Repeated,
    /// One by one.
    Strided,
    /// As a vec4, or four zeros: see [`Padding`](crate::tensor::Padding).
    PaddedVec4,
    /// One by one, each an element or zero.
    Padded,
    /// In a kernel of lines: one element for each line, from an offset on.
    PerLine,
    /// In a kernel of lines: one line for all of them, at an offset.
    OneLine,
}

impl Access {
    /// Returns how a tensor is read whose offsets do not depend on its strides.
    pub fn without_strides(layout: &Layout) -> Option<Self> {
        if layout.is_contiguous() && layout.offset.is_multiple_of(4) {
            return Some(if layout.offset == 0 { Self::Packed } else { Self::Offset });
        }
        if layout.is_one_element() {
            return Some(Self::Single);
        }
        run_bits(layout).map(|_| Self::Runs)
    }

    /// Returns how a tensor is read, in a kernel of lines if there are any. What depends on its strides is
    /// [`Strided`](Self::Strided).
    pub fn of(leaf: &Leaf, lines: Option<LineShape>) -> Self {
        if let Some(padding) = &leaf.padding {
            let in_vec4s = padding.words().iter().all(|word| word.is_multiple_of(4));
            return if in_vec4s { Self::PaddedVec4 } else { Self::Padded };
        }
        let access = match (lines, &leaf.layout) {
            (Some(lines), _) => Self::of_leaf_on_lines(leaf, lines),
            (None, Some(layout)) => Self::without_strides(layout),
            (None, None) => Some(Self::Packed),
        };
        access.unwrap_or(Self::Strided)
    }

    /// Returns how a kernel of lines reads a tensor whose offsets do not depend on its strides.
    fn of_leaf_on_lines(leaf: &Leaf, lines: LineShape) -> Option<Self> {
        let is_per_line = leaf.len == lines.count;
        let Some(layout) = &leaf.layout else {
            return Some(if is_per_line { Self::PerLine } else { Self::Packed });
        };
        if layout.is_one_element() {
            return Some(Self::Single);
        }
        if is_per_line && layout.is_contiguous() || layout.repeats() == Some(lines.len) {
            return Some(Self::PerLine);
        }
        let (sizes, strides) = collapse(&[layout]);
        let is_aligned = !lines.len.is_multiple_of(4) || layout.offset.is_multiple_of(4);
        if sizes[..] == [lines.count, lines.len] && strides[0][..] == [0, 1] && is_aligned {
            return Some(Self::OneLine);
        }
        Self::without_strides(layout)
    }

    /// Returns whether there is one value for each line.
    pub fn is_per_line(self) -> bool {
        matches!(self, Self::PerLine | Self::Single)
    }

    /// Returns whether the offset depends on the strides.
    pub fn walks(self) -> bool {
        matches!(self, Self::Vec4 | Self::Repeated | Self::Strided)
    }

    /// Returns whether four elements are read at once.
    pub fn in_vec4s(self) -> bool {
        matches!(self, Self::Packed | Self::Offset | Self::Vec4 | Self::PaddedVec4 | Self::OneLine)
    }

    /// Returns the number of words of the parameters, but for strides.
    pub fn words(self) -> usize {
        match self {
            Self::Packed | Self::Vec4 | Self::Repeated | Self::Strided => 0,
            Self::Offset | Self::Single | Self::Runs | Self::PerLine | Self::OneLine => 1,
            Self::PaddedVec4 | Self::Padded => 3,
        }
    }
}

/// The tensors that results may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrite {
    Nothing,
    /// Those with a buffer of their own: others share it with tensors that the kernel may read.
    OwnBuffers,
    /// All, in a kernel that may write all buffers.
    Any,
}

/// What a step is computed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StepKind {
    /// Each element.
    Element,
    /// In a kernel of lines: one value for each line.
    Line,
    /// In a kernel of lines: what all elements of a line are reduced to.
    Reduction(ReduceOp),
}

/// An expression of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub kind: StepKind,
    pub wgsl: Expr,
    pub dtype: DType,
    /// The arguments, with the types as which they are read.
    pub args: SmallVec<[(ArgSource, DType); 2]>,
    pub scalars: u8,
    pub scalar_type: DType,
}

/// A result that the kernel writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProgramOutput {
    /// The step that computes it.
    pub step: u8,
    /// The leaf that it overwrites, if any.
    pub overwrites: Option<u8>,
}

/// Marks the step that is the result of the kernel itself, in the program of an epilogue.
pub(crate) static RESULT: &str = "result";

impl Step {
    /// Returns the step of a result, in a kernel of lines if there are any, and adds the words of its scalars.
    fn of(node: &PendingNode, lines: Option<LineShape>, words: &mut Words) -> Self {
        let expression = node.expression();
        for &scalar in &expression.scalars {
            words.push(scalar as u32);
            if expression.scalar_type.is_64_bit() {
                words.push((scalar >> 32) as u32);
            }
        }
        let is_per_line = lines.is_some_and(|lines| expression.len == lines.count);
        let kind = match node.lazy.reduction() {
            Some(reduction) => StepKind::Reduction(reduction.op),
            None if is_per_line => StepKind::Line,
            None => StepKind::Element,
        };
        Self {
            kind,
            wgsl: Expr(expression.wgsl),
            dtype: expression.dtype,
            args: node.args.clone(),
            scalars: expression.scalars.len() as u8,
            scalar_type: expression.scalar_type,
        }
    }

    /// Returns whether the step is the result of another kernel.
    pub fn is_result(&self) -> bool {
        self.wgsl == Expr(RESULT)
    }
}

/// The words of a kernel's parameters, in the order in which the text reads them: the scalars of
/// each step; the offset, the bits of a run or the padding of leaves with one; the sizes of the inner
/// axes; the offset and the strides of each strided leaf.
pub(crate) type Words = SmallVec<[u32; 32]>;

/// The maximum number of words.
pub(crate) const MAX_WORDS: usize = 104;

/// Returns the length of the array of parameters for a number of words, in vec4s.
pub(crate) fn vec4s_of(words: usize) -> u32 {
    words.div_ceil(4).max(1) as u32
}

/// Returns the parameters of a kernel of a program: two numbers, and the words in `vec4s` vec4s.
pub(crate) fn params_of(head: [usize; 2], words: &Words, vec4s: u32) -> SmallVec<[u8; 128]> {
    let mut out: SmallVec<[u8; 128]> = SmallVec::new();
    let head = [head[0] as u32, head[1] as u32, 0, 0];
    out.extend_from_slice(bytemuck::cast_slice(&head));
    out.extend_from_slice(bytemuck::cast_slice(words));
    out.resize(params_len(vec4s), 0);
    out
}

/// Returns the size of the parameters of a kernel with `vec4s` vec4s of words, in bytes.
pub(crate) fn params_len(vec4s: u32) -> usize {
    16 * (1 + vec4s as usize)
}

/// The rounds of the loop of a power or a remainder, which goes from bit to bit, at most.
const ROUNDS_OF_BITS: u64 = 65;

impl Program {
    /// Returns the rounds of loops for each element, at most. Looks for them in the text.
    pub fn rounds(&self) -> u64 {
        let loops =
            |step: &Step| step.wgsl.0.matches("pow").count() + step.wgsl.0.matches("rem(").count();
        self.steps.iter().map(|step| loops(step) as u64 * ROUNDS_OF_BITS).sum()
    }

    /// Returns the program of a graph and its words. It writes the results `outputs`, in place of
    /// tensors that nothing else needs and that it may `overwrite`.
    pub fn new(
        graph: &Graph,
        outputs: impl Iterator<Item = usize>,
        overwrite: Overwrite,
    ) -> (Self, Words) {
        Self::of(graph, outputs, overwrite, None)
    }

    /// As [`new`](Self::new), of a graph that reduces lines.
    pub fn on_lines(
        graph: &Graph,
        outputs: impl Iterator<Item = usize>,
        overwrite: Overwrite,
        lines: LineShape,
    ) -> (Self, Words) {
        Self::of(graph, outputs, overwrite, Some(lines))
    }

    fn of(
        graph: &Graph,
        outputs: impl Iterator<Item = usize>,
        overwrite: Overwrite,
        lines: Option<LineShape>,
    ) -> (Self, Words) {
        let mut words = Words::new();
        let steps = graph.nodes.iter().map(|node| Step::of(node, lines, &mut words)).collect();
        let mut leaves: SmallVec<[LeafCode; 4]> = SmallVec::new();
        let mut walked: SmallVec<[&Layout; 4]> = SmallVec::new();
        for leaf in &graph.leaves {
            let access = Access::of(leaf, lines);
            match (access, &leaf.layout, &leaf.padding) {
                (Access::Runs, Some(layout), _) => words.extend(run_bits(layout)),
                (Access::Strided, Some(layout), _) => walked.push(layout),
                (_, _, Some(padding)) => {
                    words.extend(padding.words().map(|word| word as u32));
                }
                _ if access.words() == 1 => words.push(leaf.offset() as u32),
                _ => {}
            }
            leaves.push(LeafCode { dtype: leaf.dtype, access, overwritten_by: None });
        }
        let (sizes, strides) =
            if walked.is_empty() { Default::default() } else { collapse(&walked) };
        let whole_vec4s = sizes.last().is_none_or(|size| size.is_multiple_of(4));
        words.extend(sizes.iter().skip(1).map(|&size| size as u32));
        let codes = leaves.iter_mut().filter(|leaf| leaf.access.walks());
        for ((code, layout), strides) in codes.zip(&walked).zip(&strides) {
            code.access = strided_access(layout.offset, strides, whole_vec4s);
            words.push(layout.offset as u32);
            words.extend(strides.iter().map(|&stride| stride as u32));
        }
        let steps_to_write = outputs;
        let mut outputs = SmallVec::new();
        for step in steps_to_write {
            let dtype = graph.nodes[step].expression().dtype;
            let fits = |&index: &usize| {
                let leaf: &LeafCode = &leaves[index];
                overwrite != Overwrite::Nothing
                    && leaf.overwritten_by.is_none()
                    && leaf.access == Access::Packed
                    && (leaf.dtype == dtype || leaf.dtype.size() == 4 && dtype.size() == 4)
                    && graph.leaves[index].memory.bytes() == graph.nodes[step].lazy.bytes()
                    && graph.leaves[index].is_owned()
                    && (overwrite == Overwrite::Any || graph.leaves[index].memory.has_own_buffer())
            };
            let overwritten = (0..leaves.len()).find(fits);
            if let Some(leaf) = overwritten {
                leaves[leaf].overwritten_by = Some(outputs.len() as u8);
            }
            let overwrites = overwritten.map(|leaf| leaf as u8);
            outputs.push(ProgramOutput { step: step as u8, overwrites });
        }
        let rank = sizes.len() as u8;
        (Self { leaves, steps, outputs, rank, whole_vec4s, pages: 0 }, words)
    }

    /// Returns the program that computes `maps` one after the other, the first from leaves, each
    /// later one from the result before, with walks over two axes.
    pub fn sample(maps: &[&Map], leaves: &[(DType, Access)]) -> Self {
        let leaf =
            |&(dtype, access): &(DType, Access)| LeafCode { dtype, access, overwritten_by: None };
        let step = |(index, map): (usize, &&Map)| Step {
            kind: StepKind::Element,
            wgsl: Expr(map.expr),
            dtype: map.out_type,
            args: match index.checked_sub(1) {
                Some(last) => {
                    smallvec![(ArgSource::Node(last as u8), maps[last].out_type.compute_type())]
                }
                None => {
                    let types = leaves.iter().map(|(dtype, _)| dtype.compute_type());
                    (0..).map(ArgSource::Leaf).zip(types).collect()
                }
            },
            scalars: map.scalars.len() as u8,
            scalar_type: map.scalar_type,
        };
        let walks = leaves.iter().any(|(_, access)| access.walks());
        Self {
            leaves: leaves.iter().map(leaf).collect(),
            steps: maps.iter().enumerate().map(step).collect(),
            outputs: smallvec![ProgramOutput { step: maps.len() as u8 - 1, overwrites: None }],
            rank: if walks { 2 } else { 0 },
            whole_vec4s: true,
            pages: 0,
        }
    }

    /// Returns the program with the result in place of the first leaf.
    pub fn overwriting_first(mut self) -> Self {
        self.leaves[0].overwritten_by = Some(0);
        self.outputs[0].overwrites = Some(0);
        self
    }

    /// Returns the number of words of the parameters.
    pub fn words(&self) -> usize {
        let scalars = self.steps.iter().map(|step| {
            usize::from(step.scalars) * if step.scalar_type.is_64_bit() { 2 } else { 1 }
        });
        let rank = usize::from(self.rank);
        let leaves = self.leaves.iter().map(|leaf| {
            let strides = if leaf.access.walks() { 1 + rank } else { 0 };
            leaf.access.words() + strides
        });
        scalars.sum::<usize>() + leaves.sum::<usize>() + rank.saturating_sub(1)
    }

    /// Returns the program that computes the results of a graph together with those of others, and
    /// its words. `None` unless all tensors are contiguous, leaves have elements of 32 bits, and
    /// results of 32 or 16. The table of a batch contains the offsets of leaves.
    pub fn for_batch(graph: &Graph) -> Option<(Self, Words)> {
        // A kernel cannot reach all parts of a buffer that is larger than a binding.
        if graph.leaves.iter().any(|leaf| leaf.memory.is_part()) {
            return None;
        }
        let (mut program, words) = Self::new(graph, graph.outputs(), Overwrite::Any);
        let fits = |leaf: &LeafCode| {
            matches!(leaf.access, Access::Packed | Access::Offset) && leaf.dtype.size() == 4
        };
        let mut outputs = program.outputs.iter();
        if !program.leaves.iter().all(fits)
            || !outputs.all(|output| program.output_dtype(output).size() <= 4)
        {
            return None;
        }
        program.leaves.iter_mut().for_each(|leaf| leaf.access = Access::Packed);
        // The offsets follow the scalars.
        let words = words[..program.words()].into();
        Some((program, words))
    }

    /// Returns the type of an output.
    pub fn output_dtype(&self, output: &ProgramOutput) -> DType {
        self.steps[usize::from(output.step)].dtype
    }

    /// Returns how many elements an invocation of the kernel of a batch computes: as many as fill 16
    /// bytes of each output.
    pub fn batched_elements(&self) -> usize {
        let is_half = |output| self.output_dtype(output).is_half();
        if self.outputs.iter().any(is_half) { 8 } else { 4 }
    }

    /// Returns the number of leaves that are only read.
    pub fn reads(&self) -> usize {
        self.leaves.iter().filter(|leaf| leaf.overwritten_by.is_none()).count()
    }

    /// Returns the number of operands.
    pub fn bindings(&self) -> usize {
        let (read, written) = self.operands();
        read + written
    }

    /// Returns the numbers of operands that are only read, and that are written. A kernel for
    /// several graphs reads a table, and all tensors are in buffers that it may write.
    pub fn operands(&self) -> (usize, usize) {
        match self.pages {
            0 => (self.reads(), self.outputs.len()),
            pages => (1, pages.into()),
        }
    }

    /// Returns whether a later step uses the result of a step.
    pub fn uses(&self, step: usize) -> bool {
        let is_step = |&(source, _): &(ArgSource, DType)| source == ArgSource::Node(step as u8);
        self.steps.iter().any(|later| later.args.iter().any(is_step))
    }
}

/// Describes the program: `x0:F32 y0:F32=a * s(x0) y1:F32=exp_(a)(y0) out:y1`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LeafCode { dtype, access, .. }) in self.leaves.iter().enumerate() {
            match access {
                Access::Packed => write!(f, "x{index}:{dtype:?} ")?,
                _ => write!(f, "x{index}:{dtype:?}.{access:?} ")?,
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            let args: Vec<String> = step
                .args
                .iter()
                .map(|(source, dtype)| match source {
                    ArgSource::Node(node) => format!("y{node}:{dtype:?}"),
                    ArgSource::Leaf(leaf) => format!("x{leaf}:{dtype:?}"),
                })
                .collect();
            write!(f, "y{index}:{:?}=`{}`({}) ", step.dtype, step.wgsl.0, args.join(", "))?;
        }
        let outputs: Vec<String> = self
            .outputs
            .iter()
            .map(|output| match output.overwrites {
                Some(leaf) => format!("y{}>x{leaf}", output.step),
                None => format!("y{}", output.step),
            })
            .collect();
        write!(f, "out:{}", outputs.join(","))?;
        if self.pages > 0 {
            write!(f, " pages:{}", self.pages)?;
        }
        if self.rank > 0 {
            write!(f, " rank:{}{}", self.rank, if self.whole_vec4s { " whole" } else { "" })?;
        }
        Ok(())
    }
}

/// Returns the binary logarithm of the number of neighbours that are the same element; `None` unless
/// it is a power of two, at least four, and the elements are packed.
fn run_bits(layout: &Layout) -> Option<u32> {
    let len = layout.repeats().filter(|_| layout.offset == 0)?;
    (len >= 4 && len.is_power_of_two()).then(|| len.ilog2())
}

/// Returns how a tensor is read of which the merged axes have these strides.
fn strided_access(offset: usize, strides: &[isize], whole_vec4s: bool) -> Access {
    let Some((&inner, outer)) = strides.split_last() else { return Access::Strided };
    let aligned = offset.is_multiple_of(4) && outer.iter().all(|stride| stride % 4 == 0);
    match inner {
        1 if whole_vec4s && aligned => Access::Vec4,
        0 if whole_vec4s => Access::Repeated,
        _ => Access::Strided,
    }
}
