//! The summary of all tables, `benches/gpus/README.md`.

use super::figures::Figures;
use super::name::has_words;
use super::pretended::PretendedGpu;
use super::table::Table;

const INTRODUCTION: &str = "\
# What the drivers' compilers make of the kernels

`cargo xtask gpus --bless` writes this folder. It compiles every kernel variant for GPUs with Mesa's
real drivers. A library stands in for the GPU, so nothing runs: the figures say nothing about results
or times.

RADV is the driver of most AMD GPUs on Linux, and Turnip that of some Adreno GPUs. NVK and Honeykrisp
are not the drivers of NVIDIA and Apple: their figures are indicative.

Each table has one line per family of variants: a shader, and those of its definitions that set how many
registers an invocation uses (tiles, vectors, matrix units, lines that are held in registers, integers of 64 bits).
The columns:

| column | meaning |
|---|---|
| occupancies | how much of a compute unit variants can fill: `16x12 20x3` are 12 with 16 and 3 with 20 |
| registers | the most registers per invocation |
| workgroup | the most bytes of workgroup memory |
| instructions | the median number of instructions in a program |
| longest | the largest number of instructions |
| in memory | variants with spills or scratch |
| moved | variants with moves |

A run without `--kernel` also writes tables with one line per variant, which git ignores: to
`target/gpus/tables`, or to `target/gpus/failed` for a GPU that fails. The variant's name leaves out the names
of types and expressions. The columns:

| column | meaning |
|---|---|
| registers | registers per invocation |
| spills | spills to memory: registers on AMD, instructions elsewhere |
| moves | registers that are kept in registers of another kind: cheap, but not free |
| scratch | bytes of memory per invocation, for spills and arrays with dynamic indices |
| workgroup | bytes of workgroup memory |
| occupancy | how much of a compute unit the kernel can fill, as the driver says |
| instructions | instructions in the program |
| matrix | instructions of matrix units; M1: unknown |
| inner | multiply-adds / all instructions but AMD's waits between the barriers of a product's loop; M1: unknown |

A spill or scratch fails `cargo xtask gpus` unless `exceptions.tsv` lists it with its reason. So does a kernel
for matrix units without their instructions, and a product of f32 in vec4s with fewer than 85 % multiply-adds in
its loop (tiles of 128; others 70 %).

Occupancies of a family that are below the recorded ones by more than a quarter fail too. They are compared in
ascending order, rank by rank; if the number of variants changed, the lowest and the median are compared. A
single variant that lost more passes where others of its family have occupancies in between. `--against FOLDER`
compares variant by variant with the tables of another run:

```sh
git worktree add ../before COMMIT
(cd ../before && cargo xtask gpus)
cargo xtask gpus --against ../before/target/gpus/tables
```
";

/// The products whose figures the summary shows: a label, and words of the kernel's name.
const PRODUCTS: [(&str, &[&str]); 10] = [
    ("matmul, tiles of 64 x 64", &["matmul", "F32", "VEC4", "TILED", "TILE_COLS=64"]),
    ("matmul, 64 x 128", &["matmul", "F32", "VEC4", "TILED", "TILE_ROWS=64", "TILE_COLS=128"]),
    ("matmul, 128 x 128", &["matmul", "F32", "VEC4", "TILED", "TILE_ROWS=128"]),
    ("conv, 64 x 64", &["conv_tiled", "TILED", "TILE_COLS=64"]),
    ("conv, 64 x 128", &["conv_tiled", "TILED", "TILE_ROWS=64", "TILE_COLS=128"]),
    ("conv, 128 x 128", &["conv_tiled", "TILED", "TILE_ROWS=128"]),
    ("transposed conv, 128 x 128", &["conv_tiled", "TILED", "TILE_ROWS=128", "TRANSPOSED"]),
    ("weight gradient, 64 x 64", &["conv_tiled_weight_backward", "TILED", "VEC4", "TILE_COLS=64"]),
    (
        "weight gradient, 64 x 128",
        &["conv_tiled_weight_backward", "TILED", "VEC4", "TILE_ROWS=64", "TILE_COLS=128"],
    ),
    (
        "weight gradient, 128 x 128",
        &["conv_tiled_weight_backward", "TILED", "VEC4", "TILE_ROWS=128"],
    ),
];

/// The products on matrix units, in the same form.
const UNITS_PRODUCTS: [(&str, &[&str]); 9] = [
    ("matmul, tiles of 64 x 64", &["matmul", "UNITS", "TILE_COLS=64"]),
    ("matmul, 64 x 128", &["matmul", "UNITS", "TILE_ROWS=64", "TILE_COLS=128"]),
    ("matmul, 128 x 128", &["matmul", "UNITS", "TILE_ROWS=128"]),
    ("conv, 64 x 128", &["conv_tiled", "UNITS", "TILE_ROWS=64", "TILE_COLS=128"]),
    ("conv, 128 x 128", &["conv_tiled", "UNITS", "TILE_ROWS=128"]),
    (
        "conv with a uniform tap, 64 x 128",
        &["conv_tiled", "UNITS", "UNIFORM_TAP", "TILE_ROWS=64", "TILE_COLS=128"],
    ),
    (
        "conv with a uniform tap, 128 x 128",
        &["conv_tiled", "UNITS", "UNIFORM_TAP", "TILE_ROWS=128"],
    ),
    ("attention, values of 64", &["attention_units", "UNITS", "WIDTH=64"]),
    ("attention, values of 128", &["attention_units", "UNITS", "WIDTH=128"]),
];

