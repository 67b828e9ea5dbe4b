//! How long the ranks of an MPI job take for the mean of gradients, as `burn-wgsl bench allreduce` measures it for
//! threads: `mpirun -n 4 mpi-allreduce --devices cpu --oversubscribe`.

#[path = "../../benches/shared/allreduce.rs"]
mod rounds;

use std::process::ExitCode;

use burn_wgsl::WgslDevice;
use burn_wgsl::parallel::Workers;
use burn_wgsl_mpi::Job;
use clap::Parser;

/// Measure the mean of gradients between the ranks of an MPI job.
#[derive(Debug, Parser)]
#[command(name = "mpi-allreduce")]
struct Args {
    /// Devices of each machine, one for each of its ranks: gpu:0,gpu:1 [default: its GPUs]
    #[arg(long, value_name = "SELECTORS", value_delimiter = ',')]
    devices: Vec<WgslDevice>,

    /// Allow several ranks on one device
    #[arg(long)]
    oversubscribe: bool,

    /// Send gradients as bf16
    #[arg(long)]
    bf16: bool,

    /// Gradients of a rank, in thousands
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "10,100,1000,10000,50000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    thousands: Vec<u32>,

    /// Rounds of each size
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rounds: u32,
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("error");
    env_logger::Builder::from_env(filter).init();
    let args = Args::parse();
    let workers = Workers::threads(args.devices.iter().copied()).oversubscribed(args.oversubscribe);
    let job = Job::new(workers).in_bf16(args.bf16);
    let measured = burn_wgsl_mpi::run(job, |worker| {
        if worker.is_first() {
            println!("{} ranks, the first on {}", worker.world(), worker.device().describe()?);
            println!("{:>12} {:>12} {:>8}", "numbers", "time", "GB/s");
        }
        for &thousands in &args.thousands {
            let numbers = thousands as usize * 1000;
            let mut times = rounds::measure(worker, numbers, args.rounds as usize)?;
            times.sort();
            let seconds = times[times.len() / 2].as_secs_f64();
            if worker.is_first() {
                let speed = (numbers * size_of::<f32>()) as f64 / seconds / 1e9;
                println!("{numbers:>12} {:>9.2} ms {speed:>8.2}", seconds * 1e3);
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    match measured {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
