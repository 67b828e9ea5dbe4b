//! Shader expansion: one WGSL file becomes many variants.
//!
//! The files under `shaders/` stay close to plain WGSL so that editors understand them. The
//! expander knows six things and nothing else:
//!
//! - `//#include "lib/name"` pulls in a fragment of `shaders/lib/`, once.
//! - `//#use "lib/name"` does the same but keeps only the functions that are called.
//! - `//#if FLAG`, `//#if !FLAG`, `//#else`, `//#endif` keep or drop lines.
//! - `const NAME: T = default;` and `alias NAME = T;` take the variant's definition of `NAME`.
//! - any other whole word that the variant defines as an expression is replaced by it.
//! - `@binding(auto)` numbers the bindings in the order in which they remain.

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
        Self {
            source,
            defs: Vec::with_capacity(8),
        }
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
    ("lib/conv", include_str!("../../shaders/lib/conv.wgsl")),
    ("lib/pool", include_str!("../../shaders/lib/pool.wgsl")),
    ("lib/gemm", include_str!("../../shaders/lib/gemm.wgsl")),
];

/// Turns a variant into the WGSL text that a compiler takes.
///
/// # Errors
///
/// A sentence naming the source and the line at fault: an unknown fragment or an `#if` without its
/// `#endif`. Both are mistakes in the crate, and the variants test finds them without a GPU.
pub fn expand(variant: &Variant) -> Result<String, String> {
    let mut out = String::with_capacity(variant.source.text.len() * 2);
    let mut used = Vec::new();
    let mut included = Vec::new();
    expand_into(
        variant,
        variant.source.name,
        variant.source.text,
        &mut out,
        &mut included,
        &mut used,
    )?;
    for fragment in used {
        let text = fragment_text(fragment, variant.source.name)?;
        let called = called_functions(&out, text);
        out.push_str(&called);
    }
    Ok(number_bindings(&out))
}

fn fragment_text(name: &str, from: &str) -> Result<&'static str, String> {
    FRAGMENTS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| format!("{from}: there is no shader fragment {name:?}"))
}

fn expand_into<'a>(
    variant: &Variant,
    name: &str,
    text: &'a str,
    out: &mut String,
    included: &mut Vec<&'a str>,
    used: &mut Vec<&'a str>,
) -> Result<(), String> {
    // One entry per open `#if`: whether its lines are kept.
    let mut open: Vec<bool> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = || format!("{name}.wgsl:{}", number + 1);
        let trimmed = line.trim();
        if let Some(directive) = trimmed.strip_prefix("//#") {
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            let rest = rest.trim().trim_matches('"');
            match word {
                "if" => {
                    let kept = match rest.strip_prefix('!') {
                        Some(flag) => variant.find(flag).is_none(),
                        None => variant.find(rest).is_some(),
                    };
                    open.push(kept);
                }
                "else" => {
                    let kept = open
                        .last_mut()
                        .ok_or_else(|| format!("{}: #else without #if", at()))?;
                    *kept = !*kept;
                }
                "endif" => {
                    open.pop()
                        .ok_or_else(|| format!("{}: #endif without #if", at()))?;
                }
                "include" | "use" if open.iter().all(|kept| *kept) => {
                    if word == "use" {
                        used.push(rest);
                    } else if !included.contains(&rest) {
                        included.push(rest);
                        let text = fragment_text(rest, &at())?;
                        expand_into(variant, rest, text, out, included, used)?;
                    }
                }
                "include" | "use" => {}
                other => return Err(format!("{}: unknown directive #{other}", at())),
            }
        } else if open.iter().all(|kept| *kept) && !trimmed.starts_with("//") {
            substitute(variant, line, out);
            out.push('\n');
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{name}.wgsl: #if without #endif"))
    }
}

/// Applies the variant's definitions to one line.
fn substitute(variant: &Variant, line: &str, out: &mut String) {
    let trimmed = line.trim_start();
    if let Some(rest) = trimmed.strip_prefix("const ")
        && let Some((name, _)) = rest.split_once(':')
        && let Some(Def::Int(value)) = variant.find(name.trim())
    {
        out.push_str(&format!("const {}: u32 = {value}u;", name.trim()));
        return;
    }
    if let Some(rest) = trimmed.strip_prefix("alias ")
        && let Some((name, _)) = rest.split_once('=')
        && let Some(Def::Type(value)) = variant.find(name.trim())
    {
        out.push_str(&format!("alias {} = {value};", name.trim()));
        return;
    }
    for (word, is_name) in words(line) {
        match variant.find(word) {
            Some(Def::Expr(value)) if is_name => {
                out.push_str(value);
            }
            _ => out.push_str(word),
        }
    }
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
    wanted
        .iter()
        .flat_map(|&index| [functions[index].1, "\n"])
        .collect()
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
        expand(&build(Variant::new(source)))
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
        assert_eq!(
            out,
            "const N: u32 = 7u;\nalias E = i32;\nlet x: E = a * 2 + EXPRESS;\n"
        );
    }

    #[test]
    fn bindings_are_numbered_as_they_remain() {
        let text = "@binding(auto) a\n//#if B\n@binding(auto) b\n//#endif\n@binding(auto) c";
        assert_eq!(
            expanded(text, |v| v).unwrap(),
            "@binding(0) a\n@binding(1) c\n"
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(
            expanded("//#if A\n", |v| v)
                .unwrap_err()
                .contains("#if without #endif")
        );
        assert!(
            expanded("//#include \"lib/none\"", |v| v)
                .unwrap_err()
                .contains("lib/none")
        );
        assert!(
            expanded("//#what", |v| v)
                .unwrap_err()
                .contains("test.wgsl:1")
        );
    }

    #[test]
    fn only_called_functions_are_kept() {
        let out = expanded("let y = is_nan(x);\n//#use \"lib/math\"", |v| v).unwrap();
        assert!(out.contains("fn is_nan(") && !out.contains("fn erf("));
    }
}
