//! The curves of a run and its confusion matrix, as SVG.

use anyhow::{Result, anyhow};
use burn_wgsl::train::ConfusionMatrix;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const TEXT: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(226, 229, 234);
const BLUE: RGBColor = RGBColor(33, 102, 172);
const ORANGE: RGBColor = RGBColor(192, 71, 8);

type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// Returns the loss by step and the accuracy by epoch.
///
/// # Errors
///
/// Returns an error if the picture cannot be drawn.
pub fn curves(losses: &[(u64, f64)], accuracies: &[(u64, f64)]) -> Result<String> {
    let mut text = String::new();
    draw_curves(&mut text, losses, accuracies)
        .map_err(|error| anyhow!("cannot draw the curves: {error}"))?;
    Ok(text)
}

fn draw_curves(text: &mut String, losses: &[(u64, f64)], accuracies: &[(u64, f64)]) -> DrawResult {
    let area = SVGBackend::with_string(text, (1000, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(500);
    let percent: Vec<(u64, f64)> = accuracies.iter().map(|&(x, y)| (x, y * 100.0)).collect();
    let top = losses.iter().fold(0.0, |top: f64, &(_, loss)| top.max(loss)) * 1.08;
    let charts = [
        (left, "Training loss", "step", losses, top, BLUE),
        (right, "Test accuracy, %", "epoch", &percent[..], 100.0, ORANGE),
    ];
    for (area, title, axis, points, top, colour) in charts {
        let last = points.last().map_or(1, |&(x, _)| x.max(1)) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, font(19))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..last * 1.03, 0.0..top.max(1e-6))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(font(14))
            .x_desc(axis)
            // Whole numbers.
            .x_labels((last as usize + 1).min(11))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        let points: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x as f64, y)).collect();
        // Dots show a single point, which has no line.
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    area.present()?;
    Ok(())
}

/// Returns the matrix with a row for each class: how its images were classified.
///
/// # Errors
///
/// Returns an error if the picture cannot be drawn.
pub fn confusion(matrix: &ConfusionMatrix, classes: &[String]) -> Result<String> {
    let mut text = String::new();
    draw_confusion(&mut text, matrix, classes)
        .map_err(|error| anyhow!("cannot draw the confusion matrix: {error}"))?;
    Ok(text)
}

fn draw_confusion(text: &mut String, matrix: &ConfusionMatrix, classes: &[String]) -> DrawResult {
    /// Pixels of a cell, left of the cells and above them.
    const CELL: i32 = 56;
    const LEFT: i32 = 120;
    const TOP: i32 = 96;

    let count = matrix.classes() as i32;
    let size = ((LEFT + CELL * count + 24) as u32, (TOP + CELL * count + 24) as u32);
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("Accuracy {:.2} %", matrix.accuracy() * 100.0);
    area.draw(&Text::new(title, (LEFT, 14), font(19)))?;
    area.draw(&Text::new("predicted as", (LEFT, 44), font(14)))?;
    area.draw(&Text::new("image of", (16, TOP - 24), font(14)))?;
    let end = Pos::new(HPos::Right, VPos::Center);
    let centre = Pos::new(HPos::Center, VPos::Center);
    for (row, class) in (0..count).zip(classes) {
        let middle = TOP + row * CELL + CELL / 2;
        area.draw(&Text::new(class.clone(), (LEFT - 10, middle), font(14).pos(end)))?;
        let column = LEFT + row * CELL + CELL / 2;
        area.draw(&Text::new(class.clone(), (column, TOP - 14), font(11).pos(centre)))?;
        let all: u64 = (0..matrix.classes()).map(|other| matrix.count(row as usize, other)).sum();
        for column in 0..count {
            let found = matrix.count(row as usize, column as usize);
            let share = found as f64 / all.max(1) as f64;
            let colour = if row == column { BLUE } else { ORANGE };
            let shade = colour.mix((share * 0.95).sqrt());
            let (x, y) = (LEFT + column * CELL, TOP + row * CELL);
            area.draw(&Rectangle::new([(x, y), (x + CELL - 2, y + CELL - 2)], shade.filled()))?;
            let style = if share > 0.4 { font(14).color(&WHITE) } else { font(14) };
            let at = (x + CELL / 2 - 1, y + CELL / 2 - 1);
            area.draw(&Text::new(found.to_string(), at, style.pos(centre)))?;
        }
    }
    area.present()?;
    Ok(())
}
