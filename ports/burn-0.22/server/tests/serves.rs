//! A client's results are those of the device, and what the server does not serve is refused.

mod common;

use std::fs;

use burn_backend::TensorData;
use burn_backend::ops::FloatTensorOps;
use burn_remote::{HostSpec, RemoteBackend};
use burn_tch::wgsl::WgslDevice;
use burn_wgsl_server::Limits;
use common::{Program, compute, free_path, program, serve, status};

#[test]
fn a_client_computes_on_each_device() {
    let server = Program::start(&["--no-token", "--device", "cpu", "--device", "cpu"], None);
    let devices = HostSpec::websocket(&server.address).devices().expect("it is there");
    assert_eq!(devices.len(), 2);
    devices.iter().for_each(compute);
}

#[test]
fn tensors_move_between_the_devices_of_a_server() {
    type B = RemoteBackend;
    let server = Program::start(&["--no-token", "--device", "cpu", "--device", "cpu"], None);
    let devices = HostSpec::websocket(&server.address).devices().expect("it is there");
    let x = B::float_from_data(TensorData::from([1.0f32, 2.0]), &devices[0]);
    let y = B::float_to_device(x, &devices[1]);
    let y = pollster::block_on(B::float_into_data(y)).expect("readback succeeds");
    assert_eq!(y.iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
}

#[test]
fn clients_need_the_token() {
    let server = Program::start(&["--device", "cpu"], Some("abc"));
    let host = HostSpec::websocket(&server.address);
    assert!(host.connect(0).is_err());
    assert!(host.clone().with_credential("abd").connect(0).is_err());
    compute(&host.with_credential("abc").connect(0).expect("it is the token"));
}

#[test]
fn the_token_is_created_once_and_never_printed() {
    let path = free_path("token");
    let options = ["--device", "cpu", "--token-file", path.to_str().expect("it is text")];
    let first = Program::start(&options, None);
    let token = fs::read_to_string(&path).expect("it was created");
    assert_eq!(token.len(), 64);
    assert!(first.output.contains(options[3]) && !first.output.contains(&token));
    let second = Program::start(&options, None);
    for server in [first, second] {
        let host = HostSpec::websocket(&server.address);
        assert!(host.connect(0).is_err());
        assert!(host.with_credential(token.as_str()).connect(0).is_ok());
    }
    fs::remove_file(&path).expect("it is there");
}

#[cfg(unix)]
#[test]
fn token_files_that_others_can_read_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let (path, link) = (free_path("lax"), free_path("link"));
    let refusal = |path: &std::path::Path| {
        let path = path.to_str().expect("it is text");
        let output = program(&["--device", "cpu", "--token-file", path]).output();
        let output = output.expect("the program starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    fs::write(&path, "abc").expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert!(refusal(&path).contains("chmod 600"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    symlink(&path, &link).expect("it can be created");
    refusal(&link);
    fs::write(&path, "\n").expect("it can be written");
    assert!(refusal(&path).contains("is empty"));
    fs::remove_file(&path).expect("it is there");
    fs::remove_file(&link).expect("it is there");
}

#[test]
fn tokens_are_not_options() {
    let output = program(&["--device", "cpu", "--token", "abc"]).output();
    assert!(!output.expect("the program starts").status.success());
}

#[test]
fn web_pages_and_other_names_are_refused() {
    let options = [
        "--no-token",
        "--device",
        "cpu",
        "--allow-origin",
        "https://a.example",
        "--allow-host",
        "gpu-box",
    ];
    let server = Program::start(&options, None);
    let status = |path, headers| status(&server.address, path, headers);
    let host = "Host: 127.0.0.1:3000\r\n";
    assert_eq!(status("/session", host), 101);
    assert_eq!(status("/session", "Host: gpu-box:3000\r\nOrigin: https://a.example\r\n"), 101);
    assert_eq!(status("/session", "Host: localhost\r\nOrigin: http://localhost\r\n"), 403);
    assert_eq!(status("/session", "Host: localhost\r\nOrigin: null\r\n"), 403);
    assert_eq!(status("/session", "Host: rebound.example:3000\r\n"), 403);
    assert_eq!(status("/session", "Host: 127.0.0.1\r\nHost: rebound.example\r\n"), 403);
    assert_eq!(status("/session", ""), 403);
    assert_eq!(status("/data", host), 404);
}

#[test]
fn tensors_do_not_move_between_servers() {
    type B = RemoteBackend;
    let limits = Limits { clients: 2, ..Limits::default() };
    let servers = [(); 2].map(|()| serve(WgslDevice::Cpu, limits.clone()).1);
    let [from, to] = servers.map(|address| common::connect(&address));
    let x = B::float_from_data(TensorData::from([1.0f32, 2.0]), &from);
    let y = B::float_to_device(x, &to);
    let error = pollster::block_on(B::float_into_data(y)).expect_err("it is not there");
    assert!(error.to_string().contains("cannot move between servers"), "{error}");
}

#[test]
fn the_error_of_a_wrong_selector_lists_the_known_ones() {
    let output = program(&["--device", "gpux"]).output().expect("the program starts");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("discrete:N"), "{text}");
}
