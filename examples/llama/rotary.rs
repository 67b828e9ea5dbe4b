//! Rotary embeddings: neighbouring elements of queries and keys are rotated by an angle that grows with the position.
//! (J. Su et al., RoFormer, 2021.)

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::config::Config;

/// The factors of all positions, for the heads of queries, keys and values side by side. Values are not rotated.
#[derive(Debug)]
pub struct Rotary<B: Backend> {
    /// `[positions, groups * head width]`: the cosines of the elements of a head, for each group of heads.
    own: Tensor<B, 2>,
    /// The sines by which an element's neighbour is multiplied: of the first of two, with a minus.
    of_neighbour: Tensor<B, 2>,
}

/// The factors of some positions.
#[derive(Debug, Clone)]
pub struct Rotation<B: Backend> {
    /// `[tokens, groups, 1, head width]`.
    own: Tensor<B, 4>,
    of_neighbour: Tensor<B, 4>,
}

impl<B: Backend> Rotary<B> {
    /// Computes the factors of so many positions.
    pub fn new(config: &Config, positions: usize, dtype: DType, device: &B::Device) -> Self {
        let (groups, width) = (groups(config), config.head_width());
        let (mut own, mut of_neighbour) = (Vec::new(), Vec::new());
        for position in 0..positions {
            for group in 0..groups {
                for element in 0..width {
                    let frequency = config.theta.powf(-((element / 2 * 2) as f64) / width as f64);
                    let (sin, cos) = match group + 1 < groups {
                        true => (position as f64 * frequency).sin_cos(),
                        false => (0.0, 1.0),
                    };
                    own.push(cos as f32);
                    of_neighbour.push(if element % 2 == 0 { -sin } else { sin } as f32);
                }
            }
        }
        let upload = |factors: Vec<f32>| {
            let data = TensorData::new(factors, [positions, groups * width]).convert_dtype(dtype);
            Tensor::from_data(data, (device, dtype))
        };
        Self { own: upload(own), of_neighbour: upload(of_neighbour) }
    }

    /// Returns the factors of `positions`.
    pub fn at(&self, positions: Tensor<B, 1, Int>, config: &Config) -> Rotation<B> {
        let [tokens] = positions.dims();
        let at = |factors: &Tensor<B, 2>| {
            let rows = factors.clone().select(0, positions.clone());
            rows.reshape([tokens, groups(config), 1, config.head_width()])
        };
        Rotation { own: at(&self.own), of_neighbour: at(&self.of_neighbour) }
    }
}

impl<B: Backend> Rotation<B> {
    /// Rotates the heads of queries and keys in `[tokens, all heads * head width]`. Returns
    /// `[tokens, all heads, head width]`.
    pub fn apply(&self, x: Tensor<B, 2>, config: &Config) -> Tensor<B, 3> {
        let [tokens, _] = x.dims();
        let (groups, width) = (groups(config), config.head_width());
        let x = x.reshape([tokens, groups, config.kv_heads, width]);
        let pairs = x.clone().reshape([tokens, groups, config.kv_heads, width / 2, 2]);
        let neighbours = pairs.flip([4]).reshape([tokens, groups, config.kv_heads, width]);
        let rotated = x * self.own.clone() + neighbours * self.of_neighbour.clone();
        rotated.reshape([tokens, groups * config.kv_heads, width])
    }
}

/// Returns how many times there are as many heads as of keys: of queries, keys, and values, which are the last.
fn groups(config: &Config) -> usize {
    config.heads / config.kv_heads + 2
}
