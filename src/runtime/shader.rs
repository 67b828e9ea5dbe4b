//! Shader expansion: specialises a WGSL file into variants.
//!
//! The files under `shaders/` stay close to plain WGSL, so editors can parse them. The expander
//! supports these directives and substitutions:
//!
//! - `//#include "lib/name"` inserts a fragment of `shaders/lib/`, at most once.
//! - `//#use "lib/name"` appends those functions of a fragment that are called, unexpanded.
//! - `//#if NAME`, `//#if !NAME`, `//#else`, `//#endif` keep lines if the variant defines `NAME`,
//!   or if it does not. Of several names, as in `//#if A !B`, all must hold.
//! - `//#repeat I N` and `//#end` repeat the lines between them N times. The identifier `I` is
//!   replaced by `0u`, then by `1u`, and so on.
//! - `//#for X in A B` and `//#end` repeat the lines between them for each item. The identifier `X`
//!   is replaced by the item, also where underscores join it to other words: `X_in` becomes `A_in`.
//! - `const NAME: T = default;` and `alias NAME = T;` take the variant's definition of `NAME`.
//! - Any other identifier that the variant defines as an expression is replaced by that expression.
//! - `@binding(auto)` is numbered consecutively, after lines were dropped.
//!
//! Comments are dropped. The expander also adds the `enable` directives that a shader needs, and the place of each
//! operand in its buffer (`operands.rs`).

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::embed::wgsl;
use super::operands::{self, DeclaredOperand, EpilogueCode, PrologueCode};
use super::params::{ParamField, Params};
use super::tokens::tokens;

/// A text that shaders include by `//#include` or `//#use`: its name and the text.
pub type Fragment = (&'static str, &'static str);

/// A WGSL file embedded in the crate.
#[derive(Debug)]
pub struct Source {
    /// The file's name without folder and extension. It is also the name of the kernel.
    pub name: &'static str,
    /// The WGSL text before expansion.
    pub text: &'static str,
    /// The fields of the shader's `Params`.
    pub params: &'static [ParamField],
    /// Size of the shader's `Params` in bytes.
    pub params_size: usize,
    /// Fragments besides those that every source may include.
    pub fragments: &'static [Fragment],
    params_type: TypeId,
    trusted: bool,
    program_file: Option<&'static str>,
}

impl Source {
    /// Returns whether the shader states how many rounds its loops have: they grow with the operands.
    pub fn states_rounds(&self) -> bool {
        self.text.lines().any(|line| line.starts_with("// Rounds: "))
    }

    /// Creates a source of this crate whose shader declares its `Params` like `P`. It runs without
    /// checks: its launcher keeps every index within its operands, and its loops terminate.
    pub(crate) const fn new<P: Params>(name: &'static str, text: &'static str) -> Self {
        // SAFETY: the launchers of this crate keep every index in range, and the loops of its kernels end.
        // docs/safety.md says what shows that.
        unsafe { Self::trusted::<P>(name, text) }
    }

    /// Creates a source whose shader declares its `Params` like `P`. It runs with all checks.
    pub const fn checked<P: Params>(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            params: P::FIELDS,
            params_size: size_of::<P>(),
            fragments: &[],
            params_type: TypeId::of::<P>(),
            trusted: false,
            program_file: None,
        }
    }

    /// Creates a source of a program that uses this crate, which writes the parameters. Errors name its `file`. It runs
    /// with all checks.
    pub(crate) const fn of_program(
        name: &'static str,
        file: &'static str,
        text: &'static str,
    ) -> Self {
        Self {
            name,
            text,
            params: &[],
            params_size: 0,
            fragments: &[],
            params_type: TypeId::of::<()>(),
            trusted: false,
            program_file: Some(file),
        }
    }

    /// Returns the source with another text. It runs with all checks: only the text of before was trusted.
    pub(crate) fn with_text(&self, text: &'static str) -> Self {
        Self { text, trusted: false, ..*self }
    }

    /// Lets the source run without checks.
    ///
    /// # Safety
    ///
    /// As for [`trusted`](Self::trusted).
    pub(crate) const unsafe fn trust(&mut self) {
        self.trusted = true;
    }

    /// Returns the file of a source of a program; `None` for a source of this crate.
    pub(crate) const fn program_file(&self) -> Option<&'static str> {
        self.program_file
    }

    /// Creates a source whose shader declares its `Params` like `P`. It runs without checks.
    ///
    /// # Safety
    ///
    /// In every launch, the kernel must keep each index within its operands, divide by no zero, and
    /// end all its loops.
    pub const unsafe fn trusted<P: Params>(name: &'static str, text: &'static str) -> Self {
        Self { trusted: true, ..Self::checked::<P>(name, text) }
    }

    /// Lets the source include fragments besides those that every source may include. A program
    /// contains them only if it contains the source.
    #[must_use]
    pub const fn with_fragments(self, fragments: &'static [Fragment]) -> Self {
        Self { fragments, ..self }
    }

    /// Returns whether the kernels run without checks.
    pub const fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Returns whether the source was created for the parameters `P`.
    pub fn takes<P: Params>(&self) -> bool {
        self.params_type == TypeId::of::<P>()
    }
}

