//! The methods of Burn's contract: those that `super` replaces, and all others, generated from the
//! tables of the contract.
//!
//! Burn's autodiff computes the methods with float results. The others have no gradient: the
//! backend computes them.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::{
    ActivationOps, BoolTensorOps, DeformConv2dBackward, FloatTensorOps, IntTensorOps,
    MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps,
    QTensorOps,
};
use burn_backend::quantization::QuantizationParametersPrimitive;
use burn_backend::{Distribution, ExecutionError, TensorData};

use super::cast::{cast, copy_ahead, narrowed};
use super::kinds::*;
use super::{
    Autodiff, attention, batch_norm, fft, graph, grid_sample, norm, product, slice, softmax, topk,
};
use crate::autocast::off;
use crate::autocast::rules::{Role, Rule};
use crate::backend::Wgsl;
use crate::backend::activation::activation_contract;
use crate::backend::boolean::bool_contract;
use crate::backend::float::float_contract;
use crate::backend::int::int_contract;
use crate::backend::module::module_contract;
use crate::backend::quantized::quantized_contract;
use crate::device::WgslDevice;
use crate::kernels::ops::table::{activation_rows, bool_rows, float_rows, int_rows};

/// Turns rows of the contract into methods.
macro_rules! delegated {
    ($(
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(under $rule:ident)? $(gradient $gradient:ident)?
            $(= $launch:expr $(, else $cpu:ident)?)?;
    )*) => {
        $(delegated!(@method $name [$($arg: $kind),*] $ret [$($rule)?] [$($gradient)?]);)*
    };
    // Its types name the backend, or autocast must not round in it: written below.
    (@method $name:ident [$($args:tt)*] $ret:ident [$($rule:ident)?] [by_hand]) => {};
    (
        @method $name:ident [$($arg:ident: $kind:ident),*] $ret:ident [$($rule:ident)?]
            [$gradient:ident]
    ) => {
        fn $name($($arg: $kind),*) -> $ret {
            delegated!(@cast _narrow [$($arg: $kind),*] [$($rule)?]);
            $(delegated!(@local $arg $kind);)*
            $gradient::$name::<C>($($arg),*)
        }
    };
    (@method $name:ident [$($arg:ident: $kind:ident),*] I [$($rule:ident)?] []) => {
        delegated!(@untracked $name [$($arg: $kind),*] I);
    };
    (@method $name:ident [$($arg:ident: $kind:ident),*] II [$($rule:ident)?] []) => {
        delegated!(@untracked $name [$($arg: $kind),*] II);
    };
    (@method $name:ident [$($arg:ident: $kind:ident),*] B [$($rule:ident)?] []) => {
        delegated!(@untracked $name [$($arg: $kind),*] B);
    };
    (@method $name:ident [$($arg:ident: $kind:ident),*] Q [$($rule:ident)?] []) => {
        delegated!(@untracked $name [$($arg: $kind),*] Q);
    };
    // Parts of a batch normalisation.
    (@method float_swap_dims $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_swap_dims $args $rule); };
    (@method float_reshape $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_reshape $args $rule); };
    (@method float_mean_dim $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_mean_dim $args $rule); };
    (@method float_sub $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_sub $args $rule); };
    (@method float_mul $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_mul $args $rule); };
    (@method float_add_scalar $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_add_scalar $args $rule); };
    (@method float_sqrt $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_sqrt $args $rule); };
    (@method float_div $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_div $args $rule); };
    (@method float_add $args:tt F $rule:tt []) => { delegated!(@part batch_norm float_add $args $rule); };
    // Parts of attention.
    (@method float_matmul $args:tt F $rule:tt []) => { delegated!(@part attention float_matmul $args $rule); };
    (@method float_mul_scalar $args:tt F $rule:tt []) => {
        delegated!(@part attention float_mul_scalar $args $rule);
    };
    (@method float_div_scalar $args:tt F $rule:tt []) => {
        delegated!(@part attention float_div_scalar $args $rule);
    };
    (@method float_mask_fill $args:tt F $rule:tt []) => {
        delegated!(@part attention float_mask_fill $args $rule);
    };
    (@part $module:ident $name:ident [$($arg:ident: $kind:ident),*] [$($rule:ident)?]) => {
        fn $name($($arg: $kind),*) -> F {
            $module::$name::<C>($($arg,)* |$($arg),*| {
                delegated!(@cast _narrow [$($arg: $kind),*] [$($rule)?]);
                $(delegated!(@local $arg $kind);)*
                delegated!(@registered F [$($rule)?] _narrow BurnAutodiff::<Wgsl, C>::$name($($arg),*))
            })
        }
    };
    (@method $name:ident [$($arg:ident: $kind:ident),*] $ret:ident [$($rule:ident)?] []) => {
        fn $name($($arg: $kind),*) -> $ret {
            delegated!(@cast _narrow [$($arg: $kind),*] [$($rule)?]);
            $(delegated!(@local $arg $kind);)*
            delegated!(@registered $ret [$($rule)?] _narrow BurnAutodiff::<Wgsl, C>::$name($($arg),*))
        }
    };
    (@local $arg:ident F) => {
        let $arg = graph::local($arg);
        let _kept = graph::kept(&$arg);
    };
    (@local $arg:ident Weight) => { delegated!(@local $arg F); };
    (@local $arg:ident Uncast) => { delegated!(@local $arg F); };
    (@local $arg:ident Bias) => { delegated!(@local $arg OptF); };
    (@local $arg:ident OptF) => {
        let $arg = $arg.map(graph::local);
        let _kept = $arg.as_ref().map(graph::kept);
    };
    (@local $arg:ident VecF) => {
        let $arg: VecF = $arg.into_iter().map(graph::local).collect();
        let _kept: Vec<_> = $arg.iter().map(graph::kept).collect();
    };
    (@local $arg:ident $kind:ident) => {};
    (@registered F [Product] $narrow:ident $result:expr) => {
        narrowed::<C>($narrow, || graph::registered($result))
    };
    (@registered F $rule:tt $narrow:ident $result:expr) => { graph::registered($result) };
    (@registered FI $rule:tt $narrow:ident $result:expr) => {{
        let (result, indices) = $result;
        (graph::registered(result), indices)
    }};
    (@registered FF $rule:tt $narrow:ident $result:expr) => {{
        let (first, second) = $result;
        (graph::registered(first), graph::registered(second))
    }};
    (@registered $ret:ident $rule:tt $narrow:ident $result:expr) => { $result };
    // Converts the float operands: autocast. Without a rule, one operand is left as it is.
    (@cast $narrow:ident [$($arg:ident: $kind:ident),*] []) => {
        $(delegated!(@mutable $arg $kind);)*
        if const { 0 $(+ delegated!(@count $kind))* > 1 } {
            cast::<C>(Rule::Promote, &mut |_f| {
                $(delegated!(@floats $arg $kind _f);)*
            });
        }
    };
    (@cast $narrow:ident [$($arg:ident: $kind:ident),*] [$rule:ident]) => {
        $(delegated!(@mutable $arg $kind);)*
        let $narrow = cast::<C>(Rule::$rule, &mut |_f| {
            $(delegated!(@floats $arg $kind _f);)*
        });
    };
    (@count F) => { 1 };
    (@count Weight) => { 1 };
    (@count Bias) => { 1 };
    (@count OptF) => { 1 };
    (@count VecF) => { 2 };
    (@count $kind:ident) => { 0 };
    (@mutable $arg:ident F) => { let mut $arg = $arg; };
    (@mutable $arg:ident Weight) => { let mut $arg = $arg; };
    (@mutable $arg:ident Bias) => { let mut $arg = $arg; };
    (@mutable $arg:ident OptF) => { let mut $arg = $arg; };
    (@mutable $arg:ident VecF) => { let mut $arg = $arg; };
    (@mutable $arg:ident $kind:ident) => {};
    (@floats $arg:ident F $f:ident) => { $f(&mut $arg, Role::Operand); };
    (@floats $arg:ident Weight $f:ident) => { $f(&mut $arg, Role::Weight); };
    (@floats $arg:ident Bias $f:ident) => {
        $arg.iter_mut().for_each(|tensor| $f(tensor, Role::Bias));
    };
    (@floats $arg:ident OptF $f:ident) => {
        $arg.iter_mut().for_each(|tensor| $f(tensor, Role::Operand));
    };
    (@floats $arg:ident VecF $f:ident) => {
        $arg.iter_mut().for_each(|tensor| $f(tensor, Role::Operand));
    };
    (@floats $arg:ident $kind:ident $f:ident) => {};
    (@untracked $name:ident [$($arg:ident: $kind:ident),*] $ret:ident) => {
        fn $name($($arg: $kind),*) -> $ret {
            Wgsl::$name($(delegated!(@inner $arg $kind)),*)
        }
    };
    (@inner $arg:ident F) => { $arg.primitive };
    (@inner $arg:ident $kind:ident) => { $arg };
}

