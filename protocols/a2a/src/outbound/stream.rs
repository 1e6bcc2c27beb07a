//! What an agent says on a stream.

use callboard_rpc::http1::{EventStream, Place, Response};
use callboard_rpc::{Id, Limits};
use serde_json::value::RawValue;

use super::asks::Ask;
use super::connection::{Beside, Connection, is_json};
use super::error::PeerError;
use super::options::Binding;
use super::{jsonrpc, rest};
use crate::wire::StreamResponse;
use crate::{A2aError, Dialect};

/// The events of a stream, in order.
pub struct Events {
    source: Source,
    dialect: Dialect,
    /// The request's id, over JSON-RPC.
    id: Option<Id>,
    limits: Limits,
}

enum Source {
    Stream(Box<EventStream>),
    /// An agent that has no stream after all answered in one piece.
    Whole(Option<Box<RawValue>>),
}

impl Events {
    /// Opens a stream.
    pub(super) async fn open<A: Ask<Reply = StreamResponse>>(
        connection: &Connection,
        ask: &A,
        beside: Beside<'_>,
        limits: &Limits,
    ) -> Result<Self, PeerError> {
        let (response, id) = match connection.to.binding {
            Binding::JsonRpc => {
                let (response, id) = jsonrpc::send(connection, ask, beside).await?;
                (response, Some(id))
            }
            Binding::HttpJson => (rest::send(connection, ask, beside).await?, None),
        };
        let dialect = connection.to.dialect();
        let source = match response.status().is_success() && response.is_event_stream() {
            true => Source::Stream(Box::new(EventStream::new(response, limits.body_bytes_max, Place::default()))),
            false => Source::Whole(Some(Self::whole(response, id.as_ref(), limits).await?)),
        };
        Ok(Self { source, dialect, id, limits: *limits })
    }

    async fn whole(response: Response, id: Option<&Id>, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
        if response.status().is_success() && !is_json(&response) {
            return Err(PeerError::Protocol(format!("the agent answered with {}", jsonrpc::kind_of(&response))));
        }
        match id {
            Some(id) => jsonrpc::result(response, id, limits).await,
            None => rest::result(response, limits).await,
        }
    }

    /// The next event; `None` where the stream has ended or broken.
    ///
    /// # Errors
    /// What the agent says in place of an event, and what is no event.
    pub async fn next(&mut self) -> Result<Option<StreamResponse>, PeerError> {
        let raw = match &mut self.source {
            Source::Whole(whole) => whole.take(),
            Source::Stream(events) => match (events.next().await?, &self.id) {
                (None, _) => None,
                (Some(event), Some(id)) => Some(jsonrpc::read_event(&event.data, id, &self.limits)?),
                (Some(event), None) => Some(rest::read_event(&event.data, &self.limits)?),
            },
        };
        raw.map(|raw| self.dialect.read_event(&raw).map_err(unreadable)).transpose()
    }

    /// Where the stream can be taken up again, if the agent says so.
    pub fn last_event_id(&self) -> Option<&str> {
        match &self.source {
            Source::Stream(events) => events.place().last_event_id(),
            Source::Whole(_) => None,
        }
    }
}

pub(super) fn unreadable(error: A2aError) -> PeerError {
    PeerError::Protocol(format!("the agent's answer is no A2A: {}", error.message))
}
