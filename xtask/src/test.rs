//! `cargo xtask test`: runs the steps in order and stops at the first failure.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use xtask::digits;
use xtask::process::{cargo, root, run_command, target_dir};

use crate::adapter::{self, required_device};
use crate::cargo_test::cargo_test;
use crate::options::Options;
use crate::step::{Outcome, Step};
use crate::{as_gpu, fuzz, reached, resume, schedules, strategies, tint, units, web};

const STEPS: &[Step] = &[
    Step {
        name: "adapter",
        description: "find or install a software Vulkan adapter",
        run: adapter::ensure,
    },
    Step { name: "fmt", description: "check the code formatting", run: fmt },
    Step { name: "clippy", description: "run clippy; warnings are errors", run: clippy },
    Step { name: "docs", description: "build the documentation; warnings are errors", run: docs },
    Step { name: "tests", description: "run all tests of the workspace", run: tests },
    Step {
        name: "as-gpu",
        description: "test the kernel variants for GPUs and browsers on the software adapter",
        run: as_gpu::step,
    },
    Step {
        name: "units",
        description: "test products and attention with matrix units on a software adapter that has them",
        run: units::step,
    },
    Step {
        name: "reached",
        description: "check that the tests launched every kernel variant",
        run: |options| reached::step(options, required_device(options)),
    },
    Step {
        name: "tint",
        description: "compile every shader with Tint, Chromium's WGSL compiler",
        run: tint::step,
    },
    Step {
        name: "web",
        description: "build the web pages and test them in Chromium",
        run: web::step,
    },
    Step {
        name: "example",
        description: "train the digits example on the adapter and on the CPU",
        run: example,
    },
    Step {
        name: "cpu-only",
        description: "train the digits example without a Vulkan library",
        run: cpu_only,
    },
];

/// Steps that run only if `--only` names them: they take longer than all others together.
const STEPS_ON_REQUEST: &[Step] = &[
    Step {
        name: "strategies",
        description: "test every strategy of products, and kernels for GPUs in every type and in models",
        run: strategies::step,
    },
    Step {
        name: "fuzz",
        description: "try random inputs at the borders of the crate, and random programs",
        run: fuzz::step,
    },
    Step {
        name: "schedules",
        description: "run what threads share with many orders of their steps",
        run: schedules::step,
    },
    Step {
        name: "resume",
        description: "kill the digits and gpt examples at 20 points each, and resume them with the same bits",
        run: |options| resume::step(options, required_device(options), 20),
    },
    Step {
        name: "large",
        description: "test tensors of almost 2 GiB and views of almost 2^32 elements",
        run: large,
    },
];

fn all_steps() -> impl Iterator<Item = &'static Step> {
    STEPS.iter().chain(STEPS_ON_REQUEST)
}

/// Parses the arguments of `cargo xtask test`.
///
/// # Errors
///
/// As [`Options::parse`].
pub fn parse(args: &[String]) -> Result<Options, String> {
    let names: Vec<&str> = all_steps().map(|step| step.name).collect();
    Options::parse(args, &names)
}

/// Runs the selected steps up to the first failure and prints a summary.
pub fn run(options: &Options) -> ExitCode {
    if options.list {
        for step in STEPS {
            println!("{:<12}{}", step.name, step.description);
        }
        for step in STEPS_ON_REQUEST {
            println!("{:<12}on request: {}", step.name, step.description);
        }
        return ExitCode::SUCCESS;
    }
    let on_request = STEPS_ON_REQUEST.iter().filter(|step| options.names(step.name));
    let selected: Vec<&Step> =
        STEPS.iter().filter(|step| options.selects(step.name)).chain(on_request).collect();
    let mut rows: Vec<(&str, &str, Duration)> = Vec::new();
    let mut failure = None;
    for (index, step) in selected.iter().enumerate() {
        println!("\n==> [{}/{}] {}: {}", index + 1, selected.len(), step.name, step.description);
        let start = Instant::now();
        let outcome = match (step.run)(options) {
            Ok(Outcome::Skipped(reason)) if options.no_skip => {
                Err(format!("skipped, which --no-skip forbids: {reason}"))
            }
            outcome => outcome,
        };
        let result = match outcome {
            Ok(Outcome::Passed) => "passed",
            Ok(Outcome::Skipped(reason)) => {
                println!("    skipped: {reason}");
                "skipped"
            }
            Err(reason) => {
                failure = Some((step.name, reason));
                "FAILED"
            }
        };
        rows.push((step.name, result, start.elapsed()));
        if failure.is_some() {
            break;
        }
    }
    print_summary(options, selected.len(), &rows, failure)
}

