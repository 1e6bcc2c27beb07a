//! Requests to a remote agent's server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::Egress;
use callboard_rpc::http1::{Clients, Response, Target};
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::auth::Badge;
use super::choose::Candidate;
use super::error::PeerError;
use super::options::{RemoteError, RemoteOptions, Version};
use crate::wire::AgentCard;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// W3C Trace Context.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The way out. It follows no redirects.
pub(super) struct Door {
    own: Clients,
    guarded: Clients,
    egress: Egress,
    is_hearsay: bool,
}

impl Door {
    /// # Errors
    /// [`RemoteError::Tls`].
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, RemoteError> {
        let (own, guarded) = options.clients()?;
        Ok(Self { own, guarded, egress: options.egress.clone(), is_hearsay: options.is_hearsay })
    }

    /// Sends a request. `is_ours`: the operator named the place, unless all of it is hearsay; else it must be one that the
    /// guard allows.
    pub(super) async fn send(
        &self,
        url: &Url,
        is_ours: bool,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, PeerError> {
        let is_ours = is_ours && !self.is_hearsay;
        if !is_ours {
            self.egress.check(url).map_err(PeerError::Egress)?;
        }
        let target = Target::new(url).ok_or_else(|| PeerError::Protocol("a URL can't be used over HTTP".into()))?;
        let clients = if is_ours { &self.own } else { &self.guarded };
        Ok(clients.here().send(&target, method, headers, body).await?)
    }
}

/// What every request to one interface needs.
pub(super) struct Connection {
    pub(super) to: Candidate,
    pub(super) door: Arc<Door>,
    pub(super) badge: Arc<Badge>,
    pub(super) card: Arc<AgentCard>,
    /// The server answers under the URL with a slash more, or less, than its card says.
    pub(super) slash: AtomicBool,
}

/// One request of HTTP.
pub(super) struct Sent<'a> {
    pub(super) method: Method,
    /// The URL's, behind the interface's own.
    pub(super) tail: &'a str,
    pub(super) body: Bytes,
    pub(super) streams: bool,
    pub(super) beside: Beside<'a>,
}

/// What a request says beside what it asks.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    /// Where a stream is taken up.
    pub(super) last_event_id: Option<&'a str>,
    /// The call's place in a trace.
    pub(super) trace: Option<&'a HeaderValue>,
}

impl Connection {
    /// Sends a request and waits for the head of its response: what refuses is one too.
    pub(super) async fn send(&self, sent: &Sent<'_>) -> Result<Response, PeerError> {
        let mut may_renew = true;
        let known = self.slash.load(Relaxed);
        let mut slash = known;
        loop {
            let response = self.send_once(sent, slash).await?;
            match response.status().as_u16() {
                401 if may_renew && self.to.is_trusted && self.badge.refused() => may_renew = false,
                // Some servers know their address in one of the two spellings only.
                404 | 405 | 307 | 308 if sent.tail.is_empty() && !is_json(&response) => match slash == known {
                    true => slash = !known,
                    false => return Ok(response),
                },
                _ => {
                    self.slash.store(slash, Relaxed);
                    return Ok(response);
                }
            }
        }
    }

    async fn send_once(&self, sent: &Sent<'_>, slash: bool) -> Result<Response, PeerError> {
        // What shows who asks goes to the card's own server, and to those that the operator names.
        let mut headers = match self.to.is_trusted {
            true => self.badge.headers(Some((&self.card, &self.to.url)), &self.door).await?,
            false => HeaderMap::new(),
        };
        headers.insert(ACCEPT, if sent.streams { STREAM } else { JSON });
        if !sent.body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        // 0.1 knew of no versions.
        if self.to.version != Version::V01 {
            headers.insert(VERSION, HeaderValue::from_static(self.to.dialect().version()));
        }
        if let Some(id) = sent.beside.last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        if let Some(trace) = sent.beside.trace {
            headers.insert(TRACE_PARENT, trace.clone());
        }
        let url = self.url(sent.tail, slash);
        self.door.send(&url, self.to.is_trusted, sent.method.clone(), headers, sent.body.clone()).await
    }

    fn url(&self, tail: &str, slash: bool) -> Url {
        let mut url = self.to.url.clone();
        let path = url.path();
        if tail.is_empty() {
            if slash {
                let turned = path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned);
                url.set_path(&turned);
            }
            return url;
        }
        let (tail, query) = tail.split_once('?').map_or((tail, None), |(tail, query)| (tail, Some(query)));
        let path = format!("{}{tail}", path.trim_end_matches('/'));
        url.set_path(&path);
        if query.is_some() {
            url.set_query(query);
        }
        url
    }
}

pub(super) fn is_json(response: &Response) -> bool {
    let kind = response.media_type();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

/// What comes of `work`, in `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PeerError>>,
) -> Result<T, PeerError> {
    timeout(limit, work).await.unwrap_or(Err(PeerError::TimedOut(limit)))
}
