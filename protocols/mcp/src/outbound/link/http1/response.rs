//! A response: its head, and its body as it arrives.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderMap;
use hyper::http::response::Parts;

use super::NetError;
use super::connection::{Answered, Connection};
use super::idle::Idle;

/// Dropped before its end, it closes its connection.
pub(in super::super) struct Response {
    head: Parts,
    body: Incoming,
    /// Goes back to the idle ones with the body's end.
    connection: Option<Connection>,
    idle: Arc<Idle>,
}

impl Response {
    pub(super) fn new(answered: Answered, idle: &Arc<Idle>) -> Self {
        let (head, body) = answered.response.into_parts();
        let mut response = Self { head, body, connection: Some(answered.connection), idle: idle.clone() };
        response.settle();
        response
    }

    pub(in super::super) fn status(&self) -> StatusCode {
        self.head.status
    }

    pub(in super::super) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// How many bytes are left of the body, where its length is known.
    pub(in super::super) fn content_length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next part of the body; `None` at its end.
    pub(in super::super) async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        loop {
            let frame = poll_fn(|cx| {
                let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
                // What has arrived already needs no look at the connection.
                if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                connection.drive(cx);
                Pin::new(&mut self.body).poll_frame(cx)
            })
            .await;
            match frame {
                Some(Ok(frame)) => {
                    self.settle();
                    // Trailers say nothing here.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    self.connection = None;
                    return Err(NetError::Broken);
                }
                None => {
                    self.end();
                    return Ok(None);
                }
            }
        }
    }

    fn settle(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.put(connection);
        }
    }
}
