//! Lints over naga's IR: WGSL that is valid, but whose result depends on the compiler.
//!
//! - A store to one component of a vector in workgroup or storage memory. Compilers may load the
//!   vector, replace the component and store all of it, so two invocations that store to different
//!   components overwrite each other. No software adapter shows this.
//! - A comparison of a value with itself, or with infinity or NaN. Metal compiles with fast math,
//!   which assumes that neither exists. `is_nan` and `is_inf` test the bits instead.
//! - A local array of a type that parameters or buffers have, too: naga gives both one type, with a layout, which
//!   SPIR-V does not allow for locals.
//! - Zeros of two aliases of one type: naga defines the function that returns them twice in HLSL.
//! - A stride divided as an unsigned number. Negative strides wrap, so the quotient is a large
//!   positive number. Adapters that compute addresses in 32 bits hide this.

use std::collections::HashSet;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, BinaryOperator, Block, Expression, Function, Handle, Literal, Module, ScalarKind,
    Statement, Type, TypeInner, UnaryOperator,
};

/// Returns a message for each violation in `module`, whose validation gave `info`.
pub fn violations(module: &Module, info: &ModuleInfo) -> Vec<String> {
    let functions = module.functions.iter().map(|(handle, function)| {
        let name = function.name.as_deref().unwrap_or_default();
        (name, function, &info[handle])
    });
    let entry_points = module.entry_points.iter().enumerate();
    let entry_points = entry_points
        .map(|(index, entry)| (entry.name.as_str(), &entry.function, info.get_entry_point(index)));
    functions
        .chain(entry_points)
        .flat_map(|(name, function, info)| {
            let mut messages = Vec::new();
            let lint = Lint { module, function, info };
            lint.check_stores(&function.body, &mut messages);
            lint.check_comparisons(&mut messages);
            lint.check_strides(&mut messages);
            lint.check_locals(&mut messages);
            messages.into_iter().map(move |message| format!("{name}: {message}"))
        })
        .collect()
}

/// Returns the heads of functions that HLSL defines more than once.
pub fn functions_defined_twice(hlsl: &str) -> impl Iterator<Item = &str> {
    let mut heads = HashSet::new();
    let is_head = |line: &&str| line.ends_with(") {") && !line.starts_with([' ', '\t']);
    hlsl.lines().filter(is_head).filter(move |&line| !heads.insert(line))
}

/// Adds a type and those that it consists of.
fn add_types(module: &Module, ty: Handle<Type>, types: &mut HashSet<Handle<Type>>) {
    if !types.insert(ty) {
        return;
    }
    match &module.types[ty].inner {
        TypeInner::Array { base, .. } => add_types(module, *base, types),
        TypeInner::Struct { members, .. } => {
            members.iter().for_each(|member| add_types(module, member.ty, types));
        }
        _ => {}
    }
}

struct Lint<'a> {
    module: &'a Module,
    function: &'a Function,
    info: &'a FunctionInfo,
}

