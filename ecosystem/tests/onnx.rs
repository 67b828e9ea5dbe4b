//! burn-onnx: a network from an ONNX file has PyTorch's results.

use burn::tensor::{Device, Tensor, TensorData};

/// The module that `burn-onnx` generated.
#[allow(clippy::all, dead_code, unused_imports, reason = "generated code")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/onnx/cnn.rs"));
}

#[test]
fn a_network_from_onnx_has_the_results_of_pytorch() {
    let file = include_str!("../../examples/import/fixtures/cnn.json");
    let file: serde_json::Value = serde_json::from_str(file).expect("it is JSON");
    let numbers = |name: &str| -> Vec<f32> {
        let list = file[name].as_array().expect("it is a list");
        list.iter().map(|number| number.as_f64().expect("it is a number") as f32).collect()
    };
    let device = Device::default();
    let images = TensorData::new(numbers("input"), [2, 1, 12, 12]);
    let model = generated::Model::from_embedded(&device);
    let scores = model.forward(Tensor::<4>::from_data(images, &device)).into_data();
    let expected = numbers("output");
    assert_eq!(scores.num_elements(), expected.len());
    for (score, expected) in scores.iter::<f32>().zip(expected) {
        assert!((score - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{score} {expected}");
    }
}
