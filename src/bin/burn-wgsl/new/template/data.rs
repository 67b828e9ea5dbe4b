//! The data: points of two spirals, and the batches that are made of them.

use std::f32::consts::PI;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

/// A point, and the number of its spiral.
#[derive(Debug, Clone)]
pub struct Point {
    position: [f32; 2],
    spiral: i32,
}

/// Returns points that alternate between two spirals, from the centre outwards. Those of another `shift`, from 0 to 1,
/// lie between them.
pub fn spirals(count: usize, shift: f32) -> Vec<Point> {
    let point = |index| {
        let (spiral, radius) = (index % 2, (index as f32 + shift) / count as f32);
        let angle = 3.0 * PI * radius + PI * spiral as f32;
        let position = [radius * angle.cos(), radius * angle.sin()];
        Point { position, spiral: spiral as i32 }
    };
    (0..count).map(point).collect()
}

/// A batch of `n` points.
#[derive(Debug, Clone)]
pub struct Batch<B: Backend> {
    /// `[n, 2]`
    pub positions: Tensor<B, 2>,
    /// `[n]`
    pub spirals: Tensor<B, 1, Int>,
}

/// Makes batches. The loader calls it in threads.
pub struct Batches;

impl<B: Backend> Batcher<B, Point, Batch<B>> for Batches {
    fn batch(&self, points: Vec<Point>, device: &B::Device) -> Batch<B> {
        let count = points.len();
        let positions: Vec<f32> = points.iter().flat_map(|point| point.position).collect();
        let spirals: Vec<i32> = points.iter().map(|point| point.spiral).collect();
        Batch {
            positions: Tensor::from_data(TensorData::new(positions, [count, 2]), device),
            spirals: Tensor::from_data(TensorData::new(spirals, [count]), device),
        }
    }
}
