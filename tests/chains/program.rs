//! Programs as plain data, and how they run.
//!
//! A step is an op and one number that all of the op's choices are read from: it makes sense whatever the number and the shape
//! are, so that a failing program can be shrunk freely.

use std::fmt::Debug;

use burn_backend::ops::{BoolTensorOps, IntTensorOps};
use burn_backend::tensor::{Float, Int, Ordered};
use burn_backend::{DType, FloatDType, IntDType, Scalar, Shape, TensorData, TensorPrimitive};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::Tolerance;
use crate::view::View;

/// The most elements that a step may leave.
pub const LARGEST: usize = 2_000;
pub const MAX_RANK: usize = 6;
pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

#[derive(Debug, Clone)]
pub struct Program<O> {
    shape: Vec<usize>,
    seed: u64,
    steps: Vec<Step<O>>,
}

#[derive(Debug, Clone)]
struct Step<O> {
    op: Op<O>,
    choices: u64,
    /// Whether the result is also read at the end. One that is not may be overwritten by the next step, one that is
    /// must not.
    kept: bool,
}

#[derive(Debug, Clone, Copy)]
enum Op<O> {
    View(View),
    Own(O),
}

/// Programs of some ops and of views.
pub fn programs<O: Debug + Clone + Copy + 'static>(
    ops: &'static [O],
) -> impl Strategy<Value = Program<O>> {
    let size = prop_oneof![1 => Just(0), 4 => Just(1), 12 => 2usize..6, 3 => 6usize..40];
    let shape = proptest::collection::vec(size, 1..=MAX_RANK)
        .prop_filter("too many elements", |shape| count(shape) <= LARGEST);
    let op = prop_oneof![select(View::ALL).prop_map(Op::View), select(ops).prop_map(Op::Own)];
    let step = (op, any::<u64>(), prop::bool::weighted(0.25))
        .prop_map(|(op, choices, kept)| Step { op, choices, kept });
    (shape, any::<u64>(), proptest::collection::vec(step, 1..10))
        .prop_map(|(shape, seed, steps)| Program { shape, seed, steps })
}

pub fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The choices of a step: the digits of one number, so that a smaller number makes simpler choices.
pub struct Choices {
    digits: u64,
    random: u64,
}

impl Choices {
    fn new(digits: u64) -> Self {
        let random = digits;
        Self { digits, random }
    }

    pub fn below(&mut self, n: usize) -> usize {
        let digit = self.digits % n as u64;
        self.digits /= n as u64;
        digit as usize
    }

    /// The numbers `0..n` in any order.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for at in 0..n {
            order.swap(at, at + self.below(n - at));
        }
        order
    }

    /// The next number of a SplitMix64 stream: for content, of which there is more than digits.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.random;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Floats or integers.
pub trait Kind: Ordered<Wgsl> {
    const TYPE: DType;

    fn from_int(tensor: WgslTensor) -> Self::Primitive;

    fn from_bool(tensor: WgslTensor) -> Self::Primitive;

    /// Keeps whole floats so small that arithmetic on them is exact. Integers may wrap.
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

/// What the steps of a chain share.
pub struct Chain<'a> {
    pub device: &'a WgslDevice,
    /// The content of fresh tensors, from random bits.
    content: fn(u64) -> f64,
    /// How far apart two devices may be by now.
    pub tolerance: Tolerance,
}

/// The result of a step.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub step: usize,
    pub data: TensorData,
    pub tolerance: Tolerance,
}

/// Runs a program on a device and reads the results that are kept, and the last.
pub fn run<K: Kind, O: Copy>(
    program: &Program<O>,
    device: &WgslDevice,
    content: fn(u64) -> f64,
    own: impl Fn(&mut Chain, O, K::Primitive, &mut Choices) -> K::Primitive,
) -> Vec<Outcome> {
    let mut chain = Chain { device, content, tolerance: EXACT };
    let mut value = chain.fresh::<K>(&program.shape, &mut Choices::new(program.seed));
    let mut kept = Vec::new();
    for (number, step) in program.steps.iter().enumerate() {
        let mut choices = Choices::new(step.choices);
        value = match step.op {
            Op::View(view) => chain.settled::<K>(view.of::<K>(value, &mut choices)),
            Op::Own(op) => own(&mut chain, op, value, &mut choices),
        };
        if step.kept || number + 1 == program.steps.len() {
            kept.push((number, value.clone(), chain.tolerance));
        }
    }
    let outcome = |(step, value, tolerance)| Outcome { step, data: read::<K>(value), tolerance };
    kept.into_iter().map(outcome).collect()
}

fn read<K: Kind>(value: K::Primitive) -> TensorData {
    pollster::block_on(K::into_data_async(value)).expect("it is read back")
}

impl Chain<'_> {
    /// A tensor of random content, whose axes lie in memory in any order.
    pub fn fresh<K: Kind>(&self, shape: &[usize], choices: &mut Choices) -> K::Primitive {
        let axes = choices.order(shape.len());
        let mut stored = vec![0; shape.len()];
        for (axis, &place) in axes.iter().enumerate() {
            stored[place] = shape[axis];
        }
        let content: Vec<f64> =
            (0..count(shape)).map(|_| (self.content)(choices.random())).collect();
        let data = TensorData::new(content, Shape::from(stored)).convert_dtype(K::TYPE);
        self.settled::<K>(K::permute(K::from_data(data, self.device, K::TYPE), &axes))
    }

    /// On the CPU a copy in the order of its axes: burn-flex panics on some views, such as sums of expanded ones.
    fn settled<K: Kind>(&self, view: K::Primitive) -> K::Primitive {
        match self.device {
            WgslDevice::Cpu => K::from_data(read::<K>(view), self.device, K::TYPE),
            _ => view,
        }
    }

    /// A fresh tensor that broadcasts with one of `shape`: either may be the one that is spread.
    pub fn partner<K: Kind>(&self, shape: &[usize], choices: &mut Choices) -> K::Primitive {
        let mut shape = shape.to_vec();
        for axis in 0..shape.len() {
            if shape[axis] == 1 && count(&shape) * 3 <= LARGEST {
                shape[axis] += choices.below(3);
            } else if choices.below(3) == 2 {
                shape[axis] = 1;
            }
        }
        self.fresh::<K>(&shape, choices)
    }

    /// Indices below `n`.
    pub fn indices(&self, shape: &[usize], n: usize, choices: &mut Choices) -> WgslTensor {
        let index = |_| (choices.random() % n as u64) as i32;
        let content: Vec<i32> = (0..count(shape)).map(index).collect();
        Wgsl::int_from_data(TensorData::new(content, Shape::from(shape.to_vec())), self.device)
    }
}
