//! The figures of families of kernels, which the repository keeps in `benches/gpus`.

use std::collections::BTreeMap;
use std::fmt;

use super::figures::Figures;
use super::name;
use super::table::{Row, Table};

/// What is recorded of a family: enough to notice that one of its kernels lost occupancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub occupancies: Occupancies,
    /// The most registers per invocation.
    registers: u64,
    /// The most bytes of workgroup memory.
    workgroup: u64,
    /// The median number of instructions.
    instructions: u64,
    /// The largest number of instructions.
    longest: u64,
    /// The number of kernels with spills or scratch.
    in_memory: usize,
    /// The number of kernels with moves.
    moved: usize,
}

/// The occupancies of a family's kernels: how many kernels have each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupancies(BTreeMap<u64, usize>);

/// Returns the families of a GPU's kernels.
pub fn families(kernels: &Table<Figures>) -> Table<Family> {
    let mut members: BTreeMap<String, Vec<&Figures>> = BTreeMap::new();
    for (kernel, figures) in &kernels.rows {
        members.entry(name::family(kernel)).or_default().push(figures);
    }
    let rows = members.into_iter().map(|(name, kernels)| (name, Family::of(&kernels)));
    Table { adapter: kernels.adapter.clone(), rows: rows.collect() }
}

impl Family {
    /// Summarises kernels, of which there is at least one.
    fn of(kernels: &[&Figures]) -> Self {
        let most = |figure: fn(&Figures) -> u64| {
            kernels.iter().map(|figures| figure(figures)).max().unwrap_or(0)
        };
        let mut instructions: Vec<u64> = kernels.iter().map(|kernel| kernel.instructions).collect();
        instructions.sort_unstable();
        Self {
            occupancies: kernels.iter().map(|kernel| kernel.occupancy).collect(),
            registers: most(|figures| figures.registers),
            workgroup: most(|figures| figures.workgroup),
            instructions: median(&instructions),
            longest: most(|figures| figures.instructions),
            in_memory: kernels.iter().filter(|figures| figures.uses_memory()).count(),
            moved: kernels.iter().filter(|figures| figures.moves > 0).count(),
        }
    }
}

impl Row for Family {
    const COLUMNS: &'static [&'static str] =
        &["occupancies", "registers", "workgroup", "instructions", "longest", "in memory", "moved"];
    const NAME: &'static str = "family";

    fn from_columns(columns: &[&str]) -> Option<Self> {
        let [occupancies, registers, workgroup, instructions, longest, in_memory, moved] = columns
        else {
            return None;
        };
        Some(Self {
            occupancies: Occupancies::parse(occupancies)?,
            registers: registers.parse().ok()?,
            workgroup: workgroup.parse().ok()?,
            instructions: instructions.parse().ok()?,
            longest: longest.parse().ok()?,
            in_memory: in_memory.parse().ok()?,
            moved: moved.parse().ok()?,
        })
    }

    fn to_columns(&self) -> Vec<String> {
        let numbers = [self.registers, self.workgroup, self.instructions, self.longest];
        let counts = [self.in_memory, self.moved].map(|count| count.to_string());
        let numbers = numbers.iter().map(u64::to_string);
        [self.occupancies.to_string()].into_iter().chain(numbers).chain(counts).collect()
    }
}

impl Occupancies {
    /// Returns the number of kernels.
    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// Returns whether these occupancies are below the recorded ones by more than a quarter.
    ///
    /// The occupancies of as many kernels are compared rank by rank, from the lowest to the highest: none of
    /// these differs by more than a quarter exactly if no kernel needs to have lost more than that. Of
    /// different numbers of kernels, the lowest occupancies and the medians are compared.
    pub fn fell_from(&self, recorded: &Self) -> bool {
        let (before, now) = (recorded.sorted(), self.sorted());
        if before.len() == now.len() {
            before.iter().zip(&now).any(|(before, now)| lost_a_quarter(*before, *now))
        } else {
            lost_a_quarter(before[0], now[0]) || lost_a_quarter(median(&before), median(&now))
        }
    }

    /// Returns the occupancy of every kernel, in ascending order.
    fn sorted(&self) -> Vec<u64> {
        let repeated = |(occupancy, count): (&u64, &usize)| std::iter::repeat_n(*occupancy, *count);
        self.0.iter().flat_map(repeated).collect()
    }

