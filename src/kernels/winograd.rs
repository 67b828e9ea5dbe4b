//! Convolutions of 3 x 3 with a stride of 1 by Winograd's algorithm, for programs that ask for it: a
//! quarter of the multiply-adds.
//!
//! The output is computed in tiles of 4 x 4. The 6 x 6 pixels of the input under a tile and the 3 x 3
//! taps are transformed to 36 numbers each, so that the output is the inverse transform of 36 matrix
//! products over the channels. The transforms are in `shaders/winograd`, the products are those of
//! `matmul`. A convolution with many tiles is computed in parts, which limits the memory. If there is
//! one part, elementwise ops that follow join its last kernel.
//!
//! Rounding errors are less than twice those of sums of products (`benches/ladder/conv.md`).
//!
//! A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, 2015.

use std::sync::LazyLock;

use crate::kernels::conv::geometry::ConvGeometry;
use crate::kernels::fusion::epilogue;
use crate::kernels::launch::{Launch, PendingResult, parts, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, positive};
use crate::kernels::ops::options::ConvOptions;
use crate::kernels::{cast, matmul, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};
use crate::variables;

/// Whether `BURN_WGSL_WINOGRAD` is set. By default, convolutions are sums of products: rounding errors
/// here exceed the tolerance of the tests, 1e-4 for sums of normally distributed numbers, from about
/// a thousand of them on.
static ON: LazyLock<bool> = LazyLock::new(|| variables::WINOGRAD.is_on());

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

/// The memory of the transformed tiles of one part, in bytes, if there are more than [`MIN_TILES`]. It
/// leaves room for them in the last-level cache of large GPUs.
const PART_BYTES: usize = 64 << 20;

/// The columns of a tile of a product: parts are multiples of it where the memory is the limit.
const MIN_TILES: usize = 128;

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

/// A convolution of 3 x 3 with a stride of 1, or its transpose: which images it reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct Winograd {
    /// Batch size.
    pub images: usize,
    /// Channels of the operand and of the result.
    pub channels: [usize; 2],
    /// Height and width of the operand.
    pub size: [usize; 2],
    /// Height and width of the result.
    pub out_size: [usize; 2],
    /// Zeros above and left of the operand.
    pub padding: [usize; 2],
    /// Whether the weight is that of a transpose: `[c, o, 3, 3]` instead of `[o, c, 3, 3]`, with taps
    /// from the last to the first.
    pub transposed: bool,
}

impl Winograd {
    /// Returns the convolution `g`, or its `transposed`, if it can be computed here and that pays off.
    /// `operand` is what it convolves.
    pub(super) fn of(g: &ConvGeometry, transposed: bool, operand: &Tensor) -> Option<Self> {
        let ConvOptions { stride, padding, dilation, groups } = g.options;
        let is_3_x_3 = g.kernel == [1, 3, 3]
            && (g.input[0], groups, stride, dilation) == (1, 1, [1; 3], [1; 3])
            && padding.iter().all(|padding| *padding <= 2);
        // Networks in web pages are small, and so should their downloads be. f16 may have matrix units,
        // which leave the transforms as the limit.
        let is_supported = cfg!(not(target_arch = "wasm32")) && operand.dtype() != DType::F16;
        if !is_3_x_3 || !is_supported || !*ON {
            return None;
        }
        let size = [1, 2].map(|axis| g.input[axis] - 2 * padding[axis]);
        let (channels, padding) = ([g.in_channels, g.out_channels], [padding[1], padding[2]]);
        let out_size = [g.output[1], g.output[2]];
        let convolution = match transposed {
            false => Self { images: g.images, channels, size, out_size, padding, transposed },
            true => Self {
                images: g.images,
                channels: [channels[1], channels[0]],
                size: out_size,
                out_size: size,
                padding: padding.map(|padding| 2 - padding),
                transposed,
            },
        };
        let runtime = operand.runtime();
        let fits =
            |rows, cols| !parts::exceed_binding(runtime, &[PRODUCTS, rows, cols], DType::F32);
        let [c, o] = channels;
        let pays = policy::of(runtime).pays_for_winograd(
            channels,
            convolution.tiles(),
            g.images * convolution.out_size.iter().product::<usize>(),
        );
        (pays && fits(c, o) && fits(c.max(o), MIN_TILES)).then_some(convolution)
    }

    /// Returns the number of tiles along the sides of an image.
    fn tiles_of_image(&self) -> [usize; 2] {
        self.out_size.map(|size| size.div_ceil(4))
    }

    /// Returns the number of tiles.
    fn tiles(&self) -> usize {
        self.images * self.tiles_of_image().iter().product::<usize>()
    }

    /// Returns the largest number of tiles of a part.
    fn max_tiles(&self, runtime: &Runtime) -> usize {
        let [c, o] = self.channels;
        let of_both = PART_BYTES / (PRODUCTS * (c + o) * 4);
        let of_one = runtime.max_binding() as usize / (PRODUCTS * c.max(o) * 4);
        (of_both.min(of_one) / MIN_TILES * MIN_TILES).max(MIN_TILES)
    }

    /// As [`convolve_in_parts`](Self::convolve_in_parts), in parts of a size that is chosen here.
    pub(super) fn convolve(
        &self,
        x: Tensor,
        weight: Tensor,
        bias: Option<Tensor>,
    ) -> Result<Tensor> {
        let max_tiles = self.max_tiles(x.runtime());
        self.convolve_in_parts(x, weight, bias, max_tiles)
    }

