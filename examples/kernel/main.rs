//! A kernel of a program: a product, a sum and a ReLU in one, with a gradient. The program compares it with the same
//! composed of Burn's ops.
//!
//! `cargo run --release -p kernel`. With `BURN_WGSL_RELOAD=1` and `--repeat`, changes of `fused.wgsl` take effect while
//! it runs.

mod fused;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use clap::Parser;

type B = Autodiff<Wgsl>;

/// How often each form is timed.
const RUNS: usize = 10;

/// Compare a kernel of this program with the same composed of Burn's ops.
#[derive(Parser)]
#[command(name = "kernel")]
struct Args {
    /// GPU to compute on: auto, software, gpu:0, discrete:0, ...
    #[arg(long, value_name = "SELECTOR", default_value = "auto")]
    device: WgslDevice,

    /// Sizes of the products: matrices, rows, columns and length of the sums
    #[arg(long, value_names = ["B", "M", "N", "K"], num_args = 4, default_values_t = [4, 256, 256, 256])]
    sizes: Vec<usize>,

    /// Repeat once a second until the program is interrupted
    #[arg(long)]
    repeat: bool,
}

/// A result and its gradients.
type Results = [Tensor<Wgsl, 3>; 4];

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let device = args.device.canonical();
    println!("device: {}", device.describe()?);
    ensure!(device != WgslDevice::Cpu, "the kernel has no function for the CPU; use a GPU");
    let [b, m, n, k] = args.sizes[..] else { unreachable!("clap checks the number of sizes") };
    let shapes = [[b, m, k], [b, k, n], [b, m, n]];
    let operands =
        shapes.map(|shape| Tensor::<B, 3>::random(shape, Distribution::Default, &device) - 0.5);
    // Errors of the kernel, before the op that has none.
    let [lhs, rhs, bias] = operands.each_ref().map(|operand| operand.clone().inner());
    fused::forward(&lhs, &rhs, &bias)?;
    loop {
        let fused = results(fused::matmul_add_relu, &operands);
        let composed = results(fused::composed, &operands);
        for (name, (fused, composed)) in
            ["result", "gradient of lhs", "gradient of rhs", "gradient of bias"]
                .into_iter()
                .zip(fused.into_iter().zip(composed))
        {
            let largest = (fused - composed).abs().max().into_scalar();
            println!("{name:17} differs by at most {largest:.1e}");
        }
        let [fused, composed] = [fused::matmul_add_relu, fused::composed]
            .map(|op| least_time(&device, || drop(results(op, &operands))));
        println!("forward and backward: {fused:.1?} fused, {composed:.1?} composed\n");
        if !args.repeat {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns the result of an op, and its gradients.
fn results(
    op: fn(Tensor<B, 3>, Tensor<B, 3>, Tensor<B, 3>) -> Tensor<B, 3>,
    operands: &[Tensor<B, 3>; 3],
) -> Results {
    let [lhs, rhs, bias] =
        operands.each_ref().map(|operand| operand.clone().detach().require_grad());
    let out = op(lhs.clone(), rhs.clone(), bias.clone());
    let mut gradients = (out.clone() * out.clone()).sum().backward();
    let mut gradient =
        |operand: Tensor<B, 3>| operand.grad_remove(&mut gradients).expect("it has a gradient");
    [out.inner(), gradient(lhs), gradient(rhs), gradient(bias)]
}

/// Returns the least time of several runs, after one that compiles kernels.
fn least_time(device: &WgslDevice, run: impl Fn()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        run();
        Wgsl::sync(device).expect("the device works");
        start.elapsed()
    };
    time(0);
    (0..RUNS).map(time).min().unwrap_or_default()
}
