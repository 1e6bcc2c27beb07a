//! API keys: 256 random bits, shown once; only their SHA-256 is kept. (No slow hash: such a key can't be guessed.)

mod file;

use derive_more::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::{Principal, PrincipalKind};
use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::credential::{BearerVerifier, CredentialError};

/// What every key begins with, so that people and scanners for secrets know one when they see it.
pub const KEY_PREFIX: &str = "cbk_";
/// Random bytes of a key.
const KEY_BYTES: usize = 32;
/// Length of a key as written: the prefix, and the bytes in base64url without padding.
const KEY_CHARS: usize = KEY_PREFIX.len() + (KEY_BYTES * 8).div_ceil(6);
/// Most bytes of a key file.
pub const KEY_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Most keys of a file, revoked ones included.
pub const KEYS_IN_FILE_MAX: usize = 1_000;
/// Most bytes of a key's name.
pub const KEY_NAME_BYTES_MAX: usize = 64;
/// Most scopes of a key.
pub const KEY_SCOPES_MAX: usize = 64;
/// Most bytes of one scope.
pub const KEY_SCOPE_BYTES_MAX: usize = 128;

/// What went wrong with a key file, and what to do about it. Nothing of the file's text is repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Look at the path and what the system says.
    #[error("the key file {path} can't be used: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Take the right to write away from everyone else: `chmod 600`.
    #[error("others may write the key file {path}: chmod 600", path = path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// Mend the file, or restore it.
    #[error("the key file {path} is damaged: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// Choose another name, of letters, digits, `-`, `_` and `.`.
    #[error("a key's name has 1 to {KEY_NAME_BYTES_MAX} letters, digits, -, _ and .")]
    Name,
    /// Choose another scope: printable ASCII without space, `"` and `\` (RFC 6749, section 3.3).
    #[error(
        "a key has at most {KEY_SCOPES_MAX} scopes, each of 1 to {KEY_SCOPE_BYTES_MAX} printable characters without spaces, \" and \\"
    )]
    Scope,
    /// Choose another name: names are never used twice, so that old records stay true.
    #[error("there is a key of that name already, perhaps a revoked one")]
    Exists,
    /// See the names that there are.
    #[error("there is no key of that name")]
    Unknown,
    /// Start a new file without the revoked keys.
    #[error("the key file is full ({KEYS_IN_FILE_MAX} keys)")]
    Full,
    /// Try again: the system gave no random numbers.
    #[error("no random numbers")]
    Random,
}

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[debug("KeyEntry({name:?}, revoked: {}, scopes: {scopes:?})", self.is_revoked())]
pub struct KeyEntry {
    /// Names the key, and the principal that it makes.
    pub name: String,
    /// SHA-256 of the whole key.
    sha256: [u8; 32],
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// When it was revoked, in seconds since 1970.
    pub revoked_unix_s: Option<u64>,
    /// What its principal may do.
    pub scopes: Vec<String>,
}

impl KeyEntry {
    /// When it was made.
    pub fn created(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.created_unix_s)
    }

    /// Whether it counts no more.
    pub fn is_revoked(&self) -> bool {
        self.revoked_unix_s.is_some()
    }

    fn principal(&self) -> Principal {
        Principal {
            id: self.name.clone(),
            kind: PrincipalKind::ApiKey,
            scopes: self.scopes.clone(),
            purpose: None,
        }
    }
}

/// The keys of one file, as they were when it was read.
///
/// `add` and `revoke` read the file again under a lock and write it whole in the place of the old one, with mode 0600:
/// two processes lose nothing of each other, and readers see the one or the other. A running server uses a [`KeyRing`].
#[derive(Debug)]
pub struct KeyStore {
    path: PathBuf,
    keys: Vec<KeyEntry>,
}

