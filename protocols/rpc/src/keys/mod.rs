//! API keys of 256 random bits. A key is shown once; only its SHA-256 is stored. (A slow hash is
//! not needed, because such a key can't be guessed.)

mod expiry;
mod file;

use derive_more::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::{PATIENT_SCOPE_PREFIX, Principal, PrincipalKind};
use parking_lot::Mutex;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::credential::{BearerVerifier, CredentialError};
use crate::file_version::FileVersion;
pub(crate) use expiry::now_unix_s;
pub use expiry::{format_expiry, parse_expiry};

/// Prefix of every key, by which people and secret scanners recognise it.
pub const KEY_PREFIX: &str = "cbk_";
/// Number of random bytes in a key.
const KEY_BYTES: usize = 32;
/// Length of a key as text: the prefix, and the random bytes in base64url without padding.
const KEY_CHARS: usize = KEY_PREFIX.len() + (KEY_BYTES * 8).div_ceil(6);
/// Maximum size of a key file, in bytes. A larger one fails with [`KeyError::Damaged`].
pub const KEY_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of keys in a file, revoked ones included. Adding one more fails with
/// [`KeyError::Full`].
pub const KEYS_IN_FILE_MAX: usize = 1_000;
/// Maximum length of a key's name, in bytes. A longer one fails with [`KeyError::Name`].
pub const KEY_NAME_BYTES_MAX: usize = 64;
/// Maximum number of scopes of a key. One more fails with [`KeyError::Scope`].
pub const KEY_SCOPES_MAX: usize = 64;
/// Maximum length of one scope, in bytes. A longer one fails with [`KeyError::Scope`].
pub const KEY_SCOPE_BYTES_MAX: usize = 128;

/// Failure of an operation on a key file. Messages contain nothing of the file's content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file can't be read or written.
    #[error("the key file {path} can't be used: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Other users than the owner can write the file. Remedy: `chmod 600`.
    #[error("other users may write the key file {path}: run chmod 600", path = path.display())]
    Writable {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file's content is invalid.
    #[error("the key file {path} is damaged: {why}", path = path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage and its position.
        why: String,
    },
    /// The name is not 1 to [`KEY_NAME_BYTES_MAX`] letters, digits, `-`, `_` and `.`.
    #[error("a key's name must have 1 to {KEY_NAME_BYTES_MAX} letters, digits, -, _ and .")]
    Name,
    /// There are more than [`KEY_SCOPES_MAX`] scopes, or one is not 1 to [`KEY_SCOPE_BYTES_MAX`]
    /// printable ASCII characters without space, `"` and `\` (RFC 6749, section 3.3).
    #[error(
        "a key may have at most {KEY_SCOPES_MAX} scopes, each of 1 to {KEY_SCOPE_BYTES_MAX} printable characters without spaces, \" and \\"
    )]
    Scope,
    /// The patient is empty, or its scope ([`PATIENT_SCOPE_PREFIX`] and the patient) breaks a rule
    /// of [`Self::Scope`].
    #[error(
        "a key's patient must have 1 to {} printable characters without spaces, \" and \\",
        KEY_SCOPE_BYTES_MAX - PATIENT_SCOPE_PREFIX.len()
    )]
    Patient,
    /// A scope begins with [`PATIENT_SCOPE_PREFIX`], which only the patient of a key does.
    #[error("a key names its patient by `--patient`, not by the scope `{PATIENT_SCOPE_PREFIX}…`")]
    PatientScope,
    /// A key with this name exists, possibly revoked. Names are never reused, so that old audit
    /// records stay unambiguous.
    #[error("there is a key of that name already, perhaps a revoked one: choose another name")]
    Exists,
    /// No key has this name.
    #[error("there is no key of that name: `callboard keys list` lists them")]
    Unknown,
    /// The file has [`KEYS_IN_FILE_MAX`] keys. Remedy: start a new file without the revoked keys.
    #[error(
        "the key file is full ({KEYS_IN_FILE_MAX} keys): begin a new one without the revoked keys"
    )]
    Full,
    /// The expiry is not in the future.
    #[error("the expiry is not in the future: write a later date, such as 2099-12-31")]
    Expiry,
    /// The operating system could not provide random numbers.
    #[error("the system's random number generator is unavailable")]
    Random,
}

