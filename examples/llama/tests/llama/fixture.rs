//! Small GGUF files, and a model computed from its definition.

use std::io::Write;

use tempfile::NamedTempFile;

/// A file that is put together.
#[derive(Debug, Clone, Default)]
pub struct File {
    keys: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

/// The bytes of a string.
pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl File {
    /// Adds a value, of the type with a number.
    pub fn value(&mut self, key: &str, number: u32, bytes: &[u8]) {
        self.keys.push((key.to_owned(), [&number.to_le_bytes(), bytes].concat()));
    }

    pub fn size(&mut self, key: &str, size: u32) {
        self.value(key, 4, &size.to_le_bytes());
    }

    pub fn float(&mut self, key: &str, float: f32) {
        self.value(key, 6, &float.to_le_bytes());
    }

    pub fn text(&mut self, key: &str, text: &str) {
        self.value(key, 8, &string(text));
    }

    pub fn list(&mut self, key: &str, number: u32, elements: &[Vec<u8>]) {
        let head = [number.to_le_bytes().to_vec(), (elements.len() as u64).to_le_bytes().to_vec()]
            .concat();
        self.value(key, 9, &[head, elements.concat()].concat());
    }

    /// Adds a tensor. The last size is that of the contiguous axis.
    pub fn tensor(&mut self, name: &str, shape: &[usize], number: u32, bytes: Vec<u8>) {
        self.tensors.push((name.to_owned(), shape.to_vec(), number, bytes));
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            out.extend(string(key));
            out.extend(value);
        }
        let mut start = 0u64;
        for (name, shape, number, bytes) in &self.tensors {
            out.extend(string(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&size| out.extend((size as u64).to_le_bytes()));
            out.extend(number.to_le_bytes());
            out.extend(start.to_le_bytes());
            start = (start + bytes.len() as u64).next_multiple_of(32);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        for (.., bytes) in &self.tensors {
            out.extend(bytes);
            out.resize(out.len().next_multiple_of(32), 0);
        }
        out
    }
}

/// Writes bytes into a file that exists until it is dropped.
pub fn written(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("there is a folder for temporary files");
    file.write_all(bytes).expect("there is room for a file");
    file
}

/// The sizes of the model.
pub const WIDTH: usize = 64;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const HIDDEN: usize = 96;
pub const LAYERS: usize = 2;
const HEAD: usize = WIDTH / HEADS;
const CONTROLS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const EPSILON: f64 = 1e-5;
const THETA: f64 = 1000.0;

/// Weights that look random, between -0.5 and 0.5.
fn noise(seed: usize, len: usize) -> Vec<f32> {
    let mut state = seed as u64 * 7919 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..len).map(|_| next()).collect()
}

/// Returns the blocks of a type of 4 bits (with minima) or of 8 bits, and the elements that they stand for.
fn quantised(floats: &[f32], number: u32) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut elements) = (Vec::new(), Vec::new());
    for block in floats.chunks(32) {
        let range = |floats: &[f32], start, pick: fn(f32, f32) -> f32| {
            floats.iter().copied().fold(start, pick)
        };
        let (low, high) =
            (range(block, f32::INFINITY, f32::min), range(block, f32::NEG_INFINITY, f32::max));
        if number == 3 {
            let scale = half::f16::from_f32((high - low) / 15.0);
            let minimum = half::f16::from_f32(low);
            let integers = block
                .iter()
                .map(|x| ((x - minimum.to_f32()) / scale.to_f32()).round().clamp(0.0, 15.0));
            let integers: Vec<u8> = integers.map(|x| x as u8).collect();
            bytes.extend([scale.to_le_bytes(), minimum.to_le_bytes()].concat());
            bytes.extend((0..16).map(|i| integers[i] | (integers[i + 16] << 4)));
            elements
                .extend(integers.iter().map(|&x| f32::from(x) * scale.to_f32() + minimum.to_f32()));
        } else {
            let scale = half::f16::from_f32(low.abs().max(high) / 127.0);
            let integers =
                block.iter().map(|x| (x / scale.to_f32()).round().clamp(-127.0, 127.0) as i8);
            let integers: Vec<i8> = integers.collect();
            bytes.extend(scale.to_le_bytes());
            bytes.extend(integers.iter().map(|&x| x as u8));
            elements.extend(integers.iter().map(|&x| f32::from(x) * scale.to_f32()));
        }
    }
    (bytes, elements)
}