/// Turns rows of the elementwise table into methods.
macro_rules! delegated_elementwise {
    ($kind:ident: $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*) => {
        $(delegated_elementwise!(@$form $kind $name [$($rule)?]);)*
    };
    (@unary $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [tensor: $kind] $kind [$($rule)?] []);
    };
    (@predicate $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [tensor: $kind, out_dtype: BoolType] B [$($rule)?] []);
    };
    (@binary $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [lhs: $kind, rhs: $kind] $kind [$($rule)?] []);
    };
    (@scalar $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [lhs: $kind, rhs: Scalar] $kind [$($rule)?] []);
    };
    (@limit $kind:ident $name:ident [$($rule:ident)?]) => { delegated_elementwise!(@scalar $kind $name [$($rule)?]); };
    (@two_scalars $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [tensor: $kind, first: Scalar, second: Scalar] $kind [$($rule)?] []);
    };
    (@limits $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated_elementwise!(@two_scalars $kind $name [$($rule)?]);
    };
    (@compare $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [lhs: $kind, rhs: $kind, out_dtype: BoolType] B [$($rule)?] []);
    };
    (@compare_scalar $kind:ident $name:ident [$($rule:ident)?]) => {
        delegated!(@method $name [lhs: $kind, rhs: Scalar, out_dtype: BoolType] B [$($rule)?] []);
    };
}

