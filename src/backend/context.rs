//! The context of one op: its device, and whether it runs as a kernel or on the CPU backend.
//!
//! Every operand is registered with an [`OpContext`]. It finds the device, rejects operands on
//! different devices, and knows whether a kernel supports the operands. Each kind of operand then
//! converts itself for a launcher or for the CPU backend ([`RowOperand`]), and each kind of result
//! converts itself back ([`OpOutput`]).

use std::sync::Arc;

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_std::quantization::QuantScheme;
use half::{bf16, f16};

use super::fallback;
use super::host_data::{DataKind, HostData};
use super::resolve::{check_can_fall_back, fail, resolve, runtime};
use super::tensor::{
    GpuQuantized, QuantizedStorage, Storage, WgslQuantizedTensor, WgslTensor, burn_dtype,
    kernel_format, stored_dtype,
};
use super::transfer::{
    cpu_data, flex_quantized, flex_tensor, read_blocking, read_quantized_blocking, upload_checked,
    upload_quantized,
};
use crate::autocast::FloatOperands;
use crate::autocast::rules::Rule;
use crate::cpu::{Flex, FlexDevice, FlexQTensor, FlexTensor, check_memory, is_large, observed};
use crate::device::{ResolvedDevice, WgslDevice};
use crate::kernels::cast;
use crate::kernels::ops::table;
use crate::runtime::{Runtime, begin_op};
use crate::tensor::{self, Tensor};

/// How the operands and the result of a kernel are converted between storage and compute types.
///
/// Kernels compute in f32, in 32-bit and 64-bit integers, and in booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Operands are converted to compute types, and the result to the operands' type.
    Compute,
    /// As `Compute`, but integer results are indices, which do not take the operands' type.
    Indices,
    /// As `Compute`, and a scalar is first rounded to the operands' type: 0.1 as f16 equals 0.1, as
    /// in PyTorch and burn-flex. Arithmetic does not round its scalars: 0.999 as bf16 would be 1.
    Compare,
    /// None: the launcher accepts and returns all storage types. For views and casts.
    Stored,
    /// As `Compute`, but 16-bit floats are passed as they are. The kernel returns f32 or the operands' type.
    Half,
    /// As `Half`, and operands may have different float types. Results stay f32: 16 bits would be
    /// too few for them.
    Wide,
}

/// What is known about an op from its operands.
#[derive(Clone, Copy)]
pub(crate) struct OpContext {
    op: &'static str,
    conversion: Conversion,
    rule: Rule,
    device: Option<WgslDevice>,
    /// Whether kernels support every operand.
    supported: bool,
    /// Whether an operand or the requested type has 64-bit integers.
    has_64_bit: bool,
    /// The element type of the float operands.
    float: Option<DType>,
    /// The element type of the integer operands, except indices.
    int: Option<DType>,
    /// The requested element type of the result.
    requested: Option<DType>,
    /// The rank of the first tensor, except indices.
    rank: Option<usize>,
    /// The types of the float operands, for autocast.
    floats: FloatOperands,
    /// The type to which autocast converts the float operands.
    cast: Option<DType>,
    /// Whether optional operands are left as they are: the bias of a product.
    keeps_bias: bool,
    /// Whether the op has a bias, and it or another operand is f32.
    has_f32_bias: bool,
}

impl OpContext {
    /// Creates the context of an op without operands.
    pub fn new(op: &'static str, conversion: Conversion, rule: Rule) -> Self {
        begin_op(op);
        Self {
            op,
            conversion,
            rule,
            device: None,
            supported: true,
            has_64_bit: false,
            float: None,
            int: None,
            requested: None,
            rank: None,
            floats: FloatOperands::default(),
            cast: None,
            keeps_bias: false,
            has_f32_bias: false,
        }
    }

    /// Returns the name of the op.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// Registers an operand, of which all tensors must be of a kind.
    pub fn register(&mut self, operand: &impl RowOperand, kind: Option<DataKind>) {
        operand.register(self, kind);
    }

