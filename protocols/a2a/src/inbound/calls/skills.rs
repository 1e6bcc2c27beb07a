//! Skills of an agent: its message types, or the tools that it lists itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard_message::capabilities::{
    CallTool, Converse, ListTools, PARTS_META_KEY, RESERVED_PREFIX, SOURCE_MESSAGE_META_KEY,
};
use callboard_message::{
    Answer, CallerCapabilities, CapabilityChange, Failure, Message, MessageSpec, Progress,
    Question, RawMessage, RawObject, RawReply,
};
use callboard_runtime::{
    AccessItem, Agent, AgentChanged, AgentRef, CallContext, Caller, Context, Handlers, OnRestart,
    SyncHandler, inbound_policy,
};
use futures::future::{BoxFuture, ready};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which a list of tools is cached, unless the agent reports a change.
/// At the limit: it is read again.
const LIST_CACHE_TTL: Duration = Duration::from_secs(60);
/// Timeout for an agent's list of tools.
/// At the limit: HTTP status 503.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of listed tools after which no further page of an agent's tool list is read.
/// At the limit: the rest isn't offered.
const LIST_SKILLS_MAX: usize = 4_096;
/// Default media types of a skill.
const MODES_DEFAULT: [&str; 2] = ["text/plain", "application/json"];
/// Media type in a skill's accepted types that matches any other.
pub(super) const ANY_MODE: &str = "*/*";

/// Name of [`Converse`] in rules about what may be used.
const CONVERSE: &str = "converse";

/// Caller on whose behalf the tools of an agent are listed. It states all capabilities, as a task's
/// caller does, but answers no questions.
struct ListingCaller;

impl Caller for ListingCaller {
    fn progress(&self, _: Progress) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(ready(Err(Failure::no_responder(
            "an agent can't ask questions while it lists its tools",
        ))))
    }

    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities::all()
    }
}

/// Skills of an agent.
#[derive(Debug, Default)]
pub(crate) struct SkillSet {
    /// Skills in the agent's order.
    pub(crate) all: Vec<Skill>,
    /// Whether the agent also handles [`Converse`], that is, accepts messages that name no skill.
    pub(crate) accepts_messages: bool,
    /// Names of the skills that the rules keep back from the caller.
    pub(crate) withheld: Vec<String>,
    /// Whether rules may demand an approval of the caller's uses.
    pub(crate) need_approval: bool,
}

/// A skill of an agent: a message type or a tool.
#[derive(Debug, Clone)]
pub(crate) struct Skill {
    /// Name, description and schemas.
    pub(crate) spec: MessageSpec,
    /// Accepted media types; `*/*` matches any.
    pub(crate) input_modes: Vec<String>,
    /// Media types of results.
    pub(crate) output_modes: Vec<String>,
    /// Whether the skill gets a client's message with its parts as they are, as a remote agent's
    /// does. Otherwise its arguments are built from the parts.
    pub(crate) takes_parts: bool,
}

impl SkillSet {
    pub(crate) fn get(&self, name: &str) -> Option<&Skill> {
        self.all.iter().find(|skill| skill.spec.name == name)
    }

    /// Returns whether the agent is a remote one, which gets messages with their parts as they are,
    /// whether or not they name a skill.
    pub(crate) fn takes_parts(&self) -> bool {
        self.accepts_messages
            && !self.all.is_empty()
            && self.all.iter().all(|skill| skill.takes_parts)
    }

    /// Returns the default media types of messages to the agent and of its results.
    pub(crate) fn default_modes(&self) -> (Vec<String>, Vec<String>) {
        if self.takes_parts() {
            let distinct = |of: fn(&Skill) -> &Vec<String>| {
                let mut modes: Vec<String> = Vec::new();
                for mode in self.all.iter().flat_map(of) {
                    if !modes.contains(mode) {
                        modes.push(mode.clone());
                    }
                }
                modes
            };
            return (
                distinct(|skill| &skill.input_modes),
                distinct(|skill| &skill.output_modes),
            );
        }
        let modes: Vec<String> = match self.accepts_messages {
            true => vec![ANY_MODE.to_owned()],
            false => MODES_DEFAULT.map(str::to_owned).to_vec(),
        };
        (modes.clone(), modes)
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
            takes_parts: spec
                .more
                .object("_meta")
                .and_then(|meta| meta.read(PARTS_META_KEY))
                .unwrap_or_default(),
            spec,
        }
    }
}

/// Kind of message that is sent to the agent to call a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkillRoute {
    /// A message of the type that the skill was made from.
    Message,
    /// A tool call (`callboard.tools.call`), because the agent lists its tools itself.
    Tool,
    /// A tool call that carries the client's whole message in [`SOURCE_MESSAGE_META_KEY`].
    ToolMessage,
    /// [`Converse`], with the client's whole message.
    Converse,
}

/// An agent that the server makes available to clients.
pub(super) struct ServedAgent {
    agent: AgentRef,
    /// Name of the agent in policies.
    name: String,
    lists: Option<ToolListCache>,
    /// Skills made from the agent's message types. If the agent lists its tools itself, the list is
    /// empty and only its member `accepts_messages` is used.
    own: Arc<SkillSet>,
    /// Handling of a conversation's task if the process ends while it runs.
    converse: OnRestart,
}

