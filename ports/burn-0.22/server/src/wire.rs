//! The messages of version 2 of the protocol of Burn's remote backend, as its client 0.22.1 encodes
//! them: MessagePack with structs as arrays, so that the order of fields matters.
//!
//! A client sends arrays of [`Message`], the first of which is a single `Init`. The server answers
//! requests with a [`Reply`] each.

use burn_backend::{DType, DTypeUsageSet, DeviceSettings, ExecutionError, StreamId, TensorData};
use burn_ir::{GraphBindings, GraphId, OperationIr, TensorId, TensorIr};
use rmp::Marker;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio_tungstenite::tungstenite::Bytes;

/// The version of the protocol.
pub(crate) const VERSION: u16 = 2;

/// Values of a message: array and map headers, strings, numbers. A batch of a client has four
/// tasks, of which a fused graph is the largest, with about 50 values an op.
const MOST_VALUES: usize = 200_000;
/// Bytes of a message without the elements of tensors.
const MOST_METADATA: usize = 4 << 20;
/// Arrays and maps in each other. Clients use about 16.
const DEEPEST: usize = 48;
/// Values of the first message: it has 9.
const FIRST_VALUES: usize = 32;

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId {
    id: u64,
}

#[derive(Deserialize)]
pub(crate) struct Init {
    pub version: u16,
    pub session: SessionId,
    pub device: u32,
    #[serde(with = "serde_bytes")]
    pub token: Vec<u8>,
}

/// The first message. It has a type of its own, so that nothing else is decoded before a client is
/// authorised.
#[derive(Deserialize)]
enum First {
    Init(Init),
}

#[allow(clippy::large_enum_variant, reason = "most messages are tasks")]
#[allow(dead_code, reason = "a second `Init` is refused, whatever it says")]
#[derive(Deserialize)]
pub(crate) enum Message {
    Task(Task),
    Init(IgnoredAny),
    Close(SessionId),
}

/// What to do. The first number of a request is its id.
#[allow(clippy::large_enum_variant, reason = "most tasks are ops")]
#[allow(dead_code, reason = "fields that are not read have a place in the encoding")]
#[derive(Deserialize)]
pub(crate) enum Task {
    Seed(u64),
    RegisterOperation(StreamId, OperationIr),
    RegisterAndExecuteGraph {
        stream: StreamId,
        graph: GraphId,
        ops: Vec<OperationIr>,
        bindings: GraphBindings,
    },
    ExecuteGraph {
        stream: StreamId,
        graph: GraphId,
        bindings: GraphBindings,
    },
    RegisterTensor(StreamId, TensorId, TensorData),
    RegisterAlias {
        stream: StreamId,
        new: TensorId,
        source: TensorId,
    },
    RegisterTensorRemote(IgnoredAny),
    ExposeTensorRemote(IgnoredAny),
    ExposeTensorLocal {
        stream: StreamId,
        tensor: TensorIr,
        transfer: u64,
    },
    RegisterTensorLocal {
        stream: StreamId,
        transfer: u64,
        new: TensorId,
    },
    ReadTensor(u64, StreamId, TensorIr),
    SyncBackend(u64, StreamId),
    DTypeUsage(u64, DType),
    ProfileStart(u64, StreamId),
    ProfileEnd(u64, StreamId, IgnoredAny, IgnoredAny),
    ProfileAbandon(IgnoredAny, IgnoredAny),
}

/// The answer to a request that cannot be computed.
pub(crate) type Failure = fn(ExecutionError) -> Content;