/// Stored record of an API key. It contains only a hash of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[debug("KeyEntry({name:?}, revoked: {}, scopes: {scopes:?})", self.is_revoked())]
pub struct KeyEntry {
    /// Name of the key. It is also the id of the key's principal, unless `principal` names another.
    pub name: String,
    /// Id of the principal, if it isn't the name: a key that replaces another one has its principal.
    pub principal: Option<String>,
    /// SHA-256 of the whole key.
    sha256: [u8; 32],
    /// Time of creation, in seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// Time of revocation, in seconds since the Unix epoch; `None` if the key is not revoked.
    pub revoked_unix_s: Option<u64>,
    /// First second at which the key isn't valid any more, since the Unix epoch; `None` if it
    /// doesn't expire.
    pub expires_unix_s: Option<u64>,
    /// Scopes that the key grants. None begins with [`PATIENT_SCOPE_PREFIX`].
    pub scopes: Vec<String>,
    /// Id of the only patient whose data the scopes for one patient open. It becomes a scope of the
    /// principal, with [`PATIENT_SCOPE_PREFIX`]. `None` if the key names no patient.
    pub patient: Option<String>,
}

impl KeyEntry {
    /// Returns the time of creation.
    pub fn created(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.created_unix_s)
    }

    /// Returns whether the key is revoked.
    pub fn is_revoked(&self) -> bool {
        self.revoked_unix_s.is_some()
    }

    /// Returns whether the key has expired.
    pub fn is_expired(&self) -> bool {
        self.expires_unix_s.is_some_and(|at| at <= now_unix_s())
    }

    /// Returns the id of the key's principal.
    pub fn principal_id(&self) -> &str {
        self.principal.as_deref().unwrap_or(&self.name)
    }

    fn principal(&self) -> Principal {
        let own = self.scopes.iter().cloned();
        Principal {
            id: self.principal_id().to_owned(),
            kind: PrincipalKind::ApiKey,
            scopes: own.chain(self.patient_scope()).collect(),
            purpose: None,
        }
    }

    fn patient_scope(&self) -> Option<String> {
        let patient = self.patient.as_ref()?;
        Some(format!("{PATIENT_SCOPE_PREFIX}{patient}"))
    }

    fn has_valid_patient(&self) -> bool {
        let scope = self.patient_scope();
        scope.is_none_or(|scope| is_valid_scope(&scope) && scope.len() > PATIENT_SCOPE_PREFIX.len())
    }
}

/// Limits of a new key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// First second at which the key isn't valid any more, since the Unix epoch (see
    /// [`parse_expiry`]). Default: `None`, it doesn't expire.
    pub expires_unix_s: Option<u64>,
    /// Id of the only patient whose data the key's scopes for one patient open. Default: `None`, the
    /// key names no patient.
    pub patient: Option<String>,
}

/// API keys of one file, as of the last time that this object read or changed it.
///
/// `add` and `revoke` lock the file, read it again, and replace it as a whole with mode 0600. So
/// concurrent processes lose no changes, and readers see either the old or the new file. A server
/// uses a [`ReloadingKeyStore`], which follows changes.
#[derive(Debug)]
pub struct KeyStore {
    path: PathBuf,
    keys: Vec<KeyEntry>,
}

