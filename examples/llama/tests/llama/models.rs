//! Models against their definition, in all forms, alone and joined.

use burn::tensor::{FloatDType, Tensor};
use burn_wgsl::generate::KvCache;
use burn_wgsl::{Wgsl, WgslDevice};
use llama::gguf::Gguf;
use llama::linear::Form;
use llama::model::{Llama, LoadError};
use llama::stream::{Stream, StreamError};

use crate::fixture::{File, Small, written};

/// The CPU, and the software adapter or the GPU if there is one.
pub fn devices() -> Vec<WgslDevice> {
    let adapters = [WgslDevice::Software, WgslDevice::Gpu(0)];
    let found = adapters.into_iter().filter(|device| device.describe().is_ok());
    std::iter::once(WgslDevice::Cpu).chain(found).collect()
}

pub fn load(small: &Small, form: Form, device: &WgslDevice) -> Llama<Wgsl> {
    let file = written(&small.file.bytes());
    let mut file = Gguf::open(file.path()).expect("the file is right");
    Llama::load(&mut file, 64, form, device).expect("the model is right")
}

fn values(logits: Tensor<Wgsl, 2>) -> Vec<Vec<f32>> {
    let [_, vocabulary] = logits.dims();
    let values: Vec<f32> = logits.cast(FloatDType::F32).into_data().to_vec().expect("they are f32");
    values.chunks(vocabulary).map(<[f32]>::to_vec).collect()
}

#[track_caller]
fn assert_close(label: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{label}");
    let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{label}: logit {at} is {found}, not {expected}, of at most {largest}"
        );
    }
}

fn tolerance(form: Form) -> f64 {
    if form == Form::F16 { 2e-2 } else { 1e-4 }
}

#[test]
fn logits_are_those_of_the_definition() {
    let small = Small::new();
    let tokens: Vec<u32> = (0..21).map(|i| (i * 37 + 5) % small.vocabulary as u32).collect();
    let expected = small.logits(&tokens);
    for device in devices() {
        for form in [Form::Stored, Form::F16, Form::F32] {
            let model = load(&small, form, &device);
            let label = format!("{form:?} on {device}");
            // A prompt at once, then a few tokens, then one by one.
            let mut cache = model.cache(1, 32);
            let mut read = 0;
            for count in [11, 4, 1, 1, 1, 1, 1, 1] {
                let logits =
                    model.read(&tokens[read..read + count], &mut cache).expect("there is room");
                read += count;
                assert_close(
                    &format!("{label}, {read}"),
                    &values(logits)[0],
                    &expected[read - 1],
                    tolerance(form),
                );
            }
            assert_eq!(read, tokens.len());
            // A longer text is refused, and nothing is lost.
            assert!(model.read(&tokens[..12], &mut cache).is_err());
            assert_eq!(cache.len(0), 21);
        }
    }
}

#[test]
fn sequences_that_join_and_leave_have_the_logits_of_sequences_alone() {
    let small = Small::new();
    let token = |seed: usize, at: usize| ((seed * 101 + at * 29 + 7) % small.vocabulary) as u32;
    for device in devices() {
        let model = load(&small, Form::Stored, &device);
        let mut cache = model.cache(3, 12);
        // The seed of the text of each sequence.
        let mut texts: [Option<usize>; 3] = [None; 3];
        let join = |cache: &mut KvCache<Wgsl>, sequence: usize, seed: usize, len: usize| {
            let mut alone = model.cache(1, 12);
            let prompt: Vec<u32> = (0..len).map(|at| token(seed, at)).collect();
            model.read(&prompt, &mut alone).expect("there is room");
            cache.join(sequence, &alone);
        };
        // What happens before some steps: sequences that join with so many tokens, or leave.
        for step in 0..16 {
            let joins: &[(usize, usize, usize)] = match step {
                0 => &[(0, 1, 3)],
                // Longer than what was written.
                2 => &[(1, 2, 8)],
                5 => &[(1, 3, 1), (2, 4, 5)],
                9 => &[(0, 5, 4)],
                _ => &[],
            };
            match step {
                5 => cache.clear(1),
                9 => cache.clear(0),
                _ => {}
            }
            for &(sequence, seed, len) in joins {
                join(&mut cache, sequence, seed, len);
                texts[sequence] = Some(seed);
            }
            if step == 5 {
                assert_eq!(cache.len(1), 1);
            }
            let lens: Vec<usize> = (0..3).map(|sequence| cache.len(sequence)).collect();
            if lens.contains(&12) {
                assert!(cache.check_room(1).is_err());
                let full = lens.iter().position(|&len| len == 12).expect("one is full");
                cache.clear(full);
                texts[full] = None;
            }
            let lens: Vec<usize> = (0..3).map(|sequence| cache.len(sequence)).collect();
            let next: Vec<u32> = (0..3)
                .map(|sequence| texts[sequence].map_or(0, |seed| token(seed, lens[sequence])))
                .collect();
            let logits = values(model.read(&next, &mut cache).expect("there is room"));
            for (sequence, seed) in texts.iter().enumerate() {
                let Some(seed) = *seed else { continue };
                let text: Vec<u32> = (0..=lens[sequence]).map(|at| token(seed, at)).collect();
                let expected = small.logits(&text).pop().expect("there are tokens");
                let label = format!(
                    "step {step}, sequence {sequence} of {} tokens on {device}",
                    text.len()
                );
                assert_close(&label, &logits[sequence], &expected, 1e-4);
            }
        }
    }
}

