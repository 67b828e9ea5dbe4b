//! Images of bars, discs and rings with noise, for a run without files.

use digits::rng::Rng;

use super::{Format, Images, Source};

const CLASSES: [&str; 6] = ["disc", "ring", "bar", "column", "slash", "backslash"];

/// Returns images of six shapes of random size and place.
pub fn generate(train: usize, format: Format, seed: u64) -> Source {
    let classes = CLASSES.map(str::to_owned).to_vec();
    let test = images((train / 6).max(1), format, seed.wrapping_add(1) << 32);
    Source { train: images(train, format, seed), test, format, classes }
}

fn images(count: usize, format: Format, seed: u64) -> Images {
    let (mut pixels, mut labels) = (Vec::with_capacity(count * format.len()), Vec::new());
    let mut rng = Rng(seed);
    for index in 0..count {
        let label = index % CLASSES.len();
        labels.push(label as u8);
        let mut draw = || rng.below(1 << 24) as f64 / f64::from(1u32 << 24);
        let side = format.side as f64;
        let centre = [(); 2].map(|()| side * (0.35 + 0.3 * draw()));
        let size = side * (0.15 + 0.15 * draw());
        for channel in 0..format.channels {
            let brightness = 255.0 * (0.5 + 0.5 * draw()) / (1.0 + channel as f64 * 0.3);
            for row in 0..format.side {
                for column in 0..format.side {
                    let at = [column as f64 - centre[0], row as f64 - centre[1]];
                    let inside = is_inside(label, at, size);
                    let value = if inside { brightness } else { 0.0 } + 60.0 * draw();
                    pixels.push(value.min(255.0) as u8);
                }
            }
        }
    }
    Images::Memory { pixels, labels, format }
}

/// Returns whether a point is in the shape of a class around the origin.
fn is_inside(class: usize, [x, y]: [f64; 2], size: f64) -> bool {
    let distance = x.hypot(y);
    let thin = size / 3.0;
    let in_square = x.abs() < size && y.abs() < size;
    match CLASSES[class] {
        "disc" => distance < size,
        "ring" => distance < size && distance > size * 0.6,
        "bar" => in_square && y.abs() < thin,
        "column" => in_square && x.abs() < thin,
        "slash" => in_square && (x + y).abs() < thin,
        _ => in_square && (x - y).abs() < thin,
    }
}