/// Returns the text of the summary.
pub fn text(tables: &[(&PretendedGpu, Table<Figures>)]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text += "\n## GPUs\n\n| table | GPU | adapter and driver | registers are | occupancy is |\n";
    text += "|---|---|---|---|---|\n";
    for (gpu, table) in tables {
        text += &format!(
            "| [{name}]({name}.tsv) | {} | {} | {} | {} |\n",
            gpu.generation,
            table.adapter,
            gpu.register_unit,
            gpu.occupancy_unit,
            name = gpu.name,
        );
    }
    text += "\n## All kernels\n\n| GPU | kernels | with spills or scratch | with moves ";
    text += "| most registers | lowest occupancy |\n|---|--:|--:|--:|---|---|\n";
    for (gpu, table) in tables {
        let count = |matches: fn(&Figures) -> bool| {
            table.rows.values().filter(|figures| matches(figures)).count()
        };
        let most = table.rows.iter().max_by_key(|(_, figures)| figures.registers);
        let lowest = table.rows.iter().min_by_key(|(_, figures)| figures.occupancy);
        let cell = |found: Option<(&String, &Figures)>, value: fn(&Figures) -> u64| {
            found.map_or("-".to_owned(), |(kernel, figures)| {
                format!("{}: {}", value(figures), code(kernel))
            })
        };
        text += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            gpu.name,
            table.rows.len(),
            count(Figures::uses_memory),
            count(|figures| figures.moves > 0),
            cell(most, |figures| figures.registers),
            cell(lowest, |figures| figures.occupancy),
        );
    }
    text += "\n## Products of f32\n\nEach cell is registers, occupancy, and multiply-adds / all ";
    text += "instructions in the inner loop.\n\n";
    text += &products(tables, &PRODUCTS, |figures| {
        let share = figures.inner.map_or(String::new(), |inner| {
            let percent = inner.multiply_adds * 100 / inner.instructions.max(1);
            format!(", {inner} ({percent} %)")
        });
        format!("{}, {}{share}", figures.registers, figures.occupancy)
    });
    text += "\n## Products of f16 on matrix units\n\nEach cell is registers, occupancy, and instructions of ";
    text += "matrix units / all instructions of the program.\n\n";
    text += &products(tables, &UNITS_PRODUCTS, |figures| {
        let matrix = figures.matrix.map_or("-".to_owned(), |count| count.to_string());
        format!("{}, {}, {matrix}/{}", figures.registers, figures.occupancy, figures.instructions)
    });
    text
}

/// Returns a table of products, with what `cell` says of the kernel with the shortest name among those with all
/// words of a product.
fn products(
    tables: &[(&PretendedGpu, Table<Figures>)],
    rows: &[(&str, &[&str])],
    cell: fn(&Figures) -> String,
) -> String {
    let mut text = "| product |".to_owned();
    for (gpu, _) in tables {
        text += &format!(" {} |", gpu.name);
    }
    text += &format!("\n|---|{}\n", "---|".repeat(tables.len()));
    for (label, words) in rows {
        text += &format!("| {label} |");
        for (_, table) in tables {
            let matching = table.rows.iter().filter(|(kernel, _)| has_words(kernel, words));
            let shortest = matching.min_by_key(|(kernel, _)| kernel.len());
            text +=
                &format!(" {} |", shortest.map_or("-".to_owned(), |(_, figures)| cell(figures)));
        }
        text += "\n";
    }
    text
}

/// Formats a kernel's name, which may contain backticks, as code in a Markdown table.
fn code(kernel: &str) -> String {
    format!("`` {} ``", kernel.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::figures::InnerLoop;
    use crate::gpus::pretended::GPUS;

    #[test]
    fn the_summary_shows_the_shortest_variant_of_a_product() {
        let inner = InnerLoop { multiply_adds: 512, instructions: 1024 };
        let figures = |registers| Figures::sample(registers, Some(inner));
        let kernels = [
            ("matmul F32 VEC4 TILED TILE_ROWS=128 A_TRANSPOSED".to_owned(), figures(112)),
            ("matmul F32 VEC4 TILED TILE_ROWS=128".to_owned(), figures(96)),
            ("matmul F16 UNITS TILE_ROWS=128".to_owned(), figures(192)),
        ];
        let table = Table { adapter: "NAVI31, Mesa".to_owned(), rows: kernels.into() };
        let text = text(&[(&GPUS[0], table)]);
        assert!(text.contains("| matmul, 128 x 128 | 96, 16, 512/1024 (50 %) |"), "{text}");
        assert!(text.contains("| matmul, 128 x 128 | 192, 16, 0/100 |"), "{text}");
        assert!(text.contains("| matmul, tiles of 64 x 64 | - |"), "{text}");
    }
}
