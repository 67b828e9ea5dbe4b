//! Gradients of a program's own.

use std::fmt::{self, Debug};

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_tensor::{Shape, Tensor, TensorPrimitive};

use super::tensors::float;
use crate::Autodiff;
use crate::autocast::off;
use crate::autodiff::node::node;
use crate::backend::{Wgsl, WgslTensor};

/// Float tensors with gradients: a tuple.
pub trait Differentiable: Sized {
    /// The same tensors without gradients.
    type Inner;
    /// The strategy of checkpointing.
    type Checkpointing: CheckpointStrategy;

    /// See [`with_gradient`].
    fn with_gradient<const D: usize, S: Clone + Send + Debug + 'static>(
        self,
        forward: impl FnOnce(Self::Inner) -> (Tensor<Wgsl, D>, S),
        backward: fn(S, Tensor<Wgsl, D>) -> Self::Inner,
    ) -> Tensor<Autodiff<Wgsl, Self::Checkpointing>, D>;
}

/// Computes a result from tensors, with a gradient of its own.
///
/// `forward` returns the result and what `backward` needs, such as clones of the tensors, which stay in memory until
/// then. `backward` gets that and the gradient of the result, and returns the gradients of the inputs in their order.
/// It must not depend on anything else.
///
/// Both are computed in the types of their tensors: [`autocast`](crate::autocast()) does not change them. Gradients are
/// converted to the types of their inputs.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::custom::with_gradient;
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// // A step, with the gradient of the identity (a "straight-through estimator").
/// let x = Tensor::<Autodiff<Wgsl>, 1>::from_floats([0.2, 0.7], &WgslDevice::default()).require_grad();
/// let rounded = with_gradient((x.clone(),), |(x,)| (x.round(), ()), |(), gradient| (gradient,));
/// let gradients = (rounded * 3.0).sum().backward();
/// let gradient = x.grad(&gradients).unwrap();
/// assert_eq!(gradient.into_data().to_vec::<f32>().unwrap(), [3.0, 3.0]);
/// ```
///
/// # Panics
///
/// The backward pass panics if a gradient has another shape than its input.
pub fn with_gradient<I: Differentiable, S: Clone + Send + Debug + 'static, const D: usize>(
    inputs: I,
    forward: impl FnOnce(I::Inner) -> (Tensor<Wgsl, D>, S),
    backward: fn(S, Tensor<Wgsl, D>) -> I::Inner,
) -> Tensor<Autodiff<Wgsl, I::Checkpointing>, D> {
    inputs.with_gradient(forward, backward)
}

/// What the backward pass of a result needs.
struct State<S, I, const D: usize, const N: usize> {
    kept: S,
    backward: fn(S, Tensor<Wgsl, D>) -> I,
    shapes: [Shape; N],
    dtypes: [DType; N],
}

impl<S: Clone, I, const D: usize, const N: usize> Clone for State<S, I, D, N> {
    fn clone(&self) -> Self {
        let Self { kept, backward, shapes, dtypes } = self;
        Self { kept: kept.clone(), backward: *backward, shapes: shapes.clone(), dtypes: *dtypes }
    }
}

impl<S: Debug, I, const D: usize, const N: usize> Debug for State<S, I, D, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("kept", &self.kept).finish_non_exhaustive()
    }
}

fn primitive<const D: usize>(tensor: Tensor<Wgsl, D>) -> WgslTensor {
    tensor.into_primitive().tensor()
}

/// Panics if a gradient has another shape than its input.
fn check_shapes<const N: usize>(gradients: &[WgslTensor; N], shapes: &[Shape; N]) {
    for (index, (gradient, shape)) in gradients.iter().zip(shapes).enumerate() {
        let found = gradient.shape();
        assert!(
            found == *shape,
            "with_gradient: the gradient of input {index} has the shape {found:?}, but the input \
             has {shape:?}"
        );
    }
}

macro_rules! impl_differentiable {
    ($($count:literal: $($rank:ident $index:tt),*;)*) => {
        $(
            impl<C: CheckpointStrategy, $(const $rank: usize),*> Differentiable
                for ($(Tensor<Autodiff<Wgsl, C>, $rank>,)*)
            {
                type Inner = ($(Tensor<Wgsl, $rank>,)*);
                type Checkpointing = C;

                fn with_gradient<const D: usize, S: Clone + Send + Debug + 'static>(
                    self,
                    forward: impl FnOnce(Self::Inner) -> (Tensor<Wgsl, D>, S),
                    backward: fn(S, Tensor<Wgsl, D>) -> Self::Inner,
                ) -> Tensor<Autodiff<Wgsl, C>, D> {
                    let inputs = [$(self.$index.into_primitive().tensor()),*];
                    let shapes = inputs.each_ref().map(|input| input.primitive.shape());
                    let dtypes = inputs.each_ref().map(|input| input.primitive.dtype());
                    let off = off();
                    let (output, kept) =
                        forward(($(float::<$rank>(inputs[$index].primitive.clone()),)*));
                    drop(off);
                    let state = State { kept, backward, shapes, dtypes };
                    let output = node::<C, State<S, Self::Inner, D, $count>, $count, 0>(
                        inputs,
                        primitive(output),
                        state,
                        |[], state, gradient| {
                            let State { kept, backward, shapes, dtypes } = state;
                            let gradients = backward(kept, float(gradient));
                            let gradients = [$(primitive(gradients.$index)),*];
                            check_shapes(&gradients, &shapes);
                            let mut dtypes = dtypes.into_iter();
                            gradients.map(|gradient| match dtypes.next() {
                                Some(dtype) => Wgsl::float_cast(gradient, dtype.into()),
                                None => gradient,
                            })
                        },
                    );
                    Tensor::from_primitive(TensorPrimitive::Float(output))
                }
            }
        )*
    };
}

impl_differentiable! {
    1: D0 0;
    2: D0 0, D1 1;
    3: D0 0, D1 1, D2 2;
    4: D0 0, D1 1, D2 2, D3 3;
    5: D0 0, D1 1, D2 2, D3 3, D4 4;
    6: D0 0, D1 1, D2 2, D3 3, D4 4, D5 5;
}
