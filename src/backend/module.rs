//! The neural network modules of Burn's contract. One-dimensional pooling is not listed: Burn
//! composes it from two-dimensional pooling.

use super::contract::prelude::*;

/// Modules.
macro_rules! module_contract {
    ($apply:ident) => {
        $apply! {
            embedding(weights: F, indices: Indices) -> F as Half =
                gather::embedding(weights, indices), else cpu;
            embedding_backward(weights: F, output_grad: F, indices: Indices) -> F =
                scatter::embedding_backward(weights, output_grad, indices), else cpu;
            linear(x: F, weight: Weight, bias: Bias) -> F as Half under Product =
                matmul::linear(x, weight, bias), else cpu;
            linear_x_backward(weight: Weight, output_grad: F) -> F as Half under Product =
                matmul::linear_x_backward(weight, output_grad);
            linear_weight_backward(x: F, output_grad: F) -> F as Half under Gradient =
                matmul::linear_weight_backward(x, output_grad);
            linear_bias_backward(output_grad: F) -> F under BiasGradient =
                matmul::linear_bias_backward(output_grad);
            conv1d(x: F, weight: Weight, bias: Bias, options: Conv1) -> F as Half under Product =
                conv::conv(x, weight, bias, options.into()), else cpu;
            conv1d_x_backward(x: F, weight: Weight, output_grad: F, options: Conv1) -> F as Half under Product =
                conv::x_backward(x.shape(), weight, output_grad, options.into()), else cpu;
            conv1d_weight_backward(x: F, weight: F, output_grad: F, options: Conv1) -> F as Half under Gradient =
                conv::weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv1d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            conv2d(x: F, weight: Weight, bias: Bias, options: Conv2) -> F as Half under Product =
                conv::conv(x, weight, bias, options.into()), else cpu;
            conv2d_x_backward(x: F, weight: Weight, output_grad: F, options: Conv2) -> F as Half under Product =
                conv::x_backward(x.shape(), weight, output_grad, options.into()), else cpu;
            conv2d_weight_backward(x: F, weight: F, output_grad: F, options: Conv2) -> F as Half under Gradient =
                conv::weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv2d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            conv3d(x: F, weight: Weight, bias: Bias, options: Conv3) -> F as Half under Product =
                conv::conv(x, weight, bias, options.into()), else cpu;
            conv3d_x_backward(x: F, weight: Weight, output_grad: F, options: Conv3) -> F as Half under Product =
                conv::x_backward(x.shape(), weight, output_grad, options.into()), else cpu;
            conv3d_weight_backward(x: F, weight: F, output_grad: F, options: Conv3) -> F as Half under Gradient =
                conv::weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv3d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            conv_transpose1d(x: F, weight: Weight, bias: Bias, options: ConvT1) -> F as Half under Product =
                conv::transposed(x, weight, bias, options.into()), else cpu;
            conv_transpose1d_x_backward(weight: Weight, output_grad: F, options: ConvT1) -> F as Half under Product =
                conv::transposed_x_backward(weight, output_grad, options.into()), else cpu;
            conv_transpose1d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvT1,
            ) -> F as Half under Gradient =
                conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv_transpose1d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            conv_transpose2d(x: F, weight: Weight, bias: Bias, options: ConvT2) -> F as Half under Product =
                conv::transposed(x, weight, bias, options.into()), else cpu;
            conv_transpose2d_x_backward(weight: Weight, output_grad: F, options: ConvT2) -> F as Half under Product =
                conv::transposed_x_backward(weight, output_grad, options.into()), else cpu;
            conv_transpose2d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvT2,
            ) -> F as Half under Gradient =
                conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv_transpose2d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            conv_transpose3d(x: F, weight: Weight, bias: Bias, options: ConvT3) -> F as Half under Product =
                conv::transposed(x, weight, bias, options.into()), else cpu;
            conv_transpose3d_x_backward(weight: Weight, output_grad: F, options: ConvT3) -> F as Half under Product =
                conv::transposed_x_backward(weight, output_grad, options.into()), else cpu;
            conv_transpose3d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvT3,
            ) -> F as Half under Gradient =
                conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into()), else cpu;
            conv_transpose3d_bias_backward(x: F, bias: F, output_grad: F) -> F under BiasGradient =
                conv::bias_backward(output_grad);
            unfold4d(x: F, kernel: Size2, options: Unfold) -> F gradient by_hand =
                conv::im2col(x, kernel, options.into()), else cpu;
            deform_conv2d(
                x: F, offset: F, weight: F, mask: OptF, bias: OptF, options: Deform,
            ) -> F =
                deform::deform_conv2d(x, offset, weight, mask, bias, options.into()), else cpu;
            deform_conv2d_backward(
                x: F, offset: F, weight: F, mask: OptF, bias: OptF, output_grad: F, options: Deform,
            ) -> DeformBackward gradient by_hand = {
                let options = options.into();
                deform::deform_conv2d_backward(
                    x, offset, weight, mask, bias.is_some(), output_grad, options,
                )
            }, else cpu;
            avg_pool2d(
                x: F, kernel: Size2, stride: Size2, padding: Size2, count_include_pad: Flag,
                ceil_mode: Flag,
            ) -> F = {
                let window = average_window(kernel, stride, padding, count_include_pad, ceil_mode);
                pool::avg_pool2d(x, window)
            }, else cpu;
            avg_pool2d_backward(
                x: F, grad: F, kernel: Size2, stride: Size2, padding: Size2,
                count_include_pad: Flag, ceil_mode: Flag,
            ) -> F = {
                let window = average_window(kernel, stride, padding, count_include_pad, ceil_mode);
                pool::avg_pool2d_backward(x.shape(), grad, window)
            }, else cpu;
            adaptive_avg_pool2d(x: F, output_size: Size2) -> F =
                pool::adaptive_avg_pool2d(x, output_size), else cpu;
            adaptive_avg_pool2d_backward(x: F, grad: F) -> F =
                pool::adaptive_avg_pool2d_backward(x.shape(), grad);
            max_pool2d(
                x: F, kernel: Size2, stride: Size2, padding: Size2, dilation: Size2,
                ceil_mode: Flag,
            ) -> F = pool::max_pool2d(x, max_window(kernel, stride, padding, dilation, ceil_mode)),
                else cpu;
            max_pool2d_with_indices(
                x: F, kernel: Size2, stride: Size2, padding: Size2, dilation: Size2,
                ceil_mode: Flag,
            ) -> Pooled gradient by_hand = {
                let window = max_window(kernel, stride, padding, dilation, ceil_mode);
                pool::max_pool2d_with_indices(x, window)
            }, else cpu;
            max_pool2d_with_indices_backward(
                x: F, kernel: Size2, stride: Size2, padding: Size2, dilation: Size2,
                ceil_mode: Flag, output_grad: F, indices: Indices,
            ) -> PooledBackward gradient by_hand = {
                let window = max_window(kernel, stride, padding, dilation, ceil_mode);
                pool::max_pool2d_backward(x.shape(), output_grad, indices, window)
            }, else cpu;
            interpolate(x: F, output_size: Size2, options: Interpolate) -> F =
                interpolate::interpolate(
                    x, output_size, options.mode.into(), options.align_corners,
                ), else cpu;
            interpolate_backward(x: F, grad: F, output_size: Size2, options: Interpolate) -> F =
                interpolate::interpolate_backward(
                    x.shape(), grad, output_size, options.mode.into(), options.align_corners,
                ), else cpu;
            layer_norm(tensor: F, gamma: F, beta: OptF, epsilon: Real) -> F under Full gradient norm =
                norm::layer_norm(tensor, gamma, beta, epsilon as f32), else cpu;
            attention(
                query: F, key: F, value: F, mask: OptB, attn_bias: OptF, options: Attention,
            ) -> F as Half under Lower gradient attention = {
                let options = attention_options(&options);
                attention::attention(query, key, value, mask, attn_bias, options)
            };
            ctc_loss(
                log_probs: F, targets: Indices, input_lengths: Indices, target_lengths: Indices,
                blank: Size,
            ) -> F under Full = {
                let sequences = ctc::Sequences { targets, input_lengths, target_lengths, blank };
                ctc::ctc_loss(log_probs, sequences)
            }, else cpu;
            ctc_loss_backward(
                log_probs: F, targets: Indices, input_lengths: Indices, target_lengths: Indices,
                grad_loss: F, blank: Size,
            ) -> F under Full = {
                let sequences = ctc::Sequences { targets, input_lengths, target_lengths, blank };
                ctc::ctc_loss_backward(log_probs, sequences, grad_loss)
            }, else cpu;
            rfft(signal: F, dim: Axis, n: OptSize) -> FF gradient fft =
                fft::rfft(signal, dim, n), else cpu;
            irfft(spectrum_re: F, spectrum_im: F, dim: Axis, n: OptSize) -> F gradient fft =
                fft::irfft(spectrum_re, spectrum_im, dim, n), else cpu;
        }
    };
}

/// Methods without a row: written out, or left to Burn.
#[cfg(feature = "internals")]
macro_rules! module_written {
    ($apply:ident) => {
        $apply! {
            composed avg_pool1d;
            composed avg_pool1d_backward;
            composed adaptive_avg_pool1d;
            composed adaptive_avg_pool1d_backward;
            composed max_pool1d;
            composed max_pool1d_with_indices;
            composed max_pool1d_with_indices_backward;
            host has_ctc_loss_backward;
        }
    };
}

pub(crate) use module_contract;
#[cfg(feature = "internals")]
pub(crate) use module_written;

impl ModuleOps<Wgsl> for Wgsl {
    module_contract!(methods);

    fn has_ctc_loss_backward() -> bool {
        true
    }
}
