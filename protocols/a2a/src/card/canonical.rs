//! Canonical JSON, so that signer and verifier process the same bytes.

use std::fmt::Write;

use callboard_message::RawMembers;
use serde_json::value::RawValue;

/// Maximum nesting depth of JSON that is canonicalized.
/// At the limit: no signature.
const CANONICAL_DEPTH_MAX: usize = 64;

/// Canonical form of JSON, over which a signature is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanonicalForm {
    /// JSON Canonicalization Scheme (RFC 8785), which A2A prescribes (specification 1.0, section
    /// 8.4.1).
    Jcs,
    /// Form of the Python SDK since 1.3: as [`Self::Jcs`], but without empty strings, lists and
    /// objects at every depth.
    PythonSdk,
    /// Form of the Python SDK before 1.3: as [`Self::PythonSdk`], but with all non-ASCII characters
    /// escaped, keys sorted by code points, and numbers in Python's notation.
    PythonSdkLegacy,
}

impl CanonicalForm {
    pub(super) const ALL: [Self; 3] = [Self::Jcs, Self::PythonSdk, Self::PythonSdkLegacy];
}

/// Error of canonicalization: the text isn't JSON, or is nested deeper than
/// [`CANONICAL_DEPTH_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text isn't JSON, or is nested deeper than {CANONICAL_DEPTH_MAX}")]
pub(super) struct CanonicalizeError;

/// Returns `raw` in a canonical form; `null` if the form omits the whole value.
pub(super) fn canonicalize(
    raw: &RawValue,
    form: CanonicalForm,
) -> Result<String, CanonicalizeError> {
    let mut out = String::with_capacity(raw.get().len());
    write_value(raw, form, CANONICAL_DEPTH_MAX, &mut out)?;
    Ok(if out.is_empty() {
        "null".to_owned()
    } else {
        out
    })
}

/// Appends a value in canonical form to `out`; appends nothing if the form omits the value.
fn write_value(
    raw: &RawValue,
    form: CanonicalForm,
    depth: usize,
    out: &mut String,
) -> Result<(), CanonicalizeError> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => write_object(
            raw,
            form,
            depth.checked_sub(1).ok_or(CanonicalizeError)?,
            out,
        ),
        Some(b'[') => write_array(
            text,
            form,
            depth.checked_sub(1).ok_or(CanonicalizeError)?,
            out,
        ),
        Some(b'"') => {
            let read: String = serde_json::from_str(text).map_err(|_| CanonicalizeError)?;
            if !read.is_empty() || form == CanonicalForm::Jcs {
                write_string(&read, form, out);
            }
            Ok(())
        }
        Some(b'-' | b'0'..=b'9') => write_number(text, form, out),
        _ => {
            out.push_str(text);
            Ok(())
        }
    }
}

fn write_object(
    raw: &RawValue,
    form: CanonicalForm,
    depth: usize,
    out: &mut String,
) -> Result<(), CanonicalizeError> {
    let members = RawMembers::parse(raw).map_err(|_| CanonicalizeError)?;
    let mut members: Vec<_> = members.iter().collect();
    match form {
        CanonicalForm::Jcs | CanonicalForm::PythonSdk => {
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()))
        }
        CanonicalForm::PythonSdkLegacy => members.sort_by_key(|(name, _)| *name),
    }
    write_list(members, ['{', '}'], form, out, |(name, member), out| {
        let before = out.len();
        write_string(name, form, out);
        out.push(':');
        let named = out.len();
        write_value(member, form, depth, out)?;
        if out.len() == named {
            out.truncate(before);
        }
        Ok(())
    })
}

fn write_array(
    text: &str,
    form: CanonicalForm,
    depth: usize,
    out: &mut String,
) -> Result<(), CanonicalizeError> {
    let entries: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| CanonicalizeError)?;
    write_list(entries, ['[', ']'], form, out, |entry, out| {
        write_value(entry, form, depth, out)
    })
}

/// Writes the entries of a list or object with commas and the delimiters `open` and `close`.
/// Entries for which `write` appends nothing are omitted. The forms of the Python SDK also omit a
/// list or object without entries.
fn write_list<T>(
    entries: Vec<T>,
    [open, close]: [char; 2],
    form: CanonicalForm,
    out: &mut String,
    write: impl Fn(T, &mut String) -> Result<(), CanonicalizeError>,
) -> Result<(), CanonicalizeError> {
    let begins = out.len();
    out.push(open);
    for entry in entries {
        let before = out.len();
        if before > begins + 1 {
            out.push(',');
        }
        let opened = out.len();
        write(entry, out)?;
        if out.len() == opened {
            out.truncate(before);
        }
    }
    match out.len() == begins + 1 && form != CanonicalForm::Jcs {
        true => out.truncate(begins),
        false => out.push(close),
    }
    Ok(())
}

