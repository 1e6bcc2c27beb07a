//! Signed checkpoints of an audit chain (the hash at a number), the signing key, and the anchor
//! file outside the database.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use callboard_message::{DataClass, encode_hex};
use callboard_runtime::BodyDigest;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::StoreError;
use crate::files::{open_private, parent_folder, read_if_exists, sync_folder_entry};
use crate::options::{StoreLocation, StoreOptions};

/// Hash of an audit chain: SHA-256 over an entry's text and the hash before it.
pub(crate) type ChainHash = [u8; 32];
/// Hash of an empty audit chain, before its first entry.
pub(crate) const GENESIS_HASH: ChainHash = [0; 32];

/// Returns the chain hash of an entry: SHA-256 over `callboard-audit-1` and a line feed, the hash
/// `before` it, and its text `line`.
pub(crate) fn chain_hash(before: &ChainHash, line: &str) -> ChainHash {
    let mut hash = Sha256::new();
    hash.update(b"callboard-audit-1\n");
    hash.update(before);
    hash.update(line.as_bytes());
    hash.finalize().into()
}

/// Decodes the output of [`encode_hex`]; `None` if the text is invalid.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            if let [high, low] = pair {
                Some(digit(*high)? << 4 | digit(*low)?)
            } else {
                None
            }
        })
        .collect()
}

/// Signed checkpoint of an audit chain, as stored in the database and in the anchor file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) chain: String,
    pub(crate) number: u64,
    pub(crate) at_ms: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) key_id: String,
    pub(crate) signature: Vec<u8>,
}

/// Reason a checkpoint is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointFault {
    /// The signing key is not among the known public keys.
    UnknownKey,
    /// The signature doesn't match the checkpoint's content.
    Signature,
}

impl Checkpoint {
    pub(crate) fn sign(
        chain: &str,
        number: u64,
        hash: &ChainHash,
        at_ms: i64,
        key: &AuditKey,
    ) -> Self {
        let signature = key.sign(signed_text(chain, number, hash, at_ms).as_bytes());
        let (chain, key_id) = (chain.to_owned(), key.id().to_owned());
        Self {
            chain,
            number,
            at_ms,
            hash: hash.to_vec(),
            key_id,
            signature,
        }
    }

    pub(crate) fn check(&self, keys: &PublicKeys) -> Result<(), CheckpointFault> {
        let key = keys
            .0
            .get(&self.key_id)
            .ok_or(CheckpointFault::UnknownKey)?;
        let text = signed_text(&self.chain, self.number, &self.hash, self.at_ms);
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(text.as_bytes(), &self.signature)
            .map_err(|_| CheckpointFault::Signature)
    }

    /// Formats the checkpoint as a line of the anchor file, without a line break.
    pub(crate) fn anchor_line(&self) -> String {
        let Self {
            chain,
            number,
            at_ms,
            hash,
            key_id,
            signature,
        } = self;
        format!(
            "{chain} {number} {} {at_ms} {key_id} {}",
            encode_hex(hash),
            encode_hex(signature)
        )
    }

    /// Parses a line of the anchor file. It is split from the end, because the chain's name may
    /// hold spaces. Returns `None` for an invalid line.
    fn parse_anchor_line(line: &str) -> Option<Self> {
        let mut words = line.rsplitn(6, ' ');
        let signature = from_hex(words.next()?)?;
        let key_id = words.next()?.to_owned();
        let at_ms = words.next()?.parse().ok()?;
        let hash = from_hex(words.next()?)?;
        let number = words.next()?.parse().ok()?;
        let chain = words.next()?.to_owned();
        Some(Self {
            chain,
            number,
            at_ms,
            hash,
            key_id,
            signature,
        })
    }
}

fn signed_text(chain: &str, number: u64, hash: &[u8], at_ms: i64) -> String {
    format!(
        "callboard-checkpoint-1\n{chain}\n{number}\n{}\n{at_ms}",
        encode_hex(hash)
    )
}

/// Known public keys by key id. In a file, each key is a line `KEY_ID BASE64`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PublicKeys(HashMap<String, Vec<u8>>);

