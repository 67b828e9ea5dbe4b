//! Caught panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    message.unwrap_or("without a message").to_owned()
}

/// An op panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpPanic(
    /// The message of the panic.
    pub String,
);

/// Runs `work`, and returns a panic as an error: Burn's ops return tensors, not results, so that an op panics if the
/// device is lost, or has too little memory. `sync` and reading a tensor return errors.
///
/// Tensors that `work` has changed when it panicked may be in between: drop them. Where panics end the program, as in a
/// browser, they still do.
///
/// ```
/// use burn_wgsl::attempt;
///
/// let result: Result<(), _> = attempt(|| panic!("the device was lost"));
/// assert_eq!(result.unwrap_err().to_string(), "the device was lost");
/// ```
///
/// # Errors
///
/// Returns the message of the panic.
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, OpPanic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| OpPanic(panic_message(&*panic)))
}