/// Cached tools of an agent that lists its tools itself.
struct ToolListCache {
    known: Mutex<Option<(Instant, Arc<SkillSet>)>>,
    is_stale: Arc<AtomicBool>,
    /// Actor that marks the cache as stale when the agent reports a change.
    follower: AgentRef,
}

impl ServedAgent {
    pub(super) fn new(agent: AgentRef) -> Self {
        let specs = agent.specs();
        let handles = |name: &str| specs.iter().any(|spec| spec.name == name);
        let converse = specs
            .iter()
            .find(|spec| spec.name == Converse::NAME)
            .map(OnRestart::from_spec);
        let lists =
            (agent.is_proxy() || handles(ListTools::NAME)).then(|| ToolListCache::of(&agent));
        let own = |spec: &MessageSpec| lists.is_none() && !spec.name.starts_with(RESERVED_PREFIX);
        let all = specs.into_iter().filter(own).map(Skill::new).collect();
        Self {
            name: agent.to_string(),
            lists,
            own: Arc::new(SkillSet {
                all,
                accepts_messages: converse.is_some(),
                withheld: Vec::new(),
                need_approval: false,
            }),
            converse: converse.unwrap_or(OnRestart::Fail),
            agent,
        }
    }

    /// Returns the agent's skills that `call`'s principal may use. If the agent lists its tools itself and
    /// they aren't cached, they are read from it as part of `call`.
    pub(super) async fn skills(&self, call: CallContext) -> Result<Arc<SkillSet>, Failure> {
        if inbound_policy::binds(&self.agent, &call.principal) {
            return self.permitted_skills(&call).await.map(Arc::new);
        }
        let Some(listed) = &self.lists else {
            return Ok(self.own.clone());
        };
        let mut known = listed.known.lock().await;
        let is_stale = listed.is_stale.swap(false, Ordering::AcqRel);
        if let Some((_, skills)) = known
            .as_ref()
            .filter(|(at, _)| !is_stale && at.elapsed() < LIST_CACHE_TTL)
        {
            return Ok(skills.clone());
        }
        let all = self
            .fetch_tools(&call)
            .await
            .inspect_err(|_| listed.is_stale.store(true, Ordering::Release))?;
        let skills = Arc::new(SkillSet {
            all,
            accepts_messages: self.own.accepts_messages,
            withheld: Vec::new(),
            need_approval: false,
        });
        *known = Some((Instant::now(), skills.clone()));
        Ok(skills)
    }

    /// Returns the skills that the rules permit `call`'s principal, which differ between principals.
    async fn permitted_skills(&self, call: &CallContext) -> Result<SkillSet, Failure> {
        let mut all = match &self.lists {
            None => self.own.all.clone(),
            Some(_) => self.fetch_tools(call).await?,
        };
        let may_use = |name: &str| {
            let item = AccessItem::tool(name);
            inbound_policy::may_use(&self.agent, &self.name, &call.principal, item)
        };
        let mut withheld = Vec::new();
        all.retain(|skill| {
            let is_permitted = may_use(&skill.spec.name);
            if !is_permitted {
                withheld.push(skill.spec.name.clone());
            }
            is_permitted
        });
        Ok(SkillSet {
            all,
            accepts_messages: self.own.accepts_messages && may_use(CONVERSE),
            withheld,
            need_approval: inbound_policy::may_need_approval(
                &self.agent,
                &self.name,
                &call.principal,
                None,
            ),
        })
    }

    async fn fetch_tools(&self, call: &CallContext) -> Result<Vec<Skill>, Failure> {
        // Tasks can answer any question, so tools that require a capable caller are listed.
        let listing = call
            .clone()
            .with_caller(Arc::new(ListingCaller))
            .with_deadline(Instant::now() + LIST_TIMEOUT);
        let (mut all, mut cursor) = (Vec::new(), None::<Box<RawValue>>);
        loop {
            let mut params = RawObject::new();
            if let Some(cursor) = cursor {
                params.set_raw("cursor", cursor);
            }
            // Each page is a part of the call, beside what the call asks for.
            let call = CallContext {
                trace: listing.trace.child(),
                ..listing.clone()
            };
            let page = self
                .agent
                .ask_named(ListTools::NAME, params.to_raw(), Some(Arc::new(call)))
                .await?;
            let mut page = RawObject::parse(&page).map_err(|_| {
                Failure::internal(format!(
                    "the agent's reply to {} is no JSON object: the agent has to be corrected",
                    ListTools::NAME
                ))
            })?;
            let tools: Vec<RawObject> = page.read("tools").unwrap_or_default();
            all.extend(
                tools
                    .into_iter()
                    .filter_map(parse_tool_spec)
                    .map(Skill::new),
            );
            cursor = page
                .remove("nextCursor")
                .filter(|cursor| cursor.get() != "null");
            if cursor.is_none() || all.len() >= LIST_SKILLS_MAX {
                return Ok(all);
            }
        }
    }

