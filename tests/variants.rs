//! Every kernel variant compiles everywhere on paper: expanded, validated, and written as SPIR-V, Metal
//! and HLSL, without a GPU.

use burn_wgsl::runtime::{Compiler, ParamsIn, Target, expand};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};

#[test]
fn every_variant_is_valid_for_every_api() {
    let variants = burn_wgsl::kernels::variants();
    assert!(variants.len() > 300, "only {} variants are listed", variants.len());
    let texts = variants.iter().flat_map(|variant| {
        let text = |wide| {
            let target = Target { compiler: Compiler::Naga, params: ParamsIn::Uniform, wide };
            expand(variant, target).unwrap_or_else(|error| panic!("{variant}: {error}"))
        };
        let (plain, wide) = (text(false), text(true));
        let wide = (wide != plain).then_some((variant, wide));
        std::iter::once((variant, plain)).chain(wide)
    });
    for (variant, text) in texts {
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));
        // What browsers guarantee and nothing more, unless the variant is for adapters that have it.
        let mut capabilities = Capabilities::empty();
        capabilities.set(Capabilities::SHADER_FLOAT16_IN_FLOAT32, text.contains("unpack2x16float"));
        capabilities.set(Capabilities::SUBGROUP, text.contains("subgroup"));
        capabilities.set(Capabilities::SHADER_INT64, is_wide(&text));
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
            .subgroup_operations(naga::valid::SubgroupOperationSet::all())
            .validate(&module)
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));

        let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
        spv::write_vec(&module, &info, &options, None)
            .unwrap_or_else(|error| panic!("{variant}: SPIR-V: {error}"));

        let options = msl::Options { fake_missing_bindings: true, ..msl::Options::default() };
        let pipeline = msl::PipelineOptions::default();
        msl::write_string(&module, &info, &options, &pipeline)
            .unwrap_or_else(|error| panic!("{variant}: Metal: {error}"));

        let options = hlsl::Options {
            fake_missing_bindings: true,
            shader_model: hlsl::ShaderModel::V6_0,
            ..hlsl::Options::default()
        };
        let pipeline = hlsl::PipelineOptions::default();
        let mut out = String::new();
        hlsl::Writer::new(&mut out, &options, &pipeline)
            .write(&module, &info, None)
            .unwrap_or_else(|error| panic!("{variant}: HLSL: {error}"));
    }
}

/// Parameters that fit into immediates may be given there; then they must be valid there.
#[test]
fn parameters_that_fit_are_valid_as_immediates() {
    let mut fit = 0;
    for variant in &burn_wgsl::kernels::variants() {
        let text = expand(
            variant,
            Target { compiler: Compiler::Naga, params: ParamsIn::Immediates, wide: false },
        )
        .unwrap();
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));
        let params =
            module.global_variables.iter().find(|(_, global)| global.name.as_deref() == Some("p"));
        let (_, params) = params.unwrap_or_else(|| panic!("{variant} has no parameters"));
        assert_eq!(params.space, naga::AddressSpace::Immediate, "{variant}");
        if module.types[params.ty].inner.size(module.to_ctx()) > burn_wgsl::device::IMMEDIATE_BYTES
        {
            continue;
        }
        fit += 1;
        Validator::new(ValidationFlags::all(), Capabilities::all())
            .validate(&module)
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));
    }
    assert!(fit > 100, "only {fit} variants have few parameters");
}

#[test]
fn variants_are_listed_once() {
    let mut names: Vec<String> =
        burn_wgsl::kernels::variants().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() > 300);
}

/// Writes what browsers get, a file for each variant, to the folder that `BURN_WGSL_SHADERS` names: `cargo xtask tint`
/// has a browser's compiler read them.
#[test]
fn every_variant_is_written_for_browsers() {
    let Some(folder) = std::env::var_os("BURN_WGSL_SHADERS").map(std::path::PathBuf::from) else {
        return;
    };
    for (number, variant) in burn_wgsl::kernels::variants().iter().enumerate() {
        let text = expand(
            variant,
            Target { compiler: Compiler::Browser, params: ParamsIn::Uniform, wide: false },
        )
        .unwrap_or_else(|error| panic!("{variant}: {error}"));
        // No browser has integers of 64 bits, so none is ever given these.
        if is_wide(&text) {
            continue;
        }
        let file = folder.join(format!("{}-{number}.wgsl", variant.source.name));
        std::fs::write(&file, format!("// {variant}\n{text}"))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

fn is_wide(text: &str) -> bool {
    text.contains("i64") || text.contains("u64")
}
