//! Where an op runs: the one place that decides between a kernel and the CPU twin.
//!
//! Every operand of an op is shown to a [`Site`]. It finds the device, refuses a mix of devices, and
//! knows whether a kernel can take the operands. The rest is conversion: each kind of operand knows how
//! it looks to a kernel and to the twin ([`Operand`]), and each kind of result how it comes back
//! ([`Outcome`]).

use std::sync::Arc;

use burn_backend::ops::{IntTensorOps, QTensorOps};
use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_flex::{Flex, FlexDevice, FlexQTensor, FlexTensor};
use burn_std::quantization::QuantScheme;
use half::{bf16, f16};

use super::data::{from_data, may_fall_back, read_now};
use super::fallback;
use super::quantized::{quantized_from_data, read_quantized_now, twin_data};
use super::tensor::{
    GpuQuantized, Home, QuantizedHome, WgslQuantizedTensor, WgslTensor, burn_dtype, kernel_format, stored_dtype,
};
use crate::device::{Place, WgslDevice};
use crate::kernels::cast;
use crate::runtime::Runtime;
use crate::tensor::Tensor;

/// Ends an op that cannot be done. Burn's ops have no error to return.
pub(crate) fn refuse(op: &str, device: &WgslDevice, error: &dyn std::fmt::Display) -> ! {
    panic!("{op} on {device}: {error}")
}

/// Where a device is, for an op that was asked for there.
pub(crate) fn place(device: &WgslDevice, op: &str) -> Place {
    device.place().unwrap_or_else(|error| refuse(op, device, &error))
}

/// The opened GPU of a device; `None` for the CPU.
pub(crate) fn runtime(device: &WgslDevice, op: &str) -> Option<Arc<Runtime>> {
    match place(device, op) {
        Place::Cpu => None,
        Place::Adapter(index) => Some(Runtime::of(index).unwrap_or_else(|error| refuse(op, device, &error))),
    }
}

/// What is known of an op from the operands seen so far.
#[derive(Clone, Copy)]
pub(crate) struct Site {
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

impl Site {
    /// Whether this build has the CPU twin; where it has not, what calls it is left out.
    pub const HAS_TWIN: bool = cfg!(feature = "twin");

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
    pub fn show_indices(&mut self, indices: &WgslTensor) {
        let (integer, rank) = (self.integer.take(), self.rank.take());
        indices.show(self);
        (self.integer, self.rank) = (integer, rank);
    }

