//! The table of workloads.

use anyhow::{Result, bail};

/// One row of the table.
pub struct Workload {
    pub name: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    /// Fills a large GPU and takes a software adapter minutes: left out there unless it is named.
    pub is_large: bool,
}

/// The method of measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Time of an op in a warmed-up process. The results of all peers are compared.
    Op,
    /// Time of a training step in a warmed-up process. Results are not compared, because the
    /// initial weights are random.
    Step,
    /// Time from process start to the end of the first CNN training step, with empty caches.
    /// Measured once.
    FirstCold,
    /// The same time with the caches filled by an earlier process.
    FirstWarm,
    /// Peak resident memory of a process over many CNN training steps. Measured once.
    Peak,
}

impl Kind {
    /// Returns the unit of the samples.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Op | Self::Step => "ms",
            Self::FirstCold | Self::FirstWarm => "s",
            Self::Peak => "MiB",
        }
    }
}

const fn op(name: &'static str, description: &'static str) -> Workload {
    Workload { name, description, kind: Kind::Op, is_large: false }
}

const fn step(name: &'static str, description: &'static str) -> Workload {
    Workload { name, description, kind: Kind::Step, is_large: false }
}

const fn large(workload: Workload) -> Workload {
    Workload { is_large: true, ..workload }
}

const WORKLOADS: &[Workload] = &[
    op("matmul-256", "256x256 by 256x256"),
    op("matmul-512", "512x512 by 512x512"),
    op("matmul-1024", "1024x1024 by 1024x1024"),
    op("matmul-2048", "2048x2048 by 2048x2048"),
    op("matmul-4096", "4096x4096 by 4096x4096"),
    op("matmul-4096-f16", "4096x4096 by 4096x4096, f16"),
    op("matmul-column", "4096x4096 by 4096x1"),
    op("matmul-row", "16x4096 by 4096x4096"),
    op("matmul-outer", "4096x64 by 64x4096"),
    op("matmul-batched", "16 products 256x256 by 256x256"),
    op("add", "two tensors of 2^24"),
    op("gelu", "2^24 elements"),
    op("sum-last", "4096x4096, over the last axis"),
    op("sum-first", "4096x4096, over the first axis"),
    op("softmax", "4096x1024, over rows"),
    op("transpose", "4096x4096, copied transposed"),
    op("conv2d", "16x16x64x64, 32 filters 3x3, padding 1"),
    op("conv2d-backward", "the same, forward and both gradients"),
    op("small-adds", "10,000 chained adds on 16 elements"),
    step("mlp-step", "784-512-10, batch 256, Adam"),
    step("cnn-step", "28x28, batch 64: conv 32, pool, conv 64, pool, linear 128, 10; Adam"),
    step("lstm-step", "width 128, sequence 64, batch 32; Adam"),
    step("transformer-step", "d 128, 2 layers, 4 heads, feed-forward 512, seq 64, batch 16; Adam"),
    large(op("large-matmul-f16", "8192x8192 by 8192x8192, f16")),
    large(op("large-attention", "4 x 16 heads of 64, 2048 queries and keys")),
    large(op("large-attention-f16", "the same, f16")),
    large(op("large-attention-causal-f16", "the same, causal, f16")),
    large(op("large-conv2d", "32x128x56x56, 128 filters 3x3, padding 1")),
    large(op("large-conv2d-f16", "the same, f16")),
    large(op("large-copy", "2^28 elements; Burn multiplies by one, PyTorch copies")),
    large(op("large-add", "two tensors of 2^28")),
    large(op("large-sum-last", "16384x16384, over the last axis")),
    large(op("large-sum-first", "16384x16384, over the first axis")),
    large(op("large-softmax", "65536x4096, over rows")),
    large(step(
        "large-transformer-step",
        "d 512, 6 layers, 8 heads, feed-forward 2048, seq 256, batch 16; Adam",
    )),
    large(step("resnet18-step", "32 images 3x224x224; Adam")),
    large(step("resnet18-step-autocast", "the same, products in f16")),
    large(step("resnet50-step", "32 images 3x224x224; Adam")),
    large(step("resnet50-step-autocast", "the same, products in f16")),
    large(step("gpt2-step", "d 768, 12 layers, 12 heads, vocabulary 50,257, 4 x 512 tokens; Adam")),
    large(step("gpt2-step-autocast", "the same, products in f16")),
    large(step(
        "gpt2-token",
        "a token after 511 others, kept keys and values; in Burn with f16 embeddings",
    )),
    large(step("gpt2-token-f16", "the same, f16")),
    large(step("gpt2-token-q8", "the same, f32, weights in integers of 8 bits, blocks of 32")),
    large(step("gpt2-token-q4", "the same, f32, weights in integers of 4 bits, blocks of 32")),
    Workload {
        name: "first-step-cold",
        description: "process start to the end of the first CNN step, caches empty",
        kind: Kind::FirstCold,
        is_large: false,
    },
    Workload {
        name: "first-step-warm",
        description: "the same, caches filled",
        kind: Kind::FirstWarm,
        is_large: false,
    },
    Workload {
        name: "peak-memory",
        description: "of the process, over CNN steps",
        kind: Kind::Peak,
        is_large: false,
    },
];

/// Returns the workloads selected by full names or name prefixes; without `patterns` all, or all but
/// the large ones.
///
/// # Errors
///
/// Returns an error if a pattern selects no workload.
pub fn matching(patterns: &[String], with_large: bool) -> Result<Vec<&'static Workload>> {
    let matches = |pattern: &str, name: &str| {
        // A full name is not a prefix: `conv2d` does not select `conv2d-backward`.
        if WORKLOADS.iter().any(|workload| workload.name == pattern) {
            name == pattern
        } else {
            name.starts_with(pattern)
        }
    };
    for pattern in patterns {
        if !WORKLOADS.iter().any(|workload| matches(pattern, workload.name)) {
            let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            bail!("no workload matches `{pattern}`: use a name or prefix of {}", all.join(", "));
        }
    }
    let selected = |workload: &&Workload| match patterns {
        [] => with_large || !workload.is_large,
        patterns => patterns.iter().any(|pattern| matches(pattern, workload.name)),
    };
    Ok(WORKLOADS.iter().filter(selected).collect())
}

/// Formats names and descriptions, one workload per line.
pub fn list(workloads: &[&Workload]) -> String {
    let width = workloads.iter().map(|workload| workload.name.len() + 2).max().unwrap_or(0);
    workloads
        .iter()
        .map(|workload| format!("{:<width$}{}\n", workload.name, workload.description))
        .collect()
}
