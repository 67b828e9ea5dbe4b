//! Conversions between the types of the two contracts, both ways.

use std::ops::Range;

use burn_backend as new;
use burn_backend_021 as old;
use burn_wgsl::{WgslDevice, WgslQuantizedTensor, WgslTensor};
use bytemuck::TransparentWrapper;

use crate::contract::Convert;
use crate::device::PortDevice;
use crate::tensor::{QuantizedTensor, Tensor};

/// Types that are the same in both.
macro_rules! same {
    ($($type:ty),* $(,)?) => {
        $(impl Convert for $type {
            type Other = Self;

            fn converted(self) -> Self {
                self
            }
        })*
    };
}

same!((), bool, usize, isize, f64, i64, u64, &[usize], Range<i64>, String);

impl<const N: usize> Convert for [usize; N] {
    type Other = Self;

    fn converted(self) -> Self {
        self
    }
}

/// Wrappers of burn-wgsl's types.
macro_rules! wrapped {
    ($($outer:ident($inner:ident)),* $(,)?) => {
        $(impl Convert for $outer {
            type Other = $inner;

            fn converted(self) -> $inner {
                self.0
            }
        }

        impl Convert for $inner {
            type Other = $outer;

            fn converted(self) -> $outer {
                $outer(self)
            }
        })*
    };
}

wrapped!(Tensor(WgslTensor), QuantizedTensor(WgslQuantizedTensor));

impl<'a> Convert for &'a PortDevice {
    type Other = &'a WgslDevice;

    fn converted(self) -> &'a WgslDevice {
        &self.0
    }
}

impl<'a> Convert for &'a WgslDevice {
    type Other = &'a PortDevice;

    fn converted(self) -> &'a PortDevice {
        PortDevice::wrap_ref(self)
    }
}

impl<T: Convert> Convert for Option<T> {
    type Other = Option<T::Other>;

    fn converted(self) -> Self::Other {
        self.map(T::converted)
    }
}

impl<T: Convert> Convert for Vec<T> {
    type Other = Vec<T::Other>;

    fn converted(self) -> Self::Other {
        self.into_iter().map(T::converted).collect()
    }
}

impl<T: Convert, E: Convert> Convert for Result<T, E> {
    type Other = Result<T::Other, E::Other>;

    fn converted(self) -> Self::Other {
        self.map(T::converted).map_err(E::converted)
    }
}

impl<A: Convert, B: Convert> Convert for (A, B) {
    type Other = (A::Other, B::Other);

    fn converted(self) -> Self::Other {
        (self.0.converted(), self.1.converted())
    }
}

/// Enumerations with the same variants.
macro_rules! variants {
    ($($($name:ident)::+ { $($variants:tt)* })*) => {
        $(variants!(@one_way new::$($name)::+ => old::$($name)::+, { $($variants)* });
        variants!(@one_way old::$($name)::+ => new::$($name)::+, { $($variants)* });)*
    };
    (@one_way $from:ty => $to:ty, { $($variant:ident $(($($field:ident),*))?),* $(,)? }) => {
        impl Convert for $from {
            type Other = $to;

            fn converted(self) -> $to {
                type Other = $to;
                match self {
                    $(Self::$variant $(($($field),*))? => Other::$variant $(($($field.converted()),*))?,)*
                }
            }
        }
    };
}

variants! {
    BoolStore { Native, U8, U32 }
    Distribution { Default, Bernoulli(p), Uniform(low, high), Normal(mean, deviation) }
    DType { F64, F32, Flex32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool(store), QFloat(scheme) }
    FloatDType { F64, F32, Flex32, F16, BF16 }
    IntDType { I64, I32, I16, I8, U64, U32, U16, U8 }
    Scalar { Float(value), Int(value), UInt(value), Bool(value) }
    ops::GridSamplePaddingMode { Zeros, Border, Reflection }
    tensor::IndexingUpdateOp { Assign, Add, Mul, Min, Max }
    quantization::QuantStore { Native, PackedNative(axis), PackedU32(axis) }
    quantization::QuantValue { Q8F, E5M2, E4M3, Q4F, E2M1, Q2F, Q8S, Q4S, Q2S }
}

