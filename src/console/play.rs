//! Calls of tools from the console. They are made as the viewer's principal, so that rules, limits and audit apply to
//! them as to any other call of that principal.

use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::capabilities::{CallTool, ListTools, RESERVED_PREFIX};
use callboard_message::text::cut_bytes;
use callboard_message::{Failure, Message, Principal, RawMessage, RawObject};
use callboard_rpc::serve::CredentialWatch;
use callboard_runtime::{
    AccessItem, AgentRef, CallContext, Caller, has_ambiguous_names, inbound_policy,
};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pages::{PlayRun, PlayTool};
use super::session::random_token;

/// Maximum number of kept runs. Beyond it, the oldest one that has ended is forgotten.
pub(super) const PLAY_RUNS_MAX: usize = 256;
/// Maximum number of kept runs of one principal. Beyond it, its oldest one that has ended is
/// forgotten.
pub(super) const PLAY_RUNS_PER_PRINCIPAL_MAX: usize = 16;
/// Maximum number of calls of one principal that run at once. A further one is refused.
pub(super) const PLAY_RUNNING_MAX: usize = 4;
/// Maximum duration of a call, questions included.
const PLAY_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Time for which a run is kept after its end.
const RUN_KEPT_TIME: Duration = Duration::from_secs(15 * 60);
/// Maximum duration of a list of tools, of a search in mail, and of sending mail.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum size of a result that is shown, in bytes. A longer one is cut.
const RESULT_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of pages of a list of tools that are read.
const TOOL_PAGES_MAX: usize = 20;

/// Caller without a client: its questions wait for a person at the console, if the node has them wait there.
struct PlayCaller;

impl Caller for PlayCaller {}

/// Call that was begun at the console.
struct Run {
    id: String,
    owner: Arc<Principal>,
    agent: String,
    tool: String,
    cancel: CancellationToken,
    /// Cancelled when the run is forgotten before its time.
    forgotten: CancellationToken,
    end: Mutex<Option<RunEnd>>,
}

/// Result of a call.
struct RunEnd {
    ms: f64,
    outcome: String,
    text: String,
    raw: String,
}

/// Calls that were begun at the console, oldest first.
#[derive(Default)]
pub(super) struct PlayRuns(Arc<RunList>);

type RunList = Mutex<Vec<Arc<Run>>>;

impl Run {
    fn is_running(&self) -> bool {
        self.end.lock().is_none()
    }

    /// Returns whether the run counts for a principal's limits.
    fn counts_for(&self, principal: &Principal) -> bool {
        self.owner.kind == principal.kind && self.owner.id == principal.id
    }

    /// Returns whether a principal may read the run: it has the credential's scopes too.
    fn is_of(&self, principal: &Principal) -> bool {
        *self.owner == *principal
    }

    fn view(&self) -> PlayRun {
        let end = self.end.lock();
        let text = |part: fn(&RunEnd) -> &String| end.as_ref().map(part).cloned();
        PlayRun {
            id: self.id.clone(),
            agent: self.agent.clone(),
            tool: self.tool.clone(),
            is_running: end.is_none(),
            ms: end.as_ref().map(|end| end.ms),
            outcome: text(|end| &end.outcome).unwrap_or_else(|| "running".to_owned()),
            text: text(|end| &end.text).unwrap_or_default(),
            raw: text(|end| &end.raw).unwrap_or_default(),
        }
    }
}

