//! The readers of a case's arguments, one per kind.

#![expect(non_snake_case, reason = "readers are named after the kinds of the tables")]

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions,
    GridSampleOptions, InterpolateOptions,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{Backend, DType, Scalar, TensorData, get_device_settings};
use burn_std::{BoolDType, FloatDType, IntDType, Slice};

use super::{CaseArguments, Value};
use crate::kernels::ops::cases::{Arg, Fill, Input};
use crate::kernels::ops::options::ScatterOp;
use crate::kernels::random::{PhiloxStream, Sampler, floats, integers};

/// Returns the elements of an input, which are the same for every backend. The position among the
/// arguments is the seed of random elements.
pub fn content(input: &Input, position: usize) -> TensorData {
    let len: usize = input.shape.iter().product();
    let stream = PhiloxStream::new(position as u64 + 1);
    let shape = input.shape.to_vec();
    match input.fill {
        Fill::Normal => {
            let mut values = floats(len, Sampler::Normal { mean: 0.0, deviation: 1.0 }, stream);
            values.iter_mut().skip(5).step_by(17).for_each(|value| *value = 0.0);
            TensorData::new(values, shape)
        }
        Fill::Positive => {
            TensorData::new(floats(len, Sampler::Uniform { low: 0.1, high: 1.1 }, stream), shape)
        }
        Fill::Ints => {
            TensorData::new(integers(len, Sampler::Ints { low: -9, width: 19 }, stream), shape)
        }
        Fill::Below(n) => {
            TensorData::new(integers(len, Sampler::Ints { low: 0, width: n as u32 }, stream), shape)
        }
        Fill::Bools => {
            let bits = integers(len, Sampler::Bernoulli { probability: 0.5 }, stream);
            TensorData::new(bits.into_iter().map(|bit| bit == 1).collect::<Vec<bool>>(), shape)
        }
        Fill::Given(values) => {
            TensorData::new(values.iter().map(|&value| value as i32).collect(), shape)
        }
    }
}

impl<'a, T: Backend> CaseArguments<'a, T> {
    /// Takes the next argument.
    pub(super) fn take(&mut self) -> Arg {
        let arg = self.case.args.get(self.next).copied();
        self.next += 1;
        arg.unwrap_or_else(|| self.wrong("another argument"))
    }

    /// Panics because the last argument is not the expected one.
    pub(super) fn wrong(&self, expected: &str) -> ! {
        panic!("argument {} of {:?} should be {expected}", self.next, self.case)
    }

    pub(super) fn input(&mut self) -> Input {
        match self.take() {
            Arg::Tensor(input) => input,
            _ => self.wrong("a tensor"),
        }
    }

