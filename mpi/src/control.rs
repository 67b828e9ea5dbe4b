//! Messages between two ranks, outside of the exchanges: that a rank failed, and how far one is.

use burn_wgsl::parallel::ParallelError;
use mpi::Tag;
use mpi::request::StaticScope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};

/// The text of an error.
const FAILED: Tag = 1;
/// A question for the number of exchanges that a rank has come to.
const ASK: Tag = 2;
/// The number.
const ANSWER: Tag = 3;

/// A message from another rank.
#[derive(Debug)]
pub enum Message {
    Failed(ParallelError),
    Ask { rank: usize },
    Answer { rank: usize, exchanges: u64 },
}

/// Sends and receives messages without waiting.
pub struct Control {
    comm: SimpleCommunicator,
}

impl Control {
    /// Returns the messages of a communicator that has no others.
    pub fn new(comm: SimpleCommunicator) -> Self {
        Self { comm }
    }

    /// Tells all other ranks why the run ends.
    pub fn send_failure(&self, error: &ParallelError) {
        let text = encode(error);
        let own = self.comm.rank();
        (0..self.comm.size())
            .filter(|rank| *rank != own)
            .for_each(|rank| self.send(rank, FAILED, text.clone()));
    }

    /// Asks all other ranks how far they are.
    pub fn ask(&self) {
        let own = self.comm.rank();
        (0..self.comm.size())
            .filter(|rank| *rank != own)
            .for_each(|rank| self.send(rank, ASK, vec![0]));
    }

    /// Answers a question.
    pub fn answer(&self, rank: usize, exchanges: u64) {
        self.send(rank as i32, ANSWER, exchanges.to_le_bytes().to_vec());
    }

    /// Starts to send a message. The rank may never receive it.
    fn send(&self, rank: i32, tag: Tag, bytes: Vec<u8>) {
        // MPI may need the bytes until the process ends. Messages are few: they belong to failures.
        let bytes: &'static [u8] = Box::leak(bytes.into_boxed_slice());
        let to = self.comm.process_at_rank(rank);
        let request = to.immediate_send_with_tag(StaticScope, bytes, tag);
        std::mem::forget(request);
    }

    /// Returns the next message, if one has come.
    pub fn receive(&self) -> Option<Message> {
        let (message, status) = self.comm.any_process().immediate_matched_probe()?;
        let (rank, tag) = (status.source_rank() as usize, status.tag());
        let mut bytes = vec![0u8; status.count(u8_type()).max(0) as usize];
        message.matched_receive_into(&mut bytes[..]);
        match tag {
            FAILED => Some(Message::Failed(decode(&bytes, rank))),
            ASK => Some(Message::Ask { rank }),
            ANSWER => {
                let exchanges = u64::from_le_bytes(bytes.try_into().ok()?);
                Some(Message::Answer { rank, exchanges })
            }
            _ => None,
        }
    }
}

fn u8_type() -> mpi::datatype::SystemDatatype {
    use mpi::traits::Equivalence;
    u8::equivalent_datatype()
}

/// Returns an error as its rank, its step, and its text.
fn encode(error: &ParallelError) -> Vec<u8> {
    let (kind, rank, step, text) = match error {
        ParallelError::Failed { rank, step, message } => (0, *rank, *step, message.clone()),
        ParallelError::Panicked { rank, step, message } => (1, *rank, *step, message.clone()),
        ParallelError::DeviceFailed { rank, step, message } => (2, *rank, *step, message.clone()),
        other => (3, 0, 0, other.to_string()),
    };
    let mut bytes = vec![kind];
    bytes.extend((rank as u64).to_le_bytes());
    bytes.extend(step.to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// Returns the error that another rank sent.
fn decode(bytes: &[u8], from: usize) -> ParallelError {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let message = String::from_utf8_lossy(bytes.get(17..).unwrap_or_default()).into_owned();
    let rank = number(1).map_or(from, |rank| rank as usize);
    let step = number(9).unwrap_or_default();
    match bytes.first() {
        Some(0) => ParallelError::Failed { rank, step, message },
        Some(1) => ParallelError::Panicked { rank, step, message },
        Some(2) => ParallelError::DeviceFailed { rank, step, message },
        _ => ParallelError::Reported { rank: from, message },
    }
}
