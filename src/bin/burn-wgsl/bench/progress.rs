//! The progress bar on standard error: the current measurement and the estimated time left. It is
//! hidden if standard error is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar per measurement. A measurement is one workload at one size on one device.
const STEPS: f64 = 1000.0;

pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar for a number of measurements.
    pub fn new(measurements: usize) -> Self {
        let bar = ProgressBar::with_draw_target(
            Some((measurements as f64 * STEPS) as u64),
            ProgressDrawTarget::stderr(),
        );
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {eta} left  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Shows what is being measured and on which device.
    pub fn set_message(&self, measurement: &str, device: &str) {
        self.0.set_message(format!("{measurement} on {device}"));
    }

    /// Advances the bar by a number of measurements, which can be a fraction.
    pub fn advance(&self, measurements: f64) {
        self.0.inc((measurements * STEPS) as u64);
    }

    /// Removes the bar from the terminal.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