/// The definition of a name in a variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Def {
    /// Only makes `//#if NAME` true, as every definition does.
    Flag,
    /// Replaces the default of `const NAME`.
    Int(u32),
    /// Replaces the default of `alias NAME`.
    Type(&'static str),
    /// Replaces the identifier `NAME`.
    Expr(&'static str),
    /// Replaces the identifier `NAME`. Not part of the variant's name.
    Code(Arc<str>),
    /// Only part of the variant's name.
    Label(Arc<str>),
}

/// A WGSL file specialised by definitions: one kernel.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The file.
    pub source: &'static Source,
    /// The definitions, in the order in which the launcher added them.
    pub defs: Vec<(&'static str, Def)>,
    /// The inputs that are computed instead of read, in binding order.
    pub prologues: Vec<PrologueCode>,
    /// What is computed with the output instead of storing it.
    pub epilogue: Option<Box<EpilogueCode>>,
    /// The elementwise ops that the kernel computes, in order: a name, of which variants are
    /// independent.
    pub ops: Vec<&'static str>,
}

impl PartialEq for Variant {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.source, other.source)
            && self.defs == other.defs
            && self.prologues == other.prologues
            && self.epilogue == other.epilogue
    }
}

impl Eq for Variant {}

impl std::hash::Hash for Variant {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.source).hash(state);
        self.defs.hash(state);
        self.prologues.hash(state);
        self.epilogue.hash(state);
    }
}

impl Variant {
    /// Creates a variant of `source` without definitions.
    pub fn new(source: &'static Source) -> Self {
        Self {
            source,
            defs: Vec::with_capacity(8),
            prologues: Vec::new(),
            epilogue: None,
            ops: Vec::new(),
        }
    }

    /// Returns the number of words that the code of prologues and the epilogue reads.
    pub fn words(&self) -> usize {
        let prologues = self.prologues.iter().map(|prologue| prologue.words);
        prologues.sum::<usize>() + self.epilogue.as_ref().map_or(0, |epilogue| epilogue.words)
    }

    /// Sets a flag if `enabled`.
    pub fn flag(mut self, name: &'static str, enabled: bool) -> Self {
        if enabled {
            self.defs.push((name, Def::Flag));
        }
        self
    }

    /// Sets a constant.
    pub fn int(mut self, name: &'static str, value: u32) -> Self {
        self.defs.push((name, Def::Int(value)));
        self
    }

    /// Sets a type alias.
    pub fn ty(mut self, name: &'static str, value: &'static str) -> Self {
        self.defs.push((name, Def::Type(value)));
        self
    }

    /// Adds to the variant's name.
    pub fn label(mut self, label: String) -> Self {
        self.defs.push(("LABEL", Def::Label(label.into())));
        self
    }

    /// Sets generated code.
    pub fn code(mut self, name: &'static str, code: String) -> Self {
        self.defs.push((name, Def::Code(code.into())));
        self
    }

    /// Sets an expression.
    pub fn expr(mut self, name: &'static str, value: &'static str) -> Self {
        self.defs.push((name, Def::Expr(value)));
        self
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source.name)?;
        for (name, def) in &self.defs {
            match def {
                Def::Flag => write!(f, " {name}")?,
                Def::Int(value) => write!(f, " {name}={value}")?,
                Def::Type(value) => write!(f, " {name}={value}")?,
                Def::Expr(value) => write!(f, " {name}=`{value}`")?,
                Def::Code(_) => {}
                Def::Label(value) => write!(f, " {value}")?,
            }
        }
        for PrologueCode { input, label, .. } in &self.prologues {
            write!(f, " input{input}=[{label}]")?;
        }
        if let Some(epilogue) = &self.epilogue {
            write!(f, " output=[{}]", epilogue.label)?;
        }
        Ok(())
    }
}

