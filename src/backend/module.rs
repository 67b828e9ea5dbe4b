//! The contract's neural network modules.
//!
//! Not listed here, and so Burn's own compositions of the ops that are: one-dimensional convolution and
//! pooling (through two dimensions), gradients of convolutions in three dimensions, `unfold4d`.

use super::contract::prelude::*;
use crate::kernels::conv::ConvOptions;
use crate::kernels::pool::Window;
use crate::kernels::{attention, ctc, fft};

/// Modules.
macro_rules! module_contract {
    ($apply:ident) => {
        $apply! {
            embedding(weights: F, indices: I) -> F = index::embedding(weights, indices);
            embedding_backward(weights: F, output_grad: F, indices: I) -> F = index::embedding_backward(weights, output_grad, indices);
            linear(x: F, weight: F, bias: OptF) -> F = matmul::linear(x, weight, bias);
            linear_x_backward(weight: F, output_grad: F) -> F = matmul::linear_x_backward(weight, output_grad);
            linear_weight_backward(x: F, output_grad: F) -> F = matmul::linear_weight_backward(x, output_grad);
            linear_bias_backward(output_grad: F) -> F = matmul::linear_bias_backward(output_grad);
            conv2d(x: F, weight: F, bias: OptF, options: Conv2) -> F = conv::conv2d(x, weight, bias, conv_options(&options));
            conv2d_x_backward(x: F, weight: F, output_grad: F, options: Conv2) -> F = conv::conv2d_x_backward(x.shape(), weight, output_grad, conv_options(&options));
            conv2d_weight_backward(x: F, weight: F, output_grad: F, options: Conv2) -> F = conv::conv2d_weight_backward(x, weight.shape(), output_grad, conv_options(&options));
            conv2d_bias_backward(x: F, bias: F, output_grad: F) -> F = { let _ = (x, bias); conv::conv2d_bias_backward(output_grad) };
            conv_transpose2d(x: F, weight: F, bias: OptF, options: ConvT2) -> F = conv_transpose2d(x, weight, bias, options);
            conv3d(x: F, weight: F, bias: OptF, options: Conv3) -> F;
            conv_transpose3d(x: F, weight: F, bias: OptF, options: ConvT3) -> F;
            deform_conv2d(x: F, offset: F, weight: F, mask: OptF, bias: OptF, options: Deform) -> F;
            deform_conv2d_backward(x: F, offset: F, weight: F, mask: OptF, bias: OptF, output_grad: F, options: Deform) -> DeformBackward;
            avg_pool2d(x: F, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: Switch, ceil_mode: Switch) -> F =
                pool::avg_pool2d(x, Window { kernel, stride, padding, dilation: [1, 1], ceil: ceil_mode, count_padding: count_include_pad });
            avg_pool2d_backward(x: F, grad: F, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: Switch, ceil_mode: Switch) -> F =
                pool::avg_pool2d_backward(x.shape(), grad, Window { kernel, stride, padding, dilation: [1, 1], ceil: ceil_mode, count_padding: count_include_pad });
            adaptive_avg_pool2d(x: F, output_size: Pair) -> F = pool::adaptive_avg_pool2d(x, output_size);
            adaptive_avg_pool2d_backward(x: F, grad: F) -> F = pool::adaptive_avg_pool2d_backward(x.shape(), grad);
            max_pool2d(x: F, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: Switch) -> F =
                pool::max_pool2d(x, Window { kernel, stride, padding, dilation, ceil: ceil_mode, count_padding: false });
            max_pool2d_with_indices(x: F, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: Switch) -> Pooled =
                pool::max_pool2d_with_indices(x, Window { kernel, stride, padding, dilation, ceil: ceil_mode, count_padding: false });
            interpolate(x: F, output_size: Pair, options: Interpolate) -> F;
            interpolate_backward(x: F, grad: F, output_size: Pair, options: Interpolate) -> F;
            attention(query: F, key: F, value: F, mask: OptB, attn_bias: OptF, options: Attention) -> F =
                attention::attention(query, key, value, mask, attn_bias, attention_options(&options));
            ctc_loss(log_probs: F, targets: I, input_lengths: I, target_lengths: I, blank: Size) -> F =
                ctc::ctc_loss(log_probs, ctc::Sequences { targets, input_lengths, target_lengths, blank });
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

    // Not a row: burn-flex has no such method.
    fn ctc_loss_backward(
        log_probs: F,
        targets: I,
        input_lengths: I,
        target_lengths: I,
        grad_loss: F,
        blank: usize,
    ) -> F {
        let mut site = Site::new("ctc_loss_backward");
        [
            &log_probs,
            &targets,
            &input_lengths,
            &target_lengths,
            &grad_loss,
        ]
        .into_iter()
        .for_each(|tensor| tensor.show(&mut site));
        if site.takes_kernel() {
            let [targets, input_lengths, target_lengths] =
                [targets, input_lengths, target_lengths].map(|tensor| tensor.into_gpu(&site));
            let sequences = ctc::Sequences {
                targets,
                input_lengths,
                target_lengths,
                blank,
            };
            let (log_probs, grad) = (log_probs.into_gpu(&site), grad_loss.into_gpu(&site));
            site.computed(ctc::ctc_loss_backward(log_probs, sequences, grad))
        } else {
            site.falls_back();
            let integers =
                [targets, input_lengths, target_lengths].map(|tensor| tensor.into_twin(&site));
            let (log_probs, grad) = (log_probs.into_twin(&site), grad_loss.into_twin(&site));
            let out = crate::cpu::ctc_loss_backward(log_probs, integers, grad, blank);
            Outcome::from_twin(out, &site)
        }
    }

    // Not a row: the twin insists on indices of 64 bits, which nobody else has.
    fn max_pool2d_with_indices_backward(
        x: F,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        ceil: bool,
        output_grad: F,
        indices: I,
    ) -> PooledBackward {
        let mut site = Site::new("max_pool2d_with_indices_backward");
        [&x, &output_grad, &indices]
            .into_iter()
            .for_each(|tensor| tensor.show(&mut site));
        if site.takes_kernel() {
            let window = Window {
                kernel,
                stride,
                padding,
                dilation,
                ceil,
                count_padding: false,
            };
            let (x, grad) = (x.into_gpu(&site), output_grad.into_gpu(&site));
            site.computed(pool::max_pool2d_backward(
                x.shape(),
                grad,
                indices.into_gpu(&site),
                window,
            ))
        } else {
            site.falls_back();
            let (x, grad) = (x.into_twin(&site), output_grad.into_twin(&site));
            let indices = Flex::int_cast(indices.into_twin(&site), IntType::I64);
            let back = Flex::max_pool2d_with_indices_backward(
                x, kernel, stride, padding, dilation, ceil, grad, indices,
            );
            Outcome::from_twin(back, &site)
        }
    }
}

fn attention_options(options: &Attention) -> attention::Options {
    if let Some(softcap) = options.softcap {
        assert!(
            softcap > 0.0,
            "attention: the softcap must be positive, not {softcap}"
        );
    }
    attention::Options {
        scale: options.scale.map(|scale| scale as f32),
        softcap: options.softcap.map(|softcap| softcap as f32),
        causal: options.is_causal,
    }
}

fn conv_options(options: &Conv2) -> ConvOptions {
    let Conv2 {
        stride,
        padding,
        dilation,
        groups,
    } = options.clone();
    ConvOptions {
        stride,
        padding,
        dilation,
        groups,
    }
}

fn conv_transpose2d(
    x: crate::tensor::Tensor,
    weight: crate::tensor::Tensor,
    bias: Option<crate::tensor::Tensor>,
    options: ConvT2,
) -> crate::tensor::Result<crate::tensor::Tensor> {
    let ConvT2 {
        stride,
        padding,
        padding_out,
        dilation,
        groups,
    } = options;
    conv::conv_transpose2d(
        x,
        weight,
        bias,
        ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        },
        padding_out,
    )
}
