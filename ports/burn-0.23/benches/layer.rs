//! What the port to Burn 0.23 adds to the time of an op.

use burn_flex as port;

#[path = "../../benches/layer.rs"]
mod layer;

fn main() {
    layer::run();
}
