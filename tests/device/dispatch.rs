//! Kernels of one's own, through the runtime: checks, and long launches in parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn_wgsl::runtime::{
    Dispatch, Event, Kernel, KernelKey, Observer, Origin, Runtime, Source, Variant,
};

use crate::common;

const TEXT: &str = r#"
//#include "lib/grid"

struct Params {
    // Elements of out.
    count: u32,
    // How far behind its own element each invocation writes.
    distance: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = group_index(group, groups);
    if (i < p.count) {
        // Counts how often each element is computed.
        out[i + p.distance] += 1u + i;
    }
}
"#;

static SOURCE: Source = Source::checked::<[u32; 2]>("count", TEXT);

#[derive(Debug, Clone, Hash)]
struct Count;

impl Kernel for Count {
    type Params = [u32; 2];

    fn variant(&self) -> Variant {
        Variant::new(&SOURCE)
    }
}

/// Runs the kernel on zeros with an estimate of its work, and returns the elements.
fn run(runtime: &Arc<Runtime>, count: u32, distance: u32, work: u64) -> Vec<u32> {
    let out = runtime.upload(&vec![0; count as usize * 4]).expect("the memory is available");
    let params = [count, distance];
    let dispatch = Dispatch {
        key: KernelKey::of(&Count),
        kernel: &|| Count.variant(),
        inputs: &[],
        outputs: &[&out],
        params: bytemuck::bytes_of(&params),
        groups: count.into(),
        work,
        indexed_axes: None,
        also_read: &[],
        also_written: &[],
        separate: &[],
    };
    runtime.dispatch(&dispatch).expect("the kernel compiles");
    let bytes = u64::from(count) * 4;
    let read = runtime.read_blocking(&[(Arc::new(out), bytes)]).expect("the device works");
    bytemuck::pod_collect_to_vec(&read[0])
}

#[derive(Default)]
struct Dispatches(AtomicUsize);

impl Observer for Dispatches {
    fn event(&self, _: Origin, event: Event<'_>) {
        if let Event::Submit { dispatches } = event {
            self.0.fetch_add(dispatches, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_long_launch_is_dispatched_in_parts_that_compute_each_element_once() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        for (count, work) in
            [(1000, 1 << 20), (1000, 1 << 40), (70_000, 1 << 40), (200_000, 1 << 39)]
        {
            let submitted = Arc::new(Dispatches::default());
            let observation = runtime.observe(submitted.clone());
            let values = run(&runtime, count, 0, work);
            drop(observation);
            let expected: Vec<u32> = (1..=count).collect();
            assert_eq!(values, expected, "{count} workgroups, work {work}");
            let parts = submitted.0.load(Ordering::Relaxed);
            assert_eq!(parts > 1, work > 1 << 37, "{count} workgroups, work {work}: {parts} parts");
        }
    }
}

#[test]
fn a_checked_kernel_writes_nothing_outside_its_operand() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let neighbour = Arc::new(runtime.upload(&[7; 4096]).expect("the memory is available"));
        let values = run(&runtime, 64, 1 << 20, 64);
        assert!(values.iter().all(|&value| value <= 64 * 64), "{values:?}");
        let read = runtime.read_blocking(&[(neighbour, 4096)]).expect("the device works");
        assert!(read[0].iter().all(|&byte| byte == 7), "another allocation was overwritten");
    }
}
