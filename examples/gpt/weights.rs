//! Forms of the weights of a trained model, for writing text.

use std::fmt;
use std::str::FromStr;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::tensor::backend::Backend;
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{FloatDType, Tensor};

use crate::model::Gpt;

/// The form of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they were trained.
    F32,
    /// All parameters and activations in 16 bits.
    F16,
    /// Weights of linear layers as integers of 8 bits in blocks of 32 that share a scale; the rest in f32.
    Int8,
    /// The same with 4 bits.
    Int4,
}

const FORMS: [(Form, &str); 4] =
    [(Form::F32, "f32"), (Form::F16, "f16"), (Form::Int8, "int8"), (Form::Int4, "int4")];

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (_, name) = FORMS[*self as usize];
        f.write_str(name)
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = FORMS.iter().find(|(_, name)| *name == text).map(|(form, _)| *form);
        form.ok_or_else(|| format!("`{text}` is none of f32, f16, int8 and int4"))
    }
}

/// Elements that share a scale.
const BLOCK: usize = 32;

impl Form {
    /// Returns a model with its weights in this form. Weights whose rows are not whole blocks stay as they are.
    #[must_use]
    pub fn apply<B: Backend>(self, model: Gpt<B>) -> Gpt<B> {
        match self {
            Self::F32 => model,
            Self::F16 => model.map(&mut CastToF16),
            Self::Int8 => quantised(model, QuantValue::Q8S),
            Self::Int4 => quantised(model, QuantValue::Q4S),
        }
    }
}

/// Rounds all parameters to f16.
struct CastToF16;

impl<B: Backend> ModuleMapper<B> for CastToF16 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| tensor.cast(FloatDType::F16))
    }
}

fn quantised<B: Backend>(mut model: Gpt<B>, value: QuantValue) -> Gpt<B> {
    let level = QuantLevel::block([BLOCK as u8]);
    let scheme =
        QuantScheme::default().with_value(value).with_level(level).with_store(QuantStore::Native);
    for Linear { weight, .. } in model.linear_layers() {
        if weight.shape()[1].is_multiple_of(BLOCK) {
            *weight = weight.clone().map(|weight| weight.quantize_dynamic(&scheme));
        }
    }
    model
}
