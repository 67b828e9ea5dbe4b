//! What a client can use ends at a limit, and is freed when the client leaves.

mod common;

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use burn_backend::Slice;
use burn_ir::{
    BaseOperationIr, CatOpIr, CreationOpIr, OperationIr, ShapeOpIr, SliceOpIr, TensorId,
    TensorStatus,
};
use burn_tch::wgsl::{WgslDevice, memory};
use burn_wgsl_server::{Limits, Server, Usage};
use common::{Raw, STREAM, compute, connect, init, op, serve, task, tensor, wait_until};

const MIB: usize = 1 << 20;
const NOTHING: Usage = Usage { clients: 0, bytes: 0 };

fn cpu(limits: Limits) -> (Server, String) {
    serve(WgslDevice::Cpu, limits)
}

fn wait_until_free(server: &Server) {
    wait_until("the memory of clients that left is freed", || server.usage() == NOTHING);
}

#[test]
fn clients_that_vanish_free_their_memory() {
    let (server, address) = cpu(Limits::default());
    let mut client = Raw::session(&address);
    client.upload(1, MIB);
    client.sync().expect("it computes");
    assert_eq!(server.usage(), Usage { clients: 1, bytes: 4 << 20 });
    drop(client);
    wait_until_free(&server);
}

#[test]
fn clients_that_vanish_free_the_memory_of_the_device() {
    let device = WgslDevice::Software;
    let (server, address) = serve(device, Limits::default());
    let mut client = Raw::session(&address);
    client.upload(1, 16 * MIB);
    client.sync().expect("it computes");
    assert!(memory::usage(&device).expect("it is open").in_use >= 64 << 20);
    drop(client);
    wait_until_free(&server);
    assert!(memory::usage(&device).expect("it is open").in_use < 1 << 20);
}

#[test]
fn clients_that_vanish_during_a_transfer_free_their_memory() {
    let (server, address) = cpu(Limits::default());
    let mut client = Raw::session(&address);
    client.upload(1, MIB);
    client.sync().expect("it computes");
    // Nobody exposes it.
    let transfer = task("RegisterTensorLocal", (STREAM, 99u64, TensorId::new(2)));
    client.send(transfer).expect("it is read");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.usage().clients, 1);
    drop(client);
    wait_until_free(&server);
}

#[test]
fn exposed_tensors_count_until_their_client_leaves() {
    let (server, address) = cpu(Limits::default());
    let mut client = Raw::session(&address);
    client.upload(1, MIB);
    let exposed = tensor(1, &[MIB], TensorStatus::ReadWrite);
    client.send(task("ExposeTensorLocal", (STREAM, exposed, 5u64))).expect("it is read");
    client.sync().expect("it computes");
    assert_eq!(server.usage().bytes, 4 << 20);
    drop(client);
    wait_until_free(&server);
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    let (server, address) = cpu(Limits { clients: 1, ..Limits::default() });
    let client = Raw::session(&address);
    let error = Raw::open(&address).err().expect("there is no room");
    assert!(error.contains("503"), "{error}");
    drop(client);
    wait_until_free(&server);
    compute(&connect(&address));
}

#[test]
fn messages_beyond_the_limit_end_their_session() {
    let (_, address) = cpu(Limits { message: 1 << 20, ..Limits::default() });
    let other = connect(&address);
    let mut client = Raw::session(&address);
    // The server may close the connection before it has everything.
    let _ = client.send(vec![0; 2 * MIB]);
    assert!(client.receive().is_err());

    let mut client = Raw::open(&address).expect("there is room");
    let _ = client.send(init(&vec![0; 100 << 10]));
    assert!(client.receive().is_err());
    compute(&other);
}

#[test]
fn bytes_beyond_the_limit_end_their_session() {
    let (server, address) = cpu(Limits { bytes: 1 << 20, ..Limits::default() });
    let other = connect(&address);
    let zeros = |shape: &[usize]| {
        let out = tensor(2, shape, TensorStatus::NotInit);
        op(OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out })))
    };
    let view = || {
        let input = tensor(1, &[1], TensorStatus::ReadWrite);
        let out = tensor(2, &[1 << 40], TensorStatus::NotInit);
        op(OperationIr::BaseFloat(BaseOperationIr::Expand(ShapeOpIr { input, out })))
    };
    for message in [zeros(&[1 << 20]), zeros(&[1 << 44]), zeros(&[usize::MAX, 2]), view()] {
        let mut client = Raw::session(&address);
        client.upload(1, 1);
        client.sync().expect("it computes");
        client.send(message).expect("it is read");
        let error = client.sync().expect_err("it is too much");
        assert!(error.contains("--max-bytes"), "{error}");
        // The error is kept, the memory is not.
        let error = client.sync().expect_err("the session has failed");
        assert!(error.contains("--max-bytes"), "{error}");
        drop(client);
    }
    compute(&other);
    drop(other);
    wait_until("only the other client is left", || server.usage().clients <= 1);
}

