//! A connection: the HTTP request, the first message, then messages and replies until one end
//! leaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use burn_backend::DeviceOps;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as queue, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::deadline::Deadline;
use crate::handshake::Refusal as HttpRefusal;
use crate::limits::{FIRST_MESSAGE, HANDSHAKE, Limits, PING, SILENCE, SLOWEST};
use crate::wire::{Content, Info, Init, Refusal, Reply, VERSION, decode_init};
use crate::worker::{Frame, Session};
use crate::{Shared, report};

type Socket = WebSocketStream<Deadline>;

/// Messages that wait for the client's thread, if they are small.
const QUEUED: u32 = 64;
/// The time in which a client receives that the connection is closed.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. Until the client is authorised, it is closed if it is
/// `replaced` by another.
pub(crate) async fn run(
    shared: Arc<Shared>,
    tcp: TcpStream,
    peer: SocketAddr,
    mut replaced: oneshot::Receiver<()>,
) {
    let admitted = tokio::select! {
        admitted = admit(&shared, tcp) => admitted,
        _ = &mut replaced => Err("there are too many connections without a token".to_owned()),
    };
    drop(replaced);
    let ended = match admitted {
        Ok((socket, init, slot)) => serve(&shared, peer, socket, &init, slot).await,
        Err(reason) => Err(reason),
    };
    if let Err(reason) = ended {
        report(peer, &reason);
    }
}

/// Accepts a connection: its HTTP request, and a first message of the right version, with the token
/// and the number of a device.
async fn admit(
    shared: &Shared,
    tcp: TcpStream,
) -> Result<(Socket, Init, OwnedSemaphorePermit), String> {
    let mut refused = None;
    #[allow(clippy::result_large_err, reason = "tungstenite decides the type")]
    let check = |request: &Request, response: Response| {
        let checked = shared.rules.check(request).and_then(|()| {
            let reason = "the server has as many clients as --max-clients allows";
            let full = HttpRefusal { status: StatusCode::SERVICE_UNAVAILABLE, reason };
            (shared.clients.available_permits() > 0).then_some(()).ok_or(full)
        });
        checked.map(|()| response).map_err(|refusal| {
            refused = Some(refusal.reason);
            refusal.response()
        })
    };
    let accepted =
        accept_hdr_async_with_config(Deadline::new(tcp), check, Some(config(FIRST_MESSAGE)));
    let accepted = timeout(HANDSHAKE, accepted).await.map_err(|_| late("a request"))?;
    let mut socket = accepted
        .map_err(|error| refused.map_or_else(|| error.to_string(), |reason| reason.to_owned()))?;

    let first = timeout(HANDSHAKE, first_message(&mut socket)).await;
    let first = first.map_err(|_| late("a first message"))??;
    match check_init(shared, &first) {
        Ok(init) => {
            let slot = shared.clients.clone().try_acquire_owned();
            Ok((socket, init, slot.map_err(|_| "there are too many clients".to_owned())?))
        }
        Err((refusal, reason)) => {
            let reply = Reply { content: Content::InitRefused(refusal), id: 0 }.encode()?;
            let _ = timeout(HANDSHAKE, socket.send(Message::Binary(reply))).await;
            close(&mut socket).await;
            Err(reason.to_owned())
        }
    }
}

fn late(what: &str) -> String {
    format!("{what} did not come within {} s", HANDSHAKE.as_secs())
}

/// Returns the settings for messages of a size.
fn config(message: u64) -> WebSocketConfig {
    let most = Some(usize::try_from(message).unwrap_or(usize::MAX));
    WebSocketConfig::default().max_message_size(most).max_frame_size(most).write_buffer_size(0)
}

async fn first_message(socket: &mut Socket) -> Result<Bytes, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => return Ok(bytes),
            Some(Ok(Message::Close(_))) | None => {
                return Err("it left before a first message".to_owned());
            }
            // Pings and texts.
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}

/// Checks the first message, in this order: a client without the token does not learn how many
/// devices there are.
fn check_init(shared: &Shared, bytes: &[u8]) -> Result<Init, (Refusal, &'static str)> {
    let init = decode_init(bytes).filter(|init| init.version == VERSION).ok_or((
        Refusal::IncompatibleProtocol { server_version: VERSION },
        "its first message is not of this version of Burn's remote protocol",
    ))?;
    if shared.token.as_ref().is_some_and(|token| !token.accepts(&init.token)) {
        return Err((Refusal::Unauthorized, "it has not sent the token"));
    }
    if shared.devices.get(init.device as usize).is_none() {
        let refusal = Refusal::NoSuchDevice { device_count: shared.devices.len() as u32 };
        return Err((refusal, "it asks for a device that is not offered"));
    }
    Ok(init)
}

