//! Events as a stream that resumes by itself.

use std::time::Duration;

use callboard_message::mail::Numbered;
use futures::StreamExt;
use rand::Rng;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::{CONNECT_TIMEOUT, Client, Query, refused};
use crate::{ClientError, EVENT_SEQUENCE};

/// Most bytes of an event: one names at most 256 agents.
const EVENT_BYTES_MAX: usize = 64 * 1024;
/// How long to wait before a broken connection is made anew; each further wait is twice as long.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The longest wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// How long nothing may come, the server's pings included.
const SILENCE_MAX: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What a stream of events hears.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// An event.
    Event(Numbered),
    /// The connection broke, for this reason; the stream goes on by itself.
    Broken(ClientError),
}

/// Events in order, each once, over as many connections as it takes.
pub struct EventStream {
    client: Client,
    types: String,
    place: Place,
    socket: Option<Socket>,
    retry_after: Duration,
    /// Its connection has shown nothing yet.
    is_fresh: bool,
}

/// Where the stream is. What one thing gave rise to has one number, so a connection may break in the midst of a number.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The number to begin after, until an event has come; `None`: now.
    after: Option<u64>,
    /// The number of the last event that came, and how many came under it.
    last: Option<(u64, usize)>,
    /// How many more events of that number are known already.
    known: usize,
}

impl Place {
    /// The value of `after` for the next connection. The last number is asked for once more, less what is known of it.
    fn resume(&mut self) -> Option<u64> {
        let Some((sequence, came)) = self.last else { return self.after };
        self.known = came;
        Some(sequence.saturating_sub(1))
    }

    /// Whether an event is a new one.
    fn is_new(&mut self, sequence: u64) -> bool {
        match &mut self.last {
            Some((last, _)) if *last == sequence && self.known > 0 => {
                self.known -= 1;
                false
            }
            Some((last, came)) if *last == sequence => {
                *came += 1;
                true
            }
            last => {
                *last = Some((sequence, 1));
                self.known = 0;
                true
            }
        }
    }
}

impl EventStream {
    pub(super) fn new(client: Client, after: Option<u64>, types: &[&str]) -> Self {
        let place = Place { after, ..Place::default() };
        Self { client, types: types.join(","), place, socket: None, retry_after: RETRY_AFTER, is_fresh: false }
    }

    /// Connects, unless it is connected: what happens after this is heard, however often the connection breaks.
    ///
    /// # Errors
    /// See [`ClientError`]: nobody has tried again.
    pub async fn ready(&mut self) -> Result<(), ClientError> {
        if self.socket.is_none() {
            self.socket = Some(self.connect().await?);
        }
        Ok(())
    }

    /// What comes next. A connection that breaks is told of and made anew: only what will not pass ends the stream. Dropped
    /// before it is done, it loses nothing.
    ///
    /// # Errors
    /// What will not pass: the key or id is refused, the place doesn't exist, this is no mail listener.
    pub async fn next(&mut self) -> Result<Heard, ClientError> {
        loop {
            if let Err(error) = self.ready().await {
                if !error.may_pass() {
                    return Err(error);
                }
                self.wait().await;
                return Ok(Heard::Broken(error));
            }
            let Some(socket) = &mut self.socket else { continue };
            let heard = timeout(SILENCE_MAX, socket.next()).await;
            match heard {
                Ok(Some(Ok(Message::Text(text)))) => {
                    let event: Numbered = serde_json::from_str(&text).map_err(|_| ClientError::Unreadable)?;
                    (self.retry_after, self.is_fresh) = (RETRY_AFTER, false);
                    if self.place.is_new(event.sequence) {
                        return Ok(Heard::Event(event));
                    }
                }
                // Pings are answered by the socket itself.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(Message::Close(Some(told))))) if told.code == CloseCode::Policy => {
                    let detail = told.reason.to_string();
                    return Err(ClientError::Refused { status: 403, detail, retry_after_s: None });
                }
                _ => {
                    self.socket = None;
                    if self.is_fresh {
                        self.wait().await;
                    }
                    return Ok(Heard::Broken(ClientError::Broken));
                }
            }
        }
    }

    /// Breaks the connection, as a network would.
    pub fn cut(&mut self) {
        self.socket = None;
    }

    async fn wait(&mut self) {
        let part = rand::rng().random_range(0.5..1.0);
        sleep(self.retry_after.mul_f64(part)).await;
        self.retry_after = (self.retry_after * 2).min(RETRY_AFTER_MAX);
    }

    async fn connect(&mut self) -> Result<Socket, ClientError> {
        let after = self.place.resume().map_or_else(|| "now".to_owned(), |after| after.to_string());
        let types = (!self.types.is_empty()).then_some(&self.types);
        let path = Query::default().add("after", Some(after)).add("types", types).behind("/api/events");
        let mut url = self.client.base.join(&path).map_err(|_| ClientError::Address)?;
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme).map_err(|()| ClientError::Address)?;
        let mut request = url.as_str().into_client_request().map_err(|_| ClientError::Address)?;
        request.headers_mut().extend(self.client.headers.clone());
        let bytes_max = Some(EVENT_BYTES_MAX);
        let config = WebSocketConfig::default().max_message_size(bytes_max).max_frame_size(bytes_max);
        // The last argument: small messages aren't held back (TCP_NODELAY).
        let connecting = timeout(CONNECT_TIMEOUT, connect_async_with_config(request, Some(config), true));
        match connecting.await.map_err(|_| ClientError::TimedOut(CONNECT_TIMEOUT))? {
            Ok((socket, response)) => {
                let newest =
                    response.headers().get(EVENT_SEQUENCE).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
                self.place.after = self.place.after.or(newest);
                self.is_fresh = true;
                Ok(socket)
            }
            Err(Error::Http(response)) => {
                let body: &[u8] = response.body().as_deref().unwrap_or_default();
                Err(refused(response.status().as_u16(), body, None))
            }
            Err(_) => Err(ClientError::Unreachable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever breaks where, each event is shown once. Method: numbers with one, two and three events, cut after each
    /// single event.
    #[test]
    fn places() {
        let all: Vec<(u64, usize)> = [(1, 0), (1, 1), (3, 0), (4, 0), (4, 1), (4, 2), (6, 0), (6, 1)].into();
        for every in 1..all.len() {
            let (mut place, mut shown) = (Place { after: Some(0), ..Place::default() }, Vec::<&(u64, usize)>::new());
            while shown.len() < all.len() {
                let after = place.resume().unwrap();
                let sent = all.iter().filter(|(sequence, _)| *sequence > after);
                let new = sent.filter(|(sequence, _)| place.is_new(*sequence)).take(every).collect::<Vec<_>>();
                shown.extend(new);
            }
            assert_eq!(shown, all.iter().collect::<Vec<_>>(), "cut after every {every}");
        }
    }
}
