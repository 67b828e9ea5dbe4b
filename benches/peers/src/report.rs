//! The results file and its tables.

use crate::measure::Outcome;
use crate::peers::Peer;
use crate::workloads::{Kind, Workload};

type Row<'a> = (&'a Workload, Vec<Outcome>);

/// Relative difference of results above which the notes report a mismatch.
const TOLERANCE: f64 = 1e-3;

/// Returns the complete results file.
pub fn markdown(
    header: &str,
    peers: impl Iterator<Item = &'static Peer> + Clone,
    rows: &[Row],
    skipped: &[String],
) -> String {
    let mut text = format!("{header}\n{}", table(peers.clone(), rows));
    text += "\n\
        f32 unless another type is named. A time ends when the device has finished its work.\n\
        Each cell is the median with the quartiles in brackets. The ratio is the median divided by\n\
        the first peer's median: above 1, the first peer is faster or uses less memory. The peers\n\
        take turns, after a warm-up that includes their tuning, and are suspended between turns.\n";
    let notes = notes(peers.clone(), rows);
    let skipped = skipped.iter().map(|line| format!("- skipped: {line}\n"));
    let lines: Vec<String> = skipped.chain(notes).collect();
    if !lines.is_empty() {
        text += &format!("\nNotes\n\n{}", lines.concat());
    }
    text + &format!("\nWarm-up in seconds\n\n{}", warm_ups(peers, rows))
}

/// Returns the table of medians, quartiles and ratios.
pub fn table(peers: impl Iterator<Item = &'static Peer>, rows: &[Row]) -> String {
    let mut text = String::from("| workload | unit |");
    let mut separator = String::from("|---|---|");
    for (index, peer) in peers.enumerate() {
        text += &format!(" {} |", peer.title);
        separator += "--:|";
        if index > 0 {
            text += " ratio |";
            separator += "--:|";
        }
    }
    text = format!("{text}\n{separator}\n");
    for (workload, outcomes) in rows {
        text +=
            &format!("| {}: {} | {} |", workload.name, workload.description, workload.kind.unit());
        let base = median(&outcomes[0].samples);
        for (index, outcome) in outcomes.iter().enumerate() {
            text += &format!(" {} |", cell(outcome));
            if index > 0 {
                let ratio = base
                    .zip(median(&outcome.samples))
                    .map(|(base, median)| format!("{:.2}", median / base));
                text += &format!(" {} |", ratio.unwrap_or_default());
            }
        }
        text.push('\n');
    }
    text
}

/// Returns the results of one workload in one line, to show progress.
pub fn line(peers: impl Iterator<Item = &'static Peer>, (workload, outcomes): &Row) -> String {
    let cells =
        peers.zip(outcomes).map(|(peer, outcome)| format!("{} {}", peer.name, cell(outcome)));
    format!(
        "{} [{}]  {}",
        workload.name,
        workload.kind.unit(),
        cells.collect::<Vec<_>>().join("  ")
    )
}

fn cell(outcome: &Outcome) -> String {
    let mut sorted = outcome.samples.clone();
    sorted.sort_by(f64::total_cmp);
    match (sorted.as_slice(), &outcome.failure) {
        (_, Some(_)) | ([], None) => "failed".into(),
        ([only], None) => format_number(*only),
        (samples, None) => {
            let [low, middle, high] =
                [0.25, 0.5, 0.75].map(|q| format_number(quantile(samples, q)));
            format!("{middle} ({low}-{high})")
        }
    }
}

/// Formats a number with three significant digits from 0.01 on. The integer part is always complete.
fn format_number(x: f64) -> String {
    let digits = match x {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        _ => 4,
    };
    format!("{x:.digits$}")
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

/// Interpolates linearly between the two nearest samples.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let (lower, upper) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    lower + (upper - lower) * position.fract()
}

/// Returns a line per failure and per result that differs from the first peer's.
fn notes(peers: impl Iterator<Item = &'static Peer> + Clone, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for (workload, outcomes) in rows {
        let expected = outcomes[0].value;
        for (peer, outcome) in peers.clone().zip(outcomes) {
            if let Some(failure) = &outcome.failure {
                notes.push(format!("- {}, {}: {failure}\n", peer.title, workload.name));
            }
            if let (Kind::Op, Some(expected), Some(value)) =
                (workload.kind, expected, outcome.value)
                && (value - expected).abs() > TOLERANCE * expected.abs()
            {
                notes.push(format!(
                    "- {}, {}: RESULT MISMATCH, mean absolute value {value:.6} instead of \
                     {expected:.6}\n",
                    peer.title, workload.name
                ));
            }
        }
    }
    notes
}

/// Returns the table of warm-up durations.
fn warm_ups(peers: impl Iterator<Item = &'static Peer> + Clone, rows: &[Row]) -> String {
    let mut text = format!(
        "| workload |{}\n",
        peers.clone().map(|peer| format!(" {} |", peer.title)).collect::<String>()
    );
    text += &format!("|---|{}\n", peers.map(|_| "--:|").collect::<String>());
    for (workload, outcomes) in
        rows.iter().filter(|(_, outcomes)| outcomes.iter().any(|outcome| outcome.warm_up.is_some()))
    {
        let cells = outcomes.iter().map(|outcome| {
            format!(" {} |", outcome.warm_up.map(format_number).unwrap_or_default())
        });
        text += &format!("| {} |{}\n", workload.name, cells.collect::<String>());
    }
    text
}
