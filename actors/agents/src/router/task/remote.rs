//! How another agent is told something: in words, or by its only tool that takes some.

use callboard_message::surface::{CallTool, Converse, ListTools, RESERVED_PREFIX};
use callboard_message::{Content, Failure, FailureKind, Message as _, MessageSpec, RawObject, ToolResult};
use callboard_runtime::AgentRef;
use serde_json::Value;

use super::Errand;
use super::follow_up::{FollowUps, with_follow_ups};
use crate::decide::{RunId, Turn, withheld};

/// The member of a message's metadata that makes a callboard do it once.
const ONCE: &str = "callboard/key";
/// Tools that an error names at most.
const NAMED_MAX: usize = 16;

/// Something that another agent is told.
pub(super) struct Telling<'a> {
    pub agent: &'a AgentRef,
    pub id: &'a str,
    pub text: &'a str,
    /// The same again is the same task.
    pub key: &'a str,
    /// Our conversation.
    pub context: &'a str,
}

/// Tells it, and hears the answer. What it asks meanwhile goes to whoever called.
pub(super) async fn tell(errand: &Errand<'_>, telling: Telling<'_>) -> Result<ToolResult, Failure> {
    let options = errand.options;
    let Telling { agent, id, text, .. } = telling;
    let mut history = errand.history.to_vec();
    history.push(Turn::user(errand.goal));
    if text != errand.goal {
        history.push(Turn::assistant(format!("[to {id}] {text}")));
    }
    let follow_ups = FollowUps { deciders: options.deciders.clone(), run: errand.run.clone(), history };
    let cx = with_follow_ups(errand.cx, follow_ups);
    // What the guardrail has yet to judge nobody sees.
    let cx = if options.guard.is_some() { withheld(&cx) } else { cx };
    let specs = agent.specs();
    let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
    if converses || agent.is_outside() {
        let said = converse(&telling, &options.id);
        match cx.ask(agent, said).await.map_err(Failure::from).and_then(|reply| reply) {
            // It speaks a protocol that has only tools.
            Err(failure) if failure.kind == FailureKind::NotFound && !converses => {}
            other => return other,
        }
    }
    if agent.is_outside() || specs.iter().any(|spec| spec.name == ListTools::NAME) {
        let listed = cx.ask(agent, ListTools(RawObject::new())).await.map_err(Failure::from)??;
        let tools: Vec<RawObject> = listed.read("tools").unwrap_or_default();
        let named = |tool: &RawObject| Some((tool.text("name")?, tool.read("inputSchema").unwrap_or_default()));
        let (name, arguments) = only(tools.iter().filter_map(named), id, text)?;
        return cx.ask(agent, CallTool::new(&name, arguments)).await.map_err(Failure::from)?;
    }
    let messages = specs.iter().filter(|spec| !spec.name.starts_with(RESERVED_PREFIX));
    let named = messages.clone().map(|spec| (spec.name.clone(), spec.input_schema.clone()));
    let (name, arguments) = only(named, id, text)?;
    let reply = agent.ask_named(&*name, arguments.to_raw(), cx.next_hop()).await?;
    let spec = messages.clone().find(|spec| spec.name == name);
    Ok(result_of(spec, &reply))
}

fn converse(telling: &Telling<'_>, us: &str) -> Converse {
    let Converse(body) = Converse::of([Content::text(telling.text)]);
    let body = body.with("key", telling.key).with("metadata", RawObject::of(ONCE, telling.key));
    Converse(match telling.context {
        "" => body,
        // Ours says nothing to it, and is nobody's business there.
        context => body.with("context", RunId::of(us, telling.id, context, "context").as_str()),
    })
}

/// The only tool that takes one text, and nothing else for sure.
fn only(tools: impl Iterator<Item = (String, Value)>, agent: &str, text: &str) -> Result<(String, RawObject), Failure> {
    let mut names = Vec::new();
    let mut fitting = Vec::new();
    for (name, schema) in tools {
        if let Some(member) = text_member(&schema) {
            fitting.push((name.clone(), RawObject::of(&member, text)));
        }
        names.push(name);
    }
    match (fitting.pop(), fitting.is_empty()) {
        (Some(found), true) => Ok(found),
        _ => {
            names.truncate(NAMED_MAX);
            let why = format!("{agent} takes no plain words; it has the tools: {}", names.join(", "));
            Err(Failure::invalid(why))
        }
    }
}

/// The one required member, where it is a text.
pub(crate) fn text_member(schema: &Value) -> Option<String> {
    let required = schema.get("required")?.as_array()?;
    let [only] = &**required else { return None };
    let name = only.as_str()?;
    (schema.get("properties")?.get(name)?.get("type")? == "string").then(|| name.to_owned())
}

/// A plain reply as a tool's result.
fn result_of(spec: Option<&MessageSpec>, reply: &serde_json::value::RawValue) -> ToolResult {
    let is_result = spec.is_some_and(|spec| spec.output_schema.is_none());
    match (is_result, serde_json::from_str::<String>(reply.get())) {
        (true, _) => serde_json::from_str(reply.get()).unwrap_or_else(|_| ToolResult::text(reply.get())),
        (false, Ok(text)) => ToolResult::text(text),
        (false, Err(_)) if reply.get().starts_with('{') => ToolResult::text(reply.get()).structured(reply),
        (false, Err(_)) => ToolResult::text(reply.get()),
    }
}
