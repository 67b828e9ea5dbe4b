//! Burn's tensors as operands and results of kernels.

use burn_backend::{DType, TensorMetadata};
use burn_tensor::{Bool, Float, Int, Tensor, TensorPrimitive};

use crate::backend::{Wgsl, WgslTensor};

/// A tensor that a kernel can read.
pub trait Operand {
    /// Returns the tensor as the backend stores it.
    fn to_primitive(&self) -> WgslTensor;
}

/// The inputs of a kernel: a reference to a tensor, or a tuple, an array or a slice of references.
pub trait Inputs {
    /// Returns the tensors as the backend stores them.
    fn to_primitives(&self) -> Vec<WgslTensor>;
}

/// A tensor that a kernel can write.
pub trait FromTensor: Sized {
    /// Converts the tensor from what the backend stores.
    ///
    /// # Errors
    ///
    /// Returns a message if the rank or the kind of elements differs.
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String>;
}

/// The outputs of a kernel: a tensor, or a tuple of tensors.
pub trait Outputs: Sized {
    /// The number of tensors.
    const COUNT: usize;

    /// Converts the tensors from what the backend stores.
    ///
    /// # Errors
    ///
    /// Returns the index of the first tensor that has another rank or kind of elements, and a message.
    fn from_primitives(tensors: Vec<WgslTensor>) -> Result<Self, (usize, String)>;
}

/// Returns a float tensor of Burn.
pub(super) fn float<const D: usize>(tensor: WgslTensor) -> Tensor<Wgsl, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

impl Operand for WgslTensor {
    fn to_primitive(&self) -> WgslTensor {
        self.clone()
    }
}

impl FromTensor for WgslTensor {
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String> {
        Ok(tensor)
    }
}

impl<const D: usize> Operand for Tensor<Wgsl, D, Float> {
    fn to_primitive(&self) -> WgslTensor {
        self.clone().into_primitive().tensor()
    }
}

impl<const D: usize> Operand for Tensor<Wgsl, D, Int> {
    fn to_primitive(&self) -> WgslTensor {
        self.clone().into_primitive()
    }
}

impl<const D: usize> Operand for Tensor<Wgsl, D, Bool> {
    fn to_primitive(&self) -> WgslTensor {
        self.clone().into_primitive()
    }
}

impl<const D: usize> FromTensor for Tensor<Wgsl, D, Float> {
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String> {
        check::<D>(&tensor, "float", tensor.dtype().is_float())?;
        Ok(float(tensor))
    }
}

impl<const D: usize> FromTensor for Tensor<Wgsl, D, Int> {
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String> {
        check::<D>(&tensor, "integer", tensor.dtype().is_int() || tensor.dtype().is_uint())?;
        Ok(Tensor::from_primitive(tensor))
    }
}

impl<const D: usize> FromTensor for Tensor<Wgsl, D, Bool> {
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String> {
        check::<D>(&tensor, "boolean", matches!(tensor.dtype(), DType::Bool(_)))?;
        Ok(Tensor::from_primitive(tensor))
    }
}

/// Returns a message if a tensor has another rank, or other elements than the caller asks for.
fn check<const D: usize>(tensor: &WgslTensor, kind: &str, is_kind: bool) -> Result<(), String> {
    let (rank, dtype) = (tensor.rank(), tensor.dtype());
    if rank == D && is_kind {
        return Ok(());
    }
    Err(format!(
        "has {rank} axes of {dtype:?}, but the caller asks for {D} axes of {kind} elements"
    ))
}

impl<T: Operand> Inputs for &T {
    fn to_primitives(&self) -> Vec<WgslTensor> {
        vec![(*self).to_primitive()]
    }
}

impl<T: Operand, const N: usize> Inputs for [&T; N] {
    fn to_primitives(&self) -> Vec<WgslTensor> {
        self.iter().map(|tensor| tensor.to_primitive()).collect()
    }
}

impl<T: Operand> Inputs for &[T] {
    fn to_primitives(&self) -> Vec<WgslTensor> {
        self.iter().map(Operand::to_primitive).collect()
    }
}

impl<T: FromTensor> Outputs for T {
    const COUNT: usize = 1;

    fn from_primitives(tensors: Vec<WgslTensor>) -> Result<Self, (usize, String)> {
        let tensor = tensors.into_iter().next();
        let tensor = tensor.ok_or((0, "is missing".to_owned()))?;
        T::from_primitive(tensor).map_err(|message| (0, message))
    }
}

macro_rules! impl_for_tuples {
    ($($count:literal: $($ty:ident $index:tt),*;)*) => {
        $(
            impl<$($ty: Operand),*> Inputs for ($(&$ty,)*) {
                fn to_primitives(&self) -> Vec<WgslTensor> {
                    vec![$(self.$index.to_primitive()),*]
                }
            }

            impl<$($ty: FromTensor),*> Outputs for ($($ty,)*) {
                const COUNT: usize = $count;

                fn from_primitives(tensors: Vec<WgslTensor>) -> Result<Self, (usize, String)> {
                    let mut tensors = tensors.into_iter();
                    Ok(($({
                        let tensor = tensors.next().ok_or(($index, "is missing".to_owned()))?;
                        $ty::from_primitive(tensor).map_err(|message| ($index, message))?
                    },)*))
                }
            }
        )*
    };
}

impl_for_tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, E 3;
    5: A 0, B 1, C 2, E 3, F 4;
    6: A 0, B 1, C 2, E 3, F 4, G 5;
}
