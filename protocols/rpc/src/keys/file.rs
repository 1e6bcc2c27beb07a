//! Key file in TOML, which is always read and replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use callboard_message::PATIENT_SCOPE_PREFIX;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::expiry;
use super::{
    KEY_FILE_BYTES_MAX, KEYS_IN_FILE_MAX, KeyEntry, KeyError, is_valid_name, is_valid_scope,
};

/// Version of the key file's format. A file with another version is rejected.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    version: u32,
    #[serde(default)]
    key: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey(#[serde(with = "Row")] KeyEntry);

/// Serialised form of a [`KeyEntry`], with the hash of its key.
#[derive(Serialize, Deserialize)]
#[serde(remote = "KeyEntry", deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(with = "hex")]
    sha256: [u8; 32],
    created_unix_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_unix_s: Option<u64>,
    #[serde(
        default,
        rename = "expires",
        with = "expiry::optional",
        skip_serializing_if = "Option::is_none"
    )]
    expires_unix_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patient: Option<String>,
}

pub(crate) fn read_or_none(path: &Path) -> Result<Vec<KeyEntry>, KeyError> {
    match read(path) {
        Err(KeyError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<KeyEntry>, KeyError> {
    let failed = io_error(path);
    let file = File::open(path).map_err(&failed)?;
    let about = file.metadata().map_err(&failed)?;
    if !about.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o022 != 0 {
        return Err(KeyError::Writable {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    file.take(KEY_FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(&failed)?;
    parse(&bytes).map_err(|why| KeyError::Damaged {
        path: path.to_owned(),
        why,
    })
}

/// Parses the text of a key file.
///
/// # Errors
/// Returns a description of the damage, which contains nothing of the text.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<KeyEntry>, String> {
    if bytes.len() > KEY_FILE_BYTES_MAX {
        return Err(format!("more than {KEY_FILE_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    // The parser's own message may quote the file, which may hold a key by mistake.
    let file: KeyFile = toml::from_str(text).map_err(|e| match e.span() {
        Some(span) => format!(
            "line {}",
            1 + bytes
                .iter()
                .take(span.start)
                .filter(|byte| **byte == b'\n')
                .count()
        ),
        None => "not a key file".to_owned(),
    })?;
    if file.version != VERSION {
        return Err(format!(
            "`version` is {}, but only {VERSION} is known here",
            file.version
        ));
    }
    if file.key.len() > KEYS_IN_FILE_MAX {
        return Err(format!("more than {KEYS_IN_FILE_MAX} keys"));
    }
    let mut names = std::collections::HashSet::new();
    for (nth, StoredKey(key)) in file.key.iter().enumerate() {
        if !is_valid_name(&key.name)
            || !key.principal.as_deref().is_none_or(is_valid_name)
            || !key.scopes.iter().all(|scope| is_own_scope(scope))
        {
            return Err(format!("key {} has an invalid name or scope", nth + 1));
        }
        if !key.has_valid_patient() {
            return Err(format!("key {} has an invalid patient", nth + 1));
        }
        if !names.insert(&key.name) {
            return Err(format!(
                "key {} has the same name as an earlier one",
                nth + 1
            ));
        }
    }
    Ok(file.key.into_iter().map(|StoredKey(key)| key).collect())
}

/// Returns whether a scope may stand in `scopes`. The patient has a member of its own.
fn is_own_scope(scope: &str) -> bool {
    is_valid_scope(scope) && !scope.starts_with(PATIENT_SCOPE_PREFIX)
}

/// Locks a key file for a change, until the returned file is dropped. A separate file with the
/// suffix `.lock` is locked, because the key file itself is replaced.
pub(crate) fn lock(path: &Path) -> Result<File, KeyError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let path = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path).map_err(io_error(&path))?;
    file.lock().map_err(io_error(&path))?;
    Ok(file)
}

pub(crate) fn write(path: &Path, keys: &[KeyEntry]) -> Result<(), KeyError> {
    replace(path, keys).map_err(io_error(path))
}

fn replace(path: &Path, keys: &[KeyEntry]) -> io::Result<()> {
    // A symbolic link is kept: its target is replaced.
    let path: PathBuf = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let text = toml::to_string(&KeyFile {
        version: VERSION,
        key: keys.iter().cloned().map(StoredKey).collect(),
    })
    .map_err(io::Error::other)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Created with mode 0600.
    let mut new = NamedTempFile::new_in(parent)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(&path).map_err(|e| e.error)?;
    #[cfg(unix)]
    File::open(parent)?.sync_all()?;
    Ok(())
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> KeyError {
    let path = path.to_owned();
    move |source| KeyError::Io {
        path: path.clone(),
        source,
    }
}

/// Serialisation of 32 bytes as 64 hexadecimal digits.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &[u8; 32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&callboard_message::encode_hex(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let bytes = digits.filter(|digits| digits.len() == 64).map(|digits| {
            let (pairs, _) = digits.as_chunks::<2>();
            std::array::from_fn(|at| (pairs[at][0] << 4 | pairs[at][1]) as u8)
        });
        bytes.ok_or_else(|| D::Error::custom("the hash must have 64 hexadecimal digits"))
    }
}
