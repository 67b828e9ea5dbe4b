//! Discovers the adapters of this machine.

use std::sync::OnceLock;

use super::{AdapterInfo, CAN_BLOCK, rank};
use crate::variables::has_debug_groups;

/// A discovered adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The adapter's properties, limits and features.
    pub info: AdapterInfo,
    /// The wgpu adapter, for opening a device.
    pub(crate) adapter: wgpu::Adapter,
}

impl AsRef<AdapterInfo> for Adapter {
    fn as_ref(&self) -> &AdapterInfo {
        &self.info
    }
}

/// Enumerates the adapters, without duplicates: GPUs in rank order, then software adapters.
///
/// Returns an empty list if no driver is found.
pub async fn enumerate() -> Vec<Adapter> {
    // OpenGL is excluded: its compute support is too limited for the kernels.
    let backends = wgpu::Backends::PRIMARY & wgpu::Instance::enabled_backend_features();
    if backends.is_empty() {
        // Creating an instance without a backend panics.
        return Vec::new();
    }
    // Drivers are given debug groups only with this flag.
    let flags = match has_debug_groups() {
        true => wgpu::InstanceFlags::DEBUG,
        false => wgpu::InstanceFlags::empty(),
    };
    let descriptor = wgpu::InstanceDescriptor {
        backends,
        // No flags by default, even in debug builds. Without a GPU, driver messages would precede
        // the messages of this crate. Validation of indirect dispatches would limit buffers to
        // 4 GiB, and this crate has no indirect dispatches. Environment variables such as
        // WGPU_VALIDATION=1 set the flags.
        flags: flags.with_env(),
        backend_options: wgpu::BackendOptions::from_env_or_default(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let handles = instance.enumerate_adapters(backends).await;

    let infos: Vec<AdapterInfo> = handles.iter().map(AdapterInfo::from_wgpu).collect();
    let order = rank(&infos);
    let unranked = infos.into_iter().zip(handles);
    let mut unranked: Vec<Option<Adapter>> =
        unranked.map(|(info, adapter)| Some(Adapter { info, adapter })).collect();
    order.into_iter().filter_map(|i| unranked[i].take()).collect()
}

static ADAPTERS: OnceLock<Vec<Adapter>> = OnceLock::new();

/// Returns the adapters of this machine, without duplicates: GPUs in rank order, then software
/// adapters.
///
/// The first call of a process enumerates them. The list is empty if no driver is found. In a
/// browser, it is also empty until [`discover`] has found an adapter.
///
/// ```
/// for adapter in burn_wgsl::device::adapters() {
///     let info = &adapter.info;
///     println!("{} ({}): {} bytes per buffer", info.name, info.api, info.limits.max_buffer_size);
/// }
/// ```
pub fn adapters() -> &'static [Adapter] {
    if !CAN_BLOCK {
        return ADAPTERS.get().map_or(&[], Vec::as_slice);
    }
    ADAPTERS.get_or_init(|| logged(pollster::block_on(enumerate())))
}

/// Enumerates the adapters for later calls to [`adapters`], and returns them.
///
/// Only a browser needs this call. There, each call enumerates again until an adapter is found.
pub async fn discover() -> &'static [Adapter] {
    if !CAN_BLOCK && adapters().is_empty() {
        let found = enumerate().await;
        if !found.is_empty() {
            ADAPTERS.get_or_init(|| logged(found));
        }
    }
    adapters()
}

/// Logs the adapters and returns them.
fn logged(found: Vec<Adapter>) -> Vec<Adapter> {
    for (index, Adapter { info, .. }) in found.iter().enumerate() {
        let AdapterInfo { name, kind, api, .. } = info;
        log::debug!("adapter {index}: {name}, {kind}, {api}");
    }
    found
}
