//! Kernels as values: what specialises a shader, and the key under which its pipeline is found.

use std::any::{TypeId, type_name};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ptr;

use super::params::Params;
use super::shader::Variant;

/// A kernel, named by what specialises its shader: a small struct of flags, numbers and enums.
///
/// A launcher builds it on the stack for every launch. Its [`KernelKey`] finds the compiled
/// pipeline; [`variant`](Self::variant) is needed only to compile it.
///
/// Kernels of one type with equal keys share a pipeline. `variant` must therefore depend on nothing
/// but what `Hash` feeds to the hasher. With `#[derive(Hash)]` that is every field.
pub trait Kernel: Hash + Debug + Clone + Send + Sync + 'static {
    /// The counterpart of the shader's `Params`.
    type Params: Params;

    /// Returns the variant that this kernel runs.
    fn variant(&self) -> Variant;
}

/// A kernel that is to be compiled.
pub(crate) struct Compilation<'a> {
    pub key: KernelKey,
    pub kernel: Box<dyn Fn() -> Variant + 'a>,
    /// The numbers of operands that are only read, and that are written.
    pub operands: (usize, usize),
    /// The size of the parameters in bytes.
    pub params_len: usize,
}

/// Returns the variants of kernels, for the list of a family.
///
/// # Panics
///
/// Panics if the key of a kernel would be too long: see [`KernelKey::of`].
pub(crate) fn variants_of<K: Kernel>(kernels: impl IntoIterator<Item = K>) -> Vec<Variant> {
    let variant_with_key = |kernel: K| {
        KernelKey::of(&kernel);
        kernel.variant()
    };
    kernels.into_iter().map(variant_with_key).collect()
}

/// Returns `a / b` rounded up.
pub(crate) fn div_up(a: usize, b: usize) -> u64 {
    a.div_ceil(b) as u64
}

/// The maximum length of a kernel's fields in its key, in bytes.
const KEY_LEN: usize = 64;

/// The identity of a [`Kernel`]: its type and its fields.
///
/// The key is exact, not a digest. Kernels of one type have equal keys only if they feed the same
/// values to a hasher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelKey {
    kernel: TypeId,
    fields: FieldBytes,
}

impl KernelKey {
    /// Returns the key of a kernel.
    ///
    /// # Panics
    ///
    /// Panics if the fields need more than 64 bytes. An integer, flag or enum takes one byte if it
    /// is below 255, otherwise nine. This would be a bug in this crate; `tests/code/variants` finds
    /// it without a GPU.
    pub fn of<K: Kernel>(kernel: &K) -> Self {
        let mut fields = FieldBytes { bytes: [0; KEY_LEN], len: 0 };
        kernel.hash(&mut fields);
        fields.check(type_name::<K>());
        Self { kernel: TypeId::of::<K>(), fields }
    }

    /// Returns the key of the same kernel with something that it does not contain.
    ///
    /// # Panics
    ///
    /// As [`KernelKey::of`].
    pub(crate) fn with<T: Hash>(mut self, more: &T) -> Self {
        more.hash(&mut self.fields);
        self.fields.check(type_name::<T>());
        self
    }
}

impl Hash for KernelKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kernel.hash(state);
        let (words, _) = self.fields.bytes.as_chunks();
        for &word in &words[..self.fields.len.div_ceil(size_of::<u64>())] {
            state.write_u64(u64::from_le_bytes(word));
        }
    }
}

/// A hasher that stores what it is fed.
///
/// Every value is stored in a prefix-free form. The values before a value determine its type, so
/// different sequences of values have different bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldBytes {
    /// The bytes, then zeros.
    bytes: [u8; KEY_LEN],
    /// The number of bytes, including those that did not fit.
    len: usize,
}

impl FieldBytes {
    /// Precedes an integer that is stored in eight bytes.
    const WIDE: u8 = u8::MAX;

    /// Panics if the fields did not fit, the last of which were those of `name`.
    fn check(&self, name: &str) {
        let len = self.len;
        assert!(len <= KEY_LEN, "the key of {name} needs {len} bytes but has {KEY_LEN}");
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    #[inline]
    fn push_integer(&mut self, value: u64) {
        if value < Self::WIDE.into() {
            return self.push(value as u8);
        }
        self.push(Self::WIDE);
        let end = self.len + size_of::<u64>();
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        self.len = end;
    }
}

/// The methods for signed integers call those for unsigned ones.
impl Hasher for FieldBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.push_integer(bytes.len() as u64);
        bytes.iter().for_each(|&byte| self.push(byte));
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.push_integer(value.into());
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.push_integer(value.into());
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.push_integer(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.push_integer(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.push_integer(value as u64);
    }

    fn finish(&self) -> u64 {
        unreachable!("the bytes are used as they are, not as a digest")
    }
}

/// A WGSL expression as a field of a [`Kernel`].
///
/// It is compared and hashed by its address and length, which takes less time than by its text.
/// Equal texts at two addresses are different expressions, but lead to the same pipeline.
#[derive(Debug, Clone, Copy)]
pub struct Expr(pub &'static str);

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Expr {}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::runtime::Source;

    static SOURCE: Source = Source::new::<u32>("test", "");

    /// A kernel with any fields.
    #[derive(Debug, Clone, Hash)]
    struct Fields<T>(T);

    impl<T: Hash + Debug + Clone + Send + Sync + 'static> Kernel for Fields<T> {
        type Params = u32;

        fn variant(&self) -> Variant {
            Variant::new(&SOURCE)
        }
    }