impl KeyStore {
    /// Loads the keys of an existing file.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Writable`], [`KeyError::Damaged`].
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let keys = file::read(&path)?;
        Ok(Self { path, keys })
    }

    /// Loads the keys of a file. If the file doesn't exist, the store is empty, and the first `add`
    /// creates the file.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Writable`], [`KeyError::Damaged`].
    pub fn load_or_new(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let keys = file::read_or_none(&path)?;
        Ok(Self { path, keys })
    }

    /// Parses the content of a key file that the caller has read. `path` is the file for later
    /// changes and error messages.
    ///
    /// # Errors
    /// [`KeyError::Damaged`] if the content is not valid.
    pub fn from_text(path: impl Into<PathBuf>, text: &[u8]) -> Result<Self, KeyError> {
        let path = path.into();
        match file::parse(text) {
            Ok(keys) => Ok(Self { path, keys }),
            Err(why) => Err(KeyError::Damaged { path, why }),
        }
    }

    /// Returns the path of the key file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all keys, revoked ones included, in the order in which they were added.
    pub fn list(&self) -> &[KeyEntry] {
        &self.keys
    }

    /// Creates a key with a name and scopes, stores its hash in the file, and returns it. It can't
    /// be retrieved again.
    ///
    /// # Errors
    /// Returns a [`KeyError`] and leaves the file unchanged.
    pub fn add(&mut self, name: &str, scopes: Vec<String>) -> Result<SecretString, KeyError> {
        self.add_with(name, scopes, KeyOptions::default())
    }

    /// Creates a key like [`Self::add`], with an expiry or for one patient.
    ///
    /// # Errors
    /// Returns a [`KeyError`] and leaves the file unchanged.
    pub fn add_with(
        &mut self,
        name: &str,
        scopes: Vec<String>,
        options: KeyOptions,
    ) -> Result<SecretString, KeyError> {
        if scopes.len() > KEY_SCOPES_MAX || !scopes.iter().all(|scope| is_valid_scope(scope)) {
            return Err(KeyError::Scope);
        }
        if scopes
            .iter()
            .any(|scope| scope.starts_with(PATIENT_SCOPE_PREFIX))
        {
            return Err(KeyError::PatientScope);
        }
        let (key, entry) = new_entry(name, options.expires_unix_s)?;
        let entry = KeyEntry {
            scopes,
            patient: options.patient,
            ..entry
        };
        if !entry.has_valid_patient() {
            return Err(KeyError::Patient);
        }
        self.update_file(|keys| push_entry(keys, entry))?;
        Ok(SecretString::from(key.as_str()))
    }

    /// Creates the key `new_name` for the principal of the valid key `name`, with the same scopes and
    /// patient, so that its holder can replace it. Both are valid until `name` is revoked, or until
    /// `until_unix_s`. The new key expires at `expires_unix_s`, if that is given.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] if there is no valid key `name`, and the errors of [`Self::add`]. The
    /// file is left unchanged.
    pub fn rotate(
        &mut self,
        name: &str,
        new_name: &str,
        until_unix_s: Option<u64>,
        expires_unix_s: Option<u64>,
    ) -> Result<SecretString, KeyError> {
        check_expiry(until_unix_s)?;
        let (key, entry) = new_entry(new_name, expires_unix_s)?;
        self.update_file(|keys| {
            let old = keys
                .iter_mut()
                .find(|key| key.name == name && !key.is_revoked() && !key.is_expired())
                .ok_or(KeyError::Unknown)?;
            let entry = KeyEntry {
                principal: Some(old.principal_id().to_owned()),
                scopes: old.scopes.clone(),
                patient: old.patient.clone(),
                ..entry
            };
            // The earlier of two expiries counts.
            let ends = [old.expires_unix_s, until_unix_s];
            old.expires_unix_s = ends.into_iter().flatten().min();
            push_entry(keys, entry)
        })?;
        Ok(SecretString::from(key.as_str()))
    }

    /// Revokes the key with this name. Its record stays in the file. A key that is revoked already
    /// is unchanged.
    ///
    /// # Errors
    /// [`KeyError::Unknown`], or an error of the file, which is left unchanged.
    pub fn revoke(&mut self, name: &str) -> Result<(), KeyError> {
        self.update_file(|keys| {
            let key = keys
                .iter_mut()
                .find(|key| key.name == name)
                .ok_or(KeyError::Unknown)?;
            key.revoked_unix_s.get_or_insert_with(now_unix_s);
            Ok(())
        })
    }

    /// Returns the principal of the key `presented`; `None` if it is unknown, revoked or expired.
    /// For all keys of the right length, the comparison takes the same time, so that timing
    /// discloses nothing.
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
            .filter(|key| !key.is_revoked() && !key.is_expired())
            .map(KeyEntry::principal)
    }

    fn update_file(
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

/// Creates a key, and its record without scopes.
fn new_entry(
    name: &str,
    expires_unix_s: Option<u64>,
) -> Result<(Zeroizing<String>, KeyEntry), KeyError> {
    if !is_valid_name(name) {
        return Err(KeyError::Name);
    }
    check_expiry(expires_unix_s)?;
    let key = new_key()?;
    let entry = KeyEntry {
        name: name.to_owned(),
        principal: None,
        sha256: Sha256::digest(key.as_bytes()).into(),
        created_unix_s: now_unix_s(),
        revoked_unix_s: None,
        expires_unix_s,
        scopes: Vec::new(),
        patient: None,
    };
    Ok((key, entry))
}

fn check_expiry(expires_unix_s: Option<u64>) -> Result<(), KeyError> {
    match expires_unix_s {
        Some(at) if at <= now_unix_s() => Err(KeyError::Expiry),
        _ => Ok(()),
    }
}

fn push_entry(keys: &mut Vec<KeyEntry>, entry: KeyEntry) -> Result<(), KeyError> {
    // A name that rotated keys still stand for would make another bearer the same principal.
    let is_new = entry.principal.is_none();
    let is_taken =
        |key: &KeyEntry| key.name == entry.name || is_new && key.principal_id() == entry.name;
    if keys.iter().any(is_taken) {
        return Err(KeyError::Exists);
    }
    if keys.len() == KEYS_IN_FILE_MAX {
        return Err(KeyError::Full);
    }
    keys.push(entry);
    Ok(())
}

fn new_key() -> Result<Zeroizing<String>, KeyError> {
    let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
    SysRng
        .try_fill_bytes(bytes.as_mut())
        .map_err(|_| KeyError::Random)?;
    let mut key = Zeroizing::new(String::with_capacity(KEY_CHARS));
    key.push_str(KEY_PREFIX);
    URL_SAFE_NO_PAD.encode_string(bytes.as_ref(), &mut key);
    Ok(key)
}

/// Returns whether a text can be the name of a key: 1 to [`KEY_NAME_BYTES_MAX`] letters, digits, `-`,
/// `_` and `.`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=KEY_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_part)
}

