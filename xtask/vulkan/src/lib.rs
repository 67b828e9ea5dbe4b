//! A replacement of libdrm's `drmGetCap` for Mesa's stand-ins for kernel drivers.
//!
//! A stand-in claims to have timelines (`DRM_CAP_SYNCOBJ_TIMELINE`), but a query of a timeline
//! leaves its value uninitialised. Programs then see arbitrary values of Vulkan's timeline
//! semaphores, and the validation layer reports command buffers that are in use. This library
//! hides the timelines, so that Mesa's drivers emulate them with fences, which a stand-in signals
//! at once.
//!
//! The dynamic linker must load this library after the stand-in and before libdrm.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_ulong};

/// The request that asks a kernel driver for a capability.
const DRM_IOCTL_GET_CAP: c_ulong = 0xc010_640c;

/// The capability that is hidden: timelines.
const DRM_CAP_SYNCOBJ_TIMELINE: u64 = 0x14;

/// The argument of [`DRM_IOCTL_GET_CAP`].
#[repr(C)]
struct GetCap {
    capability: u64,
    value: u64,
}

// SAFETY: the stand-in for the kernel exports the function with this signature.
unsafe extern "C" {
    /// The stand-in's function of this name, which answers for the kernel.
    fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
}

/// Asks a kernel driver for a capability, and says that it has no timelines.
///
/// # Safety
///
/// `value` must be valid for writes.
#[allow(non_snake_case, reason = "this is libdrm's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmGetCap(file: c_int, capability: u64, value: *mut u64) -> c_int {
    let mut argument = GetCap { capability, value: 0 };
    if capability != DRM_CAP_SYNCOBJ_TIMELINE {
        // SAFETY: the request takes a pointer to this struct.
        let result = unsafe { ioctl(file, DRM_IOCTL_GET_CAP, &raw mut argument) };
        if result != 0 {
            return result;
        }
    }
    // SAFETY: the caller passes a valid pointer.
    unsafe { value.write(argument.value) };
    0
}