impl<C: CheckpointStrategy> ActivationOps<Self> for Autodiff<Wgsl, C> {
    activation_rows!(delegated_elementwise);
    activation_contract!(delegated);
}

impl<C: CheckpointStrategy> FloatTensorOps<Self> for Autodiff<Wgsl, C> {
    float_rows!(delegated_elementwise);
    float_contract!(delegated);

    fn float_powi_scalar(lhs: F, rhs: Scalar) -> F {
        if rhs.elem::<f64>() == 2.0 && batch_norm::is_centred(&lhs) {
            return Self::float_mul(lhs.clone(), lhs);
        }
        // The tensor itself, not its node in this thread's graph.
        if rhs.elem::<f64>() == 1.0 {
            return lhs;
        }
        let mut lhs = lhs;
        cast::<C>(Rule::Full, &mut |f| f(&mut lhs, Role::Operand));
        let lhs = graph::local(lhs);
        let _kept = graph::kept(&lhs);
        graph::registered(BurnAutodiff::<Wgsl, C>::float_powi_scalar(lhs, rhs))
    }

    fn float_from_data(data: TensorData, device: &WgslDevice) -> F {
        BurnAutodiff::<Wgsl, C>::float_from_data(data, device)
    }

    fn float_random(
        shape: Shape,
        distribution: Distribution,
        device: &WgslDevice,
        dtype: FloatType,
    ) -> F {
        BurnAutodiff::<Wgsl, C>::float_random(shape, distribution, device, dtype)
    }

    async fn float_into_data(tensor: F) -> Result<TensorData, ExecutionError> {
        Wgsl::float_into_data(tensor.primitive).await
    }

    fn float_device(tensor: &F) -> WgslDevice {
        tensor.primitive.device()
    }

    fn float_to_device(tensor: F, device: &WgslDevice) -> F {
        let tensor = graph::local(tensor);
        let _kept = graph::kept(&tensor);
        graph::registered(BurnAutodiff::<Wgsl, C>::float_to_device(tensor, device))
    }

    fn float_detach(tensor: F) -> F {
        BurnAutodiff::<Wgsl, C>::float_detach(tensor)
    }

    fn float_set_require_grad(tensor: F, require_grad: bool) -> F {
        let tensor = BurnAutodiff::<Wgsl, C>::float_set_require_grad(tensor, require_grad);
        if require_grad {
            copy_ahead(&tensor);
        }
        tensor
    }

    fn float_is_require_grad(tensor: &F) -> bool {
        BurnAutodiff::<Wgsl, C>::float_is_require_grad(tensor)
    }
}

impl<C: CheckpointStrategy> IntTensorOps<Self> for Autodiff<Wgsl, C> {
    int_rows!(delegated_elementwise);
    int_contract!(delegated);

    fn int_into_float(tensor: I, dtype: FloatType) -> F {
        Self::from_inner(Wgsl::int_into_float(tensor, dtype))
    }

    fn int_from_data(data: TensorData, device: &WgslDevice) -> I {
        Wgsl::int_from_data(data, device)
    }

    fn int_random(
        shape: Shape,
        distribution: Distribution,
        device: &WgslDevice,
        dtype: IntType,
    ) -> I {
        Wgsl::int_random(shape, distribution, device, dtype)
    }

    async fn int_into_data(tensor: I) -> Result<TensorData, ExecutionError> {
        Wgsl::int_into_data(tensor).await
    }

    fn int_device(tensor: &I) -> WgslDevice {
        tensor.device()
    }

    fn int_to_device(tensor: I, device: &WgslDevice) -> I {
        Wgsl::int_to_device(tensor, device)
    }
}

impl<C: CheckpointStrategy> BoolTensorOps<Self> for Autodiff<Wgsl, C> {
    bool_rows!(delegated_elementwise);
    bool_contract!(delegated);