/// The fragments that every source may include.
const FRAGMENTS: &[Fragment] = &[
    ("lib/grid", wgsl!("../../shaders/lib/grid.wgsl")),
    ("lib/rounds", wgsl!("../../shaders/lib/rounds.wgsl")),
    ("lib/invocation", wgsl!("../../shaders/lib/invocation.wgsl")),
    ("lib/report", wgsl!("../../shaders/lib/report.wgsl")),
    ("lib/walk", wgsl!("../../shaders/lib/walk.wgsl")),
    ("lib/vec4", wgsl!("../../shaders/lib/vec4.wgsl")),
    ("lib/operand", wgsl!("../../shaders/lib/operand.wgsl")),
    ("lib/vector", wgsl!("../../shaders/lib/vector.wgsl")),
    ("lib/team", wgsl!("../../shaders/lib/team.wgsl")),
    ("lib/math", wgsl!("../../shaders/lib/math.wgsl")),
    ("lib/integer", wgsl!("../../shaders/lib/integer.wgsl")),
    ("lib/convert", wgsl!("../../shaders/lib/convert.wgsl")),
    ("lib/half", wgsl!("../../shaders/lib/half.wgsl")),
    ("lib/gemm", wgsl!("../../shaders/lib/gemm.wgsl")),
    ("lib/gemm_gather", wgsl!("../../shaders/lib/gemm_gather.wgsl")),
    ("lib/gemm_gathered", wgsl!("../../shaders/lib/gemm_gathered.wgsl")),
    ("lib/gemm_matrix", wgsl!("../../shaders/lib/gemm_matrix.wgsl")),
    ("lib/gemm_tap", wgsl!("../../shaders/lib/gemm_tap.wgsl")),
    ("lib/gemm_tiles", wgsl!("../../shaders/lib/gemm_tiles.wgsl")),
    ("lib/gemm_tiled", wgsl!("../../shaders/lib/gemm_tiled.wgsl")),
    // Browsers do not offer matrix units.
    #[cfg(not(target_arch = "wasm32"))]
    ("lib/gemm_units", wgsl!("../../shaders/lib/gemm_units.wgsl")),
    ("lib/gemm_direct", wgsl!("../../shaders/lib/gemm_direct.wgsl")),
    ("lib/window", wgsl!("../../shaders/lib/window.wgsl")),
];

/// The compiler of the expanded WGSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// naga, which is part of wgpu.
    Naga,
    /// The compiler of the browser.
    Browser,
}

impl Compiler {
    /// The compiler used by this build of the crate.
    pub const CURRENT: Self = if cfg!(target_family = "wasm") { Self::Browser } else { Self::Naga };

    /// Returns the `enable` directives that `text` needs.
    ///
    /// naga needs no directive for subgroups, and rejects `enable subgroups;`.
    fn enable_directives(self, text: &str) -> String {
        let (mut f16, mut matrices, mut subgroups) = (false, false, false);
        for (token, _) in tokens(text) {
            f16 |= token == "f16";
            matrices |= token.starts_with("coop_mat");
            subgroups |= token.starts_with("subgroup");
        }
        let directives = [
            (f16, "enable f16;\n"),
            (matrices, "enable wgpu_cooperative_matrix;\n"),
            (subgroups && self == Self::Browser, "enable subgroups;\n"),
        ];
        directives.iter().filter(|(needed, _)| *needed).map(|(_, directive)| *directive).collect()
    }
}

/// How a kernel receives its `Params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamsBinding {
    /// In a uniform buffer, which is the first binding.
    Uniform,
    /// As immediates, which are part of the dispatch command.
    Immediates,
}

/// The compiler and adapter properties that a variant is expanded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The compiler of the expanded WGSL.
    pub compiler: Compiler,
    /// How the kernel receives its parameters.
    pub params: ParamsBinding,
    /// Whether vec4 loads and stores move two 64-bit words instead of four 32-bit words, which is
    /// faster on software adapters. Sets the flag `LOADS_U64`.
    pub loads_u64: bool,
}