    /// Registers the bias of a product, which is added to f32 sums: its type is independent of the
    /// type of the other operands.
    pub fn register_bias(&mut self, bias: &Option<WgslTensor>) {
        self.keeps_bias = true;
        let Some(bias) = bias else { return };
        let floats = self.floats;
        bias.register(self, Some(DataKind::Float));
        self.has_f32_bias = self.floats.widest() == Some(DType::F32);
        self.floats = floats;
    }

    /// Registers an operand of indices, whose type is independent of the other operands' type.
    pub fn register_indices(&mut self, indices: &impl RowOperand) {
        let (int, rank) = (self.int.take(), self.rank.take());
        indices.register(self, Some(DataKind::Int));
        (self.int, self.rank) = (int, rank);
    }

    /// Determines the types of the float operands, after all operands are registered.
    ///
    /// # Panics
    ///
    /// Panics if they differ without autocast.
    pub fn settle_types(&mut self) {
        let types = match self.conversion {
            Conversion::Stored => None,
            _ => {
                let floats = &self.floats;
                let types =
                    floats.cast_types(self.rule).or_else(|| floats.gradient_types(self.rule));
                types.or_else(|| floats.product_types(self.rule))
            }
        };
        match (types, self.floats.different_types()) {
            (Some([cast, result]), _) => (self.cast, self.float) = (Some(cast), Some(result)),
            // Only the shape of the bias counts.
            (None, Some(_)) if self.rule == Rule::BiasGradient => {}
            (None, Some([first, other])) => fail_with_types(self.op, first, other),
            (None, None) => {}
        }
    }

    /// Checks that the first tensor has an axis, after all operands are registered.
    ///
    /// # Panics
    ///
    /// Panics if the tensor does not have the axis.
    pub fn check_axis(&self, axis: usize) {
        if let Some(rank) = self.rank {
            let op = self.op;
            assert!(axis < rank, "{op}: a tensor of {rank} axes has no axis {axis}");
        }
    }

    /// Registers the device of an operand. Panics if other operands are on another device.
    fn register_device(&mut self, device: &WgslDevice) {
        match &self.device {
            None => self.device = Some(*device),
            Some(first) if first == device => {}
            Some(first) => {
                let op = self.op;
                assert!(
                    resolve(first, op) == resolve(device, op),
                    "{op}: tensors are on two devices, {} and {}; move one with to_device",
                    first.canonical(),
                    device.canonical()
                );
            }
        }
    }

    /// Registers the requested element type of the result.
    fn register_requested(&mut self, dtype: DType) {
        self.has_64_bit |= matches!(dtype, DType::I64 | DType::U64);
        self.requested = Some(dtype);
    }

    /// Returns the device of the op.
    pub fn device(&self) -> WgslDevice {
        self.device.unwrap_or_default()
    }

    /// Returns the type to which the float operands are converted for the CPU backend, which does not mix types;
    /// `None` if they have one type already. With an f32 bias, it multiplies and adds in f32, as the kernels do.
    fn type_on_cpu(&self) -> Option<DType> {
        match self.float {
            Some(DType::F16 | DType::BF16) if self.has_f32_bias => Some(DType::F32),
            // A product of f32 operands, whose result is rounded.
            _ if self.cast == Some(DType::F32) => self.cast,
            float => self.cast.and(float),
        }
    }

    fn on_gpu(&self) -> bool {
        resolve(&self.device(), self.op) != ResolvedDevice::Cpu
    }

    /// Whether the op runs as a kernel: its device is a GPU, and kernels support its operands.
    pub fn has_kernel(&self) -> bool {
        if !self.supported || !self.on_gpu() {
            return false;
        }
        self.requested.is_none_or(|dtype| {
            let runtime = runtime(&self.device(), self.op);
            runtime.is_some_and(|runtime| stored_dtype(dtype, &runtime).is_some())
        })
    }

    /// Converts an operand for the launcher.
    fn convert_operand(&self, tensor: Tensor) -> Tensor {
        let tensor = match self.cast {
            Some(target) if tensor.dtype().is_float() => self.cast_to(tensor, target),
            _ => tensor,
        };
        match self.conversion {
            Conversion::Stored => tensor,
            Conversion::Half | Conversion::Wide if tensor.dtype().is_half() => tensor,
            _ => cast::to_compute_type(tensor)
                .unwrap_or_else(|error| fail(self.op, &self.device(), &error)),
        }
    }

