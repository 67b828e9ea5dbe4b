//! Convolutions of 3 x 3 with a stride of 1 by Winograd's algorithm: a quarter of the multiply-adds.
//!
//! The output is computed in tiles of 4 x 4. The 6 x 6 pixels of the input under a tile and the 3 x 3
//! taps are transformed to 36 numbers each, so that the output is the inverse transform of 36 matrix
//! products over the channels. The transforms are in `shaders/winograd`, the products are those of
//! `matmul`. A convolution with many tiles is computed in parts, which limits the memory.
//!
//! Rounding errors are less than twice those of sums of products (`benches/ladder/conv.md`).
//!
//! A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, 2015.

use super::common::cases::{Arg, Case, case, positive};
use super::common::conv_geometry::ConvGeometry;
use super::common::launch::{Launch, variants_of, workgroups_for};
use super::common::options::ConvOptions;
use super::common::policy;
use super::composed::views;
use super::{cast, matmul};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/winograd", wgsl!("../../shaders/lib/winograd.wgsl"))];

static WEIGHT: Source = Source::new::<WeightParams>(
    "winograd_weight",
    wgsl!("../../shaders/winograd/winograd_weight.wgsl"),
);
static INPUT: Source = Source::new::<TileParams>(
    "winograd_input",
    wgsl!("../../shaders/winograd/winograd_input.wgsl"),
)
.with_fragments(FRAGMENTS);
static OUTPUT: Source = Source::new::<TileParams>(
    "winograd_output",
    wgsl!("../../shaders/winograd/winograd_output.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct WeightParams {
        count: u32,
        cols: u32,
        row_stride: u32,
        col_stride: u32,
    }
}

params! {
    struct TileParams {
        count: u32,
        cols: u32,
        first_tile: u32,
        tiles: u32,
        tile_rows: u32,
        tile_cols: u32,
        channels: u32,
        height: u32,
        width: u32,
        padding_h: u32,
        padding_w: u32,
        has_bias: u32,
    }
}

/// The numbers of a transformed tile: the matrix products of a convolution.
const PRODUCTS: usize = 36;

/// The memory of the transformed tiles of one part, in bytes. It leaves room for them in the
/// last-level cache of large GPUs.
const PART_BYTES: usize = 64 << 20;

/// The transform of a weight.
#[derive(Debug, Clone, Copy, Hash)]
struct WeightKernel {
    /// Whether taps are read from the last to the first.
    flipped: bool,
}

impl Kernel for WeightKernel {
    type Params = WeightParams;

    fn variant(&self) -> Variant {
        Variant::new(&WEIGHT).flag("FLIPPED", self.flipped)
    }
}

/// The transforms of tiles.
#[derive(Debug, Clone, Copy, Hash)]
enum TileKernel {
    Input,
    Output,
}

impl Kernel for TileKernel {
    type Params = TileParams;

    fn variant(&self) -> Variant {
        Variant::new(match self {
            Self::Input => &INPUT,
            Self::Output => &OUTPUT,
        })
    }
}

/// Returns whether the convolution `g`, and its transpose, can be computed here and whether that pays
/// off. `operand` is its input, or that of the transpose.
pub(super) fn applies(g: &ConvGeometry, operand: &Tensor) -> bool {
    let ConvOptions { stride, padding, dilation, groups } = g.options;
    let is_3_x_3 = g.kernel == [1, 3, 3]
        && (g.input[0], padding[0], groups) == (1, 0, 1)
        && (stride, dilation) == ([1; 3], [1; 3])
        && padding.iter().all(|padding| *padding <= 2);
    // Networks in web pages are small, and so should their downloads be. f16 may have matrix units,
    // which leave the transforms as the limit.
    cfg!(not(target_arch = "wasm32"))
        && is_3_x_3
        && operand.dtype() != DType::F16
        && policy::pays_for_winograd(
            operand.runtime(),
            [g.in_channels, g.out_channels],
            g.images * g.output[1].div_ceil(4) * g.output[2].div_ceil(4),
        )
}

/// Computes the convolution of `x` `[n, c, ..]` with `weight` `[o, c, ..]`.
pub(super) fn convolve(
    g: &ConvGeometry,
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    let (c, o) = (g.in_channels, g.out_channels);
    let weight = transformed_weight(weight, [o, c], [9 * c, 9], false)?;
    let shape = g.shape([g.images, o], g.output);
    let padding = [g.options.padding[1], g.options.padding[2]];
    let max_tiles = tiles_per_part(g);
    multiply(x, &weight, bias, padding, &shape, max_tiles)
}

/// Computes the transpose of the convolution `g`, of `grad` `[n, o, ..]` with `weight` `[o, c, ..]`.
pub(super) fn transpose(
    g: &ConvGeometry,
    grad: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    let (c, o) = (g.in_channels, g.out_channels);
    let weight = transformed_weight(weight, [c, o], [9, 9 * c], true)?;
    let [_, padding_h, padding_w] = g.options.padding;
    let size = [1, g.input[1] - 2 * padding_h, g.input[2] - 2 * padding_w];
    let shape = g.shape([g.images, c], size);
    multiply(grad, &weight, bias, [2 - padding_h, 2 - padding_w], &shape, tiles_per_part(g))
}

