//! The anchor: the newest checkpoints outside the database, where a store that was cut short can't take them along. Meant to
//! be shipped elsewhere; a line `CHAIN NUMBER HASH_HEX AT_MS KEY_ID SIGNATURE_HEX` a checkpoint.

use std::fs;
use std::io;
use std::path::Path;

use super::checkpoint::{Checkpoint, PublicKeys};
use super::key::append_line;

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
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text, keys)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn of<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a Checkpoint> {
        self.0.iter().filter(move |line| line.chain == chain)
    }
}

/// Appends a checkpoint and syncs it.
pub(crate) fn append(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    append_line(path, &format!("{}\n", checkpoint.anchor_line()))
}
