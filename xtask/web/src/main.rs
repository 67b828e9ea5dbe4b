//! Builds, serves and tests the pages of `web/`.
//!
//! `cargo xtask web`, `serve` and `test-web` run this program. It is a separate package because its
//! dependencies take longer to compile than all other commands together.

mod bundle;
mod pages;
mod serve;
mod sizes;
mod test;
mod toolchain;
mod tools;

use std::process::ExitCode;

const HELP: &str = "\
The web pages of burn-wgsl.

Usage: cargo xtask <command> [options]

Commands:
  web       Build the pages into web/dist and print their download sizes
  serve     Build the pages and serve them on localhost
  test-web  Build the pages and test them in Chromium

Options of `serve`:
  --port N     Port to listen on [default: 8000]
  --no-build   Serve the pages of the last build

Options of `test-web`:
  --only NAME  Run only the tests whose name contains NAME; repeatable
  --no-build   Test the pages of the last test-web build
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["web"] => bundle::build(bundle::BuildKind::Release).map(drop),
        ["serve", options @ ..] => match serve::Options::parse(options) {
            Some(options) => serve::run(&options),
            None => return usage_error(),
        },
        ["test-web", options @ ..] => match test::Options::parse(options) {
            Some(options) => test::run(&options),
            None => return usage_error(),
        },
        _ => return usage_error(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<tools::ToolMissing>() {
                ExitCode::from(xtask::EXIT_TOOL_MISSING)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn usage_error() -> ExitCode {
    eprint!("{HELP}");
    ExitCode::from(2)
}
