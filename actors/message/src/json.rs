//! JSON that is known to be JSON: strings eight bytes at a time, members and entries without reading what is in them, raw values
//! without reading them once more.

use std::borrow::Cow;
use std::iter;
use std::sync::LazyLock;

use memchr::{memchr, memchr2};
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer};
use serde_json::value::RawValue;

/// How many bytes in a row stand for themselves in a string: no quote, backslash or control character. Blocks of 32 first, which
/// the compiler compares many bytes at a time, then eight at a time.
#[inline]
pub fn plain(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let is_plain = |block: &&[u8; BLOCK_BYTES]| {
        block
            .iter()
            .fold(0, |any, byte| any | u8::from(is_special(*byte)))
            == 0
    };
    let at = blocks.iter().take_while(is_plain).count() * BLOCK_BYTES;
    at + plain_by_words(bytes.get(at..).unwrap_or_default())
}

const BLOCK_BYTES: usize = 32;

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[inline]
fn plain_by_words(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;
    // Sets the high bit of each byte under `n`; a bit above the lowest that is set may be wrong.
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

/// Writes `text` as a JSON string, quotes included (RFC 8259, section 7).
pub fn quote(text: &str) -> String {
    // Most texts have nothing to escape.
    let mut out = String::with_capacity(text.len() + 2);
    quote_to(text, &mut out);
    out
}

/// The same, at the end of `out`.
pub fn quote_to(text: &str, out: &mut String) {
    const OF_CONTROLS: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut rest = text;
    // What needs an escape is ASCII, so both sides of it are whole characters.
    while let Some((before, special)) = rest.split_at_checked(plain(rest.as_bytes())) {
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

/// The same as a raw value.
pub fn quoted(text: &str) -> Box<RawValue> {
    raw(quote(text))
}

/// Under this name serde_json hands a raw value its text. Were it another one day, texts would be read once more.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// What was just written, as a raw value. `json` must be one JSON value, without space around it; `null` stands for what isn't.
pub fn raw(json: String) -> Box<RawValue> {
    static IS_TAKEN: LazyLock<bool> = LazyLock::new(|| borrowed("null").is_some());
    debug_assert!(is_json(&json), "only JSON becomes a raw value");
    // Much of it is kept: in a block of its own size, rather than at the beginning of a larger one.
    let json = if json.capacity() > json.len() + json.len() / 8 {
        String::from(&*json)
    } else {
        json
    };
    match *IS_TAKEN {
        true => taken(json).unwrap_or_default(),
        false => RawValue::from_string(json).unwrap_or_default(),
    }
}

fn taken(json: String) -> Option<Box<RawValue>> {
    let named = iter::once((RAW_VALUE, json));
    Box::<RawValue>::deserialize(MapDeserializer::<_, Error>::new(named)).ok()
}

/// A part of a text that was read, as a raw value. `json` must be as for [`raw`].
pub fn raw_ref(json: &str) -> &RawValue {
    debug_assert!(is_json(json), "only JSON becomes a raw value");
    known(json)
}

fn known(json: &str) -> &RawValue {
    borrowed(json)
        .or_else(|| serde_json::from_str(json).ok())
        .unwrap_or(RawValue::NULL)
}

fn borrowed(json: &str) -> Option<&RawValue> {
    let named = iter::once((RAW_VALUE, BorrowedStrDeserializer::new(json)));
    <&RawValue>::deserialize(MapDeserializer::<_, Error>::new(named)).ok()
}

fn is_json(json: &str) -> bool {
    serde_json::from_str::<&RawValue>(json).is_ok_and(|read| read.get().len() == json.len())
}

/// A string, borrowed where it has no escapes; `None` where `raw` is none.
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    match memchr(b'\\', inner.as_bytes()) {
        None => Some(Cow::Borrowed(inner)),
        Some(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

/// The members of an object, or the entries of a list, in order; what they hold isn't read.
#[derive(Debug, Clone)]
pub struct Walk<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    /// The entries of a list; `None` where `raw` is none.
    pub fn list(raw: &'a RawValue) -> Option<impl Iterator<Item = &'a RawValue>> {
        let mut walk = Self::begin(raw, b'[')?;
        Some(iter::from_fn(move || walk.value()))
    }

    /// The names and values of an object; `None` where `raw` is none. A name may stand twice.
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

    /// The next value, past what stands before it.
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
        self.json.get(begins..self.at).map(known)
    }

    /// Past a string that begins here.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = self.rest();
            let at = memchr2(b'"', b'\\', rest)?;
            if rest.get(at) == Some(&b'"') {
                self.at += at + 1;
                return Some(());
            }
            // A backslash and what it escapes.
            self.at += at + 2;
        }
    }

    /// Past an object or a list that begins here.
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
                        plain(&bytes),
                        expected,
                        "{byte:#x} at {at} among {filler:#x}"
                    );
                }
            }
        }
        assert_eq!(
            (
                plain(b""),
                plain(b"aaaaaa\"\x01\\"),
                plain(b"aaaa\x01\x20\"\\")
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

    /// Goal: raw values are what they are made of, and their text isn't read again. Method: what serde_json makes of each text;
    /// the two ways past its reader are there.
    #[test]
    fn raw_values_are_their_text() {
        for json in ["null", "1.0", r#""é\u00e9\"""#, r#"{"a":[1, {"b":"]}"}]}"#] {
            let read = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(
                (raw(json.to_owned()).get(), raw_ref(json).get()),
                (read.get(), read.get())
            );
            assert!(
                taken(json.to_owned()).is_some() && borrowed(json).is_some(),
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
            let walked: Vec<_> = Walk::list(&raw).unwrap().map(RawValue::get).collect();
            assert_eq!(
                walked,
                read.into_iter().map(RawValue::get).collect::<Vec<_>>(),
                "{json}"
            );
            assert!(Walk::object(&raw).is_none());
        }
        let json = r#"{ "a" : 1 ,"\u0062\"":{"c":"}"}, "":[ "{" ] ,"a":"é"}"#;
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        let walked: Vec<_> = Walk::object(&raw)
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
            Walk::object(raw_ref("{}")).unwrap().count()
                + Walk::object(raw_ref("{ }")).unwrap().count(),
            0
        );
        assert!(Walk::list(&raw).is_none() && Walk::list(RawValue::NULL).is_none());
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
