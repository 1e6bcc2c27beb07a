//! `params` of `tools/call`, read and written: the one place that knows its members.

use std::time::Duration;

use callboard_message::TraceContext;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Most bytes of a tool's name.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Most bytes of a purpose.
pub const PURPOSE_BYTES_MAX: usize = 64;

/// A call of a tool, and what travels with it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) tool: String,
    /// An object.
    pub(super) arguments: &'a RawValue,
    pub(super) meta: CallMetaParams,
}

/// The members of `_meta` that are ours.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallMetaParams {
    pub(super) purpose: Option<String>,
    /// How long the caller will wait.
    pub(super) patience: Option<Duration>,
    pub(super) hops: u16,
    pub(super) trace: Option<TraceContext>,
}

/// What is wrong with `params`. Change it; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParamsError {
    #[error("`params` must be an object")]
    NotAnObject,
    #[error("`params.name` must be a string of 1 to {TOOL_NAME_BYTES_MAX} bytes")]
    Name,
    #[error("`params.arguments` must be an object")]
    Arguments,
    #[error("`params._meta` must be an object")]
    Meta,
    #[error("`params._meta[\"callboard/purpose\"]` must be a string of 1 to {PURPOSE_BYTES_MAX} bytes")]
    Purpose,
    #[error("`params._meta[\"callboard/deadline-ms\"]` must be a whole number of milliseconds")]
    Deadline,
    #[error("`params._meta[\"callboard/hops\"]` must be a whole number up to 65535")]
    Hops,
}

#[derive(Deserialize, Serialize)]
struct ParamsMembers<'a> {
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta", borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaMembers<'a> {
    #[serde(rename = "callboard/purpose", borrow, default, deserialize_with = "present")]
    purpose: Option<&'a RawValue>,
    #[serde(rename = "callboard/deadline-ms", borrow, default, deserialize_with = "present")]
    deadline_ms: Option<&'a RawValue>,
    #[serde(rename = "callboard/hops", borrow, default, deserialize_with = "present")]
    hops: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    traceparent: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct CallToWrite<'a> {
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(rename = "_meta")]
    meta: MetaToWrite<'a>,
}

#[derive(Serialize)]
struct MetaToWrite<'a> {
    #[serde(rename = "callboard/purpose", skip_serializing_if = "Option::is_none")]
    purpose: Option<&'a str>,
    #[serde(rename = "callboard/deadline-ms", skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(rename = "callboard/hops", skip_serializing_if = "is_zero")]
    hops: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u16) -> bool {
    *n == 0
}

/// Tells a member that is `null` from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads what a caller sent. Members that aren't ours are ignored.
pub(super) fn read(params: Option<&RawValue>) -> Result<Call<'_>, ParamsError> {
    let members: ParamsMembers<'_> = object(params.ok_or(ParamsError::NotAnObject)?).ok_or(ParamsError::NotAnObject)?;
    let tool = members.name.and_then(|raw| text(raw, TOOL_NAME_BYTES_MAX)).ok_or(ParamsError::Name)?;
    let arguments = match members.arguments {
        None => empty_object()?,
        Some(raw) if raw.get().starts_with('{') => raw,
        Some(_) => return Err(ParamsError::Arguments),
    };
    let meta = members.meta.map_or(Ok(CallMetaParams::default()), read_meta)?;
    Ok(Call { tool, arguments, meta })
}

fn read_meta(raw: &RawValue) -> Result<CallMetaParams, ParamsError> {
    let members: MetaMembers<'_> = object(raw).ok_or(ParamsError::Meta)?;
    Ok(CallMetaParams {
        purpose: read_member(members.purpose, ParamsError::Purpose, |raw| text(raw, PURPOSE_BYTES_MAX))?,
        patience: read_member(members.deadline_ms, ParamsError::Deadline, |raw| {
            serde_json::from_str(raw.get()).ok().map(Duration::from_millis)
        })?,
        hops: read_member(members.hops, ParamsError::Hops, |raw| serde_json::from_str(raw.get()).ok())?.unwrap_or(0),
        // W3C Trace Context, section 2.3: whoever can't read it begins a trace of its own.
        trace: members.traceparent.and_then(|raw| serde_json::from_str(raw.get()).ok()),
    })
}

fn read_member<T>(
    raw: Option<&RawValue>,
    error: ParamsError,
    read: impl FnOnce(&RawValue) -> Option<T>,
) -> Result<Option<T>, ParamsError> {
    raw.map(|raw| read(raw).ok_or(error)).transpose()
}

