//! The graph of gradients: threads that share a network.

use std::panic::AssertUnwindSafe;

use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn_wgsl::custom::with_gradient;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{devices, is_alone, panic_message, serial_guard, test_alone};

type Grad = Autodiff<Wgsl>;

/// Computes gradients of clones of new networks in several threads, for some rounds. The first passes of a network join
/// the graphs of its parameters.
fn train_clones(device: &WgslDevice, threads: usize, rounds: usize) {
    let loss = |layers: &[Linear<Grad>]| {
        let x = Tensor::<Grad, 2>::ones([4, 5], device);
        layers.iter().fold(x, |x, layer| layer.forward(x).tanh()).sum()
    };
    let gradient = |layers: &[Linear<Grad>]| {
        let grads = loss(layers).backward();
        let sums = layers.iter().map(|layer| layer.weight.grad(&grads).expect("a gradient").sum());
        sums.map(|sum| sum.into_scalar()).collect::<Vec<f32>>()
    };
    for round in 0..rounds {
        let layers: Vec<Linear<Grad>> =
            (0..6).map(|_| LinearConfig::new(5, 5).init(device)).collect();
        // Otherwise each clone is initialised by itself.
        layers.iter().for_each(|layer| {
            drop((layer.weight.val(), layer.bias.as_ref().map(|bias| bias.val())))
        });
        let gradients = std::thread::scope(|scope| {
            let compute = || {
                let layers = layers.clone();
                // Not followed by a backward pass.
                drop(loss(&layers));
                [gradient(&layers), gradient(&layers)]
            };
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(compute)).collect();
            let ended = running.into_iter().map(|thread| thread.join().expect("a thread ends"));
            ended.flatten().collect::<Vec<_>>()
        });
        let expected = gradient(&layers);
        let wrong = gradients.iter().find(|gradient| **gradient != expected);
        assert_eq!(wrong, None, "round {round} on {device}: {expected:?}");
    }
}

#[test]
fn threads_compute_gradients_of_clones() {
    let _guard = serial_guard();
    let rounds = if std::env::var_os("BURN_WGSL_SOAK_MINUTES").is_some() { 1000 } else { 25 };
    for device in devices() {
        train_clones(&device, 8, rounds);
    }
}

#[test]
fn a_backward_pass_can_run_in_another_thread() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Grad, 1>::ones([3], &device).require_grad();
        // This thread uses the parameter first.
        drop(x.clone().sum().backward());
        let loss = &|factor: f32| (x.clone() * factor).sum();
        let [two, three] = std::thread::scope(|scope| {
            [2.0, 3.0].map(|factor| scope.spawn(move || loss(factor)).join().expect("it ends"))
        });
        for (loss, expected) in [(two, [2.0; 3]), (three, [3.0; 3])] {
            let grad = x.grad(&loss.backward()).expect("a gradient");
            assert_eq!(grad.into_data().to_vec::<f32>().expect("f32"), expected);
        }
    }
}

/// Burn's graphs of inputs are joined here with that of a result, and then with each other. In Burn 0.21 the result is
/// no longer found in some rounds, and its parameters have no gradient.
#[test]
fn joined_graphs_keep_their_gradients() {
    let _guard = serial_guard();
    for device in devices() {
        let leaf = |value| Tensor::<Grad, 1>::from_floats([value; 3], &device).require_grad();
        let [a, b] = [2.0, 3.0].map(leaf);
        for round in 0..25 {
            let [x, y, z] = [4.0, 5.0, 6.0].map(leaf);
            let result = a.clone() * b.clone();
            let _other = result.clone() * x * y;
            let gradients = (result * z).sum().backward();
            for (leaf, expected) in [(&a, 18.0), (&b, 12.0)] {
                let gradient = leaf.grad(&gradients).expect("a gradient").into_data();
                let gradient = gradient.to_vec::<f32>().expect("f32");
                assert_eq!(gradient, [expected; 3], "round {round} on {device}");
            }
        }
    }
}

/// A thread that only computes, beside one that trains, keeps no results that were dropped. The parameters are new ones
/// after each step.
#[test]
fn passes_of_a_thread_without_backward_passes_are_freed() {
    // The nodes of all tests of a process are counted together.
    if !is_alone(test_alone!("passes_of_a_thread_without_backward_passes_are_freed")) {
        return;
    }
    for device in devices() {
        let waiting =
            || burn_wgsl::memory::report(&device).expect("the device is open").waiting_nodes;
        let before = waiting();
        let compute = || {
            for _ in 0..4000 {
                let parameter = Tensor::<Grad, 1>::ones([3], &device).require_grad();
                drop((parameter * 2.0).exp());
            }
            waiting()
        };
        let after = std::thread::scope(|scope| scope.spawn(compute).join().expect("it ends"));
        assert!(after < before + 4000, "{before} nodes, then {after}, on {device}");
        // The backward passes of others free what an ended thread has left.
        let x = Tensor::<Grad, 1>::ones([3], &device).require_grad();
        drop(x.sum().backward());
        let left = waiting();
        assert!(left < before + 100, "{before} nodes, then {left}, on {device}");
    }
}

#[test]
fn a_power_of_one_is_the_parameter_itself() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Grad, 1>::ones([3], &device).require_grad();
        let y = x.clone().powf_scalar(1.0);
        let gradients = (y.clone() * 2.0).sum().backward();
        for leaf in [x, y] {
            let gradient = leaf.grad(&gradients).expect("a gradient").into_data();
            assert_eq!(gradient.to_vec::<f32>().expect("f32"), [2.0; 3], "{device}");
        }
    }
}

#[test]
fn a_backward_pass_within_another_is_an_error() {
    let _guard = serial_guard();
    for device in devices() {
        let x = Tensor::<Grad, 1>::ones([3], &device).require_grad();
        let y = with_gradient(
            (x,),
            |(x,)| (x * 2.0, ()),
            |(), grad: Tensor<Wgsl, 1>| {
                let inner = Tensor::<Grad, 1>::from_inner(grad.clone()).require_grad();
                inner.clone().sum().backward();
                (grad,)
            },
        );
        let message = panic_message(AssertUnwindSafe(|| drop(y.sum().backward())));
        assert!(message.contains("called by the gradient of another op"), "{message}");
        // The thread goes on.
        let x = Tensor::<Grad, 1>::ones([3], &device).require_grad();
        let grad = x.grad(&x.clone().sum().backward()).expect("a gradient");
        assert_eq!(grad.into_data().to_vec::<f32>().expect("f32"), [1.0; 3]);
    }
}
