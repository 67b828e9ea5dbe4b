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

// The example's own network, data and files: what learns here is what learns there.
#[path = "../../examples/digits/data.rs"]
#[allow(dead_code, reason = "reading from a file system is the example's own")]
mod data;
#[path = "../../examples/digits/dice.rs"]
mod dice;
#[path = "../../examples/digits/learner.rs"]
mod learner;
#[path = "../../examples/digits/model.rs"]
mod model;
#[path = "../../examples/digits/set.rs"]
mod set;
#[cfg(feature = "demos")]
#[path = "../../examples/digits/weights.rs"]
mod weights;

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
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::JsCast::unchecked_into(wasm_bindgen::memory());
    let buffer: js_sys::ArrayBuffer = wasm_bindgen::JsCast::unchecked_into(memory.buffer());
    f64::from(buffer.byte_length())
}
