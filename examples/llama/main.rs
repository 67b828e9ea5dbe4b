//! Writes text with a model of the Llama family from a GGUF file.
//!
//! `cargo run --release -p llama -- --help` lists the options.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::generate::{KvCache, Sampler, Sampling};
use burn_wgsl::profiler::{self, By, Column};
use burn_wgsl::{Wgsl, WgslDevice, memory};
use clap::Parser;
use llama::chat::{self, Message};
use llama::config::Config;
use llama::gguf::Gguf;
use llama::linear::Form;
use llama::model::Llama;
use llama::text::{self, Times};
use llama::tokenizer::Tokens;

/// Write text with a model of the Llama family, such as SmolLM2, from a GGUF file.
#[derive(Parser)]
struct Args {
    /// The file of the model
    model: PathBuf,

    /// Text that the model continues
    #[arg(long, value_name = "TEXT", required_unless_present = "ask")]
    prompt: Option<String>,

    /// A question that a model for chats answers
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt")]
    ask: Option<String>,

    /// Device: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE, else auto]
    #[arg(long, value_name = "SELECTOR")]
    device: Option<WgslDevice>,

    /// Form of the weights on the device: stored (integers and scales as in the file), f16 or f32 [default: stored; f16
    /// on the CPU]
    #[arg(long, value_name = "FORM")]
    weights: Option<Form>,

    /// Tokens that are written at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,

    /// Tokens of the prompt and of the text at most, for which there is memory
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(2..))]
    context: u32,

    /// How much unlikely tokens are chosen; 0: the most likely one is
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = parse_temperature)]
    temperature: f32,

    /// The most likely tokens among which one is chosen; 0: all
    #[arg(long, value_name = "N", default_value_t = 40)]
    top_k: usize,

    /// The probability of the most likely tokens among which one is chosen
    #[arg(long, value_name = "X", default_value_t = 0.95, value_parser = parse_share)]
    top_p: f32,

    /// Random seed of the choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Read a token after 63 others at the end, and print the time of each kernel
    #[arg(long)]
    profile: bool,
}

fn parse_temperature(text: &str) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if value >= 0.0 && value.is_finite() {
        Ok(value)
    } else {
        Err("it must be at least 0".to_owned())
    }
}

fn parse_share(text: &str) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if value > 0.0 && value <= 1.0 {
        Ok(value)
    } else {
        Err("it must be above 0, and at most 1".to_owned())
    }
}

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
    let device = args.device.unwrap_or_default();
    let adapter = device.describe()?;
    let resolved = device.resolve()?;
    let form = args.weights.unwrap_or(Form::for_device(resolved, 1));
    let in_file = || format!("cannot load {}", args.model.display());
    let mut file = Gguf::open(&args.model).with_context(in_file)?;
    let tokens = Tokens::read(file.header()).with_context(in_file)?;
    let prompt = match (&args.prompt, &args.ask) {
        (Some(prompt), _) => tokens.prompt(prompt)?,
        (None, ask) => {
            let content = ask.clone().unwrap_or_default();
            chat::prompt(&[Message { role: "user".to_owned(), content }], &tokens)?
        }
    };
    ensure!(!prompt.is_empty(), "the prompt is empty");
    let config = Config::read(file.header()).with_context(in_file)?;
    let positions = (args.context as usize).min(config.context);
    if positions < args.context as usize {
        eprintln!("the model reads at most {positions} tokens: --context is larger");
    }
    ensure!(
        prompt.len() < positions,
        "the prompt has {} tokens, and with the text there are {positions} at most: shorten it, or choose a larger \
         --context if the model allows it (it reads {})",
        prompt.len(),
        config.context
    );
    let model: Llama<Wgsl> =
        Llama::load(&mut file, positions, form, &device).with_context(in_file)?;
    eprintln!("{} on {adapter}", args.model.display());
    let mut cache = model.cache(1, positions);
    let times = write_text(args, &model, &mut cache, &tokens, &prompt)?;
    let rate = |(tokens, time): (usize, Duration)| tokens as f64 / time.as_secs_f64().max(1e-9);
    eprintln!(
        "prompt: {} tokens, {:.1} per second; text: {} tokens, {:.1} per second",
        times.prompt.0,
        rate(times.prompt),
        times.written.0,
        rate(times.written)
    );
    if cache.check_room(1).is_err() {
        eprintln!(
            "the text ended because {positions} tokens are there: --context sets how many there may be"
        );
    }
    if args.profile {
        print_profile(&device, &model, &prompt)?;
    }
    if resolved != ResolvedDevice::Cpu {
        let used = memory::usage(&device)?;
        eprintln!("memory on the device: {:.1} MB", used.peak as f64 / 1e6);
    }
    Ok(())
}

/// Writes the text to the standard output.
fn write_text(
    args: &Args,
    model: &Llama<Wgsl>,
    cache: &mut KvCache<Wgsl>,
    tokens: &Tokens,
    prompt: &[u32],
) -> Result<Times> {
    let Args { temperature, top_k, top_p, seed, .. } = *args;
    let mut sampler = Sampler::new(Sampling { temperature, top_k, top_p }, seed);
    let mut stream = tokens.stream();
    let mut out = std::io::stdout();
    if let Some(prompt) = &args.prompt {
        write!(out, "{prompt}")?;
    }
    let mut failure = None;
    let times = text::write(model, cache, prompt, args.tokens as usize, &mut sampler, |token| {
        if tokens.is_end(token) {
            return false;
        }
        let written = write!(out, "{}", stream.push(token)).and_then(|()| out.flush());
        failure = written.err();
        failure.is_none()
    })?;
    write!(out, "{}", stream.finish())?;
    if let Some(error) = failure {
        return Err(error).context("cannot write the text");
    }
    writeln!(out)?;
    Ok(times)
}

/// Prints the time of each kernel of a token after others.
fn print_profile(device: &WgslDevice, model: &Llama<Wgsl>, prompt: &[u32]) -> Result<()> {
    const TOKENS: usize = 64;
    let mut cache = model.cache(1, TOKENS);
    let ids: Vec<u32> = prompt.iter().copied().cycle().take(cache.config().capacity).collect();
    let (last, others) = ids.split_last().context("the prompt is empty")?;
    model.read(others, &mut cache)?;
    let (read, profile) = profiler::profile(device, || {
        model.read(&[*last], &mut cache).map(|logits| logits.argmax(1).into_data())
    })?;
    read?;
    eprintln!("{}", profile.table(By::Kernel, Column::Time));
    Ok(())
}
