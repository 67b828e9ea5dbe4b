//! The WGSL of fused kernels: what `shaders/fused/fused.wgsl` leaves open.
//!
//! For `y = exp(x * 2)`, with x in memory:
//!
//! ```wgsl
//! @group(0) @binding(auto) var<storage, read> in0: array<Words4>;
//! @group(0) @binding(auto) var<storage, read_write> out0: array<Words4>;
//!
//! // float_mul_scalar
//! fn step0(a: f32, i: u32) -> f32 {
//!     let s = bitcast<f32>(p.words[0].x);
//!     return f32(a * s);
//! }
//!
//! // float_exp
//! fn step1(a: f32, i: u32) -> f32 {
//!     return f32(exp_(a));
//! }
//!
//! fn compute4(i: u32) {
//!     let x0 = bitcast<vec4<f32>>(to_words(in0[i >> 2u]));
//!     let y0 = vec4<f32>(step0(x0.x, i), step0(x0.y, i + 1u), ..);
//!     let y1 = vec4<f32>(step1(y0.x, i), step1(y0.y, i + 1u), ..);
//!     out0[i >> 2u] = from_words(bitcast<vec4<u32>>(y1));
//! }
//! ```

use std::fmt::Write;

use crate::kernels::fusion::graph::ArgSource;
use crate::kernels::fusion::program::{Access, LeafCode, Program, Step, StepKind};
use crate::runtime::{ElementCode, EpilogueCode, PrologueCode, tokens};
use crate::tensor::DType;

/// The texts that complete the shader.
pub(crate) struct Text {
    /// The bindings, the functions of the steps and `compute4`.
    pub code: String,
    /// The number of words for each graph in the table of a batch.
    pub entry: u32,
    /// The integer type of the functions in `lib/integer`.
    pub integer: &'static str,
}

/// Returns the WGSL type in which elements of a type are computed.
fn value_type(dtype: DType) -> &'static str {
    dtype.compute_type().wgsl()
}

/// Returns the WGSL type of four elements in memory.
fn vec4_type(dtype: DType) -> String {
    match dtype.size() {
        2 => "Halves4".to_owned(),
        4 => "Words4".to_owned(),
        _ => format!("vec4<{}>", dtype.wgsl()),
    }
}

/// Returns the WGSL type of an element in memory; of two 16-bit floats.
fn element_type(dtype: DType) -> &'static str {
    if dtype.is_64_bit() { dtype.wgsl() } else { "u32" }
}

/// Returns the names of the conversions of four 16-bit floats from and to words.
fn half_functions(dtype: DType) -> (&'static str, &'static str, &'static str) {
    match dtype {
        DType::BF16 => ("bf16_values", "bf16_words", "bf16_value"),
        _ => ("f16_values", "f16_words", "f16_value"),
    }
}

/// Writes the text of a program, and counts the words of its parameters.
pub(super) struct Writer<'a> {
    pub program: &'a Program,
    /// Whether it is the program of a kernel of lines.
    pub on_lines: bool,
    /// The elements that are computed at once: four or one.
    pub lanes: usize,
    /// What the names of operands and functions begin with.
    pub prefix: String,
    pub out: String,
    pub words: usize,
}

impl Program {
    /// Returns the text of the kernel. The function of each step is named after one of `ops` in a
    /// comment.
    pub fn text(&self, ops: &[&str]) -> Text {
        let prefix = String::new();
        let mut writer = Writer::new(self, 4, prefix, 0);
        if self.pages > 0 {
            writer.pages();
        } else {
            writer.inputs();
            writer.outputs();
        }
        writer.steps(ops);
        let leaf_words = writer.leaf_words();
        let stride_words = writer.locate();
        writer.line(format_args!("fn compute4(i: u32) {{"));
        writer.compute(&leaf_words, &stride_words);
        writer.line(format_args!("}}"));
        if self.pages > 0 {
            writer.compute_batched();
        }
        let entry = (2 + 2 * (self.reads() + self.outputs.len())) as u32;
        Text { code: writer.out, entry, integer: self.integer() }
    }

