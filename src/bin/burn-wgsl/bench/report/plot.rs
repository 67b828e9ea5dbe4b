//! The SVG plot: time and speedup by size for each workload, on logarithmic axes.

use plotters::coord::Shift;
use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::prelude::*;

use super::{format_estimate, format_number, format_size, format_time};
use crate::CliError;
use crate::bench::crossover::Crossover;
use crate::bench::results::{Comparison, Measurement, Report};

// Lengths are in pixels.
const WIDTH: u32 = 1040;
/// Height of a row with two line charts.
const CHART_HEIGHT: u32 = 330;
/// Height of a row with a bar chart, without the bars.
const BARS_BASE_HEIGHT: u32 = 70;
const TEXT_COLOUR: RGBColor = RGBColor(40, 44, 52);
const MUTED_COLOUR: RGBColor = RGBColor(120, 126, 138);
const GRID_COLOUR: RGBColor = RGBColor(230, 233, 238);
/// The colours of the devices. They also differ in lightness, for colour-blind readers.
const DEVICE_COLOURS: [RGBColor; 5] = [
    RGBColor(84, 160, 255),
    RGBColor(192, 71, 8),
    RGBColor(28, 120, 96),
    RGBColor(176, 120, 220),
    RGBColor(220, 170, 30),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;
type DrawResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Returns the plot of a report as an SVG document.
pub fn svg(report: &Report) -> Result<String, CliError> {
    let mut text = String::new();
    draw(&mut text, report).map_err(|error| CliError::Plot(error.to_string()))?;
    Ok(text)
}

/// The measurements of one device: a line, or a bar for a single size.
struct Series<'a> {
    device: &'a str,
    colour: RGBColor,
    /// Pairs of size and median seconds, in ascending order of size.
    points: Vec<(f64, f64)>,
    /// The lower and upper quartile of each point, in seconds.
    quartiles: Vec<(f64, f64)>,
}

/// The row of one workload.
struct PlotRow<'a> {
    /// The first measurement of the workload, for its name and unit.
    first: &'a Measurement,
    series: Vec<Series<'a>>,
    comparisons: Vec<&'a Comparison>,
}

impl PlotRow<'_> {
    /// Returns whether a device has more than one size, so that lines are drawn instead of bars.
    fn has_lines(&self) -> bool {
        self.series.iter().any(|series| series.points.len() > 1)
    }

    fn height(&self) -> u32 {
        if self.has_lines() {
            CHART_HEIGHT
        } else {
            BARS_BASE_HEIGHT + 30 * self.series.len() as u32
        }
    }

    /// Returns the pairs of size and median seconds of all devices.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }
}

/// Returns a row for each workload that was measured on at least one device.
fn rows(report: &Report) -> Vec<PlotRow<'_>> {
    let mut rows = Vec::new();
    for first in report.workloads() {
        let workload = first.workload;
        let series = report.devices.iter().enumerate().map(|(index, device)| {
            let measured = || report.measured(workload, &device.selector);
            let points =
                measured().map(|(size, metrics)| (size as f64, metrics.seconds.median)).collect();
            let quartiles = measured()
                .map(|(_, metrics)| {
                    (metrics.seconds.lower_quartile, metrics.seconds.upper_quartile)
                })
                .collect();
            Series { device: &device.selector, colour: colour(index), points, quartiles }
        });
        let series: Vec<Series<'_>> = series.filter(|series| !series.points.is_empty()).collect();
        if !series.is_empty() {
            let comparisons = report
                .comparisons
                .iter()
                .filter(|comparison| comparison.workload == workload)
                .collect();
            rows.push(PlotRow { first, series, comparisons });
        }
    }
    rows
}

fn colour(index: usize) -> RGBColor {
    DEVICE_COLOURS[index % DEVICE_COLOURS.len()]
}

fn draw(text: &mut String, report: &Report) -> DrawResult {
    let rows = rows(report);
    let legend_height = 46 + 24 * report.devices.len() as u32;
    let height = legend_height + rows.iter().map(PlotRow::height).sum::<u32>() + 16;
    let area = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let (legend_area, mut rest) = area.split_vertically(legend_height);
    draw_legend(&legend_area, report)?;
    for row in &rows {
        let (row_area, below) = rest.split_vertically(row.height());
        if row.has_lines() {
            let (left, right) = row_area.split_horizontally(WIDTH / 2);
            draw_times(&left, row)?;
            draw_speedups(&right, row, report)?;
        } else {
            draw_bars(&row_area, row, report)?;
        }
        rest = below;
    }
    area.present()?;
    Ok(())
}

