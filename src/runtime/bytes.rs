//! Sizes for people.

use std::fmt;

/// A number of bytes, displayed in the largest unit that fits. A number that is not a multiple of
/// the unit gets one decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        // The tolerance shows limits just below a unit, such as 2^30 - 1, in that unit.
        let fits = |(size, _): &&(u64, &str)| self.0.saturating_add(8) >= *size;
        let text = match UNITS.iter().find(fits) {
            None => format!("{} B", self.0),
            Some((size, unit)) if self.0.is_multiple_of(*size) => {
                format!("{} {unit}", self.0 / size)
            }
            Some((size, unit)) => format!("{:.1} {unit}", self.0 as f64 / *size as f64),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        let text = |bytes| Bytes(bytes).to_string();
        assert_eq!([text(0), text(1000), text(1 << 10)], ["0 B", "1000 B", "1 KiB"]);
        assert_eq!([text(3 << 29), text((1 << 31) - 1)], ["1.5 GiB", "2.0 GiB"]);
        assert_eq!(text(1 << 52), "4096 TiB");
        assert_eq!(format!("{:>8}", Bytes(128 << 20)), " 128 MiB");
    }
}
