//! What the port to Burn 0.22 adds to the time of an op.

use burn_tch as port;

#[path = "../../benches/layer.rs"]
mod layer;

fn main() {
    layer::run();
}
