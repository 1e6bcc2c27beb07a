//! An entry as it is kept: JSON with its members in the order of their bytes, no spaces, strings escaped as RFC 8785 has
//! it, integers only. The hash is of this text, so it is never made anew from anything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use callboard_message::DataClass;
use callboard_runtime::{AuditEntry, AuditValue, BodyMark};
use serde::{Deserialize, Serialize};

use crate::sql::ms;

/// Bytes of one entry's line. Past it the entry is kept without `more` and says `"cut":true`.
/// At the limit: kept without `more`, with `cut`.
const AUDIT_LINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a name in an entry that had to be cut.
const NAME_CUT_BYTES: usize = 1024;
/// The event of a chain's beginning having been removed: `chain`, `up_to`.
pub(crate) const CUT: &str = "audit.cut";
/// The line's format.
const VERSION: u8 = 1;

/// Where an entry is: everything that the entry itself doesn't know.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) chain: &'a str,
    pub(crate) number: u64,
    /// Of the writer's opening.
    pub(crate) run: &'a str,
}

/// The members, in the order of their names' bytes.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a BodyMark>,
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
    principal: Option<Who<'a>>,
    run: &'a str,
    v: u8,
}

#[derive(Serialize)]
struct Who<'a> {
    id: &'a str,
    kind: &'static str,
}

/// The line of an entry at its place.
pub(crate) fn line(entry: &AuditEntry, spot: Spot<'_>) -> Result<String, serde_json::Error> {
    let line = Line {
        agent: entry.agent.as_deref(),
        at_ms: ms(entry.at),
        body: entry.body.as_ref(),
        call: entry.call.map(|call| call.to_string()),
        chain: spot.chain,
        class: entry.class,
        cut: None,
        event: &entry.event,
        message: entry.message.as_deref(),
        more: Some(&entry.more).filter(|more| !more.is_empty()),
        number: spot.number,
        outcome: entry.outcome.as_deref(),
        peer: entry.peer.as_deref(),
        principal: entry.principal.as_ref().map(|(kind, id)| Who {
            id,
            kind: kind.as_str(),
        }),
        run: spot.run,
        v: VERSION,
    };
    let text = serde_json::to_string(&line)?;
    if text.len() <= AUDIT_LINE_BYTES_MAX {
        return Ok(text);
    }
    serde_json::to_string(&Line {
        cut: Some(true),
        more: None,
        ..line
    })
}

/// The entry as the store can hold it: without NUL, and with names that leave room for the others where it is too large.
pub(crate) fn fitted(entry: AuditEntry) -> AuditEntry {
    let texts = [&entry.agent, &entry.message, &entry.peer];
    let texts = texts.into_iter().flatten().map(String::as_str);
    let all = texts
        .chain(entry.principal.iter().map(|(_, id)| id.as_str()))
        .chain([&*entry.event]);
    let all = all.chain(entry.outcome.as_deref());
    let (bytes, has_nul) = all.fold((0, false), |(bytes, nul), text| {
        (bytes + text.len(), nul || text.contains('\0'))
    });
    // An escaped character has up to six bytes.
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

/// What a line says of itself, as far as it is also kept beside it.
#[derive(Deserialize)]
pub(crate) struct Said<'a> {
    #[serde(borrow)]
    pub(crate) agent: Option<Cow<'a, str>>,
    pub(crate) at_ms: i64,
    pub(crate) call: Option<Cow<'a, str>>,
    pub(crate) chain: Cow<'a, str>,
    pub(crate) class: Cow<'a, str>,
    pub(crate) event: Cow<'a, str>,
    pub(crate) number: u64,
    pub(crate) principal: Option<SaidWho<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct SaidWho<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
}

/// What an entry of the event [`CUT`] says.
#[derive(Deserialize)]
pub(crate) struct SaidCut<'a> {
    #[serde(borrow)]
    pub(crate) more: SaidCutMore<'a>,
}

#[derive(Deserialize)]
pub(crate) struct SaidCutMore<'a> {
    #[serde(borrow)]
    pub(crate) chain: Cow<'a, str>,
    pub(crate) up_to: u64,
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use callboard_message::{CallId, PrincipalKind};

    use super::*;

    const SPOT: Spot<'static> = Spot {
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

    /// Goal: a line's bytes are fixed: whoever has it can recompute its hash for ever. Method: an entry with all members, and
    /// one with none.
    #[test]
    fn the_text_is_canonical() {
        let call = CallId::fresh();
        let full = entry()
            .with_agent("a\"\\\u{1}\n\u{e7}")
            .with_message("m")
            .with_peer("p")
            .with_call(call);
        let full = full
            .with_class(DataClass::Clinical)
            .with_outcome("answered")
            .with("rules", vec!["x".to_owned()]);
        let full = full.with("flag", true).with("bytes", 3_u64).with("a", "b");
        let full = full.with_body(BodyMark {
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
        assert_eq!(line(&full, SPOT).unwrap(), expected);
        let least = r#"{"at_ms":1700000000123,"chain":"node","class":"internal","event":"message","number":7,"run":"r","v":1}"#;
        assert_eq!(line(&entry(), SPOT).unwrap(), least);
    }

    /// Goal: members are in the order of their names' bytes, as another writer of the format would have them. Method: read a
    /// line into a map that sorts and write it again.
    #[test]
    fn members_are_sorted() {
        let full = entry()
            .with_agent("a")
            .with_message("m")
            .with_peer("p")
            .with_call(CallId::fresh());
        let full = full.with_outcome("o").with("b", 1_u64).with("a", 2_u64);
        let text = line(&full, SPOT).unwrap();
        let sorted: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&sorted).unwrap(), text);
    }

    /// Goal: a line has a limit, and says that it was cut. Method: `more` of just the limit, one byte more, names without
    /// end, a NUL.
    #[test]
    fn lines_have_a_limit() {
        let with = |bytes: usize| entry().with("x", "x".repeat(bytes));
        let around = line(&with(0), SPOT).unwrap().len();
        let longest = line(&with(AUDIT_LINE_BYTES_MAX - around), SPOT).unwrap();
        assert_eq!(longest.len(), AUDIT_LINE_BYTES_MAX);
        let cut = line(&with(AUDIT_LINE_BYTES_MAX - around + 1), SPOT).unwrap();
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
        let text = line(&fitted(endless.with("x", "x")), SPOT).unwrap();
        assert!(
            text.len() < 3 * AUDIT_LINE_BYTES_MAX && text.contains(r#""cut":true"#),
            "{} bytes",
            text.len()
        );

        assert_eq!(
            fitted(entry().with_agent("a\0b")).agent.as_deref(),
            Some("a\u{fffd}b")
        );
        let plain = entry().with_agent("a").with("x", 1_u64);
        assert_eq!(fitted(plain.clone()), plain);
    }
}
