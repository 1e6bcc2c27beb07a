//! Text form of an audit entry: JSON with members sorted by the bytes of their names, no spaces,
//! strings escaped as in RFC 8785, integers only. The hash covers this text, so it is stored and
//! never generated again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use callboard_message::DataClass;
use callboard_runtime::{AuditEntry, AuditValue, BodyDigest};
use serde::{Deserialize, Serialize};

use crate::sql::to_unix_ms;

/// Maximum bytes of an audit entry's text. If an entry is longer, it is stored without its details
/// `more` and with `"cut":true`.
const AUDIT_LINE_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of each name in an audit entry whose names are too long together; the rest is cut.
const NAME_CUT_BYTES: usize = 1024;
/// Name of the audit event for a removal of old entries. Its details are `chain` and `up_to`, the
/// number of the last removed entry.
pub(crate) const CUT_EVENT: &str = "audit.cut";
/// Version of the JSON text of audit entries, stored in its member `v`.
const LINE_VERSION: u8 = 1;

/// Position of an audit entry: chain, number and run.
#[derive(Clone, Copy)]
pub(crate) struct EntryPosition<'a> {
    pub(crate) chain: &'a str,
    pub(crate) number: u64,
    /// Random id that was generated when the writer opened the store.
    pub(crate) run: &'a str,
}

/// JSON members of an audit entry's text, sorted by the bytes of their names.
#[derive(Serialize)]
struct EntryLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a BodyDigest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    chain: &'a str,
    class: DataClass,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<bool>,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<&'a BTreeMap<&'static str, AuditValue>>,
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<PrincipalRef<'a>>,
    run: &'a str,
    v: u8,
}

#[derive(Serialize)]
struct PrincipalRef<'a> {
    id: &'a str,
    kind: &'static str,
}

/// Formats an audit entry as JSON text for its position in the chain.
pub(crate) fn format_line(
    entry: &AuditEntry,
    spot: EntryPosition<'_>,
) -> Result<String, serde_json::Error> {
    let line = EntryLine {
        agent: entry.agent.as_deref(),
        at_ms: to_unix_ms(entry.at),
        body: entry.body.as_ref(),
        call: entry.call.map(|call| call.to_string()),
        chain: spot.chain,
        class: entry.class,
        cut: None,
        event: &entry.event,
        message: entry.message.as_deref(),
        more: Some(&entry.details).filter(|more| !more.is_empty()),
        number: spot.number,
        outcome: entry.outcome.as_deref(),
        peer: entry.peer.as_deref(),
        principal: entry.principal.as_ref().map(|(kind, id)| PrincipalRef {
            id,
            kind: kind.as_str(),
        }),
        run: spot.run,
        v: LINE_VERSION,
    };
    let text = serde_json::to_string(&line)?;
    if text.len() <= AUDIT_LINE_BYTES_MAX {
        return Ok(text);
    }
    serde_json::to_string(&EntryLine {
        cut: Some(true),
        more: None,
        ..line
    })
}

/// Makes an audit entry storable: replaces NUL characters, and cuts its names if they are too long
/// together.
pub(crate) fn fit_entry(entry: AuditEntry) -> AuditEntry {
    let texts = [&entry.agent, &entry.message, &entry.peer];
    let texts = texts.into_iter().flatten().map(String::as_str);
    let all = texts
        .chain(entry.principal.iter().map(|(_, id)| id.as_str()))
        .chain([&*entry.event]);
    let all = all.chain(entry.outcome.as_deref());
    let (bytes, has_nul) = all.fold((0, false), |(bytes, nul), text| {
        (bytes + text.len(), nul || text.contains('\0'))
    });
    // An escaped character takes up to six bytes.
    if !has_nul && bytes * 6 <= AUDIT_LINE_BYTES_MAX / 2 {
        return entry;
    }
    let fit = |text: String| {
        let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
        let end = ends
            .take_while(|end| *end <= NAME_CUT_BYTES)
            .last()
            .unwrap_or_default();
        text.get(..end)
            .unwrap_or_default()
            .replace('\0', "\u{fffd}")
    };
    let fit_word = |text: Cow<'static, str>| Cow::Owned(fit(text.into_owned()));
    AuditEntry {
        event: fit_word(entry.event),
        agent: entry.agent.map(fit),
        message: entry.message.map(fit),
        peer: entry.peer.map(fit),
        principal: entry.principal.map(|(kind, id)| (kind, fit(id))),
        outcome: entry.outcome.map(fit_word),
        ..entry
    }
}

/// Members of an audit entry's text that are also stored as columns of its row.
#[derive(Deserialize)]
pub(crate) struct ParsedLine<'a> {
    #[serde(borrow)]
    pub(crate) agent: Option<Cow<'a, str>>,
    pub(crate) at_ms: i64,
    pub(crate) call: Option<Cow<'a, str>>,
    pub(crate) chain: Cow<'a, str>,
    pub(crate) class: Cow<'a, str>,
    pub(crate) event: Cow<'a, str>,
    pub(crate) number: u64,
    pub(crate) principal: Option<ParsedPrincipal<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct ParsedPrincipal<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
}

