//! General orchestrator: answers requests with its own tools, other agents, or a plan of both.
//!
//! A request that one tool or one agent can handle is handled within its call. A plan is stored
//! before any step runs: as a root task and one task per step, which the node's task runner
//! executes while the call follows them. So plans survive a restart of the process.

mod execution;
mod plan;
mod question_dedup;
mod request;
mod request_pipeline;
mod resubmission;
mod run_follower;
mod task_notifier;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use callboard_guardrail::TextOrigin;
use callboard_message::capabilities::{
    CallTool, Converse, DescribeAgent, DescribeAgentResult, ListTools,
};
use callboard_message::{DataClass, Failure, FailureKind, Message, RawObject, ToolResult};
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, ConcurrentHandler, Context, Handlers,
    PRINCIPAL_SHARE_PERCENT_DEFAULT, PrincipalShares, SharePermit,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::decide::intake::IntakeOptions;
use crate::decide::limits::{CONTEXT_AGENTS_MAX, CONTEXT_TOOLS_MAX};
use crate::decide::{Action, ConfirmReason, Deciders, Risk, RoutingContext, RunId, ToolView};
use crate::memory::DelegatedRequestLog;
use crate::peer_registry::PeerRegistry;
use crate::tool_name::EXECUTE_COMMAND;
use crate::tools::{Toolbox, check_may_run};

use execution::{CONFIRM_KEY, ConfirmationRequest, action_risk, check_guardrail, confirm};
use plan::{RunPlan, RunStep};
use question_dedup::RunStore;
use request::{ConversationCache, ParsedRequest};
use request_pipeline::handle_request;
use resubmission::ResubmissionCounter;
use task_notifier::TaskNotifier;

pub(crate) use question_dedup::QuestionHistory;
pub use request::CONVERSATIONS_MAX;

/// Maximum concurrent calls of one orchestrator, of which one principal has at most three quarters.
/// Further calls are rejected with `Overloaded`. Fixed.
pub const CONCURRENT_CALLS_MAX: usize = 1_024;
/// Additional handler slots for calls beyond [`CONCURRENT_CALLS_MAX`], which are rejected at once,
/// so that they never delay the orchestrator's own steps.
const REFUSED_CALLS_MAX: usize = 64;
/// Maximum concurrent step and plan tasks of one orchestrator. The node's task runner has a lower
/// limit of its own.
const CONCURRENT_STEPS_MAX: u32 = 1_024;
/// Name of the tool that runs the whole request pipeline, for clients that only call tools.
pub(crate) const REQUEST_TOOL: &str = "request";
/// Default confidence threshold, 0 to 1. Answers with less confidence need confirmation.
pub const CONFIDENCE_MIN_DEFAULT: f32 = 0.4;
/// Default time for which the tasks of a run are kept.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// Agent that handles requests with tools, other agents and plans.
#[derive(derive_more::Debug, Clone)]
#[debug("TaskOrchestrator {{ id: {:?}, .. }}", shared.options.id)]
pub struct TaskOrchestrator {
    shared: Arc<OrchestratorShared>,
}

/// State shared by all calls.
struct OrchestratorShared {
    options: TaskOrchestratorOptions,
    conversations: ConversationCache,
    notifier: TaskNotifier,
    call_shares: Arc<PrincipalShares>,
    /// Numbers of ended calls, by final state: completed, failed, rejected, canceled.
    ended_counts: [AtomicU64; 4],
    resubmissions: ResubmissionCounter,
}

