//! The picture: for each workload its times and its speedups by size, both on logarithmic axes.

use plotters::coord::Shift;
use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::prelude::*;

use super::{about, digits, size as size_text, time};
use crate::Failure;
use crate::bench::results::{Comparison, Measurement, Report};
use crate::bench::stats::{Crossover, Summary};

const WIDTH: u32 = 1040;
const ROW: u32 = 330;
/// The height of a row that has one size to show, before its bars.
const BARS: u32 = 70;
const INK: RGBColor = RGBColor(40, 44, 52);
const PALE: RGBColor = RGBColor(120, 126, 138);
const FAINT: RGBColor = RGBColor(230, 233, 238);
/// They differ in lightness too, for those who see colours differently.
const COLOURS: [RGBColor; 5] = [
    RGBColor(84, 160, 255),
    RGBColor(192, 71, 8),
    RGBColor(28, 120, 96),
    RGBColor(176, 120, 220),
    RGBColor(220, 170, 30),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Draws what was measured.
pub fn svg(report: &Report) -> Result<String, Failure> {
    let mut text = String::new();
    draw(&mut text, report).map_err(|error| Failure::Plot(error.to_string()))?;
    Ok(text)
}

/// A line, or a bar, of one device.
struct Line<'a> {
    device: &'a str,
    colour: RGBColor,
    /// Size and seconds, in order of size.
    points: Vec<(f64, f64)>,
    /// The quartiles of each.
    spreads: Vec<(f64, f64)>,
}

/// What there is to draw of a workload.
struct Row<'a> {
    first: &'a Measurement,
    lines: Vec<Line<'a>>,
    comparisons: Vec<&'a Comparison>,
}

impl Row<'_> {
    /// Whether sizes make lines.
    fn has_lines(&self) -> bool {
        self.lines.iter().any(|line| line.points.len() > 1)
    }

    fn height(&self) -> u32 {
        if self.has_lines() { ROW } else { BARS + 30 * self.lines.len() as u32 }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}

fn rows(report: &Report) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for first in report.workloads() {
        let workload = first.workload;
        let lines = report.devices.iter().enumerate().map(|(index, subject)| {
            let measured = || report.measured(workload, &subject.device);
            let points =
                measured().map(|(size, numbers)| (size as f64, numbers.seconds.median)).collect();
            let spread = |seconds: Summary| (seconds.lower_quartile, seconds.upper_quartile);
            let spreads = measured().map(|(_, numbers)| spread(numbers.seconds)).collect();
            Line { device: &subject.device, colour: colour(index), points, spreads }
        });
        let lines: Vec<Line<'_>> = lines.filter(|line| !line.points.is_empty()).collect();
        if !lines.is_empty() {
            let comparisons =
                report.comparisons.iter().filter(|one| one.workload == workload).collect();
            rows.push(Row { first, lines, comparisons });
        }
    }
    rows
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

fn draw(text: &mut String, report: &Report) -> Drawn {
    let rows = rows(report);
    let head = 46 + 24 * report.devices.len() as u32;
    let height = head + rows.iter().map(Row::height).sum::<u32>() + 16;
    let area = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let (top, mut rest) = area.split_vertically(head);
    legend(&top, report)?;
    for row in &rows {
        let (here, below) = rest.split_vertically(row.height());
        if row.has_lines() {
            let (left, right) = here.split_horizontally(WIDTH / 2);
            times(&left, row)?;
            speedups(&right, row, report)?;
        } else {
            bars(&here, row, report)?;
        }
        rest = below;
    }
    area.present()?;
    Ok(())
}

