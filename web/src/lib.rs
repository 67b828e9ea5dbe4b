//! What the pages call. One worker holds all of it; what it gives are plain JavaScript values.
//!
//! Everything waits by awaiting, on a GPU and on the CPU alike.

mod device;
mod digits;
#[cfg(feature = "demos")]
mod files;
#[cfg(feature = "demos")]
mod gpt;
mod parameters;
#[cfg(feature = "demos")]
mod race;
mod script;

#[cfg(feature = "checks")]
mod checks;

// What learns here is what learns in the example.
#[cfg(feature = "demos")]
use ::digits::weights;
use ::digits::{data, dice, learner, model, set};
use wasm_bindgen::prelude::wasm_bindgen;

/// What trains.
type Training = burn::backend::Autodiff<burn_wgsl::Wgsl>;

#[wasm_bindgen]
extern "C" {
    /// The worker tells the page.
    #[wasm_bindgen(js_name = reportPanic)]
    fn report_panic(message: &str);
}

/// Runs once, when the module is loaded.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| report_panic(&panic.to_string())));
}

/// The library's version.
#[wasm_bindgen]
pub fn version() -> String {
    burn_wgsl::VERSION.to_owned()
}

/// The bytes that this module holds, in use or not.
#[wasm_bindgen]
pub fn heap_bytes() -> f64 {
    let memory: js_sys::WebAssembly::Memory =
        wasm_bindgen::JsCast::unchecked_into(wasm_bindgen::memory());
    let buffer: js_sys::ArrayBuffer = wasm_bindgen::JsCast::unchecked_into(memory.buffer());
    f64::from(buffer.byte_length())
}
