//! A remote agent as an agent.

use std::sync::{Arc, Mutex};

use callboard_message::surface::{About, CallTool, Converse, Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Change, Failure, Message as _, Named, RawObject};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, CallMeta, Caller, ConcurrentHandler, Cx, Direction, Handlers, Profile};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::conversation::{Ended, Opening, converse};
use super::error::PeerError;
use super::lock;
use super::options::{CALLS_IN_FLIGHT_MAX, RemoteError, RemoteOptions};
use super::outcome::{refused, result, value};
use super::peer::Peer;
use super::tools::{Book, Skill};
use crate::convert::{HOPS, parts_of};
use crate::wire::{AgentCard, Message, Role};

/// An A2A agent elsewhere, as an agent of this system.
///
/// - `callboard.tools.list` and its kind show its skills as tools, `callboard.tools.call` uses one, `callboard.converse`
///   says something in no skill's words ([`callboard_message::surface`]).
/// - Any other message is a skill of its name. Its reply is the plain value, so that asking a remote agent a typed message
///   looks like asking a local one.
///
/// What it asks goes to whoever called, as do its progress and its artifacts. It looks for the agent's card when it is first
/// asked. It follows no redirects and no proxy variables.
#[derive(Clone)]
pub struct RemoteA2a {
    peer: Peer,
    book: Arc<Mutex<Option<Known>>>,
}

/// A card, and the tools that are on it.
type Known = (Arc<AgentCard>, Arc<Book>);

impl RemoteA2a {
    /// The agent whose card, or whose endpoint, is at `card`.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn new(card: Url, options: RemoteOptions) -> Result<Self, RemoteError> {
        Ok(Self { peer: Peer::new(card, options)?, book: Arc::default() })
    }

    /// Its card.
    ///
    /// # Errors
    /// Where none can be had.
    pub async fn card(&self) -> Result<Arc<AgentCard>, Failure> {
        Ok(self.peer.card().await?)
    }

    /// The same agent, spoken to in A2A's own words.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Ends when all that agents like this one (its clones) had to end has ended: tasks of calls that were given up. Call it
    /// once the agents have been stopped, on a clone kept for that.
    pub async fn said_goodbye(&self) {
        self.peer.said_goodbye().await;
    }

    /// The tools that are on the card of now.
    async fn book(&self, cx: &Cx) -> Result<(Arc<AgentCard>, Arc<Book>), Failure> {
        let card = self.peer.card().await?;
        let (book, is_other) = {
            let mut known = lock(&self.book);
            match &*known {
                Some((of, book)) if Arc::ptr_eq(of, &card) => (book.clone(), false),
                before => {
                    let book = Arc::new(Book::of(&card));
                    let is_other = before.as_ref().is_some_and(|(_, before)| before.page().get() != book.page().get());
                    *known = Some((card.clone(), book.clone()));
                    (book, is_other)
                }
            }
        };
        if is_other {
            cx.changed(Change::Tools);
        }
        Ok((card, book))
    }

    fn traced(&self, cx: &Cx) -> Peer {
        cx.call().map_or_else(|| self.peer.clone(), |call| self.peer.traced(&call.trace))
    }

    async fn answer(&self, message: Named, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        match Errand::read(message)? {
            Errand::Describe => Ok(about(&*self.card().await?).to_raw()),
            Errand::ListTools => Ok(self.book(cx).await?.1.page()),
            Errand::Converse(opening) => self.use_tool(opening, cx).await,
            Errand::Use { skill, arguments, meta, is_typed } => {
                let (_, book) = self.book(cx).await?;
                let skill = book.get(&skill).ok_or_else(|| Failure::not_found("the agent has no such skill"))?;
                let opening = book.opening(skill, &arguments, &meta)?;
                match is_typed {
                    true => self.use_typed(skill, opening, cx).await,
                    false => self.use_tool(opening, cx).await,
                }
            }
        }
    }

    async fn use_tool(&self, opening: Opening, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let result = match converse(&self.traced(cx), caller_of(cx), passed_on(opening, cx)).await? {
            Ended::Told(story) => result(&story)?,
            Ended::Refused(error) => refused(error),
        };
        Ok(to_raw_value(&result).unwrap_or_default())
    }

    async fn use_typed(&self, skill: &Skill, opening: Opening, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        match converse(&self.traced(cx), caller_of(cx), passed_on(opening, cx)).await? {
            Ended::Told(story) => value(&story, Some(skill)),
            Ended::Refused(error) => Err(PeerError::Agent(error).into()),
        }
    }
}

