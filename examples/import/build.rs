//! Writes the module of `fixtures/cnn.onnx`, with its weights.

fn main() {
    burn_onnx::ModelGen::new()
        .input("fixtures/cnn.onnx")
        .out_dir("onnx/")
        .load_strategy(burn_onnx::LoadStrategy::Embedded)
        .run_from_script();
}