fn font(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

fn draw_legend(area: &Area<'_>, report: &Report) -> DrawResult {
    for (index, device) in report.devices.iter().enumerate() {
        let y = 16 + 24 * index as i32;
        area.draw(&Rectangle::new([(24, y), (38, y + 14)], colour(index).filled()))?;
        let details = if device.is_cpu {
            format!("{} threads", report.machine.threads)
        } else {
            format!("{}, {}", device.kind, device.api)
        };
        let label = format!("{}: {} [{details}]", device.selector, device.name);
        area.draw(&Text::new(label, (46, y), font(16, TEXT_COLOUR)))?;
    }
    let y = 18 + 24 * report.devices.len() as i32;
    let caption = format!(
        "burn-wgsl {}, {}; median of up to {} samples, vertical lines from lower to upper quartile",
        report.version,
        &report.date[..10],
        report.rounds
    );
    area.draw(&Text::new(caption, (24, y), font(13, MUTED_COLOUR)))?;
    Ok(())
}

fn draw_times(area: &Area<'_>, row: &PlotRow<'_>) -> DrawResult {
    let title = format!("{}: time per run", row.first.workload);
    let format_label = |seconds: &f64| trim_zeros(&format_time(*seconds));
    let mut chart =
        axes(area, &title, row, row.points().map(|(_, seconds)| seconds), &format_label)?;
    for series in &row.series {
        draw_line(&mut chart, &series.points, series.colour)?;
        let points = series.points.iter().zip(&series.quartiles);
        chart.draw_series(points.map(|((size, _), (lower, upper))| {
            let ends = vec![(*size, *lower), (*size, *upper)];
            PathElement::new(ends, series.colour.stroke_width(2))
        }))?;
    }
    Ok(())
}

fn draw_speedups(area: &Area<'_>, row: &PlotRow<'_>, report: &Report) -> DrawResult {
    let Some(reference) = report.reference() else {
        return Ok(());
    };
    let PlotRow { first, comparisons, .. } = row;
    if comparisons.is_empty() {
        let note = "no second device was measured at these sizes";
        let position = (80, CHART_HEIGHT as i32 / 2);
        area.draw(&Text::new(note, position, font(14, MUTED_COLOUR)))?;
        return Ok(());
    }
    let title = format!("{}: speedup over {}", first.workload, reference.selector);
    let speedups = comparisons
        .iter()
        .flat_map(|comparison| &comparison.speedups)
        .map(|(_, speedup)| *speedup)
        .chain([1.0]);
    let format_label =
        |speedup: &f64| trim_zeros(&format!("{} x", format_number(*speedup))).replace(' ', "");
    let mut chart = axes(area, &title, row, speedups, &format_label)?;
    let (left, right) = min_max(row.points().map(|(size, _)| size));
    chart
        .draw_series(LineSeries::new([(left, 1.0), (right, 1.0)], MUTED_COLOUR.stroke_width(1)))?;
    for comparison in comparisons {
        let series = row.series.iter().find(|series| series.device == comparison.device);
        let colour = series.map_or(TEXT_COLOUR, |series| series.colour);
        let points: Vec<(f64, f64)> =
            comparison.speedups.iter().map(|(size, speedup)| (*size as f64, *speedup)).collect();
        draw_line(&mut chart, &points, colour)?;
        if let Some(Crossover::At { size, .. }) = comparison.crossover {
            let crossover = (size, 1.0);
            chart.draw_series([Circle::new(crossover, 7, TEXT_COLOUR.stroke_width(2))])?;
            let label = format!("faster above {} ≈ {}", comparison.unit, format_estimate(size));
            let (x, y) = chart.backend_coord(&crossover);
            let (origin_x, origin_y) = area.get_base_pixel();
            let (x, y) = (x - origin_x, y - origin_y);
            // The line rises through the crossover. The label goes to the right below the line, or
            // to the left above it if there is no space on the right.
            let width = 8 * label.chars().count() as i32;
            let fits_right = x + 14 + width < WIDTH as i32 / 2;
            let position = if fits_right { (x + 14, y + 8) } else { (x - 14 - width, y - 22) };
            area.draw(&Text::new(label, position, font(14, TEXT_COLOUR)))?;
        }
    }
    Ok(())
}

/// Draws one bar per device, for a workload with a single size.
fn draw_bars(area: &Area<'_>, row: &PlotRow<'_>, report: &Report) -> DrawResult {
    let Some((size, _)) = row.points().next() else {
        return Ok(());
    };
    let Measurement { workload, unit, .. } = row.first;
    let title = format!("{workload}: time per run at {unit} = {}", format_size(size as usize));
    area.draw(&Text::new(title, (24, 16), font(18, TEXT_COLOUR)))?;
    let max_seconds = row.points().map(|(_, seconds)| seconds).fold(0.0, f64::max);
    for (index, series) in row.series.iter().enumerate() {
        let seconds = series.points[0].1;
        let (y, width) = (48 + 30 * index as i32, (560.0 * seconds / max_seconds).max(1.0) as i32);
        area.draw(&Text::new(series.device.to_owned(), (24, y + 2), font(15, TEXT_COLOUR)))?;
        area.draw(&Rectangle::new([(130, y), (130 + width, y + 20)], series.colour.filled()))?;
        let mut label = format_time(seconds);
        if let Some(speedup) = report.speedup(workload, size as usize, series.device) {
            let reference = report.reference().map_or("-", |device| device.selector.as_str());
            label += &format!(" (speedup over {reference}: {}x)", format_number(speedup));
        }
        area.draw(&Text::new(label, (140 + width, y + 2), font(15, TEXT_COLOUR)))?;
    }
    Ok(())
}

fn draw_line(chart: &mut Chart<'_>, points: &[(f64, f64)], colour: RGBColor) -> DrawResult {
    chart.draw_series(LineSeries::new(points.to_vec(), colour.stroke_width(3)))?;
    chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
    Ok(())
}

/// Draws empty logarithmic axes: x spans the sizes of a row, y spans `values`.
fn axes<'a>(
    area: &Area<'a>,
    title: &str,
    row: &PlotRow<'_>,
    values: impl Iterator<Item = f64>,
    format_label: &dyn Fn(&f64) -> String,
) -> DrawResult<Chart<'a>> {
    let (left, right) = min_max(row.points().map(|(size, _)| size));
    let (bottom, top) = min_max(values);
    // A margin around the points. The axis spans at least a factor of four.
    let margin = (2.0 / (top / bottom).sqrt()).max(1.3);
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(18, TEXT_COLOUR))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(
            (left / 1.15..right * 1.15).log_scale().base(2.0),
            (bottom / margin..top * margin).log_scale(),
        )?;
    let format_x = |x: &f64| format_size(x.round() as usize);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID_COLOUR)
        .axis_style(TEXT_COLOUR)
        .label_style(font(13, TEXT_COLOUR))
        .axis_desc_style(font(14, TEXT_COLOUR))
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&format_x)
        .y_label_formatter(&format_label)
        .x_desc(row.first.unit)
        .draw()?;
    Ok(chart)
}

/// Removes trailing zeros after the decimal point from a number with a unit, such as `1.50 ms`.
fn trim_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') && !number.contains('e') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// Returns the minimum and the maximum of positive values.
fn min_max(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(min, max), value| (min.min(value), max.max(value)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example_report;
    use super::*;
    use crate::bench::workload::Suite;

    #[test]
    fn svg_is_complete_and_marks_the_crossover() {
        for suite in [Suite::Matmul, Suite::Elementwise, Suite::Train] {
            let text = svg(&example_report(suite)).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            assert!(text.contains("A &lt;GPU&gt; &amp; more"));
            assert!(!text.contains("NaN") && !text.contains("inf"));
            assert_eq!(text.contains("faster above n ≈ "), suite != Suite::Train, "{suite:?}");
            assert!(text.contains("speedup over cpu"), "{suite:?}");
        }
    }

    #[test]
    fn trim_zeros_keeps_units_and_exponents() {
        assert_eq!(
            ["1.00 ms", "0.10 x", "100 µs", "1.5e-3 x"].map(trim_zeros),
            ["1 ms", "0.1 x", "100 µs", "1.5e-3 x"]
        );
    }
}
