//! Packs the digits as they compress best: the first pixel of all images, then the second, and the labels at the end.

use std::io::Read;
use std::path::Path;

fn main() {
    let source = "../examples/digits/digits.csv.gz";
    println!("cargo::rerun-if-changed={source}");
    let packed = std::fs::read(source).expect("the example's data is there");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("it is whole");
    let rows: Vec<Vec<u8>> = text
        .lines()
        .map(|line| line.split(',').map(|value| value.parse().expect("a number")).collect())
        .collect();
    let columns = (0..rows[0].len()).flat_map(|column| rows.iter().map(move |row| row[column]));
    let out = std::env::var_os("OUT_DIR").expect("cargo says where");
    std::fs::write(Path::new(&out).join("digits.bin"), columns.collect::<Vec<u8>>())
        .expect("it is written");
}
