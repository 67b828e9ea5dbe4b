//! A backend of Burn 0.21 whose ops go through this crate: each converts its arguments, calls the
//! method of the release, which converts them back for burn-wgsl, and converts the result.
//! burn-wgsl's case list runs on it.

use burn_backend_021 as old;
use burn_backend_021::backend::BackendTypes;
use burn_wgsl::{Wgsl, WgslDevice, WgslQuantizedTensor, WgslTensor};
use old::ops::{
    ActivationOps, BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps, QTensorOps,
    TransactionOps,
};

use crate::port::{
    Convert, Port, boolean_methods, float_methods, int_methods, module_methods, quantized_methods,
};

#[derive(Debug, Clone, Copy, Default)]
pub struct Through;

impl BackendTypes for Through {
    type Device = WgslDevice;
    type FloatTensorPrimitive = WgslTensor;
    type FloatElem = f32;
    type IntTensorPrimitive = WgslTensor;
    type IntElem = i32;
    type BoolTensorPrimitive = WgslTensor;
    type BoolElem = bool;
    type QuantizedTensorPrimitive = WgslQuantizedTensor;
}

impl old::Backend for Through {
    fn name(device: &WgslDevice) -> String {
        <Port as burn_backend::Backend>::name(device.converted())
    }

    fn seed(device: &WgslDevice, seed: u64) {
        <Port as burn_backend::Backend>::seed(device.converted(), seed);
    }

    fn dtype_usage(device: &WgslDevice, dtype: old::DType) -> old::DTypeUsageSet {
        Wgsl::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        <Port as burn_backend::Backend>::device_count(type_id)
    }
}

impl TransactionOps<Self> for Through {}

/// As `forward`, the other way.
macro_rules! back {
    ($($name:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        $(fn $name($($arg: $kind),*) -> $result {
            Port::$name($($arg.converted()),*).converted()
        })*
    };
}

/// The names in the rows, in Burn 0.21.
mod names {
    pub use std::ops::Range;

    pub use burn_backend::ops::{
        ActivationOps as _, BoolTensorOps as _, FloatTensorOps as _, IntTensorOps as _,
        ModuleOps as _, QTensorOps as _,
    };
    pub use burn_backend::tensor::IndexingUpdateOp as Update;
    pub use burn_backend_021::ops::{
        AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions,
        GridSampleOptions, InterpolateOptions, UnfoldOptions,
    };
    pub use burn_backend_021::tensor::IndexingUpdateOp;
    pub use burn_backend_021::{
        BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice,
        TensorData,
    };
    pub use burn_wgsl::{
        WgslDevice as Device, WgslQuantizedTensor as Q, WgslTensor as B, WgslTensor as F,
        WgslTensor as I,
    };
}

use names::*;

macro_rules! slices {
    ($slice:ident, $slice_assign:ident) => {
        fn $slice(tensor: F, slices: &[Slice]) -> F {
            Port::$slice(tensor.converted(), &slices.converted()).converted()
        }

        fn $slice_assign(tensor: F, slices: &[Slice], value: F) -> F {
            Port::$slice_assign(tensor.converted(), &slices.converted(), value.converted())
                .converted()
        }
    };
}

impl FloatTensorOps<Self> for Through {
    float_methods!(back);
    slices!(float_slice, float_slice_assign);

    fn float_sign(tensor: F) -> F {
        Wgsl::float_sign(tensor)
    }

    async fn float_into_data(tensor: F) -> Result<TensorData, ExecutionError> {
        Port::float_into_data(tensor.converted()).await.converted()
    }

    fn float_device(tensor: &F) -> Device {
        Wgsl::float_device(tensor)
    }

    fn float_scatter_add(dim: usize, tensor: F, indices: I, value: F) -> F {
        let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
        Port::float_scatter(dim, tensor, indices, value, Update::Add).converted()
    }

    fn float_select_add(tensor: F, dim: usize, indices: I, value: F) -> F {
        let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
        Port::float_select_assign(tensor, dim, indices, value, Update::Add).converted()
    }
}

impl IntTensorOps<Self> for Through {
    int_methods!(back);
    slices!(int_slice, int_slice_assign);

    async fn int_into_data(tensor: I) -> Result<TensorData, ExecutionError> {
        Port::int_into_data(tensor.converted()).await.converted()
    }

    fn int_device(tensor: &I) -> Device {
        Wgsl::int_device(tensor)
    }

    fn int_scatter_add(dim: usize, tensor: I, indices: I, value: I) -> I {
        let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
        Port::int_scatter(dim, tensor, indices, value, Update::Add).converted()
    }

    fn int_select_add(tensor: I, dim: usize, indices: I, value: I) -> I {
        let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
        Port::int_select_assign(tensor, dim, indices, value, Update::Add).converted()
    }
}

impl BoolTensorOps<Self> for Through {
    boolean_methods!(back);
    boolean_methods_of_release!();
    slices!(bool_slice, bool_slice_assign);

    async fn bool_into_data(tensor: B) -> Result<TensorData, ExecutionError> {
        Port::bool_into_data(tensor.converted()).await.converted()
    }

    fn bool_device(tensor: &B) -> Device {
        Wgsl::bool_device(tensor)
    }

    fn bool_argwhere(tensor: B, out_dtype: IntDType) -> impl Future<Output = I> + 'static + Send {
        let found = Port::bool_argwhere(tensor.converted(), out_dtype.converted());
        async move { found.await.converted() }
    }
}

