//! Finds the inner loop of a product in a driver's listing of instructions.

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
    /// Multiply-adds of floats.
    pub multiply_adds: u64,
    /// All instructions, including these.
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

/// What the listing says of an instruction.
struct Instruction {
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

/// Parses `\tv_fmac_f32_e32 v1, v2, v3 ; encoding`. A dual instruction names two operations:
/// `v_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6`.
fn parse_aco(line: &str) -> Option<Instruction> {
    let code = line.strip_prefix('\t')?.split(';').next()?;
    let operations = code.split("::").filter_map(|part| part.split_whitespace().next());
    let multiply_adds = operations.map(|mnemonic| match mnemonic {
        _ if mnemonic.starts_with("v_pk_fma") => 2,
        _ if mnemonic.starts_with("v_fma") || mnemonic.starts_with("v_dual_fma") => 1,
        _ => 0,
    });
    Some(Instruction {
        is_barrier: code.starts_with("s_barrier") && !code.starts_with("s_barrier_signal"),
        multiply_adds: multiply_adds.sum(),
        count: 1,
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
    let is_multiply_add = mnemonic == "ffma" || mnemonic.starts_with("ffma.");
    Some(Instruction {
        is_barrier: mnemonic == "bar.sync",
        multiply_adds: u64::from(is_multiply_add),
        count: 1,
    })
}

/// Parses `(sy)(rpt2)mad.f32 r0.x, r1.x, r2.x, r0.x`. `(rptN)` repeats the instruction N times, on
/// the next registers; `(nopN)` waits for N slots.
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
        is_barrier: mnemonic == "bar" || mnemonic.starts_with("bar."),
        multiply_adds: if mnemonic == "mad.f32" { repeated } else { 0 },
        count: repeated + waits,
    })
}
