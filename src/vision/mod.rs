//! The ops of burn-vision. Erosion and dilation have kernels. burn-vision computes the others on the CPU, from the
//! data of the tensors: connected components and non-maximum suppression go from element to element.

mod morphology;

use burn_flex::{Flex, FlexDevice};
use burn_tensor::{BasicOps, Bool, Float, Int, Tensor, TensorPrimitive};
use burn_vision::{
    BoolVisionOps, FloatVisionOps, IntVisionOps, MorphOptions, Morphology, MorphologyKind,
    QVisionOps, VisionBackend,
};

use crate::backend::{Wgsl, WgslTensor};
use morphology::{Extremum, Kind, on_gpu};

type Options<K> = MorphOptions<Wgsl, K>;

/// Erodes or dilates an image with the kernel, or with burn-flex if there is none.
fn morph<K: Kind + MorphologyKind<Flex> + BasicOps<Flex>>(
    image: Tensor<Wgsl, 3, K>,
    stored: &WgslTensor,
    window: WgslTensor,
    options: Options<K>,
    extremum: Extremum,
) -> Result<WgslTensor, Tensor<Wgsl, 3, K>> {
    if let Some(result) = on_gpu(stored, &window, &options, extremum) {
        return Ok(result);
    }
    let device = image.device();
    let window = Tensor::<Wgsl, 2, Bool>::from_primitive(window);
    let window = Tensor::<Flex, 2, Bool>::from_data(window.into_data(), &FlexDevice);
    let image = Tensor::<Flex, 3, K>::from_data(image.into_data(), &FlexDevice);
    let border_value =
        options.border_value.map(|value| Tensor::from_data(value.into_data(), &FlexDevice));
    let options = MorphOptions {
        anchor: options.anchor,
        iterations: options.iterations,
        border_type: options.border_type,
        border_value,
    };
    let result = match extremum {
        Extremum::Least => image.erode(window, options),
        Extremum::Largest => image.dilate(window, options),
    };
    Err(Tensor::from_data(result.into_data(), &device))
}

fn floats(
    image: WgslTensor,
    window: WgslTensor,
    options: Options<Float>,
    extremum: Extremum,
) -> WgslTensor {
    let tensor = Tensor::from_primitive(TensorPrimitive::Float(image.clone()));
    morph(tensor, &image, window, options, extremum)
        .unwrap_or_else(|tensor| tensor.into_primitive().tensor())
}

fn integers(
    image: WgslTensor,
    window: WgslTensor,
    options: Options<Int>,
    extremum: Extremum,
) -> WgslTensor {
    let tensor = Tensor::<Wgsl, 3, Int>::from_primitive(image.clone());
    morph(tensor, &image, window, options, extremum)
        .unwrap_or_else(|tensor| tensor.into_primitive())
}

fn booleans(
    image: WgslTensor,
    window: WgslTensor,
    options: Options<Bool>,
    extremum: Extremum,
) -> WgslTensor {
    let tensor = Tensor::<Wgsl, 3, Bool>::from_primitive(image.clone());
    morph(tensor, &image, window, options, extremum)
        .unwrap_or_else(|tensor| tensor.into_primitive())
}

impl BoolVisionOps for Wgsl {
    fn bool_erode(image: WgslTensor, window: WgslTensor, options: Options<Bool>) -> WgslTensor {
        booleans(image, window, options, Extremum::Least)
    }

    fn bool_dilate(image: WgslTensor, window: WgslTensor, options: Options<Bool>) -> WgslTensor {
        booleans(image, window, options, Extremum::Largest)
    }
}

impl IntVisionOps for Wgsl {
    fn int_erode(image: WgslTensor, window: WgslTensor, options: Options<Int>) -> WgslTensor {
        integers(image, window, options, Extremum::Least)
    }

    fn int_dilate(image: WgslTensor, window: WgslTensor, options: Options<Int>) -> WgslTensor {
        integers(image, window, options, Extremum::Largest)
    }
}

impl FloatVisionOps for Wgsl {
    fn float_erode(image: WgslTensor, window: WgslTensor, options: Options<Float>) -> WgslTensor {
        floats(image, window, options, Extremum::Least)
    }

    fn float_dilate(image: WgslTensor, window: WgslTensor, options: Options<Float>) -> WgslTensor {
        floats(image, window, options, Extremum::Largest)
    }
}

impl QVisionOps for Wgsl {}
impl VisionBackend for Wgsl {}