    fn at(&mut self, device: &WgslDevice) {
        match &self.device {
            None => self.device = Some(*device),
            Some(first) if first == device => {}
            Some(first) => {
                let op = self.op;
                if place(first, op) != place(device, op) {
                    panic!("{op}: tensors are on two devices, {first} and {device}; move one with to_device");
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
    pub fn takes_kernel(&self) -> bool {
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
        cast::computed(tensor).unwrap_or_else(|error| refuse(self.op, &self.device(), &error))
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
                cast::cast(tensor, stored).unwrap_or_else(|error| refuse(self.op, &self.device(), &error))
            }
        }
    }

    fn on_gpu(&self) -> bool {
        place(&self.device(), self.op) != Place::Cpu
    }

    /// What a kernel computed, as the op's result.
    pub fn computed<R: Outcome>(&self, result: crate::tensor::Result<R::Gpu>) -> R {
        match result {
            Ok(value) => R::from_gpu(value, self),
            Err(error) => refuse(self.op, &self.device(), &error),
        }
    }

    /// Ends an op that only the twin could compute.
    pub fn has_no_twin(&self) -> ! {
        panic!(
            "{}: no kernel takes these tensors, and this build has no CPU twin (the crate's feature `twin`)",
            self.op
        )
    }

    /// Notes that the twin is about to run.
    pub fn falls_back(&self) {
        if self.on_gpu() {
            fallback::count(self.op);
        }
    }
}

/// Notes the type of an operand; of one kind all have the same.
fn alike(seen: &mut Option<DType>, dtype: DType, op: &str) {
    let first = *seen.get_or_insert(dtype);
    assert!(first == dtype, "{op}: operands of types {first:?} and {dtype:?}; cast one to the other's");
}

/// An operand of an op, as Burn gives it.
pub(crate) trait Operand: Sized {
    /// How a kernel's launcher takes it.
    type Gpu;
    /// How the twin takes it.
    type Twin;
    /// Shows the operand to the site.
    fn show(&self, site: &mut Site);
    /// For the launcher. Only called when every operand is native.
    fn into_gpu(self, site: &Site) -> Self::Gpu;
    /// For the twin, reading back what is on the GPU.
    fn into_twin(self, site: &Site) -> Self::Twin;
}

/// A result of an op.
pub(crate) trait Outcome: Sized {
    /// What a launcher returns for it.
    type Gpu;
    /// What the twin returns for it.
    type Twin;
    fn from_gpu(value: Self::Gpu, site: &Site) -> Self;
    fn from_twin(value: Self::Twin, site: &Site) -> Self;
}

impl Operand for WgslTensor {
    type Gpu = Tensor;
    type Twin = FlexTensor;

    fn show(&self, site: &mut Site) {
        site.at(&self.device);
        site.native &= matches!(self.home, Home::Gpu(_));
        site.rank = site.rank.or(Some(self.rank()));
        let dtype = self.dtype();
        site.wide |= matches!(dtype, DType::I64 | DType::U64);
        match dtype {
            DType::Bool(_) => {}
            dtype if dtype.is_float() => alike(&mut site.float, dtype, site.op),
            dtype => alike(&mut site.integer, dtype, site.op),
        }
    }

    fn into_gpu(self, site: &Site) -> Tensor {
        match self.home {
            Home::Gpu(tensor) => site.operand(tensor),
            // The site has seen that there is none; said again rather than assumed.
            Home::Cpu(tensor) => panic!("{}: no kernel takes {:?}", site.op, tensor.dtype()),
        }
    }

    fn into_twin(self, site: &Site) -> FlexTensor {
        match self.home {
            Home::Cpu(tensor) => tensor,
            home => {
                may_fall_back(site.op);
                FlexTensor::from_data(read_now(WgslTensor { home, ..self }, site.op))
            }
        }
    }
}

impl Outcome for WgslTensor {
    type Gpu = Tensor;
    type Twin = FlexTensor;

    fn from_gpu(tensor: Tensor, site: &Site) -> Self {
        Self { device: site.device(), home: Home::Gpu(site.result(tensor)) }
    }

    fn from_twin(tensor: FlexTensor, site: &Site) -> Self {
        let device = site.device();
        // The twin counts in 64 bits; what comes of operands of 32 bits keeps to those.
        let tensor = if tensor.dtype() == DType::I64 && !site.wide {
            Flex::int_cast(tensor, burn_std::IntDType::I32)
        } else {
            tensor
        };
        if !site.on_gpu() {
            return Self { device, home: Home::Cpu(tensor) };
        }
        from_data(tensor.into_data(), &device, site.op)
    }
}

impl Operand for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Twin = FlexQTensor;

    fn show(&self, site: &mut Site) {
        site.at(&self.device);
        site.rank = site.rank.or(Some(self.rank()));
        site.native &= matches!(self.home, QuantizedHome::Gpu(_));
    }

    fn into_gpu(self, site: &Site) -> GpuQuantized {
        match self.home {
            QuantizedHome::Gpu(tensor) => *tensor,
            QuantizedHome::Cpu(tensor) => {
                panic!("{}: no kernel takes {:?}", site.op, tensor.dtype())
            }
        }
    }

    fn into_twin(self, site: &Site) -> FlexQTensor {
        match self.home {
            QuantizedHome::Cpu(tensor) => tensor,
            home => {
                may_fall_back(site.op);
                Flex::q_from_data(read_quantized_now(Self { home, ..self }, site.op), &FlexDevice)
            }
        }
    }
}

impl Outcome for WgslQuantizedTensor {
    type Gpu = GpuQuantized;
    type Twin = FlexQTensor;

    fn from_gpu(tensor: GpuQuantized, site: &Site) -> Self {
        Self { device: site.device(), home: QuantizedHome::Gpu(Box::new(tensor)) }
    }

    fn from_twin(tensor: FlexQTensor, site: &Site) -> Self {
        if site.on_gpu() && kernel_format(tensor.scheme()).is_some() {
            return quantized_from_data(twin_data(tensor), &site.device(), site.op);
        }
        Self { device: site.device(), home: QuantizedHome::Cpu(tensor) }
    }
}

impl Operand for &WgslDevice {
    type Gpu = Arc<Runtime>;
    type Twin = &'static burn_flex::FlexDevice;

