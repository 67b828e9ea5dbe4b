//! `cargo xtask vulkan`: runs the tests and the example with Vulkan's validation layer, which
//! checks every call and every barrier, on lavapipe and on a pretended GPU.
//!
//! The layer is one of Debian's packages, which are unpacked and not installed. lavapipe computes,
//! so the tests must pass there. The pretended GPU computes nothing: the tests run there to their
//! end without comparing values.

mod adapter;
mod allowed;
pub mod build;
mod layer;
mod messages;
mod options;
mod run;

use std::collections::BTreeMap;
use std::time::Instant;

pub use options::Options;
use xtask::process::target_dir;

use self::adapter::Adapter;
use self::allowed::ALLOWED;
use self::build::Run;
use self::layer::Layer;
use self::messages::Message;
use crate::packages::Packages;

/// The packages with the layer, the drivers and the Vulkan loader.
const PACKAGES: [&str; 3] = ["vulkan-validationlayers", "mesa-vulkan-drivers", "libvulkan1"];

/// The package with the stand-ins for kernel drivers.
const STAND_INS: &str = "mesa-drm-shim";

/// At most this many distinct messages of a run are printed.
const MAX_PRINTED_MESSAGES: usize = 5;

/// Runs the command. A pretended GPU that is not available is reported, and the programs run on
/// lavapipe only.
///
/// # Errors
///
/// Returns an error if the layer or lavapipe is not available, a program fails, or the layer
/// reports an error or a warning that is not allowed.
pub fn run(options: &Options) -> Result<(), String> {
    let packages = unpack()?;
    let folder = target_dir().join("vulkan");
    let layer = Layer::install(packages, folder)?;
    let tools = build::tools()?;
    let mut adapters = Vec::new();
    for adapter in Adapter::ALL {
        match layer.finds_missing_barrier(adapter, &tools) {
            Ok(true) => adapters.push(adapter),
            Ok(false) => return Err(format!("{adapter}: the layer misses a missing barrier")),
            Err(reason) => println!("    {adapter} is not used: {reason}"),
        }
    }
    if !adapters.contains(&Adapter::Lavapipe) {
        return Err("lavapipe is not available, on which results are compared".to_owned());
    }
    let runs = build::runs(&options.only)?;
    let mut failures = Vec::new();
    let mut allowed = BTreeMap::new();
    for adapter in adapters {
        for run in runs.iter().filter(|run| run.is_on(adapter)) {
            failures.extend(check(&layer, adapter, run, &tools, &mut allowed));
        }
    }
    for (id, count) in &allowed {
        println!("    {count} allowed messages {id}");
    }
    let unused = ALLOWED.iter().filter(|entry| !allowed.contains_key(entry.id));
    for entry in unused.filter(|_| options.only.is_empty()) {
        println!("    {} is no longer reported: remove it from the allowed messages", entry.id);
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(format!("{} failures:\n{}", failures.len(), failures.join("\n"))),
    }
}

/// Unpacks the packages. Without the stand-ins, lavapipe is left.
fn unpack() -> Result<Packages, String> {
    let all: Vec<&str> = PACKAGES.into_iter().chain([STAND_INS]).collect();
    Packages::unpack("layers", &all).or_else(|reason| {
        println!("    {reason}");
        Packages::unpack("layers-without-stand-ins", &PACKAGES)
            .map_err(|reason| format!("the validation layer cannot be had: {reason}"))
    })
}

/// Runs a test module or the example, and returns what is wrong. Counts the allowed messages by their id.
fn check(
    layer: &Layer,
    adapter: Adapter,
    run: &Run,
    tools: &build::Tools,
    allowed: &mut BTreeMap<&'static str, usize>,
) -> Option<String> {
    let start = Instant::now();
    let name = format!("{adapter} {}", run.name());
    let outcome = layer
        .command(adapter, &run.path, tools)
        .and_then(|mut command| layer.run(run.configure(&mut command, adapter), &name));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(reason) => return Some(format!("{name}: {reason}")),
    };
    let (expected, unexpected): (Vec<&Message>, Vec<&Message>) = outcome
        .messages
        .iter()
        .filter(|message| message.is_problem())
        .partition(|message| allowed::entry(message).is_some());
    for entry in expected.iter().filter_map(|message| allowed::entry(message)) {
        *allowed.entry(entry.id).or_default() += 1;
    }
    println!(
        "    {name}: {} in {:.0} s, {} messages, {} allowed",
        outcome.result(),
        start.elapsed().as_secs_f64(),
        unexpected.len(),
        expected.len()
    );
    let mut failures = Vec::new();
    if !outcome.messages.iter().any(Message::says_that_checks_are_on) {
        failures.push("the layer did not run".to_owned());
    }
    failures.extend(outcome.failure);
    let distinct = messages::distinct(&unexpected);
    failures.extend(distinct.iter().take(MAX_PRINTED_MESSAGES).map(|(message, count)| {
        format!("{count} x {}", message.text.trim_end().replace('\n', "\n    "))
    }));
    if distinct.len() > MAX_PRINTED_MESSAGES {
        failures.push(format!("and {} more", distinct.len() - MAX_PRINTED_MESSAGES));
    }
    if failures.is_empty() {
        return None;
    }
    failures.push(format!("the output is in {}", outcome.output.display()));
    Some(format!("{name}:\n  {}", failures.join("\n  ")))
}
