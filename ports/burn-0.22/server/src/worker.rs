//! The thread of a client, which computes what the client asks for, in order.

use std::any::Any;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Instant;

use burn_backend::{Backend, ExecutionError, TensorData};
use burn_ir::{GraphBindings, GraphId, OperationIr, TensorIr, TensorStatus};
use burn_router::{Graph, TensorInterpreter};
use burn_tch::{LibTorch, LibTorchDevice};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Sender;
use tokio_tungstenite::tungstenite::Bytes;

use crate::budget::{Charge, Ledger, bytes_held, bytes_of, viewed_by, without_rest};
use crate::limits::{GRAPHS, LINGER, READBACK};
use crate::wire::{Content, Message, Reply, SessionId, Task, decode};
use crate::{Shared, report};

/// A message, which takes room in the queue until its tasks are done.
pub(crate) struct Frame {
    pub bytes: Bytes,
    pub _room: OwnedSemaphorePermit,
}

/// What the thread of a client needs.
pub(crate) struct Session {
    pub shared: Arc<Shared>,
    pub peer: SocketAddr,
    /// The id that the client has chosen.
    pub id: SessionId,
    pub device: LibTorchDevice,
    /// Set when the connection has ended.
    pub closed: Arc<AtomicBool>,
    pub frames: Receiver<Frame>,
    pub replies: Sender<Bytes>,
    /// One of the clients that the server can have, until the memory is freed.
    pub slot: OwnedSemaphorePermit,
}

enum State {
    Runs(Box<Tensors>),
    /// The client's requests are answered with the reason for a while: a client waits for answers
    /// to requests only, not to ops.
    Failed {
        reason: String,
        until: Instant,
    },
}

impl Session {
    /// Starts the thread. It ends when the other end of `frames` is dropped.
    pub fn start(self) -> Result<(), String> {
        let thread = thread::Builder::new().name("client".to_owned()).spawn(move || self.run());
        thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
    }

    fn run(self) {
        let key = self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        let mut state = State::Runs(Box::new(Tensors {
            interpreter: TensorInterpreter::new(self.device),
            ledger: Ledger::new(self.shared.limits.bytes, self.shared.bytes.clone()),
            graphs: HashMap::new(),
            shared: self.shared.clone(),
            peer: self.peer,
            key,
            closed: self.closed.clone(),
        }));
        let ended = catch(|| self.serve(&mut state));
        let Self { shared, peer, frames, replies, slot, .. } = self;
        if let Err(reason) = ended {
            report(peer, &reason);
        }
        // The client sees the end of its session before its memory is freed.
        drop((frames, replies));
        shared.transfers.remove(key);
        if let State::Runs(tensors) = state {
            tensors.free();
        }
        drop(slot);
    }

    /// Does what the client asks for, until it leaves or breaks the protocol.
    fn serve(&self, state: &mut State) -> Result<(), String> {
        loop {
            let frame = match state {
                State::Runs(_) => self.frames.recv().ok(),
                State::Failed { until, .. } => {
                    let left = until.saturating_duration_since(Instant::now());
                    // Also if messages wait: a client that keeps sending must not stay.
                    (!left.is_zero()).then(|| self.frames.recv_timeout(left).ok()).flatten()
                }
            };
            let Some(frame) = frame else { return Ok(()) };
            let (messages, values) = decode(&frame.bytes)?;
            for message in messages {
                // What the client has sent before it left is of no use.
                if self.closed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let task = match message {
                    Message::Task(task) => task,
                    Message::Close(id) if id == self.id => return Ok(()),
                    Message::Close(_) => return Err("it closes another session".to_owned()),
                    Message::Init(_) => return Err("it begins a second session".to_owned()),
                };
                if let Some(reply) = self.run_task(state, task, values)
                    && self.replies.blocking_send(reply.encode()?).is_err()
                {
                    return Ok(());
                }
            }
        }
    }

