//! Rotary embeddings: neighbouring elements of queries and keys are rotated by an angle that grows with the position.
//! (J. Su et al., RoFormer, 2021.)

use std::f64::consts::TAU;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::config::Config;

/// The angles of all positions, for the heads of queries, keys and values side by side. Values are not rotated.
#[derive(Debug)]
pub struct Rotary<B: Backend> {
    /// `[positions, groups * head width]`: the angle of each element of a head, for each group of heads. The first of
    /// two neighbours has the negative angle: its cosine is the same, and its sine is that with a minus.
    angles: Tensor<B, 2>,
}

/// The rotation of some positions.
#[derive(Debug, Clone)]
pub struct Rotation<B: Backend> {
    /// The cosines and sines of the angles, `[tokens, groups, heads, pairs, 2]`.
    cosines: Tensor<B, 5>,
    sines: Tensor<B, 5>,
}

impl<B: Backend> Rotary<B> {
    /// Computes the angles of so many positions.
    pub fn new(config: &Config, positions: usize, device: &B::Device) -> Self {
        let (groups, width) = (groups(config), config.head_width());
        let frequencies: Vec<f64> = (0..width)
            .map(|element| config.theta.powf(-((element / 2 * 2) as f64) / width as f64))
            .collect();
        let mut angles = Vec::with_capacity(positions * groups * width);
        for position in 0..positions {
            let of_head = frequencies.iter().enumerate().map(|(element, frequency)| {
                // Less whole turns: large angles would lose digits in f32.
                let angle = position as f64 * frequency;
                let angle = angle - TAU * (angle / TAU).round();
                if element % 2 == 0 { -angle as f32 } else { angle as f32 }
            });
            let of_head: Vec<f32> = of_head.collect();
            (1..groups).for_each(|_| angles.extend(&of_head));
            angles.extend(std::iter::repeat_n(0.0, width));
        }
        let data = TensorData::new(angles, [positions, groups * width]);
        Self { angles: Tensor::from_data(data, (device, DType::F32)) }
    }

    /// Returns the rotation of `positions`, for tensors of type `dtype`.
    pub fn at(&self, positions: Tensor<B, 1, Int>, dtype: DType, config: &Config) -> Rotation<B> {
        let [tokens] = positions.dims();
        let rows = self.angles.clone().select(0, positions);
        let rows = rows.reshape([tokens, groups(config), 1, config.head_width() / 2, 2]);
        // One for each head, once for all layers.
        let angles = rows.repeat_dim(2, config.kv_heads);
        Rotation { cosines: angles.clone().cos().cast(dtype), sines: angles.sin().cast(dtype) }
    }
}

impl<B: Backend> Rotation<B> {
    /// Rotates the heads of queries and keys in `[tokens, all heads * head width]`. Returns the queries, and the keys
    /// and values: `[tokens, heads, head width]`. Both are pending: a kernel that can compute its input rotates them
    /// where it reads them.
    pub fn apply(&self, x: Tensor<B, 2>, config: &Config) -> [Tensor<B, 3>; 2] {
        let [tokens, _] = x.dims();
        let (groups, width) = (groups(config), config.head_width());
        let x = x.reshape([tokens, groups, config.kv_heads, width / 2, 2]);
        [0..groups - 2, groups - 2..groups].map(|part| {
            let heads = part.len() * config.kv_heads;
            let [x, cosines, sines] = [&x, &self.cosines, &self.sines]
                .map(|all| all.clone().slice([0..tokens, part.clone()]));
            let neighbours = x.clone().flip([4]);
            let rotated = neighbours * sines + x * cosines;
            rotated.reshape([tokens, heads, width])
        })
    }
}

/// Returns how many times there are as many heads as of keys: of queries, keys, and values, which are the last.
fn groups(config: &Config) -> usize {
    config.heads / config.kv_heads + 2
}
