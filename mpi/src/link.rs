//! The thread of a process that calls MPI: it makes the exchanges of its worker, one after the other.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use burn_wgsl::parallel::ParallelError;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use mpi::datatype::PartitionMut;
use mpi::request::{Request, Scope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};

use crate::control::{Control, Message};
use crate::shared::Shared;

/// How long a process whose run failed may go on before MPI ends the job.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long ranks that are asked how far they are have for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often a rank without an exchange looks for messages.
const IDLE: Duration = Duration::from_millis(20);
/// Bytes of a message, at most: MPI counts in 32 bits.
const PIECE: usize = 1 << 30;

/// An exchange of a worker.
#[derive(Debug)]
pub enum Operation {
    Gather(Vec<u8>),
    Broadcast(Option<Vec<u8>>),
    Sum {
        share: f32,
        numbers: Vec<f32>,
    },
    /// The program of the worker has ended.
    End,
}

impl Operation {
    fn kind(&self) -> u64 {
        match self {
            Self::Gather(_) => 1,
            Self::Broadcast(_) => 2,
            Self::Sum { .. } => 3,
            Self::End => END,
        }
    }

    /// Returns the length of its bytes or numbers.
    fn len(&self) -> usize {
        match self {
            Self::Gather(bytes) | Self::Broadcast(Some(bytes)) => bytes.len(),
            Self::Sum { numbers, .. } => numbers.len(),
            Self::Broadcast(None) | Self::End => 0,
        }
    }
}

const END: u64 = 4;

/// An exchange, its number, and what it is for.
#[derive(Debug)]
pub struct Task {
    pub exchange: u64,
    pub what: String,
    pub operation: Operation,
}

/// What a rank says of an exchange before it: all must have come to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    kind: u64,
    /// The checksum of its name.
    what: u64,
    len: u64,
    step: u64,
}

impl Header {
    const WORDS: usize = 4;

    fn to_words(self) -> [u64; Self::WORDS] {
        [self.kind, self.what, self.len, self.step]
    }

    fn from_words(words: &[u64]) -> Self {
        Self { kind: words[0], what: words[1], len: words[2], step: words[3] }
    }

    /// Returns whether both are of the same exchange.
    fn fits(&self, other: &Self) -> bool {
        (self.kind, self.what) == (other.kind, other.what)
    }
}

/// The thread that calls MPI.
pub struct Link {
    pub comm: SimpleCommunicator,
    pub control: Control,
    pub shared: Arc<Shared>,
    pub deadline: Duration,
    pub in_bf16: bool,
    /// The exchanges that this rank has come to.
    pub exchanges: Cell<u64>,
}

impl Link {
    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn world(&self) -> usize {
        self.comm.size() as usize
    }

