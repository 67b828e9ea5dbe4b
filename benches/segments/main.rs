//! The memory and time of a training step of an 8-layer transformer by the number of its segments:
//! `cargo bench --bench segments --features cli`.
//!
//! `SEGMENTS_DEVICE` selects the device [default: auto], `SEGMENTS_PLOT` a file for a plot as SVG.

#[path = "../shared/block.rs"]
mod block;

use block::Block;
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::train::Segments;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, memory, time};
use plotters::prelude::*;

type B = Autodiff<Wgsl>;

const LAYERS: usize = 8;
const WIDTH: usize = 128;
/// Sequences of a batch, and their tokens.
const BATCH: [usize; 2] = [16, 64];

fn through(blocks: &[Block<B>], x: Tensor<B, 3>) -> Tensor<B, 3> {
    blocks.iter().fold(x, |x, block| block.forward(x))
}

/// Computes the gradients with some segments; without any, all activations are kept.
fn gradients(blocks: &Vec<Block<B>>, x: &Tensor<B, 3>, segments: usize) -> GradientsParams {
    if segments == 0 {
        let loss = through(blocks, x.clone()).powi_scalar(2).mean();
        return GradientsParams::from_grads(loss.backward(), blocks);
    }
    let mut groups = blocks.chunks(LAYERS / segments).map(<[Block<B>]>::to_vec);
    let first = groups.next().unwrap_or_default();
    let input = x.clone();
    let start =
        Segments::start(&x.device(), &first, move |group: &Vec<_>| through(group, input.clone()));
    let chain = groups
        .fold(start, |chain, group| chain.then(&group, |group: &Vec<_>, x| through(group, x)));
    let (y, chain) = chain.end();
    chain.backward(y.powi_scalar(2).mean(), blocks)
}

/// What a step takes.
struct Row {
    segments: usize,
    /// MiB at the peak, beside the parameters.
    memory: f64,
    milliseconds: f64,
}

fn main() {
    let variable = |name| std::env::var(name).ok();
    let device = variable("SEGMENTS_DEVICE").unwrap_or_else(|| "auto".to_owned());
    let device: WgslDevice =
        device.parse().unwrap_or_else(|error| panic!("SEGMENTS_DEVICE: {error}"));
    println!("{}\n", device.describe().unwrap_or_else(|error| panic!("{error}")));
    let blocks: Vec<Block<B>> = (0..LAYERS).map(|_| Block::new(WIDTH, &device)).collect();
    let [sequences, tokens] = BATCH;
    let shape = [sequences, tokens, WIDTH];
    let x = Tensor::<B, 3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
    println!("| segments | memory, MiB | of plain | step, ms | of plain |\n|---|---|---|---|---|");
    let mut rows: Vec<Row> = Vec::new();
    for segments in [0, 1, 2, 4, 8] {
        let step = || gradients(&blocks, &x, segments);
        let timing = time(&device, step).unwrap_or_else(|error| panic!("{error}"));
        let measured = memory::measure(&device, || {
            let gradients = step();
            Wgsl::sync(&device).unwrap_or_else(|error| panic!("{error}"));
            gradients
        });
        let (_, measured) = measured.unwrap_or_else(|error| panic!("{error}"));
        let memory = measured.peak as f64 / f64::from(1 << 20);
        rows.push(Row { segments, memory, milliseconds: timing.seconds.median * 1e3 });
        let (row, plain) = (&rows[rows.len() - 1], &rows[0]);
        println!(
            "| {} | {memory:.1} | {:.0} % | {:.1} | {:.2} |",
            if segments == 0 { "none".to_owned() } else { segments.to_string() },
            100.0 * memory / plain.memory,
            row.milliseconds,
            row.milliseconds / plain.milliseconds,
        );
    }
    if let Some(path) = variable("SEGMENTS_PLOT") {
        let svg = plot(&rows).unwrap_or_else(|error| panic!("cannot draw the plot: {error}"));
        std::fs::write(&path, svg).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
    }
}

/// Draws memory and time beside those without segments.
fn plot(rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (720, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let shares: [Vec<f64>; 2] = [
        rows.iter().map(|row| row.memory / rows[0].memory).collect(),
        rows.iter().map(|row| row.milliseconds / rows[0].milliseconds).collect(),
    ];
    let top = shares.iter().flatten().fold(1.0, |top: f64, share| top.max(*share)) * 1.1;
    let mut chart = ChartBuilder::on(&area)
        .caption("A training step by segments, beside one without", ("sans-serif", 19))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..8.4, 0.0..top)?;
    chart.configure_mesh().x_desc("segments").x_label_formatter(&|x| format!("{x:.0}")).draw()?;
    let lines = [("memory", RGBColor(33, 102, 172)), ("time", RGBColor(192, 71, 8))];
    for ((name, colour), shares) in lines.into_iter().zip(shares) {
        let points: Vec<(f64, f64)> =
            rows.iter().map(|row| row.segments as f64).zip(shares).collect();
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    drop(chart);
    drop(area);
    Ok(text)
}
