//! Values and errors as JavaScript has them.

use serde::Serialize;
use wasm_bindgen::{JsError, JsValue};

/// A result that JavaScript gets.
pub type Result<T> = std::result::Result<T, JsError>;

/// A plain object. Numbers of 64 bits become JavaScript's own.
pub fn object(value: &impl Serialize) -> Result<JsValue> {
    let plain = serde_wasm_bindgen::Serializer::json_compatible();
    value.serialize(&plain).map_err(|error| JsError::new(&error.to_string()))
}

/// An error with its causes.
pub fn error(error: impl Into<anyhow::Error>) -> JsError {
    JsError::new(&format!("{:#}", error.into()))
}

/// Settings, read from an object.
pub fn settings<T: serde::de::DeserializeOwned>(value: JsValue) -> Result<T> {
    serde_wasm_bindgen::from_value(value).map_err(|error| JsError::new(&error.to_string()))
}