/// Writes what a server is sent.
pub(super) fn write(call: &Call<'_>) -> Result<Box<RawValue>, serde_json::Error> {
    to_raw_value(&CallToWrite {
        name: &call.tool,
        arguments: call.arguments,
        meta: MetaToWrite {
            purpose: call.meta.purpose.as_deref(),
            deadline_ms: call.meta.patience.map(|p| u64::try_from(p.as_millis()).unwrap_or(u64::MAX)),
            hops: call.meta.hops,
            traceparent: call.meta.trace.map(|t| t.to_string()),
        },
    })
}

/// A struct can be read from an array too, which `params` must not be.
fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

fn text(raw: &RawValue, bytes_max: usize) -> Option<String> {
    let text: String = serde_json::from_str(raw.get()).ok()?;
    (1..=bytes_max).contains(&text.len()).then_some(text)
}

fn empty_object() -> Result<&'static RawValue, ParamsError> {
    serde_json::from_str("{}").map_err(|_| ParamsError::Arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Goal: what a caller writes is what a server reads. Method: with everything that travels, and with nothing.
    #[test]
    fn calls_round_trip() {
        let arguments = raw(r#"{"patient_id":"CARD-001", "n":1.0}"#);
        let meta = || CallMetaParams {
            purpose: Some("treatment".into()),
            patience: Some(Duration::from_millis(1500)),
            hops: 3,
            trace: Some(TraceContext::root()),
        };
        for wanted in [meta(), CallMetaParams::default()] {
            let sent = Call { tool: "get_patient".into(), arguments: &arguments, meta: wanted };
            let written = write(&sent).unwrap();
            let read = read(Some(&written)).unwrap();
            assert_eq!((read.tool, read.meta), (sent.tool, sent.meta));
            assert_eq!(read.arguments.get(), arguments.get());
        }
    }

    /// Goal: each member of the wrong shape is named. Method: one fault at a time.
    #[test]
    fn wrong_members_are_named() {
        let (long_name, long_purpose) = ("n".repeat(TOOL_NAME_BYTES_MAX + 1), "p".repeat(PURPOSE_BYTES_MAX + 1));
        let meta = |members: &str| format!(r#"{{"name":"t","_meta":{{{members}}}}}"#);
        for (json, error) in [
            ("[]".to_owned(), ParamsError::NotAnObject),
            ("{}".to_owned(), ParamsError::Name),
            (r#"{"name":null}"#.to_owned(), ParamsError::Name),
            (r#"{"name":""}"#.to_owned(), ParamsError::Name),
            (r#"{"name":7}"#.to_owned(), ParamsError::Name),
            (format!(r#"{{"name":"{long_name}"}}"#), ParamsError::Name),
            (r#"{"name":"t","arguments":null}"#.to_owned(), ParamsError::Arguments),
            (r#"{"name":"t","arguments":[1]}"#.to_owned(), ParamsError::Arguments),
            (r#"{"name":"t","_meta":1}"#.to_owned(), ParamsError::Meta),
            (r#"{"name":"t","_meta":[]}"#.to_owned(), ParamsError::Meta),
            (meta(r#""callboard/purpose":1"#), ParamsError::Purpose),
            (meta(r#""callboard/purpose":"""#), ParamsError::Purpose),
            (meta(&format!(r#""callboard/purpose":"{long_purpose}""#)), ParamsError::Purpose),
            (meta(r#""callboard/deadline-ms":-1"#), ParamsError::Deadline),
            (meta(r#""callboard/deadline-ms":"1""#), ParamsError::Deadline),
            (meta(r#""callboard/hops":65536"#), ParamsError::Hops),
        ] {
            assert_eq!(read(Some(&raw(&json))).unwrap_err(), error, "{json}");
        }
        assert_eq!(read(None).unwrap_err(), ParamsError::NotAnObject);
        assert!(read(Some(&raw(&format!(r#"{{"name":"{}"}}"#, &long_name[1..])))).is_ok());
        assert!(read(Some(&raw(&meta(&format!(r#""callboard/purpose":"{}""#, &long_purpose[1..]))))).is_ok());
    }

    /// Goal: what isn't ours is left alone. Method: foreign members, a broken traceparent.
    #[test]
    fn foreign_members_are_ignored() {
        let json = raw(r#"{"name":"t","x":1,"_meta":{"progressToken":7,"traceparent":"00-no"}}"#);
        let call = read(Some(&json)).unwrap();
        assert_eq!((call.arguments.get(), call.meta), ("{}", CallMetaParams::default()));
    }
}
