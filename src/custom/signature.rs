//! Signatures of kernels: `x: f32[.., n], order: i32[n] -> y: f32[.., n]`.
//!
//! A name stands for a size: all axes with the name have the same size. `..` stands for any number of axes, the same in
//! all operands that have it. An axis may also have a fixed size, such as `3`.

use std::collections::HashMap;

use crate::tensor::DType;

/// An axis of an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Axis {
    Named(String),
    Fixed(usize),
    /// Any number of axes.
    Rest,
}

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub name: String,
    pub dtype: DType,
    /// The axes as they are written.
    pub text: String,
    axes: Vec<Axis>,
}

/// The operands of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub inputs: Vec<Declared>,
    pub outputs: Vec<Declared>,
}

/// The names of element types in signatures.
const TYPES: [(&str, DType); 6] = [
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("i32", DType::I32),
    ("u32", DType::U32),
    ("bool", DType::Bool),
];

/// Returns the name of an element type in signatures.
pub(super) fn type_name(dtype: DType) -> String {
    let name = TYPES.iter().find(|(_, named)| *named == dtype).map(|(name, _)| *name);
    name.map_or_else(|| format!("{dtype:?}").to_lowercase(), str::to_owned)
}

impl Signature {
    /// Parses a signature.
    ///
    /// # Errors
    ///
    /// Returns a message that says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (inputs, outputs) =
            text.split_once("->").ok_or("expected `inputs -> outputs`, with an arrow")?;
        let [inputs, outputs] = [inputs, outputs].map(operands);
        let signature = Self { inputs: inputs?, outputs: outputs? };
        if signature.inputs.is_empty() || signature.outputs.is_empty() {
            return Err("a kernel has at least one input and one output".to_owned());
        }
        let mut names: Vec<&str> = signature.operands().map(|operand| &*operand.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two operands are named `{}`", pair[0]));
        }
        Ok(signature)
    }

    /// Returns the inputs and the outputs, in binding order.
    pub fn operands(&self) -> impl Iterator<Item = &Declared> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// Returns whether an axis has a name.
    pub fn has_axis(&self, name: &str) -> bool {
        let mut axes = self.operands().flat_map(|operand| &operand.axes);
        axes.any(|axis| matches!(axis, Axis::Named(other) if other == name))
    }

    /// Returns the shapes of the outputs. `sizes` are those of names that no input has.
    ///
    /// # Errors
    ///
    /// Returns a message if a shape does not fit, or a size is not known.
    pub fn output_shapes(
        &self,
        shapes: &[Vec<usize>],
        sizes: &[(&str, usize)],
    ) -> Result<Vec<Vec<usize>>, String> {
        let mut bound = Bound::default();
        for (name, size) in sizes {
            bound.sizes.insert((*name).to_owned(), (*size, "the call".to_owned()));
        }
        for (input, shape) in self.inputs.iter().zip(shapes) {
            bound.bind(input, shape)?;
        }
        self.outputs.iter().map(|output| bound.shape(output)).collect()
    }
}

/// The sizes of names, with the operands that they are from.
#[derive(Default)]
struct Bound {
    sizes: HashMap<String, (usize, String)>,
    rest: Option<(Vec<usize>, String)>,
}

impl Bound {
    fn bind(&mut self, input: &Declared, shape: &[usize]) -> Result<(), String> {
        let Declared { name, text, axes, .. } = input;
        let mismatch = |reason: String| {
            Err(format!("`{name}` has the shape {shape:?}, which is not [{text}]: {reason}"))
        };
        let rest = axes.iter().position(|axis| *axis == Axis::Rest);
        let fixed = axes.len() - usize::from(rest.is_some());
        if shape.len() < fixed || (rest.is_none() && shape.len() != fixed) {
            return mismatch(format!("it has {} axes", shape.len()));
        }
        let rest_len = shape.len() - fixed;
        let mut at = 0;
        for axis in axes {
            match axis {
                Axis::Rest => {
                    let found = &shape[at..at + rest_len];
                    at += rest_len;
                    match &self.rest {
                        Some((known, from)) if known != found => {
                            return mismatch(format!("`..` is {known:?} in `{from}`"));
                        }
                        _ => self.rest = Some((found.to_vec(), name.clone())),
                    }
                    continue;
                }
                Axis::Fixed(size) if *size != shape[at] => {
                    return mismatch(format!("axis {at} is {}", shape[at]));
                }
                Axis::Fixed(_) => {}
                Axis::Named(axis) => match self.sizes.get(axis) {
                    Some((known, from)) if *known != shape[at] => {
                        return mismatch(format!("{axis} is {known} in `{from}`"));
                    }
                    Some(_) => {}
                    None => {
                        self.sizes.insert(axis.clone(), (shape[at], name.clone()));
                    }
                },
            }
            at += 1;
        }
        Ok(())
    }

    fn shape(&self, output: &Declared) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        for axis in &output.axes {
            match axis {
                Axis::Fixed(size) => shape.push(*size),
                Axis::Named(axis) => match self.sizes.get(axis) {
                    Some((size, _)) => shape.push(*size),
                    None => {
                        return Err(format!(
                            "the size {axis} of `{}` is not known; pass it with `Call::size`",
                            output.name
                        ));
                    }
                },
                Axis::Rest => match &self.rest {
                    Some((rest, _)) => shape.extend(rest),
                    None => return Err(format!("no input has the `..` of `{}`", output.name)),
                },
            }
        }
        Ok(shape)
    }
}

