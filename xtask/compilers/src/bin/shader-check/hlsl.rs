//! Translates kernels to HLSL and compiles it with DXC.

use std::path::Path;

use anyhow::{Context, Result, bail};
use hassle_rs::{DxcCompiler, DxcLibrary};
use naga::Module;
use naga::back::hlsl;
use naga::valid::ModuleInfo;

/// The oldest shader model of DXIL, which has all that the kernels use.
const SHADER_MODEL: (hlsl::ShaderModel, &str) = (hlsl::ShaderModel::V6_0, "cs_6_0");

/// The arguments that wgpu gives DXC.
const ARGUMENTS: [&str; 4] = ["-HV", "2018", "-no-warnings", "-Ges"];

/// The compiler that Direct3D 12 uses.
pub struct Dxc {
    compiler: DxcCompiler,
    library: DxcLibrary,
    // Fields are dropped in order: the code of the others is in this library.
    _loaded: hassle_rs::Dxc,
}

impl Dxc {
    /// Loads the compiler's library.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot be loaded.
    pub fn load(library: &Path) -> Result<Self> {
        let loaded = hassle_rs::Dxc::new(Some(library.to_owned()))?;
        Ok(Self {
            compiler: loaded.create_compiler()?,
            library: loaded.create_library()?,
            _loaded: loaded,
        })
    }

    /// Compiles the entry point `main` to DXIL, which DXC also validates.
    ///
    /// # Errors
    ///
    /// Returns the compiler's messages.
    pub fn compile(&self, text: &str) -> Result<()> {
        let blob = self.library.create_blob_with_encoding_from_str(text)?;
        let (_, profile) = SHADER_MODEL;
        let compiled = self.compiler.compile(&blob, "", "main", profile, &ARGUMENTS, None, &[]);
        let Err((result, _)) = compiled else { return Ok(()) };
        let errors = result.get_error_buffer().context("DXC failed without a message")?;
        let errors = self.library.get_blob_as_string(&errors.into())?;
        bail!("DXC: {}", errors.trim_end_matches(['\0', '\n']));
    }
}

/// Translates a kernel as wgpu does without checks.
///
/// # Errors
///
/// Returns naga's error.
pub fn translate(module: &Module, info: &ModuleInfo) -> Result<String> {
    let (shader_model, _) = SHADER_MODEL;
    let options = hlsl::Options {
        shader_model,
        // A register space of its own, as the bindings are in space 0.
        immediates_target: Some(hlsl::BindTarget { space: 1, ..hlsl::BindTarget::default() }),
        zero_initialize_workgroup_memory: false,
        restrict_indexing: false,
        force_loop_bounding: false,
        ..hlsl::Options::default()
    };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(module, info, None)
        .context("naga cannot translate the kernel to HLSL")?;
    Ok(text)
}
