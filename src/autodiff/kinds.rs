//! The kinds of the contract's tables for tensors with gradients.

use burn_backend::BackendTypes;

use crate::backend::Wgsl;
pub(super) use crate::backend::kinds::{
    Attention, Axes, Axis, B, BoolType, Conv1, Conv2, Conv3, ConvT1, ConvT2, ConvT3, Deform,
    Device, Flag, FloatType, GridSample, I, II, Indices, IntType, Interpolate, OptB, OptSize, Q,
    Range, Real, Scalar, Scheme, Shape, Size, Size2, Slices, Unfold, UpdateOp, VecB, VecI,
};

/// A float tensor.
pub(super) type F = <burn_autodiff::Autodiff<Wgsl> as BackendTypes>::FloatTensorPrimitive;
/// The weight of a product.
pub(super) type Weight = F;
/// The bias of a product, which autocast leaves alone.
pub(super) type Bias = Option<F>;
/// A float tensor that the op's own gradient converts under autocast.
pub(super) type Uncast = F;
/// An optional float tensor.
pub(super) type OptF = Option<F>;
/// A list of float tensors.
pub(super) type VecF = Vec<F>;
/// A float and an integer tensor.
pub(super) type FI = (F, I);
/// Two float tensors.
pub(super) type FF = (F, F);
