//! What fails `cargo xtask gpus`: a kernel that keeps registers in memory without a listed reason, that
//! is written for matrix units and compiled without their instructions, or a product whose loop has too
//! few multiply-adds; and a family whose kernels fill less of the GPU than recorded.

use std::cell::Cell;
use std::path::Path;

use super::families::Family;
use super::figures::Figures;
use super::name::has_words;
use super::table::Table;

/// A kernel that may keep registers in memory.
struct Exception {
    /// Names of GPUs.
    gpus: Vec<String>,
    /// Part of the short names of the kernels.
    kernel: String,
    /// Whether a kernel needed it in this run.
    used: Cell<bool>,
}

/// The exceptions that the repository lists with their reasons.
pub struct Exceptions(Vec<Exception>);

impl Exceptions {
    /// Reads a file of lines `GPU,GPU <tab> part of the name <tab> reason`. Empty lines and lines
    /// that begin with `#` are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is malformed.
    pub fn read(file: &Path) -> Result<Self, String> {
        std::fs::read_to_string(file)
            .map_err(|error| error.to_string())
            .and_then(|text| Self::parse(&text))
            .map_err(|error| format!("cannot read {}: {error}", file.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parse_line = |line: &str| match line.split('\t').collect::<Vec<_>>().as_slice() {
            [gpus, kernel, reason] if !kernel.is_empty() && !reason.is_empty() => Ok(Exception {
                gpus: gpus.split(',').map(str::to_owned).collect(),
                kernel: (*kernel).to_owned(),
                used: Cell::new(false),
            }),
            _ => Err(format!("expected GPUs, a kernel and a reason with tabs between, got {line}")),
        };
        lines.map(parse_line).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether an exception allows a kernel to keep registers in memory.
    fn allow(&self, gpu: &str, kernel: &str) -> bool {
        let applies = |exception: &&Exception| {
            exception.gpus.iter().any(|name| name == gpu) && kernel.contains(&exception.kernel)
        };
        let mut allowed = false;
        for exception in self.0.iter().filter(applies) {
            exception.used.set(true);
            allowed = true;
        }
        allowed
    }

    /// Returns the exceptions for these GPUs that no kernel needed.
    pub fn unused(&self, gpus: &[&str]) -> Vec<String> {
        let is_unused = |exception: &&Exception| {
            !exception.used.get() && exception.gpus.iter().any(|gpu| gpus.contains(&gpu.as_str()))
        };
        self.0.iter().filter(is_unused).map(|exception| exception.kernel.clone()).collect()
    }
}

/// The least percentage of multiply-adds in the loop of a product: words of its name, and the percentage.
const MIN_SHARES: [(&[&str], u64); 2] = [
    (&["matmul", "F32", "VEC4", "TILED", "TILE_ROWS=128"], 85),
    (&["matmul", "F32", "VEC4", "TILED", "TILE_ROWS=64"], 70),
];

/// Tiles that convert an operand from f16 as they load it may be this many percentage points below [`MIN_SHARES`]: the
/// conversions are in the loop.
const CONVERSION_ALLOWANCE: u64 = 10;

/// Returns the reasons for which kernels fail on their own, whatever is recorded.
pub fn failures(gpu: &str, current: &Table<Figures>, exceptions: &Exceptions) -> Vec<String> {
    let mut failures = Vec::new();
    for (kernel, figures) in &current.rows {
        if figures.uses_memory() && !exceptions.allow(gpu, kernel) {
            failures.push(format!(
                "{kernel}: keeps registers in memory: {} spills, {} bytes of scratch",
                figures.spills, figures.scratch
            ));
        }
        if has_words(kernel, &["UNITS"]) && figures.matrix == Some(0) {
            failures.push(format!("{kernel}: has no instructions of matrix units"));
        }
        let min_share = MIN_SHARES.iter().find(|(words, _)| has_words(kernel, words));
        let converts =
            ["input0=[x0:F16", "input1=[x0:F16"].iter().any(|part| kernel.contains(part));
        let allowance = if converts { CONVERSION_ALLOWANCE } else { 0 };
        let min_share = min_share.map(|(_, percent)| percent - allowance);
        match (min_share, figures.inner) {
            (Some(percent), Some(inner))
                if inner.multiply_adds * 100 < inner.instructions * percent =>
            {
                failures.push(format!(
                    "{kernel}: {inner} are multiply-adds in the loop, less than {percent} %"
                ));
            }
            // The driver lists instructions, but they have no loop of multiply-adds.
            (Some(_), None) if figures.matrix.is_some() => {
                failures.push(format!("{kernel}: the loop of a product was not found"));
            }
            _ => {}
        }
    }
    failures
}

/// Returns the families whose occupancies are below the recorded ones by more than a quarter, each with
/// a message.
pub fn fallen_families<'a>(
    recorded: &Table<Family>,
    current: &'a Table<Family>,
) -> Vec<(&'a str, String)> {
    let fallen = current.rows.iter().filter_map(|(name, family)| {
        let before = &recorded.rows.get(name)?.occupancies;
        let now = &family.occupancies;
        let message = format!("{name}: the occupancies fell from `{before}` to `{now}`");
        now.fell_from(before).then_some((name.as_str(), message))
    });
    fallen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::families::families;
    use crate::gpus::figures::InnerLoop;

    const LINE: &str = "m1,ada\treduce i64\tdivides 64-bit integers, which are four words each";

    fn table(kernel: &str, figures: Figures) -> Table<Figures> {
        Table { adapter: String::new(), rows: [(kernel.to_owned(), figures)].into() }
    }

    #[test]
    fn spills_fail_unless_they_are_listed() {
        let exceptions = Exceptions::parse(&format!("# Comment.\n\n{LINE}\n")).unwrap();
        let spills = |gpu: &str, kernel: &str| {
            let figures = Figures { spills: 2, ..Figures::sample(32, None) };
            failures(gpu, &table(kernel, figures), &exceptions).len()
        };
        assert_eq!(exceptions.unused(&["m1", "navi31"]), ["reduce i64"]);
        assert_eq!(spills("m1", "reduce i64 i64 `a + b`"), 0);
        assert_eq!(spills("navi31", "reduce i64 i64 `a + b`"), 1);
        assert_eq!(spills("m1", "reduce u64 u64 `a + b`"), 1);
        assert!(exceptions.unused(&["m1", "ada"]).is_empty());
    }

    #[test]
    fn exceptions_need_a_reason() {
        assert!(Exceptions::parse("m1\treduce").is_err());
        assert!(Exceptions::parse("m1\treduce\t").is_err());
    }

    #[test]
    fn kernels_for_matrix_units_need_their_instructions() {
        let exceptions = Exceptions::parse("").unwrap();
        let fails = |kernel: &str, matrix| {
            let figures = Figures { matrix, ..Figures::sample(32, None) };
            !failures("ada", &table(kernel, figures), &exceptions).is_empty()
        };
        assert!(fails("matmul F16 UNITS", Some(0)));
        assert!(!fails("matmul F16 UNITS", Some(32)));
        assert!(!fails("matmul F16 UNITS", None));
        assert!(!fails("matmul F16", Some(0)));
    }

    #[test]
    fn loops_of_products_need_multiply_adds() {
        let exceptions = Exceptions::parse("").unwrap();
        let fails = |multiply_adds: Option<u64>| {
            let kernel = "matmul BIAS F32 VEC4 TILED TILE_ROWS=128";
            let inner =
                multiply_adds.map(|multiply_adds| InnerLoop { multiply_adds, instructions: 600 });
            !failures("ada", &table(kernel, Figures::sample(32, inner)), &exceptions).is_empty()
        };
        assert!(fails(Some(509)) && fails(None));
        assert!(!fails(Some(510)));
    }

    #[test]
    fn a_family_fails_if_one_kernel_lost_more_than_a_quarter() {
        let table = |occupancies: [u64; 3]| {
            let kernels = ["cast f32 i32", "gather f32", "gather i32"];
            let rows = kernels.into_iter().zip(occupancies).map(|(kernel, occupancy)| {
                (kernel.to_owned(), Figures { occupancy, ..Figures::sample(32, None) })
            });
            families(&Table { adapter: String::new(), rows: rows.collect() })
        };
        let recorded = table([32, 16, 32]);
        let fallen = |occupancies| {
            let current = table(occupancies);
            let fallen = fallen_families(&recorded, &current);
            fallen.into_iter().map(|(_, message)| message).collect::<Vec<_>>()
        };
        assert!(fallen([24, 12, 24]).is_empty());
        let message = "gather: the occupancies fell from `16x1 32x1` to `16x1 22x1`";
        assert_eq!(fallen([32, 16, 22]), [message]);
        assert_eq!(fallen([23, 16, 32]).len(), 1);
        let renamed = families(&Table {
            adapter: String::new(),
            rows: [("scatter".to_owned(), Figures::sample(32, None))].into(),
        });
        assert!(fallen_families(&recorded, &renamed).is_empty());
    }
}
