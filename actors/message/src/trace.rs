use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hex::write_hex;

/// Position of a call in a distributed trace (W3C Trace Context, `traceparent` version 00).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    /// Span of which this one is a part; `None` for the first span of a trace, and for a peer's. It isn't sent.
    parent_id: Option<u64>,
    sampled: bool,
}

/// Error for a `traceparent` header that isn't valid in version 00. The receiver of such a header
/// should start a new trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the `traceparent` isn't of the form `00-TRACE_ID-PARENT_ID-FLAGS` (W3C Trace Context, version 00)"
)]
pub struct TraceContextError;

impl TraceContext {
    /// Creates the root span of a new trace. It is marked as sampled.
    pub fn root() -> Self {
        Self {
            // The lower half has no fixed bits, because samplers decide by it.
            trace_id: (Uuid::new_v4().as_u128() & !u128::from(u64::MAX))
                | u128::from(random_span_id()),
            span_id: random_span_id(),
            parent_id: None,
            sampled: true,
        }
    }

    /// Creates a new span of the same trace.
    pub fn child(&self) -> Self {
        Self {
            span_id: random_span_id(),
            parent_id: Some(self.span_id),
            ..*self
        }
    }

    /// Returns another span beside this one, with the same parent.
    pub fn sibling(&self) -> Self {
        Self {
            span_id: random_span_id(),
            ..*self
        }
    }

    /// Returns the 128-bit id that all spans of the trace share.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Returns the 64-bit id of this span.
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Returns the id of the span of which this one is a part; `None` for the first span of a trace, and for one that
    /// was read from a peer.
    pub fn parent_id(&self) -> Option<u64> {
        self.parent_id
    }

    /// Returns whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Returns the same span with another decision whether the trace is recorded.
    pub fn with_sampled(self, sampled: bool) -> Self {
        Self { sampled, ..self }
    }
}

fn random_span_id() -> u64 {
    let random = Uuid::new_v4().as_u128();
    // The version's and the variant's fixed bits are in different halves, so that the sum of both halves has none.
    ((random >> 64) as u64).wrapping_add(random as u64).max(1)
}

// Written by hand because every outgoing call has one; the formatter takes ten times as long.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut trace_id, mut span_id) = ([0; 32], [0; 16]);
        f.write_str("00-")?;
        f.write_str(write_hex(&self.trace_id.to_be_bytes(), &mut trace_id))?;
        f.write_str("-")?;
        f.write_str(write_hex(&self.span_id.to_be_bytes(), &mut span_id))?;
        f.write_str(if self.sampled { "-01" } else { "-00" })
    }
}

impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<Self, TraceContextError> {
        let mut fields = text.split('-');
        let mut field = |len: usize| {
            let field = fields
                .next()
                .filter(|f| f.len() == len)
                .ok_or(TraceContextError)?;
            let hex = field
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if hex {
                u128::from_str_radix(field, 16).map_err(|_| TraceContextError)
            } else {
                Err(TraceContextError)
            }
        };
        let (version, trace_id, span_id, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        if version != 0 || trace_id == 0 || span_id == 0 || fields.next().is_some() {
            return Err(TraceContextError);
        }
        Ok(Self {
            trace_id,
            span_id: span_id as u64,
            parent_id: None,
            sampled: flags & 1 == 1,
        })
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> Self {
        context.to_string()
    }
}

impl TryFrom<String> for TraceContext {
    type Error = TraceContextError;

    fn try_from(text: String) -> Result<Self, TraceContextError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is written is read back; what the specification forbids is refused.
    #[test]
    fn traceparent_round_trips() {
        let context = TraceContext::root().child();
        let read: TraceContext = context.to_string().parse().unwrap();
        assert_eq!(read.to_string(), context.to_string());
        assert_eq!(
            (read.parent_id(), context.parent_id().is_some()),
            (None, true)
        );
        let odd = TraceContext {
            trace_id: 0x0123_4567_89ab_cdef,
            span_id: 0xfe,
            parent_id: None,
            sampled: false,
        };
        assert_eq!(
            odd.to_string(),
            "00-00000000000000000123456789abcdef-00000000000000fe-00"
        );
        for bad in [
            "",
            "00-0-0-0",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(TraceContextError), "{bad}");
        }
    }
}