    /// Runs a task. If that fails, everything that the client holds is freed.
    fn run_task(&self, state: &mut State, task: Task, values: usize) -> Option<Reply> {
        let request = task.request();
        let result = match state {
            State::Runs(tensors) => catch(|| tensors.run(task, values)),
            State::Failed { reason, .. } => Err(reason.clone()),
        };
        let reason = match result {
            Ok(content) => {
                let (id, _) = request?;
                return Some(Reply { content: content?, id });
            }
            Err(reason) => reason,
        };
        if matches!(state, State::Runs(_)) {
            report(self.peer, &reason);
            let reason = format!("the session has failed: {reason}");
            let failed = State::Failed { reason, until: Instant::now() + LINGER };
            if let State::Runs(tensors) = std::mem::replace(state, failed) {
                tensors.free();
            }
        }
        let (id, failure) = request?;
        Some(Reply { content: failure(ExecutionError::with_context(reason)), id })
    }
}

/// The tensors of a client.
struct Tensors {
    interpreter: TensorInterpreter<LibTorch>,
    ledger: Ledger,
    graphs: HashMap<GraphId, (Graph, Arc<Charge>)>,
    shared: Arc<Shared>,
    peer: SocketAddr,
    /// The number of the session.
    key: u64,
    closed: Arc<AtomicBool>,
}

impl Tensors {
    /// Runs a task of a message with this many values, and returns the answer if it is a request.
    fn run(&mut self, task: Task, values: usize) -> Result<Option<Content>, String> {
        match task {
            Task::Seed(seed) => self.interpreter.seed(seed),
            Task::RegisterOperation(_, op) => self.op(op)?,
            Task::RegisterAndExecuteGraph { graph, ops, bindings, .. } => {
                if self.graphs.len() >= GRAPHS {
                    return Err(format!("the client has registered {GRAPHS} op graphs"));
                }
                // Lists within ops have at most 16 bytes for each value of the message.
                let bytes = ops.len() * size_of::<OperationIr>() + 16 * values;
                let charge = self.ledger.charge(bytes as u64, None)?;
                let ops = Graph::new(ops);
                self.graphs.insert(graph, (ops.clone(), charge));
                self.replay(&ops, bindings)?;
            }
            Task::ExecuteGraph { graph, bindings, .. } => {
                let (ops, _) = self.graphs.get(&graph).ok_or("an op graph is not registered")?;
                let ops = ops.clone();
                self.replay(&ops, bindings)?;
            }
            Task::RegisterTensor(_, id, data) => {
                let bytes = bytes_of(data.shape(), data.dtype());
                self.ledger.add(id, bytes, None)?;
                self.interpreter.register_tensor_data_id(id, data);
            }
            Task::RegisterAlias { new, source, .. } => {
                let charge = self.ledger.get(source).ok_or("an alias of an unknown tensor")?;
                self.ledger.add(new, 0, Some(charge))?;
                self.interpreter.register_alias(new, source);
            }
            Task::RegisterTensorRemote(_) | Task::ExposeTensorRemote(_) => {
                let reason = "tensors cannot move between servers: read the tensor back and create \
                              it on the other device";
                return Err(reason.to_owned());
            }
            Task::ExposeTensorLocal { tensor, transfer, .. } => {
                let charge = self.ledger.get(tensor.id);
                let taken = self.interpreter.get_tensor(&tensor);
                self.consumed(&tensor);
                let key = (self.peer.ip(), transfer);
                self.shared.transfers.expose(key, self.key, taken, charge)?;
            }
            Task::RegisterTensorLocal { transfer, new, .. } => {
                let key = (self.peer.ip(), transfer);
                let tensor = self.shared.transfers.take(key, &self.closed)?;
                self.ledger.add(new, bytes_held(&tensor), None)?;
                self.interpreter.register_tensor_to_device(new, tensor);
            }
            Task::ReadTensor(_, _, tensor) => {
                return Ok(Some(Content::ReadTensor(self.read(tensor))));
            }
            Task::SyncBackend(..) => {
                return Ok(Some(Content::SyncBackend(self.interpreter.sync())));
            }
            Task::DTypeUsage(_, dtype) => {
                return Ok(Some(Content::DTypeUsage(self.interpreter.dtype_usage(dtype))));
            }
            // burn-wgsl has no profiling windows.
            Task::ProfileStart(..) => return Ok(Some(Content::ProfileStart(Ok(None)))),
            Task::ProfileEnd(..) => {
                let error = ExecutionError::with_context("the server has opened no window");
                return Ok(Some(Content::ProfileEnd(Err(error))));
            }
            Task::ProfileAbandon(..) => {}
        }
        Ok(None)
    }