    /// Returns the integer type of the functions in `lib/integer`.
    pub(super) fn integer(&self) -> &'static str {
        let integers = self.steps.iter().filter_map(|step| step.args.first());
        let integer = integers.map(|(_, dtype)| *dtype).find(|dtype| dtype.is_integer());
        integer.map_or("i32", DType::wgsl)
    }

    /// Returns where the table of a batch has the page and the start of an output, relative to the entry.
    fn batched_output(&self, index: usize) -> usize {
        2 + 2 * (self.reads() + index)
    }

    /// Returns the code with which a kernel computes the elements of `input`, which must have 32
    /// bits, instead of reading them. The words of the program's parameters begin at `first_word`.
    pub fn prologue(&self, input: usize, ops: &[&str], first_word: usize) -> PrologueCode {
        let prefix = format!("input{input}_");
        let code = |lanes: usize| {
            let bits = bits_type(lanes);
            let last = self.steps.len() - 1;
            let signature = format!("i: u32) -> {bits}");
            let end = format!("    return bitcast<{bits}>(y{last});");
            self.element_code(lanes, &prefix, ops, first_word, [&signature, &end])
        };
        let (words, label) = (self.words(), self.to_string());
        PrologueCode { input, one: code(1), four: code(4), words, label }
    }

    /// Returns the code with which a kernel goes on computing with its result. The words of the
    /// program's parameters begin at `first_word`.
    pub fn epilogue(&self, ops: &[&str], first_word: usize) -> EpilogueCode {
        let code = |lanes: usize| {
            let signature = format!("i: u32, bits: {})", bits_type(lanes));
            self.element_code(lanes, "output_", ops, first_word, [&signature, ""])
        };
        let (words, label) = (self.words(), self.to_string());
        EpilogueCode { one: code(1), four: code(4), words, label }
    }

    /// Returns code whose names begin with `prefix`. Its function has the `signature`, after the
    /// opening bracket, and the last statement `end`.
    fn element_code(
        &self,
        lanes: usize,
        prefix: &str,
        ops: &[&str],
        first_word: usize,
        [signature, end]: [&str; 2],
    ) -> ElementCode {
        let prefix = prefix.to_owned();
        let name = format!("{prefix}bits");
        let mut writer = Writer::new(self, lanes, prefix, first_word);
        writer.inputs();
        let inputs = std::mem::take(&mut writer.out);
        writer.outputs();
        let outputs = std::mem::take(&mut writer.out);
        writer.steps(ops);
        let leaf_words = writer.leaf_words();
        let stride_words = writer.locate();
        writer.line(format_args!("fn {name}({signature} {{"));
        writer.compute(&leaf_words, &stride_words);
        writer.line(format_args!("{end}"));
        writer.line(format_args!("}}"));
        ElementCode { name, inputs, outputs, functions: writer.out }
    }
}

/// Returns the WGSL type of the bits of one or four elements.
fn bits_type(lanes: usize) -> &'static str {
    if lanes == 4 { "vec4<u32>" } else { "u32" }
}

impl<'a> Writer<'a> {
    /// Returns a writer of which the words of the parameters begin at `words`.
    pub fn new(program: &'a Program, lanes: usize, prefix: String, words: usize) -> Self {
        let on_lines = program.steps.iter().any(|step| step.kind != StepKind::Element);
        Self { program, on_lines, lanes, prefix, out: String::new(), words }
    }

    /// Returns whether there is one value of a leaf or a step for each line.
    pub fn is_per_line(&self, source: ArgSource) -> bool {
        self.on_lines
            && match source {
                ArgSource::Node(step) => {
                    self.program.steps[usize::from(step)].kind != StepKind::Element
                }
                ArgSource::Leaf(leaf) => {
                    self.program.leaves[usize::from(leaf)].access.is_per_line()
                }
            }
    }

