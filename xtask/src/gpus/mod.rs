//! `cargo xtask gpus`: compiles every kernel with the drivers of GPUs that are not there, and
//! compares what their compilers report with the tables in `benches/gpus/`.

mod changes;
mod compile;
mod gates;
mod name;
mod options;
pub mod pretended;
mod summary;
mod table;

use std::fs;
use std::path::PathBuf;

pub use options::Options;
use xtask::process::{cargo, root, run_command, target_dir};

use self::compile::{Compiled, Job};
use self::gates::Exceptions;
use self::name::SOFTWARE_RULES;
use self::pretended::{GPUS, PACKAGES, PretendedGpu};
use self::table::Table;
use crate::packages::Packages;
use crate::shaders::{self, Shader};

/// At most this many changed kernels per GPU are printed.
const MAX_PRINTED_CHANGES: usize = 20;

/// Runs the command.
///
/// # Errors
///
/// Returns an error if no GPU can be pretended, a kernel does not compile, or a gate fails.
pub fn run(options: &Options) -> Result<(), String> {
    let packages = Packages::unpack("drivers", &PACKAGES)
        .map_err(|reason| format!("no GPU can be pretended on this machine: {reason}"))?;
    let exceptions = Exceptions::read(&folder().join("exceptions.tsv"))?;
    let job = prepare(options)?;
    let results = compile::compile_all(&options.gpus, &packages, &job);
    if results.iter().all(Result::is_err) {
        return Err("no GPU could be pretended; the reasons are above".to_owned());
    }
    let mut failures = Vec::new();
    let mut judged = Vec::new();
    for (gpu, result) in options.gpus.iter().zip(results) {
        // The reason of an error is already printed.
        let Ok(Compiled { table, errors }) = result else { continue };
        let recorded = Table::read(&table_file(gpu))?;
        failures.extend(errors.into_iter().map(|error| format!("{}: {error}", gpu.name)));
        let baseline = recorded.as_ref().filter(|_| !options.bless);
        let failed = gates::failures(gpu.name, &table, baseline, &exceptions);
        failures.extend(failed.into_iter().map(|failure| format!("{}: {failure}", gpu.name)));
        if options.kernel.is_some() {
            print_figures(gpu, &table);
        }
        if let Some(recorded) = &recorded {
            print_changes(gpu, recorded, &table, options);
        }
        if options.bless {
            write(&table_file(gpu), &table.to_text())?;
        }
        judged.push(gpu.name);
    }
    if options.bless {
        write_summary()?;
    }
    if options.kernel.is_none() {
        for kernel in exceptions.unused(&judged) {
            println!("    the exception for `{kernel}` is no longer needed");
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(format!("{} failures:\n{}", failures.len(), failures.join("\n"))),
    }
}

/// Writes the kernels, selects those that GPUs are given, and builds `gpu-stats`.
fn prepare(options: &Options) -> Result<Job, String> {
    let work = target_dir().join("gpus");
    let all = shaders::write_all(&work.join("shaders"))?;
    for rule in &SOFTWARE_RULES {
        if !all.iter().any(|shader| (rule.applies)(&shader.name)) {
            return Err(format!(
                "no kernel matches the rule for {}: update xtask/src/gpus/name.rs",
                rule.description
            ));
        }
    }
    let is_selected = |shader: &&Shader| {
        let is_for_software = SOFTWARE_RULES.iter().any(|rule| (rule.applies)(&shader.name));
        let is_named = options.kernel.as_ref().is_none_or(|text| {
            shader.name.contains(text) || name::short(&shader.name).contains(text)
        });
        !is_for_software && is_named
    };
    let selected: Vec<&Shader> = all.iter().filter(is_selected).collect();
    if selected.is_empty() {
        return Err("no kernel has the text of `--kernel` in its name".to_owned());
    }
    println!("    {} variants, of which {} are for GPUs", all.len(), selected.len());
    let list = work.join("kernels.txt");
    shaders::write_list(&list, selected)?;
    let args = "build --locked --quiet --package xtask-compilers --bin gpu-stats";
    run_command(&mut cargo(&args.split(' ').collect::<Vec<_>>()))?;
    let listings = options.kernel.as_ref().map(|_| work.join("listings"));
    Ok(Job { program: compile::program(&target_dir()), list, listings })
}

/// Prints the figures of every kernel, with the columns of the tables.
fn print_figures(gpu: &PretendedGpu, table: &Table) {
    println!("\n{}: {}", gpu.name, table.adapter);
    println!("{}", table::HEADER);
    for (kernel, figures) in &table.kernels {
        println!("{}\t{kernel}", figures.to_columns());
    }
}

/// Prints how the figures differ from the recorded ones.
fn print_changes(gpu: &PretendedGpu, recorded: &Table, current: &Table, options: &Options) {
    let name = gpu.name;
    if recorded.adapter != current.adapter {
        println!("    {name}: recorded with {}, this is {}", recorded.adapter, current.adapter);
    }
    let changed = changes::changed_kernels(recorded, current);
    for line in changed.iter().take(MAX_PRINTED_CHANGES) {
        println!("    {name}: {line}");
    }
    if changed.len() > MAX_PRINTED_CHANGES {
        println!("    {name}: and {} more kernels changed", changed.len() - MAX_PRINTED_CHANGES);
    }
    let (new, gone) = changes::new_and_gone(recorded, current);
    if options.kernel.is_none() && new + gone > 0 {
        println!("    {name}: {new} kernels are new and {gone} recorded ones no longer exist");
    }
}

/// Writes the summary of all tables in the repository.
fn write_summary() -> Result<(), String> {
    let mut tables = Vec::new();
    for gpu in &GPUS {
        if let Some(table) = Table::read(&table_file(gpu))? {
            tables.push((gpu, table));
        }
    }
    write(&folder().join("README.md"), &summary::text(&tables))
}

/// Returns the folder of the tables.
fn folder() -> PathBuf {
    root().join("benches/gpus")
}

fn table_file(gpu: &PretendedGpu) -> PathBuf {
    folder().join(format!("{}.tsv", gpu.name))
}

fn write(file: &std::path::Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
