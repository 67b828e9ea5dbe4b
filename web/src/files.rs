//! Weights in the form of a file that the native example reads and writes too.

use burn_wgsl::{Wgsl, WgslDevice};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::model::Model;
use crate::script::{Result, error};
use crate::{parameters, weights};

/// A file of these weights of the digits' network.
#[wasm_bindgen]
pub fn weights_file(weights: Vec<f32>) -> Result<Vec<u8>> {
    let model = Model::<Wgsl>::new(&WgslDevice::Cpu);
    weights::to_bytes(parameters::write(model, &weights, &WgslDevice::Cpu)?).map_err(error)
}

/// The weights in a file, if it is one of the digits' network.
#[wasm_bindgen]
pub async fn file_weights(bytes: Vec<u8>) -> Result<Vec<f32>> {
    let model = Model::<Wgsl>::new(&WgslDevice::Cpu);
    parameters::read(
        &weights::from_bytes(model, "the file", bytes, &WgslDevice::Cpu).map_err(error)?,
    )
    .await
}
