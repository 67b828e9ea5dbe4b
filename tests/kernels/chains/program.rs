//! Random programs as plain data, and the interpreter that runs them.
//!
//! A step is an op and a number from which all of the op's parameters are derived. Every number is
//! valid for every shape, so proptest can shrink a failing program freely.

use std::fmt::Debug;

use burn_backend::ops::{BoolTensorOps, IntTensorOps};
use burn_backend::tensor::{Float, Int, Ordered};
use burn_backend::{DType, FloatDType, IntDType, Scalar, Shape, TensorData, TensorPrimitive};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};
use proptest::prelude::*;
use proptest::sample::select;

use super::view::View;

use crate::common::Tolerance;

/// The largest number of elements in the result of a step.
pub const MAX_ELEMENTS: usize = 1 << 14;
pub const MAX_RANK: usize = 6;
pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

/// Declares an enum of ops with a list of all its variants.
macro_rules! op_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($op:ident),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy)]
        pub enum $name {
            $($op),*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$op),*];
        }
    };
}
pub(crate) use op_enum;

/// A random tensor and the steps that are applied to it in order.
#[derive(Debug, Clone)]
pub struct Program<O> {
    /// The shape of the tensor.
    shape: Vec<usize>,
    /// The seed of its elements and its memory order.
    seed: u64,
    steps: Vec<Step<O>>,
}

#[derive(Debug, Clone)]
struct Step<O> {
    op: Op<O>,
    /// The number from which the op's parameters are derived.
    choices: u64,
    /// Whether the result is read back at the end. Such a result has a second owner, so the next
    /// step must not write its result in place.
    read_back: bool,
}

#[derive(Debug, Clone, Copy)]
enum Op<O> {
    View(View),
    Compute(O),
}

/// Generates programs of views and of the given ops. Half of the shapes have small sizes of any
/// kind. In the others all sizes are multiples of four, some of them large, because many kernels
/// have a fast path for aligned or long axes.
pub fn programs<O: Debug + Clone + Copy + 'static>(
    ops: &'static [O],
) -> impl Strategy<Value = Program<O>> {
    let size = prop_oneof![1 => Just(0), 4 => Just(1), 12 => 2usize..6, 3 => 6usize..40];
    let small = proptest::collection::vec(size, 1..=MAX_RANK)
        .prop_filter("too many elements", |shape| num_elements(shape) <= 2_000);
    let size = prop_oneof![
        6 => select(&[4, 8, 12, 16, 20, 32, 40][..]),
        2 => select(&[64, 80, 128][..]),
        1 => select(&[512, 1200, 4096][..]),
    ];
    let aligned = proptest::collection::vec(size, 1..=4)
        .prop_filter("too many elements", |shape| num_elements(shape) <= MAX_ELEMENTS);
    let shape = prop_oneof![small, aligned];
    let op = prop_oneof![select(View::ALL).prop_map(Op::View), select(ops).prop_map(Op::Compute)];
    let step = (op, any::<u64>(), prop::bool::weighted(0.25))
        .prop_map(|(op, choices, read_back)| Step { op, choices, read_back });
    (shape, any::<u64>(), proptest::collection::vec(step, 1..10))
        .prop_map(|(shape, seed, steps)| Program { shape, seed, steps })
}

pub fn num_elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The parameters of a step, read as the mixed-radix digits of one number. Smaller numbers give
/// simpler parameters, so shrinking works.
pub struct Choices {
    digits: u64,
    /// The state of a SplitMix64 generator.
    random_state: u64,
}

impl Choices {
    fn new(number: u64) -> Self {
        Self { digits: number, random_state: number }
    }

    /// Returns the next parameter, in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        let digit = self.digits % n as u64;
        self.digits /= n as u64;
        digit as usize
    }

    /// Returns a size up to `max`: a small one, or a multiple of four.
    pub fn size_up_to(&mut self, max: usize) -> usize {
        let sizes = [0, 1, 2, 3, 4, 5, 8, 12, 16, 32, 64, 128, 640];
        sizes[self.below(sizes.len())].min(max)
    }

    /// Returns a permutation of `0..n`.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut permutation: Vec<usize> = (0..n).collect();
        for index in 0..n {
            permutation.swap(index, index + self.below(n - index));
        }
        permutation
    }

    /// Returns the next number of a SplitMix64 stream. A tensor has more elements than
    /// the number has digits.
    fn random(&mut self) -> u64 {
        self.random_state = self.random_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.random_state;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The kind of a chain's tensors: float or integer.
pub trait Kind: Ordered<Wgsl> {
    const TYPE: DType;

    fn from_int(tensor: WgslTensor) -> Self::Primitive;

    fn from_bool(tensor: WgslTensor) -> Self::Primitive;

    /// Clamps whole floats to a range in which arithmetic is exact. Returns integers
    /// unchanged: they may wrap.
    fn bounded(tensor: Self::Primitive) -> Self::Primitive;
}

impl Kind for Float {
    const TYPE: DType = DType::F32;

    fn from_int(tensor: WgslTensor) -> TensorPrimitive<Wgsl> {
        TensorPrimitive::Float(Wgsl::int_into_float(tensor, FloatDType::F32))
    }

    fn from_bool(tensor: WgslTensor) -> TensorPrimitive<Wgsl> {
        TensorPrimitive::Float(Wgsl::bool_into_float(tensor, FloatDType::F32))
    }

    fn bounded(tensor: TensorPrimitive<Wgsl>) -> TensorPrimitive<Wgsl> {
        Self::clamp(tensor, Scalar::Int(-64), Scalar::Int(64))
    }
}

impl Kind for Int {
    const TYPE: DType = DType::I32;

    fn from_int(tensor: WgslTensor) -> WgslTensor {
        tensor
    }

    fn from_bool(tensor: WgslTensor) -> WgslTensor {
        Wgsl::bool_into_int(tensor, IntDType::I32)
    }

    fn bounded(tensor: WgslTensor) -> WgslTensor {
        tensor
    }
}

/// The state that the steps of a running program share.
pub struct Chain<'a> {
    pub device: &'a WgslDevice,
    /// Maps random bits to an element of a new tensor.
    element: fn(u64) -> f64,
    /// The difference allowed between two devices after the steps so far.
    pub tolerance: Tolerance,
}

