//! Search for the id of a response that can't be decoded.

use crate::RequestId;

/// Maximum length of a member that is kept while a message is scanned, in bytes: a name or an id as
/// written. A longer one is ignored.
const SCANNED_MEMBER_BYTES_MAX: usize = 256;

/// Scan of a JSON-RPC message for its id. It needs no valid JSON: the message may be nested too
/// deeply, not be UTF-8, or be too long to be kept. Memory is bounded; the message may come in
/// chunks.
#[derive(Debug, Default)]
pub struct EnvelopeScan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Bytes of the current member of the outermost object: its name before the colon, and then its
    /// value. Containers are left out.
    token: Vec<u8>,
    /// Name of the current member with its quotes, once the colon has been read.
    name: Option<Vec<u8>>,
    id: Option<RequestId>,
    has_version: bool,
    has_outcome: bool,
    has_method: bool,
    /// True if the text isn't an object.
    is_other: bool,
}

impl EnvelopeScan {
    /// Scans the next part of the message.
    pub fn push(&mut self, chunk: &[u8]) {
        for byte in chunk {
            self.next(*byte);
        }
    }

    /// Returns the id if the message is a response: an object with an id, and with a result, an
    /// error or the member `jsonrpc`, and without a method. A line of a log that is an object has
    /// none of these.
    pub fn response_id(self) -> Option<RequestId> {
        let is_marked = self.has_outcome || self.has_version;
        let is_response = is_marked && !self.has_method && !self.is_other;
        self.id.filter(|_| is_response)
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' => {
                self.is_other |= self.depth == 0 && byte == b'[';
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => self.name = Some(std::mem::take(&mut self.token)),
            b',' if self.depth == 1 => self.end_member(),
            _ => {
                self.is_other |= self.depth == 0;
                self.in_string = byte == b'"';
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        // One more shows that it is too long.
        if self.depth == 1 && self.token.len() <= SCANNED_MEMBER_BYTES_MAX {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        let value = std::mem::take(&mut self.token);
        match self.name.take().as_deref() {
            Some(b"\"id\"") if value.len() <= SCANNED_MEMBER_BYTES_MAX => {
                self.id = std::str::from_utf8(&value)
                    .ok()
                    .and_then(RequestId::from_json);
            }
            Some(b"\"jsonrpc\"") => self.has_version = true,
            Some(b"\"method\"") => self.has_method = true,
            Some(b"\"result\"" | b"\"error\"") => self.has_outcome = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(message: &[u8]) -> Option<String> {
        let mut whole = EnvelopeScan::default();
        whole.push(message);
        let mut parts = EnvelopeScan::default();
        message.iter().for_each(|byte| parts.push(&[*byte]));
        let id = whole.response_id();
        assert_eq!(id, parts.response_id());
        id.map(|id| id.as_json().to_owned())
    }

    /// Goal: the id of a response is found wherever it stands, and no other message has one.
    /// Method: rows; nested and quoted ids, other kinds of text.
    #[test]
    fn ids_of_responses() {
        for (message, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":1}}"#, Some("7")),
            (
                r#" { "result" : [ {"id":1} ] , "id" : "a\"," } "#,
                Some(r#""a\",""#),
            ),
            (r#"{"error":{"id":1},"id":8}"#, Some("8")),
            (r#"{"id":7,"result":{"a":"#, None),
            (r#"{"id":7,"result":{"a":1},"#, Some("7")),
            (r#"{"id":7,"method":"m","result":1}"#, None),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{}}"#,
                Some("7"),
            ),
            (r#"{"jsonrpc":"2.0","id":7,"error":null}"#, Some("7")),
            (r#"{"jsonrpc":"2.0","id":7}"#, Some("7")),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, None),
            (r#"{"level":"info","id":7,"data":{"jsonrpc":"2.0"}}"#, None),
            (r#"{"id":7}"#, None),
            (r#"{"result":{"id":7}}"#, None),
            (r#"{"id":1.5,"result":1}"#, None),
            (r#"[{"id":7,"result":1}]"#, None),
            (r#"log {"id":7,"result":1}"#, None),
            (r#""id":7,"result":1"#, None),
            ("", None),
        ] {
            assert_eq!(scanned(message.as_bytes()).as_deref(), id, "{message}");
        }
        assert_eq!(
            scanned(b"{\"result\":\"\xff\",\"id\":7}").as_deref(),
            Some("7")
        );
        let deep = format!(
            "{{\"result\":{}{},\"id\":7}}",
            "[".repeat(9_999),
            "]".repeat(9_999)
        );
        assert_eq!(scanned(deep.as_bytes()).as_deref(), Some("7"));
    }

    /// Goal: what is kept is bounded. Method: an id at the limit, and one byte longer.
    #[test]
    fn kept_bytes_are_bounded() {
        let of = |bytes: usize| format!(r#"{{"result":1,"id":"{}"}}"#, "i".repeat(bytes - 2));
        assert!(scanned(of(SCANNED_MEMBER_BYTES_MAX).as_bytes()).is_some());
        assert!(scanned(of(SCANNED_MEMBER_BYTES_MAX + 1).as_bytes()).is_none());
        let mut scan = EnvelopeScan::default();
        scan.push(b"{\"");
        scan.push(&vec![b'x'; 1 << 20]);
        assert!(scan.token.len() <= SCANNED_MEMBER_BYTES_MAX + 1);
    }
}
