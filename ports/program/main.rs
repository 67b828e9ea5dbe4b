//! Prints the losses of a small CNN on the default device.

use burn::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::default();
    println!("training on {device:?}");
    for (epoch, loss) in program::train(device, 5, usize::MAX)?.into_iter().enumerate() {
        println!("epoch {}: loss {loss:.4}", epoch + 1);
    }
    Ok(())
}