    /// Converts a tensor to a type, unless kernels do not support it.
    fn cast_to(&self, tensor: Tensor, target: DType) -> Tensor {
        match stored_dtype(target, tensor.runtime()) {
            Some(stored) if stored != tensor.dtype() => cast::cast(tensor, stored)
                .unwrap_or_else(|error| fail(self.op, &self.device(), &error)),
            _ => tensor,
        }
    }

    /// Converts the launcher's result to the type of the op's result.
    fn convert_result(&self, tensor: Tensor) -> Tensor {
        let dtype = tensor.dtype();
        let target = match self.conversion {
            Conversion::Stored | Conversion::Wide => return tensor,
            _ if dtype == tensor::DType::Bool => return tensor,
            _ if dtype.is_float() => self.requested.filter(DType::is_float).or(self.float),
            Conversion::Indices => self.requested,
            Conversion::Compute | Conversion::Compare | Conversion::Half => {
                self.requested.filter(|dtype| !dtype.is_float()).or(self.int)
            }
        };
        match target {
            Some(target) if target != burn_dtype(dtype) => self.cast_to(tensor, target),
            _ => tensor,
        }
    }

    /// Converts the launcher's result to the op's result, or panics with its error.
    pub fn finish<R: OpOutput>(&self, result: tensor::Result<R::Gpu>) -> R {
        match result {
            Ok(value) => R::from_gpu(value, self),
            Err(error) => fail(self.op, &self.device(), &error),
        }
    }

    /// Panics if the host has no memory for a result of this size.
    pub fn check_host_memory(&self, result: &ResultSize) {
        let Some(shape) = &result.shape else { return };
        // Other ops check the shapes of their results.
        let dtype = self.requested.or(self.float).or(self.int);
        let size = dtype.map_or(1, |dtype| dtype.size());
        if is_large(shape, size) && (!result.has_tensors || table::is_elementwise(self.op)) {
            check_memory(self.op, shape, size);
        }
    }

    /// Counts a fallback if the op's device is a GPU.
    pub fn record_fallback(&self) {
        if self.on_gpu() {
            fallback::count(self.op);
        }
    }
}

/// Checks that operands of the same kind have the same element type.
fn check_same_type(registered: &mut Option<DType>, dtype: DType, op: &str) {
    let first = *registered.get_or_insert(dtype);
    if first != dtype {
        fail_with_types(op, first, dtype);
    }
}

/// Panics because operands of the same kind have different element types.
fn fail_with_types(op: &str, first: DType, other: DType) -> ! {
    panic!("{op}: operands have types {first:?} and {other:?}; cast one to the other's type")
}

/// The size of the result of an op on the CPU, if it is that of a creation, or that to which tensors broadcast.
#[derive(Debug, Default)]
pub(crate) struct ResultSize {
    has_tensors: bool,
    shape: Option<tensor::Shape>,
}

impl ResultSize {
    fn add_tensor(&mut self, shape: &[usize]) {
        self.shape = match std::mem::replace(&mut self.has_tensors, true) {
            false => Some(shape.into()),
            true => self.shape.as_ref().and_then(|others| tensor::broadcast(others, shape)),
        };
    }

    fn add_shape(&mut self, shape: &[usize]) {
        if !self.has_tensors {
            self.shape = Some(shape.into());
        }
    }
}

