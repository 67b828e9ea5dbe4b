//! Burn's automatic differentiation with gradient kernels.
//!
//! [`Autodiff`] wraps `burn_autodiff::Autodiff`: both have the same tensors and the same graph.
//! Methods whose gradients Burn computes well are passed on (`delegate.rs`). The other modules
//! replace those that Burn composes from many small ops, does not differentiate, or differentiates
//! wrongly: each computes its result with the backend and adds one node to the graph (`node.rs`).

mod attention;
mod batch_norm;
mod cast;
mod delegate;
mod fft;
mod graph;
mod grid_sample;
mod kinds;
pub(crate) mod node;
mod norm;
mod notes;
mod product;
#[cfg(feature = "train")]
pub(crate) mod relay;
mod slice;
mod softmax;
mod topk;

use std::marker::PhantomData;

use burn_autodiff::Autodiff as BurnAutodiff;
pub(crate) use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_backend::backend::AutodiffBackend;
use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::{Backend, BackendTypes, DType, DTypeUsageSet, ExecutionError, TensorData};

use crate::autocast::{off, wide_gradients};
use crate::backend::{Wgsl, WgslQuantizedTensor, WgslTensor};
use crate::device::WgslDevice;
use crate::runtime::scope;
use cast::{clear_copies, has_converted};
use kinds::F;

/// A backend that trains: [`Wgsl`] with gradients.
///
/// It replaces `burn::backend::Autodiff`, has the same tensors, and trains the same programs:
///
/// ```
/// use burn::tensor::{Tensor, activation};
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// type B = Autodiff<Wgsl>;
///
/// let device = WgslDevice::default();
/// let x = Tensor::<B, 2>::from_floats([[0.0, 0.0]], &device).require_grad();
/// let first = activation::softmax(x.clone(), 1).slice([0..1, 0..1]);
/// let grads = first.sum().backward();
/// let grad = x.grad(&grads).unwrap();
/// assert_eq!(grad.into_data().to_vec::<f32>().unwrap(), [0.25, -0.25]);
/// ```
///
/// It differs from Burn's in these ops:
///
/// | ops | here | in Burn |
/// |---|---|---|
/// | `softmax`, `log_softmax`, `layer_norm` | a kernel each way | composed of 5 to 13 ops each way |
/// | `attention`, unless its bias has a gradient | kernels that store no scores | composed of 10 to 15 ops each way |
/// | on GPUs, products and a softmax that are attention | the same | op by op |
/// | [`rms_norm`](Self::rms_norm) | a kernel each way | composed |
/// | batch normalisation on GPUs, as Burn composes it | 3 passes each way; keeps `x` | 5 and 8; keeps 4 tensors |
/// | `prod`, `prod_dim` | right for zeros and negative numbers too | NaN for them |
/// | `cumprod` | right for zeros too | NaN for them |
/// | `topk`, `rfft`, `irfft`, `grid_sample_2d` in the nearest and bicubic modes | have gradients | panic |
///
/// On software adapters, attention with many scores stores them, in blocks.
///
/// `C` is Burn's checkpointing strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Autodiff<B, C = NoCheckpointing>(PhantomData<(B, C)>);

impl<C: CheckpointStrategy> BackendTypes for Autodiff<Wgsl, C> {
    type Device = WgslDevice;
    type FloatTensorPrimitive = F;
    type FloatElem = f32;
    type IntTensorPrimitive = WgslTensor;
    type IntElem = i32;
    type BoolTensorPrimitive = WgslTensor;
    type BoolElem = bool;
    type QuantizedTensorPrimitive = WgslQuantizedTensor;
}

impl<C: CheckpointStrategy> Backend for Autodiff<Wgsl, C> {
    fn ad_enabled(_device: &WgslDevice) -> bool {
        true
    }

    fn name(device: &WgslDevice) -> String {
        BurnAutodiff::<Wgsl, C>::name(device)
    }

    fn seed(device: &WgslDevice, seed: u64) {
        Wgsl::seed(device, seed);
    }

    fn sync(device: &WgslDevice) -> Result<(), ExecutionError> {
        Wgsl::sync(device)
    }

    fn memory_persistent_allocations<
        Output: Send,
        Input: Send,
        Func: Fn(Input) -> Output + Send,
    >(
        device: &WgslDevice,
        input: Input,
        func: Func,
    ) -> Output {
        Wgsl::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &WgslDevice) {
        Wgsl::memory_cleanup(device);
    }

    fn staging<'a, Iter>(data: Iter, device: &WgslDevice)
    where
        Iter: Iterator<Item = &'a mut TensorData>,
    {
        Wgsl::staging(data, device);
    }

    fn supports_dtype(device: &WgslDevice, dtype: DType) -> bool {
        Wgsl::supports_dtype(device, dtype)
    }

    fn dtype_usage(device: &WgslDevice, dtype: DType) -> DTypeUsageSet {
        Wgsl::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        Wgsl::device_count(type_id)
    }
}

impl<C: CheckpointStrategy> AutodiffBackend for Autodiff<Wgsl, C> {
    type InnerBackend = Wgsl;
    type Gradients = Gradients;

    fn backward(tensor: F) -> Gradients {
        let _scope = scope("backward");
        clear_copies();
        batch_norm::clear();
        attention::clear();
        // The types are those of the forward pass.
        let _off = off();
        let _wide = has_converted().then(wide_gradients);
        graph::backward(tensor, BurnAutodiff::<Wgsl, C>::backward)
    }

    fn grad(tensor: &F, grads: &Gradients) -> Option<WgslTensor> {
        BurnAutodiff::<Wgsl, C>::grad(tensor, grads)
    }

    fn grad_remove(tensor: &F, grads: &mut Gradients) -> Option<WgslTensor> {
        BurnAutodiff::<Wgsl, C>::grad_remove(tensor, grads)
    }

    fn grad_replace(tensor: &F, grads: &mut Gradients, grad: WgslTensor) {
        BurnAutodiff::<Wgsl, C>::grad_replace(tensor, grads, grad);
    }

    fn inner(tensor: F) -> WgslTensor {
        BurnAutodiff::<Wgsl, C>::inner(tensor)
    }

    fn from_inner(tensor: WgslTensor) -> F {
        BurnAutodiff::<Wgsl, C>::from_inner(tensor)
    }

    fn int_inner(tensor: WgslTensor) -> WgslTensor {
        tensor
    }

    fn int_from_inner(tensor: WgslTensor) -> WgslTensor {
        tensor
    }

    fn bool_inner(tensor: WgslTensor) -> WgslTensor {
        tensor
    }

    fn bool_from_inner(tensor: WgslTensor) -> WgslTensor {
        tensor
    }

    fn q_inner(tensor: WgslQuantizedTensor) -> WgslQuantizedTensor {
        tensor
    }

    fn q_from_inner(tensor: WgslQuantizedTensor) -> WgslQuantizedTensor {
        tensor
    }
}

impl<C: CheckpointStrategy> TransactionOps<Self> for Autodiff<Wgsl, C> {
    async fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let floats = transaction.read_floats.into_iter().map(|tensor| tensor.primitive);
        Wgsl::tr_execute(TransactionPrimitive::new(
            floats.collect(),
            transaction.read_qfloats,
            transaction.read_ints,
            transaction.read_bools,
        ))
        .await
    }
}