/// The declaration of the parameters in every source.
const UNIFORM_PARAMS: &str = "@group(0) @binding(auto) var<uniform> p:";

/// The parameters of a shader of a program without any.
const NO_PARAMS: &str = "\
struct Params {
    none: u32,
}
@group(0) @binding(auto) var<uniform> p: Params;
";

/// The fragments that the code of prologues and epilogues needs.
const FUSED: &str = "\
//#include \"lib/vec4\"
//#use \"lib/integer\"
//#use \"lib/convert\"
//#use \"lib/half\"
//#use \"lib/math\"";

/// Expands a variant to WGSL.
///
/// # Errors
///
/// Returns a message with the source and the line if a fragment is unknown, or a directive is
/// unknown, malformed or not closed. These are bugs in this crate; `tests/code/variants` finds them
/// without a GPU.
pub fn expand(variant: &Variant, target: Target) -> Result<Expansion, String> {
    expand_text(variant.source.text, variant, target)
}

/// An expanded variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// The WGSL text.
    pub text: String,
    /// The operands, in binding order.
    pub operands: Vec<DeclaredOperand>,
    /// For each line after the first `added_lines`, where it is from: a source or fragment, and a line in it.
    lines: Vec<(Arc<str>, usize)>,
    added_lines: usize,
}

impl Expansion {
    /// Returns where a line of the text, counted from 1, is from: a source or fragment, and a line in it. `None` if
    /// the expander added it.
    pub fn origin(&self, line: usize) -> Option<(&str, usize)> {
        let index = line.checked_sub(self.added_lines + 1)?;
        let line = self.lines.get(index).filter(|(_, number)| *number > 0);
        line.map(|(name, number)| (&**name, *number))
    }
}

/// Expands a text instead of that of the variant's source.
fn expand_text(text: &str, variant: &Variant, target: Target) -> Result<Expansion, String> {
    let Variant { source, defs, prologues, epilogue, .. } = variant;
    let (name, mut defs) = (source.name, defs.clone());
    if target.loads_u64 {
        defs.push(("LOADS_U64", Def::Flag));
    }
    let mut expander = Expander {
        source,
        defs: &defs,
        out: String::new(),
        lines: vec![],
        included: vec![],
        used: vec![],
        counters: vec![],
        repetitions: 0,
    };
    expander.expand_source(name, text)?;
    let is_fused = !prologues.is_empty() || epilogue.is_some();
    if is_fused {
        expander.expand_source("fused", FUSED)?;
    }
    let Expander { mut out, mut lines, used, .. } = expander;
    if is_fused {
        // Declarations are replaced by several lines.
        lines.clear();
        out = operands::fuse(&out, prologues, epilogue.as_deref())
            .map_err(|error| format!("{name}: {error}"))?;
    }
    for fragment in used {
        let functions = called_functions(&out, fragment);
        out.push_str(&functions);
    }
    if source.program_file.is_some() && !out.contains("struct Params {") {
        out.insert_str(0, NO_PARAMS);
        let added = NO_PARAMS.lines().map(|_| ("added".into(), 0));
        lines.splice(0..0, added);
    }
    if target.params == ParamsBinding::Immediates {
        out = out.replacen(UNIFORM_PARAMS, "var<immediate> p:", 1);
    }
    let operands = operands::declared(&out).map_err(|error| format!("{name}: {error}"))?;
    let based = operands::add_bases(&out, &operands);
    let directives = target.compiler.enable_directives(&based);
    let text = directives + &number_bindings(&based);
    let added_lines = text.lines().count() - out.lines().count();
    Ok(Expansion { text, operands, lines, added_lines })
}

/// Returns the text of a fragment that `source` may include. The error message starts with
/// `location`.
fn fragment_text(source: &Source, name: &str, location: &str) -> Result<&'static str, String> {
    source
        .fragments
        .iter()
        .chain(FRAGMENTS)
        .find(|(fragment, _)| *fragment == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| format!("{location}: unknown shader fragment {name:?}"))
}

/// The state of one expansion.
struct Expander<'a> {
    source: &'a Source,
    /// The definitions of the variant.
    defs: &'a [(&'static str, Def)],
    out: String,
    /// The origin of each line of `out`.
    lines: Vec<(Arc<str>, usize)>,
    /// Names of the fragments inserted by `//#include`.
    included: Vec<String>,
    /// Texts of the fragments named by `//#use`.
    used: Vec<&'static str>,
    /// The counter and its current value for each enclosing `//#repeat`.
    counters: Vec<(String, u32)>,
    /// The repetitions so far.
    repetitions: u32,
}

