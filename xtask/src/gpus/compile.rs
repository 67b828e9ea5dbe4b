//! Compiles kernels on pretended GPUs with `gpu-stats`, several GPUs at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use super::figures::Figures;
use super::name;
use super::pretended::PretendedGpu;
use super::table::Table;
use crate::packages::Packages;

/// What all GPUs have in common.
pub struct Job {
    /// The path of `gpu-stats`.
    pub program: PathBuf,
    /// The file with the paths of the kernels.
    pub list: PathBuf,
    /// The folder for the drivers' listings, with a subfolder per GPU; `None` to drop them.
    pub listings: Option<PathBuf>,
}

/// The result of one GPU.
pub struct Compiled {
    pub table: Table<Figures>,
    /// A message for each kernel that the driver could not compile.
    pub errors: Vec<String>,
}

/// Compiles the kernels on each GPU and returns the results in the order of `gpus`.
pub fn compile_all(
    gpus: &[&'static PretendedGpu],
    packages: &Packages,
    job: &Job,
) -> Vec<Result<Compiled, String>> {
    let next_gpu = Mutex::new(gpus.iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    let worker = || {
        loop {
            let next = next_gpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
            let Some((index, gpu)) = next else { break };
            let start = Instant::now();
            let result = compile(gpu, packages, job);
            match &result {
                Ok(compiled) => {
                    let (kernels, seconds) =
                        (compiled.table.rows.len(), start.elapsed().as_secs_f64());
                    println!("    {}: {kernels} kernels in {seconds:.0} s", gpu.name);
                }
                Err(reason) => println!("    {}: {reason}", gpu.name),
            }
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(index, result);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(gpus.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).into_values().collect()
}

fn compile(gpu: &PretendedGpu, packages: &Packages, job: &Job) -> Result<Compiled, String> {
    let mut command = gpu.command(packages, &job.program)?;
    command.arg(&job.list);
    if let Some(folder) = &job.listings {
        let folder = folder.join(gpu.name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        command.arg(folder);
    }
    let output =
        command.output().map_err(|error| format!("gpu-stats could not be started: {error}"))?;
    parse(&output)
}

/// Parses the output of `gpu-stats`.
fn parse(output: &Output) -> Result<Compiled, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let adapter = lines.next().unwrap_or_default();
    let mut kernels = BTreeMap::new();
    let mut errors = Vec::new();
    let mut last_kernel = "none".to_owned();
    for line in lines {
        let kernel = line["kernel"].as_str().unwrap_or_default();
        kernel.clone_into(&mut last_kernel);
        match (Figures::from_json(&line), line["error"].as_str()) {
            (Some(figures), _) => {
                if kernels.insert(name::short(kernel), figures).is_some() {
                    return Err(format!("the short name of `{kernel}` is not unique"));
                }
            }
            (None, error) => {
                errors.push(format!("{kernel}: {}", error.unwrap_or("malformed figures")));
            }
        }
    }
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let message = messages.lines().find(|line| line.starts_with("Error")).unwrap_or_default();
        let status = output.status;
        return Err(format!("gpu-stats: {status}, last kernel: {last_kernel}. {message}"));
    }
    let [Some(name), Some(driver)] = ["adapter", "driver"].map(|key| adapter[key].as_str()) else {
        return Err("gpu-stats describes no adapter".to_owned());
    };
    let table = Table { adapter: format!("{name}, {driver}"), rows: kernels };
    Ok(Compiled { table, errors })
}

/// Returns the path of `gpu-stats` in cargo's target folder.
pub fn program(target_dir: &Path) -> PathBuf {
    target_dir.join("debug/gpu-stats")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    const FIGURES: &str = concat!(
        r#""registers":12,"spills":0,"moves":0,"scratch":0,"workgroup":0,"occupancy":32,"#,
        r#""instructions":77,"matrix":0,"inner":null"#
    );

    fn output(lines: &[String]) -> Output {
        let stdout = lines.join("\n").into_bytes();
        Output { status: ExitStatus::default(), stdout, stderr: Vec::new() }
    }

    #[test]
    fn output_is_parsed_into_figures_and_errors() {
        let lines = [
            r#"{"adapter":"NAVI31","driver":"Mesa 26.2.6"}"#.to_owned(),
            format!(r#"{{"kernel":"gather E=f32",{FIGURES}}}"#),
            r#"{"kernel":"cast","error":"out of registers"}"#.to_owned(),
        ];
        let compiled = parse(&output(&lines)).unwrap();
        assert_eq!(compiled.table.adapter, "NAVI31, Mesa 26.2.6");
        assert_eq!(compiled.table.rows["gather f32"].occupancy, 32);
        assert_eq!(compiled.errors, ["cast: out of registers"]);
    }

    #[test]
    fn equal_short_names_are_an_error() {
        let adapter = r#"{"adapter":"x","driver":"y"}"#.to_owned();
        let line = |name: &str| format!(r#"{{"kernel":"{name}",{FIGURES}}}"#);
        let lines = [adapter, line("gather E=f32"), line("gather O=f32")];
        assert!(parse(&output(&lines)).err().unwrap().contains("gather O=f32"));
    }
}