impl Task {
    /// Returns the id of a request, and the answer if it fails; `None` if no answer is expected.
    pub fn request(&self) -> Option<(u64, Failure)> {
        let failure: Failure = match self {
            Self::ReadTensor(..) => |error| Content::ReadTensor(Err(error)),
            Self::SyncBackend(..) => |error| Content::SyncBackend(Err(error)),
            Self::DTypeUsage(..) => |_| Content::DTypeUsage(DTypeUsageSet::empty()),
            Self::ProfileStart(..) => |error| Content::ProfileStart(Err(error)),
            Self::ProfileEnd(..) => |error| Content::ProfileEnd(Err(error)),
            _ => return None,
        };
        match self {
            Self::ReadTensor(id, ..)
            | Self::SyncBackend(id, ..)
            | Self::DTypeUsage(id, ..)
            | Self::ProfileStart(id, ..)
            | Self::ProfileEnd(id, ..) => Some((*id, failure)),
            _ => None,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct Reply {
    pub content: Content,
    pub id: u64,
}

#[allow(clippy::large_enum_variant, reason = "replies are not stored")]
#[derive(Serialize)]
pub(crate) enum Content {
    Init(Info),
    ReadTensor(Result<TensorData, ExecutionError>),
    SyncBackend(Result<(), ExecutionError>),
    DTypeUsage(DTypeUsageSet),
    /// The window's token. burn-wgsl opens none.
    ProfileStart(Result<Option<()>, ExecutionError>),
    ProfileEnd(Result<Option<()>, ExecutionError>),
    InitRefused(Refusal),
}

#[derive(Serialize)]
pub(crate) struct Info {
    pub version: u16,
    pub settings: DeviceSettings,
    pub device_count: u32,
    /// The server's identity, which websockets do not have.
    pub peer_id: Option<()>,
}

#[derive(Serialize)]
pub(crate) enum Refusal {
    Unauthorized,
    NoSuchDevice { device_count: u32 },
    IncompatibleProtocol { server_version: u16 },
}

impl Reply {
    pub fn encode(&self) -> Result<Bytes, String> {
        let bytes = rmp_serde::to_vec(self);
        bytes.map(Bytes::from).map_err(|error| format!("a reply cannot be encoded: {error}"))
    }
}

/// Decodes the first message; `None` if it is something else.
pub(crate) fn decode_init(bytes: &[u8]) -> Option<Init> {
    count_values(bytes, FIRST_VALUES).ok()?;
    let mut first: Vec<First> = rmp_serde::from_slice(bytes).ok()?;
    match (first.pop(), first.is_empty()) {
        (Some(First::Init(init)), true) => Some(init),
        _ => None,
    }
}

/// Decodes a message. Returns its values too, which bound the memory that it takes.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Vec<Message>, usize), String> {
    let values = count_values(bytes, MOST_VALUES)?;
    let messages = rmp_serde::from_slice(bytes);
    Ok((messages.map_err(|error| format!("a message cannot be decoded: {error}"))?, values))
}

/// Returns how many values MessagePack has, without decoding it.
///
/// # Errors
///
/// Returns an error if the bytes are not exactly one value with all its parts, have more than
/// `most` values, are nested too deep, or have too many bytes outside of binary data.
fn count_values(bytes: &[u8], most: usize) -> Result<usize, &'static str> {
    const SHORT: &str = "a message ends too early";
    let (mut rest, mut binary, mut values) = (bytes, 0, 0);
    // The values to come at each level.
    let mut levels = vec![1];
    while let Some(left) = levels.last_mut() {
        if *left == 0 {
            levels.pop();
            continue;
        }
        *left -= 1;
        values += 1;
        if values > most {
            return Err("a message has too many values");
        }
        let (first, tail) = rest.split_first().ok_or(SHORT)?;
        rest = tail;
        let mut length = |bytes: usize| -> Result<usize, &'static str> {
            let (length, tail) = rest.split_at_checked(bytes).ok_or(SHORT)?;
            rest = tail;
            Ok(length.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)))
        };
        let marker = Marker::from_u8(*first);
        let (children, skipped) = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
            Marker::Null | Marker::True | Marker::False => (0, 0),
            Marker::U8 | Marker::I8 => (0, 1),
            Marker::U16 | Marker::I16 => (0, 2),
            Marker::U32 | Marker::I32 | Marker::F32 => (0, 4),
            Marker::U64 | Marker::I64 | Marker::F64 => (0, 8),
            Marker::FixStr(bytes) => (0, usize::from(bytes)),
            Marker::Str8 | Marker::Bin8 => (0, length(1)?),
            Marker::Str16 | Marker::Bin16 => (0, length(2)?),
            Marker::Str32 | Marker::Bin32 => (0, length(4)?),
            Marker::FixArray(len) => (usize::from(len), 0),
            Marker::Array16 => (length(2)?, 0),
            Marker::Array32 => (length(4)?, 0),
            Marker::FixMap(len) => (2 * usize::from(len), 0),
            Marker::Map16 => (2 * length(2)?, 0),
            Marker::Map32 => (length(4)?.saturating_mul(2), 0),
            _ => return Err("a message has a value of a type that no client uses"),
        };
        if matches!(marker, Marker::Bin8 | Marker::Bin16 | Marker::Bin32) {
            binary += skipped;
        }
        rest = rest.get(skipped..).ok_or(SHORT)?;
        if children > rest.len() {
            return Err(SHORT);
        }
        if children > 0 {
            levels.push(children);
        }
        if levels.len() > DEEPEST {
            return Err("a message is nested too deep");
        }
    }
    if !rest.is_empty() {
        return Err("a message has bytes after its end");
    }
    match bytes.len() - binary <= MOST_METADATA {
        true => Ok(values),
        false => Err("a message has too many bytes beside tensors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_without_decoding() {
        let value =
            (1u8, "text", [1.5f32, -2.0], Some(u64::MAX), serde_bytes::Bytes::new(&[7; 300]));
        let bytes = rmp_serde::to_vec(&value).expect("it can be encoded");
        assert_eq!(count_values(&bytes, 8), Ok(8));
        assert!(count_values(&bytes, 7).is_err());
        for end in 0..bytes.len() {
            assert!(count_values(&bytes[..end], 100).is_err(), "{end}");
        }
        assert!(count_values(&[&bytes[..], &[0]].concat(), 100).is_err());
    }

    #[test]
    fn declared_sizes_are_not_believed() {
        for bytes in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff, 0][..], // an array of 2^32 - 1 values
            &[0xdf, 0xff, 0xff, 0xff, 0xff, 0],     // a map
            &[0xc6, 0xff, 0xff, 0xff, 0xff, 0],     // binary data
            &[0xdb, 0x7f, 0xff, 0xff, 0xff, b'a'],  // a text
            &[0xc7, 1, 0, 0],                       // an extension
            &[0xc1],                                // no type
        ] {
            assert!(count_values(bytes, MOST_VALUES).is_err(), "{bytes:?}");
        }
        assert!(count_values(&[0x91; 100], MOST_VALUES).is_err());
        assert!(count_values(&vec![0x91; 1 << 20], MOST_VALUES).is_err());
    }

    #[test]
    fn metadata_is_limited_but_not_data() {
        let text = rmp_serde::to_vec("a".repeat(5 << 20).as_str()).expect("it can be encoded");
        assert!(count_values(&text, 10).is_err());
        let data = rmp_serde::to_vec(serde_bytes::Bytes::new(&vec![0; 5 << 20]));
        assert_eq!(count_values(&data.expect("it can be encoded"), 10), Ok(1));
    }

    #[test]
    fn the_refusal_of_another_version_keeps_its_encoding() {
        let refusal = Refusal::IncompatibleProtocol { server_version: VERSION };
        let reply = Reply { content: Content::InitRefused(refusal), id: 0 };
        // The content is a map of one variant, whose fields are an array.
        let expected =
            [&b"\x92\x81\xabInitRefused\x81\xb4IncompatibleProtocol"[..], &[0x91, 2, 0]].concat();
        assert_eq!(reply.encode().expect("it can be encoded"), expected);
    }
}
