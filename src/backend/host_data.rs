//! The border between the program's data and tensors.
//!
//! A [`TensorData`] has public fields and may come from a record, a file or a network: its bytes need not
//! be those that its shape and its type say. [`HostData`] and [`QuantizedData`] can only be created by
//! their checks, and uploads take nothing else. Code behind the border relies on the lengths.

use burn_backend::{DType, TensorData};
use burn_std::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn_std::{BoolStore, Bytes, Shape};
use thiserror::Error;

use crate::cpu::{FlexQTensor, FlexTensor};
use crate::tensor::strided_len;

/// Why data cannot become a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum DataError {
    #[error(
        "the data has {found} bytes, but the shape {shape:?} of {dtype:?} needs {needed}; it was cut off, or \
         its shape or type was changed: create it again"
    )]
    Length { shape: Vec<usize>, dtype: DType, needed: String, found: usize },
    #[error(
        "the shape {shape:?} has more elements than memory can hold; the data is damaged: create it again"
    )]
    TooManyElements { shape: Vec<usize> },
    #[error(
        "the data is {found:?}, but the tensor has {expected} elements; convert it with `TensorData::convert`"
    )]
    Kind { expected: &'static str, found: DType },
    #[error("the data is {found:?}, not quantised")]
    NotQuantized { found: DType },
    #[error(
        "quantised data {value:?} in the store {store:?} cannot be read; use integers of 8, 4 or 2 bits in \
         `QuantStore::Native` or `QuantStore::PackedU32(0)`"
    )]
    Store { value: QuantValue, store: QuantStore },
    #[error(
        "blocks of {block} elements do not divide the {elements} elements of the shape {shape:?}"
    )]
    Blocks { shape: Vec<usize>, elements: usize, block: usize },
}

/// The elements that a tensor of Burn has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataKind {
    Float,
    Int,
    Bool,
}

impl DataKind {
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 | DType::F32 | DType::Flex32 | DType::F16 | DType::BF16 => Some(Self::Float),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8 => Some(Self::Int),
            DType::Bool(_) => Some(Self::Bool),
            DType::QFloat(_) => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int => "integer",
            Self::Bool => "boolean",
        }
    }
}

/// Elements of a tensor: exactly the bytes of its shape and type, which is not quantised.
#[derive(Debug)]
pub(crate) struct HostData(TensorData);

impl HostData {
    /// Checks data of any kind.
    pub fn new(data: TensorData) -> Result<Self, DataError> {
        let TensorData { bytes, shape, dtype } = &data;
        if DataKind::of(*dtype).is_none() {
            return Err(DataError::Kind { expected: "float, integer or boolean", found: *dtype });
        }
        let needed = number_of_elements(shape)?.checked_mul(dtype.size());
        let needed = needed.ok_or_else(|| DataError::TooManyElements { shape: shape.to_vec() })?;
        if bytes.len() != needed {
            return Err(length_error(&data, needed.to_string()));
        }
        Ok(Self(data))
    }