impl TaskOrchestrator {
    /// Creates the orchestrator. It must be registered in its system's directory under
    /// [`TaskOrchestratorOptions::id`], and a [`TaskRunner`](callboard_runtime::TaskRunner) of the
    /// system must serve the scope `agent`, because it runs the steps of plans.
    pub fn new(options: TaskOrchestratorOptions) -> Self {
        let shared = OrchestratorShared {
            options,
            conversations: ConversationCache::default(),
            notifier: TaskNotifier::default(),
            call_shares: PrincipalShares::new(
                CONCURRENT_CALLS_MAX,
                PRINCIPAL_SHARE_PERCENT_DEFAULT,
            ),
            ended_counts: Default::default(),
            resubmissions: ResubmissionCounter::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl OrchestratorShared {
    /// Reserves a slot for a call. Fails with `Overloaded` if [`CONCURRENT_CALLS_MAX`] calls are in
    /// progress, or more than its share are of the call's principal.
    fn acquire_call_permit(&self, cx: &Context) -> Result<SharePermit, Failure> {
        let permit = self.call_shares.try_acquire(cx.principal());
        permit.map_err(|error| Failure::overloaded(format!("too many requests: {error}")))
    }

    fn run_store(&self, cx: &Context, run: &RunId) -> RunStore {
        RunStore::new(
            cx.system().store().kv.clone(),
            &self.options.id,
            self.options.class,
            run.clone(),
        )
    }

    fn count_outcome(&self, answer: &Result<ToolResult, Failure>) {
        let at = match answer.as_ref().map_err(|failure| failure.kind) {
            Ok(_) => 0,
            Err(FailureKind::Rejected) => 2,
            Err(FailureKind::Cancelled) => 3,
            Err(_) => 1,
        };
        self.ended_counts[at].fetch_add(1, Relaxed);
    }
}

impl Agent for TaskOrchestrator {
    fn handlers(on: &mut Handlers<Self>) {
        let calls = (CONCURRENT_CALLS_MAX + REFUSED_CALLS_MAX) as u32;
        on.concurrent::<Converse>(calls).idempotent::<Converse>();
        on.concurrent::<CallTool>(calls)
            .concurrent::<ListTools>(calls)
            .concurrent::<DescribeAgent>(calls);
        on.concurrent::<RunStep>(CONCURRENT_STEPS_MAX)
            .concurrent::<RunPlan>(CONCURRENT_STEPS_MAX);
    }

    fn profile() -> AgentProfile {
        // Cancel-safe: the state is a shared handle. The mailbox leaves room for steps beside all
        // calls.
        AgentProfile::default()
            .cancel_safe()
            .mailbox_capacity((4 * CONCURRENT_CALLS_MAX) as u32)
    }

    fn observe(&self) -> Value {
        let OrchestratorShared {
            options,
            notifier,
            call_shares,
            ended_counts: ended,
            resubmissions,
            ..
        } = &*self.shared;
        let [completed, failed, rejected, canceled] =
            ended.each_ref().map(|count| count.load(Relaxed));
        json!({
            "in_flight": call_shares.used(),
            "followed": notifier.followed_runs(),
            "ended": { "completed": completed, "failed": failed, "rejected": rejected, "canceled": canceled },
            "requests": resubmissions.observe(),
            "decisions": options.deciders.observe(),
        })
    }
}

/// Message of the orchestrator. All of them are handled concurrently, on the shared state.
trait SharedStateMessage: Message {
    /// Handles the message.
    fn handle(
        self,
        shared: &OrchestratorShared,
        cx: &Context,
    ) -> impl Future<Output = Self::Reply> + Send;
}

impl<M: SharedStateMessage> ConcurrentHandler<M> for TaskOrchestrator {
    fn handle(
        &mut self,
        message: M,
        cx: Context,
    ) -> impl Future<Output = M::Reply> + Send + 'static {
        let shared = self.shared.clone();
        async move { message.handle(&shared, &cx).await }
    }
}

/// Options of a [`TaskOrchestrator`].
#[derive(Debug, Clone)]
pub struct TaskOrchestratorOptions {
    /// Agent id in the topology.
    pub id: String,
    /// Display name, used in agent cards.
    pub name: String,
    /// Description, used in agent cards.
    pub description: String,
    /// Deciders of all decision points.
    pub deciders: Arc<Deciders>,
    /// Options of request routing.
    pub intake: IntakeOptions,
    /// Confidence threshold, 0 to 1. Answers with less confidence need confirmation.
    pub confidence_min: f32,
    /// Risk threshold, 0 to 1. Riskier actions need confirmation.
    pub max_risk: f32,
    /// Expected cost of a request in millionths of a US dollar above which confirmation is needed.
    /// `None` disables the check.
    pub cost_micro_usd_max: Option<u64>,
    /// Built-in tools.
    pub tools: Toolbox,
    /// Registry of the agents that requests can be delegated to.
    pub peer_registry: PeerRegistry,
    /// Log of delegated requests.
    pub memory: DelegatedRequestLog,
    /// Guardrail agent that screens incoming text; it answers `Screen` messages. `None` disables
    /// screening.
    pub guard: Option<AgentRef>,
    /// System prompt for the model that writes answers.
    pub system_prompt: String,
    /// Data class of requests.
    pub class: DataClass,
    /// Time for which the tasks of a run are kept.
    pub task_ttl: Duration,
    /// Cancelled when the node shuts down. Runs interrupted by it resume after the next start.
    pub shutdown: CancellationToken,
}

impl SharedStateMessage for DescribeAgent {
    async fn handle(
        self,
        shared: &OrchestratorShared,
        _: &Context,
    ) -> Result<DescribeAgentResult, Failure> {
        let options = &shared.options;
        let info =
            RawObject::single("name", &options.name).with("version", env!("CARGO_PKG_VERSION"));
        let tools = RawObject::single("tools", RawObject::new());
        let about = RawObject::single("serverInfo", info).with("capabilities", tools);
        Ok(DescribeAgentResult(match options.description.is_empty() {
            true => about,
            false => about.with("instructions", &options.description),
        }))
    }
}

impl SharedStateMessage for ListTools {
    async fn handle(self, shared: &OrchestratorShared, _: &Context) -> Result<RawObject, Failure> {
        let own = shared.options.tools.list();
        let tools: Vec<RawObject> = [request_tool_entry()]
            .into_iter()
            .chain(own.iter().map(tool_list_entry))
            .collect();
        Ok(RawObject::single("tools", tools))
    }
}

impl SharedStateMessage for CallTool {
    async fn handle(
        self,
        shared: &OrchestratorShared,
        cx: &Context,
    ) -> Result<ToolResult, Failure> {
        call_tool(shared, self, cx).await
    }
}

async fn call_tool(
    shared: &OrchestratorShared,
    message: CallTool,
    cx: &Context,
) -> Result<ToolResult, Failure> {
    let CallTool(params) = message;
    let name = params
        .text("name")
        .ok_or_else(|| Failure::invalid("`name` must be a string"))?;
    let arguments = match params.get("arguments") {
        None => RawObject::new(),
        Some(raw) => {
            RawObject::parse(raw).map_err(|_| Failure::invalid("`arguments` must be an object"))?
        }
    };
    if name == REQUEST_TOOL {
        let text = arguments
            .text("text")
            .ok_or_else(|| Failure::invalid("`text` must be a string"))?;
        return handle_request(shared, ParsedRequest::from_text(text)?, cx).await;
    }
    let _place = shared.acquire_call_permit(cx)?;
    let options = &shared.options;
    options.tools.check(&name, &arguments)?;
    check_guardrail(
        options.guard.as_ref(),
        arguments.to_raw().get(),
        TextOrigin::User,
        cx,
    )
    .await?;
    if name == EXECUTE_COMMAND {
        check_may_run(cx.principal())?;
        // A direct call of this tool needs confirmation too.
        let action = Action::Local {
            tool: name.clone(),
            params: arguments.clone(),
        };
        let confirmation = ConfirmationRequest {
            description: options.tools.describe_use(&name, &arguments),
            action: Value::Null,
            reason: ConfirmReason::Risk,
            risk: action_risk(&action, &RoutingContext::default()),
            always_asks: true,
            key: CONFIRM_KEY,
        };
        confirm(
            &options.deciders,
            cx,
            &RunId::random(),
            &QuestionHistory::default(),
            confirmation,
        )
        .await?;
    }
    options.tools.run(&name, arguments, cx).await
}

fn request_tool_entry() -> RawObject {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string", "description": "What is wanted, in words." } },
        "required": ["text"],
        "additionalProperties": false,
    });
    let what = "Takes any request in words: answers it, delegates it, or does it in several steps.";
    RawObject::single("name", REQUEST_TOOL)
        .with("description", what)
        .with("inputSchema", schema)
        .with("annotations", json!({ "openWorldHint": true }))
}

fn tool_list_entry(view: &ToolView) -> RawObject {
    let hints = match view.risk {
        Risk::Reads => json!({ "readOnlyHint": true }),
        Risk::Writes => {
            json!({ "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true })
        }
        Risk::Acts => {
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false })
        }
    };
    RawObject::single("name", &view.name)
        .with("description", &view.description)
        .with("inputSchema", &view.params)
        .with("annotations", hints)
        .with("tags", &view.tags)
        .with("examples", &view.examples)
}

/// Returns the tools and known agents at present, without this orchestrator itself. Descriptions by
/// other agents were sanitized when the agents were discovered.
pub(super) async fn current_routing_context(
    options: &TaskOrchestratorOptions,
) -> Arc<RoutingContext> {
    let mut tools = options.tools.list();
    tools.truncate(CONTEXT_TOOLS_MAX);
    let mut agents = options.peer_registry.agent_views().await;
    agents.retain(|agent| agent.id != options.id);
    agents.truncate(CONTEXT_AGENTS_MAX);
    Arc::new(RoutingContext { tools, agents })
}