    fn replay(&mut self, graph: &Graph, bindings: GraphBindings) -> Result<(), String> {
        graph.bind(bindings).operations.into_iter().try_for_each(|op| self.op(op))
    }

    /// Runs an op within the client's limit.
    ///
    /// The client declares the shapes of results. They are checked before the op, so that honest
    /// ops beyond the limit do not run, and what the op has returned counts afterwards.
    fn op(&mut self, op: OperationIr) -> Result<(), String> {
        match &op {
            OperationIr::Custom(_) => return Err("the server has no custom ops".to_owned()),
            OperationIr::Distributed(_) => {
                return Err("the server has no collective ops".to_owned());
            }
            // Declares a tensor.
            OperationIr::Init(_) => return Ok(()),
            OperationIr::Drop(tensor) => self.ledger.remove(tensor.id),
            _ => {}
        }
        let mut outputs: Vec<TensorIr> = op.outputs().cloned().collect();
        let declared = outputs.iter().map(|output| bytes_of(&output.shape, output.dtype));
        self.ledger.check(declared.fold(0, u64::saturating_add))?;
        let viewed = viewed_by(&op).and_then(|tensor| self.ledger.get(tensor.id));
        let is_consumed = |tensor: &&TensorIr| tensor.status == TensorStatus::ReadWrite;
        let consumed: Vec<_> = op.inputs().filter(is_consumed).map(|tensor| tensor.id).collect();

        self.interpreter.register_op(op);

        for id in consumed {
            self.ledger.remove(id);
        }
        for output in &mut outputs {
            output.status = TensorStatus::ReadOnly;
            let held = self.interpreter.get_tensor(output);
            // What a view keeps counts already.
            if viewed.is_none()
                && let Some(copy) = without_rest(&held, &self.interpreter.device())
            {
                self.interpreter.register_tensor_to_device(output.id, copy);
            }
            self.ledger.add(output.id, bytes_held(&held), viewed.clone())?;
        }
        Ok(())
    }

    /// Reads a tensor back.
    fn read(&mut self, tensor: TensorIr) -> Result<TensorData, ExecutionError> {
        let last_use = tensor.status;
        let shown = TensorIr { status: TensorStatus::ReadOnly, ..tensor.clone() };
        let bytes = bytes_held(&self.interpreter.get_tensor(&shown));
        let limit = READBACK.min(self.shared.limits.message);
        if bytes > limit {
            if last_use == TensorStatus::ReadWrite {
                // The client does not have it any more.
                drop(self.interpreter.get_tensor(&tensor));
            }
            self.consumed(&tensor);
            let reason = format!(
                "{bytes} bytes do not fit a message of {limit} bytes (--max-message); read parts of \
                 the tensor"
            );
            return Err(ExecutionError::with_context(reason));
        }
        self.consumed(&tensor);
        pollster::block_on(self.interpreter.read_tensor_async(tensor))
    }

    /// No longer counts a tensor if this was its last use.
    fn consumed(&mut self, tensor: &TensorIr) {
        if tensor.status == TensorStatus::ReadWrite {
            self.ledger.remove(tensor.id);
        }
    }

    /// Frees the tensors, after everything that was computed with them.
    fn free(self) {
        let device = self.interpreter.device();
        // The client has left, so errors are dropped.
        let _ = catch(move || {
            let _ = self.interpreter.sync();
            drop(self);
            LibTorch::memory_cleanup(&device);
            Ok(())
        });
    }
}

/// Calls a function and returns its panic as an error.
fn catch<T>(function: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // What a panic leaves half done is dropped.
    catch_unwind(AssertUnwindSafe(function))
        .unwrap_or_else(|panic| Err(panic_text(&*panic).to_owned()))
}

/// Returns the text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

#[cfg(panic = "abort")]
compile_error!(
    "a failed op of one client must not end the server: compile with panic = \"unwind\""
);
