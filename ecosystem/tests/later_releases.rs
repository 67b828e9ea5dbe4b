//! Crates around Burn 0.22 and later.

mod files;
mod onnx;
mod replay;
mod training;

/// What the tests of all releases need under one name.
mod release {
    use burn::tensor::{Int, Tensor};
    use burn_rl::TransitionBuffer;

    pub use burn::tensor::Device;

    /// Tensors without and with gradients.
    pub type States = Tensor<2>;
    pub type Tracked = Tensor<2>;
    pub type Actions = Tensor<2, Int>;
    pub type Buffer = TransitionBuffer<States, States>;

    /// Returns the default device without and with gradients, whose generator begins with a seed.
    pub fn devices(seed: u64) -> [Device; 2] {
        let device = Device::default();
        device.seed(seed);
        [device.clone(), device.autodiff()]
    }
}
