//! Finds the inner loop of a product, and the instructions of matrix units, in a driver's listing.

/// The syntax of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// AMD's assembly, as RADV lists it.
    Aco,
    /// The assembly of NVK's compiler.
    Nak,
    /// Adreno's assembly, as Turnip lists it.
    Ir3,
}

/// The instructions between two barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stretch {
    /// Multiply-adds of floats, and dot products of four 8-bit integers with an addition.
    pub multiply_adds: u64,
    /// All instructions, including these, without AMD's waits: NVIDIA's instructions carry them.
    pub instructions: u64,
}

/// Fewer multiply-adds between two barriers are not a product.
const MIN_MULTIPLY_ADDS: u64 = 32;

/// Returns the stretch between two barriers with the most multiply-adds: the inner loop of a
/// product whose operands are in workgroup memory. Returns `None` if there is no such product.
///
/// Compilers keep a loop in one piece, so the stretch is taken in the order of the listing. It
/// contains every branch between the barriers, also rare ones.
pub fn inner_loop(dialect: Dialect, listing: &str) -> Option<Stretch> {
    let mut stretches = vec![Stretch::default()];
    for line in listing.lines() {
        let Some(instruction) = dialect.parse(line) else { continue };
        if instruction.is_barrier {
            stretches.push(Stretch::default());
        } else if let Some(stretch) = stretches.last_mut() {
            stretch.multiply_adds += instruction.multiply_adds;
            stretch.instructions += instruction.count;
        }
    }
    // The instructions before the first barrier and after the last one are not between two.
    let between = stretches.get(1..stretches.len() - 1)?;
    let best = between.iter().max_by_key(|stretch| stretch.multiply_adds)?;
    (best.multiply_adds >= MIN_MULTIPLY_ADDS).then_some(*best)
}

/// Returns the number of instructions of matrix units in a listing.
pub fn matrix_instructions(dialect: Dialect, listing: &str) -> u64 {
    let instructions = listing.lines().filter_map(|line| dialect.parse(line));
    instructions.filter(|instruction| instruction.is_of_matrix_units).count() as u64
}

/// What the listing says of an instruction.
struct Instruction {
    is_of_matrix_units: bool,
    is_barrier: bool,
    multiply_adds: u64,
    /// Issue slots: more than one for an instruction that repeats itself.
    count: u64,
}

impl Dialect {
    /// Parses a line; `None` if it is not an instruction.
    fn parse(self, line: &str) -> Option<Instruction> {
        match self {
            Self::Aco => parse_aco(line),
            Self::Nak => parse_nak(line),
            Self::Ir3 => parse_ir3(line),
        }
    }
}

/// AMD's instructions that only wait for others, or encode the delay of the next ones.
const ACO_WAITS: [&str; 3] = ["s_wait", "s_delay_alu", "s_nop"];

/// Parses `\tv_fmac_f32_e32 v1, v2, v3 ; encoding`. A dual instruction names two operations:
/// `v_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6`.
fn parse_aco(line: &str) -> Option<Instruction> {
    let code = line.strip_prefix('\t')?.split(';').next()?;
    let operations = code.split("::").filter_map(|part| part.split_whitespace().next());
    let multiply_adds = operations.map(|mnemonic| match mnemonic {
        _ if mnemonic.starts_with("v_pk_fma") => 2,
        _ if mnemonic.starts_with("v_fma") || mnemonic.starts_with("v_dual_fma") => 1,
        _ if mnemonic.starts_with("v_dot4") => 1,
        _ => 0,
    });
    Some(Instruction {
        is_of_matrix_units: code.starts_with("v_wmma_"),
        is_barrier: code.starts_with("s_barrier") && !code.starts_with("s_barrier_signal"),
        multiply_adds: multiply_adds.sum(),
        count: u64::from(!ACO_WAITS.iter().any(|wait| code.starts_with(wait))),
    })
}

/// Parses `@!p0 r1 = ffma r2 r3 r4 // delay=4`. Lines of other forms begin or end a block.
fn parse_nak(line: &str) -> Option<Instruction> {
    let code = line.split("//").next()?.trim();
    if code.is_empty() || code.starts_with("block") || code.starts_with('}') {
        return None;
    }
    let operation = code.split_once(" = ").map_or(code, |(_, operation)| operation);
    let mnemonic = operation.split_whitespace().find(|word| !word.starts_with('@'))?;
    let is_multiply_add =
        mnemonic == "ffma" || mnemonic.starts_with("ffma.") || mnemonic.starts_with("idp4.");
    Some(Instruction {
        is_of_matrix_units: mnemonic.starts_with("hmma."),
        is_barrier: mnemonic == "bar.sync",
        multiply_adds: u64::from(is_multiply_add),
        count: 1,
    })
}

