//! Profiles of some steps of a loop.

use super::{Profile, ProfileError, Session, start};
use crate::device::WgslDevice;

/// Which steps of a loop are profiled. After `skip` steps, each cycle waits, warms up, and is then
/// profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Steps before the first cycle: while kernels are compiled and caches fill up.
    pub skip: u64,
    /// Steps at the beginning of a cycle that run as without a profile.
    pub wait: u64,
    /// Steps before the active ones that are profiled too, but discarded: the first ones of a
    /// profile are slower.
    pub warm_up: u64,
    /// Steps of which each profile consists.
    pub active: u64,
    /// Number of cycles; 0 for as many as there are.
    pub repeat: u64,
}

impl Default for Schedule {
    /// Three steps, once, after ten others.
    fn default() -> Self {
        Self { skip: 9, wait: 0, warm_up: 1, active: 3, repeat: 1 }
    }
}

/// What happens at the beginning of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    None,
    /// Begin a profile that is discarded.
    WarmUp,
    /// Discard a profile, and begin one.
    Begin,
    /// End the profile; then do what `Next` says.
    End(Next),
}

/// What follows the end of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    None,
    WarmUp,
    Begin,
}

impl Schedule {
    /// Returns what happens at the beginning of a step, which are counted from 0.
    fn action(&self, step: u64) -> Action {
        let length = self.wait.saturating_add(self.warm_up).saturating_add(self.active);
        let Some(in_cycles) = step.checked_sub(self.skip).filter(|_| self.active > 0) else {
            return Action::None;
        };
        let (cycle, position) = (in_cycles / length, in_cycles % length);
        let is_over = self.repeat > 0 && cycle >= self.repeat;
        let begins = if is_over {
            Next::None
        } else if position == self.wait + self.warm_up {
            Next::Begin
        } else if position == self.wait && self.warm_up > 0 {
            Next::WarmUp
        } else {
            Next::None
        };
        let has_ended = position == 0 && cycle > 0 && (!is_over || cycle == self.repeat);
        match (has_ended, begins) {
            (true, next) => Action::End(next),
            (false, Next::None) => Action::None,
            (false, Next::WarmUp) => Action::WarmUp,
            (false, Next::Begin) => Action::Begin,
        }
    }
}

/// Profiles some steps of a loop: call [`step`](Self::step) at the beginning of each.
///
/// ```
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::profiler::{By, Column, Schedule, Scheduled};
///
/// let mut profiler = Scheduled::new(&WgslDevice::default(), Schedule::default());
/// for step in 0..20 {
///     match profiler.step() {
///         Ok(Some(profile)) => println!("{}", profile.table(By::Kernel, Column::Time)),
///         Ok(None) => {}
///         Err(error) => println!("{error}"), // an adapter without timestamps
///     }
///     // The training step.
/// }
/// // A profile that ends with the loop.
/// let _last = profiler.finish();
/// ```
#[derive(Debug)]
pub struct Scheduled {
    device: WgslDevice,
    schedule: Schedule,
    step: u64,
    session: Option<Session>,
    /// Whether the session is not one that warms up.
    is_active: bool,
    /// Why the next profile could not begin.
    error: Option<ProfileError>,
}

impl Scheduled {
    /// Creates a profiler of a device.
    pub fn new(device: &WgslDevice, schedule: Schedule) -> Self {
        Self { device: *device, schedule, step: 0, session: None, is_active: false, error: None }
    }

    /// Begins a step. Returns the profile that ended with the previous step, if any.
    ///
    /// # Errors
    ///
    /// As [`profile`](super::profile). The schedule goes on.
    pub fn step(&mut self) -> Result<Option<Profile>, ProfileError> {
        if let Some(error) = self.error.take() {
            self.step += 1;
            return Err(error);
        }
        let action = self.schedule.action(self.step);
        self.step += 1;
        let (finished, next) = match action {
            Action::None => return Ok(None),
            Action::WarmUp => (None, Next::WarmUp),
            Action::Begin => {
                // What was warmed up is discarded.
                self.session = None;
                (None, Next::Begin)
            }
            Action::End(next) => (self.session.take().map(Session::finish).transpose()?, next),
        };
        self.is_active = next == Next::Begin;
        if next != Next::None {
            match start(&self.device) {
                Ok(session) => self.session = Some(session),
                // The profile comes first.
                Err(error) if finished.is_some() => self.error = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(finished)
    }

    /// Ends the loop. Returns the profile of its last steps, if they were active.
    ///
    /// # Errors
    ///
    /// As [`Session::finish`].
    pub fn finish(self) -> Result<Option<Profile>, ProfileError> {
        let session = self.session.filter(|_| self.is_active);
        session.map(Session::finish).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_wait_warm_up_and_are_profiled() {
        let schedule = Schedule { skip: 1, wait: 1, warm_up: 1, active: 2, repeat: 2 };
        let actions: Vec<Action> = (0..12).map(|step| schedule.action(step)).collect();
        use Action::{Begin, End, None, WarmUp};
        let cycle = [WarmUp, Begin, None];
        let expected =
            [&[None, None][..], &cycle, &[End(Next::None)], &cycle, &[End(Next::None), None, None]];
        assert_eq!(actions, expected.concat());
    }

    #[test]
    fn profiles_follow_each_other_without_a_pause() {
        let schedule = Schedule { skip: 0, wait: 0, warm_up: 0, active: 2, repeat: 0 };
        let actions: Vec<Action> = (0..5).map(|step| schedule.action(step)).collect();
        let end = Action::End(Next::Begin);
        assert_eq!(actions, [Action::Begin, Action::None, end, Action::None, end]);
        let never = Schedule { active: 0, ..schedule };
        assert!((0..5).all(|step| never.action(step) == Action::None));
    }
}
