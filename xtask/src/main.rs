//! The development commands of this repository, run as `cargo xtask <command>`.

mod adapter;
mod apt_sources;
mod arguments;
mod as_gpu;
mod book;
mod cargo_test;
mod fuzz;
mod gpus;
mod mpi;
mod new;
mod options;
mod pack;
mod packages;
mod reached;
mod release;
mod reports;
mod resume;
mod scaling;
mod schedules;
mod shaders;
mod soak;
mod step;
mod strategies;
mod test;
mod test_modules;
mod tint;
mod units;
mod validate;
mod vulkan;
mod watch;
mod web;
mod workspace;

use std::process::ExitCode;

use step::Outcome;
use tint::TintError;

const HELP: &str = "\
Development commands of burn-wgsl.

Usage: cargo xtask <command> [options]

Commands:
  test      Run all checks: format, lints, docs, tests, shaders, web pages, example
  tint      Compile every shader with Tint, Chromium's WGSL compiler
            (needs Node.js, and the network on the first run)
  gpus      Compile every kernel with the drivers of GPUs that are not there, and compare
            registers, spills and occupancy with benches/gpus
            (needs Debian or Ubuntu, and the network on the first run)
  validate  Check every kernel's SPIR-V with spirv-val and its HLSL with DXC
            (needs the network on the first run)
  ports     Check and test the crates for other versions of Burn
  ecosystem Test crates around Burn: burn-train, burn-store, burn-onnx, burn-rl,
            burn-collective
  watch     Build and test with the newest releases of Burn, wgpu and naga, in a copy of the
            last commit, and write a report (needs the network)
  mpi       Check and test the package for MPI jobs
            (needs an MPI library and libclang, and installs them on Debian as root)
  scaling   Simulate the exchange of gradients between up to 1,024 machines
            (needs SimGrid, and installs it on Debian as root)
  new       Write a program to start from: new FOLDER
  pack      Put the tests, the benches and the command in a folder that runs on a machine
            without Rust
  release   Make a release: version, changelog, check of the package, commit, tag, notes
  reports   Add reports of `burn-wgsl doctor` to docs/gpus.md: reports FILE...
  soak      Compute in eight threads, and train with four workers, for an hour each: results
            stay right, and memory flat
  vulkan    Run the tests and the example with Vulkan's validation layer, on lavapipe and on a
            GPU that is not there (needs Debian or Ubuntu, and the network on the first run)
  book      Build the pages of docs/ as a book with a search (needs mdBook)
  web       Build the web pages into web/dist and print their download sizes
  serve     Build the web pages and serve them on localhost
  test-web  Build the web pages and test them in Chromium
  help      Print this help

Options of `test`:
  --list             List the steps and exit
  --only STEP        Run only this step; repeatable, or a comma-separated list
  --skip STEP        Skip this step; repeatable, or a comma-separated list
  --device SELECTOR  Test this device (gpu:0, discrete:0, name:radeon, ...) instead of
                     the software adapter
  --no-skip          Fail if a step cannot run on this machine
  --no-adapter       Require no GPU adapter: GPU tests without one are skipped

Options of `book`:
  --files URL        Where links to files of the repository lead; without it they are plain text

Options of `gpus`:
  --only GPU         Only this GPU; repeatable, or a comma-separated list of
                     ada, navi21, navi31, gfx1201, m1, adreno740
  --kernel TEXT      Only kernels with TEXT in their name; prints their figures and
                     keeps the drivers' listings in target/gpus/listings
  --against FOLDER   Compare every kernel with the tables of another run, which writes
                     them to target/gpus/tables
  --bless            Record the families of kernels in benches/gpus

Options of `pack`:
  --out DIR          The folder [default: target/burn-wgsl-kit]
  --only NAME        Only this test program (kernels) or module (ops); repeatable, or a
                     comma-separated list

Options of `release`:
  VERSION            The version, such as 0.2.0
  --check            Only check the package of the version that is here

