//! Frames: one JSON each.

use std::sync::Arc;

use callboard_message::mail::{MailEvent, Numbered};

use crate::inbound::reply::Problem;

/// What one thing gave rise to: all that has the same number.
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) frames: Vec<Frame>,
}

/// An event as it is sent.
pub(super) struct Frame {
    kind: &'static str,
    text: Arc<str>,
}

impl Record {
    /// The events of a page, in order, by their number.
    pub(super) fn of(events: &[Numbered]) -> impl Iterator<Item = Self> {
        events.chunk_by(|one, next| one.sequence == next.sequence).map(|of_one| {
            let frames = of_one.iter().filter_map(|numbered| Frame::of(&numbered.event)).collect();
            Self { sequence: of_one.first().map_or(0, |numbered| numbered.sequence), frames }
        })
    }

    /// The frames that a socket wants.
    pub(super) fn wanted(&self, types: &Types, numbered: bool) -> impl Iterator<Item = String> {
        let wanted = self.frames.iter().filter(|frame| types.has(frame.kind));
        wanted.map(move |frame| match numbered {
            true => format!(r#"{{"sequence":{},"event":{}}}"#, self.sequence, frame.text),
            false => frame.text.to_string(),
        })
    }
}

impl Frame {
    fn of(event: &MailEvent) -> Option<Self> {
        let text = serde_json::to_string(event).ok()?;
        Some(Self { kind: event.kind(), text: text.into() })
    }
}

/// Which types a socket wants. That some are missing is told to everybody.
#[derive(Debug, Clone)]
pub(super) struct Types(Option<Vec<&'static str>>);

impl Types {
    /// Those of a list with commas; all where there is none.
    pub(super) fn read(list: Option<&str>) -> Result<Self, Problem> {
        let known = |name: &str| MailEvent::KINDS.into_iter().find(|known| *known == name.trim());
        let Some(list) = list else { return Ok(Self(None)) };
        let named: Option<Vec<_>> = list.split(',').map(known).collect();
        named.map(|named| Self(Some(named))).ok_or_else(|| {
            Problem::unfit(
                "the parameter `types` doesn't fit: names of events with commas between, see /api/openapi.json",
            )
        })
    }

    fn has(&self, kind: &str) -> bool {
        kind == "missed" || self.0.as_ref().is_none_or(|named| named.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::mail::MemberWay;

    use super::*;

    /// Goal: every type can be asked for by its name, and no other. Method: rows.
    #[test]
    fn types() {
        let joined = MailEvent::AgentJoined { agent_id: "a".into(), way: MemberWay::Mcp };
        assert!(MailEvent::KINDS.contains(&joined.kind()));
        assert!(Types::read(None).unwrap().has("agent_left"));
        let some = Types::read(Some("agent_left, message_read")).unwrap();
        assert!(some.has("agent_left") && some.has("message_read") && some.has("missed") && !some.has("agent_joined"));
        for bad in ["", "agent", "agent_left,", "AGENT_LEFT"] {
            assert!(Types::read(Some(bad)).is_err(), "{bad}");
        }
    }
}
