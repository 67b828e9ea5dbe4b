//! What a text may ask for: compilers and drivers do not check it, and would end the process.

use crate::runtime::Demand;

/// The operators in an expression. Compilers visit expressions by recursion: a deep one overflows the stack.
const MAX_OPERATORS: usize = 1000;
/// The `else if` of a text, which are nested as well.
const MAX_ELSE_IF: usize = 500;
/// The memory of an invocation, in bytes: of private variables and those of functions. No GPU has more registers.
const MAX_PRIVATE: u32 = 256 << 10;

/// Returns an error if an expression of a text has too many operators, or there are too many branches.
pub(super) fn check_expressions(text: &str) -> Result<(), String> {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let words: Vec<&str> = code.iter().flat_map(|line| line.split_whitespace()).collect();
    let is_else_if = |pair: &&[&str]| pair[0].ends_with("else") && pair[1].starts_with("if");
    if words.windows(2).filter(is_else_if).count() > MAX_ELSE_IF {
        return Err(format!("has more than {MAX_ELSE_IF} `else if`; use `switch`"));
    }
    // The operators so far, in each of the open brackets.
    let mut operators = vec![0usize];
    for character in code.iter().flat_map(|line| line.chars()) {
        let (depth, last) = (operators.len(), operators[operators.len() - 1]);
        match character {
            ';' | '{' | '}' => operators = vec![0],
            ',' => operators[depth - 1] = 0,
            '(' | '[' => {
                operators[depth - 1] += 1;
                operators.push(last + 1);
            }
            ')' | ']' if depth > 1 => drop(operators.pop()),
            '+' | '-' | '*' | '/' | '%' | '!' | '~' | '&' | '|' | '^' | '<' | '>' | '=' | '.' => {
                operators[depth - 1] += 1;
            }
            _ => {}
        }
        if operators.last().is_some_and(|&count| count > MAX_OPERATORS) {
            return Err(format!(
                "has an expression of more than {MAX_OPERATORS} operators; split it by `let`"
            ));
        }
    }
    Ok(())
}

/// Returns an error if a device does not have the memory that a text declares.
pub(super) fn check_memory(demand: Demand, workgroup_memory: u32) -> Result<(), String> {
    let Demand { workgroup, private, .. } = demand;
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
        let calls = format!("let y = x{};", " + max(x, 1.0)".repeat(20_000));
        check_expressions(&calls).expect_err("the sum is long");
        let lists = format!("let y = array({});", "max(x, 1.0) + 2.0, ".repeat(5000));
        check_expressions(&lists).expect("each element is short");
        let commented = "if a { b(); } else //\n".repeat(2000);
        check_expressions(&commented).expect_err("they are nested");
        for text in ["-", "!", ".x", "[0]", "+\n"] {
            check_expressions(&text.repeat(1001)).expect_err(text);
        }
    }

    #[test]
    fn memory_that_no_device_has_is_found() {
        let demand = Demand { workgroup: 4096, private: 48, params: None };
        check_memory(demand, 16 << 10).expect("it fits");
        check_memory(demand, 2048).expect_err("it does not fit");
        let large = Demand { private: 40_000_000, ..demand };
        check_memory(large, 16 << 10).expect_err("it does not fit");
    }
}
