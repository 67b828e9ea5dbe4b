//! Ops beyond Burn's contract, as functions of the backend: `Wgsl::silu(tensor)`.
//!
//! On the CPU, and for types without a kernel, a row of the elementwise table is computed by its truth.

use super::contract::prelude::*;
use crate::kernels::table::{Row, Truth};

/// Makes functions of the backend from rows of the extension table.
macro_rules! extension_methods {
    ($kind:ident: $($shape:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        $(extension_methods!(@$shape $kind $name $wgsl);)*
    };
    (@unary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Elementwise `", $wgsl, "`.")]
        pub fn $name(tensor: $kind) -> $kind {
            run(&rows::$name, [tensor])
        }
    };
    (@binary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Elementwise `", $wgsl, "`, of tensors that broadcast.")]
        pub fn $name(lhs: $kind, rhs: $kind) -> $kind {
            run(&rows::$name, [lhs, rhs])
        }
    };
}

impl Wgsl {
    crate::kernels::table::extension_rows!(extension_methods);
}

/// Computes a row of the elementwise table that takes one tensor: any row, by value.
///
/// # Panics
///
/// When the row takes more than one tensor, or the device fails.
pub fn apply(row: &'static Row, tensor: F) -> F {
    run(row, [tensor])
}

fn run<const N: usize>(row: &'static Row, tensors: [F; N]) -> F {
    let mut site = Site::new(row.name);
    tensors.iter().for_each(|tensor| tensor.show(&mut site));
    if site.takes_kernel() {
        let mut inputs = tensors.into_iter().map(|tensor| tensor.into_gpu(&site));
        return match (inputs.next(), inputs.next()) {
            (Some(lhs), Some(rhs)) => site.computed(elementwise::binary(row, lhs, rhs)),
            (Some(tensor), None) => site.computed(elementwise::unary(row, tensor)),
            (None, _) => panic!("{}: an op needs an operand", row.name),
        };
    }
    site.falls_back();
    let mut inputs = tensors.into_iter().map(|tensor| tensor.into_twin(&site));
    let out = match (inputs.next(), inputs.next()) {
        (Some(lhs), Some(rhs)) => on_twin2(row, lhs, rhs),
        (Some(tensor), None) => on_twin(row, tensor),
        (None, _) => panic!("{}: an op needs an operand", row.name),
    };
    Outcome::from_twin(out, &site)
}

fn on_twin(row: &Row, tensor: burn_flex::FlexTensor) -> burn_flex::FlexTensor {
    let Truth::F1(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let (dtype, data) = (tensor.dtype(), tensor.into_data());
    let values: Vec<f64> = data.iter::<f64>().map(truth).collect();
    burn_flex::FlexTensor::from_data(TensorData::new(values, data.shape).convert_dtype(dtype))
}

fn on_twin2(
    row: &Row,
    lhs: burn_flex::FlexTensor,
    rhs: burn_flex::FlexTensor,
) -> burn_flex::FlexTensor {
    let Truth::F2(truth) = row.truth else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let shape = lhs
        .shape()
        .broadcast(&rhs.shape())
        .unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
    let dtype = lhs.dtype();
    let spread = |tensor| Flex::float_expand(tensor, shape.clone()).into_data();
    let (lhs, rhs) = (spread(lhs), spread(rhs));
    let values: Vec<f64> = lhs
        .iter::<f64>()
        .zip(rhs.iter::<f64>())
        .map(|(a, b)| truth(a, b))
        .collect();
    burn_flex::FlexTensor::from_data(TensorData::new(values, shape).convert_dtype(dtype))
}