#[test]
fn missing_and_misshapen_tensors_are_listed_together() {
    let small = Small::new();
    let mut bytes = small.file.bytes();
    let rename = |bytes: &mut Vec<u8>, from: &str, to: &str| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes());
        let at = at.expect("the name is there");
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    };
    rename(&mut bytes, "blk.0.ffn_up.weight", "blk.0.ffn_xx.weight");
    rename(&mut bytes, "blk.1.attn_norm.weight", "blk.1.attn_nnnn.weight");
    let file = written(&bytes);
    let mut file = Gguf::open(file.path()).expect("the file is right");
    let error = Llama::<Wgsl>::load(&mut file, 64, Form::F32, &WgslDevice::Cpu)
        .expect_err("tensors are missing");
    let LoadError::Tensors(problems) = &error else { panic!("{error}") };
    // Two are missing, and two are there whose names are not known.
    assert_eq!(problems.len(), 4, "{error}");
    assert!(problems[0].contains("`blk.0.ffn_up.weight` is missing"), "{error}");
    assert!(problems[1].contains("`blk.1.attn_norm.weight` is missing"), "{error}");
    // Of another shape, also the last product, which a file need not have.
    let mut misshapen = Small::new().file;
    misshapen.tensor("output.weight", &[32, 64], 0, vec![0; 4 * 32 * 64]);
    let misshapen = written(&misshapen.bytes());
    let mut misshapen = Gguf::open(misshapen.path()).expect("the file is right");
    let error = Llama::<Wgsl>::load(&mut misshapen, 64, Form::F32, &WgslDevice::Cpu);
    let error = error.expect_err("the shape is another").to_string();
    assert!(error.contains("`output.weight` is [32, 64], not"), "{error}");
    // No tensors at all.
    let empty = written(&File::default().bytes());
    let mut empty = Gguf::open(empty.path()).expect("the file is right");
    assert!(matches!(
        Llama::<Wgsl>::load(&mut empty, 64, Form::F32, &WgslDevice::Cpu),
        Err(LoadError::Config(_))
    ));
}

/// Bytes that arrive in pieces of any length give the same model.
#[test]
fn models_are_loaded_while_their_bytes_arrive() {
    let small = Small::new();
    let bytes = small.file.bytes();
    let device = WgslDevice::Cpu;
    let expected = load(&small, Form::Stored, &device);
    let tokens = [5, 60, 100];
    let logits = |model: &Llama<Wgsl>| {
        let mut cache = model.cache(1, 12);
        values(model.read(&tokens, &mut cache).expect("there is room"))
    };
    for piece in [1000, 4096, 70_001, bytes.len()] {
        let mut stream = Stream::<Wgsl>::new(bytes.len() as u64, 64, Form::Stored, &device);
        for part in bytes.chunks(piece) {
            stream.push(part).expect("the file is right");
        }
        assert_eq!(stream.arrived(), bytes.len() as u64);
        let (model, words) = stream.finish().expect("it is whole");
        assert_eq!(logits(&model), logits(&expected), "pieces of {piece} bytes");
        assert!(words.control("<|im_end|>").is_some());
    }
    // One that ends too early, and one that does not end.
    let new = |len: usize| Stream::<Wgsl>::new(len as u64, 64, Form::Stored, &device);
    for len in [0, 100, bytes.len() / 2, bytes.len() - 1] {
        let mut stream = new(bytes.len());
        stream.push(&bytes[..len]).expect("nothing is wrong yet");
        let error = stream.finish().expect_err("it is cut");
        assert!(matches!(error, StreamError::Cut { .. }), "{error}");
    }
    let mut stream = new(bytes.len() - 1);
    assert!(matches!(stream.push(&bytes), Err(StreamError::TooLong(_))));
    // A file that says that it is longer than it is.
    let mut stream = new(bytes.len() - 1);
    let error = stream.push(&bytes[..bytes.len() - 1]).expect_err("a tensor is beyond the file");
    assert!(error.to_string().contains("beyond the file"), "{error}");
    let mut stream = new(1 << 17);
    let error = stream.push(&vec![7; 1 << 17]).expect_err("it is no model");
    assert!(error.to_string().contains("no GGUF file"), "{error}");
}
