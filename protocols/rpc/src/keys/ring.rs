//! The keys that a running server knows.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use callboard_message::Principal;
use parking_lot::Mutex;

use super::{KEY_PREFIX, KeyError, KeyStore};
use crate::credential::{BearerVerifier, CredentialError};

/// How often a running server looks whether its key file has changed: a revoked key counts no longer than this.
pub const KEY_FILE_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Keys that follow their file: what is added or revoked counts without a restart.
///
/// While the file can't be read, no key counts: an old copy might let a revoked one in.
pub struct KeyRing {
    path: PathBuf,
    look_every: Duration,
    seen: Mutex<Seen>,
}

struct Seen {
    keys: Option<Arc<KeyStore>>,
    stamp: Option<Stamp>,
    looked: Instant,
}

/// What changes when the file does.
#[derive(PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that replaces another is another.
    inode: u64,
}

impl KeyRing {
    /// Reads the keys; the file must be there.
    ///
    /// # Errors
    /// Those of [`KeyStore::load`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        Self::open_and_look_every(path, KEY_FILE_LOOKED_AT_EVERY)
    }

    /// The same, looking at the file no more often than this; at each use for zero.
    ///
    /// # Errors
    /// Those of [`KeyStore::load`].
    pub fn open_and_look_every(path: impl Into<PathBuf>, look_every: Duration) -> Result<Self, KeyError> {
        let path = path.into();
        // Before the file is read, so that what changes between is seen the next time.
        let stamp = stamp(&path);
        let keys = Arc::new(KeyStore::load(&path)?);
        let seen = Mutex::new(Seen { keys: Some(keys), stamp, looked: Instant::now() });
        Ok(Self { path, look_every, seen })
    }

    /// The keys as the file has them now; `None` while it can't be read.
    pub fn current(&self) -> Option<Arc<KeyStore>> {
        let mut seen = self.seen.lock();
        if seen.looked.elapsed() >= self.look_every {
            let stamp = stamp(&self.path);
            if stamp.is_none() || stamp != seen.stamp {
                seen.keys = KeyStore::load(&self.path)
                    .inspect_err(
                        |error| callboard_message::log::warn!(%error, "no key counts until the key file can be read"),
                    )
                    .ok()
                    .map(Arc::new);
                // What couldn't be read is read again.
                seen.stamp = stamp.filter(|_| seen.keys.is_some());
            }
            seen.looked = Instant::now();
        }
        seen.keys.clone()
    }
}

impl BearerVerifier for KeyRing {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        if !token.starts_with(KEY_PREFIX.as_bytes()) {
            return None;
        }
        Some(match self.current() {
            Some(keys) => keys.verify(token).ok_or(CredentialError::Wrong),
            None => Err(CredentialError::Unavailable),
        })
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("path", &self.path).finish_non_exhaustive()
    }
}

fn stamp(path: &PathBuf) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&about);
    #[cfg(not(unix))]
    let inode = 0;
    Some(Stamp { modified: about.modified().ok(), bytes: about.len(), inode })
}
