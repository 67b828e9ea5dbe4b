//! Sampling of images at the places that a grid names.

use super::cases::{Arg, Case, case, normal, permuted};
use super::interpolate::Mode;
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static GRID_SAMPLE: Source =
    Source { name: "grid_sample", text: include_str!("../../shaders/resample/grid_sample.wgsl") };

/// What lies outside of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// The nearest pixel of its border.
    Border,
    /// The image, reflected at its ends.
    Reflection,
}

fn variant(mode: Mode) -> Variant {
    Variant::new(&GRID_SAMPLE)
        .flag("NEAREST", mode == Mode::Nearest)
        .flag("BICUBIC", mode == Mode::Bicubic)
}

/// `x` `[n, c, h, w]` at the places of `grid` `[n, i, j, 2]`: `[n, c, i, j]`. A place is x, then y, where -1 and 1
/// are the centres of the outermost pixels if `align_corners`, else the ends of the image half a pixel further
/// out. Half-way between two pixels the nearest is the even one.
///
/// # Errors
///
/// For the Lanczos filter, when the shapes do not fit, and when the memory is not there.
pub fn grid_sample_2d(
    x: Tensor,
    grid: Tensor,
    mode: Mode,
    padding: Padding,
    align_corners: bool,
) -> Result<Tensor> {
    x.same_device(&grid)?;
    if mode == Mode::Lanczos3 {
        return Err(Error::Unsupported("sampling on a grid by a Lanczos filter"));
    }
    let (&[n, c, h, w], &[images, rows, cols, 2]) = (x.shape(), grid.shape()) else {
        return Err(unfit(&x, &grid));
    };
    let shape = [n, c, rows, cols];
    let empty = shape.contains(&0);
    if images != n || (!empty && (h == 0 || w == 0)) {
        return Err(unfit(&x, &grid));
    }
    let (x, grid) = (copy::packed(x)?, copy::packed(grid)?);
    let out = Tensor::empty(x.runtime(), &shape, DType::F32, &[&x, &grid])?;
    let margin: f32 = if align_corners { 0.0 } else { 0.5 };
    let [len, c, h, w, rows, cols] = [out.len(), c, h, w, rows, cols].map(|size| size as u32);
    Launch {
        variant: &variant(mode),
        inputs: &[&x, &grid],
        outputs: &[&out],
        params: &[len, c, h, w, rows, cols, padding as u32, margin.to_bits()],
        groups: div_up(out.len(), 64),
        work: out.len() as u64 * if mode == Mode::Bicubic { 128 } else { 32 },
    }
    .run()?;
    Ok(out)
}

fn unfit(x: &Tensor, grid: &Tensor) -> Error {
    Error::Shape {
        lhs: x.shape().to_vec(),
        rhs: grid.shape().to_vec(),
        rule: "sampling needs images [n, c, h, w] with at least one pixel, and places [n, i, j, 2]",
    }
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    [Mode::Nearest, Mode::Bilinear, Mode::Bicubic].map(variant).to_vec()
}

/// What the family must pass. burn-flex does not know the bicubic mode; `tests/definitions.rs` checks that one.
pub const CASES: &[Case] = {
    use Mode::{Bilinear, Nearest};
    use Padding::*;
    // Places from a normal distribution: many lie outside, some beyond the first reflection.
    const X: Arg = normal(&[2, 3, 4, 6]);
    const GRID: Arg = normal(&[2, 5, 7, 2]);
    // Odd sizes: half-way between two pixels, where the zeros among the places would lie, burn-flex takes the further
    // one and this the even one.
    const ODD: Arg = normal(&[2, 3, 5, 7]);
    &[
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Zeros, true)]),
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Zeros, false)]),
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Border, true)]),
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Border, false)]),
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Reflection, true)]),
        case("float_grid_sample_2d", &[X, GRID, Arg::GridSample(Bilinear, Reflection, false)]),
        case("float_grid_sample_2d", &[ODD, GRID, Arg::GridSample(Nearest, Zeros, true)]),
        case("float_grid_sample_2d", &[ODD, GRID, Arg::GridSample(Nearest, Zeros, false)]),
        case("float_grid_sample_2d", &[ODD, GRID, Arg::GridSample(Nearest, Border, false)]),
        case("float_grid_sample_2d", &[ODD, GRID, Arg::GridSample(Nearest, Reflection, true)]),
        case("float_grid_sample_2d", &[ODD, GRID, Arg::GridSample(Nearest, Reflection, false)]),
        // One pixel; views; no channels.
        case(
            "float_grid_sample_2d",
            &[
                normal(&[1, 2, 1, 1]),
                normal(&[1, 3, 3, 2]),
                Arg::GridSample(Bilinear, Reflection, true),
            ],
        ),
        case(
            "float_grid_sample_2d",
            &[
                permuted(&[2, 4, 6, 3], &[0, 3, 1, 2]),
                permuted(&[2, 2, 5, 7], &[0, 2, 3, 1]),
                Arg::GridSample(Bilinear, Border, false),
            ],
        ),
        case(
            "float_grid_sample_2d",
            &[normal(&[2, 0, 4, 6]), GRID, Arg::GridSample(Bilinear, Zeros, false)],
        ),
    ]
};
