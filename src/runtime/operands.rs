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

use super::shader::tokens;

/// An operand: a storage buffer of a shader, an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operand {
    pub name: String,
    /// The size of an element in bytes.
    pub element_size: u32,
}

/// Returns the operands that a shader declares, in binding order.
///
/// # Errors
///
/// Returns an error if an operand is not an array of scalars or vectors.
pub(super) fn declared(text: &str) -> Result<Vec<Operand>, String> {
    let declarations = text.lines().filter_map(|line| line.split_once("var<storage").map(|d| d.1));
    declarations
        .map(|declaration| {
            let unsupported = || format!("unsupported operand `var<storage{declaration}`");
            let (_, declaration) = declaration.split_once('>').ok_or_else(unsupported)?;
            let (name, ty) = declaration.split_once(':').ok_or_else(unsupported)?;
            let ty = ty.trim().trim_end_matches(';');
            let element = ty.strip_prefix("array<").and_then(|ty| ty.strip_suffix('>'));
            let element_size =
                element.and_then(|ty| size_of_type(ty, text)).ok_or_else(unsupported)?;
            Ok(Operand { name: name.trim().to_owned(), element_size })
        })
        .collect()
}

/// Returns the size of a scalar, vector or alias in bytes; `None` for other types.
fn size_of_type(ty: &str, text: &str) -> Option<u32> {
    let scalar = |inner: &str| size_of_type(inner.strip_suffix('>')?, text);
    match ty {
        "f32" | "u32" | "i32" => Some(4),
        "u64" | "i64" => Some(8),
        "f16" => Some(2),
        _ if ty.starts_with("vec2<") => Some(2 * scalar(&ty[5..])?),
        _ if ty.starts_with("vec4<") => Some(4 * scalar(&ty[5..])?),
        _ if ty.starts_with("atomic<") => scalar(&ty[7..]),
        _ => {
            let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("alias "));
            let (_, target) = lines
                .find_map(|alias| alias.split_once('=').filter(|(name, _)| name.trim() == ty))?;
            size_of_type(target.trim().trim_end_matches(';').trim(), text)
        }
    }
}

/// Appends the struct `Launch` to the parameters, and adds to every index of an operand its first
/// element.
pub(super) fn add_bases(text: &str, operands: &[Operand]) -> String {
    let Some(text) = append_to_params(text) else { return text.to_owned() };
    let mut out = String::from("struct Launch {\n    first_group: u32,\n");
    for Operand { name, .. } in operands {
        out.push_str(&format!("    first_{name}: u32,\n"));
    }
    out.push_str("}\n\n");
    // Depth of the brackets, and the depths at which the index of an operand ends.
    let (mut depth, mut ends) = (0, Vec::new());
    let (mut indexed, mut previous) = (None, '\0');
    for (token, is_identifier) in tokens(&text) {
        if is_identifier {
            let operand = operands.iter().find(|operand| operand.name == token);
            indexed = operand.filter(|_| previous != '.');
            out.push_str(token);
        } else {
            for (position, symbol) in token.char_indices() {
                out.push(symbol);
                match symbol {
                    '[' => {
                        depth += 1;
                        if let Some(Operand { name, .. }) = indexed.filter(|_| position == 0) {
                            out.push_str(&format!("p.launch.first_{name} + ("));
                            ends.push(depth);
                        }
                    }
                    ']' => {
                        if ends.last() == Some(&depth) {
                            ends.pop();
                            out.pop();
                            out.push_str(")]");
                        }
                        depth -= 1;
                    }
                    _ => {}
                }
            }
            indexed = None;
        }
        previous = token.chars().next_back().unwrap_or('\0');
    }
    out
}

/// Appends the field `launch` to `struct Params`; returns `None` if there is no such struct.
fn append_to_params(text: &str) -> Option<String> {
    let start = text.find("struct Params {")?;
    let end = text[start..].find("\n}")?;
    let (head, tail) = text.split_at(start + end);
    Some(format!("{head}\n    @align(16) launch: Launch,{tail}"))
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
        let error = declared("var<storage, read> x: Table;").expect_err("not an array");
        assert!(error.contains("x: Table"), "{error}");
    }

    #[test]
    fn indices_of_operands_and_no_others_begin_at_the_operand() {
        let text = add_bases(SHADER, &declared(SHADER).expect("all are arrays"));
        assert!(text.contains("    count: u32,\n    @align(16) launch: Launch,\n}"), "{text}");
        assert!(text.contains("    first_order: u32,\n"), "{text}");
        let line = "out[p.launch.first_out + (i * 2u)].x = f32(x[p.launch.first_x + \
                    (order[p.launch.first_order + (i)] & 3)].y) + local[i] + s.x[i];";
        assert!(text.contains(line), "{text}");
    }
}