Options of `scaling`:
  --ranks N,...      Ranks, on a machine each [default: 2,4,16,64,256,1024]
  --gbit N,...       Bandwidths of a machine in Gbit/s [default: 10,100]
  --megabytes N      Gradients of a rank [default: 100]
  --latency-microseconds N
                     Latency of a machine's link [default: 5]
  --computing-ms N   Forward and backward pass [default: 500]

Options of `soak`:
  --minutes N        Run for N minutes [default: 60]

Options of `vulkan`:
  --only NAME        Run only this test program (kernels) or module (ops), or `digits`;
                     repeatable, or a comma-separated list

Options of `serve`:
  --port N           Port to listen on [default: 8000]
  --no-build         Serve the pages of the last build

Options of `test-web`:
  --only NAME        Run only the tests whose name contains NAME; repeatable
  --no-build         Test the pages of the last test-web build
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    let args: Vec<String> = args.collect();
    let wants_help = args.iter().any(|arg| arg == "--help" || arg == "-h");
    match command.as_str() {
        "test" if !wants_help => match test::parse(&args) {
            Ok(options) => test::run(&options),
            Err(message) => usage_error(&message),
        },
        "tint" if !wants_help => match tint::check() {
            Ok(()) => ExitCode::SUCCESS,
            Err(TintError::Unavailable(reason) | TintError::Failed(reason)) => {
                eprintln!("error: {reason}");
                ExitCode::FAILURE
            }
        },
        "gpus" if !wants_help => match gpus::Options::parse(&args) {
            Ok(options) => report(gpus::run(&options)),
            Err(message) => usage_error(&message),
        },
        "ecosystem" | "ports" if !wants_help => {
            report(no_arguments(&command, &args).and_then(|()| workspace::check_all(&command)))
        }
        "mpi" if !wants_help => report(no_arguments(&command, &args).and_then(|()| mpi::run())),
        "new" if !wants_help => report(new::run(&args)),
        "validate" if !wants_help => {
            report(no_arguments(&command, &args).and_then(|()| validate::run()))
        }
        "watch" if !wants_help => report(no_arguments(&command, &args).and_then(|()| watch::run())),
        "scaling" if !wants_help => match scaling::Options::parse(&args) {
            Ok(options) => report(scaling::run(&options)),
            Err(message) => usage_error(&message),
        },
        "pack" if !wants_help => match pack::Options::parse(&args) {
            Ok(options) => report(pack::run(&options)),
            Err(message) => usage_error(&message),
        },
        "release" if !wants_help => match release::Options::parse(&args) {
            Ok(options) => report(release::run(&options)),
            Err(message) => usage_error(&message),
        },
        "reports" if !wants_help => report(reports::run(&args)),
        "soak" if !wants_help => match soak::Options::parse(&args) {
            Ok(options) => report(soak::run(&options)),
            Err(message) => usage_error(&message),
        },
        "vulkan" if !wants_help => match vulkan::Options::parse(&args) {
            Ok(options) => report(vulkan::run(&options)),
            Err(message) => usage_error(&message),
        },
        "book" if !wants_help => match book::Options::parse(&args) {
            Ok(options) => report(book::run(&options)),
            Err(message) => usage_error(&message),
        },
        "web" | "serve" | "test-web" if !wants_help => match web::run(&command, &args) {
            Ok(Outcome::Passed) => ExitCode::SUCCESS,
            Ok(Outcome::Skipped(reason)) | Err(reason) => {
                eprintln!("error: {reason}");
                ExitCode::FAILURE
            }
        },
        "test" | "tint" | "book" | "gpus" | "ecosystem" | "mpi" | "new" | "pack" | "ports"
        | "scaling" | "soak" | "validate" | "vulkan" | "release" | "reports" | "watch" | "web"
        | "serve" | "test-web" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        other => usage_error(&format!("unknown command `{other}`")),
    }
}

/// Returns an error if a command that has none is given an argument.
fn no_arguments(command: &str, args: &[String]) -> Result<(), String> {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(format!("unknown argument `{arg}` of `cargo xtask {command}`")),
    }
}

/// Prints the error of a command.
fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn usage_error(message: &str) -> ExitCode {
    eprintln!("error: {message}\n\n{HELP}");
    ExitCode::from(2)
}
