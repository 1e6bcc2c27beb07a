//! Strict, iterative validation of JSON text in one pass, before any other reader.
//!
//! serde_json doesn't check values that it keeps raw: a lone surrogate, `1e400` or a second
//! `"dose"` in a payload would reach the handler, which might read it differently from the policy
//! checks. Here every byte must conform to RFC 8259 and the limits.

use std::borrow::Cow;

use callboard_message::json::plain_prefix_len;

/// Checks that `body` is one JSON text within `limits`, without duplicate keys in any object, and
/// returns it as text. A byte order mark is rejected.
///
/// Reads the body once; memory is needed only for the keys of objects that are not closed yet.
///
/// # Errors
/// Returns a [`JsonError`] with the kind of violation and, for most kinds, its offset.
pub fn check_json<'a>(body: &'a [u8], limits: &DecodeLimits) -> Result<&'a str, JsonError> {
    for_each_member(body, limits, &mut |_, _| {})
}

/// Checks JSON text like [`check_json`]. If the text is an object, calls `member` with the name and
/// the JSON text of each of its members, not of nested objects. `member` is called during the
/// check: what it got must not be used if the function fails.
///
/// # Errors
/// Those of [`check_json`].
pub(crate) fn for_each_member<'a>(
    body: &'a [u8],
    limits: &DecodeLimits,
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
    let mut scan = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        limits,
        open,
        keys,
        member_begins: 0,
    };
    loop {
        if scan.value_begins()? {
            continue;
        }
        // A value is complete. Close all containers that end here, until another value must follow
        // or the text ends.
        loop {
            if scan.open.len() == 1
                && let Some(key) = scan.keys.last()
            {
                member(
                    key,
                    text.get(scan.member_begins..scan.at).unwrap_or_default(),
                );
            }
            scan.skip_space();
            match scan.open.last().copied() {
                None if scan.at == scan.bytes.len() => return Ok(text),
                None => return Err(scan.expected("end of text")),
                Some(Container::Array) if scan.eat(b',') => break,
                Some(Container::Array) if scan.closes(b']') => {}
                Some(Container::Array) => return Err(scan.expected("`,` or `]`")),
                Some(Container::Object { first_key }) if scan.eat(b',') => {
                    scan.skip_space();
                    scan.key(first_key)?;
                    break;
                }
                Some(Container::Object { first_key }) => scan.close_object(first_key)?,
            }
        }
    }
}

/// Initial capacity for open containers, sufficient for ordinary messages.
const OPEN_ROOM: usize = 8;
/// Initial capacity for the keys of open objects, sufficient for ordinary messages.
const KEYS_ROOM: usize = 16;

#[derive(Clone, Copy)]
enum Container {
    Array,
    /// Object whose keys read so far are `keys[first_key..]` of the [`Scanner`].
    Object {
        first_key: usize,
    },
}

struct Scanner<'a, 's> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    limits: &'s DecodeLimits,
    open: Vec<Container>,
    keys: Vec<Cow<'a, str>>,
    /// Offset in bytes of the value of the outermost object's current member.
    member_begins: usize,
}

