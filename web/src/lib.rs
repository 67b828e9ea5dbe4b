//! The functions and classes that the web pages call. They run in a dedicated worker and return
//! plain JavaScript values.
//!
//! Functions that wait for a device are async, for a GPU and for the CPU.

mod device;
mod digits;
#[cfg(feature = "demos")]
mod files;
#[cfg(feature = "demos")]
mod gpt;
#[cfg(feature = "demos")]
mod learn;
mod parameters;
#[cfg(feature = "demos")]
mod race;
mod script;
#[cfg(feature = "text")]
mod text;

#[cfg(feature = "checks")]
mod checks;

// The pages train the model of the digits example.
#[cfg(feature = "demos")]
use ::digits::weights;
use ::digits::{data, learner, model, rng, tensors};
use wasm_bindgen::prelude::wasm_bindgen;

/// The backend that training runs on.
type Training = burn_wgsl::Autodiff<burn_wgsl::Wgsl>;

#[wasm_bindgen]
extern "C" {
    /// Reports a panic to the page. The worker defines this function.
    #[wasm_bindgen(js_name = reportPanic)]
    fn report_panic(message: &str);
}

/// Installs the panic hook. Runs once, when the module is loaded.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| report_panic(&panic.to_string())));
}

/// Returns the version of burn-wgsl.
#[wasm_bindgen]
pub fn version() -> String {
    burn_wgsl::VERSION.to_owned()
}

/// Returns the size of this module's WebAssembly memory in bytes, used or not.
#[wasm_bindgen]
pub fn heap_bytes() -> f64 {
    let memory: js_sys::WebAssembly::Memory =
        wasm_bindgen::JsCast::unchecked_into(wasm_bindgen::memory());
    let buffer: js_sys::ArrayBuffer = wasm_bindgen::JsCast::unchecked_into(memory.buffer());
    f64::from(buffer.byte_length())
}
