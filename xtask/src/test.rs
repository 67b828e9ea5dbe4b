//! `cargo xtask test`: the steps in order, up to the first that fails.

use std::process::Command;

use crate::{adapter, tint, web};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use xtask::digits;
use xtask::run::{cargo, run as run_command, target};

/// What the command line asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    only: Vec<String>,
    skip: Vec<String>,
    list: bool,
    no_skip: bool,
    pub no_adapter: bool,
    pub device: Option<String>,
}

/// How a step ended when it did not fail.
pub enum Done {
    Passed,
    /// Not applicable here, and why.
    Skipped(String),
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Options) -> Result<Done, String>,
}

const STEPS: &[Step] = &[
    Step { name: "adapter", what: "make sure of a software Vulkan adapter", run: adapter::ensure },
    Step { name: "fmt", what: "the code is formatted", run: fmt },
    Step { name: "clippy", what: "no lint complains", run: clippy },
    Step { name: "docs", what: "the documentation builds without a warning", run: docs },
    Step { name: "tests", what: "layers, shaders, op cases, gradients, doc tests", run: tests },
    Step { name: "as-gpu", what: "the kernels as GPUs get them", run: as_gpu },
    Step { name: "tint", what: "a browser's compiler takes every shader", run: tint::step },
    Step { name: "web", what: "the pages are built, and used in a browser", run: web::step },
    Step { name: "example", what: "digits learns, on the adapter and on the CPU", run: example },
    Step { name: "cpu-only", what: "digits runs where there is no Vulkan library", run: cpu_only },
];

impl Options {
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            match (flag, &joined) {
                ("--list", None) => options.list = true,
                ("--no-adapter", None) => options.no_adapter = true,
                ("--no-skip", None) => options.no_skip = true,
                ("--only" | "--skip" | "--device", _) => {
                    let value = joined
                        .or_else(|| words.next().cloned())
                        .ok_or_else(|| format!("`{flag}` needs a value"))?;
                    match flag {
                        "--only" => options.only.extend(step_names(&value)?),
                        "--skip" => options.skip.extend(step_names(&value)?),
                        _ => options.device = Some(value),
                    }
                }
                _ => return Err(format!("`test` does not know `{word}`")),
            }
        }
        if options.no_adapter && options.device.is_some() {
            return Err("`--device` and `--no-adapter` exclude each other".to_owned());
        }
        Ok(options)
    }

    fn wants(&self, step: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|name| name == step);
        (self.only.is_empty() || listed(&self.only)) && !listed(&self.skip)
    }

    /// The flags to repeat when one step is run alone.
    fn flags(&self) -> String {
        let device = self.device.iter().map(|word| format!(" --device {word}"));
        let none = self.no_adapter.then(|| " --no-adapter".to_owned());
        device.chain(none).collect()
    }

    /// The device that the GPU tests must find, by its word; none where going without is fine.
    fn required(&self) -> Option<&str> {
        match &self.device {
            Some(word) => Some(word),
            None if self.no_adapter || !adapter::EXISTS_HERE => None,
            None => Some("software"),
        }
    }
}

fn step_names(value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        None => Ok(names),
        Some(unknown) => {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            Err(format!("there is no step `{unknown}`; the steps are {}", known.join(", ")))
        }
    }
}