/// An operand of an op.
pub(crate) trait RowOperand: Sized {
    /// What launchers take.
    type Gpu;
    /// What the CPU backend takes.
    type Cpu;
    /// Registers device, type and rank. Panics if a tensor is of another kind.
    fn register(&self, context: &mut OpContext, kind: Option<DataKind>);
    /// Adds the operand to those that messages list, if it is a tensor.
    fn inspect_operand(
        &self,
        _name: &'static str,
        _operands: &mut Vec<(&'static str, WgslTensor)>,
    ) {
    }
    /// Adds the operand to those that tell the size of the result.
    fn size_result(&self, _result: &mut ResultSize) {}
    /// Converts the operand for a launcher. Called only if kernels support every operand.
    fn into_gpu(self, context: &OpContext) -> Self::Gpu;
    /// Converts the operand for the CPU backend, with a readback if it is on a GPU.
    fn into_cpu(self, context: &OpContext) -> Self::Cpu;
}

/// A result of an op.
pub(crate) trait OpOutput: Sized {
    /// What launchers return.
    type Gpu;
    /// What the CPU backend returns.
    type Cpu;
    /// Converts a launcher's result.
    fn from_gpu(value: Self::Gpu, context: &OpContext) -> Self;
    /// Converts a result of the CPU backend, with an upload if the op's device is a GPU.
    fn from_cpu(value: Self::Cpu, context: &OpContext) -> Self;
    /// Adds the tensors of the result whose values can be checked.
    fn inspect_results(&self, _results: &mut Vec<WgslTensor>) {}
}

impl RowOperand for WgslTensor {
    type Gpu = Tensor;
    type Cpu = FlexTensor;

    fn register(&self, context: &mut OpContext, kind: Option<DataKind>) {
        context.register_device(&self.device());
        let found = self.dtype();
        if let Some(kind) = kind.filter(|&kind| DataKind::of(found) != Some(kind)) {
            panic!(
                "{}: an operand has the type {found:?}, which is not {}",
                context.op,
                kind.name()
            );
        }
        context.supported &= matches!(self.storage, Storage::Gpu(_));
        context.rank = context.rank.or(Some(self.rank()));
        let dtype = self.dtype();
        context.has_64_bit |= matches!(dtype, DType::I64 | DType::U64);
        match dtype {
            DType::Bool(_) => {}
            dtype if dtype.is_float() && context.conversion == Conversion::Wide => {}
            dtype if dtype.is_float() => {
                context.float.get_or_insert(dtype);
                context.floats.see(context.rule, self.device(), dtype, || self.elements());
            }
            dtype => check_same_type(&mut context.int, dtype, context.op),
        }
    }

    fn size_result(&self, result: &mut ResultSize) {
        result.add_tensor(self.shape().as_slice());
    }

    fn inspect_operand(&self, name: &'static str, operands: &mut Vec<(&'static str, WgslTensor)>) {
        operands.push((name, self.clone()));
    }

    fn into_gpu(self, context: &OpContext) -> Tensor {
        match self.storage {
            Storage::Gpu(tensor) => context.convert_operand(tensor),
            Storage::Cpu(tensor) => {
                panic!("{}: no kernel supports {:?}", context.op, tensor.dtype())
            }
        }
    }

    fn into_cpu(self, context: &OpContext) -> FlexTensor {
        let tensor = match self.storage {
            Storage::Cpu(tensor) => *tensor,
            storage => {
                check_can_fall_back(context.op);
                let tensor = WgslTensor::new(context.device(), storage);
                flex_tensor(read_blocking(tensor, context.op), context.op)
            }
        };
        let rounded = cast_on_cpu(tensor, context.cast);
        cast_on_cpu(rounded, context.type_on_cpu())
    }
}

/// Converts a tensor of floats to a type, if there is one.
fn cast_on_cpu(tensor: FlexTensor, target: Option<DType>) -> FlexTensor {
    match target {
        Some(target) if tensor.dtype().is_float() && tensor.dtype() != target => {
            Flex::float_cast(tensor, target.into())
        }
        _ => tensor,
    }
}

impl OpOutput for WgslTensor {
    type Gpu = Tensor;
    type Cpu = FlexTensor;

    fn from_gpu(tensor: Tensor, context: &OpContext) -> Self {
        Self::new(context.device(), Storage::Gpu(context.convert_result(tensor)))
    }

    fn from_cpu(tensor: FlexTensor, context: &OpContext) -> Self {
        let device = context.device();
        let tensor = cast_on_cpu(tensor, context.type_on_cpu().and(context.float));
        // burn-flex returns indices as i64. As on a GPU, they become i32 without 64-bit types.
        let tensor = if tensor.dtype() == DType::I64 && !context.has_64_bit {
            Flex::int_cast(tensor, burn_std::IntDType::I32)
        } else {
            tensor
        };
        if !context.on_gpu() {
            return Self::new(device, Storage::Cpu(Box::new(observed(tensor))));
        }
        let data = HostData::new(tensor.into_data());
        let data = data.unwrap_or_else(|error| fail(context.op, &device, &error));
        upload_checked(data, &device, context.op)
    }

