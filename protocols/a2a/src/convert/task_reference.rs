//! References to the remote task that a call was performed by.

use callboard_message::{DECISION_META_KEY, RawObject};
use callboard_runtime::{Task, TaskOutcome};
use serde_json::value::{RawValue, to_raw_value};

/// Key in the metadata of tasks, events and messages: ids of task and conversation at the remote
/// agent that performed the call (`taskId`, `contextId`).
pub(crate) const REMOTE_METADATA: &str = "callboard/remote";
/// Member of a tool result's `_meta` with the reference.
const A2A_META: &str = "a2a";
const TASK_ID: &str = "taskId";
const CONTEXT_ID: &str = "contextId";
/// Maximum bytes of each text of a stated decision. A longer one is left out.
const DECISION_TEXT_BYTES_MAX: usize = 256;

/// Ids of task and conversation at a remote agent. A direct reply has no task.
#[derive(Debug, PartialEq)]
pub(crate) struct RemoteTaskReference {
    pub(crate) task_id: Option<String>,
    pub(crate) context_id: String,
}

impl RemoteTaskReference {
    /// Returns the reference in a tool result; `None` if no remote agent gave it.
    pub(crate) fn from_reply(reply: &RawValue) -> Option<Self> {
        // Most replies have none: the search avoids parsing them.
        let mentions = reply.get().contains("\"a2a\"");
        let result = mentions.then(|| RawObject::parse(reply).ok())??;
        Self::from_object(&result.object("_meta")?.object(A2A_META)?)
    }

    /// Returns the reference in the outcome of a stored task.
    pub(crate) fn from_task(task: &Task) -> Option<Self> {
        match task.outcome.as_ref()? {
            TaskOutcome::Reply(reply) => Self::from_reply(reply),
            TaskOutcome::Failed(failure) => {
                let data = to_raw_value(failure.data.as_ref()?).ok()?;
                let place = Self::from_object(&RawObject::parse(&data).ok()?)?;
                place.task_id.is_some().then_some(place)
            }
            _ => None,
        }
    }

    fn from_object(place: &RawObject) -> Option<Self> {
        let id = |name| place.text(name).filter(|id| !id.is_empty());
        Some(Self {
            task_id: id(TASK_ID),
            context_id: id(CONTEXT_ID)?,
        })
    }

    /// Returns the reference as a JSON object.
    pub(crate) fn to_object(&self) -> RawObject {
        let mut place = RawObject::new();
        place.set_some(TASK_ID, &self.task_id);
        place.with(CONTEXT_ID, &self.context_id)
    }
}

/// Returns the decision that a tool result states in its `_meta`: the documented members that have
/// their type and keep their limits. Others are left out. `None` if none is left.
pub(crate) fn stated_decision(reply: &RawValue) -> Option<RawObject> {
    // Most replies have none: the search avoids parsing them.
    let mentions = reply.get().contains(DECISION_META_KEY);
    let result = mentions.then(|| RawObject::parse(reply).ok())??;
    let stated = result.object("_meta")?.object(DECISION_META_KEY)?;
    let mut decision = RawObject::new();
    for name in ["run", "outcome", "by"] {
        let text = stated.text(name);
        let text = text.filter(|text| text.len() <= DECISION_TEXT_BYTES_MAX);
        decision.set_some(name, &text);
    }
    let confidence: Option<f64> = stated.read("confidence");
    let confidence = confidence.filter(|share| (0.0..=1.0).contains(share));
    decision.set_some("confidence", &confidence);
    decision.set_some("decisions", &stated.read::<u32>("decisions"));
    (!decision.is_empty()).then_some(decision)
}

/// Returns a tool result with nothing but the reference and the decision of `reply`; `null` if it
/// has neither.
pub(crate) fn origin_of_reply(reply: &RawValue) -> Box<RawValue> {
    let place = RemoteTaskReference::from_reply(reply).map(|place| place.to_object());
    let mut meta = RawObject::new();
    meta.set_some(A2A_META, &place);
    meta.set_some(DECISION_META_KEY, &stated_decision(reply));
    match meta.is_empty() {
        true => RawValue::NULL.to_owned(),
        false => RawObject::single("_meta", meta).to_raw(),
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::ToolResult;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the decision that is kept of `stated`.
    fn kept(stated: Value) -> Value {
        let ToolResult(result) = ToolResult::text("so");
        let meta = RawObject::single(DECISION_META_KEY, stated);
        let origin = origin_of_reply(&result.with("_meta", meta).to_raw());
        let origin: Value = serde_json::from_str(origin.get()).unwrap();
        origin["_meta"][DECISION_META_KEY].clone()
    }

    /// Goal: of a stated decision only the documented members are kept, within their limits. Method:
    /// all of them; others, wrong types, and values at and over the limits.
    #[test]
    fn decisions_within_limits() {
        let all = json!({ "run": "run-1", "outcome": "remote far", "by": "rules", "confidence": 0.82, "decisions": 3 });
        assert_eq!(kept(all.clone()), all);
        let mut more = all.clone();
        more["prompt"] = json!("x".repeat(1_000_000));
        assert_eq!(kept(more), all);
        for (name, value, fits) in [
            ("by", json!("x".repeat(DECISION_TEXT_BYTES_MAX)), true),
            ("by", json!("x".repeat(DECISION_TEXT_BYTES_MAX + 1)), false),
            ("run", json!({ "id": 1 }), false),
            ("confidence", json!(1.0), true),
            ("confidence", json!(1.1), false),
            ("confidence", json!("high"), false),
            ("decisions", json!(-1), false),
        ] {
            let mut stated = all.clone();
            stated[name] = value.clone();
            let expected = if fits { value } else { Value::Null };
            assert_eq!(kept(stated)[name], expected, "{name}");
        }
        assert_eq!(kept(json!({ "other": 1 })), Value::Null);
    }
}
