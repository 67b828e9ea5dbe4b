//! Devices that the program opened itself and handed in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::time::Duration;

use super::open::wanted;
use super::{AdapterInfo, CAN_BLOCK, DeviceError, Features, OpenDevice, adapters};

/// The index of the first of these devices in [`ResolvedDevice::Adapter`](super::ResolvedDevice::Adapter). A machine
/// has fewer adapters.
pub const FIRST_HOST: usize = 1 << 16;

/// How long the work that a program submitted before it handed in its device may take.
const HOST_WAIT: Duration = Duration::from_secs(30);

/// What is known of each device, in the order in which they were handed in. They stay known until the program ends.
static HOSTS: RwLock<Vec<&'static AdapterInfo>> = RwLock::new(Vec::new());

/// Returns what is known of an adapter, or of a device of the program.
pub fn info_of(index: usize) -> Option<&'static AdapterInfo> {
    match index.checked_sub(FIRST_HOST) {
        None => adapters().get(index).map(|adapter| &adapter.info),
        Some(number) => {
            let hosts = HOSTS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            hosts.get(number).copied()
        }
    }
}

/// Adds a device of the program to those that are known. `open` is called with its index.
pub fn add_host(info: AdapterInfo, open: impl FnOnce(usize)) -> usize {
    let mut hosts = HOSTS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let number = hosts.len();
    open(FIRST_HOST + number);
    hosts.push(Box::leak(Box::new(info)));
    number
}

/// Returns the features and the limits with which a program should open a device that it hands in. Kernels run with
/// fewer, if the limits are those that WebGPU guarantees.
pub fn host_requirements(adapter: &wgpu::Adapter) -> (wgpu::Features, wgpu::Limits) {
    wanted(adapter, &AdapterInfo::from_wgpu(adapter))
}

/// Takes a device that the program opened.
///
/// # Errors
///
/// Returns an error if it is of another adapter, its limits are too low, or the queue is not the device's. In a
/// browser, the queue is not checked.
pub fn take_host(
    adapter: &wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
) -> Result<OpenDevice, DeviceError> {
    let (selected, opened) = (adapter.get_info(), device.adapter_info());
    if (selected.vendor, selected.device, selected.backend, &selected.name)
        != (opened.vendor, opened.device, opened.backend, &opened.name)
    {
        return Err(DeviceError::HostAdapter { adapter: selected.name, device: opened.name });
    }
    let limits = device.limits();
    let of_adapter = AdapterInfo::from_wgpu(adapter);
    let mut info = AdapterInfo {
        limits: of_adapter.limits.of_device(&limits),
        features: Features::from_wgpu(device.features(), &limits),
        ..of_adapter
    };
    if !info.features.cooperative_matrix {
        info.matrix_units.clear();
    }
    let mut shortfalls = info.limits.shortfalls();
    shortfalls.extend(info.limits.small_buffers());
    if !shortfalls.is_empty() {
        return Err(DeviceError::HostBelowRequirements { adapter: info.name, shortfalls });
    }
    if CAN_BLOCK && !writes_memory_of(&queue, &device) {
        return Err(DeviceError::HostQueue { adapter: info.name });
    }
    Ok(OpenDevice { device, queue, info, is_host: true })
}

/// Returns whether a queue is that of a device: whether what it writes reaches the device's memory.
///
/// wgpu reports a wrong queue to the device of the queue, whose handler may panic. Errors of `device` do not reach its
/// handler.
fn writes_memory_of(queue: &wgpu::Queue, device: &wgpu::Device) -> bool {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    let scopes = [Validation, Internal, OutOfMemory].map(|filter| device.push_error_scope(filter));
    let written = catch_unwind(AssertUnwindSafe(|| is_written(queue, device)));
    // Innermost first.
    let errors = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
    errors.count() == 0 && written.is_ok_and(|is_written| is_written)
}

fn is_written(queue: &wgpu::Queue, device: &wgpu::Device) -> bool {
    const WRITTEN: [u8; 4] = [0xa5; 4];
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("queue"),
        size: WRITTEN.len() as u64,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    queue.write_buffer(&buffer, 0, &WRITTEN);
    let submission_index = Some(queue.submit([]));
    buffer.map_async(wgpu::MapMode::Read, .., |_| {});
    let polled = device.poll(wgpu::PollType::Wait { submission_index, timeout: Some(HOST_WAIT) });
    polled.is_ok() && buffer.get_mapped_range(..).is_ok_and(|bytes| bytes[..] == WRITTEN)
}
