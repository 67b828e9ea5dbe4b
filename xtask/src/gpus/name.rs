//! The names of kernels: which of them GPUs are given, their short form in tables, and their families.

/// A word of a kernel's name: a flag, or a definition with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

/// Splits the name of a kernel at the spaces outside of expressions, which are in backticks.
fn words(kernel: &str) -> impl Iterator<Item = Word<'_>> {
    let mut in_expression = false;
    kernel
        .split(move |c| {
            in_expression ^= c == '`';
            c == ' ' && !in_expression
        })
        .map(|word| match word.split_once('=') {
            Some((name, value)) if !word.starts_with('`') => Word { name, value: Some(value) },
            _ => Word { name: word, value: None },
        })
}

/// Returns whether a kernel's name contains all of these words.
pub fn has_words(kernel: &str, wanted: &[&str]) -> bool {
    let is_word = |wanted: &&str| {
        let wanted = words(wanted).next();
        words(kernel).any(|word| Some(word) == wanted)
    };
    wanted.iter().all(is_word)
}

/// A rule that recognises variants which only software adapters are given.
pub struct SoftwareRule {
    pub description: &'static str,
    pub applies: fn(&str) -> bool,
}

/// The variants that `src/kernels/policy/software.rs` selects and `gpu.rs` does not.
pub const SOFTWARE_RULES: [SoftwareRule; 4] = [
    SoftwareRule {
        description: "matrix units in subgroups of eight, which no pretended GPU has",
        applies: |kernel| has_words(kernel, &["UNITS", "SUBGROUP_SIZE=8"]),
    },
    SoftwareRule {
        description: "teams that are subgroups of eight, which no pretended GPU has",
        applies: |kernel| has_words(kernel, &["SUBGROUP"]),
    },
    SoftwareRule {
        description: "workgroups of eight invocations",
        applies: |kernel| has_words(kernel, &["WORKGROUP_SIZE=8"]),
    },
    SoftwareRule {
        description: "the strategy `vec4`: products without workgroup memory, in vec4s",
        applies: |kernel| {
            // Small products are in vec4s too, and have several tiles per workgroup.
            let has = |name: &str| words(kernel).any(|word| word.name == name);
            has("ROW_BLOCKS") && has("VEC4") && !has("TILED") && !has("TILES")
        },
    },
];

/// Returns the name of a kernel without the names of types and expressions, whose values are
/// enough. Constants, inputs and outputs with programs, and results of 16 bits keep their names.
pub fn short(kernel: &str) -> String {
    let is_16_bit = |name: &str| name.ends_with(":F16") || name.ends_with(":BF16");
    let words = words(kernel).map(|Word { name, value }| match value {
        Some(value) if is_16_bit(name) => format!("{name}={value}"),
        Some(value) if value.starts_with('[') || value.parse::<u32>().is_ok() => {
            format!("{name}={value}")
        }
        Some(value) => value.to_owned(),
        None => name.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The definitions that divide the kernels of a shader into families: each sets how many registers an
/// invocation uses.
const FAMILY_WORDS: [&str; 5] = ["UNITS", "HOLD", "TILE_ROWS", "TILE_COLS", "VECTORS"];

/// The types whose arithmetic takes twice the registers.
const TYPES_OF_64_BITS: [&str; 2] = ["i64", "u64"];

/// Returns the family of a kernel with this short name: the shader, and the words that set the number of
/// registers. So the kernels of most families have the same occupancy, and a change to one is seen.
pub fn family(short_name: &str) -> String {
    let mut family = short_name.split(' ').next().unwrap_or_default().to_owned();
    for Word { name, value } in words(short_name).filter(|word| FAMILY_WORDS.contains(&word.name)) {
        family += &value.map_or(format!(" {name}"), |value| format!(" {name}={value}"));
    }
    if words(short_name).any(|word| TYPES_OF_64_BITS.contains(&word.name)) {
        family += " 64-bit";
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_shaders_divided_by_what_sets_the_number_of_registers() {
        assert_eq!(family("argwhere"), "argwhere");
        assert_eq!(family("norm f32 TEAM HOLD HELD=8 input1=[x0:F16 out:]"), "norm HOLD");
        assert_eq!(
            family("matmul F16 UNITS UNIT=16 TILE_ROWS=64 TILE_COLS=128 STEP=32"),
            "matmul UNITS TILE_ROWS=64 TILE_COLS=128"
        );
        assert_eq!(family("fused `idiv(a, s)`(x0:I64) out:y0 i64 WORDS=1"), "fused 64-bit");
    }

    #[test]
    fn short_names_keep_flags_values_and_constants() {
        assert_eq!(
            short("reduce E=f32 O=f32 COMBINE=`a + b` BETTER=`v == b` FLAT TEAM_SIZE=8"),
            "reduce f32 f32 `a + b` `v == b` FLAT TEAM_SIZE=8"
        );
        assert_eq!(short("argwhere"), "argwhere");
        let fused = "fused y0:F32=`a + b`(x0:F32) y1:F16=`a`(y0:F32)";
        assert_eq!(short(fused), "fused `a + b`(x0:F32) y1:F16=`a`(y0:F32)");
        assert_eq!(short("norm E=f32 input1=[x0:F16 out:]"), "norm f32 input1=[x0:F16 out:]");
    }

    #[test]
    fn software_rules_recognise_their_variants_only() {
        let is_for_software = |kernel| SOFTWARE_RULES.iter().any(|rule| (rule.applies)(kernel));
        assert!(is_for_software("norm TEAM SUBGROUP WORKGROUP_SIZE=64 TEAM_SIZE=8"));
        assert!(is_for_software("ctc WORKGROUP_SIZE=8"));
        assert!(is_for_software(
            "matmul BIAS F32 VEC4 ROWS=16 ROW_BLOCKS=2 COL_BLOCKS=4 LANES=4 OUT_VEC4"
        ));
        // The strategy `scalar`, the reference of tuning on every device.
        assert!(!is_for_software("matmul BIAS ROWS=8 ROW_BLOCKS=1 COL_BLOCKS=1 LANES=4"));
        assert!(!is_for_software("matmul F32 VEC4 TILED TILE_ROWS=64 ROW_BLOCKS=1 OUT_VEC4"));
        assert!(!is_for_software("matmul F32 VEC4 ROWS=8 LANES=4 TILES=16 OUT_VEC4"));
        assert!(!is_for_software("norm TEAM WORKGROUP_SIZE=128 TEAM_SIZE=8"));
    }
}