    /// Returns the kind of message that calls `skill`. `is_message` tells whether the skill gets
    /// the client's message in place of arguments.
    pub(super) fn route(&self, skill: &str, is_message: bool) -> SkillRoute {
        match (skill == Converse::NAME, &self.lists) {
            (true, _) => SkillRoute::Converse,
            (false, Some(_)) if is_message => SkillRoute::ToolMessage,
            (false, Some(_)) => SkillRoute::Tool,
            (false, None) => SkillRoute::Message,
        }
    }

    /// Returns whether the agent is a remote one that accepts messages for no skill in particular.
    pub(super) fn is_remote_agent(&self) -> bool {
        self.agent.is_proxy() && self.own.accepts_messages
    }

    /// Returns whether the replies of `skill`, called by `route`, are tool results rather than
    /// plain values.
    pub(super) fn returns_tool_result(&self, route: SkillRoute, skill: &str) -> bool {
        match route {
            SkillRoute::Converse | SkillRoute::Tool | SkillRoute::ToolMessage => true,
            SkillRoute::Message => self
                .own
                .get(skill)
                .is_none_or(|skill| skill.spec.output_schema.is_none()),
        }
    }

    /// Returns the handling of a task of `skill` if the process ends while it runs.
    pub(super) fn on_restart(&self, skills: &SkillSet, skill: &str) -> OnRestart {
        if skill == Converse::NAME {
            return self.converse;
        }
        skills
            .get(skill)
            .map_or(OnRestart::Fail, |skill| OnRestart::from_spec(&skill.spec))
    }

    /// Returns whether the rules permit the call's principal something of the agent.
    pub(super) fn is_permitted(&self, call: &CallContext) -> bool {
        inbound_policy::may_use(&self.agent, &self.name, &call.principal, AccessItem::Agent)
    }

    /// Checks that the policy allows the call's principal to list the skills, and returns the call.
    pub(super) async fn authorize_listing(
        &self,
        call: CallContext,
    ) -> Result<CallContext, Failure> {
        // Whoever reads a card isn't recorded for what it lacks.
        if !self.is_permitted(&call) {
            return Err(Failure::denied(
                "the rules of this node don't permit you this agent",
            ));
        }
        self.authorize(ListTools::NAME, &RawObject::new().to_raw(), call)
            .await
    }

    /// Checks that the policy allows a call of `skill`, and returns the call.
    pub(super) async fn authorize(
        &self,
        skill: &str,
        payload: &RawValue,
        call: CallContext,
    ) -> Result<CallContext, Failure> {
        inbound_policy::admit(&self.agent, &self.name, skill, payload, &call)
            .await
            .map(|()| call)
    }

    /// Calls a skill of the agent by `route`. The policy must have allowed the call before.
    /// Dropping the future cancels the call.
    pub(super) async fn ask(
        &self,
        route: SkillRoute,
        skill: &str,
        arguments: Box<RawValue>,
        call: CallContext,
    ) -> RawReply {
        let tool_call = |CallTool(params): CallTool| RawMessage {
            name: CallTool::NAME.to_owned(),
            payload: params.to_raw(),
        };
        let sent = match route {
            SkillRoute::Tool => tool_call(CallTool::new(skill, &arguments)),
            SkillRoute::ToolMessage => {
                let CallTool(params) = CallTool::new(skill, RawObject::new());
                let meta = RawObject::single(SOURCE_MESSAGE_META_KEY, &arguments);
                tool_call(CallTool(params.with("_meta", meta)))
            }
            SkillRoute::Message | SkillRoute::Converse => RawMessage {
                name: skill.to_owned(),
                payload: arguments,
            },
        };
        inbound_policy::ask(&self.agent, &self.name, skill, sent, call).await
    }
}

impl ToolListCache {
    fn of(agent: &AgentRef) -> Self {
        let is_stale = Arc::new(AtomicBool::new(false));
        let follower = agent.system().spawn(ToolChangeListener(is_stale.clone()));
        if let Some(recipient) = follower.recipient::<AgentChanged>() {
            agent.follow(recipient);
        }
        Self {
            known: Mutex::default(),
            is_stale,
            follower,
        }
    }
}

impl Drop for ServedAgent {
    fn drop(&mut self) {
        if let Some(listed) = &self.lists {
            self.agent.unfollow(listed.follower.id());
            listed.follower.stop();
        }
    }
}

/// Parses a tool from a list of tools; `None` if it has no name.
fn parse_tool_spec(mut tool: RawObject) -> Option<MessageSpec> {
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

/// Marks the cached tools as stale when the agent reports a change.
struct ToolChangeListener(Arc<AtomicBool>);

impl Agent for ToolChangeListener {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<AgentChanged>();
    }
}

impl SyncHandler<AgentChanged> for ToolChangeListener {
    fn handle(&mut self, message: AgentChanged, _: &mut Context) {
        if message.change == CapabilityChange::Tools {
            self.0.store(true, Ordering::Release);
        }
    }
}
