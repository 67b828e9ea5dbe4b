//! The project's own commands, run as `cargo xtask <command>`.

mod adapter;
mod test;
mod tint;
mod web;

use std::process::ExitCode;

const HELP: &str = "\
The project's own commands.

Usage: cargo xtask <command> [options]

Commands:
  test    everything that must hold: adapter, format, lints, docs, tests, shaders, pages, example
  tint    every shader through the compiler of Chromium; needs Node.js, and the network once
  web     build the pages of web/ into web/dist, and say how much each one downloads
  serve   build the pages and serve them on this machine; --port N, --no-build
  test-web
          build the pages and use them in Chromium; --only WORD, --no-build
  help    this text

Options of `test`:
  --list          name the steps and stop
  --only STEP     run only this step (may be repeated, or a,b,c)
  --skip STEP     leave this step out (may be repeated, or a,b,c)
  --device WORD   test on this device (gpu:0, discrete:0, name:radeon, ...) instead of
                  the software adapter
  --no-skip       a step that cannot be run here has failed
  --no-adapter    go without any GPU: only what needs no adapter is required
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = words.collect();
    let wants_help = rest.iter().any(|word| word == "--help" || word == "-h");
    match command.as_str() {
        "test" if !wants_help => match test::Options::parse(&rest) {
            Ok(options) => test::run(&options),
            Err(complaint) => usage_error(&complaint),
        },
        "tint" if !wants_help => match tint::check() {
            Ok(()) => ExitCode::SUCCESS,
            Err(tint::Problem::NoCompiler(why) | tint::Problem::Failed(why)) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
        },
        "web" | "serve" | "test-web" if !wants_help => match web::run(&command, &rest) {
            Ok(test::Done::Passed) => ExitCode::SUCCESS,
            Ok(test::Done::Skipped(why)) | Err(why) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
        },
        "test" | "tint" | "web" | "serve" | "test-web" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        other => usage_error(&format!("there is no command `{other}`")),
    }
}

fn usage_error(complaint: &str) -> ExitCode {
    eprintln!("error: {complaint}\n\n{HELP}");
    ExitCode::from(2)
}
