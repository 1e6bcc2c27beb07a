//! The orchestrator as those see it who use tools: its own, and the pipeline as one of them.

use callboard_message::surface::{About, CallTool, Describe, ListTools};
use callboard_message::{Failure, RawObject, ToolResult};
use callboard_runtime::Cx;
use serde_json::{Value, json};

use super::call::answer;
use super::said::Said;
use super::{Asked, REQUEST, Shared};
use crate::decide::{Action, ConfirmWhy, Risk, RunId, ToolView, World};
use crate::guardrail::Origin;
use crate::router::task::{CONFIRM, Doubt, TOOL_COMMAND, confirm, passes, risk_of};
use crate::tools::may_run;

pub(super) async fn describe(shared: &Shared, _: Describe, _: &Cx) -> Result<About, Failure> {
    let options = &shared.options;
    let info = RawObject::of("name", &options.name).with("version", env!("CARGO_PKG_VERSION"));
    let tools = RawObject::of("tools", RawObject::new());
    let about = RawObject::of("serverInfo", info).with("capabilities", tools);
    Ok(About(match options.description.is_empty() {
        true => about,
        false => about.with("instructions", &options.description),
    }))
}

pub(super) async fn list_tools(shared: &Shared, _: ListTools, _: &Cx) -> Result<RawObject, Failure> {
    let own = shared.options.tools.list();
    let tools: Vec<RawObject> = [request_tool()].into_iter().chain(own.iter().map(tool)).collect();
    Ok(RawObject::of("tools", tools))
}

pub(super) async fn call_tool(shared: &Shared, message: CallTool, cx: &Cx) -> Result<ToolResult, Failure> {
    let CallTool(params) = message;
    let name = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
    let arguments = match params.get("arguments") {
        None => RawObject::new(),
        Some(raw) => RawObject::parse(raw).map_err(|_| Failure::invalid("`arguments` must be an object"))?,
    };
    if name == REQUEST {
        let text = arguments.text("text").ok_or_else(|| Failure::invalid("`text` must be a string"))?;
        return answer(shared, Said::request(text)?, cx).await;
    }
    let _place = shared.place()?;
    let options = &shared.options;
    options.tools.check(&name, &arguments)?;
    passes(options.guard.as_ref(), arguments.to_raw().get(), Origin::User).await?;
    if name == TOOL_COMMAND {
        may_run(cx.principal())?;
        // Whoever asks for it by its name is asked too.
        let action = Action::Local { tool: name.clone(), params: arguments.clone() };
        let doubt = Doubt {
            what: options.tools.account(&name, &arguments),
            action: Value::Null,
            why: ConfirmWhy::Risk,
            risk: risk_of(&action, &World::default()),
            always: true,
            key: CONFIRM,
        };
        confirm(&options.deciders, cx, &RunId::fresh(), &Asked::default(), doubt).await?;
    }
    options.tools.run(&name, arguments, cx).await
}

fn request_tool() -> RawObject {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string", "description": "What is wanted, in words." } },
        "required": ["text"],
        "additionalProperties": false,
    });
    let what = "Takes any request in words: answers it, delegates it, or does it in several steps.";
    RawObject::of("name", REQUEST)
        .with("description", what)
        .with("inputSchema", schema)
        .with("annotations", json!({ "openWorldHint": true }))
}

fn tool(view: &ToolView) -> RawObject {
    let hints = match view.risk {
        Risk::Reads => json!({ "readOnlyHint": true }),
        Risk::Writes => json!({ "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true }),
        Risk::Acts => json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false }),
    };
    RawObject::of("name", &view.name)
        .with("description", &view.description)
        .with("inputSchema", &view.params)
        .with("annotations", hints)
        .with("tags", &view.tags)
        .with("examples", &view.examples)
}
