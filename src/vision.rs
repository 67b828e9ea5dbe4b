//! The ops of burn-vision: connected components, morphology, non-maximum suppression. burn-vision computes them on the
//! CPU, from the data of the tensors.

use burn_vision::{BoolVisionOps, FloatVisionOps, IntVisionOps, QVisionOps, VisionBackend};

use crate::backend::Wgsl;

impl BoolVisionOps for Wgsl {}
impl IntVisionOps for Wgsl {}
impl FloatVisionOps for Wgsl {}
impl QVisionOps for Wgsl {}
impl VisionBackend for Wgsl {}
