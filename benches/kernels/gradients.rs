//! Forward and backward passes with gradient kernels, and the same composed by Burn's automatic
//! differentiation.

use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use criterion::Criterion;

use crate::measure::{measure, random};

type Kernels = Autodiff<Wgsl>;
type Composed = burn::backend::Autodiff<Wgsl>;

pub fn benches(criterion: &mut Criterion) {
    backend::<Kernels>(criterion, "kernels");
    backend::<Composed>(criterion, "composed");
}

fn backend<T: AutodiffBackend<Device = WgslDevice, InnerBackend = Wgsl>>(
    criterion: &mut Criterion,
    name: &str,
) {
    passes::<T, 2, 1>(criterion, "softmax/4096x1024", name, [[4096, 1024]], |[x]| softmax(x, 1));
    passes::<T, 2, 1>(criterion, "log_softmax/4096x1024", name, [[4096, 1024]], |[x]| {
        log_softmax(x, 1)
    });
    passes::<T, 2, 3>(
        criterion,
        "layer_norm/4096x1024",
        name,
        [[4096, 1024], [1, 1024], [1, 1024]],
        |[x, gamma, beta]| {
            let [gamma, beta] =
                [gamma, beta].map(|row| row.reshape([1024]).into_primitive().tensor());
            let y = T::layer_norm(x.into_primitive().tensor(), gamma, Some(beta), 1e-5);
            Tensor::from_primitive(TensorPrimitive::Float(y))
        },
    );
    for (label, length, causal) in
        [("256", 256, false), ("1024", 1024, false), ("1024_causal", 1024, true)]
    {
        let options = AttentionModuleOptions { is_causal: causal, ..Default::default() };
        passes::<T, 4, 3>(
            criterion,
            &format!("attention/1x8x{label}x64"),
            name,
            [[1, 8, length, 64]; 3],
            |[query, key, value]| attention(query, key, value, None, None, options),
        );
    }
}

/// Measures a forward and a backward pass. The gradient of the result is a tensor in memory, as in
/// a model.
fn passes<T, const D: usize, const N: usize>(
    criterion: &mut Criterion,
    op: &str,
    backend: &str,
    shapes: [[usize; D]; N],
    f: impl Fn([Tensor<T, D>; N]) -> Tensor<T, D>,
) where
    T: AutodiffBackend<Device = WgslDevice, InnerBackend = Wgsl>,
{
    let f = &f;
    let len = shapes[0].iter().product();
    measure(criterion, &format!("gradients/{op}/{backend}"), len, |device| {
        let inputs =
            shapes.map(|shape| Tensor::<T, D>::from_inner(random(shape, device)).require_grad());
        let weights = Tensor::<T, D>::from_inner(random(shapes[0], device));
        move || {
            let grads = (f(inputs.clone()) * weights.clone()).sum().backward();
            inputs.each_ref().map(|input| input.grad(&grads))
        }
    });
}
