//! The differences between recorded and current figures, as text.

use super::table::{Figures, Table};

/// Returns a line for each kernel whose figures changed, in the order of the table.
pub fn changed_kernels(recorded: &Table, current: &Table) -> Vec<String> {
    let changed = current.kernels.iter().filter_map(|(kernel, figures)| {
        let before = recorded.kernels.get(kernel)?;
        let changes = changes(before, figures);
        (!changes.is_empty()).then(|| format!("{kernel}: {}", changes.join(", ")))
    });
    changed.collect()
}

/// Returns the numbers of kernels that are in only one of the tables: new ones, and recorded ones
/// that no longer exist.
pub fn new_and_gone(recorded: &Table, current: &Table) -> (usize, usize) {
    let missing = |from: &Table, in_other: &Table| {
        from.kernels.keys().filter(|kernel| !in_other.kernels.contains_key(*kernel)).count()
    };
    (missing(current, recorded), missing(recorded, current))
}

/// Returns each figure that differs, with both values.
fn changes(before: &Figures, after: &Figures) -> Vec<String> {
    let inner = |figures: &Figures| figures.inner.map_or("-".to_owned(), |inner| inner.to_string());
    let numbers = [
        ("registers", before.registers, after.registers),
        ("spills", before.spills, after.spills),
        ("moves", before.moves, after.moves),
        ("scratch", before.scratch, after.scratch),
        ("workgroup", before.workgroup, after.workgroup),
        ("occupancy", before.occupancy, after.occupancy),
        ("instructions", before.instructions, after.instructions),
    ];
    let numbers = numbers.into_iter().filter(|(_, before, after)| before != after);
    let mut texts: Vec<String> =
        numbers.map(|(name, before, after)| format!("{name} {before} -> {after}")).collect();
    if before.inner != after.inner {
        texts.push(format!("inner {} -> {}", inner(before), inner(after)));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::table::InnerLoop;

    fn table(kernels: &[(&str, u64)]) -> Table {
        let inner = InnerLoop { multiply_adds: 64, instructions: 80 };
        let figures = |n: u64| Figures::sample(n, (n > 90).then_some(inner));
        let kernels = kernels.iter().map(|(kernel, n)| ((*kernel).to_owned(), figures(*n)));
        Table { adapter: String::new(), kernels: kernels.collect() }
    }

    #[test]
    fn changes_name_the_kernel_and_both_values() {
        let recorded = table(&[("a", 32), ("b", 32), ("gone", 1)]);
        let current = table(&[("a", 32), ("b", 96), ("new", 1), ("newer", 1)]);
        let expected = ["b: registers 32 -> 96, inner - -> 64/80"];
        assert_eq!(changed_kernels(&recorded, &current), expected);
        assert_eq!(new_and_gone(&recorded, &current), (2, 1));
    }
}
