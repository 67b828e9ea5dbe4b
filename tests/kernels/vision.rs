//! The ops of burn-vision give the same results as with burn-flex.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_vision::{
    BorderType, ConnectedComponents, ConnectedStatsOptions, Connectivity, KernelShape,
    MorphOptions, Morphology, Nms, NmsOptions, Point, Size, VisionBackend,
    create_structuring_element,
};
use burn_wgsl::Wgsl;
use burn_wgsl::runtime::{Event, Observer, Origin};

use crate::common::{self, devices};

/// Runs a computation with burn-flex and on each device, and compares the data.
fn check<F, G>(expected: F, found: G)
where
    F: Fn(&FlexDevice) -> Vec<TensorData>,
    G: Fn(&burn_wgsl::WgslDevice) -> Vec<TensorData>,
{
    let expected = expected(&FlexDevice);
    for device in devices() {
        let found = found(&device);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.shape, expected.shape, "{device}");
            let [found, expected] =
                [found, expected].map(|data| data.iter::<f64>().collect::<Vec<_>>());
            assert_eq!(found, expected, "{device}");
        }
    }
}

/// A number from 0 to 1 for each position.
fn noise(index: usize) -> f32 {
    let mixed = (index as u32).wrapping_mul(0x9e37_79b9);
    ((mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 24) as f32
}

fn image(len: usize) -> Vec<f32> {
    (0..len).map(noise).collect()
}

fn components<B: VisionBackend>(device: &B::Device) -> Vec<TensorData> {
    let mask: Vec<bool> = image(33 * 40).iter().map(|x| *x > 0.5).collect();
    let mask = Tensor::<B, 2, Bool>::from_data(TensorData::new(mask, [33, 40]), device);
    let mut results = Vec::new();
    for connectivity in [Connectivity::Four, Connectivity::Eight] {
        results.push(mask.clone().connected_components(connectivity).into_data());
        let (labels, stats) = mask
            .clone()
            .connected_components_with_stats(connectivity, ConnectedStatsOptions::all());
        results.push(labels.into_data());
        for statistic in
            [stats.area, stats.top, stats.left, stats.right, stats.bottom, stats.max_label]
        {
            results.push(statistic.into_data());
        }
    }
    results
}

#[test]
fn connected_components_are_those_of_burn_flex() {
    check(components::<Flex>, components::<Wgsl>);
}

/// Erosions and dilations by kernels of all shapes, with all borders.
fn morphology<B: VisionBackend>(device: &B::Device) -> Vec<TensorData> {
    let shape = [19, 23, 3];
    let values = image(19 * 23 * 3);
    let floats = Tensor::<B, 3>::from_data(TensorData::new(values.clone(), shape), device);
    let ints: Vec<i32> = values.iter().map(|x| (x * 200.0) as i32 - 100).collect();
    let ints = Tensor::<B, 3, Int>::from_data(TensorData::new(ints, shape), device);
    let bools: Vec<bool> = values.iter().map(|x| *x > 0.4).collect();
    let bools = Tensor::<B, 3, Bool>::from_data(TensorData::new(bools, shape), device);
    let mut results = Vec::new();
    for (element, size) in
        [(KernelShape::Rect, [3, 5]), (KernelShape::Cross, [5, 5]), (KernelShape::Ellipse, [7, 3])]
    {
        let element =
            || create_structuring_element::<B>(element, Size::new(size[0], size[1]), None, device);
        for border in [
            BorderType::Constant,
            BorderType::Replicate,
            BorderType::Reflect,
            BorderType::Reflect101,
        ] {
            macro_rules! both {
                ($image:expr) => {{
                    let options = || MorphOptions::builder().border_type(border).iterations(2);
                    results.push($image.clone().erode(element(), options().build()).into_data());
                    let options = options().anchor(Point::new(1, 0));
                    results.push($image.clone().dilate(element(), options.build()).into_data());
                }};
            }
            both!(floats);
            both!(ints);
            both!(bools);
        }
    }
    let value = Tensor::<B, 1>::from_floats([0.25, 0.5, 0.75], device);
    let element = create_structuring_element::<B>(KernelShape::Rect, Size::new(3, 3), None, device);
    let options = MorphOptions::builder().border_value(value).build();
    results.push(floats.erode(element, options).into_data());
    results
}

#[test]
fn morphology_is_that_of_burn_flex() {
    check(morphology::<Flex>, morphology::<Wgsl>);
}

/// Notes that the kernel was launched.
#[derive(Default)]
struct Launched(AtomicBool);

impl Observer for Launched {
    fn event(&self, Origin { op, .. }: Origin, event: Event<'_>) {
        if let Event::Dispatch { .. } = event
            && op == "morphology"
        {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn images_on_gpus_stay_there() {
    for device in common::gpus() {
        let launched = Arc::new(Launched::default());
        let observation = common::runtime_of(&device).observe(launched.clone());
        morphology::<Wgsl>(&device);
        drop(observation);
        assert!(launched.0.load(Ordering::Relaxed), "{device}");
    }
}

fn boxes<B: VisionBackend>(device: &B::Device) -> Vec<TensorData> {
    let corners: Vec<f32> = (0..60)
        .flat_map(|i| {
            let [x, y] = [noise(2 * i) * 50.0, noise(2 * i + 1) * 50.0];
            [x, y, x + 20.0, y + 15.0]
        })
        .collect();
    let scores: Vec<f32> = (0..60).map(|i| noise(1000 + i)).collect();
    let corners = Tensor::<B, 2>::from_data(TensorData::new(corners, [60, 4]), device);
    let scores = Tensor::<B, 1>::from_data(TensorData::new(scores, [60]), device);
    [(0.5, 0.0, 0), (0.3, 0.2, 5)]
        .map(|(iou_threshold, score_threshold, max_output_boxes)| {
            let options = NmsOptions { iou_threshold, score_threshold, max_output_boxes };
            corners.clone().nms(scores.clone(), options).into_data()
        })
        .to_vec()
}

#[test]
fn suppression_is_that_of_burn_flex() {
    check(boxes::<Flex>, boxes::<Wgsl>);
}