    pub(super) fn inputs(&mut self) -> &'static [Input] {
        match self.take() {
            Arg::Tensors(inputs) => inputs,
            _ => self.wrong("tensors"),
        }
    }

    /// Returns the tensor of an earlier call, or creates it.
    fn get_or_create(
        &mut self,
        position: usize,
        create: impl FnOnce(&mut Self) -> Value<T>,
    ) -> Value<T> {
        let cached = self.inputs.as_ref().and_then(|inputs| inputs.0.get(&position));
        if let Some(value) = cached {
            return value.clone();
        }
        let value = create(self);
        if let Some(inputs) = &mut self.inputs {
            inputs.0.insert(position, value.clone());
        }
        value
    }

    pub(super) fn float(&mut self, input: &Input, position: usize) -> FloatTensor<T> {
        let value = self.get_or_create(position, |args| {
            let data = content(input, position).convert_dtype(args.types.rounded.into());
            let data = data.convert_dtype(args.types.float.into());
            let tensor = T::float_from_data(data, args.device);
            Value::Float(if input.axes.is_empty() {
                tensor
            } else {
                T::float_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Float(tensor) => (self.prepare)(tensor),
            _ => self.wrong("a float tensor"),
        }
    }

    pub(super) fn int(&mut self, input: &Input, position: usize) -> IntTensor<T> {
        let value = self.get_or_create(position, |args| {
            let mut data = content(input, position);
            if DType::from(args.types.int).is_uint() {
                // Unsigned types hold no negative numbers.
                let magnitudes = data.iter::<i32>().map(|x| x.unsigned_abs() as i32);
                data = TensorData::new(magnitudes.collect::<Vec<i32>>(), data.shape.clone());
            }
            let data = data.convert_dtype(args.types.int.into());
            let tensor = T::int_from_data(data, args.device);
            Value::Int(if input.axes.is_empty() {
                tensor
            } else {
                T::int_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Int(tensor) => tensor,
            _ => self.wrong("an integer tensor"),
        }
    }

    pub(super) fn bools(&mut self, input: &Input, position: usize) -> BoolTensor<T> {
        let value = self.get_or_create(position, |args| {
            let tensor = T::bool_from_data(content(input, position), args.device);
            Value::Bool(if input.axes.is_empty() {
                tensor
            } else {
                T::bool_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Bool(tensor) => tensor,
            _ => self.wrong("a boolean tensor"),
        }
    }

    pub(super) fn F(&mut self) -> FloatTensor<T> {
        let input = self.input();
        self.float(&input, self.next)
    }

    pub(super) fn I(&mut self) -> IntTensor<T> {
        let input = self.input();
        self.int(&input, self.next)
    }

    pub(super) fn Indices(&mut self) -> IntTensor<T> {
        self.I()
    }

    pub(super) fn B(&mut self) -> BoolTensor<T> {
        let input = self.input();
        self.bools(&input, self.next)
    }

    /// Reads an argument that may be absent.
    fn optional<V>(&mut self, read: impl FnOnce(&mut Self) -> V) -> Option<V> {
        if self.case.args.get(self.next) == Some(&Arg::Absent) {
            self.next += 1;
            return None;
        }
        Some(read(self))
    }

    pub(super) fn Weight(&mut self) -> FloatTensor<T> {
        self.F()
    }

    pub(super) fn Uncast(&mut self) -> FloatTensor<T> {
        self.F()
    }

    pub(super) fn Bias(&mut self) -> Option<FloatTensor<T>> {
        self.OptF()
    }

    pub(super) fn OptF(&mut self) -> Option<FloatTensor<T>> {
        self.optional(Self::F)
    }

    pub(super) fn OptB(&mut self) -> Option<BoolTensor<T>> {
        self.optional(Self::B)
    }

    /// Reads a list of tensors. Their positions start at 100, above those of single tensors.
    fn list<V>(&mut self, tensor: impl Fn(&mut Self, &Input, usize) -> V) -> Vec<V> {
        let inputs = self.inputs().iter();
        inputs.zip(100..).map(|(input, position)| tensor(self, input, position)).collect()
    }

    pub(super) fn VecF(&mut self) -> Vec<FloatTensor<T>> {
        self.list(Self::float)
    }

    pub(super) fn VecI(&mut self) -> Vec<IntTensor<T>> {
        self.list(Self::int)
    }

    pub(super) fn VecB(&mut self) -> Vec<BoolTensor<T>> {
        self.list(Self::bools)
    }

    pub(super) fn Axis(&mut self) -> usize {
        self.Size()
    }

    pub(super) fn Size(&mut self) -> usize {
        match self.take() {
            Arg::Int(value) => value as usize,
            _ => self.wrong("a size"),
        }
    }

    pub(super) fn OptSize(&mut self) -> Option<usize> {
        match self.take() {
            Arg::Int(value) => Some(value as usize),
            Arg::Absent => None,
            _ => self.wrong("a size or none"),
        }
    }

    pub(super) fn Real(&mut self) -> f64 {
        match self.take() {
            Arg::Float(value) => value,
            _ => self.wrong("a float"),
        }
    }

    pub(super) fn Scalar(&mut self) -> Scalar {
        match self.take() {
            Arg::Int(value) => Scalar::Int(value),
            Arg::Float(value) => Scalar::Float(value),
            Arg::Flag(value) => Scalar::Bool(value),
            _ => self.wrong("a scalar"),
        }
    }

    pub(super) fn Flag(&mut self) -> bool {
        match self.take() {
            Arg::Flag(value) => value,
            _ => self.wrong("a flag"),
        }
    }

    pub(super) fn Axes(&mut self) -> &'static [usize] {
        match self.take() {
            Arg::Sizes(sizes) => sizes,
            _ => self.wrong("sizes"),
        }
    }

    pub(super) fn Shape(&mut self) -> burn_std::Shape {
        burn_std::Shape::from(self.Axes().to_vec())
    }

    pub(super) fn Size2(&mut self) -> [usize; 2] {
        match self.Axes() {
            [first, second] => [*first, *second],
            _ => self.wrong("two sizes"),
        }
    }

    pub(super) fn Range(&mut self) -> std::ops::Range<i64> {
        match (self.take(), self.take()) {
            (Arg::Int(start), Arg::Int(end)) => start..end,
            _ => self.wrong("the bounds of a range"),
        }
    }

    pub(super) fn Slices(&mut self) -> Vec<Slice> {
        match self.take() {
            Arg::Slices(slices) => {
                slices.iter().map(|&(start, end, step)| Slice::new(start, end, step)).collect()
            }
            _ => self.wrong("slices"),
        }
    }

    pub(super) fn Device(&self) -> &'a T::Device {
        self.device
    }

    pub(super) fn FloatType(&mut self) -> FloatDType {
        match self.take() {
            Arg::FloatType => self.types.float,
            _ => self.wrong("the float type"),
        }
    }

    pub(super) fn IntType(&mut self) -> IntDType {
        match self.take() {
            Arg::IntType => self.types.int,
            _ => self.wrong("the integer type"),
        }
    }

    pub(super) fn BoolType(&mut self) -> BoolDType {
        match self.take() {
            Arg::BoolType => get_device_settings::<T>(self.device).bool_dtype,
            _ => self.wrong("the boolean type"),
        }
    }

    pub(super) fn conv<const N: usize>(&mut self) -> ConvOptions<N> {
        match self.take() {
            Arg::Conv(stride, padding, dilation, groups) => ConvOptions::new(
                self.per_axis(stride),
                self.per_axis(padding),
                self.per_axis(dilation),
                groups,
            ),
            _ => self.wrong("convolution options"),
        }
    }

    pub(super) fn conv_transposed<const N: usize>(&mut self) -> ConvTransposeOptions<N> {
        match self.take() {
            Arg::ConvTransposed(stride, padding, output_padding, dilation, groups) => {
                ConvTransposeOptions::new(
                    self.per_axis(stride),
                    self.per_axis(padding),
                    self.per_axis(output_padding),
                    self.per_axis(dilation),
                    groups,
                )
            }
            _ => self.wrong("transposed convolution options"),
        }
    }

    pub(super) fn per_axis<const N: usize>(&self, sizes: &[usize]) -> [usize; N] {
        match sizes.try_into() {
            Ok(sizes) => sizes,
            Err(_) => self.wrong("options with one number per axis"),
        }
    }

    pub(super) fn Unfold(&mut self) -> burn_backend::ops::UnfoldOptions {
        let ConvOptions { stride, padding, dilation, .. } = self.Conv2();
        burn_backend::ops::UnfoldOptions::new(stride, padding, dilation)
    }

    pub(super) fn Conv1(&mut self) -> ConvOptions<1> {
        self.conv()
    }

    pub(super) fn Conv2(&mut self) -> ConvOptions<2> {
        self.conv()
    }

    pub(super) fn Conv3(&mut self) -> ConvOptions<3> {
        self.conv()
    }

    pub(super) fn ConvT1(&mut self) -> ConvTransposeOptions<1> {
        self.conv_transposed()
    }

    pub(super) fn ConvT2(&mut self) -> ConvTransposeOptions<2> {
        self.conv_transposed()
    }

    pub(super) fn ConvT3(&mut self) -> ConvTransposeOptions<3> {
        self.conv_transposed()
    }

    pub(super) fn Deform(&mut self) -> DeformConvOptions<2> {
        match self.take() {
            Arg::Deform(stride, padding, dilation, groups, offset_groups) => {
                DeformConvOptions::new(
                    self.per_axis(stride),
                    self.per_axis(padding),
                    self.per_axis(dilation),
                    groups,
                    offset_groups,
                )
            }
            _ => self.wrong("deformable convolution options"),
        }
    }

    pub(super) fn Interpolate(&mut self) -> InterpolateOptions {
        match self.take() {
            Arg::Interpolate(mode, align_corners) => {
                InterpolateOptions::new(mode.into()).with_align_corners(align_corners)
            }
            _ => self.wrong("interpolation options"),
        }
    }

    pub(super) fn GridSample(&mut self) -> GridSampleOptions {
        match self.take() {
            Arg::GridSample(mode, padding, align_corners) => GridSampleOptions::new(mode.into())
                .with_padding_mode(padding.into())
                .with_align_corners(align_corners),
            _ => self.wrong("grid sampling options"),
        }
    }

    pub(super) fn Attention(&mut self) -> AttentionModuleOptions {
        match self.take() {
            Arg::Attention(scale, softcap, is_causal) => {
                AttentionModuleOptions { scale, softcap, is_causal }
            }
            _ => self.wrong("attention options"),
        }
    }

    pub(super) fn UpdateOp(&mut self) -> IndexingUpdateOp {
        match self.take() {
            Arg::Scatter(ScatterOp::Assign) => IndexingUpdateOp::Assign,
            Arg::Scatter(ScatterOp::Add) => IndexingUpdateOp::Add,
            Arg::Scatter(ScatterOp::Mul) => IndexingUpdateOp::Mul,
            Arg::Scatter(ScatterOp::Min) => IndexingUpdateOp::Min,
            Arg::Scatter(ScatterOp::Max) => IndexingUpdateOp::Max,
            _ => self.wrong("a scatter op"),
        }
    }
}
