//! Command lines of `--flag`, `--flag VALUE` and `--flag=VALUE`.

/// Splits arguments into flags and their values. Those in `switches` take no value, which is empty
/// then; those in `options` take one.
///
/// # Errors
///
/// Returns an error that names the command if a flag is unknown or its value is missing.
pub fn parse<'a>(
    command: &str,
    args: &'a [String],
    switches: &[&str],
    options: &[&str],
) -> Result<Vec<(&'a str, &'a str)>, String> {
    let mut parsed = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, joined_value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (arg.as_str(), None),
        };
        let value = if options.contains(&flag) {
            let next = || args.next().map(String::as_str);
            joined_value.or_else(next).ok_or_else(|| format!("`{flag}` needs a value"))?
        } else if switches.contains(&flag) && joined_value.is_none() {
            ""
        } else {
            return Err(format!("unknown argument `{arg}` of `{command}`"));
        };
        parsed.push((flag, value));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<String, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse("x", &args, &["--list"], &["--only"]).map(|parsed| format!("{parsed:?}"))
    }

    #[test]
    fn values_follow_their_flag_or_an_equals_sign() {
        let parsed = parse_line("--only a,b --list --only=c=d").unwrap();
        assert_eq!(parsed, r#"[("--only", "a,b"), ("--list", ""), ("--only", "c=d")]"#);
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        assert_eq!(parse_line("--only").unwrap_err(), "`--only` needs a value");
        for line in ["--list=1", "fmt", "--other"] {
            assert_eq!(parse_line(line).unwrap_err(), format!("unknown argument `{line}` of `x`"));
        }
    }
}
