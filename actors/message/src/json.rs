//! Fast handling of text that is known to be valid JSON: quoting of strings, iteration over members
//! and entries without parsing their values, and raw values without a second parse.

use std::borrow::Cow;
use std::iter;
use std::sync::LazyLock;

use memchr::{memchr, memchr2};
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer};
use serde_json::value::RawValue;

/// Returns the number of bytes before the first that needs an escape in a JSON string: a quote,
/// backslash or control character.
///
/// Checks blocks of 32 bytes, which the compiler vectorises, and then eight bytes at a time.
#[inline]
pub fn plain_prefix_len(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let is_plain = |block: &&[u8; BLOCK_BYTES]| {
        block
            .iter()
            .fold(0, |any, byte| any | u8::from(is_special(*byte)))
            == 0
    };
    let at = blocks.iter().take_while(is_plain).count() * BLOCK_BYTES;
    at + plain_prefix_len_by_words(bytes.get(at..).unwrap_or_default())
}

const BLOCK_BYTES: usize = 32;

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[inline]
fn plain_prefix_len_by_words(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;
    // Sets the high bit of each byte that is less than `n`. Only the lowest bit set is reliable;
    // higher ones may be wrong.
    let under = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGHS;
    let equal = |word: u64, byte: u8| under(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (nth, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = under(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
        if special != 0 {
            return nth * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8
        + rest
            .iter()
            .position(|byte| is_special(*byte))
            .unwrap_or(rest.len())
}

/// Encodes `text` as a JSON string, with quotes (RFC 8259, section 7).
pub fn quote(text: &str) -> String {
    // Most texts have nothing to escape.
    let mut out = String::with_capacity(text.len() + 2);
    quote_into(text, &mut out);
    out
}

/// Encodes `text` as a JSON string, with quotes, and appends it to `out`.
pub fn quote_into(text: &str, out: &mut String) {
    const OF_CONTROLS: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut rest = text;
    // Characters that need an escape are ASCII, so both parts are valid UTF-8.
    while let Some((before, special)) = rest.split_at_checked(plain_prefix_len(rest.as_bytes())) {
        out.push_str(before);
        let mut characters = special.chars();
        match characters.next() {
            None => break,
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(c @ ('"' | '\\')) => {
                out.push('\\');
                out.push(c);
            }
            Some(control) => {
                let code = u32::from(control) as usize;
                out.push_str("\\u00");
                out.extend([code / 16, code % 16].map(|digit| char::from(OF_CONTROLS[digit % 16])));
            }
        }
        rest = characters.as_str();
    }
    out.push('"');
}

/// Encodes `text` as a JSON string and returns it as a raw value.
pub fn quote_raw(text: &str) -> Box<RawValue> {
    raw_from_written(quote(text))
}

/// Name by which serde_json identifies raw values to serialisers. If a future version changes it,
/// JSON texts are parsed once more, with the same result.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Converts JSON text to a raw value without parsing it. `json` must be one valid JSON value
/// without surrounding white space; only debug builds check this, and panic.
pub fn raw_from_written(json: String) -> Box<RawValue> {
    static IS_TAKEN: LazyLock<bool> = LazyLock::new(|| parse_borrowed("null").is_some());
    debug_assert!(is_json(&json), "only JSON becomes a raw value");
    // Raw values are often kept for long, so excess capacity is released.
    let json = if json.capacity() > json.len() + json.len() / 8 {
        String::from(&*json)
    } else {
        json
    };
    match *IS_TAKEN {
        true => parse_owned(json).unwrap_or_default(),
        false => RawValue::from_string(json).unwrap_or_default(),
    }
}

fn parse_owned(json: String) -> Option<Box<RawValue>> {
    let named = iter::once((RAW_VALUE, json));
    Box::<RawValue>::deserialize(MapDeserializer::<_, Error>::new(named)).ok()
}

/// Borrows JSON text as a raw value without parsing it. `json` must be one valid JSON value without
/// surrounding white space, as in [`raw_from_written`].
pub fn raw_ref(json: &str) -> &RawValue {
    debug_assert!(is_json(json), "only JSON becomes a raw value");
    parse_or_null(json)
}

fn parse_or_null(json: &str) -> &RawValue {
    parse_borrowed(json)
        .or_else(|| serde_json::from_str(json).ok())
        .unwrap_or(RawValue::NULL)
}

fn parse_borrowed(json: &str) -> Option<&RawValue> {
    let named = iter::once((RAW_VALUE, BorrowedStrDeserializer::new(json)));
    <&RawValue>::deserialize(MapDeserializer::<_, Error>::new(named)).ok()
}

fn is_json(json: &str) -> bool {
    serde_json::from_str::<&RawValue>(json).is_ok_and(|read| read.get().len() == json.len())
}

/// Returns the text of a JSON string, without quotes and escapes. It is borrowed if the string has
/// no escapes. Returns `None` if `raw` is not a string, or has the escape of an unpaired surrogate.
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    match memchr(b'\\', inner.as_bytes()) {
        None => Some(Cow::Borrowed(inner)),
        Some(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

/// Position in the JSON text of an object or array, from which its members or entries are read in
/// order without parsing their values.
#[derive(Debug, Clone)]
pub struct RawCursor<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> RawCursor<'a> {
    /// Iterates over the entries of an array; `None` if `raw` is not an array.
    pub fn list(raw: &'a RawValue) -> Option<impl Iterator<Item = &'a RawValue>> {
        let mut walk = Self::begin(raw, b'[')?;
        Some(iter::from_fn(move || walk.value()))
    }

    /// Iterates over the names and values of an object's members; `None` if `raw` is not an object.
    /// Members with duplicate names are all returned. The iterator ends early at a name for which
    /// [`text`] is `None`.
    pub fn object(raw: &'a RawValue) -> Option<impl Iterator<Item = (Cow<'a, str>, &'a RawValue)>> {
        let mut walk = Self::begin(raw, b'{')?;
        Some(iter::from_fn(move || {
            Some((text(walk.value()?)?, walk.value()?))
        }))
    }

    fn begin(raw: &'a RawValue, opens: u8) -> Option<Self> {
        let json = raw.get();
        (json.as_bytes().first() == Some(&opens)).then_some(Self { json, at: 1 })
    }

    /// Skips white space and separators, and returns the next value; `None` at the end.
    fn value(&mut self) -> Option<&'a RawValue> {
        let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':');
        let begins = self.at + self.rest().iter().position(|byte| !is_between(byte))?;
        self.at = begins;
        match self.rest().first()? {
            b']' | b'}' => return None,
            b'"' => self.string()?,
            b'{' | b'[' => self.container()?,
            _ => {
                self.at += self
                    .rest()
                    .iter()
                    .position(|byte| is_between(byte) || matches!(byte, b']' | b'}'))?
            }
        }
        self.json.get(begins..self.at).map(parse_or_null)
    }

    /// Advances past the string that begins at the current position; `None` if it has no end.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = self.rest();
            let at = memchr2(b'"', b'\\', rest)?;
            if rest.get(at) == Some(&b'"') {
                self.at += at + 1;
                return Some(());
            }
            // Skips a backslash and the character after it.
            self.at += at + 2;
        }
    }

    /// Advances past the object or array that begins at the current position; `None` if it has no
    /// end.
    fn container(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: eight bytes at a time end where one at a time would. Method: each byte at each place among each other.
    #[test]
    fn plain_bytes_are_counted_exactly() {
        for filler in [b'a', 0x20, 0x21, 0x23, 0x5B, 0x5D, 0x7F, 0x80, 0xFF] {
            for byte in 0..=u8::MAX {
                for at in 0..75 {
                    let mut bytes = [filler; 75];
                    bytes[at] = byte;
                    let expected = if byte < 0x20 || byte == b'"' || byte == b'\\' {
                        at
                    } else {
                        75
                    };
                    assert_eq!(
                        plain_prefix_len(&bytes),
                        expected,
                        "{byte:#x} at {at} among {filler:#x}"
                    );
                }
            }
        }
        assert_eq!(
            (
                plain_prefix_len(b""),
                plain_prefix_len(b"aaaaaa\"\x01\\"),
                plain_prefix_len(b"aaaa\x01\x20\"\\")
            ),
            (0, 6, 4)
        );
    }

    /// Goal: what is quoted reads back as it was. Method: every character of one byte between others, and longer ones.
    #[test]
    fn quoted_text_reads_back() {
        for c in (0..=0x7Fu8).map(char::from).chain(['é', '\u{2028}', '😀']) {
            for before in 0..10 {
                let text = format!("{}{c}é{c}{c}", "a".repeat(before));
                assert_eq!(serde_json::from_str::<String>(&quote(&text)).unwrap(), text);
            }
        }
        assert_eq!(quote("a\"b\\\n\u{1}"), r#""a\"b\\\n\u0001""#);
    }

    /// Goal: raw values have the text that they are made of, and it isn't parsed again. Method:
    /// compare with serde_json for each text; check that its private constructor is still
    /// available.
    #[test]
    fn raw_values_are_their_text() {
        for json in ["null", "1.0", r#""é\u00e9\"""#, r#"{"a":[1, {"b":"]}"}]}"#] {
            let read = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(
                (raw_from_written(json.to_owned()).get(), raw_ref(json).get()),
                (read.get(), read.get())
            );
            assert!(
                parse_owned(json.to_owned()).is_some() && parse_borrowed(json).is_some(),
                "{json}"
            );
        }
    }

    /// Goal: members and entries are found as serde_json finds them. Method: texts with space, escapes, quotes and brackets in
    /// strings at every depth; what is no object or list.
    #[test]
    fn walks_find_what_readers_find() {
        for json in [
            "[]",
            "[ ]",
            r#"[1,"a", [2,"]"] ,{"b":"}\"{"},null , true,-1e5]"#,
            r#"["\\","\"","\u005d]"]"#,
            "[ [[[]]] , [] ]",
        ] {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            let read: Vec<&RawValue> = serde_json::from_str(json).unwrap();
            let walked: Vec<_> = RawCursor::list(&raw).unwrap().map(RawValue::get).collect();
            assert_eq!(
                walked,
                read.into_iter().map(RawValue::get).collect::<Vec<_>>(),
                "{json}"
            );
            assert!(RawCursor::object(&raw).is_none());
        }
        let json = r#"{ "a" : 1 ,"\u0062\"":{"c":"}"}, "":[ "{" ] ,"a":"é"}"#;
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        let walked: Vec<_> = RawCursor::object(&raw)
            .unwrap()
            .map(|(name, value)| (name.into_owned(), value.get()))
            .collect();
        let named = |name: &str, value| (name.to_owned(), value);
        let expected = [
            named("a", "1"),
            named("b\"", r#"{"c":"}"}"#),
            named("", r#"[ "{" ]"#),
            named("a", "\"é\""),
        ];
        assert_eq!(walked, expected);
        assert_eq!(
            RawCursor::object(raw_ref("{}")).unwrap().count()
                + RawCursor::object(raw_ref("{ }")).unwrap().count(),
            0
        );
        assert!(RawCursor::list(&raw).is_none() && RawCursor::list(RawValue::NULL).is_none());
    }

    /// Goal: strings are read as serde_json reads them. Method: with and without escapes, and what is none.
    #[test]
    fn texts_are_read() {
        for (json, borrows) in [
            (r#""""#, true),
            (r#""aé""#, true),
            (r#""a\n\u00e9""#, false),
        ] {
            let read = text(raw_ref(json)).unwrap();
            assert_eq!(read, serde_json::from_str::<String>(json).unwrap());
            assert_eq!(matches!(read, Cow::Borrowed(_)), borrows, "{json}");
        }
        assert!(
            ["1", "null", "[\"\"]"]
                .into_iter()
                .all(|json| text(raw_ref(json)).is_none())
        );
    }
}
