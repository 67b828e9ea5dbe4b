//! `cargo xtask gpus`: compiles every kernel with the drivers of GPUs that are not there, and
//! compares what their compilers report with the families of kernels in `benches/gpus/`.

mod changes;
mod compare;
mod compile;
mod families;
mod figures;
mod gates;
mod name;
mod options;
pub mod pretended;
mod summary;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

pub use options::Options;
use xtask::process::{cargo, root, run_command, target_dir};

use self::compare::Baseline;
use self::compile::{Compiled, Job};
use self::families::families;
use self::figures::Figures;
use self::gates::Exceptions;
use self::name::SOFTWARE_RULES;
use self::pretended::{GPUS, PACKAGES, PretendedGpu};
use self::table::{Row, Table};
use crate::packages::Packages;
use crate::shaders::{self, Shader};

/// How to find the kernels of a family that fails.
const FIND_KERNELS: &str = "
To find the kernels of these families, compare with the tables of a commit before the change:
    git worktree add ../before COMMIT
    (cd ../before && cargo xtask gpus)
    cargo xtask gpus --against ../before/target/gpus/tables";

/// Runs the command.
///
/// # Errors
///
/// Returns an error if no GPU can be pretended, a kernel does not compile, or a gate fails. With
/// `--bless`, also if one of the GPUs cannot be pretended.
pub fn run(options: &Options) -> Result<(), String> {
    let packages = Packages::unpack("drivers", &PACKAGES)
        .map_err(|reason| format!("no GPU can be pretended on this machine: {reason}"))?;
    let exceptions = Exceptions::read(&folder().join("exceptions.tsv"))?;
    let baselines: Vec<Baseline> =
        options.gpus.iter().map(|gpu| baseline(gpu, options)).collect::<Result<_, _>>()?;
    let job = prepare(options)?;
    let results = compile::compile_all(&options.gpus, &packages, &job);
    if results.iter().all(Result::is_err) {
        return Err("no GPU could be pretended; the reasons are above".to_owned());
    }
    let mut failures = Vec::new();
    let mut advice = "";
    let mut tables = Vec::new();
    for ((&gpu, result), mut baseline) in options.gpus.iter().zip(results).zip(baselines) {
        // The reason of an error is already printed.
        let Ok(Compiled { table, errors: mut failed }) = result else { continue };
        failed.extend(gates::failures(gpu.name, &table, &exceptions));
        if options.kernel.is_some() {
            print_figures(gpu, &table);
            baseline.keep_whole_families(&table);
        }
        baseline.print_changes(gpu.name, &table, options.kernel.is_none());
        if !options.bless {
            let fallen = baseline.fallen(&table);
            if !fallen.families.is_empty() && fallen.kernels.is_empty() {
                advice = FIND_KERNELS;
            }
            failed.extend(fallen.families.into_iter().chain(fallen.kernels));
        }
        if options.kernel.is_none() {
            write(&kernels_file(gpu, failed.is_empty()), &table.to_text())?;
        }
        failures.extend(failed.into_iter().map(|failure| format!("{}: {failure}", gpu.name)));
        tables.push((gpu, table));
    }
    if options.bless {
        record(&folder(), &tables)?;
    }
    if options.kernel.is_none() {
        let judged: Vec<&str> = tables.iter().map(|(gpu, _)| gpu.name).collect();
        for kernel in exceptions.unused(&judged) {
            println!("    the exception for `{kernel}` is no longer needed");
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(format!("{} failures:\n{}{advice}", failures.len(), failures.join("\n"))),
    }
}

/// Reads what a GPU's figures are compared with.
fn baseline(gpu: &PretendedGpu, options: &Options) -> Result<Baseline, String> {
    let file = match &options.against {
        Some(folder) => folder.join(format!("{}.tsv", gpu.name)),
        None => kernels_file(gpu, true),
    };
    let kernels = Table::read(&file)?;
    if options.against.is_some() && kernels.is_none() {
        return Err(format!(
            "there is no {}: `--against` needs a folder with the tables of a run",
            file.display()
        ));
    }
    let recorded = Table::read(&families_file(&folder(), gpu))?;
    Ok(Baseline { recorded, kernels, gates_kernels: options.against.is_some() })
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
fn print_figures(gpu: &PretendedGpu, table: &Table<Figures>) {
    println!("\n{}: {}", gpu.name, table.adapter);
    println!("{}\t{}", Figures::COLUMNS.join("\t"), Figures::NAME);
    for (kernel, figures) in &table.rows {
        println!("{}\t{kernel}", figures.to_columns().join("\t"));
    }
}

/// Writes the families of every GPU and the summary.
fn record(folder: &Path, tables: &[(&PretendedGpu, Table<Figures>)]) -> Result<(), String> {
    if tables.len() < GPUS.len() {
        return Err("nothing was recorded, because not every GPU could be pretended".to_owned());
    }
    for (gpu, table) in tables {
        write(&families_file(folder, gpu), &families(table).to_text())?;
    }
    write(&folder.join("README.md"), &summary::text(tables))
}

/// Returns the folder of the recorded families, their summary and the exceptions.
fn folder() -> PathBuf {
    root().join("benches/gpus")
}

fn families_file(folder: &Path, gpu: &PretendedGpu) -> PathBuf {
    folder.join(format!("{}.tsv", gpu.name))
}

/// Returns the file for the figures of every kernel in the last run that passed or failed. A run that
/// fails does not replace the tables that the next run is compared with.
fn kernels_file(gpu: &PretendedGpu, passed: bool) -> PathBuf {
    let folder = if passed { "gpus/tables" } else { "gpus/failed" };
    target_dir().join(folder).join(format!("{}.tsv", gpu.name))
}

/// Writes a file, and creates its folder.
fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new("")))
        .and_then(|()| fs::write(file, text))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}
