use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use import::models::{Cnn, Imported, InputError, Mlp, ResNet, Transformer};
use import::{onnx, torch};
use serde::Deserialize;

use crate::{fixture, read};

#[derive(Deserialize)]
struct Example {
    shape: Vec<usize>,
    input: Vec<f32>,
    output_shape: Vec<usize>,
    output: Vec<f32>,
}

impl Example {
    fn new(name: &str) -> Self {
        let text = std::fs::read_to_string(fixture(&format!("{name}.json")));
        serde_json::from_str(&text.expect("it is there")).expect("it is an example")
    }

    fn input(&self) -> TensorData {
        TensorData::new(self.input.clone(), self.shape.clone())
    }

    fn check(&self, output: &TensorData, label: &str) {
        assert_eq!(output.shape.to_vec(), self.output_shape, "{label}");
        for (found, expected) in output.iter::<f32>().zip(&self.output) {
            let difference = (found - expected).abs();
            assert!(difference <= 1e-5 * expected.abs().max(1.0), "{label}: {found} {expected}");
        }
    }
}

/// The CPU, and the software adapter if there is one.
fn devices() -> Vec<WgslDevice> {
    let software: WgslDevice = "software".parse().expect("it is a selector");
    let is_there = software.resolve().is_ok();
    [WgslDevice::Cpu].into_iter().chain(is_there.then_some(software)).collect()
}

/// Loads a model from both kinds of files, runs it also with folded norms, and saves it again.
fn check_model<M: Imported<Wgsl>>(name: &str) {
    let example = Example::new(name);
    for device in devices() {
        for ending in ["pt", "safetensors"] {
            let label = format!("{name}.{ending} on {device}");
            let tensors = read(&fixture(&format!("{name}.{ending}"))).expect("it is readable");
            let mut model = M::new(&device);
            torch::load(&mut model, &tensors).unwrap_or_else(|error| panic!("{label}: {error}"));
            example.check(&model.run(example.input(), &device).expect("it fits"), &label);
            check_saved(&model, name);
            let folded = model.folded();
            let output = folded.run(example.input(), &device).expect("it fits");
            example.check(&output, &format!("{label}, folded"));
        }
    }
}

/// Checks that a saved model has the tensors of the file that PyTorch saved, bit for bit.
fn check_saved<M: Imported<Wgsl>>(model: &M, name: &str) {
    let saved = torch::to_bytes(model).expect("it is saved");
    let saved = safetensors::SafeTensors::deserialize(&saved).expect("it is valid");
    let original = std::fs::read(fixture(&format!("{name}.safetensors"))).expect("it is there");
    let original = safetensors::SafeTensors::deserialize(&original).expect("it is valid");
    let is_kept = |(name, _): &(&str, _)| !name.ends_with("num_batches_tracked");
    let original: Vec<_> = original.iter().filter(is_kept).collect();
    assert_eq!(saved.len(), original.len());
    for (name, view) in original {
        let found = saved.tensor(name).unwrap_or_else(|_| panic!("{name} is not saved"));
        assert_eq!(found.shape(), view.shape(), "{name}");
        assert_eq!(found.data(), view.data(), "{name}");
    }
}

#[test]
fn linear_layers() {
    check_model::<Mlp<Wgsl>>("mlp");
}

#[test]
fn convolutions_with_batch_norm() {
    check_model::<Cnn<Wgsl>>("cnn");
}

#[test]
fn a_residual_network() {
    check_model::<ResNet<Wgsl>>("resnet");
}

#[test]
fn a_transformer() {
    check_model::<Transformer<Wgsl>>("transformer");
}

#[test]
fn a_model_of_onnx() {
    let example = Example::new("cnn");
    for device in devices() {
        let model = onnx::OnnxCnn::<Wgsl>::new(&device);
        let output = model.forward(Tensor::from_data(example.input(), &device)).into_data();
        example.check(&output, &format!("on {device}"));
    }
}

#[test]
fn folded_norms_are_gone() {
    let device = WgslDevice::Cpu;
    let model = ResNet::<Wgsl>::new(&device);
    let before = model.num_params();
    let folded = model.folded();
    // Six norms of 8, 8, 8, 16, 16 and 16 channels had four numbers of each; biases are new.
    assert_eq!(folded.num_params() + 72 * 4, before + 72);
}

#[test]
fn inputs_of_other_shapes_are_errors() {
    let device = WgslDevice::Cpu;
    let mlp = Mlp::<Wgsl>::new(&device);
    let input = |shape: &[usize]| TensorData::zeros::<f32, _>(shape.to_vec());
    let expected = InputError::Shape { expected: vec![0, 6], found: vec![2, 5] };
    assert_eq!(mlp.run(input(&[2, 5]), &device).expect_err("it does not fit"), expected);
    assert!(mlp.run(input(&[0, 6]), &device).is_err());
    let transformer = Transformer::<Wgsl>::new(&device);
    let long = transformer.run(input(&[1, 13]), &device).expect_err("it is too long");
    assert_eq!(long, InputError::Length { most: 12, found: 13 });
    for token in [32.0f32, -1.0, 1.5, f32::NAN] {
        let input = TensorData::new(vec![token], [1, 1]);
        let error = transformer.run(input, &device).expect_err("it is no token");
        assert!(matches!(error, InputError::Token { vocabulary: 32, .. }), "{error}");
    }
}
