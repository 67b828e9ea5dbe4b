//! Where an op runs: the one place that decides between a kernel and the CPU twin.
//!
//! Every operand of an op is shown to a [`OpContext`]. It finds the device, refuses a mix of devices, and
//! knows whether a kernel can take the operands. The rest is conversion: each kind of operand knows how
//! it looks to a kernel and to the twin ([`Operand`]), and each kind of result how it comes back
//! ([`OpOutput`]).

use std::sync::Arc;

use burn_backend::ops::{IntTensorOps, QTensorOps};
use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_flex::{Flex, FlexDevice, FlexQTensor, FlexTensor};
use burn_std::quantization::QuantScheme;
use half::{bf16, f16};

use super::data::{check_can_fall_back, from_data, read_now};
use super::fallback;
use super::quantized::{cpu_data, quantized_from_data, read_quantized_now};
use super::tensor::{
    GpuQuantized, QuantizedStorage, Storage, WgslQuantizedTensor, WgslTensor, burn_dtype,
    kernel_format, stored_dtype,
};
use crate::device::{ResolvedDevice, WgslDevice};
use crate::kernels::cast;
use crate::runtime::Runtime;
use crate::tensor::Tensor;

/// Ends an op that cannot be done. Burn's ops have no error to return.
pub(crate) fn fail(op: &str, device: &WgslDevice, error: &dyn std::fmt::Display) -> ! {
    panic!("{op} on {device}: {error}")
}

/// Where a device is, for an op that was asked for there.
pub(crate) fn resolve(device: &WgslDevice, op: &str) -> ResolvedDevice {
    device.resolve().unwrap_or_else(|error| fail(op, device, &error))
}

/// The opened GPU of a device; `None` for the CPU.
pub(crate) fn runtime(device: &WgslDevice, op: &str) -> Option<Arc<Runtime>> {
    match resolve(device, op) {
        ResolvedDevice::Cpu => None,
        ResolvedDevice::Adapter(index) => {
            Some(Runtime::of(index).unwrap_or_else(|error| fail(op, device, &error)))
        }
    }
}

/// What is known of an op from the operands seen so far.
#[derive(Clone, Copy)]
pub(crate) struct OpContext {
    op: &'static str,
    device: Option<WgslDevice>,
    /// Whether every operand is one that a kernel can take.
    native: bool,
    /// Whether an operand, or the type that was asked for, has 64 bits.
    wide: bool,
    /// The element type of the first float operand and of the first integer one.
    float: Option<DType>,
    integer: Option<DType>,
    /// The element type that the result was asked for in.
    asked: Option<DType>,
    /// How many axes the first tensor has.
    rank: Option<usize>,
    /// What the kernel does with element types.
    types: Types,
}

/// What a row's kernel does with element types, beyond those that kernels compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// Operands are converted to the type that kernels compute in, results back.
    Computed,
    /// The same, but integer results are indices: their type is not the operands'.
    Index,
    /// The same, and a scalar is first rounded to the operands' type: 0.1 in f16 equals 0.1, as in PyTorch and burn-flex.
    /// In arithmetic a scalar keeps its digits, of which 0.999 in bf16 would have none left.
    Compared,
    /// The launcher takes and makes elements of every type: views, and conversions themselves.
    Stored,
    /// The launcher reads floats of 16 bits as they are.
    Halves,
}

impl OpContext {
    /// Whether this build has the CPU twin; where it has not, what calls it is left out.
    pub const HAS_CPU: bool = cfg!(feature = "twin");

    pub fn new(op: &'static str) -> Self {
        Self {
            op,
            device: None,
            native: true,
            wide: false,
            float: None,
            integer: None,
            asked: None,
            rank: None,
            types: Types::Computed,
        }
    }

    /// For a row marked `as stored`.
    pub fn stored(self) -> Self {
        Self { types: Types::Stored, ..self }
    }

    /// For a row marked `as halves`.
    pub fn halves(self) -> Self {
        Self { types: Types::Halves, ..self }
    }

    /// For a row marked `as index`.
    pub fn index(self) -> Self {
        Self { types: Types::Index, ..self }
    }

    /// For a row marked `as compared`.
    pub fn compared(self) -> Self {
        Self { types: Types::Compared, ..self }
    }

    /// Shows an operand that is places in others, and so neither says nor has their type.
    pub fn register_indices(&mut self, indices: &WgslTensor) {
        let (integer, rank) = (self.integer.take(), self.rank.take());
        indices.register(self);
        (self.integer, self.rank) = (integer, rank);
    }