    fn show(&self, site: &mut Site) {
        site.at(self);
    }

    fn into_gpu(self, site: &Site) -> Arc<Runtime> {
        match runtime(self, site.op) {
            Some(runtime) => runtime,
            None => panic!("{}: {self} has no GPU", site.op),
        }
    }

    fn into_twin(self, _site: &Site) -> Self::Twin {
        &burn_flex::FlexDevice
    }
}

impl<T: Operand> Operand for Option<T> {
    type Gpu = Option<T::Gpu>;
    type Twin = Option<T::Twin>;

    fn show(&self, site: &mut Site) {
        if let Some(operand) = self {
            operand.show(site);
        }
    }

    fn into_gpu(self, site: &Site) -> Self::Gpu {
        self.map(|operand| operand.into_gpu(site))
    }

    fn into_twin(self, site: &Site) -> Self::Twin {
        self.map(|operand| operand.into_twin(site))
    }
}

impl<T: Operand> Operand for Vec<T> {
    type Gpu = Vec<T::Gpu>;
    type Twin = Vec<T::Twin>;

    fn show(&self, site: &mut Site) {
        self.iter().for_each(|operand| operand.show(site));
    }

    fn into_gpu(self, site: &Site) -> Self::Gpu {
        self.into_iter().map(|operand| operand.into_gpu(site)).collect()
    }

    fn into_twin(self, site: &Site) -> Self::Twin {
        self.into_iter().map(|operand| operand.into_twin(site)).collect()
    }
}

impl<A: Outcome, B: Outcome> Outcome for (A, B) {
    type Gpu = (A::Gpu, B::Gpu);
    type Twin = (A::Twin, B::Twin);

    fn from_gpu(value: Self::Gpu, site: &Site) -> Self {
        // The second of two integer results is where the first was found.
        let second = Site { integer: None, ..*site };
        (A::from_gpu(value.0, site), B::from_gpu(value.1, &second))
    }

    fn from_twin(value: Self::Twin, site: &Site) -> Self {
        (A::from_twin(value.0, site), B::from_twin(value.1, site))
    }
}

impl Operand for burn_std::BoolDType {
    type Gpu = Self;
    type Twin = Self;

    fn show(&self, _site: &mut Site) {}

    fn into_gpu(self, _site: &Site) -> Self {
        self
    }

    /// The twin wants all truth values of an op stored alike, and knows no words.
    fn into_twin(self, _site: &Site) -> Self {
        Self::Native
    }
}

impl Operand for burn_backend::Scalar {
    type Gpu = Self;
    type Twin = Self;

    fn show(&self, _site: &mut Site) {}

    fn into_gpu(self, site: &Site) -> Self {
        match (site.types, site.float) {
            (Types::Compared, Some(DType::F16)) => Self::Float(f16::from_f64(self.elem()).into()),
            (Types::Compared, Some(DType::BF16)) => Self::Float(bf16::from_f64(self.elem()).into()),
            _ => self,
        }
    }

    fn into_twin(self, _site: &Site) -> Self {
        self
    }
}

/// Operands that look the same to everyone, and what a site takes note of.
macro_rules! plain_operand {
    ($($type:ty $(: $note:expr)?;)*) => {
        $(impl Operand for $type {
            type Gpu = Self;
            type Twin = Self;

            fn show(&self, _site: &mut Site) {
                $(let note: fn(&$type, &mut Site) = $note;
                note(self, _site);)?
            }

            fn into_gpu(self, _site: &Site) -> Self {
                self
            }

            fn into_twin(self, _site: &Site) -> Self {
                self
            }
        })*
    };
}

/// The type a result is asked for in: a device's kernels may not know it.
fn asked(dtype: DType, site: &mut Site) {
    site.wide |= matches!(dtype, DType::I64 | DType::U64);
    site.asked = Some(dtype);
}

/// A shape whose elements cannot be counted is refused before anyone multiplies.
fn countable(shape: &burn_std::Shape, site: &mut Site) {
    let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    let op = site.op;
    assert!(len.is_some(), "{op}: no memory has the elements of a tensor of shape {shape:?}");
}

plain_operand! {
    burn_std::FloatDType: |dtype, site| asked((*dtype).into(), site);
    burn_std::IntDType: |dtype, site| asked((*dtype).into(), site);
    burn_std::Shape: countable;
    &QuantScheme: |scheme, site| site.native &= kernel_format(scheme).is_some();
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
