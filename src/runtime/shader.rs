//! Shader expansion: one WGSL file becomes many variants.
//!
//! The files under `shaders/` stay close to plain WGSL so that editors understand them. The
//! expander knows seven things and nothing else:
//!
//! - `//#include "lib/name"` pulls in a fragment of `shaders/lib/`, once.
//! - `//#use "lib/name"` does the same but keeps only the functions that are called.
//! - `//#if FLAG`, `//#if !FLAG`, `//#else`, `//#endif` keep or drop lines.
//! - `//#repeat I N` ... `//#end` writes its lines N times, with the word `I` counting `0u`, `1u`, ....
//! - `const NAME: T = default;` and `alias NAME = T;` take the variant's definition of `NAME`.
//! - any other whole word that the variant defines as an expression is replaced by it.
//! - `@binding(auto)` numbers the bindings in the order in which they remain.
//!
//! What a compiler wants `enable`d, it adds by itself.

use std::borrow::Cow;
use std::fmt;

/// A WGSL file embedded in the crate. `name` is the word the kernel goes by everywhere.
#[derive(Debug)]
pub struct Source {
    /// The file's name without folder and extension.
    pub name: &'static str,
    /// The unexpanded text.
    pub text: &'static str,
}

/// The value a variant gives to a name in its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Def {
    /// Makes `//#if NAME` hold.
    Flag,
    /// Replaces the default of `const NAME`.
    Int(u32),
    /// Replaces the default of `alias NAME`.
    Type(&'static str),
    /// Replaces the word `NAME`.
    Expr(Cow<'static, str>),
}

/// One concrete kernel: a source and the definitions that specialise it.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The file.
    pub source: &'static Source,
    /// The definitions, in the order the launcher gives them.
    pub defs: Vec<(&'static str, Def)>,
}

impl PartialEq for Variant {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.source, other.source) && self.defs == other.defs
    }
}

impl Eq for Variant {}

impl std::hash::Hash for Variant {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.source).hash(state);
        self.defs.hash(state);
    }
}

impl Variant {
    /// The plain kernel of `source`, without any definition.
    pub fn new(source: &'static Source) -> Self {
        Self { source, defs: Vec::with_capacity(8) }
    }

    /// Sets a flag when `on`.
    pub fn flag(mut self, name: &'static str, on: bool) -> Self {
        if on {
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

    /// Sets an expression.
    pub fn expr(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.defs.push((name, Def::Expr(value.into())));
        self
    }

    fn find(&self, name: &str) -> Option<&Def> {
        self.defs.iter().find(|(n, _)| *n == name).map(|(_, d)| d)
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
            }
        }
        Ok(())
    }
}

/// The fragments that sources may include.
const FRAGMENTS: &[(&str, &str)] = &[
    ("lib/grid", include_str!("../../shaders/lib/grid.wgsl")),
    ("lib/layout", include_str!("../../shaders/lib/layout.wgsl")),
    ("lib/math", include_str!("../../shaders/lib/math.wgsl")),
    ("lib/integer", include_str!("../../shaders/lib/integer.wgsl")),
    ("lib/convert", include_str!("../../shaders/lib/convert.wgsl")),
    ("lib/half", include_str!("../../shaders/lib/half.wgsl")),
    ("lib/window", include_str!("../../shaders/lib/window.wgsl")),
    ("lib/conv", include_str!("../../shaders/lib/conv.wgsl")),
    ("lib/deform", include_str!("../../shaders/lib/deform.wgsl")),
    ("lib/depthwise", include_str!("../../shaders/lib/depthwise.wgsl")),
    ("lib/neighbours", include_str!("../../shaders/lib/neighbours.wgsl")),
    ("lib/pool", include_str!("../../shaders/lib/pool.wgsl")),
    ("lib/ctc", include_str!("../../shaders/lib/ctc.wgsl")),
    ("lib/quad", include_str!("../../shaders/lib/quad.wgsl")),
    ("lib/row", include_str!("../../shaders/lib/row.wgsl")),
    ("lib/team", include_str!("../../shaders/lib/team.wgsl")),
    ("lib/gemm", include_str!("../../shaders/lib/gemm.wgsl")),
];

