//! Why a request has no answer.

use thiserror::Error;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The request is wrong.
    #[error("{0}")]
    Request(String),
    /// The address does not have this method.
    #[error("this address has another method")]
    Method,
    /// The body of the request took too long.
    #[error("the request did not arrive within {0} seconds")]
    Slow(u64),
    /// The request has too many bytes.
    #[error("the request is larger than {0} bytes")]
    TooLarge(usize),
    /// There is no such address, or no such model.
    #[error("{0}")]
    NotFound(String),
    /// Too many requests wait.
    #[error("{0}: try again later")]
    Busy(String),
    /// The server ends.
    #[error("{0}")]
    Unavailable(String),
    /// The answer took too long.
    #[error("there was no answer within {0} seconds")]
    Timeout(u64),
    /// The device failed, also after it was opened again.
    #[error("the device failed: {0}")]
    Device(String),
    /// The model has no answer.
    #[error("{0}")]
    Model(String),
}
