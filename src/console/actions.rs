//! Actions at the console: each changes something on behalf of the viewer, whose name the audit has.

use actix_web::HttpResponse;
use callboard_mcp::bridge::UpstreamCommand;
use callboard_message::{CallId, Elicitation, ElicitationAnswer, RawObject};
use callboard_person::{InboxAnswer, InboxError, answer_inbox, inbox};
use callboard_rpc::serve::CredentialWatch;
use callboard_runtime::{
    ApprovalDecision, ApprovalError, AuditEntry, KvError, TaskActor, TaskError, TaskId,
    WaitingQuestionError, approve_tool, decide_approval,
};
use serde_json::{Map, Value};

use super::access::Role;
use super::form;
use super::mail::{MailDraft, send};
use super::play::list_tools;
use super::request::{ConsoleError, ConsoleRequest, query_value};
use super::screens::{callable_agent, mailroom};
use super::views::INBOX_PREFIX;

/// Action of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Answer,
    Approval,
    Tool,
    Task,
    Upstream,
    Play,
    PlayCancel,
    Mail,
}

/// Does what a request asks for.
///
/// # Errors
/// 422 for a request that is wrong, 404 for something that isn't there, 409 for something that somebody else changed;
/// the failures of agents and of the store.
pub(super) async fn act(
    request: &ConsoleRequest<'_>,
    action: Action,
) -> Result<HttpResponse, ConsoleError> {
    match action {
        Action::Answer => answer(request).await,
        Action::Approval => approval(request).await,
        Action::Tool => tool(request).await,
        Action::Task => task(request).await,
        Action::Upstream => upstream(request).await,
        Action::Play => play(request).await,
        Action::PlayCancel => play_cancel(request).await,
        Action::Mail => mail(request).await,
    }
}

/// Returns the values of a form: those that came as JSON, else those of its fields.
fn form_values(
    request: &ConsoleRequest<'_>,
    schema: &Value,
) -> Result<Map<String, Value>, ConsoleError> {
    match request.body.values() {
        Some(values) => Ok(values.clone()),
        None => form::values(schema, request.body.pairs()).map_err(ConsoleError::invalid),
    }
}

/// Adds an entry about an action to the audit.
async fn record(request: &ConsoleRequest<'_>, entry: AuditEntry) {
    let entry = entry.with_principal(&request.client.principal);
    request.console.system().audit().enqueue(entry).await;
}

/// Answers a question of a call, or in the inbox of a person. The audit entry is that of the question.
async fn answer(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    if request.client.is_open() {
        return Err(ConsoleError::denied(
            "nobody may answer at a console without keys: write `keys` in [console]",
        ));
    }
    match request.body.text("id").strip_prefix(INBOX_PREFIX) {
        Some(id) => answer_person(request, id).await?,
        None => answer_call(request, request.body.text("id"))?,
    }
    Ok(request.done("/questions", "answered", ""))
}

fn answer_call(request: &ConsoleRequest<'_>, id: &str) -> Result<(), ConsoleError> {
    request.require(Role::Act)?;
    let system = request.console.system();
    let gone = || ConsoleError::not_found(WaitingQuestionError::Unknown.to_string());
    let id: CallId = id.parse().map_err(|_| gone())?;
    let questions = system.waiting_questions().list();
    let mut shown = questions
        .iter()
        .filter(|question| (request.console.shown_agents)(&question.agent));
    let question = shown.find(|question| question.id == id);
    let question: &Elicitation = &question.ok_or_else(gone)?.question;
    let answer = match request.body.text("action") {
        "accept" => {
            // Nobody fills in a form unseen.
            request.require(Role::Content)?;
            let schema = question.schema().unwrap_or_default();
            ElicitationAnswer::accept(Value::Object(form_values(request, &schema)?))
        }
        "decline" => ElicitationAnswer::decline(),
        "cancel" => ElicitationAnswer::cancel(),
        _ => return Err(wrong_action()),
    };
    let by = &request.client.principal;
    let answered = system
        .waiting_questions()
        .answer(system.audit(), id, by, answer);
    answered.map_err(|error| match error {
        WaitingQuestionError::Unknown => gone(),
        error => ConsoleError::invalid(error.to_string()),
    })
}

