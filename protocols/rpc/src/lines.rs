//! Framing of messages as one line each, as on stdio.

use derive_more::Debug;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{BODY_BYTES_MAX_DEFAULT, EnvelopeScan, RequestId};

/// Default maximum length of one line without its line end, in bytes. It equals the default maximum
/// size of a JSON-RPC body.
pub const LINE_BYTES_MAX_DEFAULT: usize = BODY_BYTES_MAX_DEFAULT;
/// Buffer space that is reserved for one read from a stream, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Item of a [`LineDecoder`]: a line, or the report of one that is too long.
// A line may hold confidential data, so `Debug` never prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedLine {
    /// Content of the line, without its LF or CRLF. It isn't checked: [`decode`](crate::decode)
    /// finds out whether it is a message.
    #[debug("Line({} bytes)", _0.len())]
    Whole(Bytes),
    /// A line exceeded the limit and was dropped. Reported once for each such line: as soon as the
    /// limit is exceeded, or at the end of the line if the decoder scans it.
    #[debug("Line(too long)")]
    TooLong,
}

/// Decoder that splits a stream of bytes into lines. Either [`push`](Self::push) a chunk and then
/// call [`next`](Self::next) until it returns `None`, or [`read`](Self::read) lines directly from a
/// stream. Lines may extend over several chunks.
///
/// Empty lines are skipped. Memory is bounded by the longest line and one chunk.
#[derive(Debug)]
#[debug("LineDecoder({} bytes pending, dropping: {dropping})", pending.len())]
pub struct LineDecoder {
    line_bytes_max: usize,
    pending: BytesMut,
    /// Number of bytes of `pending` that are known to contain no LF.
    searched: usize,
    /// Whether `pending` begins with the rest of a line that was too long. The rest is dropped.
    dropping: bool,
    /// Scan of the line that is dropped; `None` if dropped lines aren't scanned.
    scan: Option<EnvelopeScan>,
}

impl LineDecoder {
    /// Creates a decoder. `line_bytes_max` is the maximum length of a line without its LF or CRLF,
    /// in bytes.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            line_bytes_max,
            pending: BytesMut::new(),
            searched: 0,
            dropping: false,
            scan: None,
        }
    }

    /// Creates a decoder that scans dropped lines for the ids of responses.
    pub fn with_scan(line_bytes_max: usize) -> Self {
        Self {
            scan: Some(EnvelopeScan::default()),
            ..Self::new(line_bytes_max)
        }
    }

    /// Returns the id of the response that the latest dropped line held; `None` if it held none, or
    /// isn't scanned.
    pub fn dropped_response(&mut self) -> Option<RequestId> {
        std::mem::take(self.scan.as_mut()?).response_id()
    }

    /// Adds the next chunk. To bound memory, call [`next`](Self::next) until it returns `None`
    /// before another chunk is added.
    pub fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// Returns the next complete line, or the report of a line that is too long. Returns `None` if
    /// more bytes are needed.
    #[expect(
        clippy::should_implement_trait,
        reason = "a decoder that is pushed to ends no iteration with `None`"
    )]
    pub fn next(&mut self) -> Option<DecodedLine> {
        loop {
            let unsearched = self.pending.get(self.searched..).unwrap_or_default();
            let Some(end) = memchr(b'\n', unsearched).map(|at| self.searched + at) else {
                return self.last_line();
            };
            let line = self.pending.split_to(end);
            self.pending.advance(1);
            self.searched = 0;
            if let Some(line) = self.complete_line(line) {
                return Some(line);
            }
        }
    }

    /// Returns the next line once the stream has ended. The text after the last LF counts as a
    /// line. Returns `None` if no line is left.
    pub fn finish(&mut self) -> Option<DecodedLine> {
        if let Some(line) = self.next() {
            return Some(line);
        }
        self.searched = 0;
        let rest = self.pending.split();
        self.complete_line(rest)
    }

    /// Reads the next line from `reader`; `None` at its end. Cancel safe.
    ///
    /// # Errors
    /// Returns the I/O errors of `reader`.
    pub async fn read(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<DecodedLine>> {
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

    fn last_line(&mut self) -> Option<DecodedLine> {
        self.searched = self.pending.len();
        // One more byte is allowed, which may be the CR of a CRLF.
        let kept = self.pending.len() - usize::from(self.pending.last() == Some(&b'\r'));
        if self.dropping || kept > self.line_bytes_max {
            let dropped = self.pending.split();
            self.searched = 0;
            if let Some(scan) = &mut self.scan {
                scan.push(&dropped);
                self.dropping = true;
                return None;
            }
            return (!std::mem::replace(&mut self.dropping, true)).then_some(DecodedLine::TooLong);
        }
        None
    }

    /// Converts the bytes up to an LF to a line. Returns `None` for an empty line, and for the rest
    /// of a line that was too long.
    fn complete_line(&mut self, mut line: BytesMut) -> Option<DecodedLine> {
        if std::mem::take(&mut self.dropping) {
            self.scan.as_mut()?.push(&line);
            return Some(DecodedLine::TooLong);
        }
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        match line.len() {
            0 => None,
            bytes if bytes > self.line_bytes_max => {
                if let Some(scan) = &mut self.scan {
                    scan.push(&line);
                }
                Some(DecodedLine::TooLong)
            }
            _ => Some(DecodedLine::Whole(line.freeze())),
        }
    }
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new(LINE_BYTES_MAX_DEFAULT)
    }
}

/// Encodes JSON text as one line that ends with LF. CR and LF in the text become spaces; in JSON
/// they occur only as white space.
pub fn encode_line(mut json: Vec<u8>) -> Vec<u8> {
    json.iter_mut()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .for_each(|byte| *byte = b' ');
    json.push(b'\n');
    json
}
