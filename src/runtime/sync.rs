//! The locks, channels and threads of what several threads share.
//!
//! With `--cfg shuttle`, which `cargo xtask test --only schedules` sets, they are shuttle's: its tests, in modules
//! named `schedules`, run with many orders of the steps of all threads.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use scheduled::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{atomic, mpsc},
    thread,
};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{atomic, mpsc},
    thread,
};

/// Shuttle's locks with the interface of `parking_lot`.
#[cfg(shuttle)]
mod scheduled {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use shuttle::rand::Rng;
    use shuttle::sync;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    /// Holds a guard, except while a condition is waited for.
    pub(crate) struct MutexGuard<'a, T> {
        guard: Option<sync::MutexGuard<'a, T>>,
        mutex: &'a Mutex<T>,
    }

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            let guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            MutexGuard { guard: Some(guard), mutex: self }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.guard.as_ref().expect("nobody has the guard while it waits")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.guard.as_mut().expect("nobody has the guard while it waits")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(sync::Condvar);

    pub(crate) struct WaitTimeoutResult(bool);

    impl WaitTimeoutResult {
        pub fn timed_out(&self) -> bool {
            self.0
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Self(sync::Condvar::new())
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.guard.take().expect("nobody has the guard while it waits");
            let inner = self.0.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
            guard.guard = Some(inner);
        }

        /// Shuttle has no time: some waits end by it at any step.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
            let times_out = shuttle::rand::thread_rng().gen_bool(0.3);
            if times_out {
                guard.guard = None;
                shuttle::thread::yield_now();
                guard.guard = guard.mutex.lock().guard;
            } else {
                self.wait(guard);
            }
            WaitTimeoutResult(times_out)
        }
    }
}