impl PlayRuns {
    /// Begins to call a tool in the background, and returns the id of the run. It is cancelled when the credential of
    /// `watch` is revoked.
    ///
    /// # Errors
    /// `Overloaded` if too many calls of the principal run, or too many of all.
    pub(super) fn start(
        &self,
        agent: AgentRef,
        tool: &str,
        arguments: Map<String, Value>,
        owner: &Arc<Principal>,
        mut watch: CredentialWatch,
    ) -> Result<String, Failure> {
        let run = Arc::new(Run {
            id: random_token(),
            owner: owner.clone(),
            agent: agent.to_string(),
            tool: tool.to_owned(),
            cancel: CancellationToken::new(),
            forgotten: CancellationToken::new(),
            end: Mutex::new(None),
        });
        self.add(run.clone())?;
        let id = run.id.clone();
        let runs = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let began = Instant::now();
            let cancelled = async {
                tokio::select! {
                    () = run.cancel.cancelled() => "it was cancelled at the console",
                    () = watch.wait_revoked() => {
                        run.cancel.cancel();
                        "the credential that began it was revoked or has expired"
                    }
                }
            };
            let reply = tokio::select! {
                reply = call_tool(&agent, &run, arguments) => reply,
                why = cancelled => Err(Failure::cancelled(why)),
            };
            let ms = began.elapsed().as_secs_f64() * 1_000.0;
            *run.end.lock() = Some(RunEnd::of(reply, ms));
            let (id, forgotten) = (run.id.clone(), run.forgotten.clone());
            drop((agent, run));
            forgotten.run_until_cancelled(forget_later(runs, id)).await;
        });
        Ok(id)
    }

    fn add(&self, run: Arc<Run>) -> Result<(), Failure> {
        let mut runs = self.0.lock();
        let own = |other: &&Arc<Run>| other.counts_for(&run.owner);
        if runs.iter().filter(own).filter(|r| r.is_running()).count() >= PLAY_RUNNING_MAX {
            return Err(Failure::overloaded(format!(
                "{PLAY_RUNNING_MAX} of your calls run already: wait for one, or cancel it"
            )));
        }
        if runs.iter().filter(own).count() >= PLAY_RUNS_PER_PRINCIPAL_MAX {
            forget_oldest(&mut runs, |other| other.counts_for(&run.owner));
        }
        if runs.len() >= PLAY_RUNS_MAX && !forget_oldest(&mut runs, |_| true) {
            return Err(Failure::overloaded(
                "too many calls run from the console: try again later",
            ));
        }
        runs.push(run);
        Ok(())
    }

    /// Returns a run of a principal; `None` if it has none with this id.
    pub(super) fn find(&self, id: &str, owner: &Principal) -> Option<PlayRun> {
        self.get(id, owner).map(|run| run.view())
    }

    /// Returns the latest run of a tool by a principal; `None` without one.
    pub(super) fn latest(&self, agent: &str, tool: &str, owner: &Principal) -> Option<PlayRun> {
        let runs = self.0.lock();
        let mut newest_first = runs.iter().rev();
        let found = newest_first
            .find(|run| run.is_of(owner) && run.agent == agent && run.tool == tool)
            .cloned();
        drop(runs);
        found.map(|run| run.view())
    }

    /// Cancels a run of a principal. Returns whether it ran.
    pub(super) fn cancel(&self, id: &str, owner: &Principal) -> bool {
        let run = self.get(id, owner).filter(|run| run.is_running());
        run.iter().for_each(|run| run.cancel.cancel());
        run.is_some()
    }

    /// Cancels all runs.
    pub(super) fn cancel_all(&self) {
        self.0.lock().iter().for_each(|run| run.cancel.cancel());
    }

    fn get(&self, id: &str, owner: &Principal) -> Option<Arc<Run>> {
        let runs = self.0.lock();
        let found = runs.iter().find(|run| run.id == id && run.is_of(owner));
        found.cloned()
    }
}

/// Forgets a run that has ended after [`RUN_KEPT_TIME`].
async fn forget_later(runs: Weak<RunList>, id: String) {
    tokio::time::sleep(RUN_KEPT_TIME).await;
    if let Some(runs) = runs.upgrade() {
        runs.lock().retain(|run| run.id != id);
    }
}

/// Returns a text without the part beyond [`RESULT_BYTES_MAX`].
fn cut(mut text: String) -> String {
    text.truncate(cut_bytes(&text, RESULT_BYTES_MAX).len());
    text.shrink_to_fit();
    text
}

/// Forgets the oldest run that has ended, of those that `is_meant` holds for. Returns whether there was one.
fn forget_oldest(runs: &mut Vec<Arc<Run>>, is_meant: impl Fn(&Run) -> bool) -> bool {
    let oldest = runs
        .iter()
        .position(|run| !run.is_running() && is_meant(run));
    oldest
        .map(|at| runs.remove(at).forgotten.cancel())
        .is_some()
}

impl RunEnd {
    fn of(reply: Result<Box<RawValue>, Failure>, ms: f64) -> Self {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => {
                let raw = serde_json::to_string_pretty(&failure).unwrap_or_default();
                return Self {
                    ms,
                    outcome: failure.kind.to_string(),
                    text: cut(failure.message),
                    raw: cut(raw),
                };
            }
        };
        let value: Value = serde_json::from_str(reply.get()).unwrap_or_default();
        let is_error = value.get("isError") == Some(&Value::Bool(true));
        let raw = cut(serde_json::to_string_pretty(&value).unwrap_or_default());
        let text = cut(result_text(&value).unwrap_or_else(|| raw.clone()));
        Self {
            ms,
            outcome: if is_error { "tool_error" } else { "ok" }.to_owned(),
            text,
            raw,
        }
    }
}

