//! Quantised data in words, of which Burn 0.23 begins a new one in each line. Burn 0.21 has one run of words: data is
//! unpacked to a byte for each value.

use burn_backend::quantization::{QuantStore, QuantizedBytes};
use burn_backend::{DType, TensorData};

/// Returns quantised data with a byte for each value.
pub(crate) fn unpacked(data: TensorData) -> TensorData {
    let DType::QFloat(scheme) = data.dtype() else { return data };
    if scheme.store == QuantStore::Native {
        return data;
    }
    let shape = data.shape().clone();
    let bytes = QuantizedBytes { bytes: data.into_bytes(), scheme, shape: shape.clone() };
    let (values, scales) = bytes.into_vec_i8();
    let scheme = scheme.with_store(QuantStore::Native);
    TensorData::quantized(values, shape, scheme, &scales.block, scales.global)
}
