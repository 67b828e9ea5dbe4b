//! Prints the figures of kernels.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use anyhow::{Context, Result};
use naga::{AddressSpace, Module};
use serde_json::{Value, json};
use wgpu::Features;
use xtask_compilers::assembly::{inner_loop, matrix_instructions};
use xtask_compilers::kernel::{Kernel, read_list};
use xtask_compilers::statistics::Driver;

use crate::capture::CapturingDevice;

/// Compiles the kernels in `list` and prints their figures. With `assembly`, writes the driver's
/// listings to that folder.
///
/// # Errors
///
/// Returns an error if there is no Vulkan device with a known driver, or a file cannot be read or
/// written. Errors of the driver's compiler are part of the output.
pub fn run(list: &str, assembly: Option<&Path>) -> Result<()> {
    let device = CapturingDevice::open()?;
    let driver = Driver::named(&device.info.driver)?;
    let mut out = BufWriter::new(stdout().lock());
    let adapter = json!({ "adapter": device.info.name.trim(), "driver": device.info.driver_info });
    writeln!(out, "{adapter}")?;
    for file in read_list(list)? {
        let kernel = Kernel::read(&file)?;
        let lacks_feature = kernel.has_64_bit_integers()
            && !device.features.contains(Features::SHADER_INT64)
            || kernel.has_subgroup_operations() && !device.features.contains(Features::SUBGROUP)
            || kernel.matrix_units().is_some_and(|units| !device.has_matrix_units(&units));
        if lacks_feature {
            continue;
        }
        let line = match report(&device, driver, &kernel) {
            Ok((line, listing)) => {
                if let (Some(folder), Some(listing)) = (assembly, listing) {
                    let file =
                        folder.join(file.with_extension("txt").file_name().unwrap_or_default());
                    std::fs::write(&file, format!("; {}\n{listing}", kernel.name))
                        .with_context(|| format!("cannot write {}", file.display()))?;
                }
                line
            }
            Err(error) => json!({ "kernel": kernel.name, "error": format!("{error:#}") }),
        };
        writeln!(out, "{line}")?;
        // If the driver crashes at the next kernel, the output shows where.
        out.flush()?;
    }
    Ok(())
}

/// Compiles a kernel and returns its figures and the driver's listing of its instructions.
fn report(
    device: &CapturingDevice,
    driver: &Driver,
    kernel: &Kernel,
) -> Result<(Value, Option<String>)> {
    let module = naga::front::wgsl::parse_str(&kernel.text)
        .map_err(|error| anyhow::Error::msg(error.emit_to_string(&kernel.text)))?;
    let compiled = device.compile(&kernel.text, &module)?;
    let figures = driver.figures(&compiled.statistics)?;
    let mut listing = None;
    let (mut matrix, mut inner) = (None, None);
    if let Some((representation, dialect)) = driver.assembly {
        let text = compiled.representations.get(representation).with_context(|| {
            format!("{} gives no representation `{representation}`", driver.name)
        })?;
        matrix = Some(matrix_instructions(dialect, text));
        inner = inner_loop(dialect, text);
        listing = Some(text.clone());
    }
    let line = json!({
        "kernel": kernel.name,
        "registers": figures.registers,
        "spills": figures.spills,
        "moves": figures.moves,
        "scratch": figures.scratch,
        "workgroup": workgroup_memory(&module),
        "occupancy": figures.occupancy,
        "instructions": figures.instructions,
        "matrix": matrix,
        "inner": inner.map(|inner| [inner.multiply_adds, inner.instructions]),
    });
    Ok((line, listing))
}

/// Returns the bytes of workgroup memory that the shader declares.
fn workgroup_memory(module: &Module) -> u32 {
    let variables = module.global_variables.iter().map(|(_, variable)| variable);
    variables
        .filter(|variable| variable.space == AddressSpace::WorkGroup)
        .map(|variable| module.types[variable.ty].inner.size(module.to_ctx()))
        .sum()
}
