//! What Burn 0.23 has otherwise than other releases: names, and methods that the others do not have, or with other
//! arguments.

use burn_wgsl::WgslDevice;

use crate::device::PortDevice;
pub(crate) use crate::interpolation::check as check_interpolation;

/// A device of burn-wgsl. `FlexDevice` is also a value: the default, which is selected automatically, or by
/// `BURN_WGSL_DEVICE`.
///
/// | Burn | here |
/// |---|---|
/// | `Device::default()`, unless a CubeCL backend is enabled; `Device::flex()` | the default |
/// | `Device::new(burn_flex::PortDevice(WgslDevice::Gpu(n)))` | GPU number `n` of any vendor |
pub type FlexDevice = PortDevice;

/// The default device. Burn writes `FlexDevice` for it.
#[allow(non_upper_case_globals, reason = "it is a unit structure in Burn")]
pub const FlexDevice: PortDevice = PortDevice(WgslDevice::Auto);

/// Types of devices have the same numbers in both contracts.
pub(crate) const fn other_type(type_id: u16) -> u16 {
    type_id
}

/// Implements the traits of a backend that other releases do not have.
macro_rules! backend_of_release {
    () => {
        impl burn_backend::ops::CollectiveOps<Self> for Port {}
    };
}

macro_rules! float_methods_of_release {
    () => {
        fn float_fmod(lhs: F, rhs: F) -> F {
            crate::remainder::of_tensors(lhs.0, rhs.0).converted()
        }

        fn float_fmod_scalar(lhs: F, rhs: Scalar) -> F {
            crate::remainder::of_scalar(lhs.0, rhs).converted()
        }
    };
}

macro_rules! boolean_methods_of_release {
    () => {
        fn bool_scatter(
            dim: usize,
            tensor: B,
            indices: I,
            value: B,
            update: IndexingUpdateOp,
        ) -> B {
            crate::booleans::scatter(dim, tensor.0, indices.0, value.0, update).converted()
        }

        fn bool_scatter_nd(data: B, indices: I, values: B, reduction: IndexingUpdateOp) -> B {
            crate::booleans::scatter_nd(data.0, indices.0, values.0, reduction).converted()
        }

        fn bool_gather_nd(data: B, indices: I) -> B {
            crate::booleans::gather_nd(data.0, indices.0).converted()
        }

        fn bool_select_assign(
            tensor: B,
            dim: usize,
            indices: I,
            value: B,
            update: IndexingUpdateOp,
        ) -> B {
            crate::booleans::select_assign(tensor.0, dim, indices.0, value.0, update).converted()
        }
    };
}

macro_rules! quantized_methods_of_release {
    () => {
        fn q_from_data(data: TensorData, device: &Device) -> Q {
            Wgsl::q_from_data(crate::packed::unpacked(data).converted(), device.converted())
                .converted()
        }
    };
}

macro_rules! module_methods_of_release {
    () => {
        fn attention(
            query: F,
            key: F,
            value: F,
            mask: Option<B>,
            attn_bias: Option<F>,
            options: AttentionModuleOptions,
        ) -> F {
            let (mask, bias) = (mask.converted(), attn_bias.converted());
            crate::attention::attention([query.0, key.0, value.0], mask, bias, options).converted()
        }

        fn has_attention_backward() -> bool {
            true
        }

        fn attention_with_logsumexp(
            query: F,
            key: F,
            value: F,
            options: AttentionModuleOptions,
        ) -> (F, F) {
            let operands = [query.0, key.0, value.0];
            let [out, log_sums] = crate::attention::attention_with_log_sums(operands, options);
            (out.converted(), log_sums.converted())
        }

        fn attention_backward(
            query: F,
            key: F,
            value: F,
            out: F,
            logsumexp: F,
            out_grad: F,
            options: AttentionModuleOptions,
        ) -> burn_backend::ops::AttentionBackward<Self> {
            let (operands, results) = ([query.0, key.0, value.0], [out.0, logsumexp.0]);
            crate::attention::attention_backward(operands, results, out_grad.0, options)
        }

        fn avg_pool2d(
            x: F,
            kernel: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            dilation: [usize; 2],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            crate::average::average(x.0, pool, counts_padding).converted()
        }

        fn avg_pool2d_backward(
            x: F,
            grad: F,
            kernel: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            dilation: [usize; 2],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            crate::average::average_backward(x.0, grad.0, pool, counts_padding).converted()
        }

        fn avg_pool3d(
            x: F,
            kernel: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            crate::volumes::average(x.0, pool, counts_padding).converted()
        }

        fn avg_pool3d_backward(
            x: F,
            grad: F,
            kernel: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            crate::volumes::average_backward(x.0, grad.0, pool, counts_padding).converted()
        }

        fn max_pool3d(
            x: F,
            kernel: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            ceil_mode: bool,
        ) -> F {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            crate::volumes::max(x, pool)
        }

        fn max_pool3d_with_indices(
            x: F,
            kernel: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            ceil_mode: bool,
            indices_dtype: IntDType,
        ) -> burn_backend::ops::MaxPool3dWithIndices<Self> {
            let pool = crate::average::Pool { kernel, stride, padding, dilation, ceil_mode };
            let (output, indices) = crate::volumes::max_with_indices(x, pool, indices_dtype);
            burn_backend::ops::MaxPool3dWithIndices { output, indices }
        }

        fn max_pool3d_with_indices_backward(
            x: F,
            _kernel: [usize; 3],
            _stride: [usize; 3],
            _padding: [usize; 3],
            _dilation: [usize; 3],
            _ceil_mode: bool,
            output_grad: F,
            indices: I,
        ) -> burn_backend::ops::MaxPool3dBackward<Self> {
            let x_grad = crate::volumes::max_backward(x.0, output_grad.0, indices.0).converted();
            burn_backend::ops::MaxPool3dBackward { x_grad }
        }
    };
}
