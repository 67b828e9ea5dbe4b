//! Opens adapters.

use super::info::IMMEDIATE_BYTES;
use super::{Adapter, AdapterInfo, DeviceError, Features};
use crate::variables;

/// An open device.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    /// The wgpu device.
    pub device: wgpu::Device,
    /// The queue of the device.
    pub queue: wgpu::Queue,
    /// The adapter's info. Only the features that are enabled on the device are `true`.
    pub info: AdapterInfo,
    /// Whether the program opened it, and handles its errors.
    pub is_host: bool,
}

/// Opens a device on an adapter, with all limits of the adapter and the features that the kernels
/// can use.
///
/// # Errors
///
/// Returns an error if the limits are below the requirements of the kernels, or if the driver fails
/// to open the adapter.
pub async fn open(adapter: &Adapter) -> Result<OpenDevice, DeviceError> {
    let Adapter { info, adapter } = adapter;
    let shortfalls = info.limits.shortfalls();
    if !shortfalls.is_empty() {
        return Err(DeviceError::BelowRequirements { adapter: info.name.clone(), shortfalls });
    }
    let plain = requested_features(info.features);
    let with_units = plain | matrix_features(info);
    let mut opened = request(adapter, with_units).await;
    if let (Err(error), true) = (&opened, with_units != plain) {
        log::warn!("{}: opened without matrix units, with which it fails: {error}", info.name);
        opened = request(adapter, plain).await;
    }
    let (device, queue) =
        opened.map_err(|source| DeviceError::OpenFailed { adapter: info.name.clone(), source })?;
    let features = Features::from_wgpu(device.features(), &device.limits());
    let mut info = AdapterInfo { features, ..info.clone() };
    if !features.cooperative_matrix {
        info.matrix_units.clear();
    }
    Ok(OpenDevice { device, queue, info, is_host: false })
}

async fn request(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("burn-wgsl"),
        required_features: features,
        required_limits: requested_limits(adapter.limits(), features),
        memory_hints: wgpu::MemoryHints::Performance,
        experimental_features: match features.contains(MATRIX_FEATURE) {
            // SAFETY: wgpu warns of bugs in cooperative matrices. The kernels that use them pass
            // matrices inside of their workgroup memory, with the shapes and types that the adapter
            // lists. Products, convolutions and attention are tested on each device before their
            // first use, for each tile, width and layout.
            true => unsafe { wgpu::ExperimentalFeatures::enabled() },
            false => wgpu::ExperimentalFeatures::disabled(),
        },
        ..wgpu::DeviceDescriptor::default()
    };
    adapter.request_device(&descriptor).await
}

/// Returns the features and limits of an adapter with which the kernels are fastest, without those that are
/// experimental.
pub(super) fn wanted(
    adapter: &wgpu::Adapter,
    info: &AdapterInfo,
) -> (wgpu::Features, wgpu::Limits) {
    let features = requested_features(info.features);
    (features, requested_limits(adapter.limits(), features))
}

const MATRIX_FEATURE: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;

/// Returns the feature of matrix units if the kernels can use those of the adapter, unless the
/// environment variable `BURN_WGSL_MATRIX_UNITS` is `0`.
fn matrix_features(info: &AdapterInfo) -> wgpu::Features {
    // Read in any case, so that a wrong value is reported.
    let is_off = variables::MATRIX_UNITS.is_off();
    let Features { f16, subgroups, cooperative_matrix, .. } = info.features;
    let usable = f16 && subgroups && cooperative_matrix && !info.matrix_units.is_empty();
    if usable && !is_off { MATRIX_FEATURE } else { wgpu::Features::empty() }
}

/// Returns the features to request from an adapter that supports `supported`.
///
/// Float atomics are excluded because their sums differ from run to run.
fn requested_features(supported: Features) -> wgpu::Features {
    use wgpu::Features as F;
    let timestamps_inside_passes = supported.timestamps && supported.timestamps_inside_passes;
    let candidates = [
        (supported.f16, F::SHADER_F16),
        (supported.subgroups, F::SUBGROUP),
        (supported.immediates, F::IMMEDIATES),
        (supported.timestamps, F::TIMESTAMP_QUERY),
        (timestamps_inside_passes, F::TIMESTAMP_QUERY_INSIDE_PASSES),
        (supported.pipeline_cache, F::PIPELINE_CACHE),
        (supported.int64, F::SHADER_INT64),
    ];
    let requested = candidates.into_iter().filter(|(supported, _)| *supported);
    requested.fold(F::empty(), |features, (_, feature)| features | feature)
}

/// Returns the limits to request: those of the adapter, except for the size of the immediates.
///
/// The size is 0 without their feature, and at most [`IMMEDIATE_BYTES`], which every API provides
/// cheaply.
fn requested_limits(supported: wgpu::Limits, features: wgpu::Features) -> wgpu::Limits {
    let max_immediate_size = if features.contains(wgpu::Features::IMMEDIATES) {
        supported.max_immediate_size.min(IMMEDIATE_BYTES)
    } else {
        0
    };
    wgpu::Limits { max_immediate_size, ..supported }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_and_usable_features_are_requested() {
        assert_eq!(requested_features(Features::default()), wgpu::Features::empty());
        let supported = Features {
            f16: true,
            timestamps_inside_passes: true,
            float_atomics: true,
            cooperative_matrix: true,
            ..Features::default()
        };
        assert_eq!(requested_features(supported), wgpu::Features::SHADER_F16);
    }

    #[test]
    fn immediates_are_capped_and_zero_without_their_feature() {
        let supported = wgpu::Limits {
            max_immediate_size: 4096,
            max_buffer_size: 1 << 40,
            ..wgpu::Limits::defaults()
        };
        let limits = requested_limits(supported.clone(), wgpu::Features::IMMEDIATES);
        assert_eq!(limits.max_immediate_size, 128);
        assert_eq!(limits.max_buffer_size, 1 << 40);
        assert_eq!(requested_limits(supported, wgpu::Features::empty()).max_immediate_size, 0);
    }

    #[cfg(not(target_arch = "wasm32"))]
    #[test]
    fn every_adapter_of_this_machine_opens_or_reports_its_shortfalls() {
        let adapters = crate::device::adapters();
        if adapters.is_empty() {
            eprintln!("skipped: no adapter on this machine");
        }
        for adapter in adapters {
            match pollster::block_on(open(adapter)) {
                Ok(opened) => {
                    assert_eq!(opened.info.limits, adapter.info.limits);
                    assert!(!opened.info.features.float_atomics);
                }
                Err(DeviceError::BelowRequirements { shortfalls, .. }) => {
                    eprintln!("skipped: {}: {shortfalls:?}", adapter.info.name);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    #[test]
    fn the_error_for_low_limits_names_the_adapter_and_the_limit() {
        let Some(adapter) = crate::device::adapters().first() else {
            eprintln!("skipped: no adapter on this machine");
            return;
        };
        let mut adapter = adapter.clone();
        adapter.info.limits.storage_buffers_per_stage = 4;
        let text = pollster::block_on(open(&adapter)).unwrap_err().to_string();
        assert!(text.contains(&adapter.info.name), "{text}");
        assert!(text.contains("storage buffers per shader stage: has 4, needs 8"), "{text}");
    }
}