    /// Returns the next word of the parameters.
    fn word(&mut self) -> String {
        let word = format!("p.words[{}].{}", self.words / 4, ["x", "y", "z", "w"][self.words % 4]);
        self.words += 1;
        word
    }

    pub fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(line);
        self.out.push('\n');
    }

    /// Declares the leaves that no output overwrites.
    pub fn inputs(&mut self) {
        let prefix = self.prefix.clone();
        for (index, leaf) in self.program.leaves.iter().enumerate() {
            if leaf.overwritten_by.is_some() {
                continue;
            }
            let element = match self.lanes == 4 && leaf.access.in_vec4s() {
                true => vec4_type(leaf.dtype),
                false => element_type(leaf.dtype).to_owned(),
            };
            self.line(format_args!(
                "@group(0) @binding(auto) var<storage, read> {prefix}in{index}: array<{element}>;"
            ));
        }
    }

    pub fn outputs(&mut self) {
        let prefix = self.prefix.clone();
        for (index, output) in self.program.outputs.iter().enumerate() {
            let dtype = self.program.output_dtype(output);
            let is_per_line = self.is_per_line(ArgSource::Node(output.step));
            let element = match self.lanes {
                4 if !is_per_line => vec4_type(dtype),
                _ => element_type(dtype).to_owned(),
            };
            self.line(format_args!(
                "@group(0) @binding(auto) var<storage, read_write> {prefix}out{index}: array<{element}>;"
            ));
        }
    }

    /// Writes the functions of the steps, each named after one of `ops` in a comment.
    pub fn steps(&mut self, ops: &[&str]) {
        let steps = self.program.steps.iter().enumerate();
        let has_function = |(_, step): &(usize, &Step)| {
            !step.is_result() && !matches!(step.kind, StepKind::Reduction(_))
        };
        for (index, step) in steps.filter(has_function) {
            if let Some(op) = ops.get(index) {
                self.line(format_args!("// {op}"));
            }
            self.step(index, step);
        }
    }

    /// Returns the words of each leaf, but for strides, and writes the functions that load padded
    /// leaves.
    pub fn leaf_words(&mut self) -> Vec<Vec<String>> {
        let leaves = self.program.leaves.iter().enumerate();
        leaves
            .map(|(index, leaf)| {
                let words: Vec<String> = (0..leaf.access.words()).map(|_| self.word()).collect();
                if let [line, start, len] = &words[..] {
                    self.padded(index, leaf, [line, start, len]);
                }
                words
            })
            .collect()
    }

    /// Writes the function that returns an element, or a vec4, of a padded leaf at element `i` of
    /// the result.
    fn padded(&mut self, index: usize, leaf: &LeafCode, [line, start, len]: [&str; 3]) {
        let name = format!("{}in{index}", self.prefix);
        let element = value_type(leaf.dtype);
        let (ty, load) = match self.lanes == 4 && leaf.access == Access::PaddedVec4 {
            true => (format!("vec4<{element}>"), vec4_values(leaf, &name, "at >> 2u")),
            false => (element.to_owned(), value(leaf, &name, "at")),
        };
        let prefix = self.prefix.clone();
        self.line(format_args!("fn {prefix}padded{index}(i: u32) -> {ty} {{"));
        self.line(format_args!("    let row = i / {line};"));
        self.line(format_args!("    // Wraps before the start."));
        self.line(format_args!("    let in_part = i - row * {line} - {start};"));
        self.line(format_args!("    if (in_part >= {len}) {{ return {ty}({element}(0)); }}"));
        self.line(format_args!("    let at = row * {len} + in_part;"));
        self.line(format_args!("    return {load};"));
        self.line(format_args!("}}"));
    }

    /// Writes the bindings of a kernel for several graphs, and functions that access them.
    fn pages(&mut self) {
        let pages = self.program.pages;
        self.line(format_args!("@group(0) @binding(auto) var<storage, read> table: array<u32>;"));
        for page in 0..pages {
            self.line(format_args!(
                "@group(0) @binding(auto) var<storage, read_write> page{page}: array<Words4>;"
            ));
        }
        for (index, output) in self.program.outputs.iter().enumerate() {
            if self.program.output_dtype(output).is_half() {
                self.line(format_args!("var<private> halves{index}: vec2<u32>;"));
            }
        }
        self.line(format_args!("fn load(operand: u32, i: u32) -> Words4 {{"));
        self.line(format_args!("    let at = table[entry + operand + 1u] + i;"));
        self.line(format_args!("    switch table[entry + operand] {{"));
        for page in 1..pages {
            self.line(format_args!("        case {page}u: {{ return page{page}[at]; }}"));
        }
        self.line(format_args!("        default: {{ return page0[at]; }}"));
        self.line(format_args!("    }}"));
        self.line(format_args!("}}"));
        self.line(format_args!("fn store(operand: u32, i: u32, value: Words4) {{"));
        self.line(format_args!("    let at = table[entry + operand + 1u] + i;"));
        self.line(format_args!("    switch table[entry + operand] {{"));
        for page in 1..pages {
            self.line(format_args!("        case {page}u: {{ page{page}[at] = value; }}"));
        }
        self.line(format_args!("        default: {{ page0[at] = value; }}"));
        self.line(format_args!("    }}"));
        self.line(format_args!("}}"));
    }

    /// Writes the function that computes the elements of an invocation of a batch. 16-bit results of four
    /// elements wait for those of the next four: a page consists of vec4s of words, which neighbouring
    /// invocations must not share.
    fn compute_batched(&mut self) {
        let outputs = self.program.outputs.iter().enumerate();
        let halves: Vec<usize> = outputs
            .filter(|(_, output)| self.program.output_dtype(output).is_half())
            .map(|(index, _)| index)
            .collect();
        self.line(format_args!("fn compute_batched(i: u32) {{"));
        self.line(format_args!("    compute4(i);"));
        for index in &halves {
            self.line(format_args!("    let first{index} = halves{index};"));
        }
        if !halves.is_empty() {
            self.line(format_args!("    if (i + 4u < table[entry + 1u]) {{ compute4(i + 4u); }}"));
        }
        for index in &halves {
            let operand = self.program.batched_output(*index);
            let words = format!("from_words(vec4<u32>(first{index}, halves{index}))");
            self.line(format_args!("    store({operand}u, i >> 3u, {words});"));
        }
        self.line(format_args!("}}"));
    }

    /// Writes the function of a step. 16-bit results are rounded, unless only memory receives them.
    fn step(&mut self, index: usize, step: &Step) {
        let ty = value_type(step.dtype);
        let names = ["a", "b", "c"];
        let parameters: String = step
            .args
            .iter()
            .zip(names)
            .map(|((_, dtype), name)| format!("{name}: {}, ", value_type(*dtype)))
            .collect();
        let prefix = self.prefix.clone();
        self.line(format_args!("fn {prefix}step{index}({parameters}i: u32) -> {ty} {{"));
        for name in ["s", "t"].into_iter().take(step.scalars.into()) {
            let scalar_type = value_type(step.scalar_type);
            let low = self.word();
            if step.scalar_type.is_64_bit() {
                let high = self.word();
                self.line(format_args!(
                    "    let {name} = {scalar_type}(u64({low}) | (u64({high}) << 32u));"
                ));
            } else {
                self.line(format_args!("    let {name} = bitcast<{scalar_type}>({low});"));
            }
        }
        let expression = self.expression(step);
        let rounded = step.dtype.is_half() && self.program.uses(index);
        match (rounded, step.dtype) {
            (false, _) => self.line(format_args!("    return {ty}({expression});")),
            (true, DType::BF16) => self
                .line(format_args!("    return bitcast<f32>(f32_to_bf16({expression}) << 16u);")),
            (true, _) => {
                self.line(format_args!("    return f16_to_f32(f32_to_f16({expression}));"));
            }
        }
        self.line(format_args!("}}"));
    }

    /// Returns the expression of a step with its types in place of `A`, `B`, `C`, `O`, `S` and
    /// `BITS`.
    fn expression(&self, step: &Step) -> String {
        let arg = |index: usize| step.args.get(index).map(|(_, dtype)| *dtype);
        let bits = if arg(0).is_some_and(DType::is_64_bit) { "64u" } else { "32u" };
        let replaced = |token: &str| match token {
            "A" => arg(0).map(value_type),
            "B" => arg(1).map(value_type),
            "C" => arg(2).map(value_type),
            "O" => Some(value_type(step.dtype)),
            "S" => Some(value_type(step.scalar_type)),
            "BITS" => Some(bits),
            _ => None,
        };
        tokens(step.wgsl.0).map(|(token, _)| replaced(token).unwrap_or(token)).collect()
    }

    /// Writes the function that computes the offsets of strided leaves, and returns for each leaf
    /// the word of its innermost stride.
    pub fn locate(&mut self) -> Vec<String> {
        let rank = usize::from(self.program.rank);
        let count = self.program.leaves.iter().filter(|leaf| leaf.access.walks()).count();
        if count == 0 {
            return Vec::new();
        }
        let sizes: Vec<String> = (1..rank).map(|_| self.word()).collect();
        let mut offsets = Vec::new();
        let mut strides: Vec<Vec<String>> = Vec::new();
        for _ in 0..count {
            offsets.push(self.word());
            strides.push((0..rank).map(|_| self.word()).collect());
        }
        let prefix = self.prefix.clone();
        self.line(format_args!("fn {prefix}locate(i: u32) -> array<u32, {count}> {{"));
        self.line(format_args!("    var at = array<u32, {count}>({});", offsets.join(", ")));
        let mut rest = "i".to_owned();
        for axis in (1..rank).rev() {
            let size = &sizes[axis - 1];
            self.line(format_args!("    let rest{axis} = {rest} / {size};"));
            self.line(format_args!("    let i{axis} = {rest} - rest{axis} * {size};"));
            for (leaf, strides) in strides.iter().enumerate() {
                self.line(format_args!("    at[{leaf}] += i{axis} * {};", strides[axis]));
            }
            rest = format!("rest{axis}");
        }
        for (leaf, strides) in strides.iter().enumerate() {
            self.line(format_args!("    at[{leaf}] += {rest} * {};", strides[0]));
        }
        self.line(format_args!("    return at;"));
        self.line(format_args!("}}"));
        strides.into_iter().map(|mut strides| strides.pop().unwrap_or_default()).collect()
    }

    /// Writes the statements that load the leaves at element `i`, or at four from `i` on, compute
    /// the steps and store the outputs.
    fn compute(&mut self, leaf_words: &[Vec<String>], stride_words: &[String]) {
        if !stride_words.is_empty() {
            self.locate_elements();
        }
        self.load_leaves(leaf_words, stride_words, |_| true);
        self.call_steps(|_| true);
        self.store_outputs(|_| true);
    }

    /// Loads the elements of the `wanted` leaves.
    pub fn load_leaves(
        &mut self,
        leaf_words: &[Vec<String>],
        stride_words: &[String],
        wanted: impl Fn(usize) -> bool,
    ) {
        let program = self.program;
        let (mut walked, mut read) = (0, 0);
        for (index, leaf) in program.leaves.iter().enumerate() {
            let slot = walked;
            walked += usize::from(leaf.access.walks());
            let operand = match leaf.overwritten_by {
                Some(output) => program.reads() + usize::from(output),
                None => {
                    read += 1;
                    read - 1
                }
            };
            if !wanted(index) {
                continue;
            }
            let word = leaf_words[index].first().map(String::as_str).unwrap_or_default();
            let stride = stride_words.get(slot).map(String::as_str).unwrap_or_default();
            let values = self.loaded(index, leaf, (slot, operand), (word, stride));
            self.line(format_args!("    let x{index} = {values};"));
        }
    }

    /// Returns the elements of a leaf. `slot` is its number among those that depend on strides, and `operand` among the
    /// operands of a batch; `word` is where it starts, or the bits of a run, and `stride` the innermost.
    fn loaded(
        &self,
        index: usize,
        leaf: &LeafCode,
        (slot, operand): (usize, usize),
        (word, stride): (&str, &str),
    ) -> String {
        let program = self.program;
        let name = match leaf.overwritten_by {
            Some(output) => format!("{}out{output}", self.prefix),
            None => format!("{}in{index}", self.prefix),
        };
        let at = match leaf.access {
            Access::Packed | Access::PaddedVec4 | Access::Padded => "i".to_owned(),
            Access::Offset => format!("{word} + i"),
            Access::Single => word.to_owned(),
            Access::Runs => format!("i >> {word}"),
            Access::PerLine => format!("{word} + line"),
            Access::OneLine => format!("{word} + k"),
            Access::Vec4 | Access::Repeated | Access::Strided => format!("at0[{slot}]"),
        };
        let padded = format!("{}padded{index}", self.prefix);
        match leaf.access {
            Access::PaddedVec4 => format!("{padded}(i)"),
            Access::Padded if self.lanes == 1 => format!("{padded}(i)"),
            Access::Padded => {
                let four = [0, 1, 2, 3].map(|k| format!("{padded}({})", self.element(k)));
                format!("vec4<{}>({})", value_type(leaf.dtype), four.join(", "))
            }
            _ if self.lanes == 1 => value(leaf, &name, &at),
            Access::Packed if program.pages > 0 => {
                let words = format!("to_words(load({}u, i >> 2u))", 2 + 2 * operand);
                format!("bitcast<vec4<{}>>({words})", value_type(leaf.dtype))
            }
            Access::Packed | Access::Offset | Access::Vec4 | Access::OneLine => {
                vec4_values(leaf, &name, &format!("({at}) >> 2u"))
            }
            Access::Single | Access::Runs | Access::Repeated | Access::PerLine => {
                format!("vec4<{}>({})", value_type(leaf.dtype), value(leaf, &name, &at))
            }
            Access::Strided => {
                let at = |k: usize| match (program.whole_vec4s, k) {
                    (_, 0) => at.clone(),
                    (true, _) => format!("{at} + {k}u * {stride}"),
                    (false, _) => format!("at{k}[{slot}]"),
                };
                let four = [0, 1, 2, 3].map(|k| value(leaf, &name, &at(k)));
                format!("vec4<{}>({})", value_type(leaf.dtype), four.join(", "))
            }
        }
    }

    /// Calls the functions of the `wanted` steps.
    pub fn call_steps(&mut self, wanted: impl Fn(usize) -> bool) {
        let program = self.program;
        for (index, step) in program.steps.iter().enumerate().filter(|(index, _)| wanted(*index)) {
            let call = |component: &str, next: &str| {
                let args: String = step
                    .args
                    .iter()
                    .map(|(arg, dtype)| self.argument(*arg, *dtype, component) + ", ")
                    .collect();
                format!("{}step{index}({args}i{next})", self.prefix)
            };
            let values = match self.lanes {
                1 if step.is_result() => format!("bitcast<{}>(bits)", value_type(step.dtype)),
                _ if step.is_result() => {
                    format!("bitcast<vec4<{}>>(bits)", value_type(step.dtype))
                }
                1 => call("", ""),
                _ => {
                    let four = [(".x", ""), (".y", " + 1u"), (".z", " + 2u"), (".w", " + 3u")]
                        .map(|(component, next)| call(component, next));
                    format!("vec4<{}>({})", value_type(step.dtype), four.join(", "))
                }
            };
            self.line(format_args!("    let y{index} = {values};"));
        }
    }

    /// Stores the outputs of the `wanted` steps.
    pub fn store_outputs(&mut self, wanted: impl Fn(usize) -> bool) {
        let program = self.program;
        for (index, output) in program.outputs.iter().enumerate() {
            let step = output.step;
            if !wanted(step.into()) {
                continue;
            }
            let dtype = program.output_dtype(output);
            if program.pages > 0 && dtype.is_half() {
                let words = half_functions(dtype).1;
                self.line(format_args!("    halves{index} = {words}(y{step});"));
                continue;
            }
            let raw = match (self.lanes, dtype.size()) {
                (1, 4) => format!("bitcast<u32>(y{step})"),
                (4, 2) => format!("halves_from_words({}(y{step}))", half_functions(dtype).1),
                (4, 4) => format!("from_words(bitcast<vec4<u32>>(y{step}))"),
                _ => format!("y{step}"),
            };
            let prefix = self.prefix.clone();
            match self.lanes {
                1 => self.line(format_args!("    {prefix}out{index}[i] = {raw};")),
                _ if program.pages > 0 => {
                    let operand = program.batched_output(index);
                    self.line(format_args!("    store({operand}u, i >> 2u, {raw});"));
                }
                _ => self.line(format_args!("    {prefix}out{index}[i >> 2u] = {raw};")),
            }
        }
    }

    /// Writes the statements that find the offsets of strided leaves.
    pub fn locate_elements(&mut self) {
        let prefix = self.prefix.clone();
        let count = if self.lanes == 1 || self.program.whole_vec4s { 1 } else { 4 };
        for k in 0..count {
            let i = self.element(k);
            self.line(format_args!("    let at{k} = {prefix}locate({i});"));
        }
    }

    /// Returns the `k`-th element from `i` on, or the last one. A fused kernel may compute up to
    /// three elements beyond the last one; prologues and epilogues do not.
    fn element(&self, k: usize) -> String {
        let i = if k == 0 { "i".to_owned() } else { format!("i + {k}u") };
        if self.prefix.is_empty() { format!("min({i}, p.len - 1u)") } else { i }
    }

    /// Returns a component (`.x`, or nothing for the only one) of an argument in the type as which
    /// it is read.
    pub fn argument(&self, source: ArgSource, dtype: DType, component: &str) -> String {
        let (name, stored) = match source {
            ArgSource::Node(node) => {
                (format!("y{node}"), self.program.steps[usize::from(node)].dtype)
            }
            ArgSource::Leaf(leaf) => {
                (format!("x{leaf}"), self.program.leaves[usize::from(leaf)].dtype)
            }
        };
        let component = if self.is_per_line(source) { "" } else { component };
        let (stored, read) = (value_type(stored), value_type(dtype));
        match stored == read {
            true => format!("{name}{component}"),
            false => format!("bitcast<{read}>({name}{component})"),
        }
    }
}

/// Returns four elements that are loaded at once.
fn vec4_values(leaf: &LeafCode, name: &str, index: &str) -> String {
    match leaf.dtype.size() {
        2 => format!("{}(halves_to_words({name}[{index}]))", half_functions(leaf.dtype).0),
        4 => format!("bitcast<vec4<{}>>(to_words({name}[{index}]))", value_type(leaf.dtype)),
        _ => format!("{name}[{index}]"),
    }
}

/// Returns the element at an offset.
fn value(leaf: &LeafCode, name: &str, offset: &str) -> String {
    match leaf.dtype.size() {
        2 => {
            format!("{}({name}[({offset}) >> 1u], {offset})", half_functions(leaf.dtype).2)
        }
        4 => format!("bitcast<{}>({name}[{offset}])", value_type(leaf.dtype)),
        _ => format!("{name}[{offset}]"),
    }
}
