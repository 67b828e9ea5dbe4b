//! Operands that start anywhere in their buffers.
//!
//! The runtime binds whole buffers, so that small tensors in the same pages share bind groups. A
//! shader is written as if an operand began at index 0. The expander appends a struct to its
//! parameters: the first element of each operand, and the first workgroup of the launch, which
//! `lib/grid` reads. To every index of an operand it adds the operand's first element:
//!
//! ```wgsl
//! struct Launch {
//!     first_group: u32,
//!     first_x: u32,
//!     first_out: u32,
//! }
//!
//! out[p.launch.first_out + (i)] = x[p.launch.first_x + (i)];
//! ```
//!
//! An input with a [`PrologueCode`] is no buffer: its elements are computed, and `x[i]` becomes
//! `x_at(i)`. With an [`EpilogueCode`], `out[i] = v;` becomes `out_set(i, v);`, which goes on computing
//! with the element.

use super::tokens::tokens;

/// Code with which a kernel computes the elements of an input where it would read them. The
/// elements must have 32 bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrologueCode {
    /// The index of the input, in binding order.
    pub input: usize,
    /// For inputs that are bound as single elements.
    pub one: ElementCode,
    /// For inputs that are bound as vec4s.
    pub four: ElementCode,
    /// The number of words in the array `p.words` that the code reads.
    pub words: usize,
    /// What the variant's name says of the code.
    pub label: String,
}

/// Code with which a kernel goes on computing with the elements of its only output, instead of
/// storing them. The elements must have 32 bits, and the kernel stores each once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EpilogueCode {
    /// For outputs that are bound as single elements.
    pub one: ElementCode,
    /// For outputs that are bound as vec4s.
    pub four: ElementCode,
    /// The number of words in the array `p.words` that the code reads.
    pub words: usize,
    /// What the variant's name says of the code.
    pub label: String,
}

/// Code that computes an element, or four neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ElementCode {
    /// The name of a function. Of a prologue: it returns the bits, as `u32` or `vec4<u32>`, for the
    /// index of the (first) element. Of an epilogue: its arguments are that index and the bits.
    pub name: String,
    /// Declarations of the operands that are read.
    pub inputs: String,
    /// Declarations of the operands that are written.
    pub outputs: String,
    /// The function and those that it calls.
    pub functions: String,
}

/// An operand: a storage buffer of a shader, an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredOperand {
    /// The name of the buffer.
    pub name: String,
    /// The type of an element.
    pub element: String,
    /// The scalar type of its components.
    pub scalar: String,
    /// The size of an element in bytes.
    pub element_size: u32,
    /// Whether the shader may write it.
    pub is_written: bool,
}

/// Returns the operands that a shader declares, in binding order.
///
/// # Errors
///
/// Returns an error if an operand is not an array of scalars or vectors.
pub(super) fn declared(text: &str) -> Result<Vec<DeclaredOperand>, String> {
    let declarations = text.lines().filter_map(|line| line.split_once("var<storage").map(|d| d.1));
    declarations
        .map(|declaration| {
            let unsupported = || format!("unsupported operand `var<storage{declaration}`");
            let (access, declaration) = declaration.split_once('>').ok_or_else(unsupported)?;
            let (name, ty) = declaration.split_once(':').ok_or_else(unsupported)?;
            let ty = ty.trim().trim_end_matches(';');
            let element = ty.strip_prefix("array<").and_then(|ty| ty.strip_suffix('>'));
            let element_size =
                element.and_then(|ty| size_of_type(ty, text, MAX_DEPTH)).ok_or_else(unsupported)?;
            let element = element.unwrap_or_default();
            Ok(DeclaredOperand {
                name: name.trim().to_owned(),
                element: element.to_owned(),
                scalar: scalar_of(element, text, MAX_DEPTH).to_owned(),
                element_size,
                is_written: access.contains("read_write"),
            })
        })
        .collect()
}

/// How deep a type may be nested in aliases and vectors. A text of a program may have an alias of itself.
const MAX_DEPTH: u32 = 8;

/// Returns the size of a scalar, vector or alias in bytes; `None` for other types, and for those nested deeper than
/// `depth`.
fn size_of_type(ty: &str, text: &str, depth: u32) -> Option<u32> {
    let depth = depth.checked_sub(1)?;
    let scalar = |inner: &str| size_of_type(inner.strip_suffix('>')?, text, depth);
    match ty {
        "f32" | "u32" | "i32" => Some(4),
        "u64" | "i64" => Some(8),
        "f16" => Some(2),
        _ if ty.starts_with("vec2<") => Some(2 * scalar(&ty[5..])?),
        _ if ty.starts_with("vec4<") => Some(4 * scalar(&ty[5..])?),
        _ if ty.starts_with("atomic<") => scalar(&ty[7..]),
        _ => size_of_type(alias_target(ty, text)?, text, depth),
    }
}