/// The most repetitions in a text, and the most bytes that they make: a text of a program may ask for any number.
const MAX_REPETITIONS: u32 = 1 << 16;
const MAX_EXPANDED: usize = 4 << 20;

impl<'a> Expander<'a> {
    /// Returns the variant's definition of `name`.
    fn def(&self, name: &str) -> Option<&'a Def> {
        self.defs.iter().find(|(defined, _)| *defined == name).map(|(_, def)| def)
    }

    fn expand_source(&mut self, name: &str, text: &str) -> Result<(), String> {
        let lines: Vec<(usize, &str)> = (1..).zip(text.lines()).collect();
        self.expand_lines(name, &lines)
    }

    /// Expands numbered lines of the source or fragment `name`.
    fn expand_lines(&mut self, name: &str, lines: &[(usize, &str)]) -> Result<(), String> {
        let location = |number: usize| format!("{name}.wgsl:{number}");
        let origin: Arc<str> = name.into();
        // For each open `#if`, its line number and whether its lines are kept.
        let mut conditions: Vec<(usize, bool)> = Vec::new();
        let mut next = 0;
        while let Some(&(number, line)) = lines.get(next) {
            next += 1;
            let kept = conditions.iter().all(|(_, condition)| *condition);
            let Some(directive) = line.trim().strip_prefix("//#") else {
                if kept {
                    self.keep_line(&origin, number, line);
                }
                continue;
            };
            let (directive, argument) = directive.split_once(' ').unwrap_or((directive, ""));
            let argument = argument.trim().trim_matches('"');
            match directive {
                "if" => conditions.push((number, self.holds(argument))),
                "else" => {
                    let (_, condition) = conditions
                        .last_mut()
                        .ok_or_else(|| format!("{}: #else without #if", location(number)))?;
                    *condition = !*condition;
                }
                "endif" => {
                    conditions
                        .pop()
                        .ok_or_else(|| format!("{}: #endif without #if", location(number)))?;
                }
                "repeat" | "for" => {
                    let len = body_len(&lines[next..]).ok_or_else(|| {
                        format!("{}: #{directive} without #end", location(number))
                    })?;
                    let body = &lines[next..next + len];
                    next += len + 1;
                    if kept {
                        self.expand_loop(name, directive, argument, body).ok_or_else(|| {
                            format!("{}: malformed #{directive} {argument:?}", location(number))
                        })??;
                    }
                }
                "include" | "use" if kept => {
                    self.insert(directive, argument, &location(number))?;
                }
                "include" | "use" => {}
                other => return Err(format!("{}: unknown directive #{other}", location(number))),
            }
        }
        match conditions.last() {
            None => Ok(()),
            Some((number, _)) => Err(format!("{}: #if without #endif", location(*number))),
        }
    }

    /// Adds a line without its comment, unless it is nothing else.
    fn keep_line(&mut self, origin: &Arc<str>, number: usize, line: &str) {
        let is_comment = line.trim_start().starts_with("//");
        let line = line.split("//").next().unwrap_or_default().trim_end();
        if line.is_empty() && is_comment {
            return;
        }
        let first = self.out.len();
        self.expand_line(line);
        // Generated code has several lines.
        let count = self.out[first..].lines().count();
        self.lines.extend((0..count).map(|_| (origin.clone(), number)));
    }

    /// Returns whether all flags of `//#if A !B` are as it says.
    fn holds(&self, flags: &str) -> bool {
        let holds = |term: &str| match term.strip_prefix('!') {
            Some(name) => self.def(name).is_none(),
            None => self.def(term).is_some(),
        };
        flags.split_whitespace().all(holds)
    }

    /// Expands the body of `//#repeat` or `//#for`. Returns `None` if the argument is malformed.
    fn expand_loop(
        &mut self,
        name: &str,
        directive: &str,
        argument: &str,
        body: &[(usize, &str)],
    ) -> Option<Result<(), String>> {
        if directive == "repeat" {
            let (counter, count) = self.parse_repeat(argument)?;
            return Some(self.repeat(name, counter, count, body));
        }
        let (placeholder, items) = argument.split_once(" in ")?;
        Some(self.for_each(name, placeholder, items, body))
    }

    /// Includes a fragment, once, or notes that its functions are used.
    fn insert(&mut self, directive: &str, argument: &str, location: &str) -> Result<(), String> {
        if directive == "use" {
            let fragment = fragment_text(self.source, argument, location)?;
            // The last use counts: a fragment follows those that call its functions.
            self.used.retain(|other| *other != fragment);
            self.used.push(fragment);
        } else if !self.included.iter().any(|name| name == argument) {
            self.included.push(argument.to_owned());
            self.expand_source(argument, fragment_text(self.source, argument, location)?)?;
        }
        Ok(())
    }

    /// Parses the argument `COUNTER COUNT` of `//#repeat`. The count is a number or a constant that
    /// the variant defines. Returns `None` if the argument is malformed.
    fn parse_repeat<'t>(&self, argument: &'t str) -> Option<(&'t str, u32)> {
        let (counter, count) = argument.split_once(' ')?;
        let count = match self.def(count) {
            Some(Def::Int(value)) => *value,
            _ => count.parse().ok()?,
        };
        Some((counter, count))
    }

    /// Expands the body of `//#repeat COUNTER COUNT`.
    fn repeat(
        &mut self,
        name: &str,
        counter: &str,
        count: u32,
        body: &[(usize, &str)],
    ) -> Result<(), String> {
        for value in 0..count {
            self.count_repetition(name)?;
            self.counters.push((counter.to_owned(), value));
            self.expand_lines(name, body)?;
            self.counters.pop();
        }
        Ok(())
    }

    fn count_repetition(&mut self, name: &str) -> Result<(), String> {
        self.repetitions += 1;
        match self.repetitions > MAX_REPETITIONS || self.out.len() > MAX_EXPANDED {
            true => Err(format!(
                "{name}: more than {MAX_REPETITIONS} repetitions, or {MAX_EXPANDED} bytes"
            )),
            false => Ok(()),
        }
    }

    /// Expands the body of `//#for PLACEHOLDER in ITEMS`. Spaces separate the items.
    fn for_each(
        &mut self,
        name: &str,
        placeholder: &str,
        items: &str,
        body: &[(usize, &str)],
    ) -> Result<(), String> {
        for item in items.split_whitespace() {
            self.count_repetition(name)?;
            let lines: Vec<(usize, String)> = body
                .iter()
                .map(|(number, line)| (*number, paste(line, placeholder, item)))
                .collect();
            let lines: Vec<(usize, &str)> =
                lines.iter().map(|(number, line)| (*number, line.as_str())).collect();
            self.expand_lines(name, &lines)?;
        }
        Ok(())
    }

    /// Applies the variant's definitions to one line.
    fn expand_line(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("const ")
            && let Some((name, _)) = rest.split_once(':')
            && let Some(Def::Int(value)) = self.def(name.trim())
        {
            self.out.push_str(&format!("const {}: u32 = {value}u;\n", name.trim()));
            return;
        }
        if let Some(rest) = trimmed.strip_prefix("alias ")
            && let Some((name, _)) = rest.split_once('=')
            && let Some(Def::Type(value)) = self.def(name.trim())
        {
            self.out.push_str(&format!("alias {} = {value};\n", name.trim()));
            return;
        }
        for (token, is_identifier) in tokens(line) {
            if let Some((_, value)) = self.counters.iter().find(|(name, _)| *name == token) {
                self.out.push_str(&format!("{value}u"));
                continue;
            }
            match self.def(token) {
                Some(Def::Expr(value)) if is_identifier => self.out.push_str(value),
                Some(Def::Code(code)) if is_identifier => self.out.push_str(code),
                _ => self.out.push_str(token),
            }
        }
        self.out.push('\n');
    }
}

