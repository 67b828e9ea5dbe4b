//! The options of interpolation, of which Burn 0.21 has some.

use burn_backend as new;
use burn_backend::TensorMetadata;
use burn_backend::ops::{
    CoordinateTransformMode, CubicOptions, InterpolateMode, InterpolateOptions, NearestRoundingMode,
};
use burn_backend_021 as old;

use crate::contract::Convert;
use crate::tensor::Tensor;

/// The size is an argument of its own.
impl Convert for InterpolateOptions {
    type Other = old::ops::InterpolateOptions;

    fn converted(self) -> Self::Other {
        // The nearest pixel does not depend on it; `true` is Burn 0.21's default.
        let align_corners = self.align_corners() || matches!(self.mode, InterpolateMode::Nearest);
        old::ops::InterpolateOptions::new(self.mode.converted()).with_align_corners(align_corners)
    }
}

impl Convert for old::ops::InterpolateOptions {
    type Other = InterpolateOptions;

    fn converted(self) -> Self::Other {
        new::ops::InterpolateOptions::new(self.mode.converted())
            .with_align_corners(self.align_corners)
    }
}

/// Checks that kernels have the options for images `[batch, channels, height, width]`.
///
/// # Panics
///
/// Panics if they do not: as CubeCL, they have one mapping of nearest pixels, two of the other modes,
/// and scales that are the ratios of the sizes.
pub(crate) fn check(options: &InterpolateOptions, images: &Tensor, output_size: [usize; 2]) {
    use CoordinateTransformMode::{AlignCorners, Asymmetric, HalfPixel};
    let (transform, rounding) = (options.coordinate_transform, options.nearest_mode);
    let is_supported = match options.mode {
        InterpolateMode::Nearest => {
            transform == Asymmetric && rounding == NearestRoundingMode::Floor
        }
        InterpolateMode::NearestExact => {
            transform == HalfPixel && rounding == NearestRoundingMode::RoundPreferCeil
        }
        _ => {
            matches!(transform, AlignCorners | HalfPixel)
                && options.cubic_options == CubicOptions::default()
        }
    };
    assert!(
        is_supported,
        "interpolate: {:?} with {transform:?}, {rounding:?} and {:?} is not supported; use the \
         defaults of the mode, or `with_align_corners(false)`",
        options.mode, options.cubic_options
    );
    if let (Some(scale), false) = (options.scale_factor, transform == AlignCorners) {
        let shape = images.shape();
        for axis in 0..2 {
            let ratio = output_size[axis] as f32 / shape[2 + axis] as f32;
            assert!(
                scale[axis] == ratio,
                "interpolate: a scale of {} is not supported for {} to {} pixels; set the size of the \
                 output",
                scale[axis],
                shape[2 + axis],
                output_size[axis]
            );
        }
    }
}