impl PublicKeys {
    /// Parses the text of a public key file. Skips lines that aren't a key or whose id doesn't
    /// match the key.
    pub(crate) fn parse(text: &str) -> Self {
        let key = |line: &str| {
            let (id, key) = line.trim().split_once(' ')?;
            let key = STANDARD.decode(key).ok()?;
            (key_id(&key) == id).then(|| (id.to_owned(), key))
        };
        Self(text.lines().filter_map(key).collect())
    }

    fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn line(key: &[u8]) -> String {
        format!("{} {}\n", key_id(key), STANDARD.encode(key))
    }
}

/// Returns the id of a public key: the first 16 hexadecimal digits of its SHA-256.
fn key_id(public_key: &[u8]) -> String {
    let mut id = encode_hex(&Sha256::digest(public_key));
    id.truncate(16);
    id
}

/// Paths of the audit files of a store: private key, public keys and anchor. The latter two are
/// named after the key file.
#[derive(Debug, Clone)]
pub(crate) struct AuditFiles {
    /// Private key file with two lines of base64: the PKCS#8 document of the signing key, and the
    /// 32-byte key for the digests of bodies.
    key: PathBuf,
    /// Public key file (`.pub`): a line `KEY_ID BASE64` for every key ever used.
    pub(crate) public_keys: PathBuf,
    /// Anchor file (`.anchor`): a line for each checkpoint; see [`Anchor`].
    pub(crate) anchor: PathBuf,
}

impl AuditFiles {
    /// Returns the paths of the audit files for the given options; `None` for a Postgres store
    /// without a configured key.
    pub(crate) fn of(options: &StoreOptions) -> Option<Self> {
        let key = match (&options.audit_key, &options.location) {
            (Some(key), _) => key.clone(),
            (None, StoreLocation::Sqlite(path)) => path.with_file_name("audit.key"),
            (None, StoreLocation::Postgres { .. }) => return None,
        };
        Some(Self {
            public_keys: key.with_extension("pub"),
            anchor: key.with_extension("anchor"),
            key,
        })
    }
}

/// Audit key: signs checkpoints and keys the digests of bodies. It never appears in logs, errors or
/// `Debug` output.
pub(crate) struct AuditKey {
    pair: Ed25519KeyPair,
    id: String,
    digest_key: [u8; 32],
}

impl AuditKey {
    /// Opens the audit key of a chain. `signed_by` is the id of the key that signed the chain's
    /// last checkpoint. Creates a key if the file is missing and the chain has no signature. With
    /// `may_be_new`, also a signed chain may get another or a newly created key.
    ///
    /// # Errors
    /// [`StoreError::Key`] if the key is lost, unreadable, or another one than `signed_by`.
    pub(crate) fn open(
        files: &AuditFiles,
        signed_by: Option<&str>,
        may_be_new: bool,
    ) -> Result<Self, StoreError> {
        let refused = |why: String| StoreError::Key {
            path: files.key.clone(),
            why,
        };
        let text =
            read_if_exists(&files.key).map_err(|e| refused(format!("failed to read it: {e}")))?;
        let key = match (text, signed_by) {
            (Some(text), _) => Self::parse(&text).ok_or_else(|| {
                refused(
                    "it is no audit key: restore it, or remove it and set `audit_key_new`"
                        .to_owned(),
                )
            })?,
            (None, Some(id)) if !may_be_new => {
                return Err(refused(format!(
                    "it is missing, though the chain was signed with {id}: restore it, or set `audit_key_new`"
                )));
            }
            (None, _) => Self::create(&files.key)
                .map_err(|e| refused(format!("failed to create it: {e}")))?,
        };
        if let Some(id) = signed_by
            && id != key.id
            && !may_be_new
        {
            return Err(refused(format!(
                "it is {}, but the chain was signed with {id}: restore that one, or set `audit_key_new`",
                key.id
            )));
        }
        let published = publish_key(&files.public_keys, key.public());
        published.map_err(|source| StoreError::NotCreated {
            path: files.public_keys.clone(),
            source,
        })?;
        Ok(key)
    }

    /// Generates a key without storing it.
    #[cfg(test)]
    pub(crate) fn generate() -> io::Result<Self> {
        Ok(Self::generate_text()?.1)
    }

