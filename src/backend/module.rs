//! The contract's neural network modules.
//!
//! Not listed here, and so Burn's own compositions of the ops that are: one-dimensional pooling (through two
//! dimensions).

use burn_backend::ops::{ConvTransposeOptions, DeformConvOptions};

use super::contract::prelude::*;
use crate::kernels::conv::{ConvOptions, TransposedOptions};
use crate::kernels::deform::DeformOptions;
use crate::kernels::geometry::axes;
use crate::kernels::pool::Window;
use crate::kernels::{attention, ctc, fft};

/// Modules.
macro_rules! module_contract {
    ($apply:ident) => {
        $apply! {
            embedding(weights: F, indices: Index) -> F = index::embedding(weights, indices), else cpu::read(|_, weights, indices| Flex::embedding(weights, indices), 0, weights, indices);
            embedding_backward(weights: F, output_grad: F, indices: Index) -> F = index::embedding_backward(weights, output_grad, indices), else cpu::embedding_backward(weights, output_grad, indices);
            linear(x: F, weight: F, bias: OptF) -> F as halves = matmul::linear(x, weight, bias);
            linear_x_backward(weight: F, output_grad: F) -> F as halves = matmul::linear_x_backward(weight, output_grad);
            linear_weight_backward(x: F, output_grad: F) -> F as halves = matmul::linear_weight_backward(x, output_grad);
            linear_bias_backward(output_grad: F) -> F = matmul::linear_bias_backward(output_grad);
            conv1d(x: F, weight: F, bias: OptF, options: Conv1) -> F = conv::conv(x, weight, bias, options.into()), else { cpu::insist("conv1d", conv::check(&x.shape(), &weight.shape(), options.clone().into())); Flex::conv1d(x, weight, bias, options) };
            conv1d_x_backward(x: F, weight: F, output_grad: F, options: Conv1) -> F = conv::x_backward(x.shape(), weight, output_grad, options.into());
            conv1d_weight_backward(x: F, weight: F, output_grad: F, options: Conv1) -> F = conv::weight_backward(x, weight.shape(), output_grad, options.into()),
                else cpu::conv1d_weight_backward(x, weight, output_grad, options);
            conv1d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            conv2d(x: F, weight: F, bias: OptF, options: Conv2) -> F = conv::conv(x, weight, bias, options.into()), else { cpu::insist("conv2d", conv::check(&x.shape(), &weight.shape(), options.clone().into())); Flex::conv2d(x, weight, bias, options) };
            conv2d_x_backward(x: F, weight: F, output_grad: F, options: Conv2) -> F = conv::x_backward(x.shape(), weight, output_grad, options.into());
            conv2d_weight_backward(x: F, weight: F, output_grad: F, options: Conv2) -> F = conv::weight_backward(x, weight.shape(), output_grad, options.into());
            conv2d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            conv3d(x: F, weight: F, bias: OptF, options: Conv3) -> F = conv::conv(x, weight, bias, options.into()), else { cpu::insist("conv3d", conv::check(&x.shape(), &weight.shape(), options.clone().into())); Flex::conv3d(x, weight, bias, options) };
            conv3d_x_backward(x: F, weight: F, output_grad: F, options: Conv3) -> F = conv::x_backward(x.shape(), weight, output_grad, options.into());
            conv3d_weight_backward(x: F, weight: F, output_grad: F, options: Conv3) -> F = conv::weight_backward(x, weight.shape(), output_grad, options.into());
            conv3d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            conv_transpose1d(x: F, weight: F, bias: OptF, options: ConvT1) -> F = conv::transposed(x, weight, bias, options.into());
            conv_transpose1d_x_backward(weight: F, output_grad: F, options: ConvT1) -> F = conv::transposed_x_backward(weight, output_grad, options.into());
            conv_transpose1d_weight_backward(x: F, weight: F, output_grad: F, options: ConvT1) -> F = conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into());
            conv_transpose1d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            conv_transpose2d(x: F, weight: F, bias: OptF, options: ConvT2) -> F = conv::transposed(x, weight, bias, options.into());
            conv_transpose2d_x_backward(weight: F, output_grad: F, options: ConvT2) -> F = conv::transposed_x_backward(weight, output_grad, options.into());
            conv_transpose2d_weight_backward(x: F, weight: F, output_grad: F, options: ConvT2) -> F = conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into());
            conv_transpose2d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            conv_transpose3d(x: F, weight: F, bias: OptF, options: ConvT3) -> F = conv::transposed(x, weight, bias, options.into());
            conv_transpose3d_x_backward(weight: F, output_grad: F, options: ConvT3) -> F = conv::transposed_x_backward(weight, output_grad, options.into());
            conv_transpose3d_weight_backward(x: F, weight: F, output_grad: F, options: ConvT3) -> F = conv::transposed_weight_backward(x, weight.shape(), output_grad, options.into());
            conv_transpose3d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::bias_backward(output_grad) };
            unfold4d(x: F, kernel: Pair, options: Unfold) -> F = conv::windows(x, kernel, windows(&options));
            deform_conv2d(x: F, offset: F, weight: F, mask: OptF, bias: OptF, options: Deform) -> F = deform::deform_conv2d(x, offset, weight, mask, bias, options.into());
            deform_conv2d_backward(x: F, offset: F, weight: F, mask: OptF, bias: OptF, output_grad: F, options: Deform) -> DeformBackward =
                deform::deform_conv2d_backward(x, offset, weight, mask, bias.is_some(), output_grad, options.into());
            avg_pool2d(x: F, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: Switch, ceil_mode: Switch) -> F =
                pool::avg_pool2d(x, Window { kernel, stride, padding, dilation: [1, 1], ceil: ceil_mode, count_padding: count_include_pad });
            avg_pool2d_backward(x: F, grad: F, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: Switch, ceil_mode: Switch) -> F =
                pool::avg_pool2d_backward(x.shape(), grad, Window { kernel, stride, padding, dilation: [1, 1], ceil: ceil_mode, count_padding: count_include_pad }),
                else {
                    let grad = if ceil_mode && count_include_pad { cpu::undivided(grad, &x.shape(), kernel, stride, padding) } else { grad };
                    Flex::avg_pool2d_backward(x, grad, kernel, stride, padding, count_include_pad, ceil_mode)
                };
            adaptive_avg_pool2d(x: F, output_size: Pair) -> F = pool::adaptive_avg_pool2d(x, output_size);
            adaptive_avg_pool2d_backward(x: F, grad: F) -> F = pool::adaptive_avg_pool2d_backward(x.shape(), grad);
            max_pool2d(x: F, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: Switch) -> F =
                pool::max_pool2d(x, Window { kernel, stride, padding, dilation, ceil: ceil_mode, count_padding: false });
            max_pool2d_with_indices(x: F, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: Switch) -> Pooled =
                pool::max_pool2d_with_indices(x, Window { kernel, stride, padding, dilation, ceil: ceil_mode, count_padding: false });
            // The twin insists on indices of 64 bits, which nobody else has.
            max_pool2d_with_indices_backward(x: F, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: Switch, output_grad: F, indices: Index) -> PooledBackward =
                pool::max_pool2d_backward(x.shape(), output_grad, indices, Window { kernel, stride, padding, dilation, ceil: ceil_mode, count_padding: false }),
                else Flex::max_pool2d_with_indices_backward(x, kernel, stride, padding, dilation, ceil_mode, output_grad, Flex::int_cast(indices, IntType::I64));
            interpolate(x: F, output_size: Pair, options: Interpolate) -> F = interpolate::interpolate(x, output_size, options.mode.into(), options.align_corners);
            interpolate_backward(x: F, grad: F, output_size: Pair, options: Interpolate) -> F =
                interpolate::interpolate_backward(x.shape(), grad, output_size, options.mode.into(), options.align_corners),
                else cpu::interpolate_backward(x, grad, output_size, options);
            layer_norm(tensor: F, gamma: F, beta: OptF, epsilon: Real) -> F = norm::layer_norm(tensor, gamma, beta, epsilon as f32), else cpu::layer_norm(tensor, gamma, beta, epsilon);
            attention(query: F, key: F, value: F, mask: OptB, attn_bias: OptF, options: Attention) -> F =
                attention::attention(query, key, value, mask, attn_bias, attention_options(&options));
            ctc_loss(log_probs: F, targets: Index, input_lengths: Index, target_lengths: Index, blank: Size) -> F =
                ctc::ctc_loss(log_probs, ctc::Sequences { targets, input_lengths, target_lengths, blank });
            // burn-flex has no such method.
            ctc_loss_backward(log_probs: F, targets: Index, input_lengths: Index, target_lengths: Index, grad_loss: F, blank: Size) -> F =
                ctc::ctc_loss_backward(log_probs, ctc::Sequences { targets, input_lengths, target_lengths, blank }, grad_loss),
                else cpu::ctc_loss_backward(log_probs, [targets, input_lengths, target_lengths], grad_loss, blank);
            rfft(signal: F, dim: Size, n: OptSize) -> FF = fft::rfft(signal, dim, n);
            irfft(spectrum_re: F, spectrum_im: F, dim: Size, n: OptSize) -> F = fft::irfft(spectrum_re, spectrum_im, dim, n);
        }
    };
}

