//! Plots the training loss and the time per epoch of one or two runs as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::report::Run;

/// Width and height in pixels.
const SIZE: (u32, u32) = (1000, 460);
const TEXT_COLOUR: RGBColor = RGBColor(40, 44, 52);
const GRID_COLOUR: RGBColor = RGBColor(226, 229, 234);
/// The colours of the requested device and of the CPU. They also differ in lightness, for
/// colour-blind readers.
const COLOURS: [RGBColor; 2] = [RGBColor(84, 160, 255), RGBColor(192, 71, 8)];
/// Line widths in pixels. The first line is wider, so that both are visible if the runs are equal.
const LINE_WIDTHS: [u32; 2] = [6, 2];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Returns the plot of a run and, if given, of the run on the CPU to compare with.
pub fn svg(run: &Run, cpu: Option<&Run>) -> Result<String> {
    let runs: Vec<&Run> = [Some(run), cpu].into_iter().flatten().collect();
    let mut text = String::new();
    draw(&mut text, &runs).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    Ok(text)
}

fn draw(text: &mut String, runs: &[&Run]) -> DrawResult {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (legend, charts) = area.split_vertically(28 + 24 * runs.len() as u32);
    draw_legend(&legend, runs)?;
    let (left, right) = charts.split_horizontally(SIZE.0 / 2);
    draw_losses(&left, runs)?;
    draw_times(&right, runs)?;
    area.present()?;
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT_COLOUR)
}

/// Draws one line of text per run.
fn draw_legend(area: &Area<'_>, runs: &[&Run]) -> DrawResult {
    for (row, run) in (0..).zip(runs) {
        let y = 20 + 24 * row;
        let colour = COLOURS[row as usize].filled();
        area.draw(&Rectangle::new([(24, y), (38, y + 14)], colour))?;
        let accuracy = run.history.test_accuracy * 100.0;
        let median = run.median_seconds().unwrap_or_default();
        let line =
            format!("{}: test accuracy {accuracy:.1} %, median epoch {median:.3} s", run.adapter);
        area.draw(&Text::new(line, (46, y), font(17)))?;
    }
    Ok(())
}

/// Draws the training loss per epoch.
fn draw_losses(area: &Area<'_>, runs: &[&Run]) -> DrawResult {
    let losses = runs.iter().flat_map(|run| &run.history.train_loss);
    let top = losses.fold(0.0, |top: f64, loss| top.max(*loss)) * 1.08;
    let mut chart = draw_axes(area, "Training loss", epoch_count(runs), top)?;
    for (index, run) in runs.iter().enumerate() {
        let points = (1..).zip(&run.history.train_loss);
        let points: Vec<_> = points.map(|(x, loss)| (f64::from(x), *loss)).collect();
        let (colour, width) = (COLOURS[index], LINE_WIDTHS[index]);
        // Dots show a run of a single epoch, which has no line.
        let dots = points.iter().map(|&point| Circle::new(point, width, colour.filled()));
        chart.draw_series(dots)?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
    }
    Ok(())
}

/// Draws the seconds per epoch as bars.
fn draw_times(area: &Area<'_>, runs: &[&Run]) -> DrawResult {
    let title = match runs {
        [run, cpu] if run.speedup(cpu).is_some() => {
            format!(
                "Seconds per epoch: {:.2} times as fast as the CPU",
                run.speedup(cpu).unwrap_or_default()
            )
        }
        _ => "Seconds per epoch".into(),
    };
    // The first epoch includes shader compilation. If it takes much longer than the others, the
    // axis is scaled to the others, and the first bar is clipped and labelled with its time.
    let (mut longest, mut longest_later) = (0.0, 0.0);
    for run in runs {
        let max = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
        let seconds = &run.history.seconds;
        longest = max(seconds).max(longest);
        // The only epoch of a run counts as a later one, so that its bar is not clipped.
        let later = &seconds[usize::from(seconds.len() > 1)..];
        longest_later = max(later).max(longest_later);
    }
    let clip = longest > 2.5 * longest_later;
    let top = if clip { longest_later * 1.6 } else { longest * 1.15 };
    let mut chart = draw_axes(area, &title, epoch_count(runs), top)?;
    let width = 0.8 / runs.len() as f64;
    for (index, run) in runs.iter().enumerate() {
        for (epoch, seconds) in (1..).zip(&run.history.seconds) {
            let left = f64::from(epoch) - 0.4 + width * index as f64;
            let bar = [(left, 0.0), (left + width, seconds.min(top))];
            chart.draw_series([Rectangle::new(bar, COLOURS[index].filled())])?;
            if *seconds > top {
                let (x, y) = (f64::from(epoch) + 0.5, top * (0.99 - 0.07 * index as f64));
                let label = format!("{seconds:.2} s");
                chart.draw_series([Text::new(label, (x, y), font(15))])?;
            }
        }
    }
    Ok(())
}

/// Draws the axes of a chart: x from 1 to `epochs`, y from 0 to `top`.
fn draw_axes<'a>(area: &Area<'a>, title: &str, epochs: usize, top: f64) -> DrawResult<Chart<'a>> {
    let top = top.max(1e-6);
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(0.5..epochs as f64 + 0.5, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID_COLOUR)
        .axis_style(TEXT_COLOUR)
        .label_style(font(15))
        .axis_desc_style(font(16))
        .x_labels(epochs.min(10))
        .x_label_formatter(&epoch_label)
        .x_desc("epoch")
        .draw()?;
    Ok(chart)
}

/// Returns the number of epochs of the longest run, at least 1.
fn epoch_count(runs: &[&Run]) -> usize {
    let longest = runs.iter().map(|run| run.history.seconds.len()).max();
    longest.unwrap_or(0).max(1)
}

/// Formats a position on the x axis. Positions between two epochs have no label.
fn epoch_label(x: &f64) -> String {
    if x.fract().abs() < 1e-9 { format!("{x:.0}") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::History;

    /// Returns a run whose first epoch takes `first` seconds and the others `other`.
    fn run(adapter: &str, epochs: usize, first: f64, other: f64) -> Run {
        let history = History {
            train_loss: (1..=epochs).map(|epoch| 2.0 / epoch as f64).collect(),
            test_accuracies: vec![0.9; epochs],
            seconds: (0..epochs).map(|epoch| if epoch == 0 { first } else { other }).collect(),
            ..History::default()
        };
        Run {
            device: "software".into(),
            adapter: adapter.into(),
            precision: Default::default(),
            batch: 64,
            history,
            fingerprint: 0,
            fallbacks: Default::default(),
        }
    }

    #[test]
    fn svg_is_complete_for_any_number_of_epochs() {
        for epochs in [1, 2, 20, 500] {
            let gpu = run("A <GPU> & more [discrete, Vulkan]", epochs, 9.0, 0.2);
            let cpu = run("CPU", epochs.div_ceil(2), 0.8, 0.7);
            for text in [svg(&gpu, None), svg(&gpu, Some(&cpu))] {
                let text = text.unwrap();
                assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
                assert!(text.contains("A &lt;GPU&gt; &amp; more"));
                assert!(!text.contains("NaN") && !text.contains("inf"));
                // Only clipped bars are labelled, and the only bar of a run is never clipped.
                assert_eq!(text.contains("9.00 s"), epochs > 1);
            }
        }
    }
}
