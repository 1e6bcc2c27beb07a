//! Messages a line each, as stdio has them.

use derive_more::Debug;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::BODY_BYTES_MAX_DEFAULT;

/// Most bytes of one line, its end not counted, by default: the largest JSON-RPC message.
pub const LINE_BYTES_MAX_DEFAULT: usize = BODY_BYTES_MAX_DEFAULT;
/// How much room a read from a stream is given, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// One line of a stream.
// A line may hold patient text: it is never printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, without LF or CRLF. Any bytes: [`decode`](crate::decode) says whether they are a message.
    #[debug("Line({} bytes)", _0.len())]
    Whole(Bytes),
    /// It has more bytes than are kept and was dropped. Said as soon as that is known, once a line.
    #[debug("Line(too long)")]
    TooLong,
}

/// Cuts a stream into lines: [`push`](Self::push) a chunk, then take lines with [`next`](Self::next) until there is
/// none; or [`read`](Self::read) them from a stream. How the stream was cut into chunks makes no difference.
///
/// Empty lines are skipped. Memory is bounded by the longest line and one chunk.
#[derive(Debug)]
#[debug("LineDecoder({} bytes pending, dropping: {dropping})", pending.len())]
pub struct LineDecoder {
    line_bytes_max: usize,
    pending: BytesMut,
    /// So many bytes of `pending` are known to hold no LF.
    searched: usize,
    /// The line that `pending` continues was too long: what is left of it is dropped.
    dropping: bool,
}

impl LineDecoder {
    /// `line_bytes_max` counts a line's bytes without its LF or CRLF, inclusively.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            line_bytes_max,
            pending: BytesMut::new(),
            searched: 0,
            dropping: false,
        }
    }

    /// Takes the next chunk. Take the lines out of it before the next one.
    pub fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The next line that is complete, or known to be too long; `None` when more bytes are needed.
    #[expect(
        clippy::should_implement_trait,
        reason = "a decoder that is pushed to ends no iteration with `None`"
    )]
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.pending.get(self.searched..).unwrap_or_default();
            let Some(end) = memchr(b'\n', unsearched).map(|at| self.searched + at) else {
                return self.unfinished();
            };
            let line = self.pending.split_to(end);
            self.pending.advance(1);
            self.searched = 0;
            if let Some(line) = self.whole(line) {
                return Some(line);
            }
        }
    }

    /// What stands after the last LF when the stream has ended.
    pub fn finish(&mut self) -> Option<Line> {
        if let Some(line) = self.next() {
            return Some(line);
        }
        self.searched = 0;
        let rest = self.pending.split();
        self.whole(rest)
    }

    /// The next line of `reader`; `None` at its end. Dropped while it waits, it loses nothing.
    ///
    /// # Errors
    /// Those of `reader`.
    pub async fn read(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.next() {
                return Ok(Some(line));
            }
            self.pending.reserve(READ_BYTES);
            if reader.read_buf(&mut self.pending).await? == 0 {
                return Ok(self.finish());
            }
        }
    }

    fn unfinished(&mut self) -> Option<Line> {
        self.searched = self.pending.len();
        // One byte more may be the CR of a CRLF.
        let kept = self.pending.len() - usize::from(self.pending.last() == Some(&b'\r'));
        if self.dropping || kept > self.line_bytes_max {
            self.pending.clear();
            self.searched = 0;
            return (!std::mem::replace(&mut self.dropping, true)).then_some(Line::TooLong);
        }
        None
    }

    /// A line at its end; `None` for an empty one, and for the rest of one that was too long.
    fn whole(&mut self, mut line: BytesMut) -> Option<Line> {
        if std::mem::take(&mut self.dropping) {
            return None;
        }
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        match line.len() {
            0 => None,
            bytes if bytes > self.line_bytes_max => Some(Line::TooLong),
            _ => Some(Line::Whole(line.freeze())),
        }
    }
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new(LINE_BYTES_MAX_DEFAULT)
    }
}

/// Writes a JSON text as one line. CR and LF in it, which JSON has only as white space, become spaces.
pub fn encode_line(mut json: Vec<u8>) -> Vec<u8> {
    json.iter_mut()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .for_each(|byte| *byte = b' ');
    json.push(b'\n');
    json
}
