//! The adapters of this machine.

use std::sync::OnceLock;

use super::{AdapterInfo, CAN_BLOCK, rank};

/// An adapter that is there.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// What it is and can do.
    pub info: AdapterInfo,
    /// wgpu's handle, which opens it.
    pub adapter: wgpu::Adapter,
}

impl AsRef<AdapterInfo> for Adapter {
    fn as_ref(&self) -> &AdapterInfo {
        &self.info
    }
}

/// Looks for adapters: GPUs in rank order, then software adapters, each once.
///
/// Where no driver answers the list is empty; that is no error.
pub async fn enumerate() -> Vec<Adapter> {
    // OpenGL is left out: its compute is too limited for the kernels.
    let backends = wgpu::Backends::PRIMARY & wgpu::Instance::enabled_backend_features();
    if backends.is_empty() {
        // A platform without any such API; creating an instance would panic there.
        return Vec::new();
    }
    let descriptor = wgpu::InstanceDescriptor {
        backends,
        // None by default, in debug builds too: the driver's own messages would come before ours
        // where there is no GPU, and checking indirect dispatches, of which there are none, caps
        // buffers at 4 GiB. WGPU_VALIDATION=1 and its like switch them on.
        flags: wgpu::InstanceFlags::empty().with_env(),
        backend_options: wgpu::BackendOptions::from_env_or_default(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let adapters = instance.enumerate_adapters(backends).await;

    let info: Vec<AdapterInfo> = adapters.iter().map(AdapterInfo::of).collect();
    let order = rank(&info);
    let found = info.into_iter().zip(adapters);
    let mut found: Vec<Option<Adapter>> =
        found.map(|(info, adapter)| Some(Adapter { info, adapter })).collect();
    order.into_iter().filter_map(|i| found[i].take()).collect()
}

static ADAPTERS: OnceLock<Vec<Adapter>> = OnceLock::new();

/// The adapters of this machine, looked for once per process: GPUs in rank order, then software
/// adapters, each once. Empty where no driver answers; in a browser, also before [`look`].
pub fn adapters() -> &'static [Adapter] {
    if !CAN_BLOCK {
        return ADAPTERS.get().map_or(&[], Vec::as_slice);
    }
    ADAPTERS.get_or_init(|| listed(pollster::block_on(enumerate())))
}

/// Looks for what [`adapters`] returns from then on. Only a browser needs to be asked so; it is asked again where it had none.
pub async fn discover() -> &'static [Adapter] {
    if !CAN_BLOCK && adapters().is_empty() {
        let found = enumerate().await;
        if !found.is_empty() {
            ADAPTERS.get_or_init(|| listed(found));
        }
    }
    adapters()
}

fn listed(found: Vec<Adapter>) -> Vec<Adapter> {
    for (index, Adapter { info, .. }) in found.iter().enumerate() {
        let AdapterInfo { name, kind, api, .. } = info;
        log::debug!("adapter {index}: {name}, {kind}, {api}");
    }
    found
}
