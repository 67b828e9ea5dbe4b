//! The bar on standard error: what is being measured and how much time is left. Where standard error is no terminal there
//! is none.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar for each measurement of one size on one device.
const STEPS: f64 = 1000.0;

pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for so many measurements.
    pub fn new(measurements: usize) -> Self {
        let bar = ProgressBar::with_draw_target(
            Some((measurements as f64 * STEPS) as u64),
            ProgressDrawTarget::stderr(),
        );
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {eta} left  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Shows what is being done and where.
    pub fn say(&self, what: &str, device: &str) {
        self.0.set_message(format!("{what} on {device}"));
    }

    /// Moves on by a part of one measurement.
    pub fn advance(&self, part: f64) {
        self.0.inc((part * STEPS) as u64);
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
