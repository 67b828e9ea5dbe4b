//! Segments whose activations are computed again.

#[path = "../../benches/shared/block.rs"]
mod block;

use block::Block;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::train::Segments;
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast, memory, random_state};

use crate::common::{devices, gpus, is_alone, test_alone};

type B = Autodiff<Wgsl>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    embedding: Linear<B>,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

impl Model<B> {
    fn new(blocks: usize, width: usize, device: &WgslDevice) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Self {
            embedding: linear(6, width),
            blocks: (0..blocks).map(|_| Block::new(width, device)).collect(),
            head: linear(width, 3),
        }
    }

    /// Computes the forward pass in a precision. The backward pass is outside of its scope.
    fn gradients(&self, x: &Tensor<B, 3>, way: Way, precision: Precision) -> GradientsParams {
        let device = x.device();
        let scope = autocast(&device, precision);
        let loss = |y: Tensor<B, 3>| self.head.forward(y).powi_scalar(2).mean();
        let x = x.clone();
        let start = {
            let x = x.clone();
            move |embedding: &Linear<B>| embedding.forward(x.clone())
        };
        let segments = match way {
            Way::Plain => {
                let y = self.embedding.forward(x);
                let y = self.blocks.iter().fold(y, |y, block| block.forward(y));
                let loss = loss(y);
                drop(scope);
                return GradientsParams::from_grads(loss.backward(), self);
            }
            Way::Segments => self
                .blocks
                .iter()
                .fold(Segments::start(&device, &self.embedding, start), |segments, block| {
                    segments.then(block, Block::forward)
                }),
            Way::Nested => Segments::start(&device, &self.embedding, start).then_segments(
                &self.blocks,
                |blocks: &Vec<Block<B>>, segments| {
                    blocks
                        .iter()
                        .fold(segments, |segments, block| segments.then(block, Block::forward))
                },
            ),
        };
        let (y, segments) = segments.end();
        let loss = loss(y);
        drop(scope);
        segments.backward(loss, self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Segments,
    Nested,
}

/// Collects the gradients of all parameters.
struct Values {
    gradients: GradientsParams,
    found: Vec<(ParamId, Vec<f32>)>,
}

impl ModuleVisitor<B> for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let gradient = self.gradients.remove::<Wgsl, D>(param.id);
        let gradient = gradient.unwrap_or_else(|| panic!("{} has no gradient", param.id));
        let values = gradient.into_data().iter::<f32>().collect();
        self.found.push((param.id, values));
    }
}

fn values(model: &Model<B>, gradients: GradientsParams) -> Vec<(ParamId, Vec<f32>)> {
    let mut values = Values { gradients, found: Vec::new() };
    model.visit(&mut values);
    assert!(values.gradients.is_empty());
    values.found
}

fn input([batch, length]: [usize; 2], device: &WgslDevice) -> Tensor<B, 3> {
    let element = |i: usize| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..batch * length * 6).map(element).collect();
    Tensor::from_data(TensorData::new(values, [batch, length, 6]), device)
}

#[test]
fn gradients_of_segments_are_those_of_the_whole() {
    // Other tests draw from the same stream of a device.
    if !is_alone(test_alone!("gradients_of_segments_are_those_of_the_whole")) {
        return;
    }
    for device in devices() {
        for precision in [Precision::F32, Precision::F16] {
            let model = Model::new(8, 16, &device);
            let x = input([2, 5], &device);
            let run = |way| {
                Wgsl::seed(&device, 3);
                let gradients = model.gradients(&x, way, precision);
                (values(&model, gradients), random_state(&device).expect("the device exists"))
            };
            // The first run creates the parameters, for which it draws numbers.
            run(Way::Plain);
            let (expected, after) = run(Way::Plain);
            for way in [Way::Segments, Way::Nested] {
                let (found, then) = run(way);
                assert_eq!(then, after, "{way:?}: the random numbers after it");
                let tolerance = if precision == Precision::F32 { 1e-6 } else { 2e-3 };
                for ((id, expected), (other, found)) in expected.iter().zip(&found) {
                    assert_eq!(id, other);
                    let largest = expected.iter().fold(1e-3, |most: f32, x| most.max(x.abs()));
                    for (expected, found) in expected.iter().zip(found) {
                        let difference = (expected - found).abs() / largest;
                        assert!(
                            difference <= tolerance,
                            "{way:?} in {precision} on {device}: {found} instead of {expected}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn segments_keep_a_third_of_the_activations() {
    // Other tests would need memory of the device, too.
    if !is_alone(test_alone!("segments_keep_a_third_of_the_activations")) {
        return;
    }
    for device in gpus() {
        let model = Model::new(8, 64, &device);
        let x = input([16, 64], &device);
        let peak = |way| {
            let step = || {
                let gradients = model.gradients(&x, way, Precision::F32);
                Wgsl::sync(&device).expect("the device works");
                drop(gradients);
            };
            step();
            let (_, measured) = memory::measure(&device, step).expect("the device works");
            measured.peak
        };
        let [plain, segments, nested] = [Way::Plain, Way::Segments, Way::Nested].map(peak);
        println!("plain {plain}, segments {segments}, nested {nested} bytes on {device}");
        assert!(segments as f64 <= 0.35 * plain as f64, "{segments} of {plain} bytes on {device}");
        assert!(nested as f64 <= 0.35 * plain as f64, "{nested} of {plain} bytes on {device}");
    }
}
