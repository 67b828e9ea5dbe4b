//! burn-collective: threads exchange tensors of their devices.

use std::thread;

use burn::tensor::{Tensor, TensorPrimitive};
use burn_collective::{
    CollectiveConfig, PeerId, ReduceOperation, all_reduce, broadcast, finish_collective, register,
};
use burn_wgsl::{Wgsl, WgslDevice};

/// Runs peers on two devices, which may be the same, and returns what they return.
fn peers<R: Send>(
    devices: [WgslDevice; 2],
    work: impl Fn(PeerId, WgslDevice) -> R + Sync,
) -> [R; 2] {
    let run = |index: usize| {
        let (id, device) = (PeerId::from(index as u32), devices[index]);
        let config = CollectiveConfig::default().with_num_devices(2);
        register::<Wgsl>(id, device, config).expect("it is registered once");
        let result = work(id, device);
        finish_collective::<Wgsl>(id).expect("the session ends");
        result
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let first = run(0);
        [first, other.join().expect("the other peer does not fail")]
    })
}

fn values(tensor: <Wgsl as burn::tensor::backend::BackendTypes>::FloatTensorPrimitive) -> Vec<f32> {
    let tensor = Tensor::<Wgsl, 1>::from_primitive(TensorPrimitive::Float(tensor));
    tensor.into_data().to_vec().expect("floats")
}

#[test]
fn peers_sum_and_share_tensors() {
    for devices in [[WgslDevice::Software, WgslDevice::Cpu], [WgslDevice::Software; 2]] {
        let [first, second] = peers(devices, |id, device| {
            let own = if id == PeerId::from(0) { [1.0, 2.0] } else { [30.0, 40.0] };
            let own = Tensor::<Wgsl, 1>::from_floats(own, &device).into_primitive().tensor();
            let sum = all_reduce::<Wgsl>(id, own.clone(), ReduceOperation::Sum).expect("a sum");
            let sent = (id == PeerId::from(0)).then_some(own);
            let received = broadcast::<Wgsl>(id, sent).expect("a tensor");
            (values(sum), values(received))
        });
        assert_eq!(first, (vec![31.0, 42.0], vec![1.0, 2.0]), "{devices:?}");
        assert_eq!(second, first, "{devices:?}");
    }
}