    fn at(&mut self, device: &WgslDevice) {
        match &self.device {
            None => self.device = Some(*device),
            Some(first) if first == device => {}
            Some(first) => {
                let op = self.op;
                if resolve(first, op) != resolve(device, op) {
                    panic!(
                        "{op}: tensors are on two devices, {first} and {device}; move one with to_device"
                    );
                }
            }
        }
    }

    /// Refuses an axis that the first tensor does not have.
    pub fn has_axis(&self, axis: usize) {
        if let Some(rank) = self.rank {
            let op = self.op;
            assert!(axis < rank, "{op}: a tensor of {rank} axes has no axis {axis}");
        }
    }

    fn device(&self) -> WgslDevice {
        self.device.unwrap_or_default()
    }

    /// Whether the op's kernel takes these operands.
    pub fn has_kernel(&self) -> bool {
        if !self.native || !self.on_gpu() {
            return false;
        }
        self.asked.is_none_or(|dtype| {
            let runtime = runtime(&self.device(), self.op);
            runtime.is_some_and(|runtime| stored_dtype(dtype, &runtime).is_some())
        })
    }

    /// The operand as the row's kernel takes it.
    fn operand(&self, tensor: Tensor) -> Tensor {
        if self.types == Types::Stored || self.types == Types::Halves && tensor.dtype().is_half() {
            return tensor;
        }
        cast::computed(tensor).unwrap_or_else(|error| fail(self.op, &self.device(), &error))
    }

    /// What a kernel computed, in the type that the op gives.
    fn result(&self, tensor: Tensor) -> Tensor {
        let dtype = tensor.dtype();
        let given = match self.types {
            Types::Stored => return tensor,
            _ if dtype == crate::tensor::DType::Bool => return tensor,
            _ if dtype.is_float() => self.asked.filter(DType::is_float).or(self.float),
            Types::Index => self.asked,
            Types::Computed | Types::Compared | Types::Halves => {
                self.asked.filter(|dtype| !dtype.is_float()).or(self.integer)
            }
        };
        match given.filter(|&given| given != burn_dtype(dtype)) {
            None => tensor,
            Some(given) => {
                let stored = stored_dtype(given, tensor.runtime()).unwrap_or(dtype);
                cast::cast(tensor, stored)
                    .unwrap_or_else(|error| fail(self.op, &self.device(), &error))
            }
        }
    }

    fn on_gpu(&self) -> bool {
        resolve(&self.device(), self.op) != ResolvedDevice::Cpu
    }

    /// What a kernel computed, as the op's result.
    pub fn computed<R: OpOutput>(&self, result: crate::tensor::Result<R::Gpu>) -> R {
        match result {
            Ok(value) => R::from_gpu(value, self),
            Err(error) => fail(self.op, &self.device(), &error),
        }
    }

    /// Ends an op that only the twin could compute.
    pub fn no_cpu_backend(&self) -> ! {
        panic!(
            "{}: no kernel takes these tensors, and this build has no CPU twin (the crate's feature `twin`)",
            self.op
        )
    }

    /// Notes that the twin is about to run.
    pub fn record_fallback(&self) {
        if self.on_gpu() {
            fallback::count(self.op);
        }
    }
}

/// Notes the type of an operand; of one kind all have the same.
fn alike(seen: &mut Option<DType>, dtype: DType, op: &str) {
    let first = *seen.get_or_insert(dtype);
    assert!(
        first == dtype,
        "{op}: operands of types {first:?} and {dtype:?}; cast one to the other's"
    );
}

/// An operand of an op, as Burn gives it.
pub(crate) trait Operand: Sized {
    /// How a kernel's launcher takes it.
    type Gpu;
    /// How the twin takes it.
    type Cpu;
    /// Shows the operand to the context.
    fn register(&self, context: &mut OpContext);
    /// For the launcher. Only called when every operand is native.
    fn into_gpu(self, context: &OpContext) -> Self::Gpu;
    /// For the twin, reading back what is on the GPU.
    fn into_cpu(self, context: &OpContext) -> Self::Cpu;
}

/// A result of an op.
pub(crate) trait OpOutput: Sized {
    /// What a launcher returns for it.
    type Gpu;
    /// What the twin returns for it.
    type Cpu;
    fn from_gpu(value: Self::Gpu, context: &OpContext) -> Self;
    fn from_cpu(value: Self::Cpu, context: &OpContext) -> Self;
}

impl Operand for WgslTensor {
    type Gpu = Tensor;
    type Cpu = FlexTensor;

