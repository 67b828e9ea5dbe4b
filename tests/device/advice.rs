//! What slows a loop is named, and not what does not.

use std::time::Duration;

use burn::tensor::Tensor;
use burn_wgsl::train::{Advice, Advisor, LoopReport, Mean};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{gpus, serial_guard};

/// Measures a loop whose steps multiply matrices.
fn measured(device: &WgslDevice, delay: Duration, size: usize, waits: bool) -> LoopReport {
    let mut loss = Mean::new();
    let weight = Tensor::<Wgsl, 2>::ones([size, size], device) / size as f32;
    let mut step = |x: Tensor<Wgsl, 2>| {
        let value = (0..4).fold(x, |x, _| x.matmul(weight.clone())).mean();
        loss.add(value.clone(), 1);
        if waits {
            assert!((value.into_scalar() - 1.0).abs() < 1e-3);
        }
    };
    let x = Tensor::ones([size, size], device);
    step(x.clone());
    let mut advisor = Advisor::begin(device).expect("the device works");
    for _ in 0..20 {
        let x = advisor.data(|| {
            std::thread::sleep(delay);
            x.clone()
        });
        step(x);
        advisor.end_step();
    }
    let report = advisor.finish().expect("the device works");
    assert_eq!(loss.samples(), 21);
    report
}

#[test]
fn a_slow_loop_and_its_cure() {
    let _guard = serial_guard();
    for device in gpus() {
        let slow = measured(&device, Duration::from_millis(50), 201, true);
        let text = slow.to_string();
        let has =
            |report: &LoopReport, wanted: fn(&Advice) -> bool| report.advice.iter().any(wanted);
        assert!(has(&slow, |advice| matches!(advice, Advice::Data { .. })), "{text}");
        assert!(has(&slow, |advice| matches!(advice, Advice::Waits { .. })), "{text}");
        assert!(has(&slow, |advice| matches!(advice, Advice::OddSizes { .. })), "{text}");
        assert!(!has(&slow, |advice| matches!(advice, Advice::Fallbacks { .. })), "{text}");
        assert_eq!(slow.steps, 20);
        // On a busy machine, a result may be there before the host asks for it.
        assert!((0.5..=1.0).contains(&slow.waits_per_step), "{text}");
        assert!(slow.launches_per_step >= 4.0 && text.contains("20 steps"), "{text}");
        let cured = measured(&device, Duration::ZERO, 204, false);
        let is_of_loop =
            |advice: &Advice| matches!(advice, Advice::Data { .. } | Advice::Waits { .. });
        assert!(!has(&cured, is_of_loop), "{cured}");
    }
}