#[test]
fn several_small_tensors_reach_the_limit_too() {
    let (_, address) = cpu(Limits { bytes: 1 << 20, ..Limits::default() });
    let mut client = Raw::session(&address);
    for id in 0..3 {
        client.upload(id, MIB / 16);
        client.sync().expect("it computes");
    }
    client.upload(0, MIB / 16);
    client.sync().expect("it replaces a tensor, and there is room for both");
    client.upload(3, MIB / 16);
    client.sync().expect("there is room for four");
    client.upload(4, MIB / 16);
    client.sync().expect_err("there is no room for five");
}

#[test]
fn clients_that_ask_for_nothing_are_closed() {
    let (server, address) = cpu(Limits { idle: Some(Duration::from_secs(1)), ..Limits::default() });
    let mut client = Raw::session(&address);
    assert!(client.receive().is_err());
    wait_until_free(&server);
}

/// Slices of a large tensor that are overwritten in place keep all of it on the CPU.
#[test]
fn parts_of_large_tensors_do_not_keep_what_does_not_count() {
    let (server, address) = cpu(Limits { bytes: 1 << 30, ..Limits::default() });
    let mut client = Raw::session(&address);
    for turn in 0..40u64 {
        let ops = [
            BaseOperationIr::Ones(CreationOpIr {
                out: tensor(1, &[16 * MIB], TensorStatus::NotInit),
            }),
            BaseOperationIr::Slice(SliceOpIr {
                tensor: tensor(1, &[16 * MIB], TensorStatus::ReadWrite),
                ranges: vec![Slice::from(0..1)],
                out: tensor(2, &[1], TensorStatus::NotInit),
            }),
            BaseOperationIr::Cat(CatOpIr {
                tensors: vec![tensor(2, &[1], TensorStatus::ReadWrite)],
                dim: 0,
                out: tensor(3 + turn, &[1], TensorStatus::NotInit),
            }),
        ];
        for step in ops {
            client.send(op(OperationIr::BaseFloat(step))).expect("it is read");
        }
    }
    client.sync().expect("it has room for what counts");
    assert_eq!(server.usage().bytes, 40 * 256);
    // 40 times 64 MiB, if the results kept what they are parts of.
    let resident = fs::read_to_string("/proc/self/statm").ok();
    let pages = resident.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    assert!(pages.unwrap_or(0) * 4096 < 2 << 30, "{pages:?} pages of memory");
    drop(client);
    wait_until_free(&server);
}

#[test]
fn readbacks_beyond_the_limit_are_errors() {
    let (_, address) = cpu(Limits { message: 1 << 20, ..Limits::default() });
    let mut client = Raw::session(&address);
    let out = tensor(1, &[MIB], TensorStatus::NotInit);
    let zeros = OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out }));
    client.send(op(zeros)).expect("it is read");
    client
        .send(task("RegisterAlias", (STREAM, TensorId::new(2), TensorId::new(1))))
        .expect("it is read");
    for id in [1, 2] {
        let error =
            client.read(tensor(id, &[MIB], TensorStatus::ReadOnly)).expect_err("it is too large");
        assert!(error.contains("--max-message"), "{error}");
    }
    client.sync().expect("the session goes on");
}

#[test]
fn transfers_of_two_programs_do_not_mix() {
    let (_, address) = cpu(Limits::default());
    let mut clients = [Raw::session(&address), Raw::session(&address)];
    let results = clients.each_mut().map(|client| {
        client.upload(1, 1);
        let exposed = tensor(1, &[1], TensorStatus::ReadWrite);
        client.send(task("ExposeTensorLocal", (STREAM, exposed, 0u64))).expect("it is read");
        client.sync()
    });
    results[0].as_ref().expect("it was the first");
    let error = results[1].as_ref().expect_err("it has the number of another");
    assert!(error.contains("two programs"), "{error}");
}

#[test]
fn connections_without_a_token_do_not_keep_others_out() {
    let (_, address) = cpu(Limits::default());
    let open = || TcpStream::connect(address.trim_start_matches("ws://")).expect("it listens");
    // More than the server keeps.
    let silent: Vec<TcpStream> = (0..100).map(|_| open()).collect();
    compute(&connect(&address));
    drop(silent);
}