/// Who compiles the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// naga, which wgpu brings along.
    Naga,
    /// The browser's own.
    Browser,
}

impl Compiler {
    /// The one that this build of the crate meets.
    pub const HERE: Self = if cfg!(target_family = "wasm") { Self::Browser } else { Self::Naga };

    /// The directives that must precede a text. naga has subgroups without one, and does not know the word.
    fn enables(self, text: &str) -> String {
        let uses = |wanted: fn(&str) -> bool| words(text).any(|(word, _)| wanted(word));
        let mut enables = String::new();
        if uses(|word| word == "f16") {
            enables.push_str("enable f16;\n");
        }
        if self == Self::Browser && uses(|word| word.starts_with("subgroup")) {
            enables.push_str("enable subgroups;\n");
        }
        enables
    }
}

/// How a kernel gets its `Params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamsIn {
    /// In a uniform buffer, the first binding.
    Uniform,
    /// Within the command that launches it.
    Immediates,
}

/// What a kernel is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Who compiles it.
    pub compiler: Compiler,
    /// Where its parameters are.
    pub params: ParamsIn,
    /// Whether four words are best moved as two of 64 bits: the flag `WIDE`.
    pub wide: bool,
}

/// How every source declares its parameters.
const UNIFORM_PARAMS: &str = "@group(0) @binding(auto) var<uniform> p:";

/// Turns a variant into the WGSL text that a compiler takes.
///
/// # Errors
///
/// A sentence naming the source and the line at fault: an unknown fragment, or a directive that is not
/// closed. All are mistakes in the crate, and the variants test finds them without a GPU.
pub fn expand(variant: &Variant, target: Target) -> Result<String, String> {
    let variant = &variant.clone().flag("WIDE", target.wide);
    let mut expander =
        Expander { variant, out: String::new(), included: vec![], used: vec![], counters: vec![] };
    expander.source(variant.source.name, variant.source.text)?;
    let Expander { mut out, used, .. } = expander;
    for fragment in used {
        let text = fragment_text(fragment, variant.source.name)?;
        let called = called_functions(&out, text);
        out.push_str(&called);
    }
    if target.params == ParamsIn::Immediates {
        out = out.replacen(UNIFORM_PARAMS, "var<immediate> p:", 1);
    }
    let enables = target.compiler.enables(&out);
    Ok(enables + &number_bindings(&out))
}

fn fragment_text(name: &str, from: &str) -> Result<&'static str, String> {
    FRAGMENTS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| format!("{from}: there is no shader fragment {name:?}"))
}

struct Expander<'a> {
    variant: &'a Variant,
    out: String,
    included: Vec<&'static str>,
    used: Vec<&'static str>,
    /// The counters of the open repetitions.
    counters: Vec<(&'static str, u32)>,
}

