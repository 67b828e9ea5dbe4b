//! Writes the module of an ONNX file, with its weights, with the burn-onnx of each release.

fn main() {
    burn_onnx::ModelGen::new()
        .input("../../examples/import/fixtures/cnn.onnx")
        .out_dir("onnx/")
        .load_strategy(burn_onnx::LoadStrategy::Embedded)
        .run_from_script();
}
