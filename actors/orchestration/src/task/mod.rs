//! The general orchestrator: any request in, an answer out, by its own tools, other agents, or a plan of both.
//!
//! A request that one tool or one agent does is done in its call. A plan is kept whole before anything of it is done: a root
//! task and a task a step, which the node's runner works on; the call only follows them. So it outlives the process.

mod bell;
mod call;
mod execution;
mod follow;
mod plan;
mod question_dedup;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use callboard_guardrail::Origin;
use callboard_message::surface::{About, CallTool, Converse, Describe, ListTools};
use callboard_message::{DataClass, Failure, FailureKind, RawObject, ToolResult};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::decide::intake::IntakeOptions;
use crate::decide::limits::{WORLD_AGENTS_MAX, WORLD_TOOLS_MAX};
use crate::decide::{Action, ConfirmWhy, Deciders, Risk, RunId, ToolView, World};
use crate::memory::Memory;
use crate::peer_registry::KnownAgents;
use crate::tool_name::EXECUTE_COMMAND;
use crate::tools::{Toolbox, may_run};

use bell::Bells;
use call::answer;
use execution::{CONFIRM, Doubt, confirm, passes, risk_of};
use plan::{RunPlan, RunStep, StepDone};
use question_dedup::RunNotes;
use request::{Conversations, Said};

pub(crate) use question_dedup::Asked;
pub use request::CONVERSATIONS_MAX;

/// Calls that one orchestrator works on at once; then they are refused.
pub const CALLS_AT_ONCE_MAX: usize = 1_024;
/// Places beyond those, for calls that are refused at once: they must never keep its own steps waiting.
const CALLS_REFUSED_AT_ONCE: usize = 64;
/// Tasks of its own that it works on at once; a node's runner takes fewer.
const STEPS_AT_ONCE_MAX: u32 = 1_024;
/// The tool that is the whole pipeline, for those who use tools.
pub(crate) const REQUEST: &str = "request";
/// An answer less sure than this has to be confirmed.
pub const CONFIDENCE_MIN_DEFAULT: f32 = 0.4;
/// Time for which a run's tasks are kept.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// The agent that takes requests to their answers.
#[derive(derive_more::Debug, Clone)]
#[debug("TaskOrchestrator {{ id: {:?}, .. }}", shared.options.id)]
pub struct TaskOrchestrator {
    shared: Arc<Shared>,
}

/// State that all calls share.
struct Shared {
    options: TaskOptions,
    conversations: Conversations,
    bells: Bells,
    calls: Semaphore,
    /// Calls by how they ended: completed, failed, rejected, canceled.
    ended: [AtomicU64; 4],
}