/// Returns the texts of a tool result, and its structured content if it has no texts; `None` if the value is no tool
/// result.
fn result_text(value: &Value) -> Option<String> {
    let blocks = value.get("content")?.as_array()?;
    let texts = blocks
        .iter()
        .filter_map(|block| block.get("text")?.as_str());
    let texts = texts.collect::<Vec<_>>().join("\n");
    match value.get("structuredContent") {
        Some(content) if texts.is_empty() => serde_json::to_string_pretty(content).ok(),
        _ => Some(texts),
    }
}

/// Returns whether an agent lists and calls its tools itself, so that its message types aren't tools.
fn lists_tools(agent: &AgentRef) -> bool {
    let is_list = |name: &str| name == ListTools::NAME;
    agent.is_proxy() || agent.specs().iter().any(|spec| is_list(&spec.name))
}

async fn call_tool(
    agent: &AgentRef,
    run: &Run,
    arguments: Map<String, Value>,
) -> Result<Box<RawValue>, Failure> {
    let (name, tool) = (agent.to_string(), &*run.tool);
    if tool.starts_with(RESERVED_PREFIX) && !agent.authorizes_itself() {
        return Err(Failure::not_found("the agent has no such tool"));
    }
    let arguments = to_raw_value(&arguments)
        .map_err(|_| Failure::invalid("the arguments can't be written as JSON"))?;
    if inbound_policy::judges_names(agent, &run.owner) && has_ambiguous_names(&arguments) {
        return Err(Failure::invalid(
            "a member's name is that of another one but for its case: leave it out",
        ));
    }
    let call = CallContext {
        cancel: run.cancel.child_token(),
        ..call_context(&run.owner, PLAY_TIME_MAX)
    };
    let call = call.with_caller(Arc::new(PlayCaller));
    inbound_policy::admit(agent, &name, tool, &arguments, &call).await?;
    let sent = match lists_tools(agent) {
        true => RawMessage {
            name: CallTool::NAME.to_owned(),
            payload: CallTool::new(tool, &arguments).0.to_raw(),
        },
        false => RawMessage {
            name: tool.to_owned(),
            payload: arguments,
        },
    };
    let message = sent.name.clone();
    inbound_policy::ask(agent, &name, &message, sent, call).await
}

fn call_context(principal: &Arc<Principal>, time_max: Duration) -> CallContext {
    CallContext::new(principal.clone()).with_deadline(Instant::now() + time_max)
}

/// Sends an agent a message as `principal`, and returns the reply. The inbound policy checks both.
///
/// # Errors
/// Returns the failure of the policy, the agent or the runtime.
pub(super) async fn ask_agent<T, M>(
    agent: &AgentRef,
    principal: &Arc<Principal>,
    message: &M,
) -> Result<T, Failure>
where
    T: 'static,
    M: Message<Reply = Result<T, Failure>>,
{
    let no_codec = || Failure::internal(format!("{} can't be written as JSON", M::NAME));
    let codec = M::codec().ok_or_else(no_codec)?;
    let payload = (codec.encode)(message).map_err(|_| no_codec())?;
    let (name, call) = (agent.to_string(), call_context(principal, REQUEST_TIME_MAX));
    inbound_policy::admit(agent, &name, M::NAME, &payload, &call).await?;
    let sent = RawMessage {
        name: M::NAME.to_owned(),
        payload,
    };
    let reply = inbound_policy::ask(agent, &name, M::NAME, sent, call).await;
    (codec.decode_reply)(reply).and_then(|reply| reply)
}

/// Returns the tools of an agent that a principal may use.
///
/// # Errors
/// Returns the failure of the policy, the agent or the runtime.
pub(super) async fn list_tools(
    agent: &AgentRef,
    principal: &Arc<Principal>,
) -> Result<Vec<PlayTool>, Failure> {
    if lists_tools(agent) {
        return list_by_agent(agent, principal).await;
    }
    let name = agent.to_string();
    let may_use = |tool: &str| {
        !tool.starts_with(RESERVED_PREFIX)
            && inbound_policy::may_use(agent, &name, principal, AccessItem::tool(tool))
    };
    let specs = agent.specs().into_iter();
    let tools = specs.filter(|spec| may_use(&spec.name));
    Ok(tools
        .map(|spec| PlayTool {
            name: spec.name,
            description: spec.description,
            schema: spec.input_schema,
        })
        .collect())
}

