//! The memory of large results. burn-flex ends the process if there is none.

use burn_backend::DType;

use crate::runtime::Bytes;
use crate::tensor::{Error, Shape, checked_len};

/// Results that are not checked, in bytes: the check takes as long as a small op.
const SMALL: u64 = 64 << 20;
/// Results that the memory left by all processes must hold, in bytes. Others only need room in the address space.
const LARGE: u64 = 1 << 30;

/// Returns whether the memory for a result is checked.
pub(crate) fn is_large(shape: &[usize], element_size: usize) -> bool {
    let bytes = checked_len(shape).and_then(|len| len.checked_mul(element_size));
    bytes.is_none_or(|bytes| bytes as u64 > SMALL)
}

/// Panics if the host has no memory for a result.
pub(crate) fn check_memory(op: &str, shape: &[usize], element_size: usize) {
    if let Some(error) = memory_error(shape, element_size) {
        panic!("{op} on cpu: {error}");
    }
}

/// Returns the shape of a result. Panics if a launcher has an error instead, or if the host has no memory for the
/// result: burn-flex would write to memory of another size, without checks.
pub(super) fn check_result(op: &str, shape: Result<Shape, Error>, dtype: DType) -> Shape {
    let shape = shape.unwrap_or_else(|error| panic!("{op} on cpu: {error}"));
    check_memory(op, &shape, dtype.size());
    shape
}

/// Returns an error if the host has no memory for a tensor.
pub(crate) fn memory_error(shape: &[usize], element_size: usize) -> Option<String> {
    let bytes = checked_len(shape).and_then(|len| len.checked_mul(element_size));
    let bytes = bytes.unwrap_or(usize::MAX);
    let fails = bytes as u64 > SMALL && !has_memory(bytes);
    fails.then(|| {
        format!(
            "out of memory: the result of shape {shape:?} has {}, for which the host has no memory; use a \
             smaller batch \
             or model, or split the tensor",
            Bytes(bytes as u64)
        )
    })
}

fn has_memory(bytes: usize) -> bool {
    let is_available = bytes as u64 <= LARGE || available().is_none_or(|left| bytes as u64 <= left);
    is_available && Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// Returns the memory that the system can give to new allocations, in bytes, if it says so.
fn available() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