impl<'a> Scanner<'a, '_> {
    /// Reads a scalar or an empty container completely, or the beginning of another container.
    /// Returns whether a value must follow before anything else.
    fn value_begins(&mut self) -> Result<bool, JsonError> {
        self.skip_space();
        if self.open.len() == 1 {
            self.member_begins = self.at;
        }
        match self.peek() {
            Some(b'{') => {
                let first_key = self.keys.len();
                self.enter(Container::Object { first_key })?;
                if !self.closes(b'}') {
                    self.key(first_key)?;
                    return Ok(true);
                }
            }
            Some(b'[') => {
                self.enter(Container::Array)?;
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

    fn enter(&mut self, container: Container) -> Result<(), JsonError> {
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

    /// Closes the innermost container if `end` (`}` or `]`) is the next byte. Returns whether it
    /// was.
    fn closes(&mut self, end: u8) -> bool {
        let closes = self.eat(end);
        if closes {
            self.open.pop();
        }
        closes
    }

    /// Reads a string and its quotes. Returns whether it contains escapes.
    fn string(&mut self) -> Result<bool, JsonError> {
        self.byte(b'"', "`\"`")?;
        let mut escaped = false;
        loop {
            self.at += plain_prefix_len(self.bytes.get(self.at..).unwrap_or_default());
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

    /// Reads the part `uXXXX` of an escape and returns the UTF-16 code unit.
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

    /// Reads one or more digits and returns their number.
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

    /// Advances past `wanted` if it is the next byte. Returns whether it was.
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

/// Returns whether a key occurs twice; may sort `keys`. Few keys are compared in pairs, which is
/// fastest. More are sorted, so that a hostile object can't cause quadratic work.
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

/// Violation found by [`check_json`]. Offsets are in bytes from the beginning of the body. The
/// error message contains nothing of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Encoding {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The text is not JSON (RFC 8259).
    #[error("{expected} expected at byte {at}")]
    Syntax {
        /// Offset of the violation.
        at: usize,
        /// Description of the expected token.
        expected: &'static str,
    },
    /// A number is too large for a 64-bit floating-point number.
    #[error("the number at byte {at} is too large for a 64-bit floating-point number")]
    NumberRange {
        /// Offset of the number.
        at: usize,
    },
    /// A number has too many digits.
    #[error("number of more than {max} digits at byte {at}")]
    DigitsOver {
        /// Offset of the number.
        at: usize,
        /// Limit: [`DecodeLimits::digits_max`].
        max: usize,
    },
    /// The text is too long.
    #[error("more than {max} bytes")]
    BytesOver {
        /// Limit: [`DecodeLimits::body_bytes_max`].
        max: usize,
    },
    /// The text is nested too deeply.
    #[error("nested more than {max} deep")]
    DepthOver {
        /// Limit: [`DecodeLimits::depth_max`].
        max: usize,
    },
    /// An object has too many members.
    #[error("an object of more than {max} members")]
    KeysOver {
        /// Limit: [`DecodeLimits::keys_max`].
        max: usize,
    },
    /// An object has a duplicate key. Two readers of the object could use different values.
    #[error("duplicate key in the object that ends at byte {at}")]
    DuplicateKey {
        /// Offset of the object's closing brace.
        at: usize,
    },
}

impl JsonError {
    /// Returns whether the text may be well-formed JSON. This is so for violations of a limit and
    /// for duplicate keys.
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

/// Default maximum size of one JSON-RPC body, in bytes: 4 MiB.
pub const BODY_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;
/// Default maximum nesting depth of arrays and objects. It is lower than the limit of serde_json,
/// 128.
pub const DEPTH_MAX_DEFAULT: usize = 64;
/// Default maximum number of members of one object.
pub const KEYS_MAX_DEFAULT: usize = 1_000;
/// Default maximum number of digits of one number. It permits the largest double, which has 309
/// digits without an exponent.
pub const DIGITS_MAX_DEFAULT: usize = 400;
/// Default maximum number of messages in one batch.
pub const BATCH_ENTRIES_MAX_DEFAULT: usize = 100;

/// Limits of a JSON-RPC body. A body that exceeds a limit is rejected before its messages are
/// interpreted.
///
/// Each limit is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum size of the whole body, in bytes. Default: 4 MiB.
    pub body_bytes_max: usize,
    /// Maximum nesting depth of arrays and objects; a scalar has depth 0. Default: 64.
    pub depth_max: usize,
    /// Maximum number of members of one object. Default: 1,000.
    pub keys_max: usize,
    /// Maximum number of digits of one number. The digits of integer part, fraction and exponent
    /// are added. Default: 400.
    pub digits_max: usize,
    /// Maximum length of a message's id as written, in bytes, with quotes and escapes. Default:
    /// 256.
    pub id_bytes_max: usize,
    /// Maximum length of the method name, in bytes.
    /// Default: 128.
    pub method_bytes_max: usize,
    /// Maximum number of messages in one batch. Default: 100.
    pub batch_entries_max: usize,
    /// Whether a request may have the id `null`, which its response repeats. JSON-RPC 2.0 permits
    /// it, section 4, and so does A2A; MCP doesn't. Default: false.
    pub allows_null_id: bool,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            depth_max: DEPTH_MAX_DEFAULT,
            keys_max: KEYS_MAX_DEFAULT,
            digits_max: DIGITS_MAX_DEFAULT,
            id_bytes_max: 256,
            method_bytes_max: 128,
            batch_entries_max: BATCH_ENTRIES_MAX_DEFAULT,
            allows_null_id: false,
        }
    }
}

/// Returns the text between the quotes of a JSON string; `None` if the string contains escapes, or
/// `written` isn't a string.
pub(crate) fn unescaped(written: &str) -> Option<&str> {
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}
