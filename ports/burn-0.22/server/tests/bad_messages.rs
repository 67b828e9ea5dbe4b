//! Whatever a client sends, the server goes on to serve others.

mod common;

use burn_backend::{DType, TensorData};
use burn_ir::{
    BaseOperationIr, BinaryOpIr, CreationOpIr, CustomOpIr, FloatOperationIr, MatmulOpIr,
    NumericOperationIr, OperationIr, ShapeOpIr, TensorId, TensorStatus,
};
use common::{Program, Raw, STREAM, close, compute, connect, init, op, task, tensor};
use tokio_tungstenite::tungstenite::Message;

const READ: TensorStatus = TensorStatus::ReadOnly;
const NEW: TensorStatus = TensorStatus::NotInit;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Messages of an honest client that has uploaded tensor 1, of shape `[2, 2]`.
fn honest() -> Vec<Vec<u8>> {
    let (x, out) = (tensor(1, &[2, 2], READ), tensor(2, &[2, 2], NEW));
    let add = BinaryOpIr { lhs: x.clone(), rhs: x.clone(), out: out.clone() };
    let product = MatmulOpIr { lhs: x.clone(), rhs: x.clone(), out: out.clone() };
    let view = ShapeOpIr { input: x.clone(), out: tensor(2, &[4], NEW) };
    let data = TensorData::from([1.0f32, 2.0, 3.0]);
    vec![
        op(OperationIr::NumericFloat(DType::F32, NumericOperationIr::Add(add))),
        op(OperationIr::Float(DType::F32, FloatOperationIr::Matmul(product))),
        op(OperationIr::BaseFloat(BaseOperationIr::Reshape(view))),
        op(OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out }))),
        op(OperationIr::Drop(x.clone())),
        task("RegisterTensor", (STREAM, TensorId::new(3), data)),
        task("RegisterAlias", (STREAM, TensorId::new(4), TensorId::new(1))),
        task("ReadTensor", (1u64, STREAM, x)),
        task("Seed", 3u64),
        task("DTypeUsage", (1u64, DType::F32)),
        task("ProfileStart", (1u64, STREAM)),
        close(17),
    ]
}

/// Messages after which a session must not go on.
fn hostile() -> Vec<Vec<u8>> {
    let x = tensor(1, &[2, 2], READ);
    let unknown = tensor(77, &[2, 2], READ);
    let zeros = |shape: &[usize]| {
        let out = tensor(2, shape, NEW);
        op(OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out })))
    };
    let out = tensor(2, &[2, 2], NEW);
    let product = MatmulOpIr { lhs: x.clone(), rhs: unknown.clone(), out };
    let wrong_kind = ShapeOpIr { input: x, out: tensor(2, &[4], NEW) };
    let custom = CustomOpIr::new("\x1b[2Jx", &[], &[tensor(2, &[2], NEW)]);
    let short = (serde_bytes::Bytes::new(&[0; 8]), [3usize], DType::F32);
    let nothing: [u8; 0] = [];
    vec![
        zeros(&[1 << 44]),
        zeros(&[usize::MAX, 2]),
        op(OperationIr::Float(DType::F32, FloatOperationIr::Matmul(product))),
        op(OperationIr::BaseInt(BaseOperationIr::Reshape(wrong_kind))),
        op(OperationIr::Custom(custom)),
        task("ReadTensor", (1u64, STREAM, unknown)),
        task("RegisterAlias", (STREAM, TensorId::new(4), TensorId::new(77))),
        task("RegisterTensor", (STREAM, TensorId::new(3), short)),
        task("ExecuteGraph", (STREAM, 9u64, (nothing, nothing, nothing, nothing))),
        task("RegisterTensorRemote", (STREAM, vec![7u8; 40], TensorId::new(4))),
        task("NoSuchTask", 1u8),
        close(18),
        init(b""),
        // 5000 arrays in each other, a million values, and values that are missing.
        vec![0x91; 5000],
        [&[0xddu8, 0, 0x0f, 0x42, 0x40][..], &vec![0xc0; 1_000_000][..]].concat(),
        vec![],
        vec![0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0xc6, 0xff, 0xff, 0xff, 0xff],
    ]
}

