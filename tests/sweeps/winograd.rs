//! Convolutions by Winograd's algorithm of images that are no multiple of a tile, in parts.

use burn_wgsl::kernels::winograd::Winograd;
use burn_wgsl::tensor::DType;

use super::{Number, numbers, read, runtimes, upload};

/// The sizes of an input.
const IMAGES: [[usize; 2]; 5] = [[4, 4], [1, 1], [5, 9], [12, 7], [3, 18]];

#[test]
fn winograd_matches_the_host_for_every_size_and_padding() {
    let (images, channels, filters) = (3, 8, 12);
    for runtime in runtimes() {
        for [height, width] in IMAGES {
            for padding in [[1, 1], [0, 2], [2, 0], [2, 2]] {
                let size = [height + 2 * padding[0], width + 2 * padding[1]];
                if size.iter().any(|size| *size < 3) {
                    continue;
                }
                let [out_height, out_width] = size.map(|size| size - 2);
                let shapes = [
                    [images, channels, height, width],
                    [filters, channels, 3, 3],
                    [images, filters, out_height, out_width],
                ];
                let [x, weight] =
                    [0, 1].map(|i| numbers(shapes[i].iter().product(), DType::F32, 5));
                let bias = numbers(filters, DType::F32, 6);
                for transposed in [false, true] {
                    let mut expected = vec![0.0f64; shapes[2].iter().product()];
                    for (at, sum) in expected.iter_mut().enumerate() {
                        let (col, row) = (at % out_width, at / out_width % out_height);
                        let plane = at / out_width / out_height;
                        let (filter, image) = (plane % filters, plane / filters);
                        *sum = f64::from(bias[filter].float());
                        for tap in 0..9 * channels {
                            let (channel, tap) = (tap / 9, tap % 9);
                            let (in_row, in_col) = (row + tap / 3, col + tap % 3);
                            let is_inside = (padding[0]..padding[0] + height).contains(&in_row)
                                && (padding[1]..padding[1] + width).contains(&in_col);
                            if is_inside {
                                let pixel = (in_row - padding[0]) * width + in_col - padding[1];
                                let pixel = (image * channels + channel) * height * width + pixel;
                                let tap = match transposed {
                                    false => (filter * channels + channel) * 9 + tap,
                                    true => (channel * filters + filter) * 9 + 8 - tap,
                                };
                                *sum += f64::from(x[pixel].float() * weight[tap].float());
                            }
                        }
                    }
                    let tensor = |values: &[Number], shape: &[usize]| {
                        upload(&runtime, shape, DType::F32, values)
                    };
                    let convolution = Winograd {
                        images,
                        channels: [channels, filters],
                        size: [height, width],
                        out_size: [out_height, out_width],
                        padding,
                        transposed,
                    };
                    // All tiles at once, and parts of which the last is smaller.
                    for max_tiles in [1000, 8] {
                        let result = convolution
                            .convolve_in_parts(
                                tensor(&x, &shapes[0]),
                                tensor(&weight, &shapes[1]),
                                Some(tensor(&bias, &[filters])),
                                max_tiles,
                            )
                            .expect("the kernels run");
                        let label = format!(
                            "{height} x {width}, padding {padding:?}, transposed: {transposed}, \
                             {max_tiles} tiles on {}",
                            runtime.name()
                        );
                        let result = read(result);
                        assert_eq!(result.len(), expected.len(), "{label}");
                        for (at, (found, expected)) in result.iter().zip(&expected).enumerate() {
                            let found = f64::from(found.float());
                            // Transforms lose some digits.
                            assert!(
                                (found - expected).abs() < 5e-5,
                                "{label}: element {at} is {found}, expected {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}