async fn answer_person(request: &ConsoleRequest<'_>, id: &str) -> Result<(), ConsoleError> {
    let system = request.console.system();
    let store = &*system.store().kv;
    let answer = match request.body.text("action") {
        "accept" => {
            let waiting = inbox(store, None).await.map_err(ConsoleError::of_store)?;
            let asked = waiting.into_iter().find(|asked| asked.id == id);
            let asked = asked.filter(|asked| request.client.may_answer_for(&asked.person));
            let asked = asked.ok_or_else(|| inbox_error(InboxError::Unknown))?;
            let values = form_values(request, &asked.schema.unwrap_or_default())?;
            let mut content = RawObject::new();
            values
                .iter()
                .for_each(|(name, value)| content.set(name, value));
            InboxAnswer::Accept(content)
        }
        "decline" => InboxAnswer::Decline,
        "cancel" => InboxAnswer::Cancel,
        _ => return Err(wrong_action()),
    };
    let by = &request.client.principal;
    let answered = answer_inbox(store, system.audit(), id, by, answer).await;
    request.console.inbox.clear().await;
    answered.map_err(inbox_error)
}

fn wrong_action() -> ConsoleError {
    ConsoleError::invalid("`action` must be one of: accept, decline, cancel")
}

fn inbox_error(error: InboxError) -> ConsoleError {
    match error {
        InboxError::Unknown => ConsoleError::not_found(error.to_string()),
        InboxError::Answered => ConsoleError::conflict(error.to_string()),
        InboxError::Own => ConsoleError::denied(error.to_string()),
        InboxError::Store(error) => ConsoleError::of_store(error),
        error => ConsoleError::invalid(error.to_string()),
    }
}

/// Decides about a use of a tool. The rule that demands the approval says who may; nobody approves arguments unseen.
async fn approval(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let body = &request.body;
    let is_approved = match body.text("decision") {
        "approve" => true,
        "deny" => false,
        _ => {
            return Err(ConsoleError::invalid("`decision` must be approve or deny"));
        }
    };
    if is_approved {
        request.require(Role::Content)?;
    }
    let decision = ApprovalDecision {
        is_approved,
        reason: body.get("reason").map(str::to_owned),
    };
    let (store, by) = (
        &*request.console.system().store().kv,
        &request.client.principal,
    );
    let decided = decide_approval(store, body.text("id"), decision, by).await;
    let decided = decided.map_err(|error| match error {
        ApprovalError::Unknown => ConsoleError::not_found(error.to_string()),
        ApprovalError::Decided => ConsoleError::conflict(error.to_string()),
        ApprovalError::Own => ConsoleError::denied(error.to_string()),
        ApprovalError::Store(error) => ConsoleError::of_store(error),
        error => ConsoleError::invalid(error.to_string()),
    })?;
    let done = if is_approved { "approved" } else { "denied" };
    let entry = AuditEntry::new("console.approval_decided")
        .with_agent(decided.agent)
        .with_outcome(done)
        .with_detail("approval", decided.id)
        .with_detail("tool", decided.tool);
    record(request, entry).await;
    Ok(request.done("/approvals", done, ""))
}

/// Approves the version of a pinned tool that the viewer has seen.
async fn tool(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let body = &request.body;
    let (upstream, tool) = (body.text("upstream"), body.text("tool"));
    let topology = request.console.topology();
    if !topology.pinned.iter().any(|known| known == upstream) {
        return Err(ConsoleError::not_found("no such upstream has pinned tools"));
    }
    let store = &*request.console.system().store().kv;
    let approved = approve_tool(store, upstream, tool, body.text("hash")).await;
    let approved = approved.map_err(|error| match error {
        KvError::VersionConflict { .. } => ConsoleError::conflict(
            "the upstream lists another version by now: load the page again, and look at it",
        ),
        error => ConsoleError::of_store(error),
    })?;
    if !approved {
        let text = "there is nothing to approve: the tool is unknown, or approved already";
        return Err(ConsoleError::not_found(text));
    }
    let entry = AuditEntry::new("console.tool_approved")
        .with_peer(upstream)
        .with_detail("tool", tool)
        .with_detail("hash", body.text("hash"));
    record(request, entry).await;
    Ok(request.done("/tools", "approved", ""))
}

/// Cancels a task and its parts. A task that a worker runs is cancelled by its worker.
async fn task(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let body = &request.body;
    if body.text("action") != "cancel" {
        return Err(ConsoleError::invalid("`action` must be cancel"));
    }
    let unknown = || ConsoleError::not_found("there is no such task, or it isn't kept any more");
    let id = TaskId::new(body.text("id")).map_err(|_| unknown())?;
    let store = &request.console.system().store().tasks;
    let cancelled = store.request_cancel(&id, TaskActor::Operator).await;
    request.console.tasks.clear().await;
    let task = cancelled.map_err(|error| match error {
        TaskError::NotFound => unknown(),
        TaskError::HasEnded(_) => ConsoleError::conflict(error.to_string()),
        error => ConsoleError::of_store(error),
    })?;
    let entry = AuditEntry::new("console.task_cancelled")
        .with_agent(&*task.agent)
        .with_detail("task", id.as_str());
    record(request, entry).await;
    let location = format!("/tasks/{}", query_value(id.as_str()).replace('+', "%20"));
    Ok(request.done(&location, "cancelled", id.as_str()))
}

