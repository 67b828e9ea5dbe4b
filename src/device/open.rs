//! Opening an adapter.

use super::info::IMMEDIATE_BYTES;
use super::{Adapter, AdapterInfo, DeviceError, Features};

/// An open device.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    /// wgpu's device.
    pub device: wgpu::Device,
    /// Its one queue.
    pub queue: wgpu::Queue,
    /// The adapter's info, except that a feature the device was not opened with is `false`.
    pub info: AdapterInfo,
}

/// Opens an adapter with all of its limits and with the features that the kernels can use.
///
/// # Errors
///
/// When its limits are below what the kernels count on, or when the driver refuses.
pub async fn open(found: &Adapter) -> Result<OpenDevice, DeviceError> {
    let Adapter { info, adapter } = found;
    let shortfalls = info.limits.shortfalls();
    if !shortfalls.is_empty() {
        return Err(DeviceError::Lacking { adapter: info.name.clone(), shortfalls });
    }
    let features = wanted_features(info.features);
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("burn-wgsl"),
        required_features: features,
        required_limits: wanted_limits(adapter.limits(), features),
        memory_hints: wgpu::MemoryHints::Performance,
        ..wgpu::DeviceDescriptor::default()
    };
    let opened = adapter.request_device(&descriptor).await;
    let (device, queue) =
        opened.map_err(|source| DeviceError::Refused { adapter: info.name.clone(), source })?;
    let info =
        AdapterInfo { features: Features::of(device.features(), &device.limits()), ..info.clone() };
    Ok(OpenDevice { device, queue, info })
}

/// The features to ask for, out of those that are there.
///
/// Float atomics stay out because their sums differ from run to run, and cooperative matrices
/// because some drivers compute them wrong.
fn wanted_features(there: Features) -> wgpu::Features {
    use wgpu::Features as F;
    let wanted = [
        (there.f16, F::SHADER_F16),
        (there.subgroups, F::SUBGROUP),
        (there.immediates, F::IMMEDIATES),
        (there.timestamps, F::TIMESTAMP_QUERY),
        (there.timestamps && there.timestamps_inside_passes, F::TIMESTAMP_QUERY_INSIDE_PASSES),
        (there.pipeline_cache, F::PIPELINE_CACHE),
        (there.int64, F::SHADER_INT64),
    ];
    let wanted = wanted.into_iter().filter(|(there, _)| *there);
    wanted.fold(F::empty(), |all, (_, feature)| all | feature)
}

/// The adapter's own limits, since a device may only use what it was opened with. Immediates are
/// asked for up to a size that every API can give cheaply.
fn wanted_limits(there: wgpu::Limits, features: wgpu::Features) -> wgpu::Limits {
    let max_immediate_size = if features.contains(wgpu::Features::IMMEDIATES) {
        there.max_immediate_size.min(IMMEDIATE_BYTES)
    } else {
        0
    };
    wgpu::Limits { max_immediate_size, ..there }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_features_that_are_there_and_wanted_are_asked_for() {
        assert_eq!(wanted_features(Features::default()), wgpu::Features::empty());
        let there = Features {
            f16: true,
            timestamps_inside_passes: true,
            float_atomics: true,
            cooperative_matrix: true,
            ..Features::default()
        };
        assert_eq!(wanted_features(there), wgpu::Features::SHADER_F16);
    }

    #[test]
    fn immediates_are_capped_and_go_with_their_feature() {
        let there = wgpu::Limits {
            max_immediate_size: 4096,
            max_buffer_size: 1 << 40,
            ..wgpu::Limits::defaults()
        };
        let with = wanted_limits(there.clone(), wgpu::Features::IMMEDIATES);
        assert_eq!(with.max_immediate_size, 128);
        assert_eq!(with.max_buffer_size, 1 << 40);
        assert_eq!(wanted_limits(there, wgpu::Features::empty()).max_immediate_size, 0);
    }

    #[cfg(not(target_arch = "wasm32"))]
    #[test]
    fn every_adapter_of_this_machine_opens_or_says_what_it_lacks() {
        let adapters = crate::device::adapters();
        if adapters.is_empty() {
            eprintln!("skipped: no adapter on this machine");
        }
        for found in adapters {
            match pollster::block_on(open(found)) {
                Ok(opened) => {
                    assert_eq!(opened.info.limits, found.info.limits);
                    assert!(!opened.info.features.float_atomics);
                }
                Err(DeviceError::Lacking { shortfalls, .. }) => {
                    eprintln!("skipped: {}: {shortfalls:?}", found.info.name);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    #[test]
    fn an_adapter_with_low_limits_is_refused_by_name() {
        let Some(found) = crate::device::adapters().first() else {
            eprintln!("skipped: no adapter on this machine");
            return;
        };
        let mut found = found.clone();
        found.info.limits.storage_buffers_per_stage = 4;
        let text = pollster::block_on(open(&found)).unwrap_err().to_string();
        assert!(text.contains(&found.info.name), "{text}");
        assert!(text.contains("storage buffers per shader stage: has 4, needs 8"), "{text}");
    }
}