fn font(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

fn legend(area: &Area<'_>, report: &Report) -> Drawn {
    for (index, subject) in report.devices.iter().enumerate() {
        let y = 16 + 24 * index as i32;
        area.draw(&Rectangle::new([(24, y), (38, y + 14)], colour(index).filled()))?;
        let line = match subject.is_cpu {
            true => {
                format!("{}: {}, {} threads", subject.device, subject.name, report.machine.threads)
            }
            false => {
                format!("{}: {} [{}, {}]", subject.device, subject.name, subject.kind, subject.api)
            }
        };
        area.draw(&Text::new(line, (46, y), font(16, INK)))?;
    }
    let y = 18 + 24 * report.devices.len() as i32;
    let line = format!(
        "burn-wgsl {}, {}, medians of {} samples with quartiles",
        report.version,
        &report.date[..10],
        report.rounds
    );
    area.draw(&Text::new(line, (24, y), font(13, PALE)))?;
    Ok(())
}

fn times(area: &Area<'_>, row: &Row<'_>) -> Drawn {
    let title = format!("{}: time", row.first.workload);
    let mut chart =
        axes(area, &title, row, row.points().map(|(_, seconds)| seconds), &|seconds| {
            rounded(&time(*seconds))
        })?;
    for line in &row.lines {
        plot_line(&mut chart, &line.points, line.colour)?;
        let spreads = line.points.iter().zip(&line.spreads);
        chart.draw_series(spreads.map(|((size, _), (lower, upper))| {
            PathElement::new(vec![(*size, *lower), (*size, *upper)], line.colour.stroke_width(2))
        }))?;
    }
    Ok(())
}

fn speedups(area: &Area<'_>, row: &Row<'_>, report: &Report) -> Drawn {
    let Some(reference) = report.reference() else {
        return Ok(());
    };
    let Row { first, comparisons, .. } = row;
    let all =
        comparisons.iter().flat_map(|one| &one.speedups).map(|(_, speedup)| *speedup).chain([1.0]);
    if comparisons.is_empty() {
        let alone = "no other device to compare with at these sizes";
        area.draw(&Text::new(alone, (80, ROW as i32 / 2), font(14, PALE)))?;
        return Ok(());
    }
    let title = format!("{}: times as fast as {}", first.workload, reference.device);
    let mut chart =
        axes(area, &title, row, all, &|speedup| rounded(&format!("{} x", digits(*speedup))))?;
    let (left, right) = ends(row.points().map(|(size, _)| size));
    chart.draw_series(LineSeries::new([(left, 1.0), (right, 1.0)], PALE.stroke_width(1)))?;
    for comparison in comparisons {
        let line = row.lines.iter().find(|line| line.device == comparison.device);
        let colour = line.map_or(INK, |line| line.colour);
        let points: Vec<(f64, f64)> =
            comparison.speedups.iter().map(|(size, speedup)| (*size as f64, *speedup)).collect();
        plot_line(&mut chart, &points, colour)?;
        if let Some(Crossover::At { size, .. }) = comparison.crossover {
            let at = (size, 1.0);
            chart.draw_series([Circle::new(at, 7, INK.stroke_width(2))])?;
            let label = format!("wins from {} ≈ {} on", comparison.unit, about(size));
            let (x, y) = chart.backend_coord(&at);
            let (origin_x, origin_y) = area.get_base_pixel();
            let (x, y) = (x - origin_x, y - origin_y);
            // Where the rising line does not pass: to the right below it, or, where that leaves the picture, to the left
            // above it.
            let width = 8 * label.chars().count() as i32;
            let is_right = x + 14 + width < WIDTH as i32 / 2;
            let (x, y) = if is_right { (x + 14, y + 8) } else { (x - 14 - width, y - 22) };
            area.draw(&Text::new(label, (x, y), font(14, INK)))?;
        }
    }
    Ok(())
}

/// One bar for each device, for a workload at one size.
fn bars(area: &Area<'_>, row: &Row<'_>, report: &Report) -> Drawn {
    let Some((at, _)) = row.points().next() else {
        return Ok(());
    };
    let title =
        format!("{}: time at {} {}", row.first.workload, row.first.unit, size_text(at as usize));
    area.draw(&Text::new(title, (24, 16), font(18, INK)))?;
    let slowest = row.points().map(|(_, seconds)| seconds).fold(0.0, f64::max);
    for (index, line) in row.lines.iter().enumerate() {
        let seconds = line.points[0].1;
        let (y, width) = (48 + 30 * index as i32, (560.0 * seconds / slowest).max(1.0) as i32);
        area.draw(&Text::new(line.device.to_owned(), (24, y + 2), font(15, INK)))?;
        area.draw(&Rectangle::new([(130, y), (130 + width, y + 20)], line.colour.filled()))?;
        let mut label = time(seconds);
        if let Some(speedup) = report.speedup(row.first.workload, at as usize, line.device) {
            let reference = report.reference().map_or("-", |subject| subject.device.as_str());
            label += &format!(", {} times as fast as {reference}", digits(speedup));
        }
        area.draw(&Text::new(label, (140 + width, y + 2), font(15, INK)))?;
    }
    Ok(())
}

fn plot_line(chart: &mut Chart<'_>, points: &[(f64, f64)], colour: RGBColor) -> Drawn {
    chart.draw_series(LineSeries::new(points.to_vec(), colour.stroke_width(3)))?;
    chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
    Ok(())
}

/// Empty logarithmic axes: the sizes of a row to the right, `values` upwards.
fn axes<'a>(
    area: &Area<'a>,
    title: &str,
    row: &Row<'_>,
    values: impl Iterator<Item = f64>,
    label: &dyn Fn(&f64) -> String,
) -> Drawn<Chart<'a>> {
    let (left, right) = ends(row.points().map(|(size, _)| size));
    let (bottom, top) = ends(values);
    // Room around the points, and at least a factor of four from end to end.
    let room = (2.0 / (top / bottom).sqrt()).max(1.3);
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(18, INK))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(
            (left / 1.15..right * 1.15).log_scale().base(2.0),
            (bottom / room..top * room).log_scale(),
        )?;
    let powers = |x: &f64| size_text(x.round() as usize);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(font(13, INK))
        .axis_desc_style(font(14, INK))
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&powers)
        .y_label_formatter(&label)
        .x_desc(row.first.unit)
        .draw()?;
    Ok(chart)
}

