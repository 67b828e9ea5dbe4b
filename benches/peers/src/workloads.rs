//! What is measured.

use anyhow::{Result, bail};

/// One row of the table.
pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub kind: Kind,
}

/// How it is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Repetitions in a process that has warmed up. All peers compute the same, so their results are compared.
    Op,
    /// The same for training steps, whose weights begin at random.
    Step,
    /// From the start of a process to the end of its first training step of the CNN, with empty caches; once.
    FirstCold,
    /// The same, with the caches that another process left.
    FirstWarm,
    /// The most memory that a process has resident over many training steps of the CNN; once.
    Peak,
}

impl Kind {
    pub fn unit(self) -> &'static str {
        match self {
            Self::Op | Self::Step => "ms",
            Self::FirstCold | Self::FirstWarm => "s",
            Self::Peak => "MiB",
        }
    }
}

const fn op(name: &'static str, what: &'static str) -> Workload {
    Workload { name, what, kind: Kind::Op }
}

const fn step(name: &'static str, what: &'static str) -> Workload {
    Workload { name, what, kind: Kind::Step }
}

const WORKLOADS: &[Workload] = &[
    op("matmul-256", "256x256 by 256x256"),
    op("matmul-512", "512x512 by 512x512"),
    op("matmul-1024", "1024x1024 by 1024x1024"),
    op("matmul-2048", "2048x2048 by 2048x2048"),
    op("matmul-4096", "4096x4096 by 4096x4096"),
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
    step("transformer-step", "d 128, 2 layers, 4 heads, feed-forward 512, seq 64, batch 16; Adam"),
    Workload {
        name: "first-step-cold",
        what: "process start to the end of the first CNN step, caches empty",
        kind: Kind::FirstCold,
    },
    Workload { name: "first-step-warm", what: "the same, caches filled", kind: Kind::FirstWarm },
    Workload { name: "peak-memory", what: "of the process, over CNN steps", kind: Kind::Peak },
];

/// The workloads that these words ask for, each by its name or by the beginning of several; all of them for none.
pub fn matching(words: &[String]) -> Result<Vec<&'static Workload>> {
    let asks = |word: &str, name: &str| {
        // A whole name is no beginning: `conv2d` leaves out `conv2d-backward`.
        if WORKLOADS.iter().any(|workload| workload.name == word) {
            name == word
        } else {
            name.starts_with(word)
        }
    };
    for word in words {
        if !WORKLOADS.iter().any(|workload| asks(word, workload.name)) {
            let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            bail!("no workload begins with `{word}`: there are {}", all.join(", "));
        }
    }
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| asks(word, name));
    Ok(WORKLOADS.iter().filter(|workload| wanted(workload.name)).collect())
}

pub fn list(workloads: &[&Workload]) -> String {
    workloads.iter().map(|workload| format!("{:<18}{}\n", workload.name, workload.what)).collect()
}