impl TaskOrchestrator {
    /// With these options. It has to be in its system's directory under its id, and a
    /// [`TaskRunner`](callboard_runtime::TaskRunner) of the system has to work on the scope
    /// `agent`: it does the steps of plans.
    pub fn new(options: TaskOptions) -> Self {
        let shared = Shared {
            options,
            conversations: Conversations::default(),
            bells: Bells::default(),
            calls: Semaphore::new(CALLS_AT_ONCE_MAX),
            ended: Default::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Shared {
    /// A place for a call.
    fn place(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let full = |_| {
            let why = format!("{CALLS_AT_ONCE_MAX} requests are worked on: try again later");
            Failure::overloaded(why)
        };
        self.calls.try_acquire().map_err(full)
    }

    fn notes(&self, cx: &Cx, run: &RunId) -> RunNotes {
        RunNotes::new(
            cx.system().store().notes.clone(),
            &self.options.id,
            self.options.class,
            run.clone(),
        )
    }

    fn count(&self, answer: &Result<ToolResult, Failure>) {
        let at = match answer.as_ref().map_err(|failure| failure.kind) {
            Ok(_) => 0,
            Err(FailureKind::Rejected) => 2,
            Err(FailureKind::Cancelled) => 3,
            Err(_) => 1,
        };
        self.ended[at].fetch_add(1, Relaxed);
    }
}

impl Agent for TaskOrchestrator {
    fn handlers(on: &mut Handlers<Self>) {
        let calls = (CALLS_AT_ONCE_MAX + CALLS_REFUSED_AT_ONCE) as u32;
        on.concurrent::<Converse>(calls).repeatable::<Converse>();
        on.concurrent::<CallTool>(calls)
            .concurrent::<ListTools>(calls)
            .concurrent::<Describe>(calls);
        on.concurrent::<RunStep>(STEPS_AT_ONCE_MAX)
            .concurrent::<RunPlan>(STEPS_AT_ONCE_MAX);
    }

    fn profile() -> Profile {
        // Its state is a handle. Steps must find room beside all calls.
        Profile::default()
            .cancel_safe()
            .mailbox_capacity((4 * CALLS_AT_ONCE_MAX) as u32)
    }

    fn observe(&self) -> Value {
        let Shared {
            options,
            bells,
            calls,
            ended,
            ..
        } = &*self.shared;
        let [completed, failed, rejected, canceled] =
            ended.each_ref().map(|count| count.load(Relaxed));
        json!({
            "in_flight": CALLS_AT_ONCE_MAX - calls.available_permits(),
            "followed": bells.len(),
            "ended": { "completed": completed, "failed": failed, "rejected": rejected, "canceled": canceled },
            "decisions": options.deciders.observe(),
        })
    }
}

macro_rules! answers {
    ($($message:ty => $reply:ty: $with:expr;)*) => {$(
        impl ConcurrentHandler<$message> for TaskOrchestrator {
            fn handle(
                &mut self,
                message: $message,
                cx: Cx,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let shared = self.shared.clone();
                async move { $with(&shared, message, &cx).await }
            }
        }
    )*};
}

answers! {
    Converse => ToolResult: call::converse;
    CallTool => ToolResult: call_tool;
    ListTools => RawObject: list_tools;
    Describe => About: describe;
    RunStep => StepDone: plan::run_step;
    RunPlan => ToolResult: plan::run_plan;
}

/// Options of a [`TaskOrchestrator`].
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// Its id in the topology.
    pub id: String,
    /// Its name, as cards and people see it.
    pub name: String,
    /// Description, as cards and people see it.
    pub description: String,
    /// Deciders of all points.
    pub deciders: Arc<Deciders>,
    /// Options of the intake of requests.
    pub intake: IntakeOptions,
    /// An answer less sure than this has to be confirmed, 0 to 1.
    pub confidence_min: f32,
    /// An action riskier than this has to be confirmed, 0 to 1.
    pub max_risk: f32,
    /// A request dearer than this has to be confirmed, in millionths of a US dollar.
    pub cost_micro_usd_max: Option<u64>,
    /// Its tools.
    pub tools: Toolbox,
    /// The agents that it delegates to.
    pub known: KnownAgents,
    /// Record of its delegated requests.
    pub memory: Memory,
    /// Screens what comes in, answers `Screen`.
    pub guard: Option<AgentRef>,
    /// Said to the model that answers.
    pub system_prompt: String,
    /// Class of the data in requests.
    pub class: DataClass,
    /// Time for which a run's tasks are kept.
    pub task_ttl: Duration,
    /// Fires when the node ends: what is cancelled then goes on after the next start.
    pub ending: CancellationToken,
}

async fn describe(shared: &Shared, _: Describe, _: &Cx) -> Result<About, Failure> {
    let options = &shared.options;
    let info = RawObject::of("name", &options.name).with("version", env!("CARGO_PKG_VERSION"));
    let tools = RawObject::of("tools", RawObject::new());
    let about = RawObject::of("serverInfo", info).with("capabilities", tools);
    Ok(About(match options.description.is_empty() {
        true => about,
        false => about.with("instructions", &options.description),
    }))
}

async fn list_tools(shared: &Shared, _: ListTools, _: &Cx) -> Result<RawObject, Failure> {
    let own = shared.options.tools.list();
    let tools: Vec<RawObject> = [request_tool()]
        .into_iter()
        .chain(own.iter().map(listed_tool))
        .collect();
    Ok(RawObject::of("tools", tools))
}

async fn call_tool(shared: &Shared, message: CallTool, cx: &Cx) -> Result<ToolResult, Failure> {
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
    if name == REQUEST {
        let text = arguments
            .text("text")
            .ok_or_else(|| Failure::invalid("`text` must be a string"))?;
        return answer(shared, Said::request(text)?, cx).await;
    }
    let _place = shared.place()?;
    let options = &shared.options;
    options.tools.check(&name, &arguments)?;
    passes(
        options.guard.as_ref(),
        arguments.to_raw().get(),
        Origin::User,
    )
    .await?;
    if name == EXECUTE_COMMAND {
        may_run(cx.principal())?;
        // Whoever asks for it by its name is asked too.
        let action = Action::Local {
            tool: name.clone(),
            params: arguments.clone(),
        };
        let doubt = Doubt {
            what: options.tools.account(&name, &arguments),
            action: Value::Null,
            why: ConfirmWhy::Risk,
            risk: risk_of(&action, &World::default()),
            always: true,
            key: CONFIRM,
        };
        confirm(
            &options.deciders,
            cx,
            &RunId::fresh(),
            &Asked::default(),
            doubt,
        )
        .await?;
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

fn listed_tool(view: &ToolView) -> RawObject {
    let hints = match view.risk {
        Risk::Reads => json!({ "readOnlyHint": true }),
        Risk::Writes => {
            json!({ "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true })
        }
        Risk::Acts => {
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false })
        }
    };
    RawObject::of("name", &view.name)
        .with("description", &view.description)
        .with("inputSchema", &view.params)
        .with("annotations", hints)
        .with("tags", &view.tags)
        .with("examples", &view.examples)
}

/// The tools and agents of now. What agents say of themselves was made fit when it was learned.
pub(super) async fn world(options: &TaskOptions) -> Arc<World> {
    let mut tools = options.tools.list();
    tools.truncate(WORLD_TOOLS_MAX);
    let mut agents = options.known.view().await;
    agents.retain(|agent| agent.id != options.id);
    agents.truncate(WORLD_AGENTS_MAX);
    Arc::new(World { tools, agents })
}