    fn generate_text() -> io::Result<(String, Self)> {
        let random = SystemRandom::new();
        let no_random = |_| io::Error::other("system random number generator unavailable");
        let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(no_random)?;
        let mut marks = [0; 32];
        random.fill(&mut marks).map_err(no_random)?;
        let text = format!(
            "{}\n{}\n",
            STANDARD.encode(document.as_ref()),
            STANDARD.encode(marks)
        );
        let key =
            Self::parse(&text).ok_or_else(|| io::Error::other("a new key doesn't read back"))?;
        Ok((text, key))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let document = STANDARD.decode(lines.next()?).ok()?;
        let marks = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(&document).ok()?;
        let id = key_id(pair.public_key().as_ref());
        Some(Self {
            pair,
            id,
            digest_key: marks,
        })
    }

    /// Creates the key file atomically. If two processes create it at the same time, both use the
    /// key that was written first.
    fn create(path: &Path) -> io::Result<Self> {
        let folder = parent_folder(path);
        fs::create_dir_all(folder)?;
        let (text, key) = Self::generate_text()?;
        let part = folder.join(format!(".{}.part", Uuid::new_v4().simple()));
        let written = open_private(&part, OpenOptions::new().write(true).create_new(true))
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                fs::hard_link(&part, path)
            });
        // Removes the temporary name; the key stays under its final one.
        let _ = fs::remove_file(&part);
        match written {
            Ok(()) => sync_folder_entry(path).map(|()| key),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Self::parse(&fs::read_to_string(path)?)
                    .ok_or_else(|| io::Error::other("another process made no key"))
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn sign(&self, text: &[u8]) -> Vec<u8> {
        self.pair.sign(text).as_ref().to_vec()
    }

    /// Returns the digest that stands for a body in the audit, keyed if [`DataClass::is_keyed`].
    pub(crate) fn mark(&self, class: DataClass, body: &[u8]) -> BodyDigest {
        BodyDigest::compute(class, body, &self.digest_key)
    }
}

/// Adds a public key to the public key file, unless it is there already.
fn publish_key(path: &Path, key: &[u8]) -> io::Result<()> {
    if PublicKeys::parse(&read_if_exists(path)?.unwrap_or_default()).has(&key_id(key)) {
        return Ok(());
    }
    append_line(path, &PublicKeys::line(key))
}

/// Appends a line to a file and syncs it. If a crash left the last line incomplete, that line is
/// terminated first.
fn append_line(path: &Path, line: &str) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let is_new = !path.exists();
    let mut file = open_private(
        path,
        OpenOptions::new().read(true).append(true).create(true),
    )?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let torn = if last == *b"\n" { "" } else { "\n" };
    // A single write, so that lines of two processes aren't mixed.
    file.write_all(format!("{torn}{line}").as_bytes())?;
    file.sync_data()?;
    if is_new {
        sync_folder_entry(path)
    } else {
        Ok(())
    }
}

/// Checkpoints of the anchor file that have a valid signature by a known key. All other lines are
/// ignored, because anyone could have added them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Anchor(Vec<Checkpoint>);

impl Anchor {
    pub(crate) fn parse(text: &str, keys: &PublicKeys) -> Self {
        let lines = text.lines().filter_map(Checkpoint::parse_anchor_line);
        Self(lines.filter(|line| line.check(keys).is_ok()).collect())
    }

    /// Reads the anchor file; a missing file is an empty anchor.
    pub(crate) fn read(path: &Path, keys: &PublicKeys) -> io::Result<Self> {
        Ok(Self::parse(
            &read_if_exists(path)?.unwrap_or_default(),
            keys,
        ))
    }

    pub(crate) fn of<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a Checkpoint> {
        self.0.iter().filter(move |line| line.chain == chain)
    }
}

