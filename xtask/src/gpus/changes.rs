//! The differences between two tables, as text.

use super::families::lost_a_quarter;
use super::figures::Figures;
use super::table::{Row, Table};

/// Returns a line for each row that changed, in the order of the table.
pub fn changed_rows<R: Row>(before: &Table<R>, after: &Table<R>) -> Vec<String> {
    let changed = after.rows.iter().filter_map(|(name, row)| {
        let changes = changes(before.rows.get(name)?, row);
        (!changes.is_empty()).then(|| format!("{name}: {}", changes.join(", ")))
    });
    changed.collect()
}

/// Returns the numbers of rows that are in only one of the tables: new ones, and earlier ones that no
/// longer exist.
pub fn new_and_gone<R>(before: &Table<R>, after: &Table<R>) -> (usize, usize) {
    let missing = |from: &Table<R>, in_other: &Table<R>| {
        from.rows.keys().filter(|name| !in_other.rows.contains_key(*name)).count()
    };
    (missing(after, before), missing(before, after))
}

/// Returns the kernels whose occupancy is below the earlier one by more than a quarter, each with a
/// message.
pub fn fallen_kernels<'a>(
    before: &Table<Figures>,
    after: &'a Table<Figures>,
) -> Vec<(&'a str, String)> {
    let fallen = after.rows.iter().filter_map(|(kernel, figures)| {
        let (before, now) = (before.rows.get(kernel)?.occupancy, figures.occupancy);
        let message = format!("{kernel}: the occupancy fell from {before} to {now}");
        lost_a_quarter(before, now).then_some((kernel.as_str(), message))
    });
    fallen.collect()
}

/// Returns each column that differs, with both values.
fn changes<R: Row>(before: &R, after: &R) -> Vec<String> {
    let values = before.to_columns().into_iter().zip(after.to_columns());
    let columns = R::COLUMNS.iter().zip(values);
    let changed = columns.filter(|(_, (before, after))| before != after);
    changed.map(|(name, (before, after))| format!("{name} {before} -> {after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::figures::InnerLoop;

    fn table(kernels: &[(&str, u64)]) -> Table<Figures> {
        let inner = InnerLoop { multiply_adds: 64, instructions: 80 };
        let figures = |n: u64| Figures::sample(n, (n > 90).then_some(inner));
        let kernels = kernels.iter().map(|(kernel, n)| ((*kernel).to_owned(), figures(*n)));
        Table { adapter: String::new(), rows: kernels.collect() }
    }

    #[test]
    fn changes_name_the_kernel_and_both_values() {
        let before = table(&[("a", 32), ("b", 32), ("gone", 1)]);
        let after = table(&[("a", 32), ("b", 96), ("new", 1), ("newer", 1)]);
        let expected = ["b: registers 32 -> 96, inner - -> 64/80"];
        assert_eq!(changed_rows(&before, &after), expected);
        assert_eq!(new_and_gone(&before, &after), (2, 1));
    }

    #[test]
    fn kernels_that_lost_more_than_a_quarter_are_named() {
        let before = table(&[("a", 32), ("b", 32), ("c", 32), ("gone", 1)]);
        let mut after = table(&[("a", 32), ("b", 32), ("c", 32), ("new", 1)]);
        for (kernel, occupancy) in [("b", 12), ("c", 11), ("new", 1)] {
            after.rows.get_mut(kernel).unwrap().occupancy = occupancy;
        }
        let message = "c: the occupancy fell from 16 to 11".to_owned();
        assert_eq!(fallen_kernels(&before, &after), [("c", message)]);
    }
}
