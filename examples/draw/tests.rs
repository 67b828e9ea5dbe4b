use clap::Parser;

use crate::renderer::FRAME;
use crate::{Args, run};

/// Returns the mean difference between the wanted picture, on the left, and the painted one, on the right.
fn difference(pixels: &[u8]) -> f64 {
    let [width, height] = FRAME.map(|size| size as usize);
    // Without the bar of progress.
    let rows = height * 9 / 10;
    let pixel = |x: usize, y: usize, c: usize| f64::from(pixels[(y * width + x) * 4 + c]);
    let mut sum = 0.0;
    for y in 0..rows {
        for x in 0..width / 2 {
            sum += (0..3).map(|c| (pixel(x, y, c) - pixel(x + width / 2, y, c)).abs()).sum::<f64>();
        }
    }
    sum / (3 * rows * width / 2) as f64
}

#[test]
fn frames_show_what_the_network_learns() {
    let folder = std::env::temp_dir().join(format!("draw-{}", std::process::id()));
    let line = format!("draw --frames 8 --steps 10 --out {}", folder.display());
    let frames = match run(&Args::parse_from(line.split(' '))) {
        Ok(frames) => frames,
        Err(error) => {
            let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
            assert!(required.is_empty() || required == "cpu", "{error:#}");
            eprintln!("skipped: {error:#}");
            return;
        }
    };
    assert_eq!(frames.len(), 4);
    let differences: Vec<f64> = frames.iter().map(|frame| difference(frame)).collect();
    assert!(differences.windows(2).all(|pair| pair[1] < pair[0]), "{differences:?}");
    assert!(differences[3] < 0.6 * differences[0], "{differences:?}");
    for frame in ["0001", "0002", "0004", "0008"] {
        assert!(folder.join(format!("{frame}.png")).is_file());
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