/// Appends a checkpoint to the anchor file and syncs it.
pub(crate) fn append_to_anchor(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    append_line(path, &format!("{}\n", checkpoint.anchor_line()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Goal: a checkpoint is valid only for its exact content and key. Method: sign one, change
    /// each member, try another's keys.
    #[test]
    fn a_signature_is_of_every_member() {
        let (key, other) = (AuditKey::generate().unwrap(), AuditKey::generate().unwrap());
        let keys = PublicKeys::parse(&PublicKeys::line(key.public()));
        let good = Checkpoint::sign("a b", 3, &[7; 32], 99, &key);
        assert_eq!(good.check(&keys), Ok(()));
        let bad = [
            Checkpoint {
                chain: "a c".to_owned(),
                ..good.clone()
            },
            Checkpoint {
                number: 4,
                ..good.clone()
            },
            Checkpoint {
                at_ms: 98,
                ..good.clone()
            },
            Checkpoint {
                hash: vec![6; 32],
                ..good.clone()
            },
            Checkpoint {
                signature: vec![0; 64],
                ..good.clone()
            },
            Checkpoint {
                key_id: key.id().to_owned(),
                ..Checkpoint::sign("a b", 3, &[7; 32], 99, &other)
            },
        ];
        for bad in bad {
            assert_eq!(bad.check(&keys), Err(CheckpointFault::Signature), "{bad:?}");
        }
        let foreign = Checkpoint::sign("a b", 3, &[7; 32], 99, &other);
        assert_eq!(foreign.check(&keys), Err(CheckpointFault::UnknownKey));
        let renamed = PublicKeys::line(other.public()).replace(other.id(), key.id());
        assert!(!PublicKeys::parse(&renamed).has(key.id()));
    }

    /// Goal: the anchor's lines read back, also with spaces in a chain's name, and nothing else
    /// does. Method: one there and back; torn ones.
    #[test]
    fn anchor_lines_read_back() {
        let one = Checkpoint::sign("clinic a", 12, &[1; 32], 5, &AuditKey::generate().unwrap());
        let line = one.anchor_line();
        assert_eq!(Checkpoint::parse_anchor_line(&line), Some(one));
        for torn in ["", "x", "a 1", &line[1 + line.len() / 2..]] {
            assert_eq!(Checkpoint::parse_anchor_line(torn), None, "{torn}");
        }
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
    }

    fn files(folder: &TempDir) -> AuditFiles {
        AuditFiles::of(&StoreOptions::sqlite(folder.path().join("state/s.sqlite"))).unwrap()
    }

    /// Goal: the key is created once, readable by its owner only, and reused afterwards. Method:
    /// open it twice; look at the files.
    #[test]
    fn a_key_is_made_once() {
        let folder = TempDir::new().unwrap();
        let files = files(&folder);
        let first = AuditKey::open(&files, None, false).unwrap();
        let again = AuditKey::open(&files, Some(first.id()), false).unwrap();
        assert_eq!(
            (first.id(), first.digest_key),
            (again.id(), again.digest_key)
        );
        assert_eq!(
            fs::read_to_string(&files.public_keys).unwrap(),
            PublicKeys::line(first.public())
        );
        assert_eq!(
            fs::read_dir(folder.path().join("state")).unwrap().count(),
            2
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                fs::metadata(&files.key).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        let mark = first.mark(DataClass::Clinical, b"x");
        assert!(
            mark.hash.starts_with("hmac-sha256:") && mark == again.mark(DataClass::Clinical, b"x")
        );
        assert!(
            first
                .mark(DataClass::Internal, b"x")
                .hash
                .starts_with("sha256:")
        );
    }

    /// Goal: a key that is lost, another's or broken is an error that names the file, unless a new
    /// one is wanted. Method: a chain that was signed, and each of the three.
    #[test]
    fn a_lost_key_is_an_error() {
        let folder = TempDir::new().unwrap();
        let files = files(&folder);
        let refused = |signed_by| {
            AuditKey::open(&files, Some(signed_by), false)
                .err()
                .unwrap()
                .to_string()
        };
        assert!(refused("0011").contains("missing"));
        let new = AuditKey::open(&files, Some("0011"), true).unwrap();
        let why = refused("0011");
        assert!(
            why.contains("audit.key") && why.contains("0011") && why.contains(new.id()),
            "{why}"
        );
        AuditKey::open(&files, Some("0011"), true).unwrap();
        fs::write(&files.key, "nonsense\n").unwrap();
        assert!(refused(new.id()).contains("no audit key"));
    }

    /// Goal: a line torn by a crash doesn't spoil the next. Method: append after half a line.
    #[test]
    fn a_torn_line_is_ended() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("a");
        append_line(&file, "one\n").unwrap();
        fs::write(&file, "one\ntw").unwrap();
        append_line(&file, "three\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntw\nthree\n");
    }
}
