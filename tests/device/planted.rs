//! Faults planted in a training run: each ends in its documented message, and training goes on from
//! the last checkpoint to the same bits as without faults.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_wgsl::debug::{self, Values};
use burn_wgsl::memory::{self, Limit};
use burn_wgsl::runtime::Fault;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, scope};

use crate::common::{self, serial_guard};

type B = Autodiff<Wgsl>;
type Adaptor = OptimizerAdaptor<Adam, Layers<B>, B>;
type Format = BinBytesRecorder<FullPrecisionSettings>;

const WIDTH: usize = 32;
const BATCH: usize = 64;
const STEPS: usize = 16;

#[derive(Module, Debug)]
struct Layers<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl Layers<B> {
    fn new(device: &WgslDevice) -> Self {
        let mut layers: Vec<Linear<B>> =
            (0..5).map(|_| LinearConfig::new(WIDTH, WIDTH).init(device)).collect();
        for (index, layer) in layers.iter_mut().enumerate() {
            let values = values(WIDTH * WIDTH, index);
            let weight = Tensor::from_data(TensorData::new(values, [WIDTH, WIDTH]), device);
            layer.weight = Param::from_tensor(weight.require_grad());
            let bias = Tensor::zeros([WIDTH], device).require_grad();
            layer.bias = Some(Param::from_tensor(bias));
        }
        Self { layers }
    }

    fn forward(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        for (index, layer) in self.layers.iter().enumerate() {
            let _scope = scope(format!("layer {index}"));
            x = layer.forward(x).tanh();
        }
        x
    }
}

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i + 31 * seed) * 7919 % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// What goes wrong in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    /// Another thread panics in the middle of its own work.
    PanicElsewhere,
    /// A weight becomes NaN.
    NotANumber,
    /// There is no memory for what the step asks for.
    MemoryLimit,
    /// A kernel that the step needs does not compile.
    Shader,
    /// The device is lost in the middle of the step.
    LostDevice,
}

use Planted::*;

/// In which step what is planted, and what the error says.
const PLANTED: [(usize, Planted, &[&str]); 5] = [
    (3, PanicElsewhere, &[]),
    (5, NotANumber, &["linear in layer 3: the result has", "weight: 1 NaN"]),
    (7, MemoryLimit, &["out of memory", "were requested", "of at most", "use a smaller batch"]),
    (8, Shader, &["does not compile on this device"]),
    (9, LostDevice, &["was lost", "can be opened again"]),
];

/// The weights, and the state of the optimiser.
type State = (<Layers<B> as Module<B>>::Record, <Adaptor as Optimizer<Layers<B>, B>>::Record);

fn encode(model: &Layers<B>, optimizer: &Adaptor) -> Vec<u8> {
    let state: State = (model.clone().into_record(), optimizer.to_record());
    Recorder::<B>::record(&Format::new(), state, ()).expect("the state can be encoded")
}

fn decode(checkpoint: Vec<u8>, device: &WgslDevice) -> State {
    Recorder::<B>::load(&Format::new(), checkpoint, device).expect("the state can be decoded")
}

/// Trains, with faults planted or not. Returns the final state and the messages of the errors.
fn train(device: &WgslDevice, planted: &[(usize, Planted, &[&str])]) -> (Vec<f32>, Vec<String>) {
    let first = Layers::new(device);
    let optimizer = || -> Adaptor { AdamConfig::new().init() };
    let mut checkpoint = encode(&first, &optimizer());
    let mut planted = planted.to_vec();
    let mut errors = Vec::new();
    let mut step = 0;
    while step < STEPS {
        let fault = planted.iter().position(|(at, _, _)| *at == step);
        let fault = fault.map(|index| planted.remove(index).1);
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let (model, state) = decode(checkpoint.clone(), device);
            let mut model = first.clone().load_record(model);
            let mut optimizer = optimizer().load_record(state);
            let x = TensorData::new(values(BATCH * WIDTH, 100 + step), [BATCH, WIDTH]);
            let x = Tensor::<B, 2>::from_data(x, device);
            Wgsl::sync(device).map_err(|error| error.to_string())?;
            if let Some(fault) = fault {
                plant(fault, &mut model, device);
            }
            let loss = (model.forward(x.clone()) - x).powf_scalar(2.0).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.01, model, gradients);
            let extra = match fault {
                Some(MemoryLimit) => Tensor::<Wgsl, 1>::ones([32 << 18], device),
                // No other step uses this kernel.
                Some(Shader) => Tensor::<Wgsl, 1>::ones([100], device).cumprod(0),
                _ => Tensor::ones([1], device),
            };
            extra.try_into_data().map_err(|error| error.to_string())?;
            Wgsl::sync(device).map_err(|error| error.to_string())?;
            Ok(encode(&model, &optimizer))
        }));
        memory::set_limit(device, None).expect("the device opens");
        debug::set_values(Values::Any);
        match attempt.unwrap_or_else(|panic| Err(common::failure("", panic))) {
            Ok(state) => {
                checkpoint = state;
                step += 1;
            }
            Err(error) => errors.push(error),
        }
    }
    let (model, _) = decode(checkpoint, device);
    let model = first.load_record(model);
    let weights = model.layers.iter().flat_map(|layer| {
        layer.weight.val().into_data().to_vec::<f32>().expect("the elements are f32")
    });
    (weights.collect(), errors)
}

fn plant(fault: Planted, model: &mut Layers<B>, device: &WgslDevice) {
    match fault {
        PanicElsewhere => {
            let device = *device;
            let other = thread::spawn(move || {
                let _scope = scope("elsewhere");
                let _recording = memory::record(&device).expect("the device opens");
                let x = Tensor::<Wgsl, 1>::random([1000], Distribution::Default, &device);
                let _pending = x.clone().exp() * 2.0;
                let _ = x.reshape([7, 7]);
            });
            let panic = other.join().expect_err("1000 elements are not 49");
            let message = panic.downcast_ref::<String>().map_or("", String::as_str);
            assert!(message.contains("1000") && message.contains("7, 7"), "{message:?}");
        }
        NotANumber => {
            let mut weights = values(WIDTH * WIDTH, 3);
            weights[17] = f32::NAN;
            let weights = TensorData::new(weights, [WIDTH, WIDTH]);
            let weights = Tensor::from_data(weights, device).require_grad();
            model.layers[3].weight = Param::from_tensor(weights);
            debug::set_values(Values::NotNan);
        }
        MemoryLimit => {
            let reserved = memory::usage(device).expect("the device exists").reserved;
            memory::set_limit(device, Some(Limit::Bytes(reserved + (8 << 20))))
                .expect("the device opens");
        }
        Shader => common::runtime_of(device).plan_fault(Fault::Compile, 0),
        LostDevice => common::runtime_of(device).plan_fault(Fault::Loss, 0),
    }
}

#[test]
fn training_goes_on_after_every_planted_fault() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let (undisturbed, errors) = train(&device, &[]);
        assert!(errors.is_empty(), "{errors:?}");
        let (weights, errors) = train(&device, &PLANTED);
        let expected: Vec<_> = PLANTED.iter().filter(|(_, _, parts)| !parts.is_empty()).collect();
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, (step, fault, parts)) in errors.iter().zip(expected) {
            for part in *parts {
                assert!(error.contains(part), "{fault:?} in step {step}: no {part:?} in: {error}");
            }
        }
        assert!(weights == undisturbed, "the weights differ on {device}");
    }
}
