//! Repacks the digits data set in a layout that compresses well: pixel 0 of every image, then pixel
//! 1 of every image, and so on. Images of equal digits are next to each other. The labels are last,
//! in the original order, from which the page finds the place of each image.

use std::io::Read;
use std::path::Path;

fn main() {
    let source = "../examples/digits/digits.csv.gz";
    println!("cargo::rerun-if-changed={source}");
    let compressed = std::fs::read(source).expect("the digits example has its data file");
    let mut text = String::new();
    flate2::read::GzDecoder::new(compressed.as_slice())
        .read_to_string(&mut text)
        .expect("the data file is a complete gzip archive of text");
    let rows: Vec<Vec<u8>> = text
        .lines()
        .map(|line| line.split(',').map(|value| value.parse().expect("a value fits u8")).collect())
        .collect();
    let label = rows[0].len() - 1;
    let mut by_label: Vec<&Vec<u8>> = rows.iter().collect();
    by_label.sort_by_key(|row| row[label]);
    let pixels = (0..label).flat_map(|column| by_label.iter().map(move |row| row[column]));
    let packed = pixels.chain(rows.iter().map(|row| row[label]));
    let out_dir = std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR");
    std::fs::write(Path::new(&out_dir).join("digits.bin"), packed.collect::<Vec<u8>>())
        .expect("OUT_DIR is writable");
}
