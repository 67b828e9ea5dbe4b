//! Reads and writes the weights of a model as one flat list, in the order of its parameters.

use std::pin::Pin;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::Wgsl;
use wasm_bindgen::JsError;

use crate::script::{Result, js_error};

/// Reads back all weights of a model.
pub async fn read(model: &impl Module<Wgsl>) -> Result<Vec<f32>> {
    let mut reader = Reader { readbacks: Vec::new() };
    model.visit(&mut reader);
    let mut weights = Vec::new();
    for readback in reader.readbacks {
        weights.extend(readback.await?.iter::<f32>());
    }
    Ok(weights)
}

type Readback = Pin<Box<dyn Future<Output = Result<TensorData>>>>;

/// Collects the readback of every float parameter.
struct Reader {
    readbacks: Vec<Readback>,
}

impl ModuleVisitor<Wgsl> for Reader {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Wgsl, D>>) {
        let tensor = param.val();
        self.readbacks
            .push(Box::pin(async move { tensor.into_data_async().await.map_err(js_error) }));
    }
}

/// Replaces all weights of a model.
///
/// # Errors
///
/// Returns an error if the length of `weights` differs from the model's number of weights.
pub fn write<B: Backend, M: Module<B>>(model: M, weights: &[f32], device: &B::Device) -> Result<M> {
    if model.num_params() != weights.len() {
        let (expected, found) = (model.num_params(), weights.len());
        return Err(JsError::new(&format!(
            "{found} weights were given; the network has {expected}"
        )));
    }
    Ok(model.map(&mut Writer::<B> { weights, device }))
}

/// Replaces every float parameter by the next weights of a list.
struct Writer<'a, B: Backend> {
    /// The weights not yet written.
    weights: &'a [f32],
    device: &'a B::Device,
}

impl<B: Backend> ModuleMapper<B> for Writer<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let (values, rest) = self.weights.split_at(old.shape().num_elements());
        self.weights = rest;
        let new = Tensor::from_data(TensorData::new(values.to_vec(), old.shape()), self.device);
        Param::from_mapped_value(id, new.set_require_grad(old.is_require_grad()), mapper)
    }
}
