//! A remote agent, spoken to in A2A's own words.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use callboard_message::TraceContext;
use parking_lot::Mutex;
use reqwest::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use url::Url;

use super::bindings::{self, Events, unreadable};
use super::choose::{Candidate, candidates, is_at_or_below};
use super::connection::{Badge, Beside, Connection, Door, within};
use super::error::PeerError;
use super::operations::{Ask, query, segment};
use super::options::{
    ASIDE_TIMEOUT, CANCEL_TIMEOUT, CARD_AGE, PASSED_OVER, RemoteError, RemoteOptions, Version,
    is_plain,
};
use super::resolve::{FoundCard, Kept, believe, find};
use crate::dialect::{Dialect, Operation};
use crate::wire::{
    AgentCard, CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest,
    ListTasksResponse, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};

/// A remote agent, spoken to in A2A's own words. It looks for the card when it is first asked, and speaks to the best of
/// its interfaces; its clones are one.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
    /// Sent with every request: the place of a call in a trace.
    trace: Option<HeaderValue>,
}

struct Inner {
    url: Url,
    options: RemoteOptions,
    door: Arc<Door>,
    badge: Arc<Badge>,
    /// What was found; one looks for it at a time.
    known: tokio::sync::Mutex<Option<Known>>,
    /// What ended calls have left to do, and where that is done.
    farewells: TaskTracker,
    runtime: Mutex<Option<Handle>>,
    /// Interfaces that didn't work, and since when.
    passed_over: Mutex<Vec<(Candidate, Instant)>>,
}

#[derive(Clone)]
struct Known {
    kept: Kept,
    /// The card for those who are known, where there is one and it could be had.
    extended: Option<Arc<AgentCard>>,
    interfaces: Arc<[Connection]>,
}

