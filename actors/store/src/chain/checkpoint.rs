//! Signed checkpoints of a chain (up to this number it has this hash), their key, and the anchor outside the database.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use callboard_message::{DataClass, hex};
use callboard_runtime::BodyMark;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::StoreError;
use crate::files::{folder, private, read_some, sync_entry};
use crate::options::{StoreOptions, Where};

/// SHA-256 of a line and of all before it.
pub(crate) type Hash = [u8; 32];
/// The hash before the first line.
pub(crate) const NO_HASH: Hash = [0; 32];

/// The hash of `line` after one with the hash `before`.
pub(crate) fn chained(before: &Hash, line: &str) -> Hash {
    let mut hash = Sha256::new();
    hash.update(b"callboard-audit-1\n");
    hash.update(before);
    hash.update(line.as_bytes());
    hash.finalize().into()
}

/// Bytes from what [`hex`] writes.
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

/// As it is kept in the store and in the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) chain: String,
    pub(crate) number: u64,
    pub(crate) at_ms: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) key_id: String,
    pub(crate) signature: Vec<u8>,
}

/// Why a checkpoint doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody we know has that key.
    UnknownKey,
    /// The key's owner didn't sign this.
    Signature,
}

impl Checkpoint {
    pub(crate) fn sign(chain: &str, number: u64, hash: &Hash, at_ms: i64, key: &AuditKey) -> Self {
        let signature = key.sign(text(chain, number, hash, at_ms).as_bytes());
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

    pub(crate) fn check(&self, keys: &PublicKeys) -> Result<(), Fault> {
        let key = keys.0.get(&self.key_id).ok_or(Fault::UnknownKey)?;
        let text = text(&self.chain, self.number, &self.hash, self.at_ms);
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(text.as_bytes(), &self.signature)
            .map_err(|_| Fault::Signature)
    }

    /// Its line in the anchor, without the line's end.
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
            hex(hash),
            hex(signature)
        )
    }

    /// A line of the anchor. From its end: a chain's name may hold spaces.
    fn of_anchor_line(line: &str) -> Option<Self> {
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

fn text(chain: &str, number: u64, hash: &[u8], at_ms: i64) -> String {
    format!(
        "callboard-checkpoint-1\n{chain}\n{number}\n{}\n{at_ms}",
        hex(hash)
    )
}

/// Whose signatures count: a line `KEY_ID BASE64` a key.
#[derive(Debug, Clone, Default)]
pub(crate) struct PublicKeys(HashMap<String, Vec<u8>>);

impl PublicKeys {
    /// Lines that are no keys, or whose name isn't the key's, are passed over.
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

/// A public key's name: the first 16 hexadecimal digits of its SHA-256.
fn key_id(public_key: &[u8]) -> String {
    let mut id = hex(&Sha256::digest(public_key));
    id.truncate(16);
    id
}

/// The files beside a store that its audit needs. The two others are named as the key is.
#[derive(Debug, Clone)]
pub(crate) struct AuditFiles {
    /// Two lines of base64: the PKCS#8 document of the signing key, and the 32 bytes that bodies are marked with.
    key: PathBuf,
    /// `audit.pub`: a line `KEY_ID BASE64` for each key there ever was.
    pub(crate) public: PathBuf,
    /// `audit.anchor`: a line a checkpoint; see [`super::anchor`].
    pub(crate) anchor: PathBuf,
}

impl AuditFiles {
    /// `None`: a store in a database, with no key named.
    pub(crate) fn of(options: &StoreOptions) -> Option<Self> {
        let key = match (&options.audit_key, &options.at) {
            (Some(key), _) => key.clone(),
            (None, Where::Sqlite(path)) => path.with_file_name("audit.key"),
            (None, Where::Postgres { .. }) => return None,
        };
        Some(Self {
            public: key.with_extension("pub"),
            anchor: key.with_extension("anchor"),
            key,
        })
    }
}

/// The key. It is in no log, no error and no `Debug`.
pub(crate) struct AuditKey {
    pair: Ed25519KeyPair,
    id: String,
    marks: [u8; 32],
}

impl AuditKey {
    /// The key of a chain that `signed_by` signed last. It is made where there is none and none was needed so far, or where
    /// a new one is wanted.
    pub(crate) fn open(
        files: &AuditFiles,
        signed_by: Option<&str>,
        may_be_new: bool,
    ) -> Result<Self, StoreError> {
        let refused = |why: String| StoreError::Key {
            path: files.key.clone(),
            why,
        };
        let text = read_some(&files.key).map_err(|e| refused(format!("failed to read it: {e}")))?;
        let key = match (text, signed_by) {
            (Some(text), _) => Self::parse(&text)
                .ok_or_else(|| refused("it is no audit key: restore it".to_owned()))?,
            (None, Some(id)) if !may_be_new => {
                return Err(refused(format!(
                    "it is missing, though the chain was signed with {id}: restore it, or set `audit_key_new`"
                )));
            }
            (None, _) => {
                Self::create(&files.key).map_err(|e| refused(format!("failed to make it: {e}")))?
            }
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
        let published = publish(&files.public, key.public());
        published.map_err(|source| StoreError::NotCreated {
            path: files.public.clone(),
            source,
        })?;
        Ok(key)
    }

    /// A new key, kept nowhere.
    #[cfg(test)]
    pub(crate) fn generate() -> io::Result<Self> {
        Ok(Self::generate_text()?.1)
    }

    fn generate_text() -> io::Result<(String, Self)> {
        let random = SystemRandom::new();
        let no_random = |_| io::Error::other("the system gives no random numbers");
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
        Some(Self { pair, id, marks })
    }

    /// The file is there whole or not at all; of two processes that make it at once, one does.
    fn create(path: &Path) -> io::Result<Self> {
        let folder = folder(path);
        fs::create_dir_all(folder)?;
        let (text, key) = Self::generate_text()?;
        let part = folder.join(format!(".{}.part", Uuid::new_v4().simple()));
        let written =
            private(&part, OpenOptions::new().write(true).create_new(true)).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                fs::hard_link(&part, path)
            });
        // The name that it has now, if it has one, is the other.
        let _ = fs::remove_file(&part);
        match written {
            Ok(()) => sync_entry(path).map(|()| key),
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

    /// What stands for a body.
    pub(crate) fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark {
        BodyMark::of(class, body, &self.marks)
    }
}

/// Adds the public key to those that are known, once.
fn publish(path: &Path, key: &[u8]) -> io::Result<()> {
    if PublicKeys::parse(&read_some(path)?.unwrap_or_default()).has(&key_id(key)) {
        return Ok(());
    }
    append_line(path, &PublicKeys::line(key))
}

/// Appends a line and syncs it. A line that a crash tore before it is ended first.
fn append_line(path: &Path, line: &str) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let is_new = !path.exists();
    let mut file = private(
        path,
        OpenOptions::new().read(true).append(true).create(true),
    )?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let torn = if last == *b"\n" { "" } else { "\n" };
    // One write: two processes that share the file don't mix their lines.
    file.write_all(format!("{torn}{line}").as_bytes())?;
    file.sync_data()?;
    if is_new { sync_entry(path) } else { Ok(()) }
}

/// The lines that somebody whose key is known signed. Others prove nothing: anybody could have put them there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Anchor(Vec<Checkpoint>);

impl Anchor {
    pub(crate) fn parse(text: &str, keys: &PublicKeys) -> Self {
        let lines = text.lines().filter_map(Checkpoint::of_anchor_line);
        Self(lines.filter(|line| line.check(keys).is_ok()).collect())
    }

    /// A file that isn't there says nothing.
    pub(crate) fn read(path: &Path, keys: &PublicKeys) -> io::Result<Self> {
        Ok(Self::parse(&read_some(path)?.unwrap_or_default(), keys))
    }

    pub(crate) fn of<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a Checkpoint> {
        self.0.iter().filter(move |line| line.chain == chain)
    }
}

/// Appends a checkpoint and syncs it.
pub(crate) fn append_to_anchor(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    append_line(path, &format!("{}\n", checkpoint.anchor_line()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Goal: a checkpoint holds for exactly what it says, under exactly its key. Method: sign one, change each member, try
    /// another's keys.
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
            assert_eq!(bad.check(&keys), Err(Fault::Signature), "{bad:?}");
        }
        let foreign = Checkpoint::sign("a b", 3, &[7; 32], 99, &other);
        assert_eq!(foreign.check(&keys), Err(Fault::UnknownKey));
        let renamed = PublicKeys::line(other.public()).replace(other.id(), key.id());
        assert!(!PublicKeys::parse(&renamed).has(key.id()));
    }

    /// Goal: the anchor's lines read back, also with spaces in a chain's name, and nothing else does. Method: one there and
    /// back; torn ones.
    #[test]
    fn anchor_lines_read_back() {
        let one = Checkpoint::sign("clinic a", 12, &[1; 32], 5, &AuditKey::generate().unwrap());
        let line = one.anchor_line();
        assert_eq!(Checkpoint::of_anchor_line(&line), Some(one));
        for torn in ["", "x", "a 1", &line[1 + line.len() / 2..]] {
            assert_eq!(Checkpoint::of_anchor_line(torn), None, "{torn}");
        }
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
    }

    fn files(folder: &TempDir) -> AuditFiles {
        AuditFiles::of(&StoreOptions::sqlite(folder.path().join("state/s.sqlite"))).unwrap()
    }

    /// Goal: the key is made once, for its owner only, and known ever after. Method: open it twice; look at the files.
    #[test]
    fn a_key_is_made_once() {
        let folder = TempDir::new().unwrap();
        let files = files(&folder);
        let first = AuditKey::open(&files, None, false).unwrap();
        let again = AuditKey::open(&files, Some(first.id()), false).unwrap();
        assert_eq!((first.id(), first.marks), (again.id(), again.marks));
        assert_eq!(
            fs::read_to_string(&files.public).unwrap(),
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

    /// Goal: a key that is lost, another's or broken is an error that names the file, unless a new one is wanted. Method: a
    /// chain that was signed, and each of the three.
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

    /// Goal: a line that a crash tore spoils no other. Method: append after half a line.
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
