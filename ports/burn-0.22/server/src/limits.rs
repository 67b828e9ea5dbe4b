//! What a client can use: the options, and the fixed times and sizes.

use std::time::Duration;

/// What clients can use at most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a message. A tensor is one message, so this is also the largest upload and readback.
    pub message: u64,
    /// Connections. A program opens one for each device that it uses.
    pub clients: usize,
    /// Bytes of the tensors that a connection holds. Views count beside the tensor they view.
    pub bytes: u64,
    /// The time without an op or a readback after which a connection is closed; `None` for never.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 256 << 20,
            clients: 16,
            bytes: 8 << 30,
            idle: Some(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

/// Bytes of the first message, which a client sends before it is authorised.
pub(crate) const FIRST_MESSAGE: u64 = 64 << 10;
/// Connections that have not sent an authorised first message yet.
pub(crate) const PENDING: usize = 32;
/// The time for the HTTP request, and again for the first message.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time between pings. A client answers them, so that a live connection is never silent.
pub(crate) const PING: Duration = Duration::from_secs(20);
/// The time without a byte after which a connection is dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// The bytes that a client must read in a second, on average.
pub(crate) const SLOWEST: u64 = 64 << 10;
/// The time that a failed session answers its client's requests with the error.
pub(crate) const LINGER: Duration = Duration::from_secs(60);
/// The time for which a transfer between two devices waits for its tensor.
pub(crate) const TRANSFER: Duration = Duration::from_secs(30);
/// Tensors of a session that no transfer has taken yet.
pub(crate) const EXPOSED: usize = 64;
/// Op graphs that a session can register.
pub(crate) const GRAPHS: usize = 4096;
/// Bytes of a tensor that can be read back: Burn's client reads messages up to 1 GiB.
pub(crate) const READBACK: u64 = (1 << 30) - (1 << 16);

/// Parses a size such as `64KiB`, `256MiB`, `8GiB` or `1000000`.
///
/// # Errors
///
/// Returns an error if the text is not a size.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("", 1)])
        .ok_or_else(|| {
            format!("{text:?} is not a size; use bytes or KiB, MiB, GiB, such as 256MiB")
        })
}

/// Parses a time such as `90s`, `30m` or `24h`; `0` is no limit.
///
/// # Errors
///
/// Returns an error if the text is not a time.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse(text, &[("s", 1), ("m", 60), ("h", 60 * 60)]) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None if text == "0" => Ok(Duration::ZERO),
        None => Err(format!("{text:?} is not a time; use s, m or h, such as 30m, or 0")),
    }
}

/// Parses a number with the first of the units that the text ends with.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(*name)?, *unit)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(parse_bytes("256MiB"), Ok(256 << 20));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("17"), Ok(17));
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for text in ["", "MiB", "-1", "1.5GiB", "99999999TiB", "16MB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["", "5", "1d", "-1s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
