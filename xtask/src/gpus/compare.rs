//! Compares the figures of a GPU with the recorded families, and with the kernels of another run.

use super::changes;
use super::families::{Family, families};
use super::figures::Figures;
use super::gates;
use super::name;
use super::table::{Row, Table};

/// At most this many changed kernels, and as many changed families, are printed per GPU.
const MAX_PRINTED_CHANGES: usize = 20;

/// What the figures of a GPU are compared with.
pub struct Baseline {
    /// The families that the repository keeps.
    pub recorded: Option<Table<Family>>,
    /// The kernels of another run.
    pub kernels: Option<Table<Figures>>,
    /// Whether every kernel of `kernels` is a gate. If not, they name the kernels of families that fail.
    pub gates_kernels: bool,
}

/// Families and kernels whose occupancy fell by more than a quarter, as messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fallen {
    pub families: Vec<String>,
    pub kernels: Vec<String>,
}

impl Baseline {
    /// Removes the recorded families that were not compiled as a whole.
    pub fn keep_whole_families(&mut self, current: &Table<Figures>) {
        let current = families(current);
        let is_whole = |name: &String, recorded: &mut Family| {
            let count = current.rows.get(name).map(|family| family.occupancies.count());
            count == Some(recorded.occupancies.count())
        };
        if let Some(recorded) = &mut self.recorded {
            recorded.rows.retain(is_whole);
        }
    }

    /// Returns what fell by more than a quarter.
    pub fn fallen(&self, current: &Table<Figures>) -> Fallen {
        let current_families = families(current);
        let fallen_families = self
            .recorded
            .as_ref()
            .map(|recorded| gates::fallen_families(recorded, &current_families))
            .unwrap_or_default();
        let fallen_kernels = self
            .kernels
            .as_ref()
            .map(|before| changes::fallen_kernels(before, current))
            .unwrap_or_default();
        let is_shown = |kernel: &str| {
            let family = name::family(kernel);
            self.gates_kernels || fallen_families.iter().any(|(name, _)| *name == family)
        };
        let kernels = fallen_kernels.into_iter().filter(|(kernel, _)| is_shown(kernel));
        let kernels = kernels.map(|(_, message)| message).collect();
        let families = fallen_families.into_iter().map(|(_, message)| message).collect();
        Fallen { families, kernels }
    }

    /// Prints the families and kernels that changed; with `count_missing`, also how many are in only
    /// one of the tables.
    pub fn print_changes(&self, gpu: &str, current: &Table<Figures>, count_missing: bool) {
        if let Some(kernels) = &self.kernels {
            print_changed_rows(gpu, "kernels", kernels, current, count_missing);
        }
        if let Some(recorded) = &self.recorded {
            print_changed_rows(gpu, "families", recorded, &families(current), count_missing);
        }
    }
}

/// Prints how the rows of a table differ from those of an earlier one.
fn print_changed_rows<R: Row>(
    gpu: &str,
    rows: &str,
    before: &Table<R>,
    current: &Table<R>,
    count_missing: bool,
) {
    if before.adapter != current.adapter {
        println!("    {gpu}: the {rows} are of {}, this is {}", before.adapter, current.adapter);
    }
    let changed = changes::changed_rows(before, current);
    for line in changed.iter().take(MAX_PRINTED_CHANGES) {
        println!("    {gpu}: {line}");
    }
    if changed.len() > MAX_PRINTED_CHANGES {
        println!("    {gpu}: and {} more {rows} changed", changed.len() - MAX_PRINTED_CHANGES);
    }
    let (new, gone) = changes::new_and_gone(before, current);
    if count_missing && new + gone > 0 {
        println!("    {gpu}: {new} {rows} are new and {gone} earlier ones no longer exist");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(kernels: &[(&str, u64)]) -> Table<Figures> {
        let rows = kernels.iter().map(|(kernel, occupancy)| {
            let figures = Figures { occupancy: *occupancy, ..Figures::sample(32, None) };
            ((*kernel).to_owned(), figures)
        });
        Table { adapter: String::new(), rows: rows.collect() }
    }

    fn baseline(kernels: &Table<Figures>, gates_kernels: bool) -> Baseline {
        let kernels = Table { adapter: String::new(), rows: kernels.rows.clone() };
        Baseline { recorded: Some(families(&kernels)), kernels: Some(kernels), gates_kernels }
    }

    #[test]
    fn kernels_of_another_run_name_those_of_a_family_that_fails() {
        let before = table(&[("cast a", 32), ("cast b", 32), ("scan a", 32)]);
        let after = table(&[("cast a", 32), ("cast b", 16), ("scan a", 32)]);
        let fallen = baseline(&before, false).fallen(&after);
        assert_eq!(fallen.families, ["cast: the occupancies fell from `32x2` to `16x1 32x1`"]);
        assert_eq!(fallen.kernels, ["cast b: the occupancy fell from 32 to 16"]);
        let unnamed = Baseline { kernels: None, ..baseline(&before, false) }.fallen(&after);
        assert_eq!((unnamed.families.len(), unnamed.kernels.len()), (1, 0));
        assert_eq!(baseline(&before, false).fallen(&before), Fallen::default());
    }

    #[test]
    fn a_fall_between_other_occupancies_fails_only_against_another_run() {
        let before = table(&[("cast a", 24), ("cast b", 32), ("cast c", 32)]);
        let after = table(&[("cast a", 24), ("cast b", 32), ("cast c", 20)]);
        assert_eq!(baseline(&before, false).fallen(&after), Fallen::default());
        let fallen = baseline(&before, true).fallen(&after);
        assert_eq!(fallen.kernels, ["cast c: the occupancy fell from 32 to 20"]);
    }

    #[test]
    fn families_that_are_compiled_in_part_are_not_compared() {
        let before = table(&[("cast a", 16), ("cast b", 32), ("scan a", 32)]);
        let after = table(&[("cast a", 8), ("scan a", 16)]);
        let mut baseline = Baseline { kernels: None, ..baseline(&before, false) };
        baseline.keep_whole_families(&after);
        let messages = baseline.fallen(&after).families;
        assert_eq!(messages, ["scan: the occupancies fell from `32x1` to `16x1`"]);
    }
}