impl Lint<'_> {
    fn expression(&self, handle: Handle<Expression>) -> &Expression {
        &self.function.expressions[handle]
    }

    fn check_locals(&self, messages: &mut Vec<String>) {
        let mut with_layout = HashSet::new();
        let has_layout =
            |space| matches!(space, AddressSpace::Uniform | AddressSpace::Storage { .. });
        for (_, variable) in self.module.global_variables.iter() {
            if has_layout(variable.space) {
                add_types(self.module, variable.ty, &mut with_layout);
            }
        }
        for (_, variable) in self.function.local_variables.iter() {
            let is_array = matches!(self.module.types[variable.ty].inner, TypeInner::Array { .. });
            if is_array && with_layout.contains(&variable.ty) {
                messages.push(format!("the local {:?} has a layout", variable.name));
            }
        }
    }

    fn check_stores(&self, block: &Block, messages: &mut Vec<String>) {
        for statement in block {
            match statement {
                Statement::Store { pointer, .. } => {
                    if let Some(space) = self.component_space(*pointer) {
                        messages.push(format!("stores one component of a vector in {space:?}"));
                    }
                }
                Statement::Block(block) => self.check_stores(block, messages),
                Statement::If { accept, reject, .. } => {
                    self.check_stores(accept, messages);
                    self.check_stores(reject, messages);
                }
                Statement::Switch { cases, .. } => {
                    cases.iter().for_each(|case| self.check_stores(&case.body, messages));
                }
                Statement::Loop { body, continuing, .. } => {
                    self.check_stores(body, messages);
                    self.check_stores(continuing, messages);
                }
                _ => {}
            }
        }
    }

    /// Returns the address space if `pointer` is a component of a vector in shared memory.
    fn component_space(&self, pointer: Handle<Expression>) -> Option<AddressSpace> {
        let (Expression::Access { base, .. } | Expression::AccessIndex { base, .. }) =
            *self.expression(pointer)
        else {
            return None;
        };
        let space = match *self.info[base].ty.inner_with(&self.module.types) {
            TypeInner::Pointer { base, space }
                if matches!(self.module.types[base].inner, TypeInner::Vector { .. }) =>
            {
                space
            }
            TypeInner::ValuePointer { size: Some(_), space, .. } => space,
            _ => return None,
        };
        let shared = matches!(space, AddressSpace::WorkGroup | AddressSpace::Storage { .. });
        shared.then_some(space)
    }

    fn check_comparisons(&self, messages: &mut Vec<String>) {
        for (_, expression) in self.function.expressions.iter() {
            let Expression::Binary { op, left, right } = *expression else { continue };
            let compares = matches!(
                op,
                BinaryOperator::Equal
                    | BinaryOperator::NotEqual
                    | BinaryOperator::Less
                    | BinaryOperator::LessEqual
                    | BinaryOperator::Greater
                    | BinaryOperator::GreaterEqual
            );
            if compares && self.is_same(left, right) {
                messages.push(format!("{op:?} compares a value with itself"));
            }
            if compares && [left, right].iter().any(|&side| self.is_non_finite(side)) {
                messages.push(format!("{op:?} compares with infinity or NaN"));
            }
        }
    }

    fn check_strides(&self, messages: &mut Vec<String>) {
        for (_, expression) in self.function.expressions.iter() {
            let Expression::Binary { op, left, .. } = *expression else { continue };
            let divides = matches!(
                op,
                BinaryOperator::ShiftRight | BinaryOperator::Divide | BinaryOperator::Modulo
            );
            if divides
                && let Some(name) = self.unsigned_field(left)
                && name.contains("stride")
            {
                messages.push(format!("{op:?} of the unsigned `{name}`"));
            }
        }
    }

    /// Returns the name if an expression is the value of an unsigned field of a struct.
    fn unsigned_field(&self, value: Handle<Expression>) -> Option<&str> {
        let Expression::Load { pointer } = *self.expression(value) else { return None };
        let Expression::AccessIndex { base, index } = *self.expression(pointer) else {
            return None;
        };
        let TypeInner::Pointer { base, .. } = *self.info[base].ty.inner_with(&self.module.types)
        else {
            return None;
        };
        let TypeInner::Struct { ref members, .. } = self.module.types[base].inner else {
            return None;
        };
        let field = &members[index as usize];
        let kind = self.module.types[field.ty].inner.scalar_kind();
        (kind == Some(ScalarKind::Uint)).then(|| field.name.as_deref().unwrap_or_default())
    }

    /// Returns whether two expressions have the same value, unless there is a store between them.
    fn is_same(&self, a: Handle<Expression>, b: Handle<Expression>) -> bool {
        use Expression as E;
        if a == b {
            return true;
        }
        match (self.expression(a), self.expression(b)) {
            (E::LocalVariable(a), E::LocalVariable(b)) => a == b,
            (E::GlobalVariable(a), E::GlobalVariable(b)) => a == b,
            (E::FunctionArgument(a), E::FunctionArgument(b)) => a == b,
            (E::Literal(a), E::Literal(b)) => a == b,
            (E::Load { pointer: a }, E::Load { pointer: b }) => self.is_same(*a, *b),
            (E::Unary { op: x, expr: a }, E::Unary { op: y, expr: b }) => {
                x == y && self.is_same(*a, *b)
            }
            (E::AccessIndex { base: a, index: i }, E::AccessIndex { base: b, index: j }) => {
                i == j && self.is_same(*a, *b)
            }
            (E::Access { base: a, index: i }, E::Access { base: b, index: j }) => {
                self.is_same(*i, *j) && self.is_same(*a, *b)
            }
            _ => false,
        }
    }

    /// Returns whether an expression is infinity or NaN: a bit pattern, or the result of a function
    /// of `lib/math`.
    fn is_non_finite(&self, handle: Handle<Expression>) -> bool {
        match *self.expression(handle) {
            Expression::Literal(Literal::F32(value)) => !value.is_finite(),
            Expression::Unary { op: UnaryOperator::Negate, expr } => self.is_non_finite(expr),
            Expression::Splat { value, .. } => self.is_non_finite(value),
            Expression::CallResult(function) => {
                let name = self.module.functions[function].name.as_deref();
                matches!(name, Some("inf" | "nan"))
            }
            Expression::As { expr, kind: ScalarKind::Float, convert: None } => {
                matches!(
                    *self.expression(expr),
                    Expression::Literal(Literal::U32(bits)) if !f32::from_bits(bits).is_finite()
                )
            }
            _ => false,
        }
    }
}

/// Returns the violations in the WGSL module `text`.
fn violations_in(text: &str) -> Vec<String> {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
    let info = naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::empty(),
    )
    .validate(&module)
    .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
    violations(&module, &info)
}