/// Structures with the same fields, which can have the number of axes as a parameter.
macro_rules! fields {
    ($(ops::$name:ident $(<$axes:ident>)? { $($field:ident),* $(,)? })*) => {
        $(fields!(@one_way new, old, $name $($axes)? { $($field),* });
        fields!(@one_way old, new, $name $($axes)? { $($field),* });)*
    };
    (@one_way $from:ident, $to:ident, $name:ident $($axes:ident)? { $($field:ident),* }) => {
        impl$(<const $axes: usize>)? Convert for $from::ops::$name$(<$axes>)? {
            type Other = $to::ops::$name$(<$axes>)?;

            fn converted(self) -> Self::Other {
                $to::ops::$name { $($field: self.$field.converted()),* }
            }
        }
    };
}

fields! {
    ops::ConvTransposeOptions<N> { stride, padding, padding_out, dilation, groups }
    ops::DeformConvOptions<N> { stride, padding, dilation, weight_groups, offset_groups }
    ops::GridSampleOptions { mode, padding_mode, align_corners }
    ops::UnfoldOptions { stride, padding, dilation }
}

impl Convert for new::Shape {
    type Other = old::Shape;

    fn converted(self) -> old::Shape {
        old::Shape::from(self.to_vec())
    }
}

impl Convert for old::Shape {
    type Other = new::Shape;

    fn converted(self) -> new::Shape {
        new::Shape::from(self.to_vec())
    }
}

impl Convert for &[new::Slice] {
    type Other = Vec<old::Slice>;

    fn converted(self) -> Vec<old::Slice> {
        self.iter().map(|slice| old::Slice::new(slice.start, slice.end, slice.step)).collect()
    }
}

impl Convert for &[old::Slice] {
    type Other = Vec<new::Slice>;

    fn converted(self) -> Vec<new::Slice> {
        self.iter().map(|slice| new::Slice::new(slice.start, slice.end, slice.step)).collect()
    }
}

impl<const N: usize> Convert for old::ops::ConvOptions<N> {
    type Other = new::ops::ConvOptions<N>;

    fn converted(self) -> Self::Other {
        new::ops::ConvOptions::new(self.stride, self.padding, self.dilation, self.groups)
    }
}

/// # Panics
///
/// Panics for nearest-exact, which `interpolate` computes otherwise.
impl Convert for new::ops::InterpolateMode {
    type Other = old::ops::InterpolateMode;

    fn converted(self) -> Self::Other {
        use old::ops::InterpolateMode as Other;
        match self {
            Self::Nearest => Other::Nearest,
            Self::NearestExact => panic!("sampling a grid has no nearest-exact mode; use nearest"),
            Self::Bilinear => Other::Bilinear,
            Self::Bicubic => Other::Bicubic,
            Self::Lanczos3 => Other::Lanczos3,
        }
    }
}

impl Convert for old::ops::InterpolateMode {
    type Other = new::ops::InterpolateMode;

    fn converted(self) -> Self::Other {
        use new::ops::InterpolateMode as Other;
        match self {
            Self::Nearest => Other::Nearest,
            Self::Bilinear => Other::Bilinear,
            Self::Bicubic => Other::Bicubic,
            Self::Lanczos3 => Other::Lanczos3,
        }
    }
}

/// # Panics
///
/// Panics for a table of values.
impl Convert for new::quantization::QuantMode {
    type Other = old::quantization::QuantMode;

    fn converted(self) -> Self::Other {
        match self {
            Self::Symmetric => old::quantization::QuantMode::Symmetric,
            Self::Lookup => {
                panic!("quantisation by a table of values is not supported; use symmetric")
            }
        }
    }
}

impl Convert for old::quantization::QuantMode {
    type Other = new::quantization::QuantMode;

    fn converted(self) -> Self::Other {
        match self {
            Self::Symmetric => new::quantization::QuantMode::Symmetric,
        }
    }
}

impl Convert for new::quantization::ScaleDtype {
    type Other = old::quantization::QuantParam;

    fn converted(self) -> Self::Other {
        use old::quantization::QuantParam as Other;
        match self {
            Self::F32 => Other::F32,
            Self::F16 => Other::F16,
            Self::BF16 => Other::BF16,
            Self::UE8M0 => Other::UE8M0,
            Self::UE4M3 => Other::UE4M3,
        }
    }
}

impl Convert for old::quantization::QuantParam {
    type Other = new::quantization::ScaleDtype;

    fn converted(self) -> Self::Other {
        use new::quantization::ScaleDtype as Other;
        match self {
            Self::F32 => Other::F32,
            Self::F16 => Other::F16,
            Self::BF16 => Other::BF16,
            Self::UE8M0 => Other::UE8M0,
            Self::UE4M3 => Other::UE4M3,
        }
    }
}

