//! Builds, serves and tests the pages of `web/`. `cargo xtask web`, `serve` and `test-web` run it; it is a package of its own
//! because what it needs takes longer to compile than all other commands together.

mod bundle;
mod pages;
mod places;
mod serve;
mod sizes;
mod test;
mod toolchain;

use std::process::ExitCode;

const HELP: &str = "\
The pages of web/.

Usage: cargo xtask <command> [options]

Commands:
  web         build the pages into web/dist, and say how much each one downloads
  serve       build them and serve them; --port N (8000), --no-build
  test-web    build them, open each in Chromium and use it; --only WORD, --no-build
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["web"] => bundle::build(bundle::Kind::Pages).map(drop),
        ["serve", options @ ..] => match serve::Options::parse(options) {
            Some(options) => serve::run(&options),
            None => return usage(),
        },
        ["test-web", options @ ..] => match test::Options::parse(options) {
            Some(options) => test::run(&options),
            None => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<places::Missing>() {
                ExitCode::from(xtask::MISSING)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn usage() -> ExitCode {
    eprint!("{HELP}");
    ExitCode::from(2)
}