/// Returns the number of tiles of a part.
fn tiles_per_part(g: &ConvGeometry) -> usize {
    let bytes_per_tile = PRODUCTS * (g.in_channels + g.out_channels) * 4;
    (PART_BYTES / bytes_per_tile).next_multiple_of(128)
}

/// Transforms a weight of `rows` times `cols` kernels of nine taps, which are `strides` apart, to
/// `[36, rows, cols]`. `flipped`: taps are read from the last to the first.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn transformed_weight(
    weight: Tensor,
    [rows, cols]: [usize; 2],
    strides: [usize; 2],
    flipped: bool,
) -> Result<Tensor> {
    let weight = views::packed(cast::to_compute_type(weight)?)?;
    let out = Tensor::empty(weight.runtime(), &[PRODUCTS, rows, cols], DType::F32)?;
    Launch {
        kernel: &WeightKernel { flipped },
        inputs: &[&weight],
        outputs: &[&out],
        params: &WeightParams {
            count: (rows * cols) as u32,
            cols: cols as u32,
            row_stride: strides[0] as u32,
            col_stride: strides[1] as u32,
        },
        workgroups: workgroups_for(rows * cols),
        work: out.len() as u64 * 4,
    }
    .run()?;
    Ok(out)
}

/// Convolves `x` `[n, c, h, w]` with a transformed weight `[36, o, c]`, `max_tiles` tiles at a time, to
/// a result of `shape` `[n, o, ..]`.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn multiply(
    x: Tensor,
    weight: &Tensor,
    bias: Option<Tensor>,
    padding: [usize; 2],
    shape: &[usize],
    max_tiles: usize,
) -> Result<Tensor> {
    let x = views::packed(cast::to_compute_type(x)?)?;
    let bias = bias.map(cast::to_compute_type).transpose()?.map(views::packed).transpose()?;
    let runtime = x.runtime().clone();
    let out = Tensor::empty(&runtime, shape, DType::F32)?;
    let [images, out_channels, ref out_size @ ..] = *shape else { return Ok(out) };
    let (in_channels, in_size) = (x.shape()[1], &x.shape()[2..]);
    let last_two = |size: &[usize]| [size[size.len() - 2], size[size.len() - 1]];
    let (in_size, out_size) = (last_two(in_size), last_two(out_size));
    let [tile_rows, tile_cols] = out_size.map(|size| size.div_ceil(4));
    let tiles = images * tile_rows * tile_cols;
    for first_tile in (0..tiles).step_by(max_tiles) {
        // Products read and write vec4s.
        let cols = max_tiles.min(tiles - first_tile).next_multiple_of(4);
        let params = |channels: usize, [height, width]: [usize; 2]| TileParams {
            count: (channels * cols) as u32,
            cols: cols as u32,
            first_tile: first_tile as u32,
            tiles: tiles.min(first_tile + max_tiles) as u32,
            tile_rows: tile_rows as u32,
            tile_cols: tile_cols as u32,
            channels: channels as u32,
            height: height as u32,
            width: width as u32,
            padding_h: padding[0] as u32,
            padding_w: padding[1] as u32,
            has_bias: u32::from(bias.is_some()),
        };
        let launch = |kernel, inputs: &[&Tensor], out: &Tensor, channels, size| {
            Launch {
                kernel: &kernel,
                inputs,
                outputs: &[out],
                params: &params(channels, size),
                workgroups: workgroups_for(channels * cols),
                work: (channels * cols * PRODUCTS) as u64 * 6,
            }
            .run()
        };
        let windows = Tensor::empty(&runtime, &[PRODUCTS, in_channels, cols], DType::F32)?;
        launch(TileKernel::Input, &[&x], &windows, in_channels, in_size)?;
        let sums = matmul::matmul(weight.clone(), windows)?;
        let sums = sums.view(Layout::contiguous(&[PRODUCTS, out_channels, cols]));
        let inputs = [&sums, bias.as_ref().unwrap_or(&sums)];
        launch(TileKernel::Output, &inputs, &out, out_channels, out_size)?;
    }
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let weights = variants_of([false, true].map(|flipped| WeightKernel { flipped }));
    [weights, variants_of([TileKernel::Input, TileKernel::Output])].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const MIXED: Arg = Arg::Conv(&[1, 1], &[2, 0], &[1, 1], 1);
    // Sums of over a thousand products; those of mixed signs would round too differently.
    &[
        case(
            "conv_transpose2d_x_backward",
            &[
                positive(&[128, 132, 3, 3]),
                positive(&[8, 132, 11, 15]),
                Arg::ConvTransposed(&[1, 1], &[2, 0], &[0, 0], &[1, 1], 1),
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                positive(&[8, 132, 11, 15]),
                positive(&[128, 132, 3, 3]),
                positive(&[8, 128, 13, 13]),
                MIXED,
            ],
        ),
    ]
};
