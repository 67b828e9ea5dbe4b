//! Tensors on their way from one device of this server to another, which are two sessions of a
//! client.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn_ir::HandleKind;
use burn_tch::LibTorch;

use crate::budget::Charge;
use crate::limits::{EXPOSED, TRANSFER};

/// How often a transfer that waits looks whether its session has ended.
const POLL: Duration = Duration::from_millis(100);

/// Which transfer: clients number theirs from 0, so the address is a part of it.
pub(crate) type Key = (IpAddr, u64);

struct Exposed {
    session: u64,
    tensor: HandleKind<LibTorch>,
    _charge: Option<Arc<Charge>>,
}

#[derive(Default)]
struct State {
    exposed: HashMap<Key, Exposed>,
    /// Transfers that a session waits for.
    awaited: HashSet<Key>,
}

#[derive(Default)]
pub(crate) struct Transfers {
    state: Mutex<State>,
    added: Condvar,
}

/// Two programs at one address use the same numbers. Rather than give one the tensor of the other,
/// which cannot always be told, transfers at the same time fail.
const CONFLICT: &str = "two programs at one address move tensors between devices at the same time";

impl Transfers {
    /// Keeps a tensor until a session takes it or its own ends. It counts for its own until then.
    pub fn expose(
        &self,
        key: Key,
        session: u64,
        tensor: HandleKind<LibTorch>,
        charge: Option<Arc<Charge>>,
    ) -> Result<(), String> {
        let mut state = self.lock();
        let exposed = &mut state.exposed;
        if exposed.values().filter(|other| other.session == session).count() >= EXPOSED {
            return Err(format!("{EXPOSED} tensors wait for a transfer to another device"));
        }
        if exposed.get(&key).is_some_and(|other| other.session != session) {
            return Err(CONFLICT.to_owned());
        }
        let replaced = exposed.insert(key, Exposed { session, tensor, _charge: charge });
        drop(state);
        self.added.notify_all();
        // Outside of the lock: freeing a tensor takes time.
        drop(replaced);
        Ok(())
    }

    /// Takes a tensor, which another session may not have exposed yet.
    pub fn take(&self, key: Key, closed: &AtomicBool) -> Result<HandleKind<LibTorch>, String> {
        let mut state = self.lock();
        if !state.awaited.insert(key) {
            return Err(CONFLICT.to_owned());
        }
        let (mut state, taken) = self.wait(state, key, closed);
        state.awaited.remove(&key);
        taken
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        key: Key,
        closed: &AtomicBool,
    ) -> (MutexGuard<'a, State>, Result<HandleKind<LibTorch>, String>) {
        let end = Instant::now() + TRANSFER;
        loop {
            if let Some(found) = state.exposed.remove(&key) {
                return (state, Ok(found.tensor));
            }
            if closed.load(Ordering::Relaxed) {
                let reason = "the client left during a transfer between devices";
                return (state, Err(reason.to_owned()));
            }
            if Instant::now() >= end {
                let seconds = TRANSFER.as_secs();
                let reason = format!("no tensor came from the other device within {seconds} s");
                return (state, Err(reason));
            }
            let waited = self.added.wait_timeout(state, POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Frees the tensors of a session that were not taken.
    pub fn remove(&self, session: u64) {
        let mut state = self.lock();
        let removed: Vec<_> =
            state.exposed.extract_if(|_, other| other.session == session).collect();
        drop(state);
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