/// Writes a string as ECMAScript's `JSON.stringify` does, which serde_json matches.
fn write_string(text: &str, form: CanonicalForm, out: &mut String) {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    if form != CanonicalForm::PythonSdkLegacy {
        out.push_str(&quoted);
        return;
    }
    for c in quoted.chars() {
        match c {
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String never fails.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

fn write_number(
    text: &str,
    form: CanonicalForm,
    out: &mut String,
) -> Result<(), CanonicalizeError> {
    let number: f64 = text.parse().map_err(|_| CanonicalizeError)?;
    if !number.is_finite() {
        return Err(CanonicalizeError);
    }
    match form {
        CanonicalForm::Jcs | CanonicalForm::PythonSdk => {
            out.push_str(ryu_js::Buffer::new().format_finite(number))
        }
        CanonicalForm::PythonSdkLegacy => out.push_str(&python_number(number)),
    }
    Ok(())
}

/// Formats a number as Python formats floats, for example `1.0`. The Python SDK treats all numbers
/// of a card as floats.
fn python_number(number: f64) -> String {
    if number == 0.0 || (1e-4..1e16).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let written = format!("{number:e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, form: CanonicalForm) -> String {
        canonicalize(serde_json::from_str(text).unwrap(), form).unwrap()
    }

    /// Goal: the form matches the RFC. Method: its samples of values and of order (sections 3.2.2
    /// and 3.2.3).
    #[test]
    fn samples_of_the_rfc() {
        let values = r#"{ "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false] }"#;
        let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(of(values, CanonicalForm::Jcs), expected);
        let order =
            r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        assert_eq!(
            of(order, CanonicalForm::Jcs),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}"
        );
    }

    /// Goal: numbers are written as ECMAScript does. Method: rows of the RFC's appendix B, as
    /// decimals.
    #[test]
    fn numbers_are_those_of_ecmascript() {
        for (written, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("5e-324", "5e-324"),
            ("-5e-324", "-5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740992", "-9007199254740992"),
            ("295147905179352830000", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e23", "1e+23"),
            ("1.0000000000000001e23", "1.0000000000000001e+23"),
            ("999999999999999700000", "999999999999999700000"),
            ("1e21", "1e+21"),
            ("9.999999999999997e-7", "9.999999999999997e-7"),
            ("0.000001", "0.000001"),
            ("333333333.3333332", "333333333.3333332"),
            ("333333333.33333325", "333333333.33333325"),
            ("-0.0000033333333333333333", "-0.0000033333333333333333"),
            ("1424953923781206.2", "1424953923781206.2"),
        ] {
            assert_eq!(of(written, CanonicalForm::Jcs), expected, "{written}");
        }
    }

    /// Goal: the Python SDK's forms omit empty values at every depth, and the older one uses
    /// Python's notation. Method: rows, with the output of its `canonicalize` (1.3) and of
    /// `json.dumps` (before).
    #[test]
    fn pythons_forms() {
        for (written, lean, ascii) in [
            (
                r#"{"b":"","a":[],"c":{"d":{}},"e":[{"f":""},""]}"#,
                "null",
                "null",
            ),
            (
                r#"{"b":"x","a":["",{"c":[]},"y"],"d":false,"e":null,"f":0.0}"#,
                r#"{"a":["y"],"b":"x","d":false,"e":null,"f":0}"#,
                r#"{"a":["y"],"b":"x","d":false,"e":null,"f":0.0}"#,
            ),
            (
                r#"{"\u00f6":"\u20ac\ud83d\ude00\u007f\b\f\n"}"#,
                "{\"ö\":\"€😀\u{7f}\\b\\f\\n\"}",
                r#"{"\u00f6":"\u20ac\ud83d\ude00\u007f\b\f\n"}"#,
            ),
            (
                "[1.0,-3.0,1e16,0.5,1e-5,1.5e-7,0.001,1e22,-0.0001,123456789012345.6]",
                "[1,-3,10000000000000000,0.5,0.00001,1.5e-7,0.001,1e+22,-0.0001,123456789012345.6]",
                "[1.0,-3.0,1e+16,0.5,1e-05,1.5e-07,0.001,1e+22,-0.0001,123456789012345.6]",
            ),
            (
                r#"{"\ud83d\ude00":1.0,"\ufb33":2.0}"#,
                "{\"😀\":1,\"\u{fb33}\":2}",
                r#"{"\ufb33":2.0,"\ud83d\ude00":1.0}"#,
            ),
        ] {
            assert_eq!(of(written, CanonicalForm::PythonSdk), lean, "{written}");
            assert_eq!(
                of(written, CanonicalForm::PythonSdkLegacy),
                ascii,
                "{written}"
            );
        }
    }

    /// Goal: nesting is limited. Method: at the limit and one deeper.
    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(
            of(&nested(CANONICAL_DEPTH_MAX), CanonicalForm::Jcs),
            nested(CANONICAL_DEPTH_MAX)
        );
        let over = nested(CANONICAL_DEPTH_MAX + 1);
        assert_eq!(
            canonicalize(serde_json::from_str(&over).unwrap(), CanonicalForm::Jcs),
            Err(CanonicalizeError)
        );
    }
}
