use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Int, Tensor};
use burn_wgsl::generate::{Sampler, Sampling};
use burn_wgsl::train::Stop;
use burn_wgsl::{Precision, Wgsl, WgslDevice};
use clap::Parser;
use gpt::model::Sizes;
use gpt::sample::Writer;
use gpt::train::Trainer;
use serde_json::Value;

use crate::{Args, run};

/// Tests run one at a time: the CPU has one stream of random numbers.
fn serial_guard() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in the folder for temporary files.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gpt-{}-{name}", std::process::id()))
}

/// Runs the program on the CPU with a tiny model and the text, and returns its report.
fn train(name: &str, text: &str, options: &str) -> anyhow::Result<Value> {
    let _guard = serial_guard();
    let [source, report] = ["txt", "json"].map(|ending| file(&format!("{name}.{ending}")));
    std::fs::write(&source, text)?;
    let width = if options.contains("--width") { "" } else { "--width 16" };
    let line = format!(
        "gpt --device cpu --batch 4 --context 8 {width} --heads 2 --layers 1 --sample 5 \
         --learning-rate 0.02 {options}"
    );
    let mut args = Args::try_parse_from(line.split_whitespace())?;
    args.text = Some(source.clone());
    args.json = Some(report.clone());
    let result = run(&args, &Stop::new());
    std::fs::remove_file(&source)?;
    result?;
    let json = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;
    Ok(serde_json::from_str(&json)?)
}

#[test]
fn each_precision_trains_a_model_of_its_own_to_the_same_loss() {
    let text = "abcdefghij".repeat(30);
    let report =
        train("precisions", &text, "--steps 30 --precision f32,f16,bf16").expect("it trains");
    let runs = report["runs"].as_array().expect("a list");
    let names: Vec<&Value> = runs.iter().map(|run| &run["precision"]).collect();
    assert_eq!(names, ["f32", "f16", "bf16"]);
    let losses: Vec<f64> =
        runs.iter().map(|run| run["test_loss"].as_f64().expect("a number")).collect();
    // The next letter is certain; guessing costs ln 10.
    assert!(losses[0] < 1.0, "{losses:?}");
    assert!(losses.iter().all(|loss| (loss / losses[0] - 1.0).abs() < 0.05), "{losses:?}");
    assert_eq!(runs[0]["skipped_steps"], Value::Null);
    assert!(runs[1]["skipped_steps"].is_u64(), "{report}");
}

#[test]
fn errors_name_the_cause() {
    let message = |text: &str, options: &str| {
        train("errors", text, options).expect_err("the run fails").to_string()
    };
    let short = message("abc", "--steps 1");
    assert!(short.contains("3 characters") && short.contains("more than 90"), "{short}");
    let unknown = message("abc", "--precision f64");
    assert!(unknown.contains("f64") && unknown.contains("bf16"), "{unknown}");
    let none = message("abc", "--steps 0");
    assert!(none.contains("--steps"), "{none}");
    let cold = message("abc", "--temperature=-1");
    assert!(cold.contains("at least 0"), "{cold}");
}

/// Texts of a cache are those of a model that reads the whole text again for each token.
#[test]
fn texts_are_those_of_reading_all_tokens_again() {
    let _guard = serial_guard();
    let software: WgslDevice = "software".parse().expect("it is a selector");
    let is_there = software.resolve().is_ok();
    for device in [WgslDevice::Cpu].into_iter().chain(is_there.then_some(software)) {
        let sizes = Sizes { context: 24, width: 32, heads: 4, layers: 2 };
        let model = Trainer::new(sizes, 40, Precision::F32, 3, device).model();
        let mut sampler = Sampler::new(Sampling::GREEDY, 0);
        let mut writer = Writer::new(model.clone(), vec![3, 7, 9]);
        let mut tokens = vec![3, 7, 9];
        // The tokens from here on are read again, where there is no room for more.
        let mut first = 0;
        for step in 0..40 {
            if tokens.len() - first > sizes.context {
                first = tokens.len() - sizes.context / 2;
            }
            let all = Tensor::<Wgsl, 1, Int>::from_data(&tokens[first..], &device);
            let logits = model.forward(all.unsqueeze::<2>());
            let last = logits.narrow(1, tokens.len() - first - 1, 1).into_data();
            let expected = sampler.choose(&last.to_vec().expect("f32")).expect("a number");
            tokens.push(expected as i32);
            let next = pollster::block_on(writer.next(&mut sampler)).expect("the device works");
            assert_eq!(next, expected as i32, "step {step} on {device}");
        }
        assert_eq!(writer.tokens(), tokens);
    }
}

/// 8 bits cost less than 0.5 % of the loss, 4 bits less than 3 %.
#[test]
fn integer_weights_cost_little() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/main.rs"));
    let options = "--steps 60 --width 32 --weights f32,f16,int8,int4 --temperature 0";
    let report = train("weights", &text.expect("it is there"), options).expect("it trains");
    let forms = report["runs"][0]["weights"].as_array().expect("a list");
    let losses: Vec<f64> =
        forms.iter().map(|form| form["test_loss"].as_f64().expect("a number")).collect();
    let [f32, f16, int8, int4] = losses[..] else { panic!("{losses:?}") };
    for (loss, limit) in [(f16, 0.005), (int8, 0.005), (int4, 0.03)] {
        assert!((loss / f32 - 1.0).abs() <= limit, "{losses:?}");
    }
    // They are other weights.
    assert!(f16 != f32 && int8 != f32 && int4 != int8, "{losses:?}");
    assert!(forms.iter().all(|form| form["characters_per_second"].is_f64()), "{report}");
}
