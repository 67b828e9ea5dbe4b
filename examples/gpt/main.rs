//! Trains a small GPT of characters with the `Wgsl` backend, in f32, f16 or bf16, and prints text that it
//! writes.
//!
//! `cargo run --release -p gpt --example gpt -- --help` lists the options.

mod args;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, memory, product_path};
use digits::rng::Rng;
use gpt::corpus::Corpus;
use gpt::model::Gpt;
use gpt::sample::next_token;
use gpt::train::Trainer;

use args::Args;

type B = Autodiff<Wgsl>;

/// How often the loss is read back and printed, in steps.
const REPORT_EVERY: u32 = 100;
/// Batches that a model is tested on, the same for each.
const TEST_BATCHES: usize = 16;

/// The figures of a trained model.
struct Run {
    precision: Precision,
    /// The mean loss of the test excerpts, in nats per token.
    test_loss: f64,
    /// Training tokens per second, without the first steps, which compile kernels.
    tokens_per_second: f64,
    /// The memory of training: `None` on the CPU.
    memory: Option<u64>,
    /// The steps that changed no parameter: `None` without a loss scale.
    skipped_steps: Option<u32>,
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let device = args.device.unwrap_or_default();
    let adapter = device.describe()?;
    let corpus = Corpus::new(&text(args)?);
    let context = args.context as usize;
    ensure!(
        corpus.split().iter().all(|range| range.len() > context),
        "the text has {} characters, too few for excerpts of {context}: it needs more than {}",
        corpus.len(),
        10 * (context + 1)
    );
    println!("text: {} characters, {} different", corpus.len(), corpus.vocabulary_size());
    let mut runs = Vec::new();
    for &precision in &args.precision {
        println!("\n{precision} on {adapter}: products {}", product_path(&device, precision)?);
        runs.push(train(args, &corpus, device, precision)?);
    }
    print!("\n{}", table(&runs));
    if let Some(path) = &args.json {
        std::fs::write(path, json(args, &adapter, &corpus, &runs))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the text of the file, or the shaders of burn-wgsl.
fn text(args: &Args) -> Result<String> {
    let Some(path) = &args.text else {
        return Ok(burn_wgsl::kernels::sources().iter().map(|source| source.text).collect());
    };
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Trains a model, tests it and prints text that it writes.
fn train(args: &Args, corpus: &Corpus, device: WgslDevice, precision: Precision) -> Result<Run> {
    let seed = args.seed;
    let mut trainer = Trainer::new(args.sizes(), corpus.vocabulary_size(), precision, seed, device);
    if args.precision.len() == 1 {
        println!("model: {} parameters, seed {seed}", trainer.model().num_params());
    }
    let _scope = trainer.precision_scope();
    let (trained, measured) =
        memory::measure(&device, || steps(args, corpus, device, &mut trainer))?;
    let tokens_per_second = trained?;
    let model = trainer.model();
    let test_loss = test_loss(args, corpus, &model, &device)?;
    write_text(args, corpus, &model, &device)?;
    let scaler = trainer.scaler();
    Ok(Run {
        precision,
        test_loss,
        tokens_per_second,
        memory: Some(measured.peak).filter(|&peak| peak > 0),
        skipped_steps: scaler.is_enabled().then(|| scaler.state().skipped_steps),
    })
}

/// Runs the training steps. Returns the tokens per second.
fn steps(args: &Args, corpus: &Corpus, device: WgslDevice, trainer: &mut Trainer) -> Result<f64> {
    let [training, _] = corpus.split();
    let size = [args.batch as usize, args.context as usize];
    let mut rng = Rng(args.seed);
    // The first steps compile kernels.
    let first_timed = (args.steps / 2).min(20);
    let mut start = Instant::now();
    let mut losses: Vec<Tensor<Wgsl, 1>> = Vec::new();
    for step in 1..=args.steps {
        let batch = corpus.excerpts::<B>(training.clone(), size, &mut rng, &device);
        losses.push(trainer.step(batch, args.learning_rate));
        if step == first_timed {
            B::sync(&device)?;
            start = Instant::now();
        }
        if step.is_multiple_of(REPORT_EVERY) || step == args.steps {
            let mean = Tensor::cat(std::mem::take(&mut losses), 0).mean();
            let loss = mean.into_scalar().elem::<f64>();
            println!("step {step:>5}/{}   loss {loss:.4}", args.steps);
            if !loss.is_finite() {
                bail!("the loss became {loss}; try a smaller --learning-rate");
            }
        }
    }
    B::sync(&device)?;
    let timed = (args.steps - first_timed) as usize * size.iter().product::<usize>();
    Ok(timed as f64 / start.elapsed().as_secs_f64())
}

/// Returns the mean loss of random excerpts of the last tenth of the text.
fn test_loss(args: &Args, corpus: &Corpus, model: &Gpt<Wgsl>, device: &WgslDevice) -> Result<f64> {
    let [_, test] = corpus.split();
    let size = [args.batch as usize, args.context as usize];
    let mut rng = Rng(0);
    let losses = (0..TEST_BATCHES).map(|_| {
        let batch = corpus.excerpts::<Wgsl>(test.clone(), size, &mut rng, device);
        model.loss(batch)
    });
    let mean = Tensor::cat(losses.collect(), 0).mean();
    Ok(mean.try_into_data()?.iter::<f64>().next().unwrap_or(f64::NAN))
}

/// Prints the prompt and the characters that follow.
fn write_text(args: &Args, corpus: &Corpus, model: &Gpt<Wgsl>, device: &WgslDevice) -> Result<()> {
    if args.sample == 0 {
        return Ok(());
    }
    let mut tokens = corpus.encode(&args.prompt);
    if tokens.is_empty() {
        tokens.push(0);
    }
    println!();
    print!("{}", corpus.decode(&tokens));
    let mut rng = Rng(args.seed);
    for _ in 0..args.sample {
        let context = &tokens[tokens.len().saturating_sub(args.context as usize)..];
        let next = next_token(model, context, args.temperature, &mut rng, device);
        let next = pollster::block_on(next)?;
        print!("{}", corpus.decode(&[next]));
        std::io::stdout().flush()?;
        tokens.push(next);
    }
    println!();
    Ok(())
}

/// Returns a table of the runs.
fn table(runs: &[Run]) -> String {
    let row = |cells: [&str; 5]| {
        let [precision, loss, speed, memory, skipped] = cells;
        format!("{precision:9}  {loss:>9}  {speed:>8}  {memory:>10}  {skipped:>13}\n")
    };
    let mut table = row(["precision", "test loss", "tokens/s", "memory", "skipped steps"]);
    for run in runs {
        let memory = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        table += &row([
            &run.precision.to_string(),
            &format!("{:.4}", run.test_loss),
            &format!("{:.0}", run.tokens_per_second),
            &run.memory.map_or("-".to_owned(), memory),
            &run.skipped_steps.map_or("-".to_owned(), |count| count.to_string()),
        ]);
    }
    table
}

/// Returns the measurements as JSON.
fn json(args: &Args, adapter: &str, corpus: &Corpus, runs: &[Run]) -> String {
    let runs = runs.iter().map(|run| {
        serde_json::json!({
            "precision": run.precision.to_string(),
            "test_loss": run.test_loss,
            "tokens_per_second": run.tokens_per_second,
            "memory_bytes": run.memory,
            "skipped_steps": run.skipped_steps,
        })
    });
    let report = serde_json::json!({
        "adapter": adapter,
        "characters": corpus.len(),
        "steps": args.steps,
        "batch": args.batch,
        "context": args.context,
        "width": args.width,
        "heads": args.heads,
        "layers": args.layers,
        "seed": args.seed,
        "learning_rate": args.learning_rate,
        "runs": runs.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}
