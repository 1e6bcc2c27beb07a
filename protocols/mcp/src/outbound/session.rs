//! A connection that both sides have agreed on, and what goes over it.

use std::ops::Deref;
use std::sync::Arc;

use callboard_message::RawObject;
use callboard_message::json::quote;
use callboard_rpc::{encode_notification, encode_request_with};
use callboard_runtime::Cx;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::conversation::Connection;
use super::exchange::{Exchanged, TransportError, id_of};
use super::options::ROOTS_ASKED_WITHIN;
use super::transport::{Head, Outgoing};
use crate::wire::{Era, Revision, meta};

/// One session with a server (legacy), or what is known of it (modern).
pub(crate) struct Session {
    connection: Connection,
    pub revision: Revision,
    /// `serverInfo`, `instructions`, `capabilities` and what else it said of itself.
    pub about: RawObject,
    /// Listens for changes.
    pub listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Session {
    pub fn new(connection: Connection, revision: Revision, about: RawObject) -> Arc<Self> {
        Arc::new(Self {
            connection,
            revision,
            about,
            listener: Mutex::default(),
        })
    }

    pub fn era(&self) -> Era {
        self.revision.era()
    }

    /// Whether all requests share one channel, so that a question on it may be any of theirs.
    pub fn shares_channel(&self) -> bool {
        self.link.http().is_none()
    }

    /// Whether the server said so of itself.
    pub fn can(&self, capability: &str, detail: &str) -> bool {
        let offered = self
            .about
            .object("capabilities")
            .and_then(|c| c.object(capability));
        offered.is_some_and(|c| c.read(detail) == Some(true))
    }

    pub fn has(&self, capability: &str) -> bool {
        self.about
            .object("capabilities")
            .is_some_and(|c| c.has(capability))
    }

    /// Sends a request of the call `cx` and waits for its response. The server has the roots of the client by then, if it
    /// wants them.
    pub async fn request(&self, method: &str, params: &RawObject, cx: &Cx) -> Exchanged {
        if self.options.offers.roots() && cx.abilities().roots() {
            Box::pin(self.settle_roots(cx)).await?;
        }
        self.converse(cx, |number| {
            legacy_request(number, method, params, Some(cx))
        })
        .await
    }

    /// Gives the server time to ask for roots before the first call, which it would else do without them. Where calls of
    /// several clients may follow one another, it is made to ask again before each, once it has asked.
    ///
    /// # Errors
    /// `SessionLost` where the server may still have the roots of another client: only a new connection has none.
    async fn settle_roots(&self, cx: &Cx) -> Result<(), TransportError> {
        let roots = &self.ear.roots;
        let mut settled = roots.settled.lock().await;
        let has_one_client =
            self.options.only_caller.is_some() || !self.options.offers.roots_list_changed();
        // A server may ask only after the wait of the first call.
        let may_have_others = !has_one_client && (*settled == Some(true) || roots.was_asked());
        if settled.is_some() && !may_have_others {
            return Ok(());
        }
        let mut deadline = roots.connected() + ROOTS_ASKED_WITHIN;
        if may_have_others {
            // Stays so, also if this call is cancelled.
            *settled = Some(true);
            roots.forget();
            self.tell_roots_changed().await;
            deadline = Instant::now() + ROOTS_ASKED_WITHIN;
        }
        self.attend(cx, roots.given(deadline)).await;
        if may_have_others && !roots.are_given() {
            callboard_message::log::warn!(
                "the server didn't take the roots of the next client: its connection is left"
            );
            return Err(TransportError::SessionLost);
        }
        *settled = Some(may_have_others || roots.was_asked());
        Ok(())
    }

    /// Tells the server that the roots have changed, where it was promised to hear of that.
    pub async fn tell_roots_changed(&self) {
        if self.era() == Era::Modern || !self.options.offers.roots_list_changed() {
            return;
        }
        if let Err(error) = self
            .link
            .send(encode_notification(
                "notifications/roots/list_changed",
                None,
            ))
            .await
        {
            callboard_message::log::debug!(%error, "the server isn't told that the roots have changed");
        }
    }

    /// Sends a request that belongs to no call.
    pub async fn request_quietly(&self, method: &str, params: RawObject) -> Exchanged {
        self.quietly(|number| legacy_request(number, method, &params, None))
            .await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(http) = self.link.http() {
            http.end_session();
        }
    }
}

/// A request of the legacy era, of the call `cx` or of none.
fn legacy_request(number: u64, method: &str, params: &RawObject, cx: Option<&Cx>) -> Outgoing {
    let mut meta = Meta::default();
    if let Some(cx) = cx {
        meta.put_call(number, cx);
    }
    Outgoing {
        number,
        method: method.to_owned(),
        body: body(number, method, params, &meta),
        head: Head::Legacy,
        cancellable: method != "initialize",
    }
}

/// The message of a request, with what `meta` adds to the `_meta` of its params.
pub(crate) fn body(number: u64, method: &str, params: &RawObject, meta: &Meta) -> Vec<u8> {
    let added = meta.over(params);
    let put = added.as_deref().map(|meta| ("_meta", meta));
    let bytes = params
        .iter()
        .map(|(name, value)| name.len() + value.get().len() + 4)
        .sum::<usize>();
    let bytes = bytes + added.as_ref().map_or(0, |meta| meta.len() + 16);
    encode_request_with(&id_of(number), method, bytes, |out| {
        params.write_with(put.as_slice(), out)
    })
}

/// What a request adds to the `_meta` of its params: names, and values in JSON.
#[derive(Default)]
pub(crate) struct Meta(Vec<(&'static str, String)>);

impl Meta {
    /// What a call adds in both eras: where progress goes, and the trace.
    pub fn put_call(&mut self, number: u64, cx: &Cx) {
        let Some(call) = cx.call() else { return };
        if call.caller.is_some() {
            self.put(meta::PROGRESS_TOKEN, number.to_string());
        }
        self.put(meta::TRACEPARENT, quote(&call.trace.child().to_string()));
    }

    pub fn put(&mut self, name: &'static str, json: String) {
        self.0.push((name, json));
    }

    /// `_meta` with that; whatever else stands in it stays. `None` where nothing is added.
    fn over(&self, params: &RawObject) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let put: Vec<_> = self
            .0
            .iter()
            .map(|(name, json)| (*name, json.as_str()))
            .collect();
        let own = params.object("_meta").unwrap_or_default();
        let mut written = String::with_capacity(
            put.iter()
                .map(|(name, json)| name.len() + json.len() + 4)
                .sum(),
        );
        own.write_with(&put, &mut written);
        Some(written)
    }
}

/// Shakes hands.
pub(crate) async fn initialize(connection: &Connection) -> Result<Arc<Session>, TransportError> {
    let Connection { link, options, .. } = connection;
    let params = RawObject::new()
        .with("protocolVersion", options.revision.as_str())
        .with("capabilities", &options.offers)
        .with("clientInfo", &options.info);
    let result = connection
        .quietly(|number| legacy_request(number, "initialize", &params, None))
        .await?;
    let about = RawObject::parse(&result)
        .map_err(|_| TransportError::Protocol("the handshake's result is no object".into()))?;
    let chosen = about
        .text("protocolVersion")
        .and_then(|version| Revision::parse(&version));
    let Some(revision) = chosen.filter(|revision| revision.era() == Era::Legacy) else {
        return Err(TransportError::Protocol(
            "the server chose a revision that isn't spoken here".into(),
        ));
    };
    if let Some(http) = link.http() {
        http.speak(revision);
    }
    link.send(encode_notification("notifications/initialized", None))
        .await?;
    Ok(Session::new(connection.clone(), revision, about))
}
