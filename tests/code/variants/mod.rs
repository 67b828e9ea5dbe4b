//! Expands and validates every kernel variant and translates it to SPIR-V, Metal and HLSL, without
//! a GPU.

mod lint;

use std::collections::BTreeSet;

use burn_wgsl::kernels;
use burn_wgsl::runtime::{Compiler, Def, ParamField, ParamsBinding, Target, Variant, expand};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{Module, TypeInner};

/// Returns the WGSL text of a variant. `loads_u64` selects vec4 loads as `vec2<u64>`.
fn expanded(
    variant: &Variant,
    compiler: Compiler,
    params: ParamsBinding,
    loads_u64: bool,
) -> String {
    expand(variant, Target { compiler, params, loads_u64 })
        .unwrap_or_else(|error| panic!("{variant}: {error}"))
        .text
}

fn parsed(variant: &Variant, text: &str) -> Module {
    naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(text)))
}

#[test]
fn every_variant_is_valid_for_every_api() {
    let variants = kernels::variants();
    assert!(variants.len() > 300, "only {} variants are listed", variants.len());
    let texts = variants.iter().flat_map(|variant| {
        let text = |loads_u64| expanded(variant, Compiler::Naga, ParamsBinding::Uniform, loads_u64);
        let (loads_u32, loads_u64) = (text(false), text(true));
        let loads_u64 = (loads_u64 != loads_u32).then_some((variant, loads_u64));
        std::iter::once((variant, loads_u32)).chain(loads_u64)
    });
    let mut violations = BTreeSet::new();
    for (variant, text) in texts {
        let module = parsed(variant, &text);
        // The capabilities of every browser, and those that the launcher asks the adapter for.
        let mut capabilities = Capabilities::empty();
        capabilities.set(Capabilities::SHADER_FLOAT16_IN_FLOAT32, text.contains("unpack2x16float"));
        capabilities.set(Capabilities::SUBGROUP, text.contains("subgroup"));
        let has_units = text.contains("coop_mat");
        let units = Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16;
        capabilities.set(units, has_units);
        capabilities.set(Capabilities::SHADER_INT64, has_64_bit_integers(&text));
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
            .subgroup_operations(naga::valid::SubgroupOperationSet::all())
            .validate(&module)
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));
        let found = lint::violations(&module, &info).into_iter();
        violations.extend(found.map(|message| format!("{}: {message}", variant.source.name)));

        let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
        spv::write_vec(&module, &info, &options, None)
            .unwrap_or_else(|error| panic!("{variant}: SPIR-V: {error}"));

        let lang_version = if has_units { (2, 3) } else { msl::Options::default().lang_version };
        let options =
            msl::Options { fake_missing_bindings: true, lang_version, ..msl::Options::default() };
        let pipeline = msl::PipelineOptions::default();
        msl::write_string(&module, &info, &options, &pipeline)
            .unwrap_or_else(|error| panic!("{variant}: Metal: {error}"));

        if has_units {
            check_matrix_alignment(variant, &module);
            // Direct3D has none.
            continue;
        }
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
        let twice = lint::functions_defined_twice(&out);
        violations.extend(twice.map(|line| format!("{}: HLSL: {line}", variant.source.name)));
    }
    assert!(violations.is_empty(), "the lint found:\n{violations:#?}");
}