    /// Makes the exchanges of the worker until its program ends, or the run fails: then it does not return.
    pub fn serve(&self, tasks: &Receiver<Task>) {
        loop {
            match tasks.recv_timeout(IDLE) {
                Ok(task) => {
                    let ends = matches!(task.operation, Operation::End);
                    self.make(task);
                    if ends {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.poll(),
                // All ranks found the same mistake before the first exchange.
                Err(RecvTimeoutError::Disconnected) => return self.poll(),
            }
        }
    }

    /// Makes an exchange.
    fn make(&self, task: Task) {
        let Task { exchange, what, operation } = task;
        self.exchanges.set(self.exchanges.get() + 1);
        let headers = self.compare(&what, &operation);
        let outcome: Box<dyn std::any::Any + Send> = match operation {
            Operation::Gather(bytes) => Box::new(Arc::new(self.gather(&what, &headers, bytes))),
            Operation::Broadcast(bytes) => {
                let len = headers[0].len as usize;
                Box::new(Arc::new(self.broadcast(&what, bytes.unwrap_or_else(|| vec![0; len]))))
            }
            Operation::Sum { share, numbers } if self.in_bf16 => {
                Box::new(Arc::new(self.sum::<u16>(&what, share, numbers)))
            }
            Operation::Sum { share, numbers } => {
                Box::new(Arc::new(self.sum::<f32>(&what, share, numbers)))
            }
            Operation::End => Box::new(()),
        };
        self.shared.finish(exchange, outcome);
    }

    /// Checks that all ranks have come to the same exchange. Returns what they say of it.
    fn compare(&self, what: &str, operation: &Operation) -> Vec<Header> {
        let own = Header {
            kind: operation.kind(),
            what: u64::from(crc32fast::hash(what.as_bytes())),
            len: operation.len() as u64,
            step: self.shared.step(),
        };
        let mut words = vec![0u64; Header::WORDS * self.world()];
        let own_words = own.to_words();
        // A rank that has ended waits for those that go on.
        let limit = (own.kind != END).then_some(self.deadline);
        scope(|scope| {
            let request =
                self.comm.immediate_all_gather_into(scope, &own_words[..], &mut words[..]);
            self.complete(request, what, limit);
        });
        let headers: Vec<Header> = words.chunks(Header::WORDS).map(Header::from_words).collect();
        if headers.iter().all(|header| header.fits(&own)) {
            return headers;
        }
        let ended = headers.iter().position(|header| header.kind == END);
        let texts = self.texts(what);
        let first = headers.iter().position(|header| header.kind != END);
        let error = match (ended, first) {
            (Some(rank), Some(waiting)) => ParallelError::Ended {
                rank,
                steps: headers[rank].step,
                waiting,
                what: texts[waiting].clone(),
                step: headers[waiting].step,
            },
            _ => ParallelError::Disagree { what: "what they exchange".to_owned(), values: texts },
        };
        // All know.
        self.end(error, false)
    }

    /// Returns the names of the exchanges of all ranks, which differ.
    fn texts(&self, what: &str) -> Vec<String> {
        const LEN: usize = 256;
        let mut own = [0u8; LEN];
        let len = what.len().min(LEN);
        own[..len].copy_from_slice(&what.as_bytes()[..len]);
        let mut all = vec![0u8; LEN * self.world()];
        scope(|scope| {
            let request = self.comm.immediate_all_gather_into(scope, &own[..], &mut all[..]);
            self.complete(request, what, Some(self.deadline));
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        all.chunks(LEN).map(text).collect()
    }

    fn gather(&self, what: &str, headers: &[Header], bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let lens: Vec<usize> = headers.iter().map(|header| header.len as usize).collect();
        let total: usize = lens.iter().sum();
        if total > PIECE {
            let (rank, step) = (self.rank(), self.shared.step());
            let message =
                format!("{total} bytes are gathered at once; at most {PIECE} are possible");
            self.end(ParallelError::Failed { rank, step, message }, false);
        }
        let counts: Vec<i32> = lens.iter().map(|len| *len as i32).collect();
        let starts: Vec<i32> = counts
            .iter()
            .scan(0, |start, count| Some(std::mem::replace(start, *start + count)))
            .collect();
        let mut all = vec![0u8; total];
        // MPI refuses to gather nothing.
        if total > 0 {
            let mut parts = PartitionMut::new(&mut all[..], counts, &starts[..]);
            scope(|scope| {
                let request =
                    self.comm.immediate_all_gather_varcount_into(scope, &bytes[..], &mut parts);
                self.complete(request, what, Some(self.deadline));
            });
        }
        let mut rest = &all[..];
        lens.iter()
            .map(|len| {
                let (own, others) = rest.split_at(*len);
                rest = others;
                own.to_vec()
            })
            .collect()
    }

    fn broadcast(&self, what: &str, mut bytes: Vec<u8>) -> Vec<u8> {
        for piece in bytes.chunks_mut(PIECE) {
            scope(|scope| {
                let request = self.comm.process_at_rank(0).immediate_broadcast_into(scope, piece);
                self.complete(request, what, Some(self.deadline));
            });
        }
        bytes
    }

    /// Adds the numbers of all ranks. Each rank adds a part of them, in the order of the ranks, as between threads, and
    /// sends the sums to all: MPI's own sums started without waiting send more bytes, and may add in any order.
    fn sum<W: Wire>(&self, what: &str, share: f32, mut numbers: Vec<f32>) -> Vec<f32> {
        weigh(&mut numbers, share);
        let (len, world) = (numbers.len(), self.world());
        let part = len.div_ceil(world);
        numbers.resize(part * world, 0.0);
        let own = W::encode(numbers);
        let mut parts = vec![W::default(); part * world];
        scope(|scope| {
            let request = self.comm.immediate_all_to_all_into(scope, &own[..], &mut parts[..]);
            self.complete(request, what, Some(self.deadline));
        });
        let mut ranks = parts.chunks(part.max(1)).map(|part| W::decode(part.to_vec()));
        let mut sums = ranks.next().unwrap_or_default();
        for numbers in ranks {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        let sums = W::encode(sums);
        let mut all = vec![W::default(); part * world];
        scope(|scope| {
            let request = self.comm.immediate_all_gather_into(scope, &sums[..], &mut all[..]);
            self.complete(request, what, Some(self.deadline));
        });
        all.truncate(len);
        W::decode(all)
    }

    /// Polls a request until it is complete. If the run fails, does not return: the buffers of the request must stay.
    fn complete<'a, D: ?Sized, S: Scope<'a>>(
        &self,
        mut request: Request<'a, D, S>,
        what: &str,
        limit: Option<Duration>,
    ) {
        self.shared.begin();
        let mut start = Instant::now();
        loop {
            match request.test() {
                Ok(_) => return,
                Err(unfinished) => request = unfinished,
            }
            self.poll();
            let waited = start.elapsed();
            if waited < Duration::from_millis(1) {
                std::thread::yield_now();
            } else {
                std::thread::sleep((waited / 64).min(Duration::from_millis(1)));
            }
            if waited <= limit.unwrap_or(self.deadline) {
                continue;
            }
            let (silent, behind) = self.missing();
            if limit.is_some() {
                self.end(self.overdue([silent, behind].concat(), what), true);
            } else if !silent.is_empty() {
                self.end(self.overdue(silent, what), true);
            }
            // The others go on without this rank.
            start = Instant::now();
        }
    }

    fn overdue(&self, mut missing: Vec<usize>, what: &str) -> ParallelError {
        missing.sort_unstable();
        let missing = match missing.is_empty() {
            // All have come: it is the network.
            true => (0..self.world()).filter(|rank| *rank != self.rank()).collect(),
            false => missing,
        };
        let (waiting, step, deadline) = (self.rank(), self.shared.step(), self.deadline);
        ParallelError::Overdue { waiting, missing, what: what.to_owned(), step, deadline }
    }

    /// Asks the other ranks how far they are. Returns those that do not answer, and those that have not come to the
    /// exchange under way.
    fn missing(&self) -> (Vec<usize>, Vec<usize>) {
        self.control.ask();
        let mut exchanges = vec![None; self.world()];
        let start = Instant::now();
        let own = self.exchanges.get();
        while start.elapsed() < ANSWER && exchanges.iter().flatten().count() + 1 < self.world() {
            match self.control.receive() {
                Some(Message::Answer { rank, exchanges: count }) => {
                    exchanges[rank] = Some(count);
                }
                Some(message) => self.handle(message),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        let others = (0..self.world()).filter(|rank| *rank != self.rank());
        let (silent, alive): (Vec<usize>, Vec<usize>) =
            others.partition(|rank| exchanges[*rank].is_none());
        let behind = |rank: &usize| exchanges[*rank].is_some_and(|count| count < own);
        (silent, alive.into_iter().filter(behind).collect())
    }

    /// Looks for messages and failures.
    fn poll(&self) {
        if let Some(failure) = self.shared.failure() {
            self.end(failure.error, failure.is_own);
        }
        while let Some(message) = self.control.receive() {
            self.handle(message);
        }
    }

    fn handle(&self, message: Message) {
        match message {
            Message::Failed(error) => self.end(error, false),
            Message::Ask { rank } => self.control.answer(rank, self.exchanges.get()),
            // It came too late.
            Message::Answer { .. } => {}
        }
    }

    /// Ends the run. The program gets the error, and has some seconds to end the process; then MPI ends the job.
    fn end(&self, error: ParallelError, tells: bool) -> ! {
        let error = self.shared.fail(error, tells);
        if tells {
            self.control.send_failure(&error);
        }
        let start = Instant::now();
        while start.elapsed() < GRACE {
            if let Some(Message::Ask { rank }) = self.control.receive() {
                self.control.answer(rank, self.exchanges.get());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.comm.abort(1)
    }
}

/// Multiplies numbers by a share. Those of a rank without samples may be NaN.
fn weigh(numbers: &mut [f32], share: f32) {
    match share > 0.0 {
        true => numbers.iter_mut().for_each(|number| *number *= share),
        false => numbers.fill(0.0),
    }
}

/// How a number is sent.
trait Wire: Clone + Copy + Default + Equivalence {
    fn encode(numbers: Vec<f32>) -> Vec<Self>;
    fn decode(sent: Vec<Self>) -> Vec<f32>;
}

impl Wire for f32 {
    fn encode(numbers: Vec<f32>) -> Vec<Self> {
        numbers
    }

    fn decode(sent: Vec<Self>) -> Vec<f32> {
        sent
    }
}

/// The bits of a bf16.
impl Wire for u16 {
    fn encode(numbers: Vec<f32>) -> Vec<Self> {
        let mut rounded = vec![bf16::ZERO; numbers.len()];
        rounded.convert_from_f32_slice(&numbers);
        rounded.into_iter().map(bf16::to_bits).collect()
    }

    fn decode(sent: Vec<Self>) -> Vec<f32> {
        sent.into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect()
    }
}