    fn bool_into_float(tensor: B, dtype: FloatType) -> F {
        Self::from_inner(Wgsl::bool_into_float(tensor, dtype))
    }

    fn bool_from_data(data: TensorData, device: &WgslDevice) -> B {
        Wgsl::bool_from_data(data, device)
    }

    async fn bool_into_data(tensor: B) -> Result<TensorData, ExecutionError> {
        Wgsl::bool_into_data(tensor).await
    }

    fn bool_device(tensor: &B) -> WgslDevice {
        tensor.device()
    }

    fn bool_to_device(tensor: B, device: &WgslDevice) -> B {
        Wgsl::bool_to_device(tensor, device)
    }

    async fn bool_argwhere(tensor: B, dtype: IntType) -> I {
        Wgsl::bool_argwhere(tensor, dtype).await
    }
}

impl<C: CheckpointStrategy> QTensorOps<Self> for Autodiff<Wgsl, C> {
    quantized_contract!(delegated);

    fn quantize(
        tensor: F,
        scheme: Scheme<'_>,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> Q {
        let qparams = QuantizationParametersPrimitive { scales: qparams.scales.primitive };
        Wgsl::quantize(tensor.primitive, scheme, qparams)
    }

    fn dequantize(tensor: Q, dtype: FloatType) -> F {
        Self::from_inner(Wgsl::dequantize(tensor, dtype))
    }

    fn q_from_data(data: TensorData, device: &WgslDevice) -> Q {
        Wgsl::q_from_data(data, device)
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        Wgsl::q_into_data(tensor).await
    }

    fn q_device(tensor: &Q) -> WgslDevice {
        tensor.device()
    }

    fn q_to_device(tensor: Q, device: &WgslDevice) -> Q {
        Wgsl::q_to_device(tensor, device)
    }
}

impl<C: CheckpointStrategy> ModuleOps<Self> for Autodiff<Wgsl, C> {
    module_contract!(delegated);
    // Burn composes these for other backends.
    delegated! {
        avg_pool1d(
            x: F, kernel: Size, stride: Size, padding: Size, count_include_pad: Flag,
            ceil_mode: Flag,
        ) -> F;
        adaptive_avg_pool1d(x: F, output_size: Size) -> F;
        max_pool1d(
            x: F, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: Flag,
        ) -> F;
    }

    fn unfold4d(x: F, kernel: Size2, options: Unfold) -> F {
        let x = graph::local(x);
        let _kept = graph::kept(&x);
        let _off = off();
        graph::registered(BurnAutodiff::<Wgsl, C>::unfold4d(x, kernel, options))
    }

    fn max_pool1d_with_indices(
        x: F,
        kernel: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> MaxPool1dWithIndices<Self> {
        let x = graph::local(x);
        let _kept = graph::kept(&x);
        let pooled = BurnAutodiff::<Wgsl, C>::max_pool1d_with_indices(
            x, kernel, stride, padding, dilation, ceil_mode,
        );
        MaxPool1dWithIndices::new(graph::registered(pooled.output), pooled.indices)
    }

    fn max_pool2d_with_indices(
        x: F,
        kernel: Size2,
        stride: Size2,
        padding: Size2,
        dilation: Size2,
        ceil_mode: bool,
    ) -> MaxPool2dWithIndices<Self> {
        let x = graph::local(x);
        let _kept = graph::kept(&x);
        let pooled = BurnAutodiff::<Wgsl, C>::max_pool2d_with_indices(
            x, kernel, stride, padding, dilation, ceil_mode,
        );
        MaxPool2dWithIndices::new(graph::registered(pooled.output), pooled.indices)
    }

    fn max_pool2d_with_indices_backward(
        _x: F,
        _kernel: Size2,
        _stride: Size2,
        _padding: Size2,
        _dilation: Size2,
        _ceil_mode: bool,
        _output_grad: F,
        _indices: I,
    ) -> MaxPool2dBackward<Self> {
        panic!("max_pool2d_with_indices_backward: a gradient has no gradient")
    }

    fn deform_conv2d_backward(
        _x: F,
        _offset: F,
        _weight: F,
        _mask: OptF,
        _bias: OptF,
        _output_grad: F,
        _options: Deform,
    ) -> DeformConv2dBackward<Self> {
        panic!("deform_conv2d_backward: a gradient has no gradient")
    }

    fn max_pool1d_with_indices_backward(
        x: F,
        kernel: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: F,
        indices: I,
    ) -> MaxPool1dBackward<Self> {
        let grad = Wgsl::max_pool1d_with_indices_backward(
            x.primitive,
            kernel,
            stride,
            padding,
            dilation,
            ceil_mode,
            output_grad.primitive,
            indices,
        );
        MaxPool1dBackward::new(Self::from_inner(grad.x_grad))
    }
}
