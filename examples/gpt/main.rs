//! Trains a small GPT of characters with the `Wgsl` backend, in f32, f16 or bf16, and prints text that it
//! writes.
//!
//! `cargo run --release -p gpt --example gpt -- --help` lists the options.

mod args;
mod steps;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use burn::module::Module;
use burn::tensor::Tensor;
use burn_wgsl::generate::{Sampler, Sampling};
use burn_wgsl::train::Stop;
use burn_wgsl::{Precision, Wgsl, WgslDevice, memory, product_path};
use digits::rng::Rng;
use digits::weights;
use gpt::corpus::Corpus;
use gpt::model::Gpt;
use gpt::sample::Writer;
use gpt::train::Trainer;
use gpt::weights::Form;

use args::Args;

/// Batches that a model is tested on, the same for each.
const TEST_BATCHES: usize = 16;

/// The figures of a trained model.
struct Run {
    precision: Precision,
    /// Excerpts per step.
    batch: usize,
    /// The checksum of the trained weights.
    fingerprint: u32,
    /// The mean loss of the test excerpts with the trained weights, in nats per token.
    test_loss: f64,
    /// The trained model with each form of its weights.
    forms: Vec<FormResult>,
    /// Training tokens per second, without the first steps, which compile kernels.
    tokens_per_second: f64,
    /// The memory of training: `None` on the CPU.
    memory: Option<u64>,
    /// The steps that changed no parameter: `None` without a loss scale.
    skipped_steps: Option<u32>,
}

/// The test loss and the speed of a model with one form of its weights.
struct FormResult {
    form: Form,
    /// The mean loss of the test excerpts, in nats per token.
    test_loss: f64,
    /// Characters per second, without the first two: `None` if there were fewer.
    characters_per_second: Option<f64>,
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    let args = Args::from_command_line();
    let result = Stop::on_signals().map_err(anyhow::Error::from).and_then(|stop| {
        run(&args, &stop)?;
        Ok(stop.exit_code())
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, stop: &Stop) -> Result<()> {
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
        runs.push(train(args, &corpus, device, precision, stop)?);
        if stop.is_requested() {
            break;
        }
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
fn train(
    args: &Args,
    corpus: &Corpus,
    device: WgslDevice,
    precision: Precision,
    stop: &Stop,
) -> Result<Run> {
    let seed = args.seed;
    let vocabulary = corpus.vocabulary_size();
    let new = || Trainer::new(args.sizes(), vocabulary, precision, seed, device);
    let batch = steps::batch_size(args, corpus, (device, precision), new)?;
    // The search drew random numbers: the trainer seeds the device again.
    let mut trainer = new();
    if args.precision.len() == 1 {
        println!("model: {} parameters, seed {seed}", trainer.model().num_params());
    }
    let _scope = trainer.precision_scope();
    let (trained, measured) = memory::measure(&device, || {
        steps::train(args, corpus, batch, stop, (device, precision), &mut trainer)
    })?;
    let tokens_per_second = trained?;
    let model = trainer.model();
    let size = [batch, args.context as usize];
    let trained_loss = test_loss(size, corpus, &model, &device)?;
    let mut forms = Vec::new();
    for &form in &args.weights {
        let model = form.apply(model.clone());
        let test_loss = match form {
            Form::F32 => trained_loss,
            _ => test_loss(size, corpus, &model, &device)?,
        };
        if args.weights != [Form::F32] {
            println!("\nweights {form}: test loss {test_loss:.4}");
        }
        let characters_per_second = write_text(args, corpus, model)?;
        if let Some(speed) = characters_per_second {
            println!("{speed:.0} characters per second");
        }
        forms.push(FormResult { form, test_loss, characters_per_second });
    }
    let scaler = trainer.scaler();
    Ok(Run {
        precision,
        batch,
        fingerprint: weights::fingerprint(&model),
        test_loss: trained_loss,
        forms,
        tokens_per_second,
        memory: Some(measured.peak).filter(|&peak| peak > 0),
        skipped_steps: scaler.is_enabled().then(|| scaler.state().skipped_steps),
    })
}

/// Returns the mean loss of random excerpts of the last tenth of the text.
fn test_loss(
    size: [usize; 2],
    corpus: &Corpus,
    model: &Gpt<Wgsl>,
    device: &WgslDevice,
) -> Result<f64> {
    let [_, test] = corpus.split();
    let mut rng = Rng(0);
    let losses = (0..TEST_BATCHES).map(|_| {
        let batch = corpus.excerpts::<Wgsl>(test.clone(), size, &mut rng, device);
        model.loss(batch)
    });
    let mean = Tensor::cat(losses.collect(), 0).mean();
    Ok(mean.try_into_data()?.iter::<f64>().next().unwrap_or(f64::NAN))
}

/// Prints the prompt and the characters that follow. Returns how many were written per second.
fn write_text(args: &Args, corpus: &Corpus, model: Gpt<Wgsl>) -> Result<Option<f64>> {
    if args.sample == 0 {
        return Ok(None);
    }
    let mut tokens = corpus.encode(&args.prompt);
    if tokens.is_empty() {
        tokens.push(0);
    }
    println!();
    print!("{}", corpus.decode(&tokens));
    let Args { temperature, top_k, top_p, seed, .. } = *args;
    let mut sampler = Sampler::new(Sampling { temperature, top_k, top_p }, seed);
    let mut writer = Writer::new(model, tokens);
    let mut start = None;
    for index in 0..args.sample {
        let next = pollster::block_on(writer.next(&mut sampler))?;
        print!("{}", corpus.decode(&[next]));
        std::io::stdout().flush()?;
        // The first two compile kernels: one reads the prompt, and one a token.
        if index == 1 {
            start = Some(Instant::now());
        }
    }
    println!();
    let speed =
        |start: Instant| f64::from(args.sample - 2) / start.elapsed().as_secs_f64().max(1e-9);
    Ok(start.filter(|_| args.sample > 2).map(speed))
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
    if runs.iter().flat_map(|run| &run.forms).all(|result| result.form == Form::F32) {
        return table;
    }
    table += "\n";
    let row = |precision: &str, weights: &str, loss: &str, speed: &str| {
        format!("{precision:9}  {weights:7}  {loss:>9}  {speed:>12}\n")
    };
    table += &row("precision", "weights", "test loss", "characters/s");
    for run in runs {
        for FormResult { form, test_loss, characters_per_second } in &run.forms {
            let speed = characters_per_second.map_or("-".to_owned(), |speed| format!("{speed:.0}"));
            let (precision, form) = (run.precision.to_string(), form.to_string());
            table += &row(&precision, &form, &format!("{test_loss:.4}"), &speed);
        }
    }
    table
}

/// Returns the measurements as JSON.
fn json(args: &Args, adapter: &str, corpus: &Corpus, runs: &[Run]) -> String {
    let runs = runs.iter().map(|run| {
        serde_json::json!({
            "precision": run.precision.to_string(),
            "batch": run.batch,
            "fingerprint": run.fingerprint,
            "test_loss": run.test_loss,
            "weights": run.forms.iter().map(|written| serde_json::json!({
                "form": written.form.to_string(),
                "test_loss": written.test_loss,
                "characters_per_second": written.characters_per_second,
            })).collect::<Vec<_>>(),
            "tokens_per_second": run.tokens_per_second,
            "memory_bytes": run.memory,
            "skipped_steps": run.skipped_steps,
        })
    });
    let report = serde_json::json!({
        "adapter": adapter,
        "characters": corpus.len(),
        "steps": args.steps,
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