/// Replaces a placeholder by an item in every identifier that consists of the placeholder, or that
/// contains it as a word between underscores.
fn paste(line: &str, placeholder: &str, item: &str) -> String {
    let replace = |identifier: &str| {
        let words = identifier.split('_').map(|word| if word == placeholder { item } else { word });
        words.collect::<Vec<_>>().join("_")
    };
    tokens(line)
        .map(|(token, is_identifier)| if is_identifier { replace(token) } else { token.to_owned() })
        .collect()
}

/// Returns the number of lines in the body of a `#repeat` or `#for`, or `None` if `#end` is
/// missing. `lines` begins after the directive.
fn body_len(lines: &[(usize, &str)]) -> Option<usize> {
    let mut depth = 1;
    lines.iter().position(|(_, line)| {
        let line = line.trim();
        depth += i32::from(line.starts_with("//#repeat") || line.starts_with("//#for "));
        depth -= i32::from(line == "//#end");
        depth == 0
    })
}

/// Returns the functions of `fragment` that `text` calls but lacks, including their own callees.
fn called_functions(text: &str, fragment: &'static str) -> String {
    let mut functions: Vec<(&str, &str)> = Vec::new();
    let mut rest = fragment;
    while let Some(start) = rest.find("\nfn ") {
        let body = &rest[start + 1..];
        let end = body.find("\n}").map_or(body.len(), |position| position + 2);
        let name = body[3..].split('(').next().unwrap_or("").trim();
        functions.push((name, &body[..end]));
        rest = &body[end..];
    }
    let is_in_text = |name: &str| text.contains(&format!("\nfn {name}("));
    let mut called = vec![false; functions.len()];
    let mut unscanned: Vec<&str> = vec![text];
    while let Some(caller) = unscanned.pop() {
        let names: FxHashSet<&str> = tokens(caller).map(|(token, _)| token).collect();
        for (called, (name, body)) in called.iter_mut().zip(&functions) {
            if !*called && names.contains(name) && !is_in_text(name) {
                *called = true;
                unscanned.push(body);
            }
        }
    }
    let functions = functions.iter().zip(called).filter(|(_, called)| *called);
    functions.flat_map(|((_, body), _)| [body, "\n"]).collect()
}

