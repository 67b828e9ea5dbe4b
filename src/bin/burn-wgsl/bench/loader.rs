//! `burn-wgsl bench loader`: how fast batches of images arrive, and how long steps wait for them.

use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::backend::Backend;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Distribution, Int, Tensor, TensorData};
use burn_wgsl::train::{Loader, LoaderConfig, LoaderError, StagedElement, Staging};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Serialize;

use super::Arguments;
use crate::CliError;
use crate::output::{self, dense_table, wrap};

/// Images of a batch, and their shape.
const BATCH: usize = 32;
const SHAPE: [usize; 3] = [3, 96, 96];
/// The time that an image takes a worker, as one of a file of some ten kilobytes does.
const PREPARATION: Duration = Duration::from_micros(500);
/// Batches that are not counted: they compile kernels and start workers.
const WARM_UP: usize = 4;

/// How images travel to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Elements {
    /// As bytes, which become floats on the device.
    Bytes,
    /// As floats, made by the worker.
    Floats,
}

/// How a worker makes batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Upload {
    #[serde(rename = "upload")]
    elements: Elements,
    /// Whether they are put together in memory that the device copies from.
    staged: bool,
}

const UPLOADS: [Upload; 4] = [
    Upload { elements: Elements::Bytes, staged: false },
    Upload { elements: Elements::Bytes, staged: true },
    Upload { elements: Elements::Floats, staged: false },
    Upload { elements: Elements::Floats, staged: true },
];

/// A configuration of a loader, and what was measured.
#[derive(Debug, Serialize)]
struct Row {
    device: String,
    workers: usize,
    prefetch: usize,
    #[serde(flatten)]
    upload: Upload,
    batches_per_second: f64,
    /// The share of the time that steps waited for a batch, 0 to 1.
    waited: f64,
}

/// Measures each configuration on each device, and prints a table or writes JSON.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    if arguments.csv.is_some() || arguments.plot.is_some() || !arguments.sizes.is_empty() {
        let message = "`bench loader` has --device, --quick and --json only".to_owned();
        return Err(CliError::Usage(message));
    }
    arguments.check_files()?;
    let devices = match &arguments.devices[..] {
        [] => vec![WgslDevice::Auto],
        devices => devices.to_vec(),
    };
    let batches = if arguments.quick { 20 } else { 100 };
    let mut rows = Vec::new();
    for device in devices {
        device.resolve()?;
        for workers in [0, 1, 2, 4] {
            // Without workers, nothing is prepared ahead.
            let prefetches = if workers == 0 { &[1][..] } else { &[1, 4] };
            for &prefetch in prefetches {
                for upload in UPLOADS {
                    let config = LoaderConfig { workers, prefetch, ..LoaderConfig::new(BATCH) };
                    let measured = measure(&device, config, upload, batches);
                    let (batches_per_second, waited) =
                        measured.map_err(|error| CliError::Measurement(error.to_string()))?;
                    let device = device.to_string();
                    rows.push(Row {
                        device,
                        workers,
                        prefetch,
                        upload,
                        batches_per_second,
                        waited,
                    });
                }
            }
        }
    }
    match &arguments.json {
        Some(file) => output::write(file, &(serde_json::to_string_pretty(&rows)? + "\n"))?,
        None => output::print(&table(&rows))?,
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let header = ["device", "workers", "prefetch", "upload", "staged", "batches/s", "steps wait"];
    let mut table = dense_table(header);
    for row in rows {
        table.add_row([
            row.device.clone(),
            row.workers.to_string(),
            row.prefetch.to_string(),
            format!("{:?}", row.upload.elements).to_lowercase(),
            if row.upload.staged { "yes" } else { "no" }.to_owned(),
            format!("{:.1}", row.batches_per_second),
            format!("{:.0} %", row.waited * 100.0),
        ]);
    }
    let [channels, height, width] = SHAPE;
    let text = format!(
        "Batches of {BATCH} images of {channels} x {height} x {width} pixels, each of which takes a worker {} us of \
         processor time; a step is a convolution and a mean.",
        PREPARATION.as_micros()
    );
    format!("{table}\n\n{}", wrap(&text))
}