/// Parses `(sy)(rpt2)mad.f32 r0.x, r1.x, r2.x, r0.x`. `(rptN)` repeats the instruction N times, on
/// the next registers; `(nopN)` waits for N slots, in which the program issues nothing else.
fn parse_ir3(line: &str) -> Option<Instruction> {
    let mut rest = line.trim();
    let (mut repeats, mut waits) = (0, 0);
    while let Some((flag, tail)) = rest.strip_prefix('(').and_then(|tail| tail.split_once(')')) {
        let number = |name: &str| flag.strip_prefix(name).and_then(|digits| digits.parse().ok());
        repeats = number("rpt").unwrap_or(repeats);
        waits = number("nop").unwrap_or(waits);
        rest = tail.trim_start();
    }
    let mnemonic = rest.split_whitespace().next()?;
    // Headers, comments and labels.
    let is_other =
        mnemonic.ends_with(':') || rest.starts_with([';', '@']) || rest.contains(" with ");
    if is_other {
        return None;
    }
    let repeated = 1 + repeats;
    Some(Instruction {
        is_of_matrix_units: false,
        is_barrier: mnemonic == "bar" || mnemonic.starts_with("bar."),
        multiply_adds: if mnemonic == "mad.f32" { repeated } else { 0 },
        count: repeated + waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a listing with `multiply_add` repeated between two barriers, and other instructions.
    fn listing(barrier: &str, multiply_add: &str, other: &str) -> String {
        let before = format!("{multiply_add}\n").repeat(99);
        let between = format!("{multiply_add}\n").repeat(40);
        format!("{before}{other}\n{barrier}\n{between}{other}\n{other}\n{barrier}\n{before}")
    }

    fn stretch(multiply_adds: u64, instructions: u64) -> Option<Stretch> {
        Some(Stretch { multiply_adds, instructions })
    }

    #[test]
    fn only_instructions_between_barriers_count() {
        let barrier = "\ts_barrier                              ; bfbd0000";
        let multiply_add = "\tv_fmac_f32_e32 v1, v2, v3              ; 56020702";
        let other = "BB7:\n\ts_waitcnt lgkmcnt(0)                   ; bf89fc07\n\
                     \ts_delay_alu instid0(VALU_DEP_1)         ; bf870001\n\
                     \tds_load_b64 v[82:83], v94               ; d9d80000 5200005e";
        let text = listing(barrier, multiply_add, other);
        assert_eq!(inner_loop(Dialect::Aco, &text), stretch(40, 42));
        assert_eq!(inner_loop(Dialect::Aco, &format!("{multiply_add}\n{barrier}\n")), None);
        assert_eq!(inner_loop(Dialect::Aco, ""), None);
    }

    #[test]
    fn a_dual_instruction_has_two_multiply_adds() {
        let barrier = "\ts_barrier_signal -1                    ; be804ec1\n\
                       \ts_barrier_wait 0xffff                  ; bf94ffff";
        let dual = "\tv_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6 ; c8000702 04040d05";
        let text = listing(barrier, dual, "");
        // The signal before the second barrier is between the two.
        assert_eq!(inner_loop(Dialect::Aco, &text), stretch(80, 41));
    }

    #[test]
    fn nak_lists_blocks_and_predicates() {
        let barrier = "                 bar.sync                            // delay=6 yld";
        let multiply_add = "      r50      = ffma r24 r60 r50                    // delay=1";
        let other = "block 27 L38 [26] -> {\n\
                     @!p1             bra pT L39                          // delay=1\n\
                     @p0   r6 p0    = iadd3 r6 c[0x2][0x30] rZ            // delay=1\n\
                     } -> [28, 29]";
        let text = listing(barrier, multiply_add, other);
        assert_eq!(inner_loop(Dialect::Nak, &text), stretch(40, 44));
    }

    #[test]
    fn ir3_repeats_instructions_and_waits() {
        let barrier = "(sy)(ss)bar.g";
        let multiply_add = "(rpt1)mad.f32 r19.x, (last)r45.x, (r)r43.x, (r)(last)r19.x";
        let other = "l868:\n(nop3) cmps.u.lt p0.y, r33.y, r55.w\n; CL: outputs:";
        let text = listing(barrier, multiply_add, other);
        assert_eq!(inner_loop(Dialect::Ir3, &text), stretch(80, 88));
    }

    #[test]
    fn dot_products_of_integers_count() {
        let aco = "\tv_dot4_i32_iu8 v1, v2, v3, v1 neg_lo:[1,1,0] ; cc164001 1c060702";
        let text = listing("\ts_barrier ; bfbd0000", aco, "");
        assert_eq!(inner_loop(Dialect::Aco, &text), stretch(40, 40));
        let nak = "      r50      = idp4.i8.i8 r24 r60 r50              // delay=1";
        let text = listing("      bar.sync       // delay=6", nak, "");
        assert_eq!(inner_loop(Dialect::Nak, &text), stretch(40, 40));
    }

    #[test]
    fn instructions_of_matrix_units_count() {
        let aco = "\tv_wmma_f32_16x16x16_f16 v[1:8], v[9:16], v[17:24], v[1:8] ; cc404001 1c060702";
        let text = listing("\ts_barrier ; bfbd0000", aco, "");
        assert_eq!(matrix_instructions(Dialect::Aco, &text), 99 + 40 + 99);
        let nak = "      r40..44  = hmma.m16n8k16.f32 r8..12 r20..22 r40..44 // delay=1";
        assert_eq!(matrix_instructions(Dialect::Nak, nak), 1);
        assert_eq!(matrix_instructions(Dialect::Nak, "      r1 = ffma r2 r3 r4 // delay=1"), 0);
    }

    #[test]
    fn few_multiply_adds_are_not_a_product() {
        let text = "bar.g\n".to_owned() + &"mad.f32 r0.x, r1.x, r2.x, r0.x\n".repeat(31) + "bar.g";
        assert_eq!(inner_loop(Dialect::Ir3, &text), None);
    }
}
