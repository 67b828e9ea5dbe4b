//! Products with the weights of a file, in the form in which they are kept on the device.

use std::str::FromStr;

use burn::tensor::backend::Backend;
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{DType, Tensor, TensorData};
use burn_wgsl::device::ResolvedDevice;

use crate::blocks::{BlockType, Quantised};

/// The form of the weights on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Integers and scales as the file has them. A product of few tokens reads these.
    Stored,
    F16,
    F32,
}

const FORMS: [(Form, &str); 3] = [(Form::Stored, "stored"), (Form::F16, "f16"), (Form::F32, "f32")];

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = FORMS.iter().find(|(_, name)| *name == text).map(|(form, _)| *form);
        form.ok_or_else(|| "it is none of stored, f16 and f32".to_owned())
    }
}

impl Form {
    /// Returns the form for a device that continues so many sequences, if the user does not choose one. The CPU would
    /// unpack stored weights for each token. It reads f16 faster than f32, but multiplies several tokens by it
    /// in twice the time; WebAssembly has no f16.
    pub fn for_device(device: ResolvedDevice, sequences: usize) -> Self {
        match device {
            ResolvedDevice::Cpu if sequences == 1 && !cfg!(target_arch = "wasm32") => Self::F16,
            ResolvedDevice::Cpu => Self::F32,
            _ => Self::Stored,
        }
    }

    /// Returns the type of activations.
    pub fn activations(self) -> DType {
        if self == Self::F16 { DType::F16 } else { DType::F32 }
    }
}

/// Weights of a file, `[outputs, inputs]`.
#[derive(Debug, Clone)]
pub enum Weights {
    Floats(Vec<f32>),
    Quantised(Quantised),
}

impl Weights {
    /// Reads weights from blocks.
    pub fn new(block_type: BlockType, bytes: &[u8], form: Form) -> Self {
        let has_floats = block_type.elements() == 1;
        match form == Form::Stored && !has_floats {
            true => Self::Quantised(block_type.quantised(bytes)),
            false => Self::Floats(block_type.floats(bytes)),
        }
    }

    fn into_floats(self) -> Vec<f32> {
        match self {
            Self::Floats(floats) => floats,
            Self::Quantised(quantised) => quantised.floats(),
        }
    }

    /// Returns the weights of some outputs, which have `inputs` each.
    fn rows(&self, start: usize, rows: usize, inputs: usize) -> Self {
        let (start, len) = (start * inputs, rows * inputs);
        match self {
            Self::Floats(floats) => Self::Floats(floats[start..start + len].to_vec()),
            Self::Quantised(quantised) => Self::Quantised(quantised.part(start, len)),
        }
    }

    /// Puts the outputs of others after these. All are floats then, unless all are integers of one kind.
    pub fn joined(parts: impl IntoIterator<Item = Self>) -> Self {
        let join = |first: Self, second: Self| match (first, second) {
            (Self::Quantised(mut first), Self::Quantised(second)) if first.is_like(&second) => {
                first.extend(second);
                Self::Quantised(first)
            }
            (first, second) => {
                let mut floats = first.into_floats();
                floats.extend(second.into_floats());
                Self::Floats(floats)
            }
        };
        parts.into_iter().reduce(join).unwrap_or(Self::Floats(Vec::new()))
    }
}

/// A product with weights, without a bias.
#[derive(Debug)]
pub struct Linear<B: Backend> {
    /// The weights of some outputs each: stored weights are read as f32, of which adapters may bind 2^27 bytes only.
    parts: Vec<Part<B>>,
}

/// The most elements of a part.
const MAX_ELEMENTS: usize = 1 << 25;

/// The weights of some outputs.
#[derive(Debug)]
enum Part<B: Backend> {
    /// `[outputs, inputs]`.
    Floats(Tensor<B, 2>),
    Integers {
        /// `[outputs, inputs]`.
        integers: Tensor<B, 2>,
        /// `[outputs, blocks, 1]`.
        minima: Option<Tensor<B, 3>>,
    },
}

impl<B: Backend> Linear<B> {
    /// Uploads weights `[outputs, inputs]`.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer weights, or the device has no memory for them.
    pub fn new(
        weights: Weights,
        [outputs, inputs]: [usize; 2],
        form: Form,
        device: &B::Device,
    ) -> Self {
        let rows = (MAX_ELEMENTS / inputs).clamp(1, outputs);
        let starts = (0..outputs).step_by(rows);
        let part = |start: usize| {
            let rows = rows.min(outputs - start);
            Part::new(weights.rows(start, rows, inputs), [rows, inputs], form, device)
        };
        Self { parts: starts.map(part).collect() }
    }

    /// Returns `[tokens, outputs]` of `[tokens, inputs]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        if let [part] = &self.parts[..] {
            // Without a clone of `x`, the product's kernel can compute a pending `x`.
            return x.matmul(part.weights().transpose());
        }
        let product = |part: &Part<B>| x.clone().matmul(part.weights().transpose());
        Tensor::cat(self.parts.iter().map(product).collect(), 1)
    }
}

impl<B: Backend> Part<B> {
    fn new(
        weights: Weights,
        [outputs, inputs]: [usize; 2],
        form: Form,
        device: &B::Device,
    ) -> Self {
        match weights {
            Weights::Floats(floats) => {
                let data = TensorData::new(floats, [outputs, inputs]);
                let data = data.convert_dtype(form.activations());
                Self::Floats(Tensor::from_data(data, (device, form.activations())))
            }
            Weights::Quantised(Quantised { bits, block, integers, scales, minima }) => {
                let scheme = scheme(bits, block);
                let data = TensorData::quantized(integers, [outputs, inputs], scheme, &scales);
                let minima = minima.map(|minima| {
                    let data = TensorData::new(minima, [outputs, inputs / block, 1]);
                    Tensor::from_data(data, (device, DType::F32))
                });
                Self::Integers { integers: Tensor::from_data(data, device), minima }
            }
        }
    }

    /// Returns the weights, `[outputs, inputs]`, which are pending where the file's are integers: a product of few
    /// tokens reads the integers.
    fn weights(&self) -> Tensor<B, 2> {
        match self {
            Self::Floats(floats) => floats.clone(),
            Self::Integers { integers, minima: None } => integers.clone().dequantize(),
            Self::Integers { integers, minima: Some(minima) } => {
                let ([outputs, inputs], [_, blocks, _]) = (integers.dims(), minima.dims());
                let products =
                    integers.clone().dequantize().reshape([outputs, blocks, inputs / blocks]);
                (products + minima.clone()).reshape([outputs, inputs])
            }
        }
    }
}

/// Returns how integers and scales are stored.
fn scheme(bits: u32, block: usize) -> QuantScheme {
    QuantScheme::default()
        .with_level(QuantLevel::block([block as u8]))
        .with_value(if bits == 4 { QuantValue::Q4S } else { QuantValue::Q8S })
        .with_store(QuantStore::Native)
}