/// Returns whether a text can be a scope: 1 to [`KEY_SCOPE_BYTES_MAX`] printable ASCII characters
/// without space, `"` and `\` (RFC 6749, section 3.3).
pub fn is_valid_scope(scope: &str) -> bool {
    let is_part = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    (1..=KEY_SCOPE_BYTES_MAX).contains(&scope.len()) && scope.chars().all(is_part)
}

/// Default interval at which a [`ReloadingKeyStore`] checks its file for changes. A revoked key is
/// accepted for at most this time.
pub const KEY_FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Key store for servers, which follows changes of its file without a restart.
///
/// While the file can't be read, all keys are rejected, because the keys in memory may have been
/// revoked.
#[derive(Debug)]
pub struct ReloadingKeyStore {
    path: PathBuf,
    #[debug(skip)]
    poll_interval: Duration,
    #[debug(skip)]
    seen: Mutex<LoadedKeys>,
}

struct LoadedKeys {
    keys: Option<Arc<KeyStore>>,
    stamp: Option<FileVersion>,
    looked: Instant,
}

impl ReloadingKeyStore {
    /// Opens an existing key file. It is checked for changes at most once per
    /// [`KEY_FILE_POLL_INTERVAL`], when a key is verified.
    ///
    /// # Errors
    /// Fails like [`KeyStore::load`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        Self::open_with_poll_interval(path, KEY_FILE_POLL_INTERVAL)
    }

    /// Opens an existing key file. It is checked for changes at most once per `look_every`, when a
    /// key is verified; zero means every time.
    ///
    /// # Errors
    /// Fails like [`KeyStore::load`].
    pub fn open_with_poll_interval(
        path: impl Into<PathBuf>,
        look_every: Duration,
    ) -> Result<Self, KeyError> {
        let path = path.into();
        // Taken before the file is read, so that a change in between is detected later.
        let stamp = FileVersion::of(&path);
        let keys = Arc::new(KeyStore::load(&path)?);
        let seen = Mutex::new(LoadedKeys {
            keys: Some(keys),
            stamp,
            looked: Instant::now(),
        });
        Ok(Self {
            path,
            poll_interval: look_every,
            seen,
        })
    }

    /// Returns the keys of the current file, which is read again if it has changed. Returns `None`
    /// while the file can't be read.
    pub fn current(&self) -> Option<Arc<KeyStore>> {
        let mut seen = self.seen.lock();
        if seen.looked.elapsed() >= self.poll_interval {
            let stamp = FileVersion::of(&self.path);
            if stamp.is_none() || stamp != seen.stamp {
                seen.keys = KeyStore::load(&self.path)
                    .inspect_err(
                        |error| callboard_message::log::warn!(%error, "failed to read the key file: no key is accepted until it can be read"),
                    )
                    .ok()
                    .map(Arc::new);
                // A file that couldn't be read is read again at the next check.
                seen.stamp = stamp.filter(|_| seen.keys.is_some());
            }
            seen.looked = Instant::now();
        }
        seen.keys.clone()
    }
}

impl BearerVerifier for ReloadingKeyStore {
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
