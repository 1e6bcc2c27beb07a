//! Remote A2A agents as agents of this system.

use std::sync::Arc;

use callboard_message::capabilities::{
    CallTool, Converse, DescribeAgent, DescribeAgentResult, ListTools, RESERVED_PREFIX,
};
use callboard_message::{
    CapabilityChange, Failure, Message as _, RawMessage, RawObject, RawReply, ToolResult,
};
use callboard_runtime::outbound_policy::exchange;
use callboard_runtime::{
    Agent, AgentProfile, CallContext, CallOrigin, ConcurrentHandler, Context, Direction, Handlers,
    TaskOwner, inbound_policy,
};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use url::Url;

use super::call_result::{error_tool_result, to_tool_result, to_value};
use super::client::A2aClient;
use super::conversation::{ConversationError, converse};
use super::conversation_request::ConversationRequest;
use super::error::A2aClientError;
use super::options::{PENDING_CALLS_MAX, RemoteOptions, RemoteOptionsError};
use super::remote_contexts::{ContextBinding, RemoteContexts, identifies_conversation};
use super::task_state::RemoteTaskState;
use super::tools::SkillTools;
use crate::convert::HOPS_METADATA;
use crate::wire::AgentCard;

/// Remote A2A agent as an agent of this system.
///
/// - `callboard.tools.list` and related messages list its skills as tools, `callboard.tools.call`
///   calls one, and `callboard.converse` sends a message without choosing a skill
///   ([`callboard_message::capabilities`]). The parts of a conversational message arrive as they
///   are, also if it calls a tool.
/// - Any other message is a call of the skill of that name. The reply is the plain value, so that
///   typed messages work as with a local agent.
///
/// Questions, progress and artifacts of the remote agent go to the caller. The agent card is
/// fetched on first use. Redirects and proxy environment variables are ignored.
#[derive(Clone)]
pub struct RemoteA2aAgent {
    client: A2aClient,
    tools: Arc<Mutex<Option<CardTools>>>,
    contexts: Arc<RemoteContexts>,
}

/// An agent card and the tools made from it.
type CardTools = (Arc<AgentCard>, Arc<SkillTools>);

impl RemoteA2aAgent {
    /// Creates an agent for the card or endpoint at the URL `card`. Nothing is fetched yet.
    ///
    /// # Errors
    /// [`RemoteOptionsError`] if the URL or the options are invalid.
    pub fn new(card: Url, options: RemoteOptions) -> Result<Self, RemoteOptionsError> {
        Ok(Self {
            client: A2aClient::new(card, options)?,
            tools: Arc::default(),
            contexts: Arc::default(),
        })
    }

    /// Returns the agent's card, fetching it if necessary.
    ///
    /// # Errors
    /// [`Failure`] if the card can't be fetched or isn't trusted.
    pub async fn card(&self) -> Result<Arc<AgentCard>, Failure> {
        Ok(self.client.card().await?)
    }

    /// Returns the A2A client of this agent.
    pub fn client(&self) -> &A2aClient {
        &self.client
    }

    /// Waits until the cleanup after dropped calls has finished: their remote tasks are cancelled.
    /// It covers all clones of this agent. Call it on a remaining clone after the actors that use
    /// the agent have been stopped.
    pub async fn drained(&self) {
        self.client.drained().await;
    }

    /// Returns the tools made from the current card. Notifies the agent's followers if the list of
    /// tools has changed.
    async fn load_tools(&self, cx: &Context) -> Result<Arc<SkillTools>, Failure> {
        let card = self.client.card().await?;
        let (tools, is_other) = {
            let mut known = self.tools.lock();
            match &*known {
                Some((of, tools)) if Arc::ptr_eq(of, &card) => (tools.clone(), false),
                before => {
                    let tools = Arc::new(SkillTools::from_card(&card));
                    let is_other = before.as_ref().is_some_and(|(_, before)| {
                        before.list_result().get() != tools.list_result().get()
                    });
                    *known = Some((card, tools.clone()));
                    (tools, is_other)
                }
            }
        };
        if is_other {
            cx.notify_changed(CapabilityChange::Tools);
        }
        Ok(tools)
    }

    /// Handles a message: one of [`callboard_message::capabilities`], or a call of the skill that
    /// has the message's name.
    ///
    /// # Errors
    /// [`Failure`] if A2A has no operation for the message, if the payload isn't a JSON object, or
    /// if the call fails.
    async fn handle_message(
        &self,
        message: RawMessage,
        cx: &Context,
    ) -> Result<Box<RawValue>, Failure> {
        let RawMessage { name, payload } = message;
        let is_typed = !name.starts_with(RESERVED_PREFIX);
        let no_object = || Failure::invalid("the message must be a JSON object");
        let mut params = match is_typed {
            // The payload is the skill's arguments.
            true if payload.get().starts_with('{') => RawObject::new(),
            true => return Err(no_object()),
            false => RawObject::parse(&payload).map_err(|_| no_object())?,
        };
        let (skill, arguments) = match name.as_str() {
            _ if is_typed => (name, payload),
            DescribeAgent::NAME => return Ok(card_description(&*self.card().await?).to_raw()),
            ListTools::NAME => return Ok(self.load_tools(cx).await?.list_result()),
            Converse::NAME => {
                let said = Converse(params);
                let skill = said.0.text("skill");
                let opening = ConversationRequest::from_converse(&said, skill.as_deref());
                return self.use_tool(opening, cx).await;
            }
            CallTool::NAME => {
                let skill = params
                    .text("name")
                    .ok_or_else(|| Failure::invalid("`name` must be a string"))?;
                (
                    skill,
                    params
                        .remove("arguments")
                        .unwrap_or_else(|| RawObject::new().to_raw()),
                )
            }
            _ => {
                return Err(Failure::not_found(format!(
                    "an A2A agent has no operation for {name}: send it a text, or call one of its skills"
                )));
            }
        };
        let tools = self.load_tools(cx).await?;
        let wanted = skill;
        let skill = tools.get(&wanted).ok_or_else(|| no_such_skill(&wanted))?;
        if skill.tool != wanted {
            // Rules are about the name of the tool, not about the skill's id.
            let agent = cx.me().name().unwrap_or_default();
            inbound_policy::authorize_for(cx, cx.me(), agent, &skill.tool, &arguments).await?;
        }
        let opening = tools.conversation_request(
            skill,
            &arguments,
            &params.object("_meta").unwrap_or_default(),
        )?;
        if !is_typed {
            return self.use_tool(opening, cx).await;
        }
        to_value(&self.converse(opening, cx).await?, Some(skill))
    }

