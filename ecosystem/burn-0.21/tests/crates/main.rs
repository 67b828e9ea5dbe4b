//! Crates around Burn 0.21 that the other tests do not use. burn-train is in the example `learner`, burn-vision in the
//! tests of the crate.

mod exchange;
#[path = "../../../tests/replay.rs"]
mod replay;

/// What the tests of all releases need under one name.
mod release {
    use burn::tensor::backend::Backend;
    use burn::tensor::{Int, Tensor};
    use burn_rl::TransitionBuffer;
    use burn_wgsl::{Autodiff, Wgsl};

    pub use burn_wgsl::WgslDevice as Device;

    /// Tensors without and with gradients.
    pub type States = Tensor<Wgsl, 2>;
    pub type Tracked = Tensor<Autodiff<Wgsl>, 2>;
    pub type Actions = Tensor<Autodiff<Wgsl>, 2, Int>;
    pub type Buffer = TransitionBuffer<Wgsl, States, States>;

    /// Returns the default device without and with gradients, whose generator begins with a seed.
    pub fn devices(seed: u64) -> [Device; 2] {
        Wgsl::seed(&Device::default(), seed);
        [Device::default(); 2]
    }
}
