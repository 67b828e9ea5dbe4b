//! Models from files of PyTorch, safetensors and ONNX, and the way back.

pub mod file;
pub mod fold;
pub mod models;
pub mod onnx;
pub mod pytorch;
pub mod torch;