pub fn run(options: &Options) -> ExitCode {
    if options.list {
        for step in STEPS {
            println!("{:<12}{}", step.name, step.what);
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&Step> = STEPS.iter().filter(|step| options.wants(step.name)).collect();
    let mut rows: Vec<(&str, &str, Duration)> = Vec::new();
    let mut failure = None;
    for (index, step) in wanted.iter().enumerate() {
        println!("\n==> [{}/{}] {}: {}", index + 1, wanted.len(), step.name, step.what);
        let start = Instant::now();
        let outcome = match (step.run)(options) {
            Ok(Done::Skipped(why)) if options.no_skip => Err(format!("it would be skipped: {why}")),
            outcome => outcome,
        };
        let result = match outcome {
            Ok(Done::Passed) => "passed",
            Ok(Done::Skipped(why)) => {
                println!("    skipped: {why}");
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
    summary(options, wanted.len(), &rows, failure)
}

fn summary(
    options: &Options,
    wanted: usize,
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
        println!("run it alone: cargo xtask test --only {name}{}", options.flags());
        let left = wanted - rows.len();
        if left > 0 {
            println!("not run after it: {left} of {wanted} steps");
        }
    }
    let count = |wanted: &str| rows.iter().filter(|(_, result, _)| *result == wanted).count();
    println!(
        "\n{} passed, {} skipped, {} failed",
        count("passed"),
        count("skipped"),
        usize::from(failure.is_some())
    );
    // A reader of a pipe must have the last line before the exit status.
    let _ = std::io::stdout().flush();
    if failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn passed(result: Result<(), String>) -> Result<Done, String> {
    result.map(|()| Done::Passed)
}

fn fmt(_: &Options) -> Result<Done, String> {
    run_command(&mut cargo(&["fmt", "--all", "--check"]))?;
    // The families of kernels are declared by a macro, behind which cargo fmt does not look.
    let kernels =
        std::fs::read_dir("src/kernels").map_err(|error| format!("src/kernels: {error}"))?;
    let files = kernels.flatten().map(|entry| entry.path());
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.arg("--check");
    rustfmt.args(files.filter(|path| path.extension().is_some_and(|end| end == "rs")));
    passed(run_command(&mut rustfmt))
}

fn clippy(_: &Options) -> Result<Done, String> {
    let words = "clippy --workspace --all-targets --all-features --locked -- -D warnings";
    passed(run_command(&mut cargo(&words.split(' ').collect::<Vec<_>>())))
}

fn docs(_: &Options) -> Result<Done, String> {
    let mut command = cargo(&["doc", "--no-deps", "--all-features", "--locked"]);
    passed(run_command(command.env("RUSTDOCFLAGS", "-D warnings")))
}

fn tests(options: &Options) -> Result<Done, String> {
    passed(run_command(&mut test_command(options, &[])))
}

/// What a GPU would be given, on the software adapter, which is given other forms of the large kernels.
fn as_gpu(options: &Options) -> Result<Done, String> {
    if options.required() != Some("software") {
        return Ok(Done::Skipped("it needs the software adapter".to_owned()));
    }
    let tests = ["ops", "attention", "quantized", "chains"].map(|test| ["--test", test]);
    let mut command = test_command(options, tests.as_flattened());
    run_command(command.env("BURN_WGSL_AS_GPU", "1"))?;
    // What a program is given that has run for a while, and tiles that only large products are.
    let mut command = test_command(
        options,
        ["ops", "elementwise", "types"].map(|test| ["--test", test]).as_flattened(),
    );
    run_command(command.env("BURN_WGSL_WARM", "1"))?;
    let products = "matmul,linear,conv";
    let mut command = test_command(options, &["--test", "ops", "--test", "types"]);
    run_command(command.env("BURN_WGSL_TILING", "tiled128").env("BURN_WGSL_TEST_CASES", products))?;
    // As browsers have it.
    let mut command = test_command(options, &["--test", "ops"]);
    run_command(command.env("BURN_WGSL_NO_SUBGROUPS", "1").env("BURN_WGSL_WARM", "1"))?;
    let mut command = test_command(options, &["--test", "types"]);
    run_command(command.env("BURN_WGSL_AS_GPU", "1").env("BURN_WGSL_TEST_CASES", products))?;
    Ok(Done::Passed)
}

/// `cargo test`, of these tests or of all, on the devices that the options ask for.
fn test_command(options: &Options, tests: &[&str]) -> Command {
    let mut command = cargo(&["test", "--workspace", "--all-features", "--locked"]);
    command.args(tests);
    // What is tested is for the runner to say: neither words left in the user's shell nor what tuning found earlier.
    for word in ["DEVICE", "TILING", "WARM", "AS_GPU", "NO_SUBGROUPS", "CHECKED", "TEST_CASES"] {
        command.env_remove(format!("BURN_WGSL_{word}"));
    }
    command.env("BURN_WGSL_TUNING", "off");
    command.envs(adapter::settings(options));
    if let Some(word) = options.required() {
        // Otherwise a device that is missing is only shown as skipped.
        command.env("BURN_WGSL_TEST_REQUIRE", word);
    }
    command
}

fn example(options: &Options) -> Result<Done, String> {
    let gpu = match options.required() {
        Some(word) => Some(word),
        None if options.no_adapter => None,
        // No software adapter on this system: whatever GPU is there, or the CPU.
        None => Some("auto"),
    };
    let devices = gpu.filter(|word| *word != "cpu").into_iter().chain(["cpu"]);
    for device in devices {
        let file: String =
            device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let epochs = 3;
        let report = digits::run(
            digits::Run {
                device: Some(device),
                epochs,
                json: target().join(format!("digits-{file}.json")),
            },
            |command| command.envs(adapter::settings(options)),
        )?;
        digits::learned(&report, epochs)?;
        match device {
            "auto" => {}
            "cpu" => digits::ran_on_cpu(&report)?,
            word => digits::ran_on_gpu(&report, word)?,
        }
    }
    Ok(Done::Passed)
}

fn cpu_only(_: &Options) -> Result<Done, String> {
    if !cfg!(target_os = "linux") {
        return Ok(Done::Skipped(
            "only Linux reaches its GPUs through a library that can be missing".to_owned(),
        ));
    }
    // An empty file under the library's name stops the dynamic loader as surely as none, and needs no root.
    let folder = target().join("no-vulkan");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("libvulkan.so.1"), ""))
        .map_err(|error| format!("{} cannot be written: {error}", folder.display()))?;
    let mut libraries = folder.into_os_string();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
        libraries.push(":");
        libraries.push(others);
    }
    let report = digits::run(
        digits::Run { device: None, epochs: 1, json: target().join("digits-no-vulkan.json") },
        |command| {
            command
                .env("LD_LIBRARY_PATH", libraries)
                .env("VK_DRIVER_FILES", "/nonexistent")
                .env("VK_ICD_FILENAMES", "/nonexistent")
        },
    )?;
    passed(digits::ran_on_cpu(&report))
}

#[cfg(test)]
mod checks {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn flags_choose_steps() {
        let options = parse("--only fmt,docs --only=clippy --skip docs").unwrap();
        let wanted: Vec<&str> =
            STEPS.iter().map(|step| step.name).filter(|name| options.wants(name)).collect();
        assert_eq!(wanted, ["fmt", "clippy"]);
        assert!(STEPS.iter().all(|step| parse("").unwrap().wants(step.name)));
    }

    #[test]
    fn wrong_words_are_refused() {
        assert!(parse("--only frm").unwrap_err().contains("cpu-only"));
        assert!(parse("--only").unwrap_err().contains("needs a value"));
        assert!(parse("--list=1").is_err());
        assert!(parse("fmt").is_err());
        assert!(parse("--device gpu --no-adapter").is_err());
    }

    #[test]
    fn a_step_is_repeated_with_its_flags() {
        assert_eq!(parse("--device gpu:1").unwrap().flags(), " --device gpu:1");
        assert_eq!(parse("--no-adapter").unwrap().flags(), " --no-adapter");
    }
}