    fn register(&self, context: &mut OpContext) {
        context.at(&self.device);
        context.native &= matches!(self.storage, Storage::Gpu(_));
        context.rank = context.rank.or(Some(self.rank()));
        let dtype = self.dtype();
        context.wide |= matches!(dtype, DType::I64 | DType::U64);
        match dtype {
            DType::Bool(_) => {}
            dtype if dtype.is_float() => alike(&mut context.float, dtype, context.op),
            dtype => alike(&mut context.integer, dtype, context.op),
        }
    }

    fn into_gpu(self, context: &OpContext) -> Tensor {
        match self.storage {
            Storage::Gpu(tensor) => context.operand(tensor),
            // The context has seen that there is none; said again rather than assumed.
            Storage::Cpu(tensor) => panic!("{}: no kernel takes {:?}", context.op, tensor.dtype()),
        }
    }

    fn into_cpu(self, context: &OpContext) -> FlexTensor {
        match self.storage {
            Storage::Cpu(tensor) => tensor,
            storage => {
                check_can_fall_back(context.op);
                FlexTensor::from_data(read_now(WgslTensor { storage, ..self }, context.op))
            }
        }
    }
}

impl OpOutput for WgslTensor {
    type Gpu = Tensor;
    type Cpu = FlexTensor;

    fn from_gpu(tensor: Tensor, context: &OpContext) -> Self {
        Self { device: context.device(), storage: Storage::Gpu(context.result(tensor)) }
    }

    fn from_cpu(tensor: FlexTensor, context: &OpContext) -> Self {
        let device = context.device();
        // The twin counts in 64 bits; what comes of operands of 32 bits keeps to those.
        let tensor = if tensor.dtype() == DType::I64 && !context.wide {
            Flex::int_cast(tensor, burn_std::IntDType::I32)
        } else {
            tensor
        };
        if !context.on_gpu() {
            return Self { device, storage: Storage::Cpu(tensor) };
        }
        from_data(tensor.into_data(), &device, context.op)
    }
}

impl Operand for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Cpu = FlexQTensor;

    fn register(&self, context: &mut OpContext) {
        context.at(&self.device);
        context.rank = context.rank.or(Some(self.rank()));
        context.native &= matches!(self.storage, QuantizedStorage::Gpu(_));
    }

    fn into_gpu(self, context: &OpContext) -> GpuQuantized {
        match self.storage {
            QuantizedStorage::Gpu(tensor) => *tensor,
            QuantizedStorage::Cpu(tensor) => {
                panic!("{}: no kernel takes {:?}", context.op, tensor.dtype())
            }
        }
    }

    fn into_cpu(self, context: &OpContext) -> FlexQTensor {
        match self.storage {
            QuantizedStorage::Cpu(tensor) => tensor,
            storage => {
                check_can_fall_back(context.op);
                Flex::q_from_data(
                    read_quantized_now(Self { storage, ..self }, context.op),
                    &FlexDevice,
                )
            }
        }
    }
}

impl OpOutput for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Cpu = FlexQTensor;

    fn from_gpu(tensor: GpuQuantized, context: &OpContext) -> Self {
        Self { device: context.device(), storage: QuantizedStorage::Gpu(Box::new(tensor)) }
    }

    fn from_cpu(tensor: FlexQTensor, context: &OpContext) -> Self {
        if context.on_gpu() && kernel_format(tensor.scheme()).is_some() {
            return quantized_from_data(cpu_data(tensor), &context.device(), context.op);
        }
        Self { device: context.device(), storage: QuantizedStorage::Cpu(tensor) }
    }
}

impl Operand for &WgslDevice {
    type Gpu = Arc<Runtime>;
    type Cpu = &'static burn_flex::FlexDevice;

    fn register(&self, context: &mut OpContext) {
        context.at(self);
    }

    fn into_gpu(self, context: &OpContext) -> Arc<Runtime> {
        match runtime(self, context.op) {
            Some(runtime) => runtime,
            None => panic!("{}: {self} has no GPU", context.op),
        }
    }

    fn into_cpu(self, _site: &OpContext) -> Self::Cpu {
        &burn_flex::FlexDevice
    }
}

impl<T: Operand> Operand for Option<T> {
    type Gpu = Option<T::Gpu>;
    type Cpu = Option<T::Cpu>;

    fn register(&self, context: &mut OpContext) {
        if let Some(operand) = self {
            operand.register(context);
        }
    }

    fn into_gpu(self, context: &OpContext) -> Self::Gpu {
        self.map(|operand| operand.into_gpu(context))
    }