    /// Parses the form of `Display`; `None` if it is malformed or names no kernel.
    fn parse(text: &str) -> Option<Self> {
        let parse_word = |word: &str| {
            let (occupancy, count) = word.split_once('x')?;
            let count = count.parse().ok().filter(|count| *count > 0)?;
            Some((occupancy.parse().ok()?, count))
        };
        text.split(' ').map(parse_word).collect::<Option<_>>().map(Self)
    }
}

impl FromIterator<u64> for Occupancies {
    fn from_iter<I: IntoIterator<Item = u64>>(occupancies: I) -> Self {
        let mut counts = BTreeMap::new();
        for occupancy in occupancies {
            *counts.entry(occupancy).or_default() += 1;
        }
        Self(counts)
    }
}

/// Formats each occupancy with the number of its kernels: `16x12 20x3`.
impl fmt::Display for Occupancies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.0.iter().map(|(occupancy, count)| format!("{occupancy}x{count}")).collect();
        f.write_str(&words.join(" "))
    }
}

/// Returns whether an occupancy is below another by more than a quarter.
pub fn lost_a_quarter(before: u64, now: u64) -> bool {
    now * 4 < before * 3
}

/// Returns the median of sorted numbers, the lower one of two.
fn median(sorted: &[u64]) -> u64 {
    sorted[(sorted.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fell(recorded: &str, current: &str) -> bool {
        let occupancies = |text: &str| Occupancies::parse(text).unwrap();
        occupancies(current).fell_from(&occupancies(recorded))
    }

    #[test]
    fn kernels_are_summarised_by_family() {
        let figures = |registers, occupancy| Figures {
            occupancy,
            instructions: registers * 10,
            ..Figures::sample(registers, None)
        };
        let kernels = [
            ("matvec VECTORS=2 TEAM".to_owned(), figures(48, 20)),
            ("matvec VECTORS=2".to_owned(), Figures { spills: 2, ..figures(60, 16) }),
            ("matvec VECTORS=2 OUT_VEC4".to_owned(), Figures { moves: 1, ..figures(32, 20) }),
            ("cast f32 i32".to_owned(), Figures { workgroup: 64, ..figures(8, 32) }),
        ];
        let table = Table { adapter: "NAVI31".to_owned(), rows: kernels.into() };
        let text = families(&table).to_text();
        let rows =
            "32x1\t8\t64\t80\t80\t0\t0\tcast\n16x1 20x2\t60\t0\t480\t600\t1\t1\tmatvec VECTORS=2\n";
        assert!(text.ends_with(rows), "{text}");
    }

    #[test]
    fn families_are_read_as_they_are_written() {
        let columns = ["16x12 20x3", "96", "8320", "610", "2260", "0", "3"];
        let family = Family::from_columns(&columns).unwrap();
        assert_eq!(family.to_columns(), columns);
        assert_eq!(family.occupancies.count(), 15);
        for malformed in ["", "16", "16x", "16x0", "16x1  20x2", "x2"] {
            assert_eq!(Occupancies::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_kernel_that_lost_more_than_a_quarter_is_found() {
        assert!(fell("32x1", "23x1"));
        // It stays above the lowest of its family.
        assert!(fell("8x4 32x90", "8x4 22x1 32x89"));
        // Another gained as much.
        assert!(fell("16x10 32x10", "16x10 22x1 32x8 42x1"));
        assert!(fell("16x2 32x10", "16x8 48x4"));
    }

    #[test]
    fn kernels_that_lost_at_most_a_quarter_pass() {
        assert!(!fell("32x1", "24x1"));
        assert!(!fell("8x4 32x90", "8x4 32x90"));
        assert!(!fell("8x4 32x90", "6x4 24x90"));
        assert!(!fell("8x4 32x90", "16x4 48x90"));
    }

    #[test]
    fn small_steps_between_two_occupancies_hide_a_fall() {
        // One kernel from 32 to 20, or one from 32 to 24 and one from 24 to 20.
        assert!(!fell("24x6 32x90", "20x1 24x6 32x89"));
    }

    #[test]
    fn different_numbers_of_kernels_are_compared_by_lowest_and_median() {
        assert!(!fell("16x1 32x9", "16x4 32x9"));
        assert!(!fell("16x4 32x9", "32x9"));
        assert!(!fell("16x2 32x9", "16x2 20x2 32x9"));
        assert!(fell("16x1 32x9", "11x1 32x10"));
        assert!(fell("16x1 32x9", "16x6 32x5"));
    }
}