/// Returns the type of the components of a scalar, vector, atomic or alias, nested at most `depth` deep.
fn scalar_of<'a>(ty: &'a str, text: &'a str, depth: u32) -> &'a str {
    let Some(depth) = depth.checked_sub(1) else { return ty };
    match (ty.split_once('<'), alias_target(ty, text)) {
        (Some((_, inner)), _) => scalar_of(inner.strip_suffix('>').unwrap_or(inner), text, depth),
        (None, Some(target)) => scalar_of(target, text, depth),
        (None, None) => ty,
    }
}

/// Returns the type that an alias stands for.
fn alias_target<'a>(alias: &str, text: &'a str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("alias "));
    let (_, target) =
        lines.find_map(|line| line.split_once('=').filter(|(name, _)| name.trim() == alias))?;
    Some(target.trim().trim_end_matches(';').trim())
}

/// Replaces inputs by the code that computes their elements, `x[i]` by `x_at(i)`, and the output by
/// the code that goes on computing with its elements, `out[i] = v;` by `out_set(i, v);`. What
/// prologues write is bound after all other operands.
///
/// # Errors
///
/// Returns an error if there is no such operand, its elements do not have 32 bits, or the kernel
/// does not only store its output.
pub(super) fn fuse(
    text: &str,
    prologues: &[PrologueCode],
    epilogue: Option<&EpilogueCode>,
) -> Result<String, String> {
    let operands = declared(text)?;
    let mut out = text.to_owned();
    let (mut outputs, mut words) = (String::new(), 0);
    for prologue in prologues {
        let operand = operands.get(prologue.input).ok_or("a prologue of an operand it lacks")?;
        let DeclaredOperand { name, element, .. } = operand;
        let (code, index) = operand.code(&prologue.one, &prologue.four)?;
        let value = match is_words4(element, text) {
            true => format!("from_words({}({index}))", code.name),
            false => format!("bitcast<{element}>({}({index}))", code.name),
        };
        let function = format!("fn {name}_at(i: u32) -> {element} {{\n    return {value};\n}}\n");
        out = with_indices(&out, &[name], |name| (format!("{name}_at("), ")"));
        out = with_declaration(&out, name, &[&code.inputs, &code.functions, &function]);
        outputs.push_str(&code.outputs);
        words += prologue.words;
    }
    if let Some(epilogue) = epilogue {
        let operand = operands.last().ok_or("an epilogue of no output")?;
        let DeclaredOperand { name, element, .. } = operand;
        let (code, index) = operand.code(&epilogue.one, &epilogue.four)?;
        let bits = match (operand.element_size, is_words4(element, text)) {
            (_, true) => "to_words(value)",
            (4, _) => "bitcast<u32>(value)",
            _ => "bitcast<vec4<u32>>(value)",
        };
        let function = format!(
            "fn {name}_set(i: u32, value: {element}) {{\n    {}({index}, {bits});\n}}\n",
            code.name
        );
        out = with_stores(&out, name)?;
        let texts = [&code.inputs, &code.outputs, &code.functions, &function];
        out = with_declaration(&out, name, &texts);
        words += epilogue.words;
    }
    if !tokens(&out).any(|(token, _)| token == "A") {
        outputs.push_str("alias A = i32;\n");
    }
    out.push_str(&outputs);
    if words == 0 {
        return Ok(out);
    }
    let words = format!("words: array<vec4<u32>, {}>,", words.div_ceil(4));
    append_to_params(&out, &words).ok_or_else(|| "fused, but without `Params`".to_owned())
}

impl DeclaredOperand {
    /// Returns the code for the operand's elements, and the index of the first that is element `i`.
    fn code<'a>(
        &self,
        one: &'a ElementCode,
        four: &'a ElementCode,
    ) -> Result<(&'a ElementCode, &'static str), String> {
        match self.element_size {
            4 => Ok((one, "i")),
            16 => Ok((four, "i * 4u")),
            _ => Err(format!("operand {} of {} cannot be fused", self.name, self.element)),
        }
    }
}