pub(crate) use module_contract;

impl ModuleOps<Wgsl> for Wgsl {
    module_contract!(methods);

    fn has_ctc_loss_backward() -> bool {
        true
    }
}

impl<const N: usize> From<burn_backend::ops::ConvOptions<N>> for ConvOptions {
    fn from(options: burn_backend::ops::ConvOptions<N>) -> Self {
        Self {
            stride: axes(options.stride, 1),
            padding: axes(options.padding, 0),
            dilation: axes(options.dilation, 1),
            groups: options.groups,
        }
    }
}

impl<const N: usize> From<ConvTransposeOptions<N>> for TransposedOptions {
    fn from(options: ConvTransposeOptions<N>) -> Self {
        Self {
            conv: ConvOptions {
                stride: axes(options.stride, 1),
                padding: axes(options.padding, 0),
                dilation: axes(options.dilation, 1),
                groups: options.groups,
            },
            extra: axes(options.padding_out, 0),
        }
    }
}

impl From<DeformConvOptions<2>> for DeformOptions {
    fn from(options: DeformConvOptions<2>) -> Self {
        Self {
            conv: ConvOptions {
                stride: axes(options.stride, 1),
                padding: axes(options.padding, 0),
                dilation: axes(options.dilation, 1),
                groups: options.weight_groups,
            },
            offset_groups: options.offset_groups,
        }
    }
}

/// Unfolding moves over an image as a convolution does.
fn windows(options: &Unfold) -> ConvOptions {
    use burn_backend::ops::ConvOptions as Options;
    Options::new(options.stride, options.padding, options.dilation, 1).into()
}

fn attention_options(options: &Attention) -> attention::Options {
    if let Some(softcap) = options.softcap {
        assert!(softcap > 0.0, "attention: the softcap must be positive, not {softcap}");
    }
    attention::Options {
        scale: options.scale.map(|scale| scale as f32),
        softcap: options.softcap.map(|softcap| softcap as f32),
        causal: options.is_causal,
    }
}
