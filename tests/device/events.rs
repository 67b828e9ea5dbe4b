//! The events of a device: memory, kernels and transfers, each with its op.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::Wgsl;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::{Event, Observer, Origin, Runtime};

use crate::common;

#[derive(Default)]
struct Record {
    in_use: i64,
    dispatches: BTreeSet<(&'static str, &'static str)>,
    uploaded: u64,
    read: u64,
    submitted: usize,
}

#[derive(Default)]
struct Recording(Mutex<Record>);

impl Observer for Recording {
    fn event(&self, Origin { op, .. }: Origin, event: Event<'_>) {
        let mut record = self.0.lock().expect("no observer panics");
        match event {
            Event::Allocate { bytes, .. } => record.in_use += bytes as i64,
            Event::Release { bytes, .. } => record.in_use -= bytes as i64,
            Event::Dispatch { kernel, .. } => {
                record.dispatches.insert((op, kernel.source.name));
            }
            Event::Upload { bytes } => record.uploaded += bytes,
            Event::Readback { bytes } => record.read += bytes,
            Event::Submit { dispatches } => record.submitted += dispatches,
            _ => {}
        }
    }
}

#[test]
fn events_account_for_memory_kernels_and_transfers() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let ResolvedDevice::Adapter(index) = device.resolve().expect("the device exists") else {
            continue;
        };
        let runtime = Runtime::of(index).expect("the device opens");
        let recording = Arc::new(Recording::default());
        let observation = runtime.observe(recording.clone());
        let data = TensorData::new(vec![1.5f32; 3000], [3000]);
        let x = Tensor::<Wgsl, 1>::from_data(data, &device);
        // Computed by the kernel of the sum.
        let y = x.clone().exp() + x;
        let sum = y.clone().sum();
        let in_use = runtime.memory().in_use;
        assert_eq!(recording.0.lock().expect("no observer panics").in_use, in_use as i64);
        let _ = sum.into_data();
        drop(y);
        Wgsl::sync(&device).expect("the device works");
        drop(observation);
        let record = recording.0.lock().expect("no observer panics");
        assert_eq!(record.in_use, 0);
        assert_eq!((record.uploaded, record.read), (12_000, 4));
        assert_eq!(record.dispatches, [("float_sum", "reduce")].into());
        assert_eq!(record.submitted, 1);
    }
}