impl Peer {
    /// The agent whose card, or whose endpoint, is at `url`.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn new(url: Url, options: RemoteOptions) -> Result<Self, RemoteError> {
        if !is_plain(&url) {
            return Err(RemoteError::Url);
        }
        if options.bindings.is_empty() || options.versions.is_empty() {
            return Err(RemoteError::NothingSpoken);
        }
        let (door, badge) = (
            Arc::new(Door::new(&options)?),
            Badge::new(&options.auth, &options.headers)?,
        );
        let inner = Arc::new(Inner {
            url,
            options,
            door,
            badge,
            known: tokio::sync::Mutex::default(),
            farewells: TaskTracker::new(),
            runtime: Mutex::default(),
            passed_over: Mutex::default(),
        });
        Ok(Self { inner, trace: None })
    }

    /// Where it was said to be.
    pub fn url(&self) -> &Url {
        &self.inner.url
    }

    /// The same agent, asked as part of a trace.
    pub fn traced(&self, trace: &TraceContext) -> Self {
        Self {
            trace: HeaderValue::from_str(&trace.to_string()).ok(),
            ..self.clone()
        }
    }

    fn beside<'a>(&'a self, last_event_id: Option<&'a str>) -> Beside<'a> {
        Beside {
            last_event_id,
            trace: self.trace.as_ref(),
        }
    }

    pub(super) fn options(&self) -> &RemoteOptions {
        &self.inner.options
    }

    /// Its card: the one for those who are known, where there is one and we are.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn card(&self) -> Result<Arc<AgentCard>, PeerError> {
        let known = self.known().await?;
        Ok(known.extended.unwrap_or(known.kept.found.card))
    }

    /// Its public card, and where that was.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn public_card(&self) -> Result<FoundCard, PeerError> {
        Ok(self.known().await?.kept.found)
    }

    /// The card for those who are known.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn extended_card(&self) -> Result<AgentCard, PeerError> {
        self.extended_card_of(&self.known().await?.interfaces).await
    }

    async fn extended_card_of(&self, interfaces: &[Connection]) -> Result<AgentCard, PeerError> {
        let write =
            |dialect: Dialect| dialect.write_request(&GetExtendedAgentCardRequest::default());
        let read = |_, raw: &RawValue| Dialect::read_card(raw);
        let ask = Ask::new(
            Operation::GetExtendedAgentCard,
            "/extendedAgentCard",
            &write,
            read,
        );
        within(ASIDE_TIMEOUT, async {
            believe(self.ask_of(interfaces, &ask).await?, &self.inner.options).await
        })
        .await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn send(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<SendMessageResponse, PeerError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_send(&request);
        self.ask(Ask::new(
            Operation::SendMessage,
            "/message:send",
            &write,
            Dialect::read_send_response,
        ))
        .await
    }

    /// Sends a message, and hears what happens.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn stream(&self, mut request: SendMessageRequest) -> Result<Events, PeerError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_send(&request);
        self.open(
            Ask::new(
                Operation::SendStreamingMessage,
                "/message:stream",
                &write,
                Dialect::read_event,
            ),
            None,
        )
        .await
    }

    /// Hears what happens to a task. `last_event_id`: where an earlier stream of it broke off.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn subscribe(
        &self,
        id: &str,
        last_event_id: Option<&str>,
    ) -> Result<Events, PeerError> {
        let request = SubscribeToTaskRequest {
            id: id.to_owned(),
            ..SubscribeToTaskRequest::default()
        };
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks/{}:subscribe", segment(id));
        self.open(
            Ask::new(
                Operation::SubscribeToTask,
                place,
                &write,
                Dialect::read_event,
            ),
            last_event_id,
        )
        .await
    }

    /// A task as it is.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn get(&self, mut request: GetTaskRequest) -> Result<Task, PeerError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!(
            "/tasks/{}{}",
            segment(&request.id),
            query(&request, &["id"])
        );
        within(
            ASIDE_TIMEOUT,
            self.ask(Ask::new(
                Operation::GetTask,
                place,
                &write,
                Dialect::read_task,
            )),
        )
        .await
    }

    /// A page of the tasks that are ours.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn list(
        &self,
        mut request: ListTasksRequest,
    ) -> Result<ListTasksResponse, PeerError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks{}", query(&request, &[]));
        within(
            ASIDE_TIMEOUT,
            self.ask(Ask::new(
                Operation::ListTasks,
                place,
                &write,
                Dialect::read_task_list,
            )),
        )
        .await
    }

    /// Ends a task.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn cancel(&self, id: &str) -> Result<Task, PeerError> {
        let request = CancelTaskRequest {
            id: id.to_owned(),
            ..CancelTaskRequest::default()
        };
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks/{}:cancel", segment(id));
        within(
            ASIDE_TIMEOUT,
            self.ask(Ask::new(
                Operation::CancelTask,
                place,
                &write,
                Dialect::read_task,
            )),
        )
        .await
    }

    /// Has what happens to a task pushed. The agent repeats the configuration: nothing to learn.
    pub(super) async fn push(&self, config: TaskPushNotificationConfig) -> Result<(), PeerError> {
        let write = |dialect: Dialect| dialect.write_push_config(&config);
        let place = format!(
            "/tasks/{}/pushNotificationConfigs",
            segment(&config.task_id)
        );
        let ask = Ask::new(
            Operation::CreateTaskPushNotificationConfig,
            place,
            &write,
            |_, _| Ok(()),
        );
        within(ASIDE_TIMEOUT, self.ask(ask)).await
    }

    /// Ends when all that was left to be said has been: to tasks of calls that were given up.
    pub async fn said_goodbye(&self) {
        self.inner.farewells.close();
        self.inner.farewells.wait().await;
    }

    /// From here on farewells are said by this runtime, where there is one: whoever's calls they are may be gone by then.
    pub(super) fn live_here(&self) {
        *self.inner.runtime.lock() = Handle::try_current().ok();
    }

    /// Says a farewell that nobody waits for.
    pub(super) fn leave(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        let kept = self.inner.runtime.lock().clone();
        if let Some(runtime) = kept.or_else(|| Handle::try_current().ok()) {
            self.inner
                .farewells
                .spawn_on(timeout(CANCEL_TIMEOUT, farewell), &runtime);
        }
    }

    async fn known(&self) -> Result<Known, PeerError> {
        let mut known = self.inner.known.lock().await;
        if let Some(known) = known
            .as_ref()
            .filter(|known| Instant::now() < known.kept.until)
        {
            return Ok(known.clone());
        }
        let Inner {
            url,
            options,
            door,
            badge,
            ..
        } = &*self.inner;
        let before = known.as_ref().map(|known| &known.kept);
        let kept = match find(url, before, door, badge, options).await {
            Ok(kept) => kept,
            Err(error) => {
                let Some(stale) = known.as_mut().filter(|_| !error.revokes_card()) else {
                    return Err(error);
                };
                callboard_message::log::warn!(%error, "a remote agent's card can't be looked at again: the earlier one stays");
                stale.kept.until = Instant::now() + CARD_AGE.0;
                return Ok(stale.clone());
            }
        };
        let is_same =
            before.is_some_and(|before| Arc::ptr_eq(&before.found.card, &kept.found.card));
        // It stays known while the new one is learned: a card that was found once is never looked for elsewhere.
        let fresh = match known.as_ref().filter(|_| is_same) {
            Some(before) => Known {
                kept,
                ..before.clone()
            },
            None => self.learn(kept).await,
        };
        *known = Some(fresh.clone());
        Ok(fresh)
    }

    async fn learn(&self, kept: Kept) -> Known {
        let Inner {
            url,
            options,
            door,
            badge,
            ..
        } = &*self.inner;
        let card = kept.found.card.clone();
        let connect = |to| {
            let (door, badge, card) = (door.clone(), badge.clone(), card.clone());
            Connection {
                to,
                door,
                badge,
                card,
                slash: AtomicBool::new(false),
            }
        };
        // Other interfaces of a card above the address are other agents'.
        let is_ours = |to: &Candidate| !kept.is_above || is_at_or_below(&to.url, url);
        let spoken = candidates(&card, &kept.found.url, options)
            .into_iter()
            .filter(is_ours);
        let interfaces: Arc<[Connection]> = spoken.map(connect).collect();
        let is_offered = card.capabilities.extended_agent_card == Some(true) && badge.shows();
        let mut extended = None;
        if is_offered {
            match self.extended_card_of(&interfaces).await {
                Ok(card) => extended = Some(Arc::new(card)),
                Err(error) => {
                    callboard_message::log::debug!(%error, "the extended card can't be had")
                }
            }
        }
        Known {
            kept,
            extended,
            interfaces,
        }
    }

    /// Interfaces to try: those that work, as far as is known; else all.
    fn in_turn<'a>(&self, interfaces: &'a [Connection]) -> Vec<&'a Connection> {
        let mut passed_over = self.inner.passed_over.lock();
        passed_over.retain(|(_, since)| since.elapsed() < PASSED_OVER);
        let works =
            |connection: &&Connection| !passed_over.iter().any(|(to, _)| *to == connection.to);
        let working: Vec<_> = interfaces.iter().filter(works).collect();
        if working.is_empty() {
            interfaces.iter().collect()
        } else {
            working
        }
    }

    /// Passes an interface over from now on, unless it may work again at once; returns its error.
    fn pass_over(&self, connection: &Connection, error: PeerError) -> PeerError {
        callboard_message::log::debug!(%error, version = ?connection.to.version, binding = ?connection.to.binding, "an interface is passed over");
        if !matches!(error, PeerError::Unreachable | PeerError::NotInVersion) {
            let mut passed_over = self.inner.passed_over.lock();
            passed_over.retain(|(to, _)| *to != connection.to);
            passed_over.push((connection.to.clone(), Instant::now()));
        }
        error
    }

    /// Whether its tasks are ours to name: it speaks 0.1 and nothing newer that we speak.
    pub(super) async fn names_tasks(&self) -> bool {
        let known = self.known().await;
        known.is_ok_and(|known| {
            !known.interfaces.is_empty()
                && known
                    .interfaces
                    .iter()
                    .all(|is| is.to.version == Version::V01)
        })
    }

    async fn ask<T>(&self, ask: Ask<'_, T>) -> Result<T, PeerError> {
        self.ask_of(&self.known().await?.interfaces, &ask).await
    }

    async fn ask_of<T>(&self, interfaces: &[Connection], ask: &Ask<'_, T>) -> Result<T, PeerError> {
        // Every agent answers messages.
        let is_essential = ask.operation == Operation::SendMessage;
        let mut why = PeerError::NothingInCommon;
        for connection in self.in_turn(interfaces) {
            match self.exchange(connection, ask).await {
                Err(error) if error.is_of_interface(is_essential) => {
                    why = self.pass_over(connection, error)
                }
                other => return other,
            }
        }
        Err(why)
    }

    async fn exchange<T>(&self, connection: &Connection, ask: &Ask<'_, T>) -> Result<T, PeerError> {
        let (response, id) = bindings::send(connection, ask, self.beside(None)).await?;
        let raw = bindings::result(response, id.as_ref(), &self.inner.options.limits).await?;
        (ask.read)(connection.to.dialect(), &raw).map_err(unreadable)
    }

    async fn open(
        &self,
        ask: Ask<'_, StreamResponse>,
        last_event_id: Option<&str>,
    ) -> Result<Events, PeerError> {
        let known = self.known().await?;
        let mut why = PeerError::NothingInCommon;
        for connection in self.in_turn(&known.interfaces) {
            match Events::open(
                connection,
                &ask,
                self.beside(last_event_id),
                &self.inner.options.limits,
            )
            .await
            {
                Err(error) if error.is_of_interface(false) => {
                    why = self.pass_over(connection, error)
                }
                other => return other,
            }
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::resolve::tests::{CardServer, OWN, ROOT};

    /// Goal: an agent whose server restarts is never taken for another; while its card can't be had for another reason the
    /// earlier one stays. Method: a card that is due to be looked at again, and each answer.
    #[tokio::test]
    async fn restarted_agents_stay_themselves() {
        let server = CardServer::start().await;
        server.put_card(OWN, "down", "/agents/down");
        let peer = Peer::new(server.agent(), RemoteOptions::default()).unwrap();
        assert_eq!(peer.card().await.unwrap().name, "down");
        let is_due =
            async || peer.inner.known.lock().await.as_mut().unwrap().kept.until = Instant::now();
        server.put_card(ROOT, "up", "/agents/down");
        for _ in 0..2 {
            server.put(OWN, 404, String::new());
            is_due().await;
            let error = peer.card().await.unwrap_err();
            assert!(
                matches!(error, PeerError::CardStatus { status: 404, .. }),
                "{error}"
            );
        }
        for status in [401, 429, 503] {
            server.put(OWN, status, String::new());
            is_due().await;
            assert_eq!(peer.card().await.unwrap().name, "down", "{status}");
        }
        assert!(!server.asked().iter().any(|path| path == ROOT));
        server.put_card(OWN, "down, again", "/agents/down");
        is_due().await;
        assert_eq!(peer.card().await.unwrap().name, "down, again");
    }

    /// Goal: of a card above an address only the interfaces there are spoken to; of an agent's own card all are. Method: a card
    /// of several interfaces at both places.
    #[tokio::test]
    async fn interfaces_of_others_are_not_spoken_to() {
        let interfaces = [
            "/agents/up",
            "/agents/downtown",
            "/agents/down",
            "/",
            "/agents/down/a2a",
            "https://b.example/",
        ];
        for (place, expected) in [
            (ROOT, vec!["/agents/down", "/agents/down/a2a"]),
            (OWN, interfaces.to_vec()),
        ] {
            let server = CardServer::start().await;
            server.put_card_with(place, "down", &interfaces);
            let peer = Peer::new(server.agent(), RemoteOptions::default()).unwrap();
            let known = peer.known().await.unwrap();
            let spoken: Vec<Url> = known
                .interfaces
                .iter()
                .map(|is| is.to.url.clone())
                .collect();
            let base: Url = server.url.parse().unwrap();
            let expected: Vec<Url> = expected.iter().map(|url| base.join(url).unwrap()).collect();
            assert_eq!(spoken, expected, "{place}");
        }
    }
}
