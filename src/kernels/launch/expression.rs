//! Expressions of a program, compiled alone.

use crate::runtime::{Runtime, RuntimeError, Source, Variant};

/// Compiles an expression of `a` and `b`, which are f32.
///
/// # Errors
///
/// Returns an error if it does not compile.
pub(crate) fn compile(
    runtime: &Runtime,
    name: &'static str,
    wgsl: &'static str,
) -> Result<(), RuntimeError> {
    let text = format!(
        "//#use \"lib/integer\"\n//#use \"lib/math\"\n\
         @group(0) @binding(auto) var<storage, read_write> out: array<f32>;\n\
         fn value(a: f32, b: f32) -> f32 {{\n    return {wgsl};\n}}\n\
         @compute @workgroup_size(1)\nfn main() {{\n    out[0] = value(out[0], out[0]);\n}}\n"
    );
    // Once for each op of a program.
    let source = Box::leak(Box::new(Source::of_program(name, name, text.leak())));
    runtime.compile(Variant::new(source), (0, 1), size_of::<u32>())
}