/// A number and its unit, without zeros after the point: axes are marked in round numbers.
fn rounded(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') && !number.contains('e') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// The least and the greatest.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::machine::Machine;
    use crate::bench::results::{FORMAT, Numbers, Outcome, Subject};
    use crate::bench::runner::Timing;
    use crate::bench::workload::{Suite, WORKLOADS, Workload};
    use burn_wgsl::WgslDevice;
    use burn_wgsl::device::ResolvedDevice;

    /// A report on a suite as if a GPU took 50 microseconds more than a tenth of the CPU's time.
    fn report(suite: Suite) -> Report {
        let machine = Machine::here();
        let mut gpu = Subject::at(WgslDevice::Cpu, ResolvedDevice::Cpu, &machine);
        gpu.device = "gpu:0".to_owned();
        gpu.name = "A <GPU> & more".to_owned();
        gpu.is_cpu = false;
        let devices = vec![gpu, Subject::at(WgslDevice::Cpu, ResolvedDevice::Cpu, &machine)];
        let mut results = Vec::new();
        let workloads: Vec<&Workload> = WORKLOADS.iter().filter(|one| one.suite == suite).collect();
        for Workload { suite, name, what, unit, sizes, cost, .. } in &workloads {
            for (size, subject) in
                sizes.iter().flat_map(|size| devices.iter().map(move |subject| (*size, subject)))
            {
                let cpu = cost(size).flops.max(cost(size).bytes) / 5e10;
                let seconds = if subject.is_cpu { cpu } else { 5e-5 + cpu / 10.0 };
                let samples = vec![seconds * 0.9, seconds, seconds * 1.2];
                let timing = Timing { first: 1.0, runs: 1, samples, profile: None };
                let numbers = Numbers::of(timing, &cost(size), &subject.ceilings, None, false)
                    .expect("it has samples");
                let (device, outcome) =
                    (subject.device.clone(), Outcome::Measured(Box::new(numbers)));
                results.push(Measurement {
                    suite: *suite,
                    workload: name,
                    what,
                    unit,
                    size,
                    device,
                    outcome,
                });
            }
        }
        let date = "2026-11-21T00:00:00Z".to_owned();
        let (format, version, command) = (FORMAT, "1.0.0", Vec::new());
        let mut report = Report {
            format,
            version,
            date,
            command,
            rounds: 3,
            machine,
            devices,
            results,
            comparisons: Vec::new(),
        };
        report.compare(&workloads);
        report
    }

    #[test]
    fn pictures_are_whole_and_mark_the_crossover() {
        for suite in [Suite::Matmul, Suite::Elementwise, Suite::Train] {
            let text = svg(&report(suite)).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            assert!(text.contains("A &lt;GPU&gt; &amp; more"));
            assert!(!text.contains("NaN") && !text.contains("inf"));
            assert_eq!(text.contains("wins from n ≈ "), suite != Suite::Train, "{suite:?}");
            assert!(text.contains("times as fast as cpu"), "{suite:?}");
        }
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(
            ["1.00 ms", "0.10 x", "100 µs", "1.5e-3 x"].map(rounded),
            ["1 ms", "0.1 x", "100 µs", "1.5e-3 x"]
        );
    }

    #[test]
    fn tables_keep_to_their_width() {
        for suite in [Suite::Elementwise, Suite::Train, Suite::Precision] {
            let text = super::super::terminal(&report(suite));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(crate::text::WIDTH), "{line}");
            }
        }
    }
}