    /// A kernel with the fields of `Fields<u32>`.
    #[derive(Debug, Clone, Hash)]
    struct SameFields(u32);

    impl Kernel for SameFields {
        type Params = u32;

        fn variant(&self) -> Variant {
            Variant::new(&SOURCE)
        }
    }

    #[derive(Debug, Clone, Copy, Hash)]
    enum Mode {
        Plain,
        Tiled { size: u32, subgroup: bool },
        Split(Option<Half>),
    }

    #[derive(Debug, Clone, Copy, Hash)]
    enum Half {
        F16,
        BF16,
    }

    /// Checks that kernels with these fields have equal keys only if their indices are equal.
    fn assert_distinct<T: Hash + Debug + Clone + Send + Sync + 'static>(fields: &[T]) {
        let keys = || fields.iter().map(|fields| KernelKey::of(&Fields(fields.clone())));
        let distinct: HashSet<KernelKey> = keys().collect();
        assert_eq!(distinct.len(), fields.len(), "{fields:?}");
        assert!(keys().all(|key| distinct.contains(&key)), "{fields:?}");
    }

    #[test]
    fn different_integers_have_different_keys() {
        assert_distinct(&[0, 1, 254, 255, 256, 511, u32::MAX]);
        assert_distinct(&[0, 1, 254, 255, 256, 1 << 32, u64::MAX]);
        assert_distinct(&[0, 1, 254, 255, 256, usize::MAX]);
        assert_distinct(&[0, 1, 254, 255, 256, u16::MAX]);
        assert_distinct(&[0, 1, 254, u8::MAX]);
        assert_distinct(&[0, 1, -1, i32::MIN, i32::MAX]);
        assert_distinct(&[0, 1, -1, isize::MIN, isize::MAX]);
        assert_distinct(&[0, 1, u128::from(u64::MAX), u128::MAX]);
    }

    #[test]
    fn integers_do_not_run_into_each_other() {
        let values = [0, 1, 254, 255, 256, 0xff00, 0xffff];
        let pairs = values.map(|a| values.map(|b| (a, b)));
        assert_distinct::<(u32, u32)>(&pairs.concat());
    }

    #[test]
    fn different_sequences_have_different_keys() {
        assert_distinct::<(&[u8], &[u8])>(&[(&[], &[1]), (&[1], &[]), (&[0], &[]), (&[], &[])]);
        assert_distinct(&[("a", "bc"), ("ab", "c"), ("abc", "")]);
        assert_distinct(&[[false; 3], [true, false, false], [false, false, true]]);
    }

    #[test]
    fn different_nested_enums_have_different_keys() {
        assert_distinct(&[
            Mode::Plain,
            Mode::Tiled { size: 0, subgroup: false },
            Mode::Tiled { size: 0, subgroup: true },
            Mode::Tiled { size: 255, subgroup: false },
            Mode::Tiled { size: 255, subgroup: true },
            Mode::Split(None),
            Mode::Split(Some(Half::F16)),
            Mode::Split(Some(Half::BF16)),
        ]);
    }

    #[test]
    fn kernels_of_two_types_have_different_keys() {
        assert_ne!(KernelKey::of(&Fields(7u32)), KernelKey::of(&SameFields(7)));
    }

    #[test]
    fn expressions_are_compared_by_address_and_length() {
        let text = "a + b";
        assert_distinct(&[Expr(text), Expr(&text[..1]), Expr(&text[4..])]);
        assert_eq!(Expr(text), Expr(text));
        assert_ne!(Expr(text), Expr(&text[..1]));
    }

    #[test]
    fn fields_may_fill_the_key() {
        // Two lengths precede the bytes of an array of integers.
        assert_distinct(&[[0u8; 62], [1; 62], [255; 62]]);
    }

    #[test]
    #[should_panic(expected = "Fields<[u8; 63]> needs 65 bytes but has 64")]
    fn fields_that_do_not_fit_panic_with_the_type() {
        KernelKey::of(&Fields([0u8; 63]));
    }
}