/// Returns an error if burn-wgsl cannot store tensors of a scheme as Burn does.
pub fn check_scheme(scheme: &new::quantization::QuantScheme) -> Result<(), &'static str> {
    let is_line = |size: new::quantization::BlockSize| {
        let leading = size.as_slice().split_last().map_or(&[][..], |(_, leading)| leading);
        leading.iter().all(|&size| size == 1)
    };
    if scheme.mode != new::quantization::QuantMode::Symmetric {
        Err("quantisation by a table of values is not supported; use symmetric")
    } else if scheme.num_levels() != 1 {
        Err(
            "quantisation with a scale per block and one per tensor is not supported; use one of them",
        )
    } else if scheme.scale_dtype() != new::quantization::ScaleDtype::F32 {
        Err("quantisation with scales of another type than f32 is not supported")
    } else if !scheme.block_size().is_none_or(is_line) {
        Err(
            "quantisation by blocks of several rows is not supported; use blocks along the last axis",
        )
    } else {
        Ok(())
    }
}

/// # Panics
///
/// Panics if the scheme is not supported.
impl Convert for new::quantization::QuantScheme {
    type Other = old::quantization::QuantScheme;

    fn converted(self) -> Self::Other {
        check_scheme(&self).unwrap_or_else(|problem| panic!("{problem}"));
        let level = match self.block_size() {
            Some(size) => old::quantization::QuantLevel::block(size.as_slice()),
            None => old::quantization::QuantLevel::Tensor,
        };
        old::quantization::QuantScheme::default()
            .with_value(self.value.converted())
            .with_store(self.store.converted())
            .with_mode(self.mode.converted())
            .with_level(level)
            .with_param(self.scale_dtype().converted())
    }
}

impl Convert for old::quantization::QuantScheme {
    type Other = new::quantization::QuantScheme;

    fn converted(self) -> Self::Other {
        let scheme = new::quantization::QuantScheme::default()
            .with_value(self.value.converted())
            .with_store(self.store.converted())
            .with_mode(self.mode.converted());
        let param = self.param.converted();
        match self.level {
            old::quantization::QuantLevel::Block(size) => scheme.per_block(size.as_slice(), param),
            // A scheme without levels has a scale of f32 per tensor.
            old::quantization::QuantLevel::Tensor if param == scheme.scale_dtype() => scheme,
            old::quantization::QuantLevel::Tensor => scheme.per_tensor(param),
        }
    }
}

/// Moves bytes. They are copied only if something else than a vector of one of these sizes owns
/// them.
macro_rules! moved {
    ($bytes:expr, $to:ident) => {{
        let bytes = $bytes;
        moved!(@try bytes, $to, u32, u64, u16, u8)
    }};
    (@try $bytes:ident, $to:ident, $element:ty $(, $rest:ty)*) => {
        match $bytes.try_into_vec::<$element>() {
            Ok(elements) => $to::Bytes::from_elems(elements),
            Err(bytes) => moved!(@try bytes, $to $(, $rest)*),
        }
    };
    (@try $bytes:ident, $to:ident) => { $to::Bytes::from_bytes_vec($bytes.to_vec()) };
}

impl Convert for new::TensorData {
    type Other = old::TensorData;

    fn converted(self) -> old::TensorData {
        let (shape, dtype) = (self.shape().clone().converted(), self.dtype().converted());
        old::TensorData::from_bytes(moved!(self.into_bytes(), old), shape, dtype)
    }
}

impl Convert for old::TensorData {
    type Other = new::TensorData;

    fn converted(self) -> new::TensorData {
        let (shape, dtype) = (self.shape.clone().converted(), self.dtype.converted());
        new::TensorData::from_bytes(moved!(self.into_bytes(), new), shape, dtype)
    }
}

impl Convert for old::ExecutionError {
    type Other = new::ExecutionError;

    fn converted(self) -> new::ExecutionError {
        match self {
            Self::WithContext { reason } => new::ExecutionError::WithContext { reason },
            Self::Generic { reason, .. } => new::ExecutionError::WithContext { reason },
        }
    }
}

impl Convert for new::ExecutionError {
    type Other = old::ExecutionError;

    fn converted(self) -> old::ExecutionError {
        old::ExecutionError::WithContext { reason: self.to_string() }
    }
}