    fn inspect_results(&self, results: &mut Vec<WgslTensor>) {
        results.push(self.clone());
    }
}

impl RowOperand for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Cpu = FlexQTensor;

    fn register(&self, context: &mut OpContext, _kind: Option<DataKind>) {
        context.register_device(&self.device());
        context.rank = context.rank.or(Some(self.rank()));
        context.supported &= matches!(self.storage, QuantizedStorage::Gpu(_));
    }

    fn into_gpu(self, context: &OpContext) -> GpuQuantized {
        match self.storage {
            QuantizedStorage::Gpu(tensor) => *tensor,
            QuantizedStorage::Cpu(tensor) => {
                panic!("{}: no kernel supports {:?}", context.op, tensor.dtype())
            }
        }
    }

    fn into_cpu(self, context: &OpContext) -> FlexQTensor {
        match self.storage {
            QuantizedStorage::Cpu(tensor) => *tensor,
            storage => {
                check_can_fall_back(context.op);
                let tensor = Self::new(context.device(), storage);
                let data = read_quantized_blocking(tensor, context.op);
                flex_quantized(data, context.op)
            }
        }
    }
}

impl OpOutput for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Cpu = FlexQTensor;

    fn from_gpu(tensor: GpuQuantized, context: &OpContext) -> Self {
        Self::new(context.device(), QuantizedStorage::Gpu(Box::new(tensor)))
    }

    fn from_cpu(tensor: FlexQTensor, context: &OpContext) -> Self {
        if context.on_gpu() && kernel_format(tensor.scheme()).is_some() {
            return upload_quantized(cpu_data(tensor), &context.device(), context.op);
        }
        Self::new(context.device(), QuantizedStorage::Cpu(Box::new(tensor)))
    }
}

impl RowOperand for &WgslDevice {
    type Gpu = Arc<Runtime>;
    type Cpu = &'static FlexDevice;

    fn register(&self, context: &mut OpContext, _kind: Option<DataKind>) {
        context.register_device(self);
    }

    fn into_gpu(self, context: &OpContext) -> Arc<Runtime> {
        match runtime(self, context.op) {
            Some(runtime) => runtime,
            None => panic!("{}: {self} is not a GPU", context.op),
        }
    }

    fn into_cpu(self, _context: &OpContext) -> Self::Cpu {
        &FlexDevice
    }
}

impl<T: RowOperand> RowOperand for Option<T> {
    type Gpu = Option<T::Gpu>;
    type Cpu = Option<T::Cpu>;

    fn register(&self, context: &mut OpContext, kind: Option<DataKind>) {
        self.iter().for_each(|operand| operand.register(context, kind));
    }

    fn inspect_operand(&self, name: &'static str, operands: &mut Vec<(&'static str, WgslTensor)>) {
        self.iter().for_each(|operand| operand.inspect_operand(name, operands));
    }

    fn into_gpu(self, context: &OpContext) -> Self::Gpu {
        let cast = context.cast.filter(|_| !context.keeps_bias);
        self.map(|operand| operand.into_gpu(&OpContext { cast, ..*context }))
    }

    fn into_cpu(self, context: &OpContext) -> Self::Cpu {
        let cast = match context.keeps_bias {
            // The CPU backend adds biases of the type of the operands.
            true => context.type_on_cpu().or(context.float),
            false => context.cast,
        };
        self.map(|operand| operand.into_cpu(&OpContext { cast, ..*context }))
    }
}

impl<T: RowOperand> RowOperand for Vec<T> {
    type Gpu = Vec<T::Gpu>;
    type Cpu = Vec<T::Cpu>;

    fn register(&self, context: &mut OpContext, kind: Option<DataKind>) {
        self.iter().for_each(|operand| operand.register(context, kind));
    }

