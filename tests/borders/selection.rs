//! Device selection in programs: tensors on several selectors of one device, the lists of devices
//! that Burn programs iterate over, and the message about a missing GPU.
//!
//! `auto` is resolved once per process, so tests that set `BURN_WGSL_DEVICE` run in a child
//! process.

use std::collections::HashSet;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::LinearConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{Backend, Device, DeviceId};
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData};
use burn_wgsl::device::{Adapter, AdapterKind, adapters, automatic, set_quiet};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{assert_success, devices, panic_message, run_child, test_alone};

#[test]
fn tensors_on_auto_mix_with_tensors_on_the_device_that_it_becomes() {
    for device in devices() {
        let selector = device.to_string();
        assert_success(&run_child(test_alone!("auto_mixes"), &[("BURN_WGSL_DEVICE", &selector)]));
    }
}

#[test]
#[ignore = "runs in a child process"]
fn auto_mixes() {
    let variable = std::env::var("BURN_WGSL_DEVICE").expect("the parent sets it");
    let named: WgslDevice = variable.parse().expect("the parent sets a selector");
    assert_eq!(WgslDevice::Auto.canonical(), named);
    let auto = WgslDevice::default();
    let on = |device| Tensor::<Wgsl, 2>::ones([2, 3], device);

    // Whatever creates a tensor resolves its device.
    let created: [Tensor<Wgsl, 2>; 6] = [
        on(&auto),
        Tensor::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &auto),
        Tensor::random([2, 3], Distribution::Default, &auto),
        Tensor::<Wgsl, 2, Int>::zeros([2, 3], &auto).float(),
        Tensor::<Wgsl, 2, Bool>::from_data([[true, false, true], [true, true, false]], &auto)
            .float(),
        on(&WgslDevice::Cpu).to_device(&auto),
    ];
    for (index, tensor) in created.into_iter().enumerate() {
        assert_eq!(tensor.device(), named, "tensor {index}");
        assert_eq!(tensor.device(), auto, "tensor {index}");
        assert_eq!(HashSet::from([tensor.device(), auto, named, WgslDevice::default()]).len(), 1);
        let _ = Tensor::cat(vec![tensor.clone(), on(&named)], 0);
        let _ = Tensor::stack::<3>(vec![on(&named), tensor.clone()], 0);
        assert_eq!((on(&named) * tensor.clone()).to_device(&auto).device(), named);
        let _ = on(&named).matmul(tensor.transpose());
    }
    let int = Tensor::<Wgsl, 1, Int>::random([4], Distribution::Uniform(0.0, 9.0), &auto);
    assert_eq!(int.device(), named);
    let quantised = Tensor::<Wgsl, 2>::from_data(
        TensorData::quantized(vec![1i8, 2, 3, 4], [2, 2], Default::default(), &[0.5]),
        &auto,
    );
    assert_eq!(quantised.device(), named);

    // A model on `auto` trains on data of the named device.
    let mut model = LinearConfig::new(3, 1).init::<Autodiff<Wgsl>>(&auto);
    assert_eq!(model.devices(), [named]);
    let x = Tensor::<Autodiff<Wgsl>, 2>::ones([2, 3], &named);
    let gradients = GradientsParams::from_grads(model.forward(x).sum().backward(), &model);
    model = AdamConfig::new().init().step(1e-2, model, gradients);
    let record = model.clone().into_record();
    assert_eq!(model.fork(&auto).load_record(record).devices(), [named]);

    // Errors name the device, not the word that selected it.
    if named != WgslDevice::Cpu {
        let text = panic_message(move || {
            let _ = Tensor::<Wgsl, 2>::zeros([1 << 17, 1 << 17], &auto);
        });
        assert!(text.contains(&format!("float_zeros on {named}:")), "{text}");
    }
    Wgsl::sync(&auto).expect("the device is alive");
}

/// Returns the devices of type id 0 as Burn programs for several devices list them.
fn devices_of_type_0() -> Vec<WgslDevice> {
    let ids = (0..Wgsl::device_count(0)).map(|index| DeviceId::new(0, index as u16));
    ids.map(WgslDevice::from_id).collect()
}

#[test]
fn type_id_0_lists_the_usable_gpus_or_the_selected_device() {
    assert_success(&run_child(test_alone!("type_0_lists_all_gpus"), &[]));
    for selector in ["software", "cpu", "gpu:99", "fpga"] {
        let environment = [("BURN_WGSL_DEVICE", selector)];
        assert_success(&run_child(test_alone!("type_0_lists_the_selected_device"), &environment));
    }
}

#[test]
#[ignore = "runs in a child process"]
fn type_0_lists_all_gpus() {
    let usable = |adapter: &&Adapter| {
        adapter.info.kind != AdapterKind::Software && adapter.info.limits.shortfalls().is_empty()
    };
    let gpus = adapters().iter().filter(usable).count();
    let devices = devices_of_type_0();
    assert_eq!(devices.len(), gpus.max(1), "{devices:?}");
    assert_eq!(devices[0], WgslDevice::Auto.canonical());
    assert_eq!(devices.iter().collect::<HashSet<_>>().len(), devices.len(), "{devices:?}");
    for device in devices {
        assert_eq!(Tensor::<Wgsl, 1>::ones([2], &device).device(), device);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn type_0_lists_the_selected_device() {
    let variable = std::env::var("BURN_WGSL_DEVICE").expect("the parent sets it");
    let devices = devices_of_type_0();
    match automatic() {
        Ok(automatic) => {
            assert_eq!(devices, [automatic.device]);
            assert_eq!(automatic.device.to_string(), variable);
        }
        // The first use of the only device reports the invalid variable.
        Err(_) => {
            assert_eq!(devices, [WgslDevice::Auto]);
            let text = panic_message(|| drop(Tensor::<Wgsl, 1>::ones([2], &WgslDevice::Auto)));
            assert!(text.contains("BURN_WGSL_DEVICE") && text.contains(&variable), "{text}");
        }
    }
}

#[test]
fn a_missing_gpu_is_reported_once_on_standard_error() {
    let message = "all ops run on the CPU";
    let count = |environment: &[(&str, &str)]| {
        let output = run_child(test_alone!("uses_auto"), environment);
        assert_success(&output);
        String::from_utf8_lossy(&output.stderr).matches(message).count()
    };
    let no_gpu = usize::from(automatic().is_ok_and(|automatic| automatic.no_usable_gpu));
    if no_gpu == 0 {
        eprintln!("skipped in part: this machine has a GPU, or BURN_WGSL_DEVICE is set");
    }
    assert_eq!(count(&[]), no_gpu);
    assert_eq!(count(&[("BURN_WGSL_QUIET", "0")]), no_gpu);
    // A logger that shows warnings shows it instead; one that shows only errors does not.
    assert_eq!(count(&[("RUST_LOG", "warn")]), no_gpu);
    assert_eq!(count(&[("RUST_LOG", "error")]), no_gpu);
    for silenced in [("BURN_WGSL_QUIET", "1"), ("BURN_WGSL_DEVICE", "cpu"), ("SET_QUIET", "1")] {
        assert_eq!(count(&[silenced]), 0, "{silenced:?}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn uses_auto() {
    if std::env::var_os("RUST_LOG").is_some() {
        env_logger::init();
    }
    if std::env::var_os("SET_QUIET").is_some() {
        set_quiet(true);
    }
    for _ in 0..2 {
        let _ = Tensor::<Wgsl, 1>::ones([2], &WgslDevice::default()) + 1.0;
    }
}