    /// Convolves `x` `[n, c, ..]`, at most `max_tiles` tiles at a time. Returns `[n, o, h, w]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available.
    pub fn convolve_in_parts(
        &self,
        x: Tensor,
        weight: Tensor,
        bias: Option<Tensor>,
        max_tiles: usize,
    ) -> Result<Tensor> {
        let [in_channels, out_channels] = self.channels;
        let weight = self.transformed_weight(weight)?;
        let x = views::packed(cast::to_compute_type(x)?)?;
        let bias = bias.map(cast::to_compute_type).transpose()?.map(views::packed).transpose()?;
        let runtime = x.runtime().clone();
        let tiles = self.tiles();
        // Parts of about the same size. Products read and write vec4s.
        let cols = tiles.div_ceil(tiles.div_ceil(max_tiles).max(1)).next_multiple_of(4).max(4);
        let params = |first_tile: usize, channels: usize, [height, width]: [usize; 2]| {
            let [tile_rows, tile_cols] = self.tiles_of_image();
            TileParams {
                count: (channels * cols) as u32,
                cols: cols as u32,
                first_tile: first_tile as u32,
                tiles: tiles as u32,
                tile_rows: tile_rows as u32,
                tile_cols: tile_cols as u32,
                channels: channels as u32,
                height: height as u32,
                width: width as u32,
                padding_h: self.padding[0] as u32,
                padding_w: self.padding[1] as u32,
                has_bias: u32::from(bias.is_some()),
            }
        };
        let work = |channels: usize| (channels * cols * PRODUCTS) as u64 * 6;
        let sums_of = |first_tile: usize| {
            let windows = Tensor::empty(&runtime, &[PRODUCTS, in_channels, cols], DType::F32)?;
            Launch {
                kernel: &TileKernel::Input,
                inputs: &[&x],
                outputs: &[&windows],
                params: &params(first_tile, in_channels, self.size),
                workgroups: workgroups_for(in_channels * cols),
                work: work(in_channels),
                rounds: None,
            }
            .run()?;
            matmul::matmul(weight.clone(), windows)
        };
        let shape = [self.images, out_channels, self.out_size[0], self.out_size[1]];
        let output = |first_tile: usize, inputs: &[&Tensor], out: Option<&Tensor>| {
            let launch = Launch {
                kernel: &TileKernel::Output,
                inputs,
                outputs: out.as_slice(),
                params: &params(first_tile, out_channels, self.out_size),
                workgroups: workgroups_for(out_channels * cols),
                work: work(out_channels),
                rounds: None,
            };
            match out {
                Some(out) => launch.run().map(|()| out.clone()),
                None => launch.defer(&PendingResult::scalars(&runtime, &shape, DType::F32)),
            }
        };
        if tiles > 0 && tiles <= cols {
            let sums = sums_of(0)?;
            return output(0, &[&sums, bias.as_ref().unwrap_or(&sums)], None);
        }
        let out = Tensor::empty(&runtime, &shape, DType::F32)?;
        for first_tile in (0..tiles).step_by(cols) {
            let sums = sums_of(first_tile)?;
            output(first_tile, &[&sums, bias.as_ref().unwrap_or(&sums)], Some(&out))?;
        }
        Ok(out)
    }

    /// Transforms a weight to `[36, o, c]`.
    fn transformed_weight(&self, weight: Tensor) -> Result<Tensor> {
        let [cols, rows] = self.channels;
        let weight = views::packed(cast::to_compute_type(weight)?)?;
        let out = Tensor::empty(weight.runtime(), &[PRODUCTS, rows, cols], DType::F32)?;
        let [row_stride, col_stride] = if self.transposed { [9, 9 * rows] } else { [9 * cols, 9] };
        Launch {
            kernel: &WeightKernel { flipped: self.transposed },
            inputs: &[&weight],
            outputs: &[&out],
            params: &WeightParams {
                count: (rows * cols) as u32,
                cols: cols as u32,
                row_stride: row_stride as u32,
                col_stride: col_stride as u32,
            },
            workgroups: workgroups_for(rows * cols),
            work: out.len() as u64 * 4,
            rounds: None,
        }
        .run()?;
        Ok(out)
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let weights = variants_of([false, true].map(|flipped| WeightKernel { flipped }));
    let tiles = variants_of([TileKernel::Input, TileKernel::Output]);
    [weights, tiles, epilogue::samples([TileKernel::Output])].concat()
}

/// The cases that the family must pass. `tests/sweeps` has convolutions of other sizes, which would
/// not be computed here.
pub const CASES: &[Case] = {
    const MIXED: Arg = Arg::Conv(&[1, 1], &[2, 0], &[1, 1], 1);
    const T_MIXED: Arg = Arg::ConvTransposed(&[1, 1], &[2, 0], &[0, 0], &[1, 1], 1);
    const DILATED: Arg = Arg::Conv(&[1, 1], &[2, 2], &[2, 1], 1);
    const STRIDED: Arg = Arg::Conv(&[1, 2], &[1, 1], &[1, 1], 1);
    // Sums of over a thousand products. With mixed signs, rounding errors exceed the tolerance.
    cases! {
        conv_transpose2d_x_backward(positive(&[128, 132, 3, 3]), positive(&[8, 132, 11, 15]),
            T_MIXED);
        conv2d_x_backward(positive(&[8, 132, 11, 15]), positive(&[128, 132, 3, 3]),
            positive(&[8, 128, 13, 13]), MIXED);
        // The same channels, but not computed here.
        conv2d_x_backward(positive(&[4, 128, 11, 15]), positive(&[128, 128, 3, 3]),
            positive(&[4, 128, 11, 17]), DILATED);
        conv2d_x_backward(positive(&[8, 128, 12, 24]), positive(&[128, 128, 3, 3]),
            positive(&[8, 128, 12, 12]), STRIDED);
    }
};