/// A model, and the elements of its tensors.
pub struct Small {
    pub file: File,
    pub vocabulary: usize,
    tensors: std::collections::BTreeMap<String, Vec<f32>>,
}

/// The letter for a byte in the vocabulary: printable ones are themselves, and the others follow code point 256.
fn letters() -> Vec<String> {
    let is_printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let letter =
        |byte: u32| if is_printable(byte) { byte } else { others.next().expect("it is endless") };
    (0..256)
        .map(letter)
        .map(|code| char::from_u32(code).expect("it is a letter").to_string())
        .collect()
}

impl Small {
    pub fn new() -> Self {
        let mut file = File::default();
        file.text("general.architecture", "llama");
        let sizes = [
            ("block_count", LAYERS),
            ("context_length", 256),
            ("embedding_length", WIDTH),
            ("feed_forward_length", HIDDEN),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("rope.dimension_count", HEAD),
        ];
        sizes.iter().for_each(|(key, size)| file.size(&format!("llama.{key}"), *size as u32));
        file.float("llama.attention.layer_norm_rms_epsilon", EPSILON as f32);
        file.float("llama.rope.freq_base", THETA as f32);
        let mut tokens: Vec<String> = CONTROLS.iter().map(|&token| token.to_owned()).collect();
        tokens.extend(letters());
        tokens.extend(["th", "the", "Ġthe"].map(str::to_owned));
        let vocabulary = tokens.len();
        let types = (0..vocabulary as i32).map(|id| if id < 3 { 3i32 } else { 1 });
        file.text("tokenizer.ggml.model", "gpt2");
        file.text("tokenizer.ggml.pre", "smollm");
        file.list(
            "tokenizer.ggml.tokens",
            8,
            &tokens.iter().map(|token| string(token)).collect::<Vec<_>>(),
        );
        file.list("tokenizer.ggml.merges", 8, &["t h", "th e", "Ġ the"].map(string));
        file.list(
            "tokenizer.ggml.token_type",
            5,
            &types.map(|t| t.to_le_bytes().to_vec()).collect::<Vec<_>>(),
        );
        file.size("tokenizer.ggml.eos_token_id", 2);
        let mut small = Self { file, vocabulary, tensors: Default::default() };
        small.tensor("token_embd", &[vocabulary, WIDTH], 8);
        small.tensor("output_norm", &[WIDTH], 0);
        let kv = KV_HEADS * HEAD;
        for layer in 0..LAYERS {
            let shapes: [(&str, &[usize], u32); 9] = [
                ("attn_norm", &[WIDTH], 0),
                ("attn_q", &[WIDTH, WIDTH], 3),
                ("attn_k", &[kv, WIDTH], 3),
                ("attn_v", &[kv, WIDTH], 3),
                ("attn_output", &[WIDTH, WIDTH], 8),
                ("ffn_norm", &[WIDTH], 0),
                ("ffn_gate", &[HIDDEN, WIDTH], 3),
                // Another type than that of the gate, with which it is joined.
                ("ffn_up", &[HIDDEN, WIDTH], 8),
                ("ffn_down", &[WIDTH, HIDDEN], 3),
            ];
            for (name, shape, number) in shapes {
                small.tensor(&format!("blk.{layer}.{name}"), shape, number);
            }
        }
        small
    }