    /// Checks data of elements of a kind.
    pub fn of_kind(data: TensorData, kind: DataKind) -> Result<Self, DataError> {
        if DataKind::of(data.dtype) != Some(kind) {
            return Err(DataError::Kind { expected: kind.name(), found: data.dtype });
        }
        Self::new(data)
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub fn shape(&self) -> &[usize] {
        self.0.shape.as_slice()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    pub fn as_data(&self) -> &TensorData {
        &self.0
    }

    /// Converts the elements, whose number stays the same.
    pub fn convert(self, dtype: DType) -> Self {
        Self(self.0.convert_dtype(dtype))
    }

    /// Returns booleans of any format as bytes 0 and 1. Other numbers than 0 count as 1.
    pub fn bools(&self) -> impl Iterator<Item = u8> + '_ {
        let elements = self.bytes().chunks_exact(self.dtype().size());
        elements.map(|element| u8::from(element.iter().any(|&byte| byte != 0)))
    }

    /// Returns the tensor of the CPU backend. Booleans are in its format, which has one byte.
    pub fn into_flex(self) -> FlexTensor {
        if DataKind::of(self.dtype()) == Some(DataKind::Bool) {
            let bytes: Vec<u8> = self.bools().collect();
            let dtype = DType::Bool(BoolStore::Native);
            return FlexTensor::from_data(TensorData::from_bytes_vec(bytes, self.0.shape, dtype));
        }
        let TensorData { bytes, shape, dtype } = self.0;
        FlexTensor::from_data(TensorData { bytes: aligned(bytes, dtype.size()), shape, dtype })
    }
}

/// Integers and scales of a quantised tensor: an integer for each element, and a scale for each block.
#[derive(Debug)]
pub(crate) struct QuantizedData {
    pub values: Vec<i8>,
    pub scales: Vec<f32>,
    pub shape: Shape,
    pub scheme: QuantScheme,
}

impl QuantizedData {
    /// Checks quantised data, which has the integers first, and then the scales in f32.
    pub fn new(data: TensorData) -> Result<Self, DataError> {
        let DType::QFloat(scheme) = data.dtype else {
            return Err(DataError::NotQuantized { found: data.dtype });
        };
        let elements = number_of_elements(&data.shape)?;
        let scales = number_of_scales(&scheme, &data.shape, elements)?;
        let bits = stored_bits(&scheme)?;
        let packed = (elements.checked_mul(bits)).map(|bits| bits.div_ceil(8));
        let padded = packed.and_then(|bytes| bytes.checked_next_multiple_of(4));
        let scale_bytes = scales.checked_mul(size_of::<f32>());
        let (Some(packed), Some(padded), Some(scale_bytes)) = (packed, padded, scale_bytes) else {
            return Err(DataError::TooManyElements { shape: data.shape.to_vec() });
        };
        // Burn pads packed integers to words where a GPU packed them, and not where the host did.
        let is_packed = !matches!(scheme.store, QuantStore::Native);
        let found = data.bytes.len();
        let fits = |integers: usize| integers.checked_add(scale_bytes) == Some(found);
        let is_valid = fits(packed) || (is_packed && fits(padded));
        if !is_valid {
            let needed = format!("{packed} for integers and {scale_bytes} for scales");
            return Err(length_error(&data, needed));
        }
        let (integers, scales) = data.bytes.split_at(found - scale_bytes);
        let (scales, _) = scales.as_chunks();
        Ok(Self {
            values: unpack(integers, bits, elements),
            scales: scales.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect(),
            shape: data.shape,
            scheme,
        })
    }

    /// Returns the tensor of the CPU backend, which stores a byte for each integer.
    pub fn into_flex(self) -> FlexQTensor {
        let Self { values, scales, shape, scheme } = self;
        let values = FlexTensor::from_data(TensorData::new(values, shape));
        FlexQTensor::new(values, scheme.with_store(QuantStore::Native), scales)
    }
}

fn number_of_elements(shape: &Shape) -> Result<usize, DataError> {
    strided_len(shape.as_slice())
        .ok_or_else(|| DataError::TooManyElements { shape: shape.to_vec() })
}

fn number_of_scales(
    scheme: &QuantScheme,
    shape: &Shape,
    elements: usize,
) -> Result<usize, DataError> {
    match scheme.level {
        QuantLevel::Tensor => Ok(1),
        QuantLevel::Block(block) => {
            let block = block.num_elements();
            let blocks = elements
                .checked_div(block)
                .filter(|&blocks| blocks > 0 && blocks * block == elements);
            blocks.ok_or_else(|| DataError::Blocks { shape: shape.to_vec(), elements, block })
        }
    }
}

/// Returns the bits of an integer in the bytes of the data.
fn stored_bits(scheme: &QuantScheme) -> Result<usize, DataError> {
    let is_integer =
        !matches!(scheme.value, QuantValue::E5M2 | QuantValue::E4M3 | QuantValue::E2M1);
    match scheme.store {
        QuantStore::Native if is_integer => Ok(8),
        QuantStore::PackedU32(0) if is_integer => Ok(scheme.value.size_bits()),
        store => Err(DataError::Store { value: scheme.value, store }),
    }
}

/// Unpacks the first `len` integers of `bits` bits, the first of a byte in its lowest bits.
fn unpack(bytes: &[u8], bits: usize, len: usize) -> Vec<i8> {
    let unused = 8 - bits;
    let integers = bytes.iter().flat_map(|&byte| {
        (0..8).step_by(bits).map(move |low| (byte >> low << unused).cast_signed() >> unused)
    });
    integers.take(len).collect()
}

/// Returns the same bytes at an address that is a multiple of `align`, as burn-flex reads elements.
fn aligned(bytes: Bytes, align: usize) -> Bytes {
    if bytes.as_ptr().addr().is_multiple_of(align) {
        return bytes;
    }
    let mut copy = Bytes::from_elems(Vec::<u64>::new());
    copy.extend_from_byte_slice_aligned(&bytes, align);
    copy
}

fn length_error(data: &TensorData, needed: String) -> DataError {
    let (shape, dtype) = (data.shape.to_vec(), data.dtype);
    DataError::Length { shape, dtype, needed, found: data.bytes.len() }
}