impl Expander<'_> {
    fn source(&mut self, name: &str, text: &'static str) -> Result<(), String> {
        let lines: Vec<(usize, &'static str)> = text.lines().enumerate().collect();
        self.lines(name, &lines)
    }

    fn lines(&mut self, name: &str, lines: &[(usize, &'static str)]) -> Result<(), String> {
        // One entry per open `#if`: whether its lines are kept.
        let mut open: Vec<bool> = Vec::new();
        let mut next = 0;
        while let Some(&(number, line)) = lines.get(next) {
            next += 1;
            let at = || format!("{name}.wgsl:{}", number + 1);
            let kept = open.iter().all(|kept| *kept);
            let Some(directive) = line.trim().strip_prefix("//#") else {
                if kept && !line.trim_start().starts_with("//") {
                    self.line(line);
                }
                continue;
            };
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            let rest = rest.trim().trim_matches('"');
            match word {
                "if" => open.push(match rest.strip_prefix('!') {
                    Some(flag) => self.variant.find(flag).is_none(),
                    None => self.variant.find(rest).is_some(),
                }),
                "else" => {
                    let kept =
                        open.last_mut().ok_or_else(|| format!("{}: #else without #if", at()))?;
                    *kept = !*kept;
                }
                "endif" => {
                    open.pop().ok_or_else(|| format!("{}: #endif without #if", at()))?;
                }
                "repeat" => {
                    let len = body_len(&lines[next..])
                        .ok_or_else(|| format!("{}: #repeat without #end", at()))?;
                    let body = &lines[next..next + len];
                    next += len + 1;
                    if !kept {
                        continue;
                    }
                    let (counter, times) = self.repetition(rest).ok_or_else(|| {
                        format!("{}: #repeat needs a name and a count, not {rest:?}", at())
                    })?;
                    for value in 0..times {
                        self.counters.push((counter, value));
                        self.lines(name, body)?;
                        self.counters.pop();
                    }
                }
                "include" if kept && !self.included.contains(&rest) => {
                    self.included.push(rest);
                    self.source(rest, fragment_text(rest, &at())?)?;
                }
                "use" if kept => self.used.push(rest),
                "include" | "use" => {}
                other => return Err(format!("{}: unknown directive #{other}", at())),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("{name}.wgsl: #if without #endif")) }
    }

    /// The counter of a repetition and how often it runs: a number, or a constant of the variant.
    fn repetition(&self, text: &'static str) -> Option<(&'static str, u32)> {
        let (counter, times) = text.split_once(' ')?;
        let times = match self.variant.find(times) {
            Some(Def::Int(value)) => *value,
            _ => times.parse().ok()?,
        };
        Some((counter, times))
    }

    /// Applies the variant's definitions to one line.
    fn line(&mut self, line: &'static str) {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("const ")
            && let Some((name, _)) = rest.split_once(':')
            && let Some(Def::Int(value)) = self.variant.find(name.trim())
        {
            self.out.push_str(&format!("const {}: u32 = {value}u;\n", name.trim()));
            return;
        }
        if let Some(rest) = trimmed.strip_prefix("alias ")
            && let Some((name, _)) = rest.split_once('=')
            && let Some(Def::Type(value)) = self.variant.find(name.trim())
        {
            self.out.push_str(&format!("alias {} = {value};\n", name.trim()));
            return;
        }
        for (word, is_name) in words(line) {
            if let Some((_, value)) = self.counters.iter().find(|(name, _)| *name == word) {
                self.out.push_str(&format!("{value}u"));
                continue;
            }
            match self.variant.find(word) {
                Some(Def::Expr(value)) if is_name => self.out.push_str(value),
                _ => self.out.push_str(word),
            }
        }
        self.out.push('\n');
    }
}

/// How many lines there are before the `#end` of a repetition that has just been opened.
fn body_len(lines: &[(usize, &str)]) -> Option<usize> {
    let mut depth = 1;
    lines.iter().position(|(_, line)| {
        let line = line.trim();
        depth += i32::from(line.starts_with("//#repeat"));
        depth -= i32::from(line == "//#end");
        depth == 0
    })
}

/// Splits text into identifiers (true) and everything between them (false).
fn words(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let in_word = is_word(first);
        let end = rest.find(|c| is_word(c) != in_word).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(end);
        rest = tail;
        Some((head, in_word))
    })
}

/// The functions of a fragment that `text`, or a function it calls, mentions by name.
fn called_functions(text: &str, fragment: &'static str) -> String {
    let mut functions: Vec<(&str, &str)> = Vec::new();
    let mut rest = fragment;
    while let Some(start) = rest.find("\nfn ") {
        let body = &rest[start + 1..];
        let end = body.find("\n}").map_or(body.len(), |e| e + 2);
        let name = body[3..].split('(').next().unwrap_or("").trim();
        functions.push((name, &body[..end]));
        rest = &body[end..];
    }
    let mut wanted: Vec<usize> = Vec::new();
    let mut queue: Vec<&str> = vec![text];
    while let Some(text) = queue.pop() {
        for (index, (name, body)) in functions.iter().enumerate() {
            if !wanted.contains(&index) && words(text).any(|(word, _)| word == *name) {
                wanted.push(index);
                queue.push(body);
            }
        }
    }
    wanted.sort_unstable();
    wanted.iter().flat_map(|&index| [functions[index].1, "\n"]).collect()
}