/// Serves an authorised client until the connection ends.
async fn serve(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    socket: Socket,
    init: &Init,
    slot: OwnedSemaphorePermit,
) -> Result<(), String> {
    let device = *shared.devices.get(init.device as usize).ok_or("there is no such device")?;
    // A client sends nothing until it has the reply, so no bytes are lost.
    let config = config(shared.limits.message);
    let mut socket =
        WebSocketStream::from_raw_socket(socket.into_inner(), Role::Server, Some(config)).await;
    let info = Info {
        version: VERSION,
        settings: device.defaults(),
        device_count: shared.devices.len() as u32,
        peer_id: None,
    };
    let reply = Reply { content: Content::Init(info), id: 0 }.encode()?;
    socket.send(Message::Binary(reply)).await.map_err(|error| error.to_string())?;

    let (frames, received) = mpsc::channel();
    let (replies, mut answers) = queue::channel(1);
    let closed = Arc::new(AtomicBool::new(false));
    let session = Session {
        shared: shared.clone(),
        peer,
        id: init.session,
        device,
        closed: closed.clone(),
        frames: received,
        replies,
        slot,
    };
    session.start()?;
    let ended = pump(&mut socket, &frames, &mut answers, &shared.limits).await;
    closed.store(true, Ordering::Relaxed);
    // The thread ends when it waits for either.
    drop((frames, answers));
    close(&mut socket).await;
    ended
}

async fn close(socket: &mut Socket) {
    // The other end may have left.
    let _ = timeout(GOODBYE, socket.close(None)).await;
}

/// Moves messages to the client's thread and its replies to the client.
async fn pump(
    socket: &mut Socket,
    frames: &mpsc::Sender<Frame>,
    answers: &mut queue::Receiver<Bytes>,
    limits: &Limits,
) -> Result<(), String> {
    // Room for messages in KiB, of which every message takes a part.
    let room = u32::try_from(limits.message / 1024).unwrap_or(u32::MAX).max(QUEUED);
    let queue = Arc::new(Semaphore::new(room as usize));
    let mut waiting: Option<Bytes> = None;

    let tick = limits.idle.map_or(PING, |idle| idle.clamp(Duration::from_millis(100), PING));
    let mut ticks = interval_at(Instant::now() + tick, tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut active = Instant::now();
    loop {
        let size = waiting.as_ref().map_or(0, |bytes| bytes.len().div_ceil(1024));
        let size = u32::try_from(size).unwrap_or(u32::MAX).clamp(room / QUEUED, room);
        tokio::select! {
            message = socket.next(), if waiting.is_none() => match message {
                None | Some(Ok(Message::Close(_))) => return Ok(()),
                Some(Ok(Message::Binary(bytes))) => {
                    active = Instant::now();
                    waiting = Some(bytes);
                }
                // Pings, pongs and texts.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.to_string()),
            },
            permit = queue.clone().acquire_many_owned(size), if waiting.is_some() => {
                let (Ok(room), Some(bytes)) = (permit, waiting.take()) else { return Ok(()) };
                if frames.send(Frame { bytes, _room: room }).is_err() {
                    // Its thread has ended, after a last answer.
                    if let Ok(answer) = answers.try_recv() {
                        let _ = timeout(GOODBYE, socket.send(Message::Binary(answer))).await;
                    }
                    return Ok(());
                }
                socket.get_mut().restart();
            }
            answer = answers.recv() => {
                let Some(answer) = answer else { return Ok(()) };
                active = Instant::now();
                // A client that reads a byte from time to time must not keep the session open.
                let time = SILENCE + Duration::from_secs(answer.len() as u64 / SLOWEST);
                let sent = timeout(time, socket.send(Message::Binary(answer))).await;
                let sent = sent.map_err(|_| "it reads too slowly".to_owned())?;
                sent.map_err(|error| error.to_string())?;
                socket.get_mut().restart();
            }
            _ = ticks.tick() => {
                let is_busy = queue.available_permits() < room as usize;
                if !is_busy && limits.idle.is_some_and(|idle| active.elapsed() >= idle) {
                    return Err("it has asked for nothing for the time of --idle".to_owned());
                }
                let sent = socket.send(Message::Ping(Bytes::new())).await;
                sent.map_err(|error| error.to_string())?;
            }
        }
    }
}
