//! A remote agent as an agent.

use std::sync::Arc;

use callboard_message::surface::{About, CallTool, Converse, Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Change, Failure, Message as _, Named, RawObject};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, CallMeta, ConcurrentHandler, Cx, Direction, Handlers, Profile};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::conversation::{Opening, Stopped, converse};
use super::error::PeerError;
use super::options::{CALLS_IN_FLIGHT_MAX, RemoteError, RemoteOptions};
use super::outcome::{refused, result, value};
use super::peer::Peer;
use super::story::Story;
use super::tools::Book;
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
        Ok(Self {
            peer: Peer::new(card, options)?,
            book: Arc::default(),
        })
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
    async fn book(&self, cx: &Cx) -> Result<Arc<Book>, Failure> {
        let card = self.peer.card().await?;
        let (book, is_other) = {
            let mut known = self.book.lock();
            match &*known {
                Some((of, book)) if Arc::ptr_eq(of, &card) => (book.clone(), false),
                before => {
                    let book = Arc::new(Book::of(&card));
                    let is_other = before
                        .as_ref()
                        .is_some_and(|(_, before)| before.page().get() != book.page().get());
                    *known = Some((card, book.clone()));
                    (book, is_other)
                }
            }
        };
        if is_other {
            cx.changed(Change::Tools);
        }
        Ok(book)
    }

    /// Does what a message wants: one of [`callboard_message::surface`], or a skill by its name.
    ///
    /// # Errors
    /// Where it is none that A2A has, or no JSON object; those of the conversation.
    async fn answer(&self, message: Named, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let Named { name, payload } = message;
        let is_typed = !name.starts_with(RESERVED_PREFIX);
        let no_object = || Failure::invalid("the message must be a JSON object");
        let mut params = match is_typed {
            // What it holds is for the skill.
            true if payload.get().starts_with('{') => RawObject::new(),
            true => return Err(no_object()),
            false => RawObject::parse(&payload).map_err(|_| no_object())?,
        };
        let (skill, arguments) = match name.as_str() {
            _ if is_typed => (name, payload),
            Describe::NAME => return Ok(about(&*self.card().await?).to_raw()),
            ListTools::NAME => return Ok(self.book(cx).await?.page()),
            Converse::NAME => return self.use_tool(opening(&Converse(params)), cx).await,
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
            _ => return Err(Failure::not_found("no A2A agent has such a message")),
        };
        let book = self.book(cx).await?;
        let skill = book
            .get(&skill)
            .ok_or_else(|| Failure::not_found("the agent has no such skill"))?;
        let opening = book.opening(
            skill,
            &arguments,
            &params.object("_meta").unwrap_or_default(),
        )?;
        if !is_typed {
            return self.use_tool(opening, cx).await;
        }
        value(&self.converse(opening, cx).await?, Some(skill))
    }

    async fn use_tool(&self, opening: Opening, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let result = match self.converse(opening, cx).await {
            Ok(story) => result(&story)?,
            Err(Stopped::Peer(PeerError::Agent(error))) => refused(error),
            Err(stopped) => return Err(stopped.into()),
        };
        Ok(to_raw_value(&result).unwrap_or_default())
    }

    async fn converse(&self, mut opening: Opening, cx: &Cx) -> Result<Story, Stopped> {
        let Some(call) = cx.call() else {
            return converse(&self.peer, None, opening).await;
        };
        // A callboard there ends a call that goes round in circles.
        opening
            .message
            .metadata
            .get_or_insert_default()
            .set(HOPS, call.hops.saturating_add(1));
        converse(
            &self.peer.traced(&call.trace),
            call.caller.as_deref(),
            opening,
        )
        .await
    }
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
                Arc::new(CallMeta::clone(call).judged(
                    cx.system(),
                    Direction::Outbound,
                    &cx.me().to_string(),
                ))
            });
            let asking = judged.map_or_else(|| cx.clone(), |call| cx.within(call));
            let deadline = || {
                cx.deadline()
                    .unwrap_or_else(|| Instant::now() + this.peer.options().call_timeout)
            };
            exchange(message, &cx, server, deadline, |message| {
                this.answer(message, &asking)
            })
            .await
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
