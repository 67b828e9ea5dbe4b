//! What GPUs reach by their vendors' data sheets, to compare a measured speed with.

use serde::Serialize;

/// The rates of a GPU by its vendor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Class {
    /// The name, as drivers report it without the vendor and what is in brackets.
    pub name: &'static str,
    /// f32 GFLOP/s of multiply-adds at the boost clock.
    pub gflops: f64,
    /// GB/s of the memory.
    pub gigabytes: f64,
}

const fn class(name: &'static str, tflops: f64, gigabytes: f64) -> Class {
    Class { name, gflops: 1000.0 * tflops, gigabytes }
}

/// Desktop and server GPUs whose names stand for one set of rates. Laptop GPUs of the same name
/// have many, as have GPUs with several numbers of cores, and are left out.
const CLASSES: &[Class] = &[
    class("GeForce GTX 1060 6GB", 4.4, 192.0),
    class("GeForce GTX 1080 Ti", 11.3, 484.0),
    class("GeForce RTX 2070", 7.5, 448.0),
    class("GeForce RTX 2080 Ti", 13.4, 616.0),
    class("GeForce RTX 3060 Ti", 16.2, 448.0),
    class("GeForce RTX 3070", 20.3, 448.0),
    class("GeForce RTX 3090", 35.6, 936.0),
    class("GeForce RTX 4060", 15.1, 272.0),
    class("GeForce RTX 4060 Ti", 22.1, 288.0),
    class("GeForce RTX 4070", 29.1, 504.0),
    class("GeForce RTX 4070 Ti", 40.1, 504.0),
    class("GeForce RTX 4080", 48.7, 717.0),
    class("GeForce RTX 4090", 82.6, 1008.0),
    class("GeForce RTX 5090", 104.8, 1792.0),
    class("A100-SXM4-80GB", 19.5, 2039.0),
    class("H100 80GB HBM3", 66.9, 3350.0),
    class("H200", 66.9, 4800.0),
    class("Radeon RX 6600 XT", 10.6, 256.0),
    class("Radeon RX 6700 XT", 13.2, 384.0),
    class("Radeon RX 6800 XT", 20.7, 512.0),
    class("Radeon RX 6900 XT", 23.0, 512.0),
    class("Radeon RX 7600", 21.8, 288.0),
    class("Radeon RX 7700 XT", 35.2, 432.0),
    class("Radeon RX 7800 XT", 37.3, 624.0),
    class("Radeon RX 7900 XT", 51.5, 800.0),
    class("Radeon RX 7900 XTX", 61.4, 960.0),
    class("Arc A750", 17.2, 512.0),
    class("Arc A770", 19.7, 560.0),
];

/// A measured rate below this share of the vendor's gets a note. Multiply-adds of the shaders
/// that drivers make reach half of the rates of GPUs that issue two at once.
const LOW: f64 = 0.3;

/// Returns the class of a GPU by the name of its adapter, if it is known.
pub fn class_of(name: &str) -> Option<Class> {
    let mut name =
        ["(R)", "(TM)", "(tm)"].iter().fold(name.to_owned(), |name, mark| name.replace(mark, ""));
    name.truncate(name.find(" (").unwrap_or(name.len()));
    let name = ["NVIDIA ", "AMD ", "Intel "]
        .iter()
        .fold(&name[..], |name, vendor| name.strip_prefix(vendor).unwrap_or(name));
    let name = name.strip_suffix(" Graphics").unwrap_or(name).trim();
    CLASSES.iter().find(|class| class.name == name).copied()
}

impl Class {
    /// Returns what a measured speed means, from the rates in GFLOP/s and GB/s.
    pub fn compare(&self, gflops: Option<f64>, gigabytes: Option<f64>) -> String {
        let shares = [(gflops, self.gflops), (gigabytes, self.gigabytes)]
            .map(|(measured, class)| measured.map(|measured| measured / class));
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "?".to_owned(), |share| format!("{:.0} %", 100.0 * share))
        };
        let mut text = format!(
            "the vendor specifies {:.0} GFLOP/s and {:.0} GB/s for {}; measured: {} and {} of them",
            self.gflops,
            self.gigabytes,
            self.name,
            percent(shares[0]),
            percent(shares[1]),
        );
        if shares.iter().flatten().any(|&share| share < LOW) {
            text += ", which is low: check for another program on the GPU, a power-saving mode, \
                     heat, or a driver that is too old";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_have_their_class() {
        let name = |name| class_of(name).map(|class| class.name);
        for (reported, expected) in [
            ("NVIDIA GeForce RTX 4070", Some("GeForce RTX 4070")),
            ("NVIDIA GeForce RTX 4070 Ti", Some("GeForce RTX 4070 Ti")),
            ("NVIDIA GeForce RTX 4070 SUPER", None),
            ("NVIDIA GeForce RTX 4070 Laptop GPU", None),
            ("NVIDIA H100 80GB HBM3", Some("H100 80GB HBM3")),
            ("AMD Radeon RX 7900 XTX (RADV NAVI31)", Some("Radeon RX 7900 XTX")),
            ("Intel(R) Arc(tm) A770 Graphics (DG2)", Some("Arc A770")),
            ("Apple M1", None),
            ("llvmpipe (LLVM 15.0.6, 256 bits)", None),
        ] {
            assert_eq!(name(reported), expected, "{reported}");
        }
    }

    #[test]
    fn a_slow_gpu_gets_advice() {
        let class = class_of("Arc A770").expect("it is known");
        let good = class.compare(Some(15_169.0), Some(492.8));
        assert!(good.contains("77 % and 88 %") && !good.contains("low"), "{good}");
        let slow = class.compare(Some(2000.0), Some(500.0));
        assert!(slow.contains("10 %") && slow.contains("power-saving"), "{slow}");
        assert!(class.compare(None, None).contains("? and ?"));
    }
}