    fn into_cpu(self, context: &OpContext) -> Self::Cpu {
        self.map(|operand| operand.into_cpu(context))
    }
}

impl<T: Operand> Operand for Vec<T> {
    type Gpu = Vec<T::Gpu>;
    type Cpu = Vec<T::Cpu>;

    fn register(&self, context: &mut OpContext) {
        self.iter().for_each(|operand| operand.register(context));
    }

    fn into_gpu(self, context: &OpContext) -> Self::Gpu {
        self.into_iter().map(|operand| operand.into_gpu(context)).collect()
    }

    fn into_cpu(self, context: &OpContext) -> Self::Cpu {
        self.into_iter().map(|operand| operand.into_cpu(context)).collect()
    }
}

impl<A: OpOutput, B: OpOutput> OpOutput for (A, B) {
    type Gpu = (A::Gpu, B::Gpu);
    type Cpu = (A::Cpu, B::Cpu);

    fn from_gpu(value: Self::Gpu, context: &OpContext) -> Self {
        // The second of two integer results is where the first was found.
        let second = OpContext { integer: None, ..*context };
        (A::from_gpu(value.0, context), B::from_gpu(value.1, &second))
    }

    fn from_cpu(value: Self::Cpu, context: &OpContext) -> Self {
        (A::from_cpu(value.0, context), B::from_cpu(value.1, context))
    }
}

impl Operand for burn_std::BoolDType {
    type Gpu = Self;
    type Cpu = Self;

    fn register(&self, _site: &mut OpContext) {}

    fn into_gpu(self, _site: &OpContext) -> Self {
        self
    }

    /// The twin wants all truth values of an op stored alike, and knows no words.
    fn into_cpu(self, _site: &OpContext) -> Self {
        Self::Native
    }
}

impl Operand for burn_backend::Scalar {
    type Gpu = Self;
    type Cpu = Self;

    fn register(&self, _site: &mut OpContext) {}

    fn into_gpu(self, context: &OpContext) -> Self {
        match (context.types, context.float) {
            (Types::Compared, Some(DType::F16)) => Self::Float(f16::from_f64(self.elem()).into()),
            (Types::Compared, Some(DType::BF16)) => Self::Float(bf16::from_f64(self.elem()).into()),
            _ => self,
        }
    }

    fn into_cpu(self, _site: &OpContext) -> Self {
        self
    }
}

/// Operands that look the same to everyone, and what a context takes note of.
macro_rules! plain_operand {
    ($($type:ty $(: $note:expr)?;)*) => {
        $(impl Operand for $type {
            type Gpu = Self;
            type Cpu = Self;

            fn register(&self, _site: &mut OpContext) {
                $(let note: fn(&$type, &mut OpContext) = $note;
                note(self, _site);)?
            }

            fn into_gpu(self, _site: &OpContext) -> Self {
                self
            }

            fn into_cpu(self, _site: &OpContext) -> Self {
                self
            }
        })*
    };
}

/// The type a result is asked for in: a device's kernels may not know it.
fn asked(dtype: DType, context: &mut OpContext) {
    context.wide |= matches!(dtype, DType::I64 | DType::U64);
    context.asked = Some(dtype);
}

/// A shape whose elements cannot be counted is refused before anyone multiplies.
fn countable(shape: &burn_std::Shape, context: &mut OpContext) {
    let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    let op = context.op;
    assert!(len.is_some(), "{op}: no memory has the elements of a tensor of shape {shape:?}");
}

plain_operand! {
    burn_std::FloatDType: |dtype, context| asked((*dtype).into(), context);
    burn_std::IntDType: |dtype, context| asked((*dtype).into(), context);
    burn_std::Shape: countable;
    &QuantScheme: |scheme, context| context.native &= kernel_format(scheme).is_some();
    bool;
    usize;
    f64;
    &[usize];
    [usize; 2];
    std::ops::Range<i64>;
    &[burn_std::Slice];
    burn_backend::tensor::IndexingUpdateOp;
    burn_backend::ops::ConvOptions<1>;
    burn_backend::ops::ConvOptions<2>;
    burn_backend::ops::ConvOptions<3>;
    burn_backend::ops::ConvTransposeOptions<1>;
    burn_backend::ops::ConvTransposeOptions<2>;
    burn_backend::ops::ConvTransposeOptions<3>;
    burn_backend::ops::DeformConvOptions<2>;
    burn_backend::ops::UnfoldOptions;
    burn_backend::ops::InterpolateOptions;
    burn_backend::ops::GridSampleOptions;
    burn_backend::ops::AttentionModuleOptions;
}