/// Parsed text of an audit entry of the event [`CUT_EVENT`]: the details of a removal.
#[derive(Deserialize)]
pub(crate) struct ParsedCut<'a> {
    #[serde(borrow)]
    pub(crate) more: ParsedCutDetails<'a>,
}

#[derive(Deserialize)]
pub(crate) struct ParsedCutDetails<'a> {
    #[serde(borrow)]
    pub(crate) chain: Cow<'a, str>,
    pub(crate) up_to: u64,
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use callboard_message::{CallId, PrincipalKind};

    use super::*;

    const SPOT: EntryPosition<'static> = EntryPosition {
        chain: "node",
        number: 7,
        run: "r",
    };

    fn entry() -> AuditEntry {
        AuditEntry {
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            ..AuditEntry::new("message")
        }
    }

    /// Goal: an entry's text never changes, so its hash can be recomputed at any time. Method: an
    /// entry with all members, and one with none.
    #[test]
    fn the_text_is_canonical() {
        let call = CallId::generate();
        let full = entry()
            .with_agent("a\"\\\u{1}\n\u{e7}")
            .with_message("m")
            .with_peer("p")
            .with_call(call);
        let full = full
            .with_class(DataClass::Clinical)
            .with_outcome("answered")
            .with_detail("rules", vec!["x".to_owned()]);
        let full = full
            .with_detail("flag", true)
            .with_detail("bytes", 3_u64)
            .with_detail("a", "b");
        let full = full.with_body(BodyDigest {
            bytes: 2,
            hash: "sha256:00".to_owned(),
        });
        let full = AuditEntry {
            principal: Some((PrincipalKind::ApiKey, "k".to_owned())),
            ..full
        };
        let expected = format!(
            "{{\"agent\":\"a\\\"\\\\\\u0001\\n\u{e7}\",\"at_ms\":1700000000123,\"body\":{{\"bytes\":2,\"hash\":\"sha256:00\"}},\
             \"call\":\"{call}\",\"chain\":\"node\",\"class\":\"clinical\",\"event\":\"message\",\"message\":\"m\",\
             \"more\":{{\"a\":\"b\",\"bytes\":3,\"flag\":true,\"rules\":[\"x\"]}},\"number\":7,\"outcome\":\"answered\",\
             \"peer\":\"p\",\"principal\":{{\"id\":\"k\",\"kind\":\"api_key\"}},\"run\":\"r\",\"v\":1}}"
        );
        assert_eq!(format_line(&full, SPOT).unwrap(), expected);
        let least = r#"{"at_ms":1700000000123,"chain":"node","class":"internal","event":"message","number":7,"run":"r","v":1}"#;
        assert_eq!(format_line(&entry(), SPOT).unwrap(), least);
    }

    /// Goal: members are sorted by the bytes of their names. Method: read a line into a sorted map
    /// and write it again.
    #[test]
    fn members_are_sorted() {
        let full = entry()
            .with_agent("a")
            .with_message("m")
            .with_peer("p")
            .with_call(CallId::generate());
        let full = full
            .with_outcome("o")
            .with_detail("b", 1_u64)
            .with_detail("a", 2_u64);
        let text = format_line(&full, SPOT).unwrap();
        let sorted: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&sorted).unwrap(), text);
    }

    /// Goal: a line has a limit and is marked as cut. Method: `more` of exactly the limit, one byte
    /// more, very long names, a NUL.
    #[test]
    fn lines_have_a_limit() {
        let with = |bytes: usize| entry().with_detail("x", "x".repeat(bytes));
        let around = format_line(&with(0), SPOT).unwrap().len();
        let longest = format_line(&with(AUDIT_LINE_BYTES_MAX - around), SPOT).unwrap();
        assert_eq!(longest.len(), AUDIT_LINE_BYTES_MAX);
        let cut = format_line(&with(AUDIT_LINE_BYTES_MAX - around + 1), SPOT).unwrap();
        assert!(
            cut.contains(r#""cut":true"#) && !cut.contains("more"),
            "{cut}"
        );

        let long = "\u{1}".repeat(AUDIT_LINE_BYTES_MAX);
        let endless = entry()
            .with_agent(&long)
            .with_message(&long)
            .with_peer(&long)
            .with_outcome(long.clone());
        let endless = AuditEntry {
            event: long.clone().into(),
            ..endless
        };
        let endless = AuditEntry {
            principal: Some((PrincipalKind::Agent, long)),
            ..endless
        };
        let text = format_line(&fit_entry(endless.with_detail("x", "x")), SPOT).unwrap();
        assert!(
            text.len() < 3 * AUDIT_LINE_BYTES_MAX && text.contains(r#""cut":true"#),
            "{} bytes",
            text.len()
        );

        assert_eq!(
            fit_entry(entry().with_agent("a\0b")).agent.as_deref(),
            Some("a\u{fffd}b")
        );
        let plain = entry().with_agent("a").with_detail("x", 1_u64);
        assert_eq!(fit_entry(plain.clone()), plain);
    }
}
