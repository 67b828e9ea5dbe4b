//! Sampling of images at the coordinates of a grid.

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, normal, permuted};
use crate::kernels::ops::options::{GridPadding, InterpolateMode};
use crate::kernels::views;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

static GRID_SAMPLE: Source = Source::new::<GridSampleParams>(
    "grid_sample",
    wgsl!("../../shaders/grid_sample/grid_sample.wgsl"),
);

params! {
    struct GridSampleParams {
        count: u32,
        channels: u32,
        in_h: u32,
        in_w: u32,
        out_h: u32,
        out_w: u32,
        padding: u32,
        margin: f32,
    }
}

/// The sampling kernel.
#[derive(Debug, Clone, Copy, Hash)]
struct GridSampleKernel {
    /// How values between the pixels are interpolated.
    mode: InterpolateMode,
}

impl Kernel for GridSampleKernel {
    type Params = GridSampleParams;

    fn variant(&self) -> Variant {
        Variant::new(&GRID_SAMPLE)
            .flag("NEAREST", self.mode == InterpolateMode::Nearest)
            .flag("BICUBIC", self.mode == InterpolateMode::Bicubic)
    }
}

/// Samples images `x` `[n, c, h, w]` at the coordinates in `grid` `[n, i, j, 2]`: `[n, c, i, j]`.
///
/// A coordinate is (x, y). With `align_corners`, -1 and 1 are the centres of the outermost pixels;
/// otherwise they are the edges of the image, half a pixel further out. In the nearest mode, a
/// coordinate halfway between two pixels reads the pixel with the even index.
///
/// # Errors
///
/// Returns an error for the Lanczos filter, if the shapes do not fit, or if the memory is not
/// available.
pub fn grid_sample_2d(
    x: Tensor,
    grid: Tensor,
    mode: InterpolateMode,
    padding: GridPadding,
    align_corners: bool,
) -> Result<Tensor> {
    x.same_device(&grid)?;
    if mode == InterpolateMode::Lanczos3 {
        return Err(Error::Unsupported("grid sampling with the Lanczos filter"));
    }
    let (&[n, c, h, w], &[images, rows, cols, 2]) = (x.shape(), grid.shape()) else {
        return Err(shape_error(&x, &grid));
    };
    // Positions are f32.
    const MAX_SIZE: usize = 1 << 24;
    if h > MAX_SIZE || w > MAX_SIZE {
        return Err(Error::Shape {
            lhs: x.shape().to_vec(),
            rhs: grid.shape().to_vec(),
            rule: "an image that is sampled can have at most 2^24 rows and columns",
        });
    }
    let shape = [n, c, rows, cols];
    let empty = shape.contains(&0);
    if images != n || (!empty && (h == 0 || w == 0)) {
        return Err(shape_error(&x, &grid));
    }
    let (x, grid) = (views::packed(x)?, views::packed(grid)?);
    let out = Tensor::empty(x.runtime(), &shape, DType::F32)?;
    Launch {
        kernel: &GridSampleKernel { mode },
        inputs: &[&x, &grid],
        outputs: &[&out],
        params: &GridSampleParams {
            count: out.len() as u32,
            channels: c as u32,
            in_h: h as u32,
            in_w: w as u32,
            out_h: rows as u32,
            out_w: cols as u32,
            padding: padding as u32,
            margin: if align_corners { 0.0 } else { 0.5 },
        },
        workgroups: workgroups_for(out.len()),
        work: out.len() as u64 * if mode == InterpolateMode::Bicubic { 128 } else { 32 },
        rounds: None,
    }
    .run()?;
    Ok(out)
}

fn shape_error(x: &Tensor, grid: &Tensor) -> Error {
    Error::Shape {
        lhs: x.shape().to_vec(),
        rhs: grid.shape().to_vec(),
        rule: "grid sampling needs images [n, c, h, w] with at least one pixel, and a grid \
               [n, i, j, 2]",
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    use InterpolateMode::{Bicubic, Bilinear, Nearest};
    variants_of([Nearest, Bilinear, Bicubic].map(|mode| GridSampleKernel { mode }))
}

/// The cases that the family must pass. burn-flex lacks the bicubic mode; `tests/kernels/definitions.rs`
/// tests it.
pub const CASES: &[Case] = {
    use GridPadding::*;
    use InterpolateMode::{Bilinear, Nearest};
    // Normally distributed coordinates: many are outside, some beyond the first reflection.
    const X: Arg = normal(&[2, 3, 4, 6]);
    const GRID: Arg = normal(&[2, 5, 7, 2]);
    // Odd sizes: with even ones, a coordinate of zero would be halfway between two pixels, where
    // burn-flex rounds away from zero and this kernel to even.
    const ODD: Arg = normal(&[2, 3, 5, 7]);
    cases! {
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Zeros, true));
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Zeros, false));
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Border, true));
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Border, false));
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Reflection, true));
        float_grid_sample_2d(X, GRID, Arg::GridSample(Bilinear, Reflection, false));
        float_grid_sample_2d(ODD, GRID, Arg::GridSample(Nearest, Zeros, true));
        float_grid_sample_2d(ODD, GRID, Arg::GridSample(Nearest, Zeros, false));
        float_grid_sample_2d(ODD, GRID, Arg::GridSample(Nearest, Border, false));
        float_grid_sample_2d(ODD, GRID, Arg::GridSample(Nearest, Reflection, true));
        float_grid_sample_2d(ODD, GRID, Arg::GridSample(Nearest, Reflection, false));
        // One pixel; views; no channels.
        float_grid_sample_2d([1, 2, 1, 1], [1, 3, 3, 2],
            Arg::GridSample(Bilinear, Reflection, true));
        float_grid_sample_2d(permuted(&[2, 4, 6, 3], &[0, 3, 1, 2]),
            permuted(&[2, 2, 5, 7], &[0, 2, 3, 1]), Arg::GridSample(Bilinear, Border, false));
        float_grid_sample_2d([2, 0, 4, 6], GRID, Arg::GridSample(Bilinear, Zeros, false));
    }
};
