//! Encodes and decodes weights in the file format of the native digits example.

use burn_wgsl::{Wgsl, WgslDevice};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::model::Model;
use crate::script::{Result, js_error};
use crate::{parameters, weights};

/// Encodes the weights of the digits network as a file.
#[wasm_bindgen]
pub fn encode_weights(weights: Vec<f32>) -> Result<Vec<u8>> {
    let model = Model::<Wgsl>::new(&WgslDevice::Cpu);
    weights::to_bytes(parameters::write(model, &weights, &WgslDevice::Cpu)?).map_err(js_error)
}

/// Decodes the weights of the digits network from a file.
///
/// # Errors
///
/// Returns an error if the file does not hold weights of this network.
#[wasm_bindgen]
pub async fn decode_weights(bytes: Vec<u8>) -> Result<Vec<f32>> {
    let model = Model::<Wgsl>::new(&WgslDevice::Cpu);
    parameters::read(
        &weights::from_bytes(model, "the file", bytes, &WgslDevice::Cpu).map_err(js_error)?,
    )
    .await
}
