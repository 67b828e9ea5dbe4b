//! A device that may be lost, as after a driver reset, and is opened again.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, anyhow};
use burn_wgsl::WgslDevice;

use crate::metrics::Metrics;

/// How long the thread of a model waits after each failure in a row, before the failure is final: a driver needs some
/// time after a reset.
const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_secs(2), Duration::from_secs(10)];

/// Runs `work`, and returns its error, or the panic of an op as an error.
///
/// # Errors
///
/// Returns the error or the panic of `work`.
pub fn attempt<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    burn_wgsl::attempt(work)?
}

/// The device of all models.
#[derive(Debug, Clone)]
pub struct SharedDevice {
    device: WgslDevice,
    /// How often it was closed.
    closed: Arc<Mutex<u64>>,
}

impl SharedDevice {
    /// Creates the state of a device that is open, or will be.
    pub fn new(device: WgslDevice) -> Self {
        Self { device, closed: Arc::default() }
    }

    /// Returns what selects the device.
    pub fn selector(&self) -> WgslDevice {
        self.device
    }

    /// Loads a model, after which no kernels of a warm-up are left to compile while a client waits.
    fn load<M>(&self, open: impl FnOnce() -> Result<M>) -> Result<M> {
        attempt(|| {
            burn_wgsl::skip_warm_up(&self.device)?;
            open()
        })
    }

    fn times_closed(&self) -> u64 {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the device, unless another thread has done so since it had been closed `times`. The next tensor opens it
    /// again.
    fn close(&self, times: u64) -> Result<()> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed == times {
            burn_wgsl::close(&self.device)?;
            *closed += 1;
        }
        Ok(())
    }
}

/// A model that is loaded again when its device fails.
pub struct Reopened<M, F> {
    device: SharedDevice,
    open: F,
    model: Option<M>,
    /// How often the device had been closed when the model was loaded.
    closed: u64,
    /// Failures since the last success.
    failures: usize,
}

impl<M, F: FnMut() -> Result<M>> Reopened<M, F> {
    /// Loads the model.
    ///
    /// # Errors
    ///
    /// Returns the error of `open`, or of the device.
    pub fn new(device: SharedDevice, mut open: F) -> Result<Self> {
        let closed = device.times_closed();
        let model = device.load(&mut open)?;
        Ok(Self { device, open, model: Some(model), closed, failures: 0 })
    }

    /// Returns the model, unless it could not be loaded again.
    pub fn model(&mut self) -> Option<&mut M> {
        self.model.as_mut()
    }

    /// Computes with the model. If that fails, opens the device and loads the model again, and tries once more. The
    /// second argument of `work` says whether the model is a new one.
    ///
    /// # Errors
    ///
    /// Returns the last error after several failures in a row.
    pub fn run<R>(
        &mut self,
        metrics: &Metrics,
        mut work: impl FnMut(&mut M, bool) -> Result<R>,
    ) -> Result<R> {
        let mut is_new = false;
        loop {
            let result = match &mut self.model {
                Some(model) => attempt(|| work(model, is_new)),
                None => Err(anyhow!("the model could not be loaded")),
            };
            let error = match result {
                Ok(result) => {
                    self.failures = 0;
                    return Ok(result);
                }
                Err(error) => error,
            };
            let Some(wait) = WAITS.get(self.failures) else { return Err(error) };
            self.failures += 1;
            log::warn!("the device failed, and is opened again: {error:#}");
            metrics.reopened.inc();
            sleep(*wait);
            self.model = None;
            self.device.close(self.closed)?;
            self.closed = self.device.times_closed();
            match self.device.load(&mut self.open) {
                Ok(model) => self.model = Some(model),
                Err(error) => log::warn!("the model could not be loaded: {error:#}"),
            }
            is_new = true;
        }
    }
}
