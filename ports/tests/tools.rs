//! burn-wgsl's own functions, from a program of the port's release of Burn.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Dispatch, TensorMetadata};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use port::Port;
use port::wgsl::custom::Kernel;
use port::wgsl::debug::{Values, set_values};
use port::wgsl::{WgslDevice, interop, kernel_params, memory, profile};

use crate::port;

/// The device of burn-wgsl: that of `Device::default()`.
const OWN: WgslDevice = WgslDevice::Auto;

/// Profiles, measurements of memory and the search for NaN see the work of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().try_to_vec().expect("floats")
}

#[test]
fn a_profile_has_the_kernels_of_a_step() {
    let _alone = alone();
    let device = Device::default();
    let x = Tensor::<2>::ones([64, 64], &device);
    let (sum, profile) = profile(&OWN, || values(x.clone().matmul(x).sum())).expect("a GPU");
    assert_eq!(sum, [64.0 * 64.0 * 64.0]);
    let products = profile.kernels.iter().filter(|kernel| kernel.name == "matmul");
    assert_eq!(products.map(|kernel| kernel.calls).sum::<u64>(), 1);
}

#[test]
fn a_report_of_memory_counts_tensors() {
    let _alone = alone();
    let device = Device::default();
    let (tensor, use_of_it) = memory::measure(&OWN, || {
        let tensor = Tensor::<2>::zeros([512, 1024], &device) + 1.0;
        assert_eq!(values(tensor.clone().slice([0..1, 0..1])), [1.0]);
        tensor
    })
    .expect("a device");
    assert_eq!(tensor.dims(), [512, 1024]);
    assert!(use_of_it.peak >= 512 * 1024 * 4, "{use_of_it:?}");
}

#[test]
fn the_op_that_makes_a_nan_is_named() {
    let _alone = alone();
    let device = Device::default();
    let find = || {
        set_values(Values::NotNan);
        values(Tensor::<1>::from_floats([1.0, -1.0], &device).log())
    };
    let found = std::panic::catch_unwind(find);
    set_values(Values::Any);
    let message = found.expect_err("a NaN is found");
    let message = message.downcast::<String>().expect("a message");
    assert!(message.contains("float_log: the result has 1 NaN"), "{message}");
}

kernel_params! {
    struct Length {
        length: u32,
    }
}

const CUBES: &str = "
//#include \"lib/grid\"
struct Params {
    length: u32,
}
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> cubes: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let index = group_index(group, groups) * 64u + local_index;
    if (index < p.length) { cubes[index] = x[index] * x[index] * x[index]; }
}
";

static CUBE: Kernel<Length> = Kernel::new("cube", "x: f32[length] -> cubes: f32[length]", CUBES);

/// An op of the program, whose kernel is in WGSL. Burn's macro wants the name that the backend has in the release.
macro_rules! extension {
    ($backend:ident) => {
        #[burn::backend::backend_extension($backend, Autodiff)]
        pub trait Cubes: burn::backend::Backend {
            fn cube(x: FloatTensor<Self>) -> FloatTensor<Self>;
        }
    };
}
crate::with_backend_name!(extension);

impl Cubes for Port {
    fn cube(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let length = x.shape()[0];
        let call = CUBE.call(&x, Length { length: length as u32 });
        call.run(length.div_ceil(64)).expect("the kernel is right")
    }
}

impl<C: CheckpointStrategy> Cubes for Autodiff<Port, C> {
    fn cube(x: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Gradient;

        impl Backward<Port, 1> for Gradient {
            type State = FloatTensor<Port>;

            fn backward(
                self,
                ops: Ops<Self::State, 1>,
                grads: &mut Gradients,
                _: &mut Checkpointer,
            ) {
                let [parent] = ops.parents;
                let grad = grads.consume::<Port>(&ops.node);
                if let Some(parent) = parent {
                    let x = ops.state;
                    let slope = Port::float_mul_scalar(Port::float_mul(x.clone(), x), 3.0.into());
                    grads.register::<Port>(parent.id, Port::float_mul(grad, slope));
                }
            }
        }

        let cubes = Port::cube(x.primitive().clone());
        match Gradient.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(x.into_primitive(), cubes),
            OpsKind::UnTracked(prep) => prep.finish(cubes),
        }
    }
}

fn cube(x: Tensor<1>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as Cubes>::cube(x.into_dispatch()))
}

#[test]
fn a_kernel_of_the_program_reads_tensors_and_has_a_gradient() {
    let _alone = alone();
    let device = Device::default().autodiff();
    let x = Tensor::<1>::from_floats([1.0, -2.0, 3.0], &device).require_grad();
    let cubes = cube(x.clone());
    assert_eq!(values(cubes.clone().inner()), [1.0, -8.0, 27.0]);
    let gradients = (cubes * 2.0).sum().backward();
    assert_eq!(values(x.grad(&gradients).expect("x has a gradient")), [6.0, 24.0, 54.0]);
}

#[test]
fn a_tensor_is_in_a_buffer_of_wgpu_and_back() {
    let _alone = alone();
    let device = Device::default();
    let x = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device) * 3.0;
    let own = x.try_into_primitive::<Port>().expect("it is on burn-wgsl's device").0;
    let buffer = interop::buffer_of(own).expect("a GPU");
    assert_eq!(buffer.size(), 16);
    let copy = interop::copy_from_buffer(
        &OWN,
        buffer.buffer(),
        buffer.offset(),
        &[4],
        interop::DType::F32,
    );
    let y = Tensor::<1>::from_primitive::<Port>(port::Tensor(copy.expect("a part of the buffer")));
    assert_eq!(values(y + 1.0), [4.0, 7.0, 10.0, 13.0]);
}

#[test]
fn autocast_multiplies_in_f16() {
    let _alone = alone();
    let device = Device::default();
    let x = Tensor::<2>::ones([1024, 1024], &device) * 0.5;
    let scope = port::wgsl::autocast(&OWN, port::wgsl::Precision::F16);
    let product = x.clone().matmul(x);
    let softmax = burn::tensor::activation::softmax(product.clone(), 1);
    drop(scope);
    assert_eq!([product.dtype(), softmax.dtype()], [DType::F16, DType::F32]);
    assert_eq!(values(product.slice([0..1, 0..1])), [256.0]);
    assert_eq!(values(softmax.slice([0..1, 0..1])), [1.0 / 1024.0]);
}
