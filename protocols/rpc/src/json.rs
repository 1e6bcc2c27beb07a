//! One strict, iterative pass over a JSON text before anything else reads it.
//!
//! serde_json skips what it keeps raw: a lone surrogate, `1e400` or a second `"dose"` in a payload would reach the
//! handler, which may read it otherwise than the guard did. Here every byte is held to RFC 8259 and the limits.

use std::borrow::Cow;

use callboard_message::json::plain;

/// Checks that `body` is one JSON text within `limits` and has no object with the same key twice.
///
/// Takes one pass and memory for the keys of the objects that are open. A byte order mark is refused.
pub fn check<'a>(body: &'a [u8], limits: &Limits) -> Result<&'a str, JsonError> {
    members(body, limits, &mut |_, _| {})
}

/// The same; where the text is an object, `member` is given the name and the text of each of its members on the way.
pub(crate) fn members<'a>(
    body: &'a [u8],
    limits: &Limits,
    member: &mut dyn FnMut(&str, &'a str),
) -> Result<&'a str, JsonError> {
    if body.len() > limits.body_bytes_max {
        return Err(JsonError::BytesOver {
            max: limits.body_bytes_max,
        });
    }
    let text = std::str::from_utf8(body).map_err(|e| JsonError::Encoding {
        at: e.valid_up_to(),
    })?;
    let (open, keys) = (Vec::with_capacity(OPEN_ROOM), Vec::with_capacity(KEYS_ROOM));
    Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        limits,
        open,
        keys,
        member,
        member_begins: 0,
    }
    .document()?;
    Ok(text)
}

/// Room for the containers and keys of an ordinary message, so that it makes the two vectors grow no more.
const OPEN_ROOM: usize = 8;
const KEYS_ROOM: usize = 16;

#[derive(Clone, Copy)]
enum Open {
    Array,
    /// Its keys so far are `keys[first_key..]`.
    Object {
        first_key: usize,
    },
}

struct Scanner<'a, 's> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    limits: &'s Limits,
    open: Vec<Open>,
    keys: Vec<Cow<'a, str>>,
    /// Gets the members of the outermost object.
    member: &'s mut dyn FnMut(&str, &'a str),
    /// Where the value of the last of them begins.
    member_begins: usize,
}