impl QTensorOps<Self> for Through {
    quantized_methods!(back);
    back! {
        q_from_data(data: TensorData, device: &Device) -> Q;
    }

    fn q_slice(tensor: Q, slices: &[Slice]) -> Q {
        Port::q_slice(tensor.converted(), &slices.converted()).converted()
    }

    fn quantize(
        tensor: F,
        scheme: &old::quantization::QuantScheme,
        qparams: old::quantization::QuantizationParametersPrimitive<Self>,
    ) -> Q {
        let scales = qparams.scales.converted();
        let parameters =
            burn_backend::quantization::QuantizationParametersPrimitive { scales, global: None };
        Port::quantize(tensor.converted(), &scheme.converted(), parameters).converted()
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        Port::q_into_data(tensor.converted()).await.converted()
    }

    fn q_device(tensor: &Q) -> Device {
        Wgsl::q_device(tensor)
    }
}

impl ActivationOps<Self> for Through {
    crate::port::activation_methods!(back);
}

macro_rules! convolutions {
    ($($conv:ident, $x_backward:ident, $weight_backward:ident: $axes:literal;)*) => {
        back! {
            $($conv(x: F, weight: F, bias: Option<F>, options: ConvOptions<$axes>) -> F;
            $x_backward(x: F, weight: F, output_grad: F, options: ConvOptions<$axes>) -> F;
            $weight_backward(x: F, weight: F, output_grad: F, options: ConvOptions<$axes>) -> F;)*
        }
    };
}

impl ModuleOps<Self> for Through {
    module_methods!(back);
    crate::port::convolution_methods!(convolutions);
    module_methods_of_release!();
    back! {
        max_pool1d(
            x: F, kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool
        ) -> F;
        max_pool2d(
            x: F, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2],
            ceil_mode: bool
        ) -> F;
    }

    fn deform_conv2d_backward(
        x: F,
        offset: F,
        weight: F,
        mask: Option<F>,
        bias: Option<F>,
        output_grad: F,
        options: DeformConvOptions<2>,
    ) -> old::ops::DeformConv2dBackward<Self> {
        let gradients = Port::deform_conv2d_backward(
            x.converted(),
            offset.converted(),
            weight.converted(),
            mask.converted(),
            bias.converted(),
            output_grad.converted(),
            options.converted(),
        );
        old::ops::DeformConv2dBackward {
            x_grad: gradients.x_grad.converted(),
            offset_grad: gradients.offset_grad.converted(),
            weight_grad: gradients.weight_grad.converted(),
            mask_grad: gradients.mask_grad.converted(),
            bias_grad: gradients.bias_grad.converted(),
        }
    }

    fn max_pool1d_with_indices(
        x: F,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> old::ops::MaxPool1dWithIndices<Self> {
        let dtype = burn_backend::IntDType::I32;
        let pooled = Port::max_pool1d_with_indices(
            x.converted(),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            dtype,
        );
        old::ops::MaxPool1dWithIndices {
            output: pooled.output.converted(),
            indices: pooled.indices.converted(),
        }
    }

    fn max_pool1d_with_indices_backward(
        x: F,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: F,
        indices: I,
    ) -> old::ops::MaxPool1dBackward<Self> {
        let [x, output_grad, indices] = [x, output_grad, indices].map(Convert::converted);
        let gradient = Port::max_pool1d_with_indices_backward(
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            output_grad,
            indices,
        );
        old::ops::MaxPool1dBackward { x_grad: gradient.x_grad.converted() }
    }

    fn max_pool2d_with_indices(
        x: F,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> old::ops::MaxPool2dWithIndices<Self> {
        let dtype = burn_backend::IntDType::I32;
        let pooled = Port::max_pool2d_with_indices(
            x.converted(),
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            dtype,
        );
        old::ops::MaxPool2dWithIndices {
            output: pooled.output.converted(),
            indices: pooled.indices.converted(),
        }
    }

    fn max_pool2d_with_indices_backward(
        x: F,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: F,
        indices: I,
    ) -> old::ops::MaxPool2dBackward<Self> {
        let [x, output_grad, indices] = [x, output_grad, indices].map(Convert::converted);
        let gradient = Port::max_pool2d_with_indices_backward(
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            output_grad,
            indices,
        );
        old::ops::MaxPool2dBackward { x_grad: gradient.x_grad.converted() }
    }

    fn interpolate(x: F, output_size: [usize; 2], options: InterpolateOptions) -> F {
        Port::interpolate(x.converted(), output_size, options.converted()).converted()
    }

    fn interpolate_backward(
        x: F,
        grad: F,
        output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> F {
        let [x, grad] = [x, grad].map(Convert::converted);
        Port::interpolate_backward(x, grad, output_size, options.converted()).converted()
    }

    // No later release has them.
    fn rfft(signal: F, dim: usize, n: Option<usize>) -> (F, F) {
        Wgsl::rfft(signal, dim, n)
    }

    fn irfft(spectrum_re: F, spectrum_im: F, dim: usize, n: Option<usize>) -> F {
        Wgsl::irfft(spectrum_re, spectrum_im, dim, n)
    }
}