/// Loops that grow with the operands end in silence on some adapters: their shader states how many rounds there are,
/// and in debug builds every launch of it must do so too (`kernels/launch/mod.rs`).
#[test]
fn shaders_state_the_rounds_of_loops_that_grow() {
    let mut wrong = BTreeSet::new();
    for variant in &kernels::variants() {
        if variant.prologues.is_empty() && variant.epilogue.is_none() {
            let text = expanded(variant, Compiler::Naga, ParamsBinding::Uniform, false);
            let growing = lint::growing_loops(&parsed(variant, &text));
            if !growing.is_empty() && !variant.source.states_rounds() {
                wrong.insert(format!("{}: {growing:?}", variant.source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "no line `// Rounds:`\n{wrong:#?}");
}

/// Checks that matrices in workgroup memory are aligned to 16 bytes however a driver orders the variables:
/// NVIDIA's does not align arrays of f16, and loads from elsewhere.
fn check_matrix_alignment(variant: &Variant, module: &Module) {
    let variables = module.global_variables.iter().map(|(_, variable)| variable);
    for variable in variables.filter(|variable| variable.space == naga::AddressSpace::WorkGroup) {
        let size = module.types[variable.ty].inner.size(module.to_ctx());
        assert!(size.is_multiple_of(16), "{variant}: {:?} has {size} bytes", variable.name);
    }
}

#[test]
fn parameters_have_the_layout_of_their_rust_structs() {
    for variant in &kernels::variants() {
        let text = expanded(variant, Compiler::Naga, ParamsBinding::Uniform, false);
        let module = parsed(variant, &text);
        let params = params_type(variant, &module);
        let TypeInner::Struct { members, .. } = &module.types[params].inner else {
            panic!("{variant}: {:?} is not a struct", module.types[params]);
        };
        // The expander appends the field `launch`.
        let Some((launch, members)) = members.split_last() else {
            panic!("{variant} has no parameters");
        };
        // The words of fused ops follow the parameters of the kernel.
        let words = variant.words();
        let members = if words > 0 { &members[..members.len() - 1] } else { members };
        // The array of scalars of a fused kernel has one vec4 in Rust, and as many as it needs in
        // WGSL.
        let more_vec4s = variant.defs.iter().find_map(|(name, def)| match def {
            Def::Int(count) if *name == "WORDS" => Some(*count as usize - 1),
            _ => None,
        });
        let more_vec4s = more_vec4s.unwrap_or(0) + words.div_ceil(4);
        let end = variant.source.params_size.next_multiple_of(16) + 16 * more_vec4s;
        assert_eq!(
            (launch.name.as_deref(), launch.offset as usize),
            (Some("launch"), end),
            "{variant}: the end of `Params`"
        );
        check_members(variant, &module, members, variant.source.params);
    }
}

/// Compares the fields of a WGSL struct with those of a Rust struct.
fn check_fields(
    variant: &Variant,
    module: &Module,
    ty: naga::Handle<naga::Type>,
    fields: &[ParamField],
) {
    let TypeInner::Struct { members, .. } = &module.types[ty].inner else {
        assert!(fields.is_empty(), "{variant}: {:?} is not a struct", module.types[ty]);
        return;
    };
    check_members(variant, module, members, fields);
}

/// Compares members of a WGSL struct with the fields of a Rust struct.
fn check_members(
    variant: &Variant,
    module: &Module,
    members: &[naga::StructMember],
    fields: &[ParamField],
) {
    let is_padding = |name: &str| {
        name.strip_prefix("pad").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
    };
    let mut fields = fields.iter().filter(|field| !is_padding(field.name));
    for member in members {
        let name = member.name.as_deref().unwrap_or_default();
        if is_padding(name) {
            continue;
        }
        let field = fields.next().unwrap_or_else(|| panic!("{variant}: no Rust field `{name}`"));
        let size = match variant.source.name {
            "fused" | "lines" if name == "words" => field.size,
            _ => module.types[member.ty].inner.size(module.to_ctx()) as usize,
        };
        assert_eq!(
            (field.name, field.offset, field.size),
            (name, member.offset as usize, size),
            "{variant}: name, offset and size of a parameter, in Rust and in WGSL"
        );
        if !field.fields.is_empty() {
            check_fields(variant, module, member.ty, field.fields);
        }
    }
    let extra = fields.next();
    assert!(extra.is_none(), "{variant}: no WGSL field for {extra:?}");
}

/// Returns the type of the parameters, the global variable `p`.
fn params_type(variant: &Variant, module: &Module) -> naga::Handle<naga::Type> {
    let mut globals = module.global_variables.iter();
    let params = globals.find(|(_, global)| global.name.as_deref() == Some("p"));
    params.unwrap_or_else(|| panic!("{variant} has no parameters")).1.ty
}

#[test]
fn parameters_that_fit_are_valid_as_immediates() {
    let mut fit = 0;
    for variant in &kernels::variants() {
        if variant.source.params_size > burn_wgsl::device::IMMEDIATE_BYTES as usize {
            continue;
        }
        let text = expanded(variant, Compiler::Naga, ParamsBinding::Immediates, false);
        assert!(text.contains("var<immediate> p:"), "{variant}");
        fit += 1;
        Validator::new(ValidationFlags::all(), Capabilities::all())
            .validate(&parsed(variant, &text))
            .unwrap_or_else(|error| panic!("{variant}: {}\n{text}", error.emit_to_string(&text)));
    }
    assert!(fit > 100, "only {fit} variants have few parameters");
}

#[test]
fn every_variant_is_listed_once() {
    let mut names: Vec<String> = kernels::variants().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    let listed = names.len();
    names.dedup();
    assert_eq!(names.len(), listed);
}

/// Writes the variants for browsers. `cargo xtask tint` compiles the files with Tint, Chromium's
/// compiler.
#[test]
fn every_variant_is_written_for_browsers() {
    write_variants(|variant| {
        let text = expanded(variant, Compiler::Browser, ParamsBinding::Uniform, false);
        // Browsers have neither 64-bit integers nor matrix units, and bind few storage buffers.
        let buffers = text.matches("var<storage").count();
        let fits = buffers <= wgpu::Limits::default().max_storage_buffers_per_shader_stage as usize;
        (fits && !has_64_bit_integers(&text) && !text.contains("coop_mat")).then_some(text)
    });
}

/// Writes the variants for GPUs. `cargo xtask gpus` and `cargo xtask validate` compile the files
/// with the compilers of drivers and APIs.
#[test]
fn every_variant_is_written_for_gpus() {
    write_variants(|variant| {
        // The choice of the runtime on an adapter with immediates.
        let fit = variant.source.params_size <= burn_wgsl::device::IMMEDIATE_BYTES as usize;
        let params = if fit { ParamsBinding::Immediates } else { ParamsBinding::Uniform };
        Some(expanded(variant, Compiler::Naga, params, false))
    });
}

/// Writes the text of each variant that has one to the folder in `BURN_WGSL_SHADERS`, one file
/// each, whose first line names the variant. Does nothing without the environment variable.
fn write_variants(text: impl Fn(&Variant) -> Option<String> + Sync) {
    let folder = std::env::var_os("BURN_WGSL_SHADERS").filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(std::path::PathBuf::from) else { return };
    let write = |number: usize, variant: &Variant| {
        let Some(text) = text(variant) else { return };
        let file = folder.join(format!("{}-{number}.wgsl", variant.source.name));
        std::fs::write(&file, format!("// {variant}\n{text}"))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    };
    let variants = kernels::variants();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = variants.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (index, variants) in variants.chunks(share).enumerate() {
            let write = &write;
            scope.spawn(move || {
                let numbered = (index * share..).zip(variants);
                numbered.for_each(|(number, variant)| write(number, variant));
            });
        }
    });
}

fn has_64_bit_integers(text: &str) -> bool {
    text.contains("i64") || text.contains("u64")
}