impl<'a> Scanner<'a, '_> {
    fn document(mut self) -> Result<(), JsonError> {
        loop {
            if self.value_begins()? {
                continue;
            }
            // A value is complete: close what it closes, until another value must follow or the text ends.
            loop {
                if self.open.len() == 1
                    && let Some(key) = self.keys.last()
                {
                    (self.member)(
                        key,
                        self.text
                            .get(self.member_begins..self.at)
                            .unwrap_or_default(),
                    );
                }
                self.skip_space();
                match self.open.last().copied() {
                    None if self.at == self.bytes.len() => return Ok(()),
                    None => return Err(self.expected("end of text")),
                    Some(Open::Array) if self.eat(b',') => break,
                    Some(Open::Array) if self.closes(b']') => {}
                    Some(Open::Array) => return Err(self.expected("`,` or `]`")),
                    Some(Open::Object { first_key }) if self.eat(b',') => {
                        self.skip_space();
                        self.key(first_key)?;
                        break;
                    }
                    Some(Open::Object { first_key }) => self.close_object(first_key)?,
                }
            }
        }
    }

    /// Reads a scalar or an empty container whole, else what opens a container. Says whether a value must follow.
    fn value_begins(&mut self) -> Result<bool, JsonError> {
        self.skip_space();
        if self.open.len() == 1 {
            self.member_begins = self.at;
        }
        match self.peek() {
            Some(b'{') => {
                let first_key = self.keys.len();
                self.enter(Open::Object { first_key })?;
                if !self.closes(b'}') {
                    self.key(first_key)?;
                    return Ok(true);
                }
            }
            Some(b'[') => {
                self.enter(Open::Array)?;
                return Ok(!self.closes(b']'));
            }
            Some(b'"') => _ = self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            _ => return Err(self.expected("a value")),
        }
        Ok(false)
    }

    fn enter(&mut self, container: Open) -> Result<(), JsonError> {
        if self.open.len() == self.limits.depth_max {
            return Err(JsonError::DepthOver {
                max: self.limits.depth_max,
            });
        }
        self.open.push(container);
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn key(&mut self, first_key: usize) -> Result<(), JsonError> {
        if self.keys.len() - first_key == self.limits.keys_max {
            return Err(JsonError::KeysOver {
                max: self.limits.keys_max,
            });
        }
        let begins = self.at;
        let escaped = self.string()?;
        let key = match escaped {
            // "dose" and "\u0064ose" are one key.
            true => Cow::Owned(
                serde_json::from_str(self.text.get(begins..self.at).unwrap_or_default()).map_err(
                    |_| JsonError::Syntax {
                        at: begins,
                        expected: "a key",
                    },
                )?,
            ),
            false => Cow::Borrowed(self.text.get(begins + 1..self.at - 1).unwrap_or_default()),
        };
        self.keys.push(key);
        self.skip_space();
        self.byte(b':', "`:`")
    }

    fn close_object(&mut self, first_key: usize) -> Result<(), JsonError> {
        let at = self.at;
        if !self.closes(b'}') {
            return Err(self.expected("`,` or `}`"));
        }
        if self.keys.get_mut(first_key..).is_some_and(has_duplicate) {
            return Err(JsonError::DuplicateKey { at });
        }
        self.keys.truncate(first_key);
        Ok(())
    }

    /// Takes the end of the innermost container, if it is there.
    fn closes(&mut self, end: u8) -> bool {
        let closes = self.eat(end);
        if closes {
            self.open.pop();
        }
        closes
    }

    /// Says whether the string has escapes.
    fn string(&mut self) -> Result<bool, JsonError> {
        self.byte(b'"', "`\"`")?;
        let mut escaped = false;
        loop {
            self.at += plain(self.bytes.get(self.at..).unwrap_or_default());
            if self.eat(b'"') {
                return Ok(escaped);
            }
            escaped = true;
            self.byte(b'\\', "a character or `\"`")?;
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => match self.code_unit()? {
                0xD800..=0xDBFF => {
                    self.byte(b'\\', "a low surrogate")?;
                    match self.code_unit()? {
                        0xDC00..=0xDFFF => Ok(()),
                        _ => Err(self.expected("a low surrogate")),
                    }
                }
                0xDC00..=0xDFFF => Err(self.expected("a high surrogate first")),
                _ => Ok(()),
            },
            _ => Err(self.expected("an escape")),
        }
    }

    /// Reads `uXXXX`.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        self.byte(b'u', "`u`")?;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            unit = unit * 16 + digit.ok_or_else(|| self.expected("a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let begins = self.at;
        self.eat(b'-');
        let mut digits = if self.eat(b'0') { 1 } else { self.digits()? };
        // A double overflows by its exponent, or by having 309 digits before the point.
        let mut may_overflow = digits >= 309;
        if self.eat(b'.') {
            digits += self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _is_signed = self.eat(b'+') || self.eat(b'-');
            digits += self.digits()?;
            may_overflow = true;
        }
        if digits > self.limits.digits_max {
            return Err(JsonError::DigitsOver {
                at: begins,
                max: self.limits.digits_max,
            });
        }
        let number = self.text.get(begins..self.at).unwrap_or_default();
        if may_overflow && !number.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(JsonError::NumberRange { at: begins });
        }
        Ok(())
    }

    /// One digit or more; how many.
    fn digits(&mut self) -> Result<usize, JsonError> {
        let begins = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == begins {
            Err(self.expected("a digit"))
        } else {
            Ok(self.at - begins)
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn byte(&mut self, wanted: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.eat(wanted) {
            Ok(())
        } else {
            Err(self.expected(expected))
        }
    }

    /// Takes a byte, if it is the next.
    fn eat(&mut self, wanted: u8) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax {
            at: self.at,
            expected,
        }
    }
}