/// Parses a list of operands: `x: f32[n, m], y: i32[n]`.
fn operands(text: &str) -> Result<Vec<Declared>, String> {
    let mut rest = text.trim();
    let mut operands = Vec::new();
    while !rest.is_empty() {
        let end = rest.find(']').ok_or_else(|| format!("`{rest}` has no shape in brackets"))?;
        operands.push(operand(&rest[..end])?);
        rest = rest[end + 1..].trim_start();
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',').ok_or_else(|| format!("expected a comma before `{rest}`"))?;
        rest = rest.trim_start();
    }
    Ok(operands)
}

/// Parses an operand without its closing bracket: `x: f32[n, m`.
fn operand(text: &str) -> Result<Declared, String> {
    let expected = || format!("`{text}]`: expected `name: type[axes]`");
    let (name, rest) = text.split_once(':').ok_or_else(expected)?;
    let (ty, axes) = rest.split_once('[').ok_or_else(expected)?;
    let name = name.trim();
    if !is_name(name) {
        return Err(expected());
    }
    let ty = ty.trim();
    let dtype = TYPES.iter().find(|(name, _)| *name == ty).map(|(_, dtype)| *dtype);
    let dtype = dtype.ok_or_else(|| {
        let known = TYPES.map(|(name, _)| name).join(", ");
        format!("`{ty}` of `{name}` is not an element type; use {known}")
    })?;
    let text = axes.trim().to_owned();
    let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let axes: Vec<Axis> = axes
        .map(|axis| match axis.parse() {
            Ok(size) => Ok(Axis::Fixed(size)),
            Err(_) if axis == ".." => Ok(Axis::Rest),
            Err(_) if is_name(axis) => Ok(Axis::Named(axis.to_owned())),
            Err(_) => {
                Err(format!("the axis `{axis}` of `{name}` is neither a name, a size nor `..`"))
            }
        })
        .collect::<Result<_, _>>()?;
    if axes.iter().filter(|axis| **axis == Axis::Rest).count() > 1 {
        return Err(format!("`{name}` has several `..`"));
    }
    Ok(Declared { name: name.to_owned(), dtype, text, axes })
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(
        signature: &str,
        inputs: &[&[usize]],
        sizes: &[(&str, usize)],
    ) -> Result<Vec<Vec<usize>>, String> {
        let inputs: Vec<Vec<usize>> = inputs.iter().map(|shape| shape.to_vec()).collect();
        Signature::parse(signature)?.output_shapes(&inputs, sizes)
    }

    #[test]
    fn shapes_of_outputs_follow_from_those_of_inputs() {
        let product = "a: f32[.., m, k], b: f32[.., k, n] -> c: f32[.., m, n], rows: i32[m]";
        let found = shapes(product, &[&[5, 6, 2, 3], &[5, 6, 3, 4]], &[]);
        assert_eq!(found, Ok(vec![vec![5, 6, 2, 4], vec![2]]));
        assert_eq!(shapes(product, &[&[2, 3], &[3, 4]], &[]), Ok(vec![vec![2, 4], vec![2]]));
        let resized = "image: f32[n, 3, h, w] -> out: f32[n, 3, size, size]";
        assert_eq!(shapes(resized, &[&[1, 3, 7, 9]], &[("size", 4)]), Ok(vec![vec![1, 3, 4, 4]]));
        assert_eq!(shapes("x: f32[] -> y: bool[1]", &[&[]], &[]), Ok(vec![vec![1]]));
    }

    #[test]
    fn shapes_that_do_not_fit_are_explained() {
        let product = "a: f32[.., m, k], b: f32[.., k, n] -> c: f32[.., m, n]";
        let message = |inputs: &[&[usize]]| shapes(product, inputs, &[]).expect_err("it differs");
        let found = message(&[&[2, 3], &[4, 5]]);
        assert_eq!(found, "`b` has the shape [4, 5], which is not [.., k, n]: k is 3 in `a`");
        assert!(message(&[&[3], &[3, 5]]).ends_with("it has 1 axes"));
        assert!(message(&[&[7, 2, 3], &[8, 3, 5]]).ends_with("`..` is [7] in `a`"));
        let fixed = shapes("x: f32[n, 3] -> y: f32[n]", &[&[2, 4]], &[]).expect_err("3 is not 4");
        assert!(fixed.ends_with("axis 1 is 4"), "{fixed}");
        let unknown = shapes("x: f32[n] -> y: f32[m]", &[&[2]], &[]).expect_err("m is not known");
        assert!(unknown.contains("size m of `y`"), "{unknown}");
        let other = shapes("x: f32[n] -> y: f32[n]", &[&[2]], &[("n", 3)]).expect_err("n differs");
        assert!(other.ends_with("n is 3 in `the call`"), "{other}");
    }

    #[test]
    fn malformed_signatures_are_explained() {
        for (signature, part) in [
            ("x: f32[n]", "arrow"),
            ("-> y: f32[1]", "at least one input"),
            ("x: f32[n] ->", "one output"),
            ("x: f64[n] -> y: f32[n]", "`f64` of `x` is not an element type; use f32, f16"),
            ("x f32[n] -> y: f32[n]", "`x f32[n]`: expected `name: type[axes]`"),
            ("x: f32 -> y: f32[n]", "no shape in brackets"),
            ("x: f32[n] z: f32[n] -> y: f32[n]", "expected a comma before `z"),
            ("x: f32[n+1] -> y: f32[n]", "axis `n+1`"),
            ("x: f32[.., n, ..] -> y: f32[n]", "several `..`"),
            ("x: f32[n] -> x: f32[n]", "two operands are named `x`"),
        ] {
            let message = Signature::parse(signature).expect_err(signature);
            assert!(message.contains(part), "{signature}: {message}");
        }
    }
}