/// The same with how many agents the call has passed through: a callboard there ends one that goes round in circles.
fn passed_on(mut opening: Opening, cx: &Cx) -> Opening {
    if let Some(call) = cx.call() {
        opening.message.metadata.get_or_insert_default().set(HOPS, call.hops.saturating_add(1));
    }
    opening
}

fn caller_of(cx: &Cx) -> Option<&dyn Caller> {
    cx.call()?.caller.as_deref()
}

/// What a card says, as any agent says it of itself.
fn about(card: &AgentCard) -> RawObject {
    let info = RawObject::of("name", &card.name).with("version", &card.version);
    let tools = RawObject::of("tools", RawObject::of("listChanged", true));
    let about = About(RawObject::of("serverInfo", info).with("capabilities", tools));
    match card.description.is_empty() {
        true => about.0,
        false => about.0.with("instructions", &card.description),
    }
}

impl Agent for RemoteA2a {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(CALLS_IN_FLIGHT_MAX);
    }

    fn profile() -> Profile {
        // What is given up is given up at the agent too; the state is a handle.
        Profile::default().cancel_safe().with_askers()
    }

    fn started(&mut self, _: &mut Cx) {
        self.peer.live_here();
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "agent": self.peer.url().as_str() })
    }
}

impl ConcurrentHandler<Named> for RemoteA2a {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let this = self.clone();
        async move {
            let fallback = this.peer.url().host_str().unwrap_or_default();
            let server = cx.me().name().unwrap_or(fallback);
            // What an agent asks crosses a boundary as its replies do.
            let judged = cx.call().map(|call| {
                Arc::new(CallMeta::clone(call).judged(cx.system(), Direction::Outbound, &cx.me().to_string()))
            });
            let asking = judged.map_or_else(|| cx.clone(), |call| cx.within(call));
            let deadline = || cx.deadline().unwrap_or_else(|| Instant::now() + this.peer.options().call_timeout);
            exchange(message, &cx, server, deadline, |message| this.answer(message, &asking)).await
        }
    }
}

/// What a message wants of a remote agent.
enum Errand {
    /// What it says of itself.
    Describe,
    /// Its skills.
    ListTools,
    /// A skill. `is_typed`: the plain value is the reply, else the tool's result.
    Use { skill: String, arguments: Box<RawValue>, meta: RawObject, is_typed: bool },
    /// What somebody says.
    Converse(Opening),
}

impl Errand {
    /// Reads a message: one of [`callboard_message::surface`], or a skill by its name.
    ///
    /// # Errors
    /// Where it is none that A2A has, or no JSON object.
    fn read(message: Named) -> Result<Self, Failure> {
        let Named { name, payload } = message;
        let no_object = || Failure::invalid("the message must be a JSON object");
        if !name.starts_with(RESERVED_PREFIX) {
            return match payload.get().starts_with('{') {
                true => Ok(Self::Use { skill: name, arguments: payload, meta: RawObject::new(), is_typed: true }),
                false => Err(no_object()),
            };
        }
        let mut params = RawObject::parse(&payload).map_err(|_| no_object())?;
        match name.as_str() {
            Describe::NAME => Ok(Self::Describe),
            ListTools::NAME => Ok(Self::ListTools),
            CallTool::NAME => {
                let skill = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
                let arguments = params.remove("arguments").unwrap_or_else(|| RawObject::new().to_raw());
                let meta = params.object("_meta").unwrap_or_default();
                Ok(Self::Use { skill, arguments, meta, is_typed: false })
            }
            Converse::NAME => Ok(Self::Converse(opening(&Converse(params)))),
            _ => Err(Failure::not_found("no A2A agent has such a message")),
        }
    }
}

/// What somebody says, as a message of A2A's.
fn opening(said: &Converse) -> Opening {
    let skill = said.0.text("skill");
    let metadata = said.0.object("metadata");
    let metadata = match (metadata, skill) {
        (metadata, Some(skill)) => Some(metadata.unwrap_or_default().with("skill", skill)),
        (metadata, None) => metadata,
    };
    let key = Some(said.key()).filter(|key| !key.is_empty());
    Opening {
        message: Message {
            message_id: key.unwrap_or_else(|| Uuid::new_v4().to_string()),
            context_id: said.context(),
            role: Role::User,
            parts: parts_of(&said.content()),
            metadata,
            ..Message::default()
        },
        keeps: false,
    }
}