/// Pairs are cheapest for the few keys of an ordinary object; sorting bounds the work for a hostile one.
fn has_duplicate(keys: &mut [Cow<'_, str>]) -> bool {
    const PAIRWISE_MAX: usize = 12;
    if keys.len() <= PAIRWISE_MAX {
        return keys
            .iter()
            .enumerate()
            .any(|(i, key)| keys.iter().take(i).any(|earlier| earlier == key));
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// Why a text was refused. Offsets are in bytes from its beginning; no part of the text is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Send UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Encoding {
        /// The first byte that isn't.
        at: usize,
    },
    /// Send JSON (RFC 8259).
    #[error("{expected} expected at byte {at}")]
    Syntax {
        /// Where it should have been.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// Send a number that a double can hold.
    #[error("number out of range at byte {at}")]
    NumberRange {
        /// Where the number begins.
        at: usize,
    },
    /// Send a shorter number, or a string.
    #[error("number of more than {max} digits at byte {at}")]
    DigitsOver {
        /// Where the number begins.
        at: usize,
        /// [`Limits::digits_max`](crate::Limits::digits_max).
        max: usize,
    },
    /// Send less.
    #[error("more than {max} bytes")]
    BytesOver {
        /// [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
        max: usize,
    },
    /// Send it flatter.
    #[error("nested more than {max} deep")]
    DepthOver {
        /// [`Limits::depth_max`](crate::Limits::depth_max).
        max: usize,
    },
    /// Send fewer members.
    #[error("an object of more than {max} members")]
    KeysOver {
        /// [`Limits::keys_max`](crate::Limits::keys_max).
        max: usize,
    },
    /// Send each key once: two readers could take different ones.
    #[error("a key stands twice in the object that ends at byte {at}")]
    DuplicateKey {
        /// The object's closing brace.
        at: usize,
    },
}

impl JsonError {
    /// Whether the text is JSON that nobody may send, rather than no JSON at all.
    pub fn is_well_formed(&self) -> bool {
        matches!(
            self,
            Self::BytesOver { .. }
                | Self::DepthOver { .. }
                | Self::KeysOver { .. }
                | Self::DuplicateKey { .. }
        )
    }
}

/// Most bytes of one JSON-RPC message, by default: 4 MiB.
pub const BODY_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;
/// Most arrays and objects inside each other, by default. Below serde_json's own bound of 128.
pub const DEPTH_MAX_DEFAULT: usize = 64;
/// Most members of one object, by default.
pub const KEYS_MAX_DEFAULT: usize = 1_000;
/// Most digits of one number, by default: the largest double has 309 when written out.
pub const DIGITS_MAX_DEFAULT: usize = 400;
/// Most messages of one batch, by default.
pub const BATCH_ENTRIES_MAX_DEFAULT: usize = 100;

/// How large a JSON-RPC message may be before it is refused unread.
///
/// Each bound is inclusive: a message that meets it passes, one more is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole message.
    pub body_bytes_max: usize,
    /// Arrays and objects inside each other; a scalar has depth 0.
    pub depth_max: usize,
    /// Members of one object.
    pub keys_max: usize,
    /// Digits of one number: integer part, fraction and exponent together.
    pub digits_max: usize,
    /// Bytes of the id as written, quotes and escapes included.
    /// Default: 256.
    pub id_bytes_max: usize,
    /// Bytes of the method name.
    /// Default: 128.
    pub method_bytes_max: usize,
    /// Messages of one batch.
    pub batch_entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            depth_max: DEPTH_MAX_DEFAULT,
            keys_max: KEYS_MAX_DEFAULT,
            digits_max: DIGITS_MAX_DEFAULT,
            id_bytes_max: 256,
            method_bytes_max: 128,
            batch_entries_max: BATCH_ENTRIES_MAX_DEFAULT,
        }
    }
}

/// The text between the quotes of a JSON string; `None` where it has escapes, or isn't a string.
pub(crate) fn unescaped(written: &str) -> Option<&str> {
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}
