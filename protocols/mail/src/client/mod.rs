//! A client of a mail listener.

mod events;

use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_message::mail::{
    AGENT_ID_HEADER, AgentStatus, AgentView, BroadcastMessage, Done, EntryState, History, Logs, MailId, MailView,
    MessageHistory, SendMessage, Sent,
};
use callboard_message::mail::{AgentLogs, Direction, MemberState};
use callboard_rpc::http1::{self, BodyError, Connector, NetError, Response, Target};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;
use url::form_urlencoded::Serializer;

pub use self::events::{EventStream, Heard};
use crate::ClientError;
use crate::limits::ANSWER_BYTES_MAX;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than the server gives the mailroom.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);

/// An agent at a mail listener: its key, and the id that goes with it. Its clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: http1::Client,
    base: Url,
    headers: HeaderMap,
}

impl Client {
    /// Without a connection yet. `base` is the listener's address; without a key only a listener that trusts its machine's
    /// operator answers, to the id `operator`.
    ///
    /// # Errors
    /// [`ClientError::Address`], [`ClientError::Key`].
    pub fn new(base: Url, key: impl Into<Option<SecretString>>, id: &MailId) -> Result<Self, ClientError> {
        let is_bare = base.path() == "/" && base.query().is_none() && base.username().is_empty();
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() || !is_bare || base.password().is_some() {
            return Err(ClientError::Address);
        }
        let mut headers = HeaderMap::new();
        headers.insert(AGENT_ID, HeaderValue::from_str(id.as_str()).map_err(|_| ClientError::Key)?);
        if let Some(key) = key.into() {
            let shown = format!("Bearer {}", key.expose_secret());
            let mut value = HeaderValue::from_str(&shown).map_err(|_| ClientError::Key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let connector = Connector::new(CONNECT_TIMEOUT).map_err(|_| ClientError::Unreachable)?;
        Ok(Self { http: http1::Client::new(connector), base, headers })
    }

    /// Tells all active agents, or a group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn broadcast(&self, message: &BroadcastMessage) -> Result<Sent, ClientError> {
        self.post("/api/broadcast_message?detail=true", message).await
    }

    /// Writes to one agent, or to a list. A recipient that can't be written to is no error: see [`Sent::success`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send(&self, message: &SendMessage) -> Result<Sent, ClientError> {
        self.post("/api/send_message?detail=true", message).await
    }

    /// Answers a message: its sender gets it, and its other recipients where they are to.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reply(&self, to: &MailId, message: &str, to_all: bool) -> Result<Sent, ClientError> {
        let body = RawObject::new().with("message", message).with("to_all", to_all);
        self.post(&format!("/api/messages/{to}/reply?detail=true"), &body).await
    }

    /// Who is here; in this state only.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agents(&self, state: Option<MemberState>) -> Result<AgentStatus, ClientError> {
        let query = Query::default().add("state", state.map(MemberState::as_str));
        self.get(&query.behind("/api/agents")).await
    }

    /// One agent.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent(&self, id: &MailId) -> Result<AgentView, ClientError> {
        self.get(&format!("/api/agents/{id}")).await
    }

    /// Says that an agent is terminated, or that it is back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_agent(&self, id: &MailId, back: bool) -> Result<Done, ClientError> {
        self.post(&format!("/api/agents/{id}/{}", if back { "back" } else { "end" }), &RawObject::new()).await
    }

    /// A page of messages, newest first, with what was sent. They count as delivered.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn messages(&self, filter: &MessageHistory) -> Result<History, ClientError> {
        let query = Query::default()
            .add("box", filter.direction.map(Direction::as_str))
            .add("from", filter.from.as_deref())
            .add("with", filter.with.as_deref())
            .add("topic", filter.topic.as_deref())
            .add("thread", filter.thread.as_deref())
            .add("text", filter.text.as_deref())
            .add("since", filter.since.as_deref())
            .add("until", filter.until.as_deref())
            .add("state", filter.state.map(EntryState::as_str))
            .add("after", filter.after)
            .add("limit", filter.limit);
        self.get(&query.behind("/api/messages")).await
    }

    /// One message, with its receipts where they are wanted. It counts as delivered.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn message(&self, id: &MailId, receipts: bool) -> Result<MailView, ClientError> {
        self.get(&Query::default().add("receipts", receipts.then_some(true)).behind(&format!("/api/messages/{id}")))
            .await
    }

    /// Says that a message is read.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn mark_read(&self, id: &MailId) -> Result<Done, ClientError> {
        self.post(&format!("/api/messages/{id}/read"), &RawObject::new()).await
    }

    /// Who wrote to whom, oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent_logs(&self, asked: &AgentLogs) -> Result<Logs, ClientError> {
        let query = Query::default()
            .add("agent_id", asked.agent_id.as_deref())
            .add("after", asked.after)
            .add("limit", asked.limit);
        self.get(&query.behind("/api/agent_logs")).await
    }

    /// What happens, from a number on (0: the oldest that is kept), or from now on. It goes on by itself when its
    /// connection breaks, and shows each event once. `types` are names of events; none: all of them.
    pub fn events(&self, after: Option<u64>, types: &[&str]) -> EventStream {
        EventStream::new(self.clone(), after, types)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, self.headers.clone(), Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|_| ClientError::Unreadable)?;
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.ask(Method::POST, path, headers, body.into()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let url = self.base.join(path).map_err(|_| ClientError::Address)?;
        let target = Target::new(&url).ok_or(ClientError::Address)?;
        let exchange = async {
            let response = self.http.send(&target, method, headers, body).await.map_err(of_net)?;
            let (status, retry_after_s) = (response.status().as_u16(), retry_after_s(&response));
            let body = response.body(ANSWER_BYTES_MAX).await.map_err(|error| match error {
                BodyError::TooLarge => ClientError::Unreadable,
                BodyError::Net(error) => of_net(error),
            })?;
            match status {
                200 => serde_json::from_slice(&body).map_err(|_| ClientError::Unreadable),
                _ => Err(refused(status, &body, retry_after_s)),
            }
        };
        let in_time = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        in_time.map_err(|_| ClientError::TimedOut(ANSWER_TIMEOUT))?
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

fn of_net(error: NetError) -> ClientError {
    match error {
        NetError::Unreachable => ClientError::Unreachable,
        NetError::Broken => ClientError::Broken,
    }
}

fn retry_after_s(response: &Response) -> Option<u64> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// What a status other than 200 says, in the server's own words where they are a mail listener's.
fn refused(status: u16, body: &[u8], retry_after_s: Option<u64>) -> ClientError {
    #[derive(Deserialize)]
    struct Told {
        detail: String,
    }
    let told = serde_json::from_slice::<Told>(body).ok().map(|told| told.detail);
    let detail = told.unwrap_or_else(|| "the server refuses".to_owned());
    ClientError::Refused { status, detail, retry_after_s }
}

/// The query of a path.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let written = Serializer::new(String::new()).append_pair(name, &value.to_string()).finish();
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(&written);
        }
        self
    }

    fn behind(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}
