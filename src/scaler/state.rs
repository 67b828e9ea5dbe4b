//! The scale and its counts, on the device and as text.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use burn_backend::{DType, ExecutionError, TensorData};
use burn_tensor::{Bool, Int, IntDType, Tensor};

use super::GradScalerConfig;
use crate::backend::Wgsl;
use crate::device::WgslDevice;

/// The scales that a [`GradScaler`](super::GradScaler) can have: 2^-100 to 2^100. A scale and its inverse are then
/// normal numbers. The scale stops growing, or shrinking, at the ends.
pub const SCALES: RangeInclusive<f32> = 1.0 / LARGEST..=LARGEST;

const LARGEST: f32 = (1u128 << 100) as f32;

/// The state of a [`GradScaler`](super::GradScaler), for a checkpoint. Its text is one line, which parses again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalerState {
    /// What the loss is multiplied by.
    pub scale: f32,
    /// The steps since the scale changed.
    pub good_steps: u32,
    /// The steps that changed no parameter.
    pub skipped_steps: u32,
}

/// The words before the numbers in the text of a [`ScalerState`].
const FORMAT: &str = "burn-wgsl GradScaler 1:";

impl fmt::Display for ScalerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, good_steps, skipped_steps } = self;
        write!(f, "{FORMAT} scale {scale} good {good_steps} skipped {skipped_steps}")
    }
}

/// A text that is no [`ScalerState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidScalerState(String);

impl fmt::Display for InvalidScalerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "{text:?} is not the state of a GradScaler, or of another version")
    }
}

impl std::error::Error for InvalidScalerState {}

impl FromStr for ScalerState {
    type Err = InvalidScalerState;

    fn from_str(text: &str) -> Result<Self, InvalidScalerState> {
        let parse = || -> Option<Self> {
            let words: Vec<&str> = text.trim().strip_prefix(FORMAT)?.split_whitespace().collect();
            let ["scale", scale, "good", good, "skipped", skipped] = words[..] else {
                return None;
            };
            let state = Self {
                scale: scale.parse().ok()?,
                good_steps: good.parse().ok()?,
                skipped_steps: skipped.parse().ok()?,
            };
            SCALES.contains(&state.scale).then_some(state)
        };
        parse().ok_or_else(|| InvalidScalerState(text.chars().take(80).collect()))
    }
}

/// The state on the device: tensors of one element.
#[derive(Debug, Clone)]
pub(super) struct OnDevice {
    pub scale: Tensor<Wgsl, 1>,
    good_steps: Tensor<Wgsl, 1, Int>,
    skipped_steps: Tensor<Wgsl, 1, Int>,
}

impl OnDevice {
    pub fn new(state: ScalerState, device: &WgslDevice) -> Self {
        // Whatever the default types of the device are.
        let count = |count: u32| Tensor::from_data([clamped(count)], (device, DType::I32));
        Self {
            scale: Tensor::from_data([state.scale], (device, DType::F32)),
            good_steps: count(state.good_steps),
            skipped_steps: count(state.skipped_steps),
        }
    }

    /// Reads the state back.
    pub fn read(&self) -> ScalerState {
        let Self { scale, good_steps, skipped_steps } = self.clone();
        Self::state_of([scale.into_data(), good_steps.into_data(), skipped_steps.into_data()])
    }

    /// Reads the state back without blocking.
    pub async fn read_async(self) -> Result<ScalerState, ExecutionError> {
        Ok(Self::state_of([
            self.scale.into_data_async().await?,
            self.good_steps.into_data_async().await?,
            self.skipped_steps.into_data_async().await?,
        ]))
    }

    fn state_of([scale, good_steps, skipped_steps]: [TensorData; 3]) -> ScalerState {
        let count = |count: TensorData| count.iter::<u32>().next().unwrap_or(0);
        ScalerState {
            scale: scale.iter::<f32>().next().unwrap_or(1.0),
            good_steps: count(good_steps),
            skipped_steps: count(skipped_steps),
        }
    }

    /// Moves the state.
    #[cfg(feature = "train")]
    pub fn on_device(self, device: &WgslDevice) -> Self {
        Self {
            scale: self.scale.to_device(device),
            good_steps: self.good_steps.to_device(device),
            skipped_steps: self.skipped_steps.to_device(device),
        }
    }

    /// Changes the scale after a step.
    pub fn update(&mut self, overflow: Tensor<Wgsl, 1, Bool>, config: &GradScalerConfig) {
        let good_steps = (self.good_steps.clone() + 1).mask_fill(overflow.clone(), 0);
        let grows = good_steps.clone().greater_equal_elem(clamped(config.growth_interval));
        let grown = self.scale.clone() * config.growth_factor;
        let scale = self.scale.clone().mask_where(grows.clone(), grown);
        let smaller = self.scale.clone() * config.backoff_factor;
        let scale = scale.mask_where(overflow.clone(), smaller);
        self.scale = scale.clamp(*SCALES.start(), *SCALES.end());
        self.good_steps = good_steps.mask_fill(grows, 0);
        self.skipped_steps = self.skipped_steps.clone() + overflow.int().cast(IntDType::I32);
    }
}

/// Panics unless a scale is one of [`SCALES`].
pub(super) fn check_scale(scale: f32) {
    let [least, most] = [SCALES.start(), SCALES.end()];
    assert!(
        SCALES.contains(&scale),
        "the scale is {scale:e}; it must be from {least:e} to {most:e}"
    );
}

/// Returns a count as the device stores it, with room to count on.
fn clamped(count: u32) -> i32 {
    count.min(1 << 30) as i32
}
