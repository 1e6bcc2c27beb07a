//! The general orchestrator: any request in, an answer out, by its own tools, other agents, or a plan of both.
//!
//! A request that one tool or one agent does is done in its call. A plan is kept whole before anything of it is done: a root
//! task and a task a step, which the node's runner works on; the call only follows them. So it outlives the process.

mod bell;
mod call;
mod conversations;
mod finish;
mod follow;
mod messages;
mod missing;
mod notes;
mod once;
mod options;
mod plan;
mod said;
mod state;
mod step;
mod surface;
#[cfg(test)]
mod tests;
mod world;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use callboard_message::surface::{About, CallTool, Converse, Describe, ListTools};
use callboard_message::{Failure, RawObject, ToolResult};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use bell::Bells;
use conversations::Conversations;
use messages::{RunPlan, RunStep, StepDone};
use notes::RunNotes;
use state::State;

use crate::decide::RunId;

pub(crate) use once::Asked;

pub use conversations::CONVERSATIONS_MAX;
pub use options::{CONFIDENCE_MIN_DEFAULT, RISK_MAX_DEFAULT, TASK_TTL_DEFAULT, TaskOptions};

/// Calls that one orchestrator works on at once; then they are refused.
pub const CALLS_AT_ONCE_MAX: usize = 1_024;
/// Places beyond those, for calls that are refused at once: they must never keep its own steps waiting.
const CALLS_REFUSED_AT_ONCE: usize = 64;
/// Tasks of its own that it works on at once; a node's runner takes fewer.
const STEPS_AT_ONCE_MAX: u32 = 1_024;
/// The tool that is the whole pipeline, for those who use tools.
pub(crate) const REQUEST: &str = "request";

/// The agent that takes requests to their answers.
#[derive(derive_more::Debug, Clone)]
#[debug("TaskOrchestrator {{ id: {:?}, .. }}", shared.options.id)]
pub struct TaskOrchestrator {
    shared: Arc<Shared>,
}

/// What all its calls share.
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
        Self { shared: Arc::new(shared) }
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
        RunNotes::new(cx.system().store().notes.clone(), &self.options.id, self.options.class, run.clone())
    }

    fn count(&self, end: State) {
        let at = match end {
            State::Completed => 0,
            State::Failed => 1,
            State::Rejected => 2,
            State::Canceled => 3,
            _ => return,
        };
        self.ended[at].fetch_add(1, Relaxed);
    }

    fn observe(&self) -> Value {
        let [completed, failed, rejected, canceled] = self.ended.each_ref().map(|count| count.load(Relaxed));
        json!({
            "in_flight": CALLS_AT_ONCE_MAX - self.calls.available_permits(),
            "followed": self.bells.len(),
            "ended": { "completed": completed, "failed": failed, "rejected": rejected, "canceled": canceled },
            "decisions": self.options.deciders.observe(),
        })
    }
}

impl Agent for TaskOrchestrator {
    fn handlers(on: &mut Handlers<Self>) {
        let calls = (CALLS_AT_ONCE_MAX + CALLS_REFUSED_AT_ONCE) as u32;
        on.concurrent::<Converse>(calls).repeatable::<Converse>();
        on.concurrent::<CallTool>(calls).concurrent::<ListTools>(calls).concurrent::<Describe>(calls);
        on.concurrent::<RunStep>(STEPS_AT_ONCE_MAX).concurrent::<RunPlan>(STEPS_AT_ONCE_MAX);
    }

    fn profile() -> Profile {
        // Its state is a handle. Steps must find room beside all calls.
        Profile::default().cancel_safe().mailbox_capacity((4 * CALLS_AT_ONCE_MAX) as u32)
    }

    fn observe(&self) -> Value {
        self.shared.observe()
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
    CallTool => ToolResult: surface::call_tool;
    ListTools => RawObject: surface::list_tools;
    Describe => About: surface::describe;
    RunStep => StepDone: step::run;
    RunPlan => ToolResult: finish::run;
}