/// Returns batches per second, and the share of the time that steps wait.
fn measure(
    device: &WgslDevice,
    config: LoaderConfig,
    upload: Upload,
    batches: usize,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let images = Images { len: (batches + WARM_UP) * BATCH };
    let loader = Loader::<Wgsl, Vec<u8>, Tensor<Wgsl, 4>>::new(images, upload, device, config)?;
    let [channels, ..] = SHAPE;
    let distribution = Distribution::Normal(0.0, 0.1);
    let weight = Tensor::<Wgsl, 4>::random([32, channels, 3, 3], distribution, device);
    let step = |images| {
        let options = ConvOptions::new([2, 2], [1, 1], [1, 1], 1);
        conv2d(images, weight.clone(), None, options).mean()
    };
    let mut batch = loader.batches();
    let mut next = || batch.next().ok_or(LoaderError::EmptyDataset)?;
    let mut sum = Tensor::<Wgsl, 1>::zeros([1], device);
    for _ in 0..WARM_UP {
        sum = sum + step(next()?);
    }
    Wgsl::sync(device)?;
    let (start, mut waited) = (Instant::now(), Duration::ZERO);
    for _ in 0..batches {
        let asked = Instant::now();
        let images = next()?;
        waited += asked.elapsed();
        sum = sum + step(images);
        burn_wgsl::compute(device)?;
    }
    Wgsl::sync(device)?;
    drop(sum);
    let seconds = start.elapsed().as_secs_f64();
    Ok((batches as f64 / seconds, waited.as_secs_f64() / seconds))
}

/// Images that take the processor a while each.
struct Images {
    len: usize,
}

impl Dataset<Vec<u8>> for Images {
    fn get(&self, index: usize) -> Option<Vec<u8>> {
        if index >= self.len {
            return None;
        }
        let start = Instant::now();
        let mut state = index as u64;
        let mut pixels = vec![0; SHAPE.iter().product()];
        // Not `sleep`: what a decoder needs is a processor.
        while start.elapsed() < PREPARATION {
            for pixel in &mut pixels {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                *pixel = (state >> 56) as u8;
            }
        }
        Some(pixels)
    }

    fn len(&self) -> usize {
        self.len
    }
}

fn floats(pixels: &[u8]) -> Vec<f32> {
    pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect()
}

/// Puts a batch together in memory that the device copies from.
fn staged<T: StagedElement>(
    items: impl IntoIterator<Item = Vec<T>>,
    shape: [usize; 4],
    device: &WgslDevice,
) -> Tensor<Wgsl, 4, T::Kind> {
    let staged = Staging::new(shape, device).and_then(|mut batch| {
        items.into_iter().try_for_each(|item| batch.push(&item))?;
        batch.finish()
    });
    // The loader reports a panic of a worker.
    staged.unwrap_or_else(|error| panic!("{error}"))
}

impl Batcher<Wgsl, Vec<u8>, Tensor<Wgsl, 4>> for Upload {
    fn batch(&self, items: Vec<Vec<u8>>, device: &WgslDevice) -> Tensor<Wgsl, 4> {
        let [channels, height, width] = SHAPE;
        let shape = [items.len(), channels, height, width];
        match (self.elements, self.staged) {
            (Elements::Bytes, true) => staged(items, shape, device).float() / 255.0,
            (Elements::Bytes, false) => {
                let data = TensorData::new(items.concat(), shape);
                Tensor::<Wgsl, 4, Int>::from_data(data, (device, DType::U8)).float() / 255.0
            }
            (Elements::Floats, true) => {
                // Each image becomes floats when it is copied.
                staged(items.into_iter().map(|item| floats(&item)), shape, device)
            }
            (Elements::Floats, false) => {
                Tensor::from_data(TensorData::new(floats(&items.concat()), shape), device)
            }
        }
    }
}