/// Prints the results and returns the exit code. `rows` are (step, result, time).
fn print_summary(
    options: &Options,
    selected: usize,
    rows: &[(&str, &str, Duration)],
    failure: Option<(&str, String)>,
) -> ExitCode {
    println!("\n{:<12}{:<9}{:>9}", "step", "result", "time");
    for (name, result, time) in rows {
        println!("{name:<12}{result:<9}{:>7.1} s", time.as_secs_f64());
    }
    let total: Duration = rows.iter().map(|(_, _, time)| *time).sum();
    println!("{:<21}{:>7.1} s", "total", total.as_secs_f64());
    if let Some((name, reason)) = &failure {
        println!("\nstep `{name}` failed: {reason}");
        println!("to run only this step: cargo xtask test --only {name}{}", options.rerun_flags());
        let remaining = selected - rows.len();
        if remaining > 0 {
            println!("not run: the remaining {remaining} of {selected} steps");
        }
    }
    let count = |result: &str| rows.iter().filter(|row| row.1 == result).count();
    println!(
        "\n{} passed, {} skipped, {} failed",
        count("passed"),
        count("skipped"),
        usize::from(failure.is_some())
    );
    // Flush, so that a reader of a pipe gets the last line before the process exits.
    let _ = std::io::stdout().flush();
    if failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn passed(result: Result<(), String>) -> Result<Outcome, String> {
    result.map(|()| Outcome::Passed)
}

fn fmt(_: &Options) -> Result<Outcome, String> {
    run_command(&mut cargo(&["fmt", "--all", "--check"]))?;
    // A macro declares the modules in src/kernels, so cargo fmt does not find their files.
    let folder = Path::new("src/kernels");
    let entries = std::fs::read_dir(root().join(folder))
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let files = entries.flatten().map(|entry| folder.join(entry.file_name()));
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.arg("--check");
    rustfmt.args(files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")));
    passed(run_command(&mut rustfmt))
}

fn clippy(_: &Options) -> Result<Outcome, String> {
    // The others are libraries without the CPU backend.
    for args in [
        "clippy --workspace --all-targets --all-features --locked -- -D warnings",
        "clippy --package burn-wgsl --lib --no-default-features --locked -- -D warnings",
        "clippy --package burn-wgsl --lib --no-default-features --features train,internals --locked -- -D warnings",
    ] {
        run_command(&mut cargo(&args.split(' ').collect::<Vec<_>>()))?;
    }
    Ok(Outcome::Passed)
}

fn docs(_: &Options) -> Result<Outcome, String> {
    // The public API, as users see it, and the layers below it.
    for features in [&[][..], &["--all-features"]] {
        let mut command = cargo(&["doc", "--no-deps", "--locked"]);
        run_command(command.args(features).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(Outcome::Passed)
}

fn tests(options: &Options) -> Result<Outcome, String> {
    reached::forget()?;
    passed(run_command(&mut cargo_test(options, &[])))
}

fn large(options: &Options) -> Result<Outcome, String> {
    let mut command = cargo_test(options, &["--test", "kernels", "--", "large::", "--ignored"]);
    passed(run_command(&mut command))
}

fn example(options: &Options) -> Result<Outcome, String> {
    let gpu = match required_device(options) {
        Some(selector) => Some(selector),
        None if options.no_adapter => None,
        // This system has no software adapter: use its GPU if there is one, else the CPU.
        None => Some("auto"),
    };
    let devices = gpu.filter(|selector| *selector != "cpu").into_iter().chain(["cpu"]);
    for device in devices {
        let suffix: String =
            device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let epochs = 3;
        let report = digits::run(
            digits::RunOptions {
                device: Some(device),
                epochs,
                json: target_dir().join(format!("digits-{suffix}.json")),
            },
            |command| command.envs(adapter::environment(options)),
        )?;
        digits::check_training(&report, epochs)?;
        match device {
            "auto" => {}
            "cpu" => digits::check_ran_on_cpu(&report)?,
            selector => digits::check_ran_on_gpu(&report, selector)?,
        }
    }
    resume::step(options, gpu.filter(|selector| *selector != "auto"), 3)
}

fn cpu_only(_: &Options) -> Result<Outcome, String> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped(
            "this step hides the Vulkan library, which works on Linux only".to_owned(),
        ));
    }
    // The dynamic linker finds an empty libvulkan.so.1 first and fails to load it. This hides an
    // installed library without root.
    let folder = target_dir().join("no-vulkan");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("libvulkan.so.1"), ""))
        .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
    let mut library_path = folder.into_os_string();
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        library_path.push(":");
        library_path.push(inherited);
    }
    let report = digits::run(
        digits::RunOptions {
            device: None,
            epochs: 1,
            json: target_dir().join("digits-no-vulkan.json"),
        },
        |command| {
            command
                .env("LD_LIBRARY_PATH", library_path)
                .env("VK_DRIVER_FILES", "/nonexistent")
                .env("VK_ICD_FILENAMES", "/nonexistent")
        },
    )?;
    passed(digits::check_ran_on_cpu(&report))
}
