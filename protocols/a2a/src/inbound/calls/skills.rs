//! What an agent can do: its message types, or the tools that it lists itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard_message::surface::{CallTool, Converse, ListTools, RESERVED_PREFIX};
use callboard_message::{
    Abilities, Answer, Change, Failure, Message, MessageSpec, Named, Progress, Question, RawObject,
    RawReply,
};
use callboard_runtime::{
    Agent, AgentRef, CallMeta, Caller, Changed, Cx, Handlers, OnRestart, SyncHandler, inward,
};
use futures::future::{BoxFuture, ready};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a list of tools is believed of an agent that doesn't tell of changes.
/// At the limit: it is read again.
const LIST_KEPT_FOR: Duration = Duration::from_secs(60);
/// How long an agent may take for its list of tools.
/// At the limit: HTTP status 503.
const LIST_WAIT: Duration = Duration::from_secs(30);
/// Most tools that are read of one list.
/// At the limit: the rest isn't offered.
const LIST_SKILLS_MAX: usize = 4_096;
/// What a skill takes that doesn't say otherwise.
const MODES_DEFAULT: [&str; 2] = ["text/plain", "application/json"];
/// Any media type.
pub(super) const ANY_MODE: &str = "*/*";

/// The caller for a list: what is asked in a call waits in its task for whoever looks in, but a list has none.
struct AnswersLater;

impl Caller for AnswersLater {
    fn progress(&self, _: Progress) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(ready(Err(Failure::nobody_to_ask(
            "a list is no conversation",
        ))))
    }

    fn abilities(&self) -> Abilities {
        Abilities::all()
    }
}

/// What an agent can do.
#[derive(Debug, Default)]
pub(crate) struct Skills {
    /// In the agent's order.
    pub(crate) all: Vec<Skill>,
    /// It also takes what somebody says in no skill's words ([`Converse`]).
    pub(crate) converses: bool,
}

/// One of them: a message type, or a tool.
#[derive(Debug)]
pub(crate) struct Skill {
    /// Its name, description and schemas.
    pub(crate) spec: MessageSpec,
    /// The media types that it takes; `*/*` is any.
    pub(crate) input_modes: Vec<String>,
    /// The media types that it may answer with.
    pub(crate) output_modes: Vec<String>,
}

impl Skills {
    pub(crate) fn get(&self, name: &str) -> Option<&Skill> {
        self.all.iter().find(|skill| skill.spec.name == name)
    }
}

impl Skill {
    pub(super) fn new(spec: MessageSpec) -> Self {
        let modes = |name| {
            let stated: Option<Vec<String>> = spec.more.read(name);
            stated
                .filter(|modes| !modes.is_empty())
                .unwrap_or_else(|| MODES_DEFAULT.map(str::to_owned).to_vec())
        };
        Self {
            input_modes: modes("inputModes"),
            output_modes: modes("outputModes"),
            spec,
        }
    }
}

/// How a message's words reach the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// A message type of its own.
    Message,
    /// A tool that it lists itself.
    Tool,
    /// As somebody said them.
    Converse,
}

/// The agent behind an address.
pub(super) struct Callee {
    agent: AgentRef,
    /// What the policy knows it by.
    name: String,
    lists: Option<Listed>,
    /// Of message types; of an agent that lists its tools whether it converses.
    own: Arc<Skills>,
    /// What becomes of a conversation where the process ends in the midst of it.
    converse: OnRestart,
}

/// The tools that an agent lists, as far as they are known.
struct Listed {
    known: Mutex<Option<(Instant, Arc<Skills>)>>,
    is_stale: Arc<AtomicBool>,
    /// Hears of changes.
    follower: AgentRef,
}

impl Callee {
    pub(super) fn new(agent: AgentRef) -> Self {
        let specs = agent.specs();
        let handles = |name: &str| specs.iter().any(|spec| spec.name == name);
        let converse = specs
            .iter()
            .find(|spec| spec.name == Converse::NAME)
            .map(OnRestart::of);
        let lists = (agent.is_outside() || handles(ListTools::NAME)).then(|| Listed::of(&agent));
        let own = |spec: &MessageSpec| lists.is_none() && !spec.name.starts_with(RESERVED_PREFIX);
        let all = specs.into_iter().filter(own).map(Skill::new).collect();
        Self {
            name: agent.to_string(),
            lists,
            own: Arc::new(Skills {
                all,
                converses: converse.is_some(),
            }),
            converse: converse.unwrap_or(OnRestart::Fail),
            agent,
        }
    }

    /// What it can do, as far as that is known by now. `call` asks it where it has to be asked.
    pub(super) async fn skills(&self, call: CallMeta) -> Result<Arc<Skills>, Failure> {
        let Some(listed) = &self.lists else {
            return Ok(self.own.clone());
        };
        let mut known = listed.known.lock().await;
        let is_stale = listed.is_stale.swap(false, Ordering::AcqRel);
        if let Some((_, skills)) = known
            .as_ref()
            .filter(|(at, _)| !is_stale && at.elapsed() < LIST_KEPT_FOR)
        {
            return Ok(skills.clone());
        }
        let all = self
            .list(&call)
            .await
            .inspect_err(|_| listed.is_stale.store(true, Ordering::Release))?;
        let skills = Arc::new(Skills {
            all,
            converses: self.own.converses,
        });
        *known = Some((Instant::now(), skills.clone()));
        Ok(skills)
    }

