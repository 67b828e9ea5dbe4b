//! How pending results get their memory: the steps that all kernels of pending results go through.
//!
//! Pending results change under one lock of the device, in which nothing is compiled and no thread waits. So a kernel
//! looks at them under the lock, and says what comes next: other results, its compilation, or the end, when its
//! launches are recorded. After the first two it looks again, because other threads may have computed something
//! meanwhile.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::runtime::{Allocation, Compilation, Recorded, Runtime, RuntimeError};
use crate::tensor::Lazy;

/// What follows a look at pending results.
pub(crate) enum NextStep<'a> {
    /// There is nothing to compute.
    Nothing,
    /// Another look, after these results were computed.
    After(SmallVec<[Arc<Lazy>; 2]>),
    /// Another look, after a kernel was compiled.
    Compile(Compilation<'a>),
    /// Another look, which takes another way.
    Again,
    /// The launches were recorded, and their results have memory.
    Recorded(SmallVec<[RecordedLaunch; 1]>),
}

impl NextStep<'_> {
    /// Another look, after a result was computed.
    pub fn after(lazy: &Arc<Lazy>) -> Self {
        Self::After(smallvec![lazy.clone()])
    }
}

/// A recorded launch.
pub(crate) struct RecordedLaunch {
    pub recorded: Recorded,
    /// The memory that the launch writes, of pending results only: it is lost if the launch fails later, because an
    /// operand may have been overwritten, and the results cannot be computed again.
    pub results: SmallVec<[Arc<Allocation>; 4]>,
}

/// Looks at pending results under the lock until there is nothing left to do. Returns whether launches were recorded.
///
/// # Errors
///
/// Returns the errors of `look`, of results that come first, of the compilation, and of launches that fail after they
/// were recorded.
pub(crate) fn run<'a, E: From<RuntimeError>>(
    runtime: &Runtime,
    mut look: impl FnMut() -> Result<NextStep<'a>, E>,
) -> Result<bool, E> {
    loop {
        let locked = runtime.lock_deferred();
        let next = look()?;
        drop(locked);
        match next {
            NextStep::Nothing => return Ok(false),
            NextStep::Again => {}
            NextStep::After(results) => {
                for lazy in &results {
                    lazy.computed()?;
                }
            }
            NextStep::Compile(compilation) => runtime.prepare(compilation)?,
            NextStep::Recorded(recordings) => return finish(runtime, recordings).map(|()| true),
        }
    }
}

/// Finishes launches, all of them also if one fails. Returns the first error.
fn finish<E: From<RuntimeError>>(
    runtime: &Runtime,
    recordings: SmallVec<[RecordedLaunch; 1]>,
) -> Result<(), E> {
    let mut result = Ok(());
    for RecordedLaunch { recorded, results } in recordings {
        if let Err(error) = runtime.finish_dispatch(recorded) {
            results.iter().for_each(|memory| runtime.lose(memory));
            result = result.and(Err(error.into()));
        }
    }
    result
}