    fn inspect_operand(&self, name: &'static str, operands: &mut Vec<(&'static str, WgslTensor)>) {
        self.iter().for_each(|operand| operand.inspect_operand(name, operands));
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
        // The second of two integer results is indices, which do not take the operands' type.
        let second = OpContext { int: None, ..*context };
        (A::from_gpu(value.0, context), B::from_gpu(value.1, &second))
    }

    fn from_cpu(value: Self::Cpu, context: &OpContext) -> Self {
        (A::from_cpu(value.0, context), B::from_cpu(value.1, context))
    }

    fn inspect_results(&self, results: &mut Vec<WgslTensor>) {
        self.0.inspect_results(results);
        self.1.inspect_results(results);
    }
}

impl<A: OpOutput, B: OpOutput, C: OpOutput> OpOutput for (A, B, C) {
    type Gpu = (A::Gpu, B::Gpu, C::Gpu);
    type Cpu = (A::Cpu, B::Cpu, C::Cpu);

    fn from_gpu((a, b, c): Self::Gpu, context: &OpContext) -> Self {
        (A::from_gpu(a, context), B::from_gpu(b, context), C::from_gpu(c, context))
    }

    fn from_cpu((a, b, c): Self::Cpu, context: &OpContext) -> Self {
        (A::from_cpu(a, context), B::from_cpu(b, context), C::from_cpu(c, context))
    }

    fn inspect_results(&self, results: &mut Vec<WgslTensor>) {
        self.0.inspect_results(results);
        self.1.inspect_results(results);
        self.2.inspect_results(results);
    }
}

impl RowOperand for burn_std::BoolDType {
    type Gpu = Self;
    type Cpu = Self;

    fn register(&self, _context: &mut OpContext, _kind: Option<DataKind>) {}

    fn into_gpu(self, _context: &OpContext) -> Self {
        self
    }

    /// burn-flex expects all booleans of an op in one format, and has no 32-bit booleans.
    fn into_cpu(self, _context: &OpContext) -> Self {
        Self::Native
    }
}

impl RowOperand for burn_backend::Scalar {
    type Gpu = Self;
    type Cpu = Self;

    fn register(&self, _context: &mut OpContext, _kind: Option<DataKind>) {}

    fn into_gpu(self, context: &OpContext) -> Self {
        match (context.conversion, context.float) {
            (Conversion::Compare, Some(DType::F16)) => {
                Self::Float(f16::from_f64(self.elem()).into())
            }
            (Conversion::Compare, Some(DType::BF16)) => {
                Self::Float(bf16::from_f64(self.elem()).into())
            }
            _ => self,
        }
    }

    fn into_cpu(self, _context: &OpContext) -> Self {
        self
    }
}

/// Implements [`RowOperand`] for types that are passed on unchanged. The optional function after the
/// type registers its values.
macro_rules! plain_operand {
    ($($type:ty $(: $register:expr)?;)*) => {
        $(impl RowOperand for $type {
            type Gpu = Self;
            type Cpu = Self;

            fn register(&self, _context: &mut OpContext, _kind: Option<DataKind>) {
                $(let register: fn(&$type, &mut OpContext) = $register;
                register(self, _context);)?
            }

            fn into_gpu(self, _context: &OpContext) -> Self {
                self
            }

            fn into_cpu(self, _context: &OpContext) -> Self {
                self
            }
        })*
    };
}

impl RowOperand for burn_std::Shape {
    type Gpu = Self;
    type Cpu = Self;

    fn register(&self, context: &mut OpContext, _kind: Option<DataKind>) {
        check_shape(self, context);
    }

    fn size_result(&self, result: &mut ResultSize) {
        result.add_shape(self.as_slice());
    }

    fn into_gpu(self, _context: &OpContext) -> Self {
        self
    }

    fn into_cpu(self, _context: &OpContext) -> Self {
        self
    }
}

/// Checks that the number of elements of a shape does not overflow.
fn check_shape(shape: &burn_std::Shape, context: &mut OpContext) {
    let (op, shape) = (context.op, shape.as_slice());
    assert!(
        tensor::checked_len(shape).is_some(),
        "{op}: a tensor of shape {shape:?} has too many elements"
    );
}

plain_operand! {
    burn_std::FloatDType: |dtype, context| context.register_requested((*dtype).into());
    burn_std::IntDType: |dtype, context| context.register_requested((*dtype).into());
    &QuantScheme: |scheme, context| context.supported &= kernel_format(scheme).is_some();
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