    async fn list(&self, call: &CallMeta) -> Result<Vec<Skill>, Failure> {
        // A task can be asked anything: what is shown to such callers only is shown to its own.
        let call = Arc::new(
            call.clone()
                .with_caller(Arc::new(AnswersLater))
                .until(Instant::now() + LIST_WAIT),
        );
        let (mut all, mut cursor) = (Vec::new(), None::<Box<RawValue>>);
        loop {
            let mut params = RawObject::new();
            if let Some(cursor) = cursor {
                params.set_raw("cursor", cursor);
            }
            let page = self
                .agent
                .ask_named(ListTools::NAME, params.to_raw(), Some(call.clone()))
                .await?;
            let mut page = RawObject::parse(&page)
                .map_err(|_| Failure::internal("a list of tools can't be read"))?;
            let tools: Vec<RawObject> = page.read("tools").unwrap_or_default();
            all.extend(tools.into_iter().filter_map(spec_of).map(Skill::new));
            cursor = page
                .remove("nextCursor")
                .filter(|cursor| cursor.get() != "null");
            if cursor.is_none() || all.len() >= LIST_SKILLS_MAX {
                return Ok(all);
            }
        }
    }

    /// How `skill` is asked.
    pub(super) fn route(&self, skill: &str) -> Route {
        match (skill == Converse::NAME, &self.lists) {
            (true, _) => Route::Converse,
            (false, Some(_)) => Route::Tool,
            (false, None) => Route::Message,
        }
    }

    /// Whether what `skill` answers is a tool result, and no plain value.
    pub(super) fn answers_result(&self, skill: &str) -> bool {
        match self.route(skill) {
            Route::Converse | Route::Tool => true,
            Route::Message => self
                .own
                .get(skill)
                .is_none_or(|skill| skill.spec.output_schema.is_none()),
        }
    }

    /// What becomes of a task where the process ends in the midst of it.
    pub(super) fn on_restart(&self, skills: &Skills, skill: &str) -> OnRestart {
        if skill == Converse::NAME {
            return self.converse;
        }
        skills
            .get(skill)
            .map_or(OnRestart::Fail, |skill| OnRestart::of(&skill.spec))
    }

    /// The call, if the policy lets its principal know what the agent can do.
    pub(super) async fn seen(&self, call: CallMeta) -> Result<CallMeta, Failure> {
        self.judged(ListTools::NAME, &RawObject::new().to_raw(), call)
            .await
    }

    /// The call, if the policy lets it in.
    pub(super) async fn judged(
        &self,
        skill: &str,
        payload: &RawValue,
        call: CallMeta,
    ) -> Result<CallMeta, Failure> {
        inward::admit(&self.agent, &self.name, skill, payload, &call)
            .await
            .map(|()| call)
    }

    /// Asks, as part of a call that was judged. Dropped, it cancels whatever the call caused elsewhere.
    pub(super) async fn ask(
        &self,
        skill: &str,
        arguments: Box<RawValue>,
        call: CallMeta,
    ) -> RawReply {
        let sent = match self.route(skill) {
            Route::Tool => {
                let CallTool(params) = CallTool::new(skill, &arguments);
                Named {
                    name: CallTool::NAME.to_owned(),
                    payload: params.to_raw(),
                }
            }
            Route::Message | Route::Converse => Named {
                name: skill.to_owned(),
                payload: arguments,
            },
        };
        inward::ask(&self.agent, &self.name, skill, sent, call).await
    }
}

impl Listed {
    fn of(agent: &AgentRef) -> Self {
        let is_stale = Arc::new(AtomicBool::new(false));
        let follower = agent.system().spawn(Follower(is_stale.clone()));
        if let Some(recipient) = follower.recipient::<Changed>() {
            agent.follow(recipient);
        }
        Self {
            known: Mutex::default(),
            is_stale,
            follower,
        }
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        if let Some(listed) = &self.lists {
            self.agent.unfollow(listed.follower.id());
            listed.follower.stop();
        }
    }
}

/// A tool, as lists of tools write it.
fn spec_of(mut tool: RawObject) -> Option<MessageSpec> {
    let (name, description) = (
        tool.text("name")?,
        tool.text("description").unwrap_or_default(),
    );
    let input_schema = tool
        .read("inputSchema")
        .unwrap_or_else(|| serde_json::json!({ "type": "object" }));
    let output_schema = tool.read("outputSchema");
    for known in ["name", "description", "inputSchema", "outputSchema"] {
        tool.remove(known);
    }
    Some(MessageSpec {
        name,
        description,
        input_schema,
        output_schema,
        more: tool,
    })
}

/// Hears that the tools of an agent are others.
struct Follower(Arc<AtomicBool>);

impl Agent for Follower {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Changed>();
    }
}

impl SyncHandler<Changed> for Follower {
    fn handle(&mut self, message: Changed, _: &mut Cx) {
        if message.change == Change::Tools {
            self.0.store(true, Ordering::Release);
        }
    }
}
