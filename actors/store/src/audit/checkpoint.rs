//! A signed word about a chain: up to this number it has this hash.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use callboard_message::hex;
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use super::key::AuditKey;

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
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| if let [high, low] = pair { Some(digit(*high)? << 4 | digit(*low)?) } else { None }).collect()
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
        Self { chain, number, at_ms, hash: hash.to_vec(), key_id, signature }
    }

    pub(crate) fn check(&self, keys: &PublicKeys) -> Result<(), Fault> {
        let key = keys.0.get(&self.key_id).ok_or(Fault::UnknownKey)?;
        let text = text(&self.chain, self.number, &self.hash, self.at_ms);
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(text.as_bytes(), &self.signature).map_err(|_| Fault::Signature)
    }

    /// Its line in the anchor, without the line's end.
    pub(crate) fn anchor_line(&self) -> String {
        let Self { chain, number, at_ms, hash, key_id, signature } = self;
        format!("{chain} {number} {} {at_ms} {key_id} {}", hex(hash), hex(signature))
    }

    /// A line of the anchor. From its end: a chain's name may hold spaces.
    pub(crate) fn of_anchor_line(line: &str) -> Option<Self> {
        let mut words = line.rsplitn(6, ' ');
        let signature = from_hex(words.next()?)?;
        let key_id = words.next()?.to_owned();
        let at_ms = words.next()?.parse().ok()?;
        let hash = from_hex(words.next()?)?;
        let number = words.next()?.parse().ok()?;
        let chain = words.next()?.to_owned();
        Some(Self { chain, number, at_ms, hash, key_id, signature })
    }
}

fn text(chain: &str, number: u64, hash: &[u8], at_ms: i64) -> String {
    format!("callboard-checkpoint-1\n{chain}\n{number}\n{}\n{at_ms}", hex(hash))
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

    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn line(key: &[u8]) -> String {
        format!("{} {}\n", key_id(key), STANDARD.encode(key))
    }
}

/// A public key's name: the first 16 hexadecimal digits of its SHA-256.
pub(crate) fn key_id(public_key: &[u8]) -> String {
    let mut id = hex(&Sha256::digest(public_key));
    id.truncate(16);
    id
}

#[cfg(test)]
mod tests {
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
            Checkpoint { chain: "a c".to_owned(), ..good.clone() },
            Checkpoint { number: 4, ..good.clone() },
            Checkpoint { at_ms: 98, ..good.clone() },
            Checkpoint { hash: vec![6; 32], ..good.clone() },
            Checkpoint { signature: vec![0; 64], ..good.clone() },
            Checkpoint { key_id: key.id().to_owned(), ..Checkpoint::sign("a b", 3, &[7; 32], 99, &other) },
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
}
