//! Translates kernels to SPIR-V.

use std::collections::HashSet;

use anyhow::{Context, Result};
use naga::Module;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::ModuleInfo;

/// Translates a kernel as wgpu does without checks on Vulkan 1.3, except for the layouts of types
/// outside of buffers.
///
/// naga states strides and offsets there, too, where they mean nothing. `spirv-val` stops at them
/// and would check nothing else.
///
/// # Errors
///
/// Returns naga's error.
pub fn translate(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>> {
    let options = spv::Options {
        lang_version: (1, 6),
        flags: spv::WriterFlags::LABEL_VARYINGS,
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Unchecked,
            buffer: BoundsCheckPolicy::Unchecked,
            image_load: BoundsCheckPolicy::Unchecked,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let words = spv::write_vec(module, info, &options, None)
        .context("naga cannot translate the kernel to SPIR-V")?;
    let words = without_meaningless_layouts(&words);
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// The number of words before the first instruction.
const HEADER_LEN: usize = 5;

const OP_TYPE_ARRAY: u32 = 28;
const OP_TYPE_RUNTIME_ARRAY: u32 = 29;
const OP_TYPE_STRUCT: u32 = 30;
const OP_TYPE_POINTER: u32 = 32;
const OP_DECORATE: u32 = 71;
const OP_MEMBER_DECORATE: u32 = 72;
const DECORATION_ARRAY_STRIDE: u32 = 6;
const DECORATION_OFFSET: u32 = 35;
/// The storage classes of buffers: uniform, push constant, storage buffer.
const BUFFER_CLASSES: [u32; 3] = [2, 9, 12];

/// Removes the strides of arrays and the offsets of fields that are not in buffers.
fn without_meaningless_layouts(words: &[u32]) -> Vec<u32> {
    let all: Vec<Vec<u32>> = instructions(words).collect();
    let mut in_buffers = HashSet::new();
    // In reverse order, because types are declared after those that they consist of.
    for instruction in all.iter().rev() {
        match instruction[..] {
            [OP_TYPE_POINTER, _, class, pointee] if BUFFER_CLASSES.contains(&class) => {
                in_buffers.insert(pointee);
            }
            [OP_TYPE_ARRAY | OP_TYPE_RUNTIME_ARRAY, array, element, ..]
                if in_buffers.contains(&array) =>
            {
                in_buffers.insert(element);
            }
            [OP_TYPE_STRUCT, record, ref members @ ..] if in_buffers.contains(&record) => {
                in_buffers.extend(members);
            }
            _ => {}
        }
    }
    let mut out = words[..HEADER_LEN].to_vec();
    let mut position = HEADER_LEN;
    for instruction in &all {
        let next = position + instruction.len();
        let is_meaningless = match instruction[..] {
            [OP_DECORATE, ty, DECORATION_ARRAY_STRIDE, _]
            | [OP_MEMBER_DECORATE, ty, _, DECORATION_OFFSET, _] => !in_buffers.contains(&ty),
            _ => false,
        };
        if !is_meaningless {
            out.extend(&words[position..next]);
        }
        position = next;
    }
    out
}

/// Returns the instructions of a module. The first word of each is only the opcode, without the
/// length.
fn instructions(words: &[u32]) -> impl Iterator<Item = Vec<u32>> {
    let mut rest = &words[HEADER_LEN..];
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let (instruction, tail) = rest.split_at_checked((first >> 16) as usize)?;
        rest = tail;
        Some([&[first & 0xffff], instruction.get(1..)?].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_types_in_buffers_keep_their_layouts() {
        let text = "struct Pair { value: f32, index: u32 }\n\
                    var<workgroup> tile: array<array<Pair, 4>, 8>;\n\
                    @group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;\n\
                    @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {\n\
                        tile[i][1].value = 1.0;\n\
                        workgroupBarrier();\n\
                        out[i].x = tile[7u - i][1].value;\n\
                    }";
        let module = naga::front::wgsl::parse_str(text).unwrap();
        let capabilities = naga::valid::Capabilities::all();
        let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities)
            .validate(&module)
            .unwrap();
        let words = spv::write_vec(&module, &info, &spv::Options::default(), None).unwrap();
        let strides_and_offsets = |words: &[u32]| {
            let is_stride = |code: &&Vec<u32>| code.get(2) == Some(&DECORATION_ARRAY_STRIDE);
            let is_offset = |code: &&Vec<u32>| code.get(3) == Some(&DECORATION_OFFSET);
            let all: Vec<Vec<u32>> = instructions(words).collect();
            let decorates = all.iter().filter(|code| code[0] == OP_DECORATE);
            let member_decorates = all.iter().filter(|code| code[0] == OP_MEMBER_DECORATE);
            (decorates.filter(is_stride).count(), member_decorates.filter(is_offset).count())
        };
        // The buffer is a struct around its array.
        assert_eq!(strides_and_offsets(&words), (3, 3));
        assert_eq!(strides_and_offsets(&without_meaningless_layouts(&words)), (1, 1));
    }
}
