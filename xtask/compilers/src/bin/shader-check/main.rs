//! Translates kernels with naga as wgpu does for Vulkan and Direct3D 12, and checks the results.
//!
//! Usage: `shader-check LIST FOLDER [DXC]`. `LIST` is a file with the paths of the kernels. The
//! SPIR-V of each is written to `FOLDER`, for `spirv-val`. With `DXC`, the library of the compiler
//! that Direct3D 12 uses, the HLSL of each is compiled to DXIL.
//!
//! Prints the first kernels that fail, and exits with an error if one did.

mod hlsl;
mod spirv;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use xtask_compilers::kernel::{Kernel, read_list};

use crate::hlsl::Dxc;

/// One mistake in a shader fails all its variants.
const MAX_PRINTED_ERRORS: usize = 10;

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (list, folder, dxc) = match args.as_slice() {
        [list, folder] => (list, folder, None),
        [list, folder, dxc] => (list, folder, Some(Dxc::load(dxc.as_ref())?)),
        _ => bail!("usage: shader-check LIST FOLDER [DXC]"),
    };
    let files = read_list(list)?;
    let mut failed = 0;
    for file in &files {
        let kernel = Kernel::read(file)?;
        let name = file.with_extension("spv");
        let words = Path::new(folder).join(name.file_name().unwrap_or_default());
        let Err(error) = check(&kernel, &words, dxc.as_ref()) else { continue };
        failed += 1;
        if failed <= MAX_PRINTED_ERRORS {
            println!("{}: {error:#}", kernel.name);
        }
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{failed} of {} kernels failed", files.len());
    Ok(ExitCode::FAILURE)
}

/// Writes the SPIR-V of a kernel to the file `words` and compiles its HLSL.
fn check(kernel: &Kernel, words: &Path, dxc: Option<&Dxc>) -> Result<()> {
    let module = naga::front::wgsl::parse_str(&kernel.text)
        .map_err(|error| Error::msg(error.emit_to_string(&kernel.text)))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .subgroup_stages(ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| Error::msg(error.emit_to_string(&kernel.text)))?;
    std::fs::write(words, spirv::translate(&module, &info)?)
        .with_context(|| format!("cannot write {}", words.display()))?;
    // Direct3D has no matrix units.
    if let Some(dxc) = dxc.filter(|_| kernel.matrix_units().is_none()) {
        dxc.compile(&hlsl::translate(&module, &info)?)?;
    }
    Ok(())
}
