//! What a text may ask for: compilers and drivers do not check it, and would end the process.

/// The operators in an expression. Compilers visit expressions by recursion, and end the process where the stack does.
const MAX_OPERATORS: usize = 1000;
/// The `else if` of a text, which are nested as well.
const MAX_ELSE_IF: usize = 500;
/// The memory of an invocation, in bytes: of private variables and those of functions. No GPU has more registers.
const MAX_PRIVATE: u32 = 256 << 10;

/// Returns an error if an expression of a text has too many operators.
pub(super) fn check_expressions(text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_else_if = |pair: &&[&str]| pair[0].ends_with("else") && pair[1].starts_with("if");
    if words.windows(2).filter(is_else_if).count() > MAX_ELSE_IF {
        return Err(format!("has more than {MAX_ELSE_IF} `else if`; use `switch`"));
    }
    let mut operators = 0;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for character in code.chars() {
            match character {
                ';' | ',' | '{' | '}' => operators = 0,
                '+' | '-' | '*' | '/' | '%' | '!' | '~' | '&' | '|' | '^' | '<' | '>' | '='
                | '.' | '[' | '(' => operators += 1,
                _ => {}
            }
            if operators > MAX_OPERATORS {
                return Err(format!(
                    "has an expression of more than {MAX_OPERATORS} operators; split it by `let`"
                ));
            }
        }
    }
    Ok(())
}

/// The memory that a kernel declares, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// Of a workgroup.
    workgroup: u32,
    /// Of an invocation.
    private: u32,
    /// Of the parameters of the program, with padding to 16; `None` if it is not known.
    pub params: Option<usize>,
}

impl Memory {
    /// Returns the memory of a text; none if it does not compile, which its compilation reports.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn of(text: &str) -> Self {
        use wgpu::naga::{AddressSpace, TypeInner, front::wgsl};
        let Ok(module) = wgsl::parse_str(text) else { return Self::default() };
        let context = module.to_ctx();
        let size = |ty| module.types[ty].inner.size(context);
        let globals = |space| {
            let globals = module.global_variables.iter().filter(move |(_, it)| it.space == space);
            globals.map(|(_, global)| size(global.ty)).fold(0, u32::saturating_add)
        };
        let functions = module.functions.iter().map(|(_, function)| function);
        let functions = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
        let locals = functions.flat_map(|function| function.local_variables.iter());
        let locals = locals.map(|(_, local)| size(local.ty)).fold(0, u32::saturating_add);
        // What follows the parameters of the program.
        let launch = module.types.iter().find_map(|(_, ty)| match &ty.inner {
            TypeInner::Struct { members, .. } if ty.name.as_deref() == Some("Params") => {
                members.iter().find(|member| member.name.as_deref() == Some("launch"))
            }
            _ => None,
        });
        Self {
            workgroup: globals(AddressSpace::WorkGroup),
            private: globals(AddressSpace::Private).saturating_add(locals),
            params: launch.map(|member| member.offset as usize),
        }
    }

    /// Browsers check it.
    #[cfg(target_arch = "wasm32")]
    pub fn of(_text: &str) -> Self {
        Self::default()
    }

    /// Returns an error if a device does not have the memory.
    pub fn check(self, workgroup_memory: u32) -> Result<(), String> {
        let Self { workgroup, private, .. } = self;
        if workgroup > workgroup_memory {
            return Err(format!(
                "has {workgroup} bytes of workgroup memory, but the device has {workgroup_memory}"
            ));
        }
        if private > MAX_PRIVATE {
            return Err(format!(
                "has variables of {private} bytes in each invocation, more than {MAX_PRIVATE}; \
                 use a buffer"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_expressions_are_found() {
        let sum = |terms| format!("let x = {};", vec!["a"; terms].join(" + "));
        check_expressions(&sum(1000)).expect("it is short");
        check_expressions(&sum(1002)).expect_err("it is long");
        check_expressions(&"let x = a + b;\n".repeat(5000)).expect("each is short");
        check_expressions(&format!("array({})", "-1.0, ".repeat(5000))).expect("each is short");
        let branches = "if a { b(); } else ".repeat(2000);
        check_expressions(&format!("{branches}{{}}")).expect_err("they are nested");
        for text in ["-", "!", ".x", "[0]", "+\n"] {
            check_expressions(&text.repeat(1001)).expect_err(text);
        }
    }

    #[test]
    fn the_memory_of_a_text_is_counted() {
        let memory = Memory::of(
            "var<workgroup> tile: array<vec4<f32>, 256>;
            var<private> counter: u32;
            fn f() -> f32 { var list: array<f32, 10>; return list[3]; }
            @compute @workgroup_size(64) fn main() { var sum = f(); sum += tile[0].x; }",
        );
        assert_eq!((memory.workgroup, memory.private), (4096, 4 + 40 + 4));
        memory.check(16 << 10).expect("it fits");
        memory.check(2048).expect_err("it does not fit");
        let list = "fn f() { var list: array<f32, 10000000>; list[1] = 1.0; }";
        Memory::of(list).check(16 << 10).expect_err("it does not fit");
    }
}
