//! A renderer that trains while it draws: a network learns a picture on the renderer's own device, and each frame shows
//! what it knows.
//!
//! `cargo run --release -p draw`

mod network;
mod renderer;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use burn_wgsl::interop;
use clap::Parser;

use network::{Painter, SIDE};
use renderer::{FRAME, Renderer};

/// Draw frames with the picture that a network learns meanwhile, on one device.
#[derive(Parser)]
#[command(name = "draw")]
struct Args {
    /// Frames to draw
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,

    /// Training steps before each frame
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u32,

    /// Write the frames 1, 2, 4, 8, .. and the last one to this folder, as PNG
    #[arg(long, value_name = "DIR", default_value = "frames")]
    out: PathBuf,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    match run(&Args::parse()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Draws all frames. Returns the pixels of those that were written.
fn run(args: &Args) -> Result<Vec<Vec<u8>>> {
    let renderer = pollster::block_on(Renderer::new())?;
    let device =
        interop::device(&renderer.adapter, renderer.device.clone(), renderer.queue.clone())?;
    println!("device: {}", device.describe()?);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;

    let mut painter = Painter::new(&device);
    let [wanted, painted] = [SIDE, SIDE].map(|side| renderer.picture(side));
    interop::copy_to_texture(&painter.picture(), &wanted)?;
    let mut written = Vec::new();
    for frame in 1..=args.frames {
        let losses: Vec<_> = (0..args.steps).map(|_| painter.train()).collect();
        // The copy is submitted before the renderer's commands, on the same queue.
        interop::copy_to_texture(&painter.paint(), &painted)?;
        renderer.draw(&wanted, &painted, frame as f32 / args.frames as f32);
        if frame.is_power_of_two() || frame == args.frames {
            let pixels = renderer.read_frame()?;
            let path = args.out.join(format!("{frame:04}.png"));
            write_png(&path, &pixels)
                .with_context(|| format!("cannot write {}", path.display()))?;
            let loss = losses.last().map_or(f32::NAN, |loss| loss.clone().into_scalar());
            println!("frame {frame:>4}   loss {loss:.5}   {}", path.display());
            written.push(pixels);
        }
    }
    Ok(written)
}

fn write_png(path: &Path, pixels: &[u8]) -> Result<()> {
    let [width, height] = FRAME;
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(())
}