fn number_bindings(text: &str) -> String {
    let mut parts = text.split("@binding(auto)");
    let mut out = String::with_capacity(text.len());
    out.push_str(parts.next().unwrap_or(""));
    for (index, part) in parts.enumerate() {
        out.push_str(&format!("@binding({index})"));
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &'static str, build: impl Fn(Variant) -> Variant) -> Result<String, String> {
        let source: &'static Source = Box::leak(Box::new(Source { name: "test", text }));
        expand(
            &build(Variant::new(source)),
            Target { compiler: Compiler::Naga, params: ParamsIn::Uniform, wide: false },
        )
    }

    #[test]
    fn flags_choose_lines() {
        let text = "//#if FAST\nfast\n//#else\nslow\n//#endif\n//#if !FAST\nalso slow\n//#endif";
        assert_eq!(expanded(text, |v| v).unwrap(), "slow\nalso slow\n");
        assert_eq!(expanded(text, |v| v.flag("FAST", true)).unwrap(), "fast\n");
    }

    #[test]
    fn definitions_replace_defaults_and_whole_words_only() {
        let text = "const N: u32 = 4u;\nalias E = f32;\nlet x: E = EXPR + EXPRESS;";
        let out = expanded(text, |v| v.int("N", 7).ty("E", "i32").expr("EXPR", "a * 2")).unwrap();
        assert_eq!(out, "const N: u32 = 7u;\nalias E = i32;\nlet x: E = a * 2 + EXPRESS;\n");
    }

    #[test]
    fn bindings_are_numbered_as_they_remain() {
        let text = "@binding(auto) a\n//#if B\n@binding(auto) b\n//#endif\n@binding(auto) c";
        assert_eq!(expanded(text, |v| v).unwrap(), "@binding(0) a\n@binding(1) c\n");
    }

    #[test]
    fn parameters_are_a_binding_or_immediates() {
        let text = "@group(0) @binding(auto) var<uniform> p: Params;\n@group(0) @binding(auto) var<storage> x: X;";
        let source: &'static Source = Box::leak(Box::new(Source { name: "test", text }));
        let target = |params| Target { compiler: Compiler::Naga, params, wide: false };
        let expanded = |params| expand(&Variant::new(source), target(params)).unwrap();
        let uniform = expanded(ParamsIn::Uniform);
        assert!(
            uniform.contains("@binding(0) var<uniform> p")
                && uniform.contains("@binding(1) var<storage> x")
        );
        let immediate = expanded(ParamsIn::Immediates);
        assert!(
            immediate.contains("\nvar<immediate> p") || immediate.starts_with("var<immediate> p")
        );
        assert!(immediate.contains("@binding(0) var<storage> x"));
    }

    #[test]
    fn repetitions_count_and_nest() {
        let text = "//#repeat I N\n//#repeat J 2\nx[I * 2 + J] = I_;\n//#end\n//#end";
        let out = expanded(text, |v| v.int("N", 2)).unwrap();
        assert_eq!(
            out,
            "x[0u * 2 + 0u] = I_;\nx[0u * 2 + 1u] = I_;\nx[1u * 2 + 0u] = I_;\nx[1u * 2 + 1u] = I_;\n"
        );
        assert!(expanded("//#repeat I 2\nx", |v| v).unwrap_err().contains("#repeat without #end"));
        assert!(expanded("//#repeat I M\n//#end", |v| v).unwrap_err().contains("count"));
    }

    #[test]
    fn what_a_text_uses_is_enabled() {
        let enables = |compiler: Compiler, text| compiler.enables(text);
        let text = "let x = f16(subgroupAdd(1));";
        assert_eq!(enables(Compiler::Naga, text), "enable f16;\n");
        assert_eq!(enables(Compiler::Browser, text), "enable f16;\nenable subgroups;\n");
        assert_eq!(enables(Compiler::Browser, "let f16_ = my_subgroup;"), "");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(expanded("//#if A\n", |v| v).unwrap_err().contains("#if without #endif"));
        assert!(expanded("//#include \"lib/none\"", |v| v).unwrap_err().contains("lib/none"));
        assert!(expanded("//#what", |v| v).unwrap_err().contains("test.wgsl:1"));
    }

    #[test]
    fn only_called_functions_are_kept() {
        let out = expanded("let y = is_nan(x);\n//#use \"lib/math\"", |v| v).unwrap();
        assert!(out.contains("fn is_nan(") && !out.contains("fn erf("));
    }
}