impl KeyStore {
    /// Reads a file that must be there.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Writable`], [`KeyError::Damaged`].
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let keys = file::read(&path)?;
        Ok(Self { path, keys })
    }

    /// The same, but a file that isn't there has no keys; the first that is added makes it.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Writable`], [`KeyError::Damaged`].
    pub fn load_or_new(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let keys = file::read_or_none(&path)?;
        Ok(Self { path, keys })
    }

    /// The same from the file's text, for one that was read already.
    ///
    /// # Errors
    /// [`KeyError::Damaged`].
    pub fn from_text(path: impl Into<PathBuf>, text: &[u8]) -> Result<Self, KeyError> {
        let path = path.into();
        match file::parse(text) {
            Ok(keys) => Ok(Self { path, keys }),
            Err(why) => Err(KeyError::Damaged { path, why }),
        }
    }

    /// Where the keys are kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, revoked ones included, in the order in which they were added.
    pub fn list(&self) -> &[KeyEntry] {
        &self.keys
    }

    /// Makes a key. It is in the answer and nowhere else: show it once.
    ///
    /// # Errors
    /// See [`KeyError`]; then the file is as it was.
    pub fn add(&mut self, name: &str, scopes: Vec<String>) -> Result<SecretString, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Name);
        }
        if scopes.len() > KEY_SCOPES_MAX || !scopes.iter().all(|scope| is_scope(scope)) {
            return Err(KeyError::Scope);
        }
        let key = new_key()?;
        let entry = KeyEntry {
            name: name.to_owned(),
            sha256: Sha256::digest(key.as_bytes()).into(),
            created_unix_s: now_unix_s(),
            revoked_unix_s: None,
            scopes,
        };
        self.change(|keys| {
            if keys.iter().any(|key| key.name == entry.name) {
                return Err(KeyError::Exists);
            }
            if keys.len() == KEYS_IN_FILE_MAX {
                return Err(KeyError::Full);
            }
            keys.push(entry);
            Ok(())
        })?;
        Ok(SecretString::from(key.as_str()))
    }

    /// Makes a key count no more; it stays in the list. A key that was revoked before stays as it is.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], or those of the file; then it is as it was.
    pub fn revoke(&mut self, name: &str) -> Result<(), KeyError> {
        self.change(|keys| {
            let key = keys
                .iter_mut()
                .find(|key| key.name == name)
                .ok_or(KeyError::Unknown)?;
            key.revoked_unix_s.get_or_insert_with(now_unix_s);
            Ok(())
        })
    }

    /// The principal of a key; `None` for a wrong or revoked one. Takes as long whichever key it is, and however much of
    /// it is right.
    pub fn verify(&self, presented: &[u8]) -> Option<Principal> {
        if presented.len() != KEY_CHARS {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(presented).into();
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.sha256.ct_eq(&hash)) {
                found = Some(key);
            }
        }
        found
            .filter(|key| !key.is_revoked())
            .map(KeyEntry::principal)
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut Vec<KeyEntry>) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let _lock = file::lock(&self.path)?;
        let mut keys = file::read_or_none(&self.path)?;
        change(&mut keys)?;
        file::write(&self.path, &keys)?;
        self.keys = keys;
        Ok(())
    }
}

fn new_key() -> Result<Zeroizing<String>, KeyError> {
    let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
    OsRng
        .try_fill_bytes(bytes.as_mut())
        .map_err(|_| KeyError::Random)?;
    let mut key = Zeroizing::new(String::with_capacity(KEY_CHARS));
    key.push_str(KEY_PREFIX);
    URL_SAFE_NO_PAD.encode_string(bytes.as_ref(), &mut key);
    Ok(key)
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=KEY_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_part)
}

fn is_scope(scope: &str) -> bool {
    let is_part = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    (1..=KEY_SCOPE_BYTES_MAX).contains(&scope.len()) && scope.chars().all(is_part)
}

/// How often a running server looks whether its key file has changed: a revoked key counts no longer than this.
pub const KEY_FILE_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Keys that follow their file: what is added or revoked counts without a restart.
///
/// While the file can't be read, no key counts: an old copy might let a revoked one in.
#[derive(Debug)]
pub struct KeyRing {
    path: PathBuf,
    #[debug(skip)]
    look_every: Duration,
    #[debug(skip)]
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
    pub fn open_and_look_every(
        path: impl Into<PathBuf>,
        look_every: Duration,
    ) -> Result<Self, KeyError> {
        let path = path.into();
        // Before the file is read, so that what changes between is seen the next time.
        let stamp = stamp(&path);
        let keys = Arc::new(KeyStore::load(&path)?);
        let seen = Mutex::new(Seen {
            keys: Some(keys),
            stamp,
            looked: Instant::now(),
        });
        Ok(Self {
            path,
            look_every,
            seen,
        })
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

fn stamp(path: &PathBuf) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&about);
    #[cfg(not(unix))]
    let inode = 0;
    Some(Stamp {
        modified: about.modified().ok(),
        bytes: about.len(),
        inode,
    })
}
