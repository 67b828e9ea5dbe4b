//! The weights of a model as one list of numbers, in the order in which the model has them.

use std::pin::Pin;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::Wgsl;
use wasm_bindgen::JsError;

use crate::script::{Result, error};

/// Reads the weights of a model.
pub async fn read(model: &impl Module<Wgsl>) -> Result<Vec<f32>> {
    let mut reads = Reads(Vec::new());
    model.visit(&mut reads);
    let mut weights = Vec::new();
    for read in reads.0 {
        weights.extend(read.await?.iter::<f32>());
    }
    Ok(weights)
}

type Read = Pin<Box<dyn Future<Output = Result<TensorData>>>>;

struct Reads(Vec<Read>);

impl ModuleVisitor<Wgsl> for Reads {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Wgsl, D>>) {
        let tensor = param.val();
        self.0.push(Box::pin(async move { tensor.into_data_async().await.map_err(error) }));
    }
}

/// Puts weights in the place of a model's own.
pub fn write<B: Backend, M: Module<B>>(model: M, weights: &[f32], device: &B::Device) -> Result<M> {
    if model.num_params() != weights.len() {
        let (needed, given) = (model.num_params(), weights.len());
        return Err(JsError::new(&format!("the network has {needed} weights, not {given}")));
    }
    Ok(model.map(&mut Writes::<B> { weights, device }))
}

struct Writes<'a, B: Backend> {
    weights: &'a [f32],
    device: &'a B::Device,
}

impl<B: Backend> ModuleMapper<B> for Writes<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let (own, rest) = self.weights.split_at(old.shape().num_elements());
        self.weights = rest;
        let new = Tensor::from_data(TensorData::new(own.to_vec(), old.shape()), self.device);
        Param::from_mapped_value(id, new.set_require_grad(old.is_require_grad()), mapper)
    }
}