    fn tensor(&mut self, name: &str, shape: &[usize], number: u32) {
        let floats = noise(self.tensors.len(), shape.iter().product());
        let (bytes, elements) = match number {
            0 => {
                let floats: Vec<f32> = floats.iter().map(|x| x + 1.0).collect();
                (floats.iter().flat_map(|x| x.to_le_bytes()).collect(), floats)
            }
            _ => quantised(&floats, number),
        };
        self.file.tensor(&format!("{name}.weight"), shape, number, bytes);
        self.tensors.insert(name.to_owned(), elements);
    }

    /// Returns `weight @ x` for a weight `[outputs, inputs]`.
    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = self.tensors[name].chunks(x.len());
        rows.map(|row| row.iter().zip(x).map(|(&weight, x)| f64::from(weight) * x).sum()).collect()
    }

    fn normed(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + EPSILON).sqrt();
        self.tensors[name].iter().zip(x).map(|(&gamma, x)| x * scale * f64::from(gamma)).collect()
    }

    /// Returns the logits after each token, from the definition.
    pub fn logits(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let row =
            |&token: &u32| self.tensors["token_embd"][token as usize * WIDTH..][..WIDTH].iter();
        let mut states: Vec<Vec<f64>> =
            tokens.iter().map(|token| row(token).map(|&x| f64::from(x)).collect()).collect();
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let normed: Vec<_> =
                states.iter().map(|x| self.normed(&name("attn_norm"), x)).collect();
            let projected = |part: &str| {
                normed.iter().map(|x| self.product(&name(part), x)).collect::<Vec<_>>()
            };
            let [mut q, mut k, v] = ["attn_q", "attn_k", "attn_v"].map(projected);
            for (position, (q, k)) in q.iter_mut().zip(&mut k).enumerate() {
                q.chunks_mut(HEAD)
                    .chain(k.chunks_mut(HEAD))
                    .for_each(|head| rotate(head, position));
            }
            for (position, state) in states.iter_mut().enumerate() {
                let mut attended = Vec::new();
                for head in 0..HEADS {
                    let kv_head = head / (HEADS / KV_HEADS);
                    let of = |x: &[f64], head: usize| x[head * HEAD..(head + 1) * HEAD].to_vec();
                    let dot =
                        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                    let query = of(&q[position], head);
                    let scores = k[..=position]
                        .iter()
                        .map(|k| dot(&query, &of(k, kv_head)) / (HEAD as f64).sqrt());
                    let weights: Vec<f64> = scores.map(f64::exp).collect();
                    let total: f64 = weights.iter().sum();
                    attended.extend((0..HEAD).map(|col| {
                        let values = v[..=position].iter().map(|v| v[kv_head * HEAD + col]);
                        weights
                            .iter()
                            .zip(values)
                            .map(|(weight, value)| weight * value)
                            .sum::<f64>()
                            / total
                    }));
                }
                let added = self.product(&name("attn_output"), &attended);
                state.iter_mut().zip(added).for_each(|(x, added)| *x += added);
            }
            for state in &mut states {
                let x = self.normed(&name("ffn_norm"), state);
                let [gate, up] = ["ffn_gate", "ffn_up"].map(|part| self.product(&name(part), &x));
                let gated: Vec<f64> =
                    gate.iter().zip(up).map(|(x, up)| x / (1.0 + (-x).exp()) * up).collect();
                let added = self.product(&name("ffn_down"), &gated);
                state.iter_mut().zip(added).for_each(|(x, added)| *x += added);
            }
        }
        states.iter().map(|x| self.product("token_embd", &self.normed("output_norm", x))).collect()
    }
}

/// Rotates pairs of neighbours by angles of a position.
fn rotate(head: &mut [f64], position: usize) {
    for pair in 0..HEAD / 2 {
        let angle = position as f64 * THETA.powf(-2.0 * pair as f64 / HEAD as f64);
        let [x, y] = [head[2 * pair], head[2 * pair + 1]];
        head[2 * pair] = x * angle.cos() - y * angle.sin();
        head[2 * pair + 1] = y * angle.cos() + x * angle.sin();
    }
}
