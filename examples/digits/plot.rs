//! The picture of a run, or of two: training loss and seconds per epoch, as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::report::Run;

const SIZE: (u32, u32) = (1000, 460);
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(226, 229, 234);
/// The device that was asked for, then the CPU. They differ in lightness too, for those who see colours differently.
const COLOURS: [RGBColor; 2] = [RGBColor(84, 160, 255), RGBColor(192, 71, 8)];
/// The first line is wide and the second thin, because equal runs lie on top of each other.
const WIDTHS: [u32; 2] = [6, 2];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Draws the run, and the one on the CPU if there is one.
pub fn svg(run: &Run, cpu: Option<&Run>) -> Result<String> {
    let runs: Vec<&Run> = [Some(run), cpu].into_iter().flatten().collect();
    let mut text = String::new();
    draw(&mut text, &runs).map_err(|error| anyhow!("cannot draw the picture: {error}"))?;
    Ok(text)
}

fn draw(text: &mut String, runs: &[&Run]) -> Drawn {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(28 + 24 * runs.len() as u32);
    legend(&head, runs)?;
    let (left, right) = body.split_horizontally(SIZE.0 / 2);
    losses(&left, runs)?;
    times(&right, runs)?;
    area.present()?;
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn legend(area: &Area<'_>, runs: &[&Run]) -> Drawn {
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

fn losses(area: &Area<'_>, runs: &[&Run]) -> Drawn {
    let losses = runs.iter().flat_map(|run| &run.history.train_loss);
    let top = losses.fold(0.0, |top: f64, loss| top.max(*loss)) * 1.08;
    let mut chart = axes(area, "Training loss", epochs(runs), top)?;
    for (index, run) in runs.iter().enumerate() {
        let points = (1..).zip(&run.history.train_loss);
        let points: Vec<_> = points.map(|(x, loss)| (f64::from(x), *loss)).collect();
        let (colour, width) = (COLOURS[index], WIDTHS[index]);
        // A run of one epoch has no line: the dots show it.
        let dots = points.iter().map(|&at| Circle::new(at, width, colour.filled()));
        chart.draw_series(dots)?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
    }
    Ok(())
}

fn times(area: &Area<'_>, runs: &[&Run]) -> Drawn {
    let title = match runs {
        [run, cpu] if run.speedup(cpu).is_some() => {
            format!(
                "Seconds per epoch: {:.2} times as fast as the CPU",
                run.speedup(cpu).unwrap_or_default()
            )
        }
        _ => "Seconds per epoch".into(),
    };
    // The first epoch compiles shaders. Where it dwarfs the rest, the axis ends at the rest and the bar bears its number.
    let (mut all, mut rest) = (0.0, 0.0);
    for run in runs {
        let longest = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
        let seconds = &run.history.seconds;
        all = longest(seconds).max(all);
        // A run of one epoch has no rest: its bar is all there is to see.
        rest = longest(&seconds[usize::from(seconds.len() > 1)..]).max(rest);
    }
    let cut = all > 2.5 * rest;
    let top = if cut { rest * 1.6 } else { all * 1.15 };
    let mut chart = axes(area, &title, epochs(runs), top)?;
    let width = 0.8 / runs.len() as f64;
    for (index, run) in runs.iter().enumerate() {
        for (epoch, seconds) in (1..).zip(&run.history.seconds) {
            let left = f64::from(epoch) - 0.4 + width * index as f64;
            let bar = [(left, 0.0), (left + width, seconds.min(top))];
            chart.draw_series([Rectangle::new(bar, COLOURS[index].filled())])?;
            if *seconds > top {
                let (x, y) = (f64::from(epoch) + 0.5, top * (0.99 - 0.07 * index as f64));
                let number = format!("{seconds:.2} s");
                chart.draw_series([Text::new(number, (x, y), font(15))])?;
            }
        }
    }
    Ok(())
}

/// Empty axes: epochs to the right, 0 to `top` upwards.
fn axes<'a>(area: &Area<'a>, title: &str, epochs: usize, top: f64) -> Drawn<Chart<'a>> {
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
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(font(15))
        .axis_desc_style(font(16))
        .x_labels(epochs.min(10))
        .x_label_formatter(&whole)
        .x_desc("epoch")
        .draw()?;
    Ok(chart)
}

fn epochs(runs: &[&Run]) -> usize {
    let longest = runs.iter().map(|run| run.history.seconds.len()).max();
    longest.unwrap_or(0).max(1)
}

/// Epochs are whole numbers, the axis is not: a label between two of them stays empty.
fn whole(x: &f64) -> String {
    if x.fract().abs() < 1e-9 { format!("{x:.0}") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::History;

    /// A run of `epochs` epochs whose first takes `first` seconds and the others `other`.
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
            history,
            fallbacks: Default::default(),
        }
    }

    #[test]
    fn pictures_of_every_size_are_whole() {
        for epochs in [1, 2, 20, 500] {
            let ours = run("A <GPU> & more [discrete, Vulkan]", epochs, 9.0, 0.2);
            let cpu = run("CPU", epochs.div_ceil(2), 0.8, 0.7);
            for text in [svg(&ours, None), svg(&ours, Some(&cpu))] {
                let text = text.unwrap();
                assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
                assert!(text.contains("A &lt;GPU&gt; &amp; more"));
                assert!(!text.contains("NaN") && !text.contains("inf"));
                // A bar that leaves the picture bears its number; the only bar of a run never leaves it.
                assert_eq!(text.contains("9.00 s"), epochs > 1);
            }
        }
    }
}
