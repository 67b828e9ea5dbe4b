//! The table.

use crate::measure::Outcome;
use crate::peers::Peer;
use crate::workloads::{Kind, Workload};

type Row<'a> = (&'a Workload, Vec<Outcome>);

/// Results of the same computation that differ by more than this are told.
const TOLERANCE: f64 = 1e-3;

/// The whole results file.
pub fn markdown(
    facts: &str,
    peers: impl Iterator<Item = &'static Peer> + Clone,
    rows: &[Row],
    skipped: &[String],
) -> String {
    let mut text = format!("{facts}\n{}", table(peers.clone(), rows));
    text += "\nf32. Times end when the device has done its work. Each cell: the median and, in brackets, the quartiles; then the\n\
             ratio of the median to that of the first peer: above 1, the first peer is the faster or smaller one. The peers take\n\
             turns, after a warm-up that includes their tuning, and stand still in between.\n";
    let notes = notes(peers.clone(), rows);
    let skips = skipped.iter().map(|line| format!("- skipped: {line}\n"));
    let lines: Vec<String> = skips.chain(notes).collect();
    if !lines.is_empty() {
        text += &format!("\nNotes\n\n{}", lines.concat());
    }
    text + &format!("\nSeconds of warm-up\n\n{}", warm_ups(peers, rows))
}

/// Medians, quartiles and ratios.
pub fn table(peers: impl Iterator<Item = &'static Peer>, rows: &[Row]) -> String {
    let mut text = String::from("| workload | unit |");
    let mut rule = String::from("|---|---|");
    for (index, peer) in peers.enumerate() {
        text += &format!(" {} |", peer.title);
        rule += "--:|";
        if index > 0 {
            text += " ratio |";
            rule += "--:|";
        }
    }
    text = format!("{text}\n{rule}\n");
    for (workload, outcomes) in rows {
        text += &format!("| {}: {} | {} |", workload.name, workload.what, workload.kind.unit());
        let base = median(&outcomes[0].samples);
        for (index, outcome) in outcomes.iter().enumerate() {
            text += &format!(" {} |", cell(outcome));
            if index > 0 {
                let ratio = base
                    .zip(median(&outcome.samples))
                    .map(|(base, own)| format!("{:.2}", own / base));
                text += &format!(" {} |", ratio.unwrap_or_default());
            }
        }
        text.push('\n');
    }
    text
}

/// One workload in a line, for those who wait.
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
        ([only], None) => figure(*only),
        (samples, None) => {
            let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| figure(quantile(samples, part)));
            format!("{middle} ({low}-{high})")
        }
    }
}

/// Three digits that count, and no less than whole numbers.
fn figure(x: f64) -> String {
    let digits = if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else {
        2
    };
    format!("{x:.digits$}")
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Failures, and results that differ from the first peer's.
fn notes(peers: impl Iterator<Item = &'static Peer> + Clone, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for (workload, outcomes) in rows {
        let expected = outcomes[0].value;
        for (peer, outcome) in peers.clone().zip(outcomes) {
            if let Some(why) = &outcome.failure {
                notes.push(format!("- {} at {}: {why}\n", peer.title, workload.name));
            }
            if let (Kind::Op, Some(expected), Some(value)) =
                (workload.kind, expected, outcome.value)
                && (value - expected).abs() > TOLERANCE * expected.abs()
            {
                notes.push(format!(
                    "- {} at {}: ANOTHER RESULT, of mean absolute {value:.6} instead of {expected:.6}\n",
                    peer.title, workload.name
                ));
            }
        }
    }
    notes
}

fn warm_ups(peers: impl Iterator<Item = &'static Peer> + Clone, rows: &[Row]) -> String {
    let mut text = format!(
        "| workload |{}\n",
        peers.clone().map(|peer| format!(" {} |", peer.title)).collect::<String>()
    );
    text += &format!("|---|{}\n", peers.map(|_| "--:|").collect::<String>());
    for (workload, outcomes) in
        rows.iter().filter(|(_, outcomes)| outcomes.iter().any(|o| o.warm_up.is_some()))
    {
        let cells =
            outcomes.iter().map(|o| format!(" {} |", o.warm_up.map(figure).unwrap_or_default()));
        text += &format!("| {} |{}\n", workload.name, cells.collect::<String>());
    }
    text
}