/// Replaces each `@binding(auto)` by the next binding number.
fn number_bindings(text: &str) -> String {
    let mut sections = text.split("@binding(auto)");
    let mut out = String::with_capacity(text.len());
    out.push_str(sections.next().unwrap_or(""));
    for (index, section) in sections.enumerate() {
        out.push_str(&format!("@binding({index})"));
        out.push_str(section);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    static EMPTY: Source = Source::new::<u32>("test", "");

    fn target(params: ParamsBinding) -> Target {
        Target { compiler: Compiler::Naga, params, loads_u64: false }
    }

    fn expanded(text: &str, build: impl Fn(Variant) -> Variant) -> Result<String, String> {
        let variant = build(Variant::new(&EMPTY));
        Ok(expand_text(text, &variant, target(ParamsBinding::Uniform))?.text)
    }

    #[test]
    fn if_directives_keep_lines_by_flag() {
        let text = "//#if FAST\nfast\n//#else\nslow\n//#endif\n//#if !FAST\nalso slow\n//#endif\n\
                    //#if FAST !WIDE\nfast and narrow\n//#endif";
        assert_eq!(expanded(text, |v| v).unwrap(), "slow\nalso slow\n");
        let fast = |v: Variant| v.flag("FAST", true);
        assert_eq!(expanded(text, fast).unwrap(), "fast\nfast and narrow\n");
        assert_eq!(expanded(text, |v| fast(v).flag("WIDE", true)).unwrap(), "fast\n");
    }

    #[test]
    fn definitions_replace_defaults_and_whole_identifiers_only() {
        let text = "const N: u32 = 4u;\nalias E = f32;\nlet x: E = EXPR + EXPRESS;";
        let out = expanded(text, |v| v.int("N", 7).ty("E", "i32").expr("EXPR", "a * 2")).unwrap();
        assert_eq!(out, "const N: u32 = 7u;\nalias E = i32;\nlet x: E = a * 2 + EXPRESS;\n");
    }

    #[test]
    fn lines_have_origins() {
        let text = "struct Params {\n    n: u32,\n}\n//#if FAST\nfast\n//#else\n@group(0) @binding(auto) \
                    var<uniform> p: Params;\n//#endif\n@group(0) @binding(auto) var<storage> x: \
                    array<f32>;\n//#repeat I 2\nx[I]\n//#end\nlast";
        let variant = Variant::new(&EMPTY);
        let expansion = expand_text(text, &variant, target(ParamsBinding::Uniform)).unwrap();
        let origin = |part: &str| {
            let line = expansion.text.lines().position(|line| line.contains(part)).unwrap();
            expansion.origin(line + 1)
        };
        assert_eq!(origin("first_group"), None);
        assert_eq!(origin("n: u32, @align(16) launch"), Some(("test", 2)));
        assert_eq!(origin("var<uniform>"), Some(("test", 7)));
        assert_eq!(origin("(1u)"), Some(("test", 11)));
        assert_eq!(origin("last"), Some(("test", 13)));
        assert_eq!(expansion.origin(100), None);
    }

    #[test]
    fn bindings_are_numbered_after_lines_are_dropped() {
        let text = "@binding(auto) a\n//#if B\n@binding(auto) b\n//#endif\n@binding(auto) c";
        assert_eq!(expanded(text, |v| v).unwrap(), "@binding(0) a\n@binding(1) c\n");
    }

    #[test]
    fn parameters_are_a_binding_or_immediates() {
        let text = "@group(0) @binding(auto) var<uniform> p: Params;\n\
                    @group(0) @binding(auto) var<storage> x: array<f32>;";
        let variant = Variant::new(&EMPTY);
        let expanded = |params| expand_text(text, &variant, target(params)).unwrap().text;
        let uniform = expanded(ParamsBinding::Uniform);
        assert!(
            uniform.contains("@binding(0) var<uniform> p")
                && uniform.contains("@binding(1) var<storage> x")
        );
        let immediates = expanded(ParamsBinding::Immediates);
        assert!(
            immediates.contains("\nvar<immediate> p") || immediates.starts_with("var<immediate> p")
        );
        assert!(immediates.contains("@binding(0) var<storage> x"));
    }

    #[test]
    fn repeat_directives_count_and_nest() {
        let text = "//#repeat I N\n//#repeat J 2\nx[I * 2 + J] = I_;\n//#end\n//#end";
        let out = expanded(text, |v| v.int("N", 2)).unwrap();
        assert_eq!(
            out,
            "x[0u * 2 + 0u] = I_;\nx[0u * 2 + 1u] = I_;\n\
             x[1u * 2 + 0u] = I_;\nx[1u * 2 + 1u] = I_;\n"
        );
        assert!(expanded("//#repeat I 2\nx", |v| v).unwrap_err().contains("#repeat without #end"));
        let twice = "//#repeat I 4000000000\n//#repeat J 4000000000\n//#end\n//#end";
        assert!(expanded(twice, |v| v).unwrap_err().contains("repetitions"));
        assert!(expanded("//#repeat I M\n//#end", |v| v).unwrap_err().contains("malformed"));
    }

    #[test]
    fn for_directives_paste_items_into_identifiers_and_flags() {
        let text = "//#for X in A B\n//#if READ_X\nX X_in MAX[X] = X_;\n//#endif\n//#end";
        let out = expanded(text, |v| v.flag("READ_A", true).flag("READ_B", true)).unwrap();
        assert_eq!(out, "A A_in MAX[A] = A_;\nB B_in MAX[B] = B_;\n");
        assert_eq!(expanded(text, |v| v.flag("READ_B", true)).unwrap(), "B B_in MAX[B] = B_;\n");
        assert!(expanded("//#for X\n//#end", |v| v).unwrap_err().contains("malformed"));
    }

    #[test]
    fn used_extensions_are_enabled() {
        let text = "let x = f16(subgroupAdd(1));";
        let (naga, browser) = (Compiler::Naga, Compiler::Browser);
        assert_eq!(naga.enable_directives(text), "enable f16;\n");
        assert_eq!(browser.enable_directives(text), "enable f16;\nenable subgroups;\n");
        assert_eq!(browser.enable_directives("let f16_ = my_subgroup;"), "");
    }

    #[test]
    fn errors_name_the_directive_fragment_or_line() {
        let error = expanded("let x = 1;\n//#if A\n", |v| v).unwrap_err();
        assert_eq!(error, "test.wgsl:2: #if without #endif");
        assert!(expanded("//#include \"lib/none\"", |v| v).unwrap_err().contains("lib/none"));
        assert!(expanded("//#use \"lib/none\"", |v| v).unwrap_err().contains("test.wgsl:1"));
        assert!(expanded("//#what", |v| v).unwrap_err().contains("test.wgsl:1"));
    }

    #[test]
    fn use_directives_keep_only_called_functions() {
        let out = expanded("let y = is_nan(x);\n//#use \"lib/math\"", |v| v).unwrap();
        assert!(out.contains("fn is_nan(") && !out.contains("fn erf("));
    }
}
