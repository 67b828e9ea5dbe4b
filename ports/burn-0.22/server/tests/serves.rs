//! A client's results are those of the device, and a wrong token is refused.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use burn_backend::ops::FloatTensorOps;
use burn_backend::{Scalar, TensorData};
use burn_remote::{HostSpec, RemoteBackend};

/// The server, until it is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_burn-wgsl-server"))
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut lines = lines.map(|line| line.expect("the output is text"));
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
        Self { process, address: address.expect("it prints its address") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_client_computes_on_each_device() {
    let server = Server::start(&["--device", "cpu", "--device", "cpu"]);
    let devices = HostSpec::websocket(&server.address).devices().expect("it is there");
    assert_eq!(devices.len(), 2);
    for device in devices {
        type B = RemoteBackend;
        let x = B::float_from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &device);
        let y = B::float_matmul(x.clone(), B::float_add_scalar(x, Scalar::Float(1.0)));
        let y = pollster::block_on(B::float_into_data(y)).expect("readback succeeds");
        assert_eq!(y.iter::<f32>().collect::<Vec<_>>(), [10.0, 13.0, 22.0, 29.0]);
    }
}

#[test]
fn clients_need_the_token() {
    let server = Server::start(&["--device", "cpu", "--token", "abc"]);
    let host = HostSpec::websocket(&server.address);
    assert!(host.clone().with_credential("abd").connect(0).is_err());
    assert!(host.with_credential("abc").connect(0).is_ok());
}

#[test]
fn the_error_of_a_wrong_selector_lists_the_known_ones() {
    let output = Command::new(env!("CARGO_BIN_EXE_burn-wgsl-server"))
        .args(["--device", "gpux"])
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("discrete:N"), "{text}");
}