async fn list_by_agent(
    agent: &AgentRef,
    principal: &Arc<Principal>,
) -> Result<Vec<PlayTool>, Failure> {
    let mut tools = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..TOOL_PAGES_MAX {
        let mut params = RawObject::new();
        params.set_some("cursor", &cursor);
        let page: RawObject = ask_agent(agent, principal, &ListTools(params)).await?;
        let listed: Vec<RawObject> = page.read("tools").unwrap_or_default();
        tools.extend(listed.iter().filter_map(|tool| {
            Some(PlayTool {
                name: tool.text("name")?,
                description: tool.text("description").unwrap_or_default(),
                schema: tool.read("inputSchema").unwrap_or_default(),
            })
        }));
        cursor = page.text("nextCursor");
        if cursor.is_none() {
            break;
        }
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(owner: &str) -> Arc<Run> {
        Arc::new(Run {
            id: random_token(),
            owner: Arc::new(Principal::agent(owner)),
            agent: "agent".to_owned(),
            tool: "tool".to_owned(),
            cancel: CancellationToken::new(),
            forgotten: CancellationToken::new(),
            end: Mutex::new(None),
        })
    }

    fn end(run: &Run) {
        let reply = to_raw_value(&json!({ "content": [{ "type": "text", "text": "done" }] }));
        *run.end.lock() = Some(RunEnd::of(Ok(reply.unwrap()), 1.0));
    }

    /// Goal: a principal has at most so many running calls, and so many that are kept; others' aren't touched.
    /// Method: one more than each limit.
    #[test]
    fn runs_are_bounded() {
        let runs = PlayRuns::default();
        let other = run("b");
        runs.add(other.clone()).unwrap();
        for _ in 0..PLAY_RUNNING_MAX {
            runs.add(run("a")).unwrap();
        }
        assert!(runs.add(run("a")).is_err());
        runs.0.lock().iter().for_each(|run| end(run));
        let first = runs.0.lock()[1].clone();
        for _ in 0..PLAY_RUNS_PER_PRINCIPAL_MAX - PLAY_RUNNING_MAX {
            let run = run("a");
            runs.add(run.clone()).unwrap();
            end(&run);
        }
        let a = Principal::agent("a");
        assert!(runs.find(&first.id, &a).is_some() && !first.forgotten.is_cancelled());
        runs.add(run("a")).unwrap();
        assert!(runs.find(&first.id, &a).is_none() && first.forgotten.is_cancelled());
        assert!(runs.find(&other.id, &a).is_none());
        assert!(runs.find(&other.id, &other.owner).is_some());
    }

    /// Goal: a result is read by the principal that asked for it alone, with the scopes that it had then, and is forgotten
    /// after its time. Method: others, other scopes; paused time on both sides.
    #[tokio::test(start_paused = true)]
    async fn runs_are_for_their_owner() {
        let (runs, run) = (PlayRuns::default(), run("a"));
        runs.add(run.clone()).unwrap();
        end(&run);
        let a = Principal::agent("a");
        let other_scopes = Principal {
            scopes: vec!["console.act".to_owned()],
            ..a.clone()
        };
        for other in [Principal::agent("b"), other_scopes] {
            assert!(runs.find(&run.id, &other).is_none());
            assert!(runs.latest("agent", "tool", &other).is_none());
        }
        let forgotten = tokio::spawn(forget_later(Arc::downgrade(&runs.0), run.id.clone()));
        tokio::time::sleep(RUN_KEPT_TIME - Duration::from_secs(1)).await;
        assert!(runs.find(&run.id, &a).is_some());
        forgotten.await.unwrap();
        assert!(runs.find(&run.id, &a).is_none());
    }

    /// Goal: results are shown as what they are. Method: one of each kind.
    #[test]
    fn results() {
        let ended = |value: Value| RunEnd::of(Ok(to_raw_value(&value).unwrap()), 1.0);
        let text = ended(json!({ "content": [{ "type": "text", "text": "hi" }] }));
        assert_eq!((&*text.outcome, &*text.text), ("ok", "hi"));
        let error = ended(json!({ "content": [], "isError": true, "structuredContent": 1 }));
        assert_eq!((&*error.outcome, &*error.text), ("tool_error", "1"));
        let value = ended(json!({ "a": 1 }));
        assert!(value.outcome == "ok" && value.text.contains("\"a\": 1"));
        let long = ended(json!("é".repeat(RESULT_BYTES_MAX)));
        assert!(long.raw.len() <= RESULT_BYTES_MAX);
        let failed = RunEnd::of(Err(Failure::denied("no")), 1.0);
        assert_eq!((&*failed.outcome, &*failed.text), ("denied", "no"));
    }
}
