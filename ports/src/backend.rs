//! The backend. Each release's crate exports it under the name that Burn expects there.

use burn_backend::backend::distributed::DistributedOps;
use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::{
    Backend, BackendTypes, DType, DTypeUsage, DTypeUsageSet, ExecutionError, GraphUnsupported,
    TensorData,
};
use burn_backend_021::ops::{TransactionOps as _, TransactionPrimitive as TransactionPrimitive021};
use burn_backend_021::{Backend as _, DTypeUsage as DTypeUsage021};
use burn_wgsl::Wgsl;

use crate::contract::Convert;
use crate::convert::check_scheme;
use crate::device::PortDevice;
use crate::release::other_type;
use crate::tensor::{QuantizedTensor, Tensor};

/// burn-wgsl's backend, in the place of one of Burn's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Port;

impl BackendTypes for Port {
    type Device = PortDevice;
    type FloatTensorPrimitive = Tensor;
    type IntTensorPrimitive = Tensor;
    type BoolTensorPrimitive = Tensor;
    type QuantizedTensorPrimitive = QuantizedTensor;
    type GraphPrimitive = GraphUnsupported;
}

impl Backend for Port {
    fn name(device: &PortDevice) -> String {
        Wgsl::name(&device.0)
    }

    fn seed(device: &PortDevice, seed: u64) {
        Wgsl::seed(&device.0, seed);
    }

    fn sync(device: &PortDevice) -> Result<(), ExecutionError> {
        Wgsl::sync(&device.0).converted()
    }

    /// Commands are submitted when they are many, or something waits for them.
    fn flush(_device: &PortDevice) -> Result<(), ExecutionError> {
        Ok(())
    }

    fn memory_persistent_allocations<
        Output: Send,
        Input: Send,
        Func: Fn(Input) -> Output + Send,
    >(
        device: &PortDevice,
        input: Input,
        func: Func,
    ) -> Output {
        Wgsl::memory_persistent_allocations(&device.0, input, func)
    }

    fn memory_cleanup(device: &PortDevice) {
        Wgsl::memory_cleanup(&device.0);
    }

    fn supports_dtype(device: &PortDevice, dtype: DType) -> bool {
        has_type(dtype) && Wgsl::supports_dtype(&device.0, dtype.converted())
    }

    fn dtype_usage(device: &PortDevice, dtype: DType) -> DTypeUsageSet {
        if !has_type(dtype) {
            return DTypeUsageSet::empty();
        }
        let usages = Wgsl::dtype_usage(&device.0, dtype.converted());
        let usages = usages.iter().map(|usage| match usage {
            DTypeUsage021::Storage => DTypeUsage::Storage,
            DTypeUsage021::Arithmetic => DTypeUsage::Arithmetic,
            DTypeUsage021::Accelerated => DTypeUsage::Accelerated,
        });
        usages.collect()
    }

    fn device_count(type_id: u16) -> usize {
        Wgsl::device_count(other_type(type_id))
    }
}

/// Returns whether burn-wgsl has a type.
fn has_type(dtype: DType) -> bool {
    !matches!(dtype, DType::QFloat(scheme) if check_scheme(&scheme).is_err())
}

impl DistributedOps<Self> for Port {}

backend_of_release!();

impl TransactionOps<Self> for Port {
    async fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let reads = TransactionPrimitive021::new(
            transaction.read_floats.converted(),
            transaction.read_qfloats.converted(),
            transaction.read_ints.converted(),
            transaction.read_bools.converted(),
        );
        let read = Wgsl::tr_execute(reads).await;
        let data =
            |read: Vec<burn_backend_021::TensorData>| -> Vec<TensorData> { read.converted() };
        match read {
            Ok(read) => Ok(TransactionPrimitiveData {
                read_floats: data(read.read_floats),
                read_qfloats: data(read.read_qfloats),
                read_ints: data(read.read_ints),
                read_bools: data(read.read_bools),
            }),
            Err(error) => Err(error.converted()),
        }
    }
}
