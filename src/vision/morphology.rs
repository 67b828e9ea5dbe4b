//! Erosion and dilation with a kernel, for images on a GPU.

use burn_backend::{DType, TensorData, TensorMetadata};
use burn_tensor::{BasicOps, Bool, Float, Int, Tensor, TensorKind};
use burn_vision::{BorderType, MorphOptions};

use crate::backend::custom::is_on_cpu;
use crate::backend::{Wgsl, WgslTensor};
use crate::custom::Kernel;
use crate::kernel_params;

kernel_params! {
    pub(super) struct Window {
        count: u32,
        height: u32,
        width: u32,
        channels: u32,
        window: [u32; 2],
        anchor: [i32; 2],
    }
}

const TEXT: &str = include_str!("morphology.wgsl");

static FLOATS: Kernel<Window> = Kernel::new(
    "morphology",
    "image: f32[h, w, c], window: bool[kh, kw], border: f32[c] -> out: f32[h, w, c]",
    TEXT,
);
static INTEGERS: Kernel<Window> = Kernel::new(
    "morphology",
    "image: i32[h, w, c], window: bool[kh, kw], border: i32[c] -> out: i32[h, w, c]",
    TEXT,
);
static BOOLEANS: Kernel<Window> = Kernel::new(
    "morphology",
    "image: bool[h, w, c], window: bool[kh, kw], border: bool[c] -> out: bool[h, w, c]",
    TEXT,
);

/// What is computed under a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extremum {
    /// The least element: erosion.
    Least,
    /// The largest element: dilation.
    Largest,
}

/// A kind of elements.
pub(super) trait Kind: TensorKind<Wgsl> + BasicOps<Wgsl> {
    const KERNEL: &'static Kernel<Window>;
    /// The constant that selects the type in the text.
    const FLAG: Option<&'static str>;

    /// Returns whether the kernel takes elements of a type.
    fn is_supported(dtype: DType) -> bool;
    /// Returns the element of the border if the program gives none.
    fn border(extremum: Extremum) -> TensorData;
    /// Returns what the backend stores.
    fn to_primitive(tensor: Tensor<Wgsl, 1, Self>) -> WgslTensor;
}

impl Kind for Float {
    const KERNEL: &'static Kernel<Window> = &FLOATS;
    const FLAG: Option<&'static str> = None;

    fn is_supported(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::Flex32 | DType::F16 | DType::BF16)
    }

    fn border(extremum: Extremum) -> TensorData {
        TensorData::from(match extremum {
            Extremum::Least => [f32::MAX],
            Extremum::Largest => [f32::MIN],
        })
    }

    fn to_primitive(tensor: Tensor<Wgsl, 1>) -> WgslTensor {
        tensor.into_primitive().tensor()
    }
}

impl Kind for Int {
    const KERNEL: &'static Kernel<Window> = &INTEGERS;
    const FLAG: Option<&'static str> = Some("INTEGER");

    fn is_supported(dtype: DType) -> bool {
        dtype == DType::I32
    }

    fn border(extremum: Extremum) -> TensorData {
        TensorData::from(match extremum {
            Extremum::Least => [i32::MAX],
            Extremum::Largest => [i32::MIN],
        })
    }

    fn to_primitive(tensor: Tensor<Wgsl, 1, Int>) -> WgslTensor {
        tensor.into_primitive()
    }
}

impl Kind for Bool {
    const KERNEL: &'static Kernel<Window> = &BOOLEANS;
    const FLAG: Option<&'static str> = Some("BOOLEAN");

    fn is_supported(_dtype: DType) -> bool {
        true
    }

    fn border(extremum: Extremum) -> TensorData {
        TensorData::from([extremum == Extremum::Least])
    }

    fn to_primitive(tensor: Tensor<Wgsl, 1, Bool>) -> WgslTensor {
        tensor.into_primitive()
    }
}

/// The largest window of the kernel: some software adapters end the loops of an invocation after 65,535 rounds.
const MAX_WINDOW: usize = 60_000;

/// Erodes or dilates an image `[height, width, channels]` on a GPU. Returns `None` on the CPU, for elements without a
/// kernel, and for windows that are too large for a loop.
pub(super) fn on_gpu<K: Kind>(
    image: &WgslTensor,
    window: &WgslTensor,
    options: &MorphOptions<Wgsl, K>,
    extremum: Extremum,
) -> Option<WgslTensor> {
    let border = match options.border_type {
        BorderType::Constant => 0,
        BorderType::Replicate => 1,
        BorderType::Reflect => 2,
        BorderType::Reflect101 => 3,
        BorderType::Wrap => return None,
    };
    if is_on_cpu(image).ok()? || !K::is_supported(image.dtype()) {
        return None;
    }
    let [height, width, channels] = image.shape().dims();
    let [rows, cols] = window.shape().dims();
    if rows * (cols + 2) > MAX_WINDOW {
        return None;
    }
    let device = image.device();
    let constant = match &options.border_value {
        Some(value) => K::to_primitive(value.clone()),
        None => {
            let value = Tensor::<Wgsl, 1, K>::from_data(K::border(extremum), &device);
            K::to_primitive(value.expand([channels]))
        }
    };
    let anchor = options.anchor.map_or([cols / 2, rows / 2], |anchor| [anchor.x, anchor.y]);
    let mut image = image.clone();
    for _ in 0..options.iterations {
        let params = Window {
            count: (height * width * channels) as u32,
            height: height as u32,
            width: width as u32,
            channels: channels as u32,
            window: [cols as u32, rows as u32],
            anchor: anchor.map(|at| at as i32),
        };
        let flags = K::FLAG.into_iter().chain((extremum == Extremum::Largest).then_some("DILATE"));
        let call = K::KERNEL.call((&image, window, &constant), params).constant("BORDER", border);
        let call = flags.fold(call, |call, flag| call.constant(flag, 1));
        let count = height * width * channels;
        let result = call.work((count * rows * cols) as u64).run(count.div_ceil(64));
        image = result.unwrap_or_else(|error| panic!("morphology: {error}"));
    }
    Some(image)
}
