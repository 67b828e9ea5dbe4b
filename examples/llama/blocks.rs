//! The numbers of a GGUF file, which are stored in blocks of integers with common scales.

use half::{bf16, f16};

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockType {
    F32,
    F16,
    Bf16,
    /// 32 integers of 4 bits, from -8 to 7, and their scale.
    Q4_0,
    /// 32 integers of 4 bits, from 0 to 15, their scale and a minimum.
    Q4_1,
    /// 32 integers of 8 bits, and their scale.
    Q8_0,
    /// Eight times 32 integers of 4 bits. Scales and minima have 6 bits, and common scales.
    Q4K,
    /// 16 times 16 integers of 6 bits, from -32 to 31. Scales have 8 bits, and a common scale.
    Q6K,
}

/// Integers of a tensor, whose neighbours share scales: an element is `integer * scale + minimum`.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    /// The bits of an integer: 4 (from -8 to 7) or 8.
    pub bits: u32,
    /// How many neighbours share a scale.
    pub block: usize,
    pub integers: Vec<i8>,
    pub scales: Vec<f32>,
    /// A minimum for each scale, if the type has any.
    pub minima: Option<Vec<f32>>,
}

impl Quantised {
    fn new(bits: u32, block: usize, has_minima: bool) -> Self {
        let minima = has_minima.then(Vec::new);
        Self { bits, block, integers: Vec::new(), scales: Vec::new(), minima }
    }

    /// Returns whether the integers of the other have the same form.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.bits, self.block, self.minima.is_some())
            == (other.bits, other.block, other.minima.is_some())
    }

    /// Puts the elements of another, of the same form, after these.
    pub fn extend(&mut self, other: Self) {
        self.integers.extend(other.integers);
        self.scales.extend(other.scales);
        if let (Some(minima), Some(others)) = (&mut self.minima, other.minima) {
            minima.extend(others);
        }
    }

    /// Returns some elements, which are whole blocks.
    pub fn part(&self, start: usize, len: usize) -> Self {
        let blocks = start / self.block..(start + len) / self.block;
        Self {
            integers: self.integers[start..start + len].to_vec(),
            scales: self.scales[blocks.clone()].to_vec(),
            minima: self.minima.as_ref().map(|minima| minima[blocks].to_vec()),
            ..*self
        }
    }

    fn push(&mut self, scale: f32, minimum: f32, integers: impl Iterator<Item = i8>) {
        self.scales.push(scale);
        self.minima.iter_mut().for_each(|minima| minima.push(minimum));
        self.integers.extend(integers);
    }

    /// Returns the elements.
    pub fn floats(&self) -> Vec<f32> {
        let of_block = |(block, integers): (usize, &[i8])| {
            let scale = self.scales[block];
            let minimum = self.minima.as_ref().map_or(0.0, |minima| minima[block]);
            integers.iter().map(move |&integer| f32::from(integer) * scale + minimum).collect()
        };
        let blocks = self.integers.chunks(self.block).enumerate();
        blocks.flat_map::<Vec<f32>, _>(of_block).collect()
    }
}

impl BlockType {
    /// Returns the type with a number of the format, if it is supported.
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Returns the elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Returns the bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// Returns the elements of whole blocks.
    pub fn floats(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => {
                bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
            }
            Self::F16 => {
                bytes.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).into()).collect()
            }
            Self::Bf16 => {
                bytes.as_chunks().0.iter().map(|&bytes| bf16::from_le_bytes(bytes).into()).collect()
            }
            _ => self.quantised(bytes).floats(),
        }
    }

    /// Returns the integers and scales of whole blocks.
    ///
    /// # Panics
    ///
    /// Panics if the type has floats.
    pub fn quantised(self, bytes: &[u8]) -> Quantised {
        let mut out = match self {
            Self::F32 | Self::F16 | Self::Bf16 => panic!("{self:?} has no integers"),
            Self::Q4_0 => Quantised::new(4, 32, false),
            Self::Q4_1 | Self::Q4K => Quantised::new(4, 32, true),
            Self::Q8_0 => Quantised::new(8, 32, false),
            Self::Q6K => Quantised::new(8, 16, false),
        };
        for block in bytes.chunks_exact(self.bytes()) {
            match self {
                Self::Q4_0 => out.push(half_at(block, 0), 0.0, nibbles(&block[2..])),
                Self::Q4_1 => {
                    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                    out.push(scale, minimum + 8.0 * scale, nibbles(&block[4..]));
                }
                Self::Q8_0 => {
                    out.push(half_at(block, 0), 0.0, block[2..].iter().map(|&byte| byte as i8));
                }
                Self::Q4K => push_q4k(&mut out, block),
                _ => push_q6k(&mut out, block),
            }
        }
        out
    }
}

fn half_at(block: &[u8], start: usize) -> f32 {
    f16::from_le_bytes([block[start], block[start + 1]]).into()
}

/// Returns the integers of 4 bits, less 8: the low ones of all bytes come first.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = i8> {
    let low = bytes.iter().map(|byte| (byte & 15) as i8 - 8);
    low.chain(bytes.iter().map(|byte| (byte >> 4) as i8 - 8))
}

/// A block: two common scales, 8 scales and minima of 6 bits in 12 bytes, 256 integers of 4 bits.
fn push_q4k(out: &mut Quantised, block: &[u8]) {
    let (of_scales, of_minima) = (half_at(block, 0), half_at(block, 2));
    let (packed, integers) = (&block[4..16], &block[16..]);
    for part in 0..8 {
        let (scale, minimum) = if part < 4 {
            (packed[part] & 63, packed[part + 4] & 63)
        } else {
            // The lower four bits, then the upper two, which are in the bytes of the first four.
            let low = packed[part + 4];
            ((low & 15) | (packed[part - 4] >> 6 << 4), (low >> 4) | (packed[part] >> 6 << 4))
        };
        let scale = of_scales * f32::from(scale);
        let minimum = 8.0 * scale - of_minima * f32::from(minimum);
        let (bytes, shift) = (&integers[32 * (part / 2)..][..32], 4 * (part % 2));
        out.push(scale, minimum, bytes.iter().map(|byte| ((byte >> shift) & 15) as i8 - 8));
    }
}

/// A block: the lower four bits of 256 integers, their upper two, 16 scales, and a common scale.
fn push_q6k(out: &mut Quantised, block: &[u8]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let common = half_at(block, 208);
    for (part, &scale) in scales.iter().enumerate() {
        let integers = (16 * part..16 * (part + 1)).map(|index| {
            let (half, group, lane) = (index / 128, index % 128 / 32, index % 32);
            let lower = (low[64 * half + 32 * (group % 2) + lane] >> (4 * (group / 2))) & 15;
            let upper = (high[32 * half + lane] >> (2 * group)) & 3;
            (lower | (upper << 4)) as i8 - 32
        });
        out.push(common * f32::from(scale as i8), 0.0, integers);
    }
}