#[test]
fn stores_to_components_of_shared_vectors_are_found() {
    let store = |statement: &str| {
        violations_in(&format!(
            "struct S {{ v: vec4<f32> }}
            var<workgroup> tile: array<vec4<f32>, 8>;
            var<workgroup> whole: S;
            var<workgroup> scalars: array<f32, 8>;
            @group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
            @compute @workgroup_size(8)
            fn main(@builtin(local_invocation_index) i: u32) {{
                var private_vector = vec4<f32>();
                for (var k = 0u; k < 2u; k++) {{ if (i > k) {{ {statement} }} }}
                out[i] = private_vector.xy;
            }}"
        ))
    };
    for shared in ["tile[i / 4u][i % 4u] = 1.0;", "tile[i].y = 1.0;", "out[i][1] = 1.0;"] {
        assert_eq!(store(shared).len(), 1, "{shared}");
    }
    assert_eq!(store("whole.v[i] = 1.0; whole.v.x += 1.0;").len(), 2);
    let owned = ["tile[i] = vec4<f32>();", "scalars[i] = 1.0;", "private_vector[i] = 1.0;"];
    for owned in owned {
        assert!(store(owned).is_empty(), "{owned}");
    }
}

#[test]
fn comparisons_that_fast_math_folds_are_found() {
    let condition = |condition: &str| {
        violations_in(&format!(
            "fn inf() -> f32 {{ var bits = 0x7f800000u; return bitcast<f32>(bits); }}
            fn is_nan(x: f32) -> bool {{ return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }}
            @group(0) @binding(0) var<storage, read_write> out: array<f32>;
            fn test(x: f32, y: f32) -> bool {{ var v = x; return {condition}; }}
            @compute @workgroup_size(8)
            fn main() {{ if (test(out[0], inf())) {{ out[0] = -inf(); }} }}"
        ))
    };
    let folded = [
        "!(x == x)",
        "x != x",
        "v != v",
        "out[1] == out[1]",
        "-x < -x",
        "x == inf()",
        "-inf() == y",
    ];
    for folded in folded {
        assert_eq!(condition(folded).len(), 1, "{folded}");
    }
    for kept in ["x == y", "is_nan(x)", "out[0] == out[1]", "bitcast<u32>(x) == 0x7f800000u"] {
        assert!(condition(kept).is_empty(), "{kept}");
    }
}

#[test]
fn divisions_of_unsigned_strides_are_found() {
    let offset = |ty: &str, offset: &str| {
        violations_in(&format!(
            "struct Params {{ x_stride: {ty}, count: u32 }}
            @group(0) @binding(0) var<uniform> p: Params;
            @group(0) @binding(1) var<storage, read_write> out: array<f32>;
            @compute @workgroup_size(8)
            fn main(@builtin(local_invocation_index) i: u32) {{ out[{offset}] = 1.0; }}"
        ))
    };
    for divided in ["i * (p.x_stride >> 2u)", "i + p.x_stride / 4u", "p.x_stride % 4u"] {
        assert_eq!(offset("u32", divided).len(), 1, "{divided}");
    }
    for kept in ["(i * p.x_stride) >> 2u", "i / p.x_stride", "p.count / 4u"] {
        assert!(offset("u32", kept).is_empty(), "{kept}");
    }
    assert!(offset("i32", "i * u32(p.x_stride >> 2u)").is_empty());
}

/// Returns the functions of `module` with a loop whose number of rounds is not a constant.
pub fn growing_loops(module: &Module) -> Vec<String> {
    let functions = module.functions.iter().map(|(_, function)| function);
    let entry_points = module.entry_points.iter().map(|entry| &entry.function);
    let growing =
        functions.chain(entry_points).filter(|function| has_growing_loop(function, &function.body));
    growing.map(|function| function.name.clone().unwrap_or_default()).collect()
}

fn has_growing_loop(function: &Function, block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Loop { body, .. } => {
            !ends_at_constant(function, body) || has_growing_loop(function, body)
        }
        Statement::Block(block) => has_growing_loop(function, block),
        Statement::If { accept, reject, .. } => {
            [accept, reject].iter().any(|block| has_growing_loop(function, block))
        }
        Statement::Switch { cases, .. } => {
            cases.iter().any(|case| has_growing_loop(function, &case.body))
        }
        _ => false,
    })
}

/// Returns whether a loop ends when a variable reaches a constant: one that counts up to it, or down the axes of a
/// tensor or the bits of a number.
fn ends_at_constant(function: &Function, body: &Block) -> bool {
    let breaks = |block: &Block| matches!(block.last(), Some(Statement::Break));
    let condition = body.iter().find_map(|statement| match statement {
        Statement::If { condition, accept, reject } if breaks(accept) || breaks(reject) => {
            Some(*condition)
        }
        _ => None,
    });
    let Some(Expression::Binary { left, right, .. }) =
        condition.map(|condition| &function.expressions[condition])
    else {
        return false;
    };
    [*left, *right].into_iter().any(|side| is_constant(function, side))
}

fn is_constant(function: &Function, handle: Handle<Expression>) -> bool {
    match function.expressions[handle] {
        Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => true,
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => is_constant(function, expr),
        Expression::Binary { left, right, .. } => {
            is_constant(function, left) && is_constant(function, right)
        }
        _ => false,
    }
}