/// A result that was read back.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The index of the step.
    pub step: usize,
    pub data: TensorData,
    /// The difference allowed between two devices.
    pub tolerance: Tolerance,
}

/// Runs a program on a device. Returns the marked results and the last one.
pub fn run<K: Kind, O: Copy>(
    program: &Program<O>,
    device: &WgslDevice,
    element: fn(u64) -> f64,
    compute: impl Fn(&mut Chain, O, K::Primitive, &mut Choices) -> K::Primitive,
) -> Vec<Outcome> {
    let mut chain = Chain { device, element, tolerance: EXACT };
    let mut value = chain.random_tensor::<K>(&program.shape, &mut Choices::new(program.seed));
    let mut results = Vec::new();
    for (index, step) in program.steps.iter().enumerate() {
        let mut choices = Choices::new(step.choices);
        value = match step.op {
            Op::View(view) => chain.packed_on_cpu::<K>(view.apply::<K>(value, &mut choices)),
            Op::Compute(op) => compute(&mut chain, op, value, &mut choices),
        };
        if step.read_back || index + 1 == program.steps.len() {
            results.push((index, value.clone(), chain.tolerance));
        }
    }
    let outcome = |(step, value, tolerance)| Outcome { step, data: read::<K>(value), tolerance };
    results.into_iter().map(outcome).collect()
}

fn read<K: Kind>(value: K::Primitive) -> TensorData {
    pollster::block_on(K::into_data_async(value)).expect("readback succeeds")
}

impl Chain<'_> {
    /// Returns a tensor of random elements with its axes in a random memory order.
    pub fn random_tensor<K: Kind>(&self, shape: &[usize], choices: &mut Choices) -> K::Primitive {
        let axes = choices.permutation(shape.len());
        let mut memory_shape = vec![0; shape.len()];
        for (axis, &memory_axis) in axes.iter().enumerate() {
            memory_shape[memory_axis] = shape[axis];
        }
        let elements: Vec<f64> =
            (0..num_elements(shape)).map(|_| (self.element)(choices.random())).collect();
        let data = TensorData::new(elements, Shape::from(memory_shape)).convert_dtype(K::TYPE);
        self.packed_on_cpu::<K>(K::permute(K::from_data(data, self.device, K::TYPE), &axes))
    }

    /// Returns a packed copy on the CPU and the view itself on a GPU. burn-flex panics on some
    /// views, for example when it sums an expanded one.
    fn packed_on_cpu<K: Kind>(&self, view: K::Primitive) -> K::Primitive {
        match self.device {
            WgslDevice::Cpu => K::from_data(read::<K>(view), self.device, K::TYPE),
            _ => view,
        }
    }

    /// Returns a random tensor that broadcasts with a tensor of `shape`. Either of the two may be
    /// expanded.
    pub fn broadcast_operand<K: Kind>(
        &self,
        shape: &[usize],
        choices: &mut Choices,
    ) -> K::Primitive {
        let mut shape = shape.to_vec();
        for axis in 0..shape.len() {
            if shape[axis] == 1 && num_elements(&shape) * 3 <= MAX_ELEMENTS {
                shape[axis] += choices.below(3);
            } else if choices.below(3) == 2 {
                shape[axis] = 1;
            }
        }
        self.random_tensor::<K>(&shape, choices)
    }

    /// Returns random indices in `0..n`.
    pub fn indices(&self, shape: &[usize], n: usize, choices: &mut Choices) -> WgslTensor {
        let index = |_| (choices.random() % n as u64) as i32;
        let indices: Vec<i32> = (0..num_elements(shape)).map(index).collect();
        Wgsl::int_from_data(TensorData::new(indices, Shape::from(shape.to_vec())), self.device)
    }
}
