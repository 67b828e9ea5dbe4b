//! Images as textures.

use burn_tensor::Tensor as BurnTensor;

use super::InteropError;
use super::buffers::packed;
use crate::backend::{Wgsl, WgslTensor};
use crate::custom::{Kernel, Operand};
use crate::kernel_params;

kernel_params! {
    struct Image {
        height: u32,
        width: u32,
        channels: u32,
        stride: u32,
    }
}

/// Packs pixels into words, with padded rows.
static PIXELS: Kernel<Image> = Kernel::new(
    "pixels",
    "image: f32[height, width, channels] -> pixels: u32[height, stride]",
    include_str!("pixels.wgsl"),
);

/// The unit of the rows that are copied to a texture, in pixels of four bytes.
const ROW_UNIT: usize = wgpu::COPY_BYTES_PER_ROW_ALIGNMENT as usize / 4;

/// Copies an image `[height, width, channels]` of floats from 0 to 1 to a texture, and submits the copy. There are one
/// (grey), three, or four channels. Numbers are stored as they are: of a texture with an sRGB format, they are sRGB.
///
/// # Errors
///
/// Returns an error if the texture has another size or a format other than `Rgba8Unorm`, `Rgba8UnormSrgb`, `Bgra8Unorm`
/// and `Bgra8UnormSrgb`, lacks the usage `COPY_DST`, or is of another wgpu device.
pub fn copy_to_texture(
    image: &BurnTensor<Wgsl, 3>,
    texture: &wgpu::Texture,
) -> Result<(), InteropError> {
    let [height, width, channels] = image.dims();
    let mismatch = |message| Err(InteropError::Texture { message });
    let swaps = match texture.format() {
        wgpu::TextureFormat::Rgba8Unorm | wgpu::TextureFormat::Rgba8UnormSrgb => 0,
        wgpu::TextureFormat::Bgra8Unorm | wgpu::TextureFormat::Bgra8UnormSrgb => 1,
        format => {
            return mismatch(format!("has the format {format:?}; use Rgba8Unorm or Bgra8Unorm"));
        }
    };
    if !texture.usage().contains(wgpu::TextureUsages::COPY_DST) {
        return Err(InteropError::Usage { resource: "texture", missing: "COPY_DST".to_owned() });
    }
    let size = texture.size();
    if [size.height, size.width].map(|size| size as usize) != [height, width] {
        return mismatch(format!(
            "has {} x {} pixels, but the image {width} x {height}",
            size.width, size.height
        ));
    }
    if texture.sample_count() != 1 {
        return mismatch(format!("has {} samples per pixel", texture.sample_count()));
    }
    if ![1, 3, 4].contains(&channels) {
        return mismatch(format!("takes images of 1, 3 or 4 channels, not {channels}"));
    }
    // Kernels of the CPU have no textures.
    packed(image.to_primitive())?;
    let stride = width.next_multiple_of(ROW_UNIT);
    let params = Image {
        height: height as u32,
        width: width as u32,
        channels: channels as u32,
        stride: stride as u32,
    };
    let call = PIXELS.call(image, params).size("stride", stride).constant("SWAPS", swaps);
    let pixels: WgslTensor = call.run((height * stride).div_ceil(64))?;
    let pixels = packed(pixels)?;
    let runtime = pixels.runtime().clone();
    Ok(runtime.submit_with_foreign(pixels.buffer()?, false, |encoder, buffer, offset| {
        let layout = wgpu::TexelCopyBufferLayout {
            offset,
            bytes_per_row: Some(4 * stride as u32),
            rows_per_image: None,
        };
        encoder.copy_buffer_to_texture(
            wgpu::TexelCopyBufferInfo { buffer, layout },
            texture.as_image_copy(),
            wgpu::Extent3d { depth_or_array_layers: 1, ..size },
        );
    })?)
}
