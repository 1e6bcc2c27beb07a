//! One server: connected when it is first needed, connected again when that was lost.

use std::sync::{Arc, Mutex};

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_runtime::Cx;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Core, Wiring};
use super::link::{LinkError, lock};
use super::options::SUBSCRIPTIONS_MAX;
use super::session::{Session, quietly};
use super::{listen, modern};
use crate::wire::{Era, hmcp};

/// What one incarnation of a client has of its server.
pub(crate) struct Upstream {
    core: Arc<Core>,
    state: Mutex<State>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Session>, LinkError>>>;

enum State {
    Apart,
    Connecting(Connecting),
    Up(Arc<Session>),
}

impl Upstream {
    pub(crate) fn new(wiring: Wiring) -> Self {
        let core = Arc::new(Core { wiring, resources: Mutex::default() });
        Self { core, state: Mutex::new(State::Apart) }
    }

    /// The connection there is, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        match &*lock(&self.state) {
            State::Up(session) if !session.link.is_closed() => Some(session.clone()),
            _ => None,
        }
    }

    /// Asks the server whether it is there, over the connection where there is one; else makes one.
    pub(crate) async fn check(&self) -> Result<Arc<Session>, LinkError> {
        let Some(session) = self.current() else { return self.session().await };
        let checked = match session.era() {
            Era::Legacy => session.request_quietly("ping", RawObject::new()).await.map(drop),
            Era::Modern => modern::discover(&session.link, &session.ear, &self.core.options).await.map(drop),
        };
        match checked {
            // Whatever it says, it is there.
            Ok(()) | Err(LinkError::Rpc { .. }) => Ok(session),
            Err(LinkError::SessionLost) => {
                self.leave(&session);
                self.session().await
            }
            Err(error) => Err(error),
        }
    }

    /// The connection, made now where there is none. Several calls that need one share it.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, LinkError> {
        let connecting = {
            let mut state = lock(&self.state);
            match &*state {
                State::Up(session) if !session.link.is_closed() => return Ok(session.clone()),
                // One that failed while nobody looked tells nothing of now.
                State::Connecting(connecting) if !matches!(connecting.peek(), Some(Err(_))) => connecting.clone(),
                _ => {
                    let connecting = self.connecting();
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let connected = connecting.clone().await;
        let mut state = lock(&self.state);
        if matches!(&*state, State::Connecting(current) if current.ptr_eq(&connecting)) {
            *state = match &connected {
                Ok(session) => State::Up(session.clone()),
                Err(_) => State::Apart,
            };
        }
        connected
    }

    /// A task of its own, so that it goes on when the call that needed it first is cancelled.
    fn connecting(&self) -> Connecting {
        let core = self.core.clone();
        let task = self.core.spawn(async move {
            let limit = core.options.handshake_timeout;
            timeout(limit, core.connect()).await.unwrap_or(Err(LinkError::TimedOut(limit)))
        });
        let task = AbortOnDropHandle::new(task);
        async move { task.await.unwrap_or(Err(LinkError::Broken("the connection was given up"))) }.boxed().shared()
    }

    /// Forgets `session`: the next call makes another.
    pub(crate) fn leave(&self, session: &Arc<Session>) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Up(current) if Arc::ptr_eq(current, session)) {
            *state = State::Apart;
        }
    }

    /// Tells the server that the client's roots have changed, where it was promised to hear of that. A connection to be made
    /// asks for them anew.
    pub(crate) async fn roots_changed(&self) {
        let connecting = match &*lock(&self.state) {
            State::Connecting(connecting) => Some(connecting.clone()),
            _ => None,
        };
        let session = match connecting {
            Some(connecting) => connecting.await.ok(),
            None => self.current(),
        };
        if let Some(session) = session {
            session.tell_roots_changed().await;
        }
    }

    /// Does a request of the call `cx`. A server that has forgotten the session is greeted once more.
    pub(crate) async fn request(&self, method: &str, params: &RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let session = self.session().await?;
        match self.request_in(&session, method, params, cx).await {
            Err(LinkError::SessionLost) => {
                self.leave(&session);
                drop(session);
                let session = self.session().await?;
                self.request_in(&session, method, params, cx).await
            }
            other => other,
        }
    }

    async fn request_in(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: &RawObject,
        cx: &Cx,
    ) -> Result<Box<RawValue>, LinkError> {
        if method == hmcp::METHOD {
            hmcp::gate(&session.about).map_err(LinkError::Failed)?;
        }
        if session.era() == Era::Legacy {
            return session.request(method, params, cx).await;
        }
        let tools = &self.core.tools;
        let mirrors = method == "tools/call" && session.link.http().is_some();
        if mirrors {
            self.know(session, params).await?;
        }
        let result = modern::rounds(session, tools, method, params, cx).await;
        match result {
            Err(error) if mirrors && modern::is_header_mismatch(&error) => {
                tools.forget();
                self.know(session, params).await?;
                modern::rounds(session, tools, method, params, cx).await
            }
            Err(LinkError::Status(status @ (400 | 404 | 405))) => {
                // No modern server answers so: it may have become another.
                *lock(&self.core.server.remembered) = None;
                self.leave(session);
                Err(LinkError::Status(status))
            }
            other => other,
        }
    }

    /// Sees to it that the tool's schema is known before it is called: it says what goes into headers.
    async fn know(&self, session: &Session, params: &RawObject) -> Result<(), LinkError> {
        let Some(tool) = params.text("name") else { return Ok(()) };
        if self.lacks(&tool) {
            // Boxed, for most calls need it not: they carry no room for it.
            Box::pin(self.read_tools(session)).await;
        }
        match self.core.tools.get(&tool) {
            Some(known) if known.mirrors.is_none() => Err(LinkError::Failed(Failure::new(
                FailureKind::Rejected,
                "the tool's x-mcp-header annotations are invalid",
            ))),
            _ => Ok(()),
        }
    }

    /// Whether nothing is known of the tool yet, and the list may tell.
    fn lacks(&self, tool: &str) -> bool {
        self.core.tools.get(tool).is_none() && !self.core.tools.is_whole()
    }

    /// Reads the list of tools to its end, or as far as it goes.
    async fn read_tools(&self, session: &Session) {
        let mut cursor: Option<Box<RawValue>> = None;
        for _ in 0..self.core.options.pages_max {
            let mut params = RawObject::new();
            if let Some(cursor) = cursor.take() {
                params.set_raw("cursor", cursor);
            }
            let page = match session.era() {
                Era::Legacy => session.request_quietly("tools/list", params).await,
                Era::Modern => {
                    let ask = |number| modern::request(number, "tools/list", &params, None, &self.core.options, None);
                    quietly(&session.link, &session.ear, ask).await
                }
            };
            let Ok(page) = page else { return };
            cursor = self.learn(session, &page).1;
            if cursor.is_none() {
                self.core.tools.set_whole();
                return;
            }
        }
        callboard_message::log::warn!(pages_max = self.core.options.pages_max, "the list of tools doesn't end");
    }

    /// Learns from a page of `tools/list`: the page without tools that mustn't be used where it has some, and the cursor
    /// of the next.
    fn learn(&self, session: &Session, page: &RawValue) -> (Option<Box<RawValue>>, Option<Box<RawValue>>) {
        let is_strict = session.era() == Era::Modern && session.link.http().is_some();
        let kept = self.core.tools.learn(page, is_strict);
        let next = RawObject::parse(page).ok().and_then(|mut page| page.remove("nextCursor"));
        (kept, next.filter(|cursor| cursor.get() != "null"))
    }

    /// `tools/list`, without tools that mustn't be used.
    pub(crate) async fn list_tools(&self, params: &RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let from_start = !params.has("cursor");
        let page = self.request("tools/list", params, cx).await?;
        let session = self.session().await?;
        let (kept, next) = self.learn(&session, &page);
        if from_start && next.is_none() {
            self.core.tools.set_whole();
        }
        Ok(kept.unwrap_or(page))
    }

    /// Whether a tool's structured content is `{"result": …}` around the value.
    pub(crate) async fn is_wrapped(&self, tool: &str) -> bool {
        if self.lacks(tool)
            && let Ok(session) = self.session().await
        {
            self.read_tools(&session).await;
        }
        self.core.tools.get(tool).is_some_and(|known| known.wrapped)
    }

    /// Tells this agent's followers of changes to a resource, or no more.
    pub(crate) async fn subscribe(&self, on: bool, params: &RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let uri = params.text("uri").ok_or_else(|| LinkError::Failed(Failure::invalid("`uri` must be a string")))?;
        let session = self.session().await?;
        if on && lock(&self.core.resources).len() >= SUBSCRIPTIONS_MAX {
            let why = format!("more than {SUBSCRIPTIONS_MAX} resources are followed");
            return Err(LinkError::Failed(Failure::new(FailureKind::Overloaded, why)));
        }
        let result = match session.era() {
            Era::Legacy if on => self.request("resources/subscribe", params, cx).await?,
            Era::Legacy => self.request("resources/unsubscribe", params, cx).await?,
            Era::Modern => RawObject::new().with("resultType", "complete").to_raw(),
        };
        let resources: Vec<String> = {
            let mut resources = lock(&self.core.resources);
            match on {
                true => drop(resources.insert(uri)),
                false => drop(resources.remove(&uri)),
            }
            resources.iter().cloned().collect()
        };
        if session.era() == Era::Modern {
            let listener = {
                let _there = self.core.runtime.as_ref().map(|runtime| runtime.enter());
                listen::start(&session, resources)
            };
            match listener {
                Some(listener) => listener.replace(&session).await,
                None => drop(lock(&session.listener).take()),
            }
        }
        Ok(result)
    }

    /// What people see of it.
    pub(crate) fn observe(&self) -> serde_json::Value {
        let mut seen = serde_json::json!({ "server": self.core.server.endpoint.to_string(), "state": "apart" });
        match &*lock(&self.state) {
            State::Apart => {}
            State::Connecting(_) => seen["state"] = "connecting".into(),
            State::Up(session) => {
                if !session.link.is_closed() {
                    seen["state"] = "connected".into();
                }
                seen["revision"] = session.revision.as_str().into();
                seen["unknown_responses"] = session.ear.flights.unknown().into();
            }
        }
        seen
    }
}