    async fn use_tool(
        &self,
        opening: ConversationRequest,
        cx: &Context,
    ) -> Result<Box<RawValue>, Failure> {
        let result = match self.converse(opening, cx).await {
            Ok(task) => to_tool_result(&task)?,
            Err(ConversationError::Client(A2aClientError::Agent(error))) => {
                error_tool_result(error)
            }
            Err(stopped) => return Err(stopped.into()),
        };
        Ok(to_raw_value(&result).unwrap_or_default())
    }

    async fn converse(
        &self,
        mut opening: ConversationRequest,
        cx: &Context,
    ) -> Result<RemoteTaskState, ConversationError> {
        self.bind_context(&mut opening, cx);
        let named = [&*opening.message.extensions, &*opening.extensions].concat();
        let client = self.client.with_extensions(&named);
        let Some(call) = cx.call() else {
            return converse(&client, None, opening).await;
        };
        // Lets a remote callboard detect calls that go in circles.
        opening
            .message
            .metadata
            .get_or_insert_default()
            .set(HOPS_METADATA, call.hops.saturating_add(1));
        converse(
            &client.with_trace(&call.trace),
            call.caller.as_deref(),
            opening,
        )
        .await
    }

    /// Sets the id of the agent's conversation that belongs to the caller's, unless the message
    /// names a task or conversation of the agent, or the caller's conversation can't be told from
    /// those of others.
    fn bind_context(&self, opening: &mut ConversationRequest, cx: &Context) {
        let message = &mut opening.message;
        let is_named = !message.context_id.is_empty() || !message.task_id.is_empty();
        if is_named || !identifies_conversation(cx.principal(), &opening.caller_context) {
            return;
        }
        let binding = ContextBinding::new(
            self.contexts.clone(),
            cx.system().audit(),
            &TaskOwner::from_principal(cx.principal(), None),
            self.client.url(),
            &opening.caller_context,
        );
        message.context_id = binding.id();
        opening.binding = Some(binding);
    }

    /// Handles a message between the policy's checks of it and of the reply, until the call's
    /// deadline.
    async fn exchange(self, message: RawMessage, cx: Context) -> RawReply {
        let fallback = self.client.url().host_str().unwrap_or_default();
        let server = cx.me().name().unwrap_or(fallback);
        // Questions of the remote agent cross the policy's boundary, as its replies do.
        let judged = cx.call().map(|call| {
            Arc::new(CallContext::clone(call).with_policy(
                cx.system(),
                Direction::Outbound,
                &cx.me().to_string(),
            ))
        });
        let asking = judged.map_or_else(|| cx.clone(), |call| cx.with_call(call));
        let deadline = || {
            cx.deadline()
                .unwrap_or_else(|| Instant::now() + self.client.options().call_timeout)
        };
        exchange(message, &cx, server, CallOrigin::A2A, deadline, |message| {
            self.handle_message(message, &asking)
        })
        .await
    }
}

/// Returns the reply to `DescribeAgent`, made from an agent card.
fn card_description(card: &AgentCard) -> RawObject {
    let info = RawObject::single("name", &card.name).with("version", &card.version);
    let tools = RawObject::single("tools", RawObject::single("listChanged", true));
    let about =
        DescribeAgentResult(RawObject::single("serverInfo", info).with("capabilities", tools));
    match card.description.is_empty() {
        true => about.0,
        false => about.0.with("instructions", &card.description),
    }
}

impl Agent for RemoteA2aAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(PENDING_CALLS_MAX)
            .concurrent::<Converse>(PENDING_CALLS_MAX);
    }

    fn profile() -> AgentProfile {
        // Dropping a call cancels the remote task, and clones share their state.
        AgentProfile::default().cancel_safe().inline_concurrent()
    }

    fn started(&mut self, _: &mut Context) {
        self.client.use_current_runtime();
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "agent": self.client.url().as_str() })
    }
}

fn no_such_skill(name: &str) -> Failure {
    const CHARS_MAX: usize = 80;
    let name: String = name.chars().take(CHARS_MAX).collect();
    Failure::not_found(format!(
        "the agent has no skill {name:?}: list its tools for the skills that it has"
    ))
}

impl ConcurrentHandler<RawMessage> for RemoteA2aAgent {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        self.clone().exchange(message, cx)
    }
}

impl ConcurrentHandler<Converse> for RemoteA2aAgent {
    fn handle(
        &mut self,
        Converse(said): Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let message = RawMessage {
            name: Converse::NAME.to_owned(),
            payload: said.to_raw(),
        };
        let replied = self.clone().exchange(message, cx);
        async move {
            ToolResult::parse(&replied.await?).map_err(|_| {
                Failure::internal(
                    "the agent's reply is no valid tool result: the agent has to be corrected",
                )
            })
        }
    }
}
