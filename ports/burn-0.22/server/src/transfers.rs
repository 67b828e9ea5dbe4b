//! Tensors on their way from one device of this server to another, which are two sessions of a
//! client.

use std::collections::HashMap;
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
pub(crate) struct Transfers {
    exposed: Mutex<HashMap<Key, Exposed>>,
    added: Condvar,
}

impl Transfers {
    /// Keeps a tensor until a session takes it or its own ends. It counts for its own until then.
    pub fn expose(
        &self,
        key: Key,
        session: u64,
        tensor: HandleKind<LibTorch>,
        charge: Option<Arc<Charge>>,
    ) -> Result<(), String> {
        let mut exposed = self.lock();
        if exposed.values().filter(|other| other.session == session).count() >= EXPOSED {
            return Err(format!("{EXPOSED} tensors wait for a transfer to another device"));
        }
        let replaced = exposed.insert(key, Exposed { session, tensor, _charge: charge });
        drop(exposed);
        self.added.notify_all();
        // Outside of the lock: freeing a tensor takes time.
        drop(replaced);
        Ok(())
    }

    /// Takes a tensor, which another session may not have exposed yet.
    pub fn take(&self, key: Key, closed: &AtomicBool) -> Result<HandleKind<LibTorch>, String> {
        let end = Instant::now() + TRANSFER;
        let mut exposed = self.lock();
        loop {
            if let Some(found) = exposed.remove(&key) {
                return Ok(found.tensor);
            }
            if closed.load(Ordering::Relaxed) {
                return Err("the client left during a transfer between devices".to_owned());
            }
            if Instant::now() >= end {
                let seconds = TRANSFER.as_secs();
                return Err(format!("no tensor came from the other device within {seconds} s"));
            }
            let waited = self.added.wait_timeout(exposed, POLL);
            exposed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Frees the tensors of a session that were not taken.
    pub fn remove(&self, session: u64) {
        let mut exposed = self.lock();
        let removed: Vec<_> = exposed.extract_if(|_, other| other.session == session).collect();
        drop(exposed);
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Exposed>> {
        self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