/// Retries an upstream, or turns it off or on until the node restarts.
async fn upstream(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let (name, action) = (request.body.text("name"), request.body.text("action"));
    let command = match action {
        "retry" => UpstreamCommand::Retry,
        "disable" => UpstreamCommand::Disable,
        "enable" => UpstreamCommand::Enable,
        _ => {
            let text = "`action` must be one of: retry, disable, enable";
            return Err(ConsoleError::invalid(text));
        }
    };
    let topology = request.console.topology();
    let is_known = topology.upstreams.iter().any(|known| known == name);
    let agent = request.console.system().directory().get(name);
    let agent = agent.filter(|_| is_known);
    let agent = agent.ok_or_else(|| ConsoleError::not_found("the node has no such upstream"))?;
    let bridge = agent.recipient::<UpstreamCommand>().ok_or_else(|| {
        ConsoleError::invalid("only upstreams of the kind MCP can be retried and turned off")
    })?;
    // Its mailbox has room for commands unless calls queue up.
    bridge.try_tell(command).map_err(|_| {
        ConsoleError::unavailable("the upstream is overloaded or has ended: try again")
    })?;
    let entry = AuditEntry::new("console.upstream_commanded")
        .with_peer(name)
        .with_detail("action", action);
    record(request, entry).await;
    Ok(request.done("/upstreams", action, ""))
}

/// Begins to call a tool as the viewer.
async fn play(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let (body, principal) = (&request.body, &request.client.principal);
    let (id, tool) = (body.text("agent"), body.text("tool"));
    let agent = callable_agent(request, id)?;
    let tools = list_tools(&agent, principal).await?;
    let known = tools.into_iter().find(|known| known.name == tool);
    let known = known.ok_or_else(|| {
        ConsoleError::not_found("the agent has no such tool, or you may not use it")
    })?;
    let arguments = form_values(request, &known.schema)?;
    let console = request.console;
    let watch = CredentialWatch::new(request.request, &console.access.access);
    let run = console
        .runs
        .start(agent, tool, arguments, principal, watch)?;
    let entry = AuditEntry::new("console.tool_called")
        .with_agent(id)
        .with_detail("tool", tool);
    record(request, entry).await;
    let location = format!(
        "/play?agent={}&tool={}&run={run}",
        query_value(id),
        query_value(tool)
    );
    Ok(request.done(&location, "started", &run))
}

async fn play_cancel(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let (runs, principal) = (&request.console.runs, &request.client.principal);
    let id = request.body.text("id");
    let run = runs.find(id, principal);
    let run = run.filter(|_| runs.cancel(id, principal));
    let run = run.ok_or_else(|| ConsoleError::not_found("no such call of yours runs"))?;
    let entry = AuditEntry::new("console.call_cancelled")
        .with_agent(&*run.agent)
        .with_detail("tool", &*run.tool);
    record(request, entry).await;
    let location = format!(
        "/play?agent={}&tool={}&run={}",
        query_value(&run.agent),
        query_value(&run.tool),
        query_value(&run.id)
    );
    Ok(request.done(&location, "cancelled", id))
}

/// Sends mail as the viewer.
async fn mail(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let body = &request.body;
    let room = mailroom(request, body.text("room"))?;
    let draft = MailDraft {
        to: body.text("to"),
        subject: body.text("subject"),
        body: body.text("body"),
        thread: body.text("thread"),
    };
    let sent = send(&room, &request.client.principal, &draft).await?;
    if !sent.success {
        return Err(ConsoleError::invalid(sent.message));
    }
    let id = sent.message_id.unwrap_or_default();
    let entry = AuditEntry::new("console.mail_sent")
        .with_agent(room.to_string())
        .with_detail("message", &*id);
    record(request, entry).await;
    let location = format!(
        "/mail?room={}&thread={}",
        query_value(&room.to_string()),
        query_value(sent.thread.as_deref().unwrap_or_default())
    );
    Ok(request.done(&location, "sent", &id))
}