/// Replaces the declaration of an operand.
fn with_declaration(text: &str, name: &str, replacement: &[&String]) -> String {
    let lines = text.lines().map(|line| match declares(line, name) {
        true => replacement.iter().map(|text| text.as_str()).collect(),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// Replaces each store to an operand, `out[i] = v;`, by `out_set(i, v);`.
fn with_stores(text: &str, name: &str) -> Result<String, String> {
    let text = with_indices(text, &[name], |name| (format!("{name}_set("), "\u{0}"));
    let mut sections = text.split('\u{0}');
    let mut out = sections.next().unwrap_or_default().to_owned();
    for section in sections {
        let (value, rest) = section
            .strip_prefix(" = ")
            .and_then(|section| section.split_once(';'))
            .ok_or_else(|| format!("operand {name} is not only stored: {name}[..]{section}"))?;
        out.push_str(&format!(", {value});{rest}"));
    }
    Ok(out)
}

/// Returns whether a line declares this operand.
fn declares(line: &str, name: &str) -> bool {
    let declaration = line.split_once("var<storage").and_then(|(_, rest)| rest.split_once('>'));
    declaration
        .and_then(|(_, rest)| rest.split_once(':'))
        .is_some_and(|(found, _)| found.trim() == name)
}

/// Returns whether a type is `Words4` of `lib/vec4`, or an alias of it.
fn is_words4(ty: &str, text: &str) -> bool {
    let mut names = std::iter::successors(Some(ty), |ty| alias_target(ty, text));
    names.by_ref().take(MAX_DEPTH as usize).any(|name| name == "Words4")
}

/// Appends the struct `Launch` to the parameters, and adds to every index of an operand its first
/// element.
pub(super) fn add_bases(text: &str, operands: &[DeclaredOperand]) -> String {
    let Some(text) = append_to_params(text, "launch: Launch,") else { return text.to_owned() };
    let mut out = String::from("struct Launch {\n    first_group: u32,\n");
    for DeclaredOperand { name, .. } in operands {
        out.push_str(&format!("    first_{name}: u32,\n"));
    }
    out.push_str("}\n\n");
    let names: Vec<&str> = operands.iter().map(|operand| operand.name.as_str()).collect();
    let from_base = |name: &str| (format!("{name}[p.launch.first_{name} + ("), ")]");
    out.push_str(&with_indices(&text, &names, from_base));
    out
}

/// Replaces what precedes and what follows the indices of operands: the operand's name and the
/// opening bracket, and the closing bracket.
fn with_indices(
    text: &str,
    names: &[&str],
    around: impl Fn(&str) -> (String, &'static str),
) -> String {
    let mut out = String::with_capacity(text.len());
    // Depth of the brackets, and for each index that is open, its depth and what follows it.
    let (mut depth, mut open) = (0, Vec::new());
    let (mut operand, mut previous) = (None, '\0');
    for (token, is_identifier) in tokens(text) {
        if is_identifier {
            operand = names.iter().find(|&&name| name == token && previous != '.');
            out.push_str(token);
        } else {
            for (position, symbol) in token.char_indices() {
                out.push(symbol);
                match symbol {
                    '[' => {
                        depth += 1;
                        if let Some(name) = operand.filter(|_| position == 0) {
                            let (before, after) = around(name);
                            out.truncate(out.len() - name.len() - 1);
                            out.push_str(&before);
                            open.push((depth, after));
                        }
                    }
                    ']' => {
                        if let Some((_, after)) = open.pop_if(|(at, _)| *at == depth) {
                            out.pop();
                            out.push_str(after);
                        }
                        depth -= 1;
                    }
                    _ => {}
                }
            }
            operand = None;
        }
        previous = token.chars().next_back().unwrap_or('\0');
    }
    out
}

/// Appends a field to `struct Params`, without adding a line; returns `None` if there is no such struct.
fn append_to_params(text: &str, field: &str) -> Option<String> {
    let start = text.find("struct Params {")?;
    let end = start + text[start..].find('}')?;
    let fields = text[..end].trim_end();
    let comma = if fields.ends_with([',', '{']) { "" } else { "," };
    Some(format!("{fields}{comma} @align(16) {field}{}", &text[fields.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADER: &str = "\
alias Words = vec4<E>;
alias E = u32;
struct Params {
    count: u32,
}
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<Words>;
@group(0) @binding(auto) var<storage, read> order: array<i32>;
@group(0) @binding(auto) var<storage, read_write> out: array<vec2<f32>>;
fn f(i: u32, local: vec4<f32>) -> u32 {
    out[i * 2u].x = f32(x[order[i] & 3].y) + local[i] + s.x[i];
}
";

    #[test]
    fn operands_have_names_and_sizes() {
        let operands = declared(SHADER).expect("all are arrays");
        let names: Vec<_> = operands.iter().map(|o| (o.name.as_str(), o.element_size)).collect();
        assert_eq!(names, [("x", 16), ("order", 4), ("out", 8)]);
        let scalars: Vec<_> = operands.iter().map(|operand| &*operand.scalar).collect();
        assert_eq!(scalars, ["u32", "i32", "f32"]);
        let is_written: Vec<_> = operands.iter().map(|operand| operand.is_written).collect();
        assert_eq!(is_written, [false, false, true]);
        let error = declared("var<storage, read> x: Table;").expect_err("not an array");
        assert!(error.contains("x: Table"), "{error}");
    }

    fn code(name: &str) -> ElementCode {
        let declare = |access: &str, operand: &str| {
            format!("@group(0) @binding(auto) var<storage, {access}> {operand}: array<u32>;\n")
        };
        ElementCode {
            name: name.to_owned(),
            inputs: declare("read", &format!("{name}_leaf")),
            outputs: declare("read_write", &format!("{name}_held")),
            functions: String::new(),
        }
    }

    #[test]
    fn computed_inputs_are_calls() {
        let (one, four, label) = (code("one"), code("four"), String::new());
        let prologue = PrologueCode { input: 1, one, four, words: 5, label };
        let text = fuse(SHADER, &[prologue], None).expect("`order` is an array of words");
        assert!(text.contains("f32(x[order_at(i) & 3].y)"), "{text}");
        let function = "fn order_at(i: u32) -> i32 {\n    return bitcast<i32>(one(i));";
        assert!(text.contains(function), "{text}");
        assert!(text.contains("u32, @align(16) words: array<vec4<u32>, 2>,\n}"), "{text}");
        let operands = declared(&text).expect("all are arrays");
        let names: Vec<_> = operands.iter().map(|operand| operand.name.as_str()).collect();
        assert_eq!(names, ["x", "one_leaf", "out", "one_held"]);
    }

    #[test]
    fn stores_with_an_epilogue_are_calls() {
        let (one, four, label) = (code("one"), code("four"), String::new());
        let epilogue = EpilogueCode { one, four, words: 0, label };
        let error = fuse(SHADER, &[], Some(&epilogue)).expect_err("it has two components");
        assert!(error.contains("out of vec2<f32> cannot be fused"), "{error}");
        let text = SHADER.replace("out: array<vec2<f32>>", "out: array<f32>");
        let error = fuse(&text, &[], Some(&epilogue)).expect_err("it stores a component");
        assert!(error.contains("out is not only stored"), "{error}");
        let text = text.replace("].x = ", "] = ");
        let text = fuse(&text, &[], Some(&epilogue)).expect("it stores words");
        assert!(
            text.contains("    out_set(i * 2u, f32(x[order[i] & 3].y) + local[i] + s.x[i]);"),
            "{text}"
        );
        assert!(text.contains("    one(i, bitcast<u32>(value));"), "{text}");
        let operands = declared(&text).expect("all are arrays");
        let names: Vec<_> = operands.iter().map(|operand| operand.name.as_str()).collect();
        assert_eq!(names, ["x", "order", "one_leaf", "one_held"]);
    }

    #[test]
    fn fields_are_appended_to_structs_of_any_form() {
        for (params, expected) in [
            ("struct Params { n: u32 }", "struct Params { n: u32, @align(16) f: u32, }"),
            (
                "  struct Params {\n    n: u32,\n  }\n}",
                "  struct Params {\n    n: u32, @align(16) f: u32,\n  }\n}",
            ),
        ] {
            assert_eq!(append_to_params(params, "f: u32,").as_deref(), Some(expected));
        }
        assert_eq!(append_to_params("struct Other {}", "f: u32,"), None);
    }

    #[test]
    fn indices_of_operands_and_no_others_begin_at_the_operand() {
        let text = add_bases(SHADER, &declared(SHADER).expect("all are arrays"));
        assert!(text.contains("    count: u32, @align(16) launch: Launch,\n}"), "{text}");
        assert!(text.contains("    first_order: u32,\n"), "{text}");
        let line = "out[p.launch.first_out + (i * 2u)].x = f32(x[p.launch.first_x + \
                    (order[p.launch.first_order + (i)] & 3)].y) + local[i] + s.x[i];";
        assert!(text.contains(line), "{text}");
    }
}