/// Messages that may work, but that no honest client sends.
fn odd() -> Vec<Vec<u8>> {
    let x = tensor(1, &[2, 2], READ);
    let reshape = |shape: &[usize]| {
        let view = ShapeOpIr { input: x.clone(), out: tensor(2, shape, NEW) };
        op(OperationIr::BaseFloat(BaseOperationIr::Reshape(view)))
    };
    let (rhs, out) = (tensor(1, &[1 << 40], READ), tensor(2, &[1], NEW));
    let product = MatmulOpIr { lhs: x.clone(), rhs, out };
    let out = tensor(2, &[1; 1000], NEW);
    vec![
        reshape(&[7]),
        reshape(&[0, usize::MAX]),
        op(OperationIr::Float(DType::F32, FloatOperationIr::Matmul(product))),
        op(OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out }))),
        task("ProfileEnd", (1u64, STREAM, 0u8, 0u8)),
    ]
}

fn bad_message(random: &mut Random, honest: &[Vec<u8>], hostile: &[Vec<u8>]) -> Vec<u8> {
    let mut message = honest[random.below(honest.len())].clone();
    match random.below(4) {
        0 => {
            let len = random.below(300);
            random.bytes(len)
        }
        1 => {
            message.truncate(random.below(message.len()));
            message
        }
        2 => {
            for _ in 0..=random.below(4) {
                let place = random.below(message.len());
                message[place] = random.next() as u8;
            }
            message
        }
        _ => hostile[random.below(hostile.len())].clone(),
    }
}

#[test]
fn a_thousand_bad_messages_leave_the_server_serving() {
    let options = ["--no-token", "--device", "cpu", "--max-bytes", "64MiB"];
    let mut server = Program::start(&options, None);
    let other = connect(&server.address);
    let (honest, hostile) = (honest(), [hostile(), odd()].concat());
    let mut random = Random(5);
    for turn in 0..1000 {
        // Some are the first message of a session, the others come after an honest upload.
        let mut client = match turn % 10 {
            0 => Raw::wait(&server.address),
            _ => {
                let mut client = Raw::session(&server.address);
                let data = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
                let upload = task("RegisterTensor", (STREAM, TensorId::new(1), data));
                client.send(upload).expect("it is read");
                client
            }
        };
        if turn % 7 == 0 {
            let _ = client.send_message(Message::Text("{}".into()));
            let _ = client.send_message(Message::Ping(random.bytes(9).into()));
        }
        let _ = client.send(bad_message(&mut random, &honest, &hostile));
        // Either the message was harmless, or the session has failed or was closed. What a client
        // sends before the answer to its first message can be lost.
        let _ = if turn % 10 == 0 { client.receive().map(drop) } else { client.sync() };
        assert!(server.runs(), "the server ended in turn {turn}");
    }
    compute(&other);
    compute(&connect(&server.address));
}

#[test]
fn hostile_messages_fail_their_session() {
    let mut server = Program::start(&["--no-token", "--device", "cpu"], None);
    for (number, message) in hostile().into_iter().enumerate() {
        let mut client = Raw::session(&server.address);
        let data = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
        let upload = task("RegisterTensor", (STREAM, TensorId::new(1), data));
        client.send(upload).expect("it is read");
        let _ = client.send(message);
        let error = client.sync().expect_err("the session has failed");
        // It has not just stopped to answer.
        assert!(!error.contains("temporarily unavailable"), "message {number}: {error}");
        assert!(server.runs(), "the server ended at message {number}");
    }
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let server = Program::start(&["--no-token", "--device", "cpu"], None);
    // Half a request, and no first message.
    let address = server.address.trim_start_matches("ws://");
    let mut silent = std::net::TcpStream::connect(address).expect("it listens");
    std::io::Write::write_all(&mut silent, b"GET /session HTTP/1.1\r\nHost: ").expect("it is read");
    let idle = Raw::open(&server.address).expect("there is room");
    compute(&connect(&server.address));
    // Both are closed after 10 s.
    silent.set_read_timeout(Some(std::time::Duration::from_secs(15))).expect("it can be set");
    let read = std::io::Read::read(&mut silent, &mut [0; 100]);
    assert_eq!(read.expect("it is closed"), 0);
    drop(idle);
}
