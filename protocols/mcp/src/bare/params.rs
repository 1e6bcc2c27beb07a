//! `params` of `tools/call`, read and written: the one place that knows its members.

use std::borrow::Cow;
use std::time::Duration;

use callboard_message::{RawMembers, RawObject, TraceContext};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::wire::meta::{PURPOSE, PURPOSE_BYTES_MAX, TRACEPARENT};

/// Most bytes of a tool's name.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// How many milliseconds the caller will wait.
const DEADLINE_MS: &str = "callboard/deadline-ms";
/// How many agents the call has passed.
const HOPS: &str = "callboard/hops";

/// A call of a tool, and what travels with it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) tool: String,
    /// An object.
    pub(crate) arguments: Cow<'a, RawValue>,
    pub(crate) meta: CallMetaParams,
}

/// The members of `_meta` that are ours.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallMetaParams {
    pub(crate) purpose: Option<String>,
    /// How long the caller will wait.
    pub(crate) patience: Option<Duration>,
    pub(crate) hops: u16,
    pub(crate) trace: Option<TraceContext>,
}

/// What is wrong with `params`. Change it; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParamsError {
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

/// Reads what a caller sent. Members that aren't ours are ignored.
pub(crate) fn read(params: Option<&RawValue>) -> Result<Call<'_>, ParamsError> {
    let members = params.and_then(|raw| RawMembers::parse(raw).ok()).ok_or(ParamsError::NotAnObject)?;
    let tool = members.get("name").and_then(|raw| text(raw, TOOL_NAME_BYTES_MAX)).ok_or(ParamsError::Name)?;
    let arguments = match members.get("arguments") {
        None => Cow::Owned(RawObject::new().to_raw()),
        Some(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw),
        Some(_) => return Err(ParamsError::Arguments),
    };
    let meta = members.get("_meta").map_or(Ok(CallMetaParams::default()), read_meta)?;
    Ok(Call { tool, arguments, meta })
}

fn read_meta(raw: &RawValue) -> Result<CallMetaParams, ParamsError> {
    let members = RawMembers::parse(raw).map_err(|_| ParamsError::Meta)?;
    let deadline_ms: Option<u64> = read_member(&members, DEADLINE_MS, ParamsError::Deadline, json)?;
    Ok(CallMetaParams {
        purpose: read_member(&members, PURPOSE, ParamsError::Purpose, |raw| text(raw, PURPOSE_BYTES_MAX))?,
        patience: deadline_ms.map(Duration::from_millis),
        hops: read_member(&members, HOPS, ParamsError::Hops, json)?.unwrap_or(0),
        // W3C Trace Context, section 2.3: whoever can't read it begins a trace of its own.
        trace: members.read(TRACEPARENT),
    })
}

fn read_member<T>(
    members: &RawMembers<'_>,
    name: &str,
    error: ParamsError,
    read: impl FnOnce(&RawValue) -> Option<T>,
) -> Result<Option<T>, ParamsError> {
    members.get(name).map(|raw| read(raw).ok_or(error)).transpose()
}

/// Writes what a server is sent.
pub(crate) fn write(call: &Call<'_>) -> Box<RawValue> {
    let CallMetaParams { purpose, patience, hops, trace } = &call.meta;
    let mut meta = RawObject::new();
    if let Some(purpose) = purpose {
        meta.set(PURPOSE, purpose);
    }
    if let Some(patience) = patience {
        meta.set(DEADLINE_MS, u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    }
    if *hops > 0 {
        meta.set(HOPS, hops);
    }
    if let Some(trace) = trace {
        meta.set(TRACEPARENT, trace.to_string());
    }
    RawObject::new().with("name", &call.tool).with("arguments", &call.arguments).with("_meta", meta).to_raw()
}

fn json<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn text(raw: &RawValue, bytes_max: usize) -> Option<String> {
    json::<String>(raw).filter(|text| (1..=bytes_max).contains(&text.len()))
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
            let sent = Call { tool: "get_patient".into(), arguments: Cow::Borrowed(&arguments), meta: wanted };
            let written = write(&sent);
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
