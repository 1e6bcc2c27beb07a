//! WebSocket connections: handshake, and messages of bounded size (RFC 6455).
//!
//! `actix_ws` checks a frame's length only after all of the frame is buffered. Here the length that
//! a header declares is checked before the payload is read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_http::ws::{OpCode, Parser};
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse, dev};
use actix_ws::{AggregatedMessage, CloseReason, Closed, Item, ProtocolError, Session};
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::buffers;
use crate::{BufferReservation, BuffersFull};

/// Reason why a message can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketError {
    /// A frame is invalid, or declares more bytes than a message may have
    /// ([`ProtocolError::Overflow`]), or the connection broke.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The listener's budget of buffered bytes is used up.
    #[error(transparent)]
    Full(#[from] BuffersFull),
}

/// Sender of frames to the client of one WebSocket. It counts the frames that the session has
/// accepted and its connection hasn't taken, because the client reads too slowly; a session accepts
/// up to 32. Clones share the session and the count.
#[derive(Clone)]
pub struct WebSocketSender {
    session: Session,
    /// Number of accepted bytes, with the headers of the frames.
    accepted: Arc<AtomicU64>,
    /// Number of bytes that the connection has taken.
    taken: watch::Receiver<u64>,
}

impl WebSocketSender {
    /// Sends a text frame; waits until the session accepts it.
    ///
    /// # Errors
    /// [`Closed`], if the connection has ended.
    pub async fn text(&mut self, text: String) -> Result<(), Closed> {
        let bytes = text.len();
        self.session.text(text).await?;
        self.add_frame(bytes);
        Ok(())
    }

    /// Sends a frame of a message that has several; waits until the session accepts it.
    ///
    /// # Errors
    /// [`Closed`], if the connection has ended.
    pub async fn continuation(&mut self, frame: Item) -> Result<(), Closed> {
        let (Item::FirstText(bytes)
        | Item::FirstBinary(bytes)
        | Item::Continue(bytes)
        | Item::Last(bytes)) = &frame;
        let bytes = bytes.len();
        self.session.continuation(frame).await?;
        self.add_frame(bytes);
        Ok(())
    }

    /// Sends a ping without payload. Sends nothing if the session accepts no frame at once.
    pub async fn try_ping(&mut self) {
        if let Ok(Ok(())) = timeout(Duration::ZERO, self.session.ping(b"")).await {
            self.add_frame(0);
        }
    }

    /// Sends a pong. Sends nothing if the session accepts no frame at once: a client that floods
    /// the socket with pings gets no answer to them.
    pub async fn try_pong(&mut self, payload: &[u8]) {
        if let Ok(Ok(())) = timeout(Duration::ZERO, self.session.pong(payload)).await {
            self.add_frame(payload.len());
        }
    }

    /// Sends a close frame; waits until the session accepts it.
    ///
    /// # Errors
    /// [`Closed`], if the connection has ended.
    pub async fn close(self, reason: Option<CloseReason>) -> Result<(), Closed> {
        self.session.close(reason).await
    }

    /// Counts a frame that the session has accepted.
    fn add_frame(&self, payload_bytes: usize) {
        let header_bytes = match payload_bytes {
            0..=125 => 2,
            126..=0xFFFF => 4,
            _ => 10,
        };
        let bytes = payload_bytes as u64 + header_bytes;
        self.accepted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that the connection hasn't taken.
    pub fn untaken_bytes(&self) -> usize {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let left = accepted.saturating_sub(*self.taken.borrow());
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Waits until the connection takes more. Never returns once the connection has ended.
    pub async fn wait_taken(&mut self) {
        if self.taken.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Response body of a WebSocket that publishes the number of bytes that its connection has taken.
struct MeteredBody {
    frames: BoxBody,
    taken: watch::Sender<u64>,
}

impl MessageBody for MeteredBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.frames.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        let next = ready!(Pin::new(&mut this.frames).poll_next(cx));
        if let Some(Ok(bytes)) = &next {
            this.taken.send_modify(|taken| *taken += bytes.len() as u64);
        }
        Poll::Ready(next)
    }
}

/// Reader of the messages that a client sends over one WebSocket.
pub struct WebSocketReader {
    payload: Payload,
    /// Received bytes that haven't been parsed, from the beginning of a frame.
    buffer: BytesMut,
    /// Type and content of a fragmented message that is not complete yet.
    fragments: Option<(OpCode, BytesMut)>,
    message_bytes_max: usize,
    /// Bytes of the message that isn't complete; `None` if the listener has no budget.
    held: Option<BufferReservation>,
}

/// WebSocket that was accepted.
pub struct AcceptedWebSocket {
    /// Response to the handshake.
    pub response: HttpResponse,
    /// Sender of frames to the client.
    pub sender: WebSocketSender,
    /// Reader of the client's messages.
    pub messages: WebSocketReader,
}

/// Accepts a WebSocket handshake. A message of the client may have at most `message_bytes_max`
/// bytes, over all its frames. Of the subprotocols that the client offers, the first that is in
/// `protocols` is chosen.
///
/// # Errors
/// Fails if the handshake is invalid.
pub fn accept_handshake(
    request: &HttpRequest,
    payload: Payload,
    protocols: &[&str],
    message_bytes_max: usize,
) -> Result<AcceptedWebSocket, Error> {
    let (response, session, _) =
        actix_ws::handle_with_protocols(request, empty_payload(request)?, protocols)?;
    let (publish, taken) = watch::channel(0);
    let response = response.map_body(|_, frames| {
        BoxBody::new(MeteredBody {
            frames,
            taken: publish,
        })
    });
    let messages = WebSocketReader {
        payload,
        buffer: BytesMut::new(),
        fragments: None,
        message_bytes_max,
        held: buffers::account_of(request).map(|account| account.reservation()),
    };
    Ok(AcceptedWebSocket {
        response,
        sender: WebSocketSender {
            session,
            accepted: Arc::default(),
            taken,
        },
        messages,
    })
}

/// Creates an empty payload for `actix_ws`, because the request's own payload is read by
/// [`WebSocketReader`].
fn empty_payload(request: &HttpRequest) -> Result<Payload, Error> {
    let made = Payload::from_request(request, &mut dev::Payload::None).now_or_never();
    made.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::WouldBlock).into()))
}

impl WebSocketReader {
    /// Returns the next message; `None` once the client has closed its side. Cancel safe.
    ///
    /// # Errors
    /// [`ProtocolError::Overflow`] as soon as a frame header declares more bytes than a message may
    /// have. [`WebSocketError::Full`] if the listener's budget of buffered bytes is used up. Other
    /// errors if a frame is invalid (RFC 6455) or the connection breaks. The reader must not be
    /// used after an error.
    pub async fn recv(&mut self) -> Option<Result<AggregatedMessage, WebSocketError>> {
        loop {
            let read = self.next_buffered().map_err(WebSocketError::from);
            if let Err(full) = self.count_buffered() {
                // Free at once, because the socket may take its time to close.
                (self.buffer, self.fragments, self.held) = (BytesMut::new(), None, None);
                return Some(Err(full.into()));
            }
            if let Some(read) = read.transpose() {
                return Some(read);
            }
            match self.payload.next().await? {
                Ok(bytes) if self.buffer.is_empty() => self.buffer = bytes.into(),
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(error) => return Some(Err(ProtocolError::Io(io::Error::other(error)).into())),
            }
        }
    }

    /// Counts the bytes of the messages that aren't complete.
    fn count_buffered(&mut self) -> Result<(), BuffersFull> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        let content = self.fragments.as_ref().map(|(_, content)| content.len());
        held.resize(self.buffer.len() + content.unwrap_or_default())
    }

    /// Parses the next message from the buffer; `None` if it isn't complete yet.
    fn next_buffered(&mut self) -> Result<Option<AggregatedMessage>, ProtocolError> {
        loop {
            self.check_declared_length()?;
            let parsed = Parser::parse(&mut self.buffer, true, self.message_bytes_max)?;
            let Some((is_last, kind, payload)) = parsed else {
                return Ok(None);
            };
            let payload = payload.unwrap_or_default();
            match (kind, &mut self.fragments) {
                (OpCode::Ping, _) => return Ok(Some(AggregatedMessage::Ping(payload.freeze()))),
                (OpCode::Pong, _) => return Ok(Some(AggregatedMessage::Pong(payload.freeze()))),
                (OpCode::Close, _) => {
                    return Parser::try_parse_close_payload(&payload)
                        .map(AggregatedMessage::Close)
                        .map(Some);
                }
                (OpCode::Text | OpCode::Binary, Some(_)) => {
                    return Err(ProtocolError::ContinuationStarted);
                }
                (OpCode::Text | OpCode::Binary, None) if is_last => {
                    return to_message(kind, payload.freeze()).map(Some);
                }
                (OpCode::Text | OpCode::Binary, fragments) => *fragments = Some((kind, payload)),
                // Copied, because a fragment of one byte would keep all of the buffer that it came
                // in.
                (OpCode::Continue, Some((_, content))) => content.extend_from_slice(&payload),
                (OpCode::Continue, None) => return Err(ProtocolError::ContinuationNotStarted),
                (OpCode::Bad, _) => return Err(ProtocolError::BadOpCode),
            }
            if kind == OpCode::Continue
                && is_last
                && let Some((kind, content)) = self.fragments.take()
            {
                return to_message(kind, content.freeze()).map(Some);
            }
        }
    }

    /// Checks the length that the next frame's header declares, before its payload has arrived.
    ///
    /// # Errors
    /// [`ProtocolError::Overflow`] if its message would exceed the limit.
    fn check_declared_length(&self) -> Result<(), ProtocolError> {
        let Some((kind, bytes)) = declared_length(&self.buffer) else {
            return Ok(());
        };
        let earlier = match (kind, &self.fragments) {
            (OpCode::Continue, Some((_, content))) => content.len(),
            _ => 0,
        };
        let left = self.message_bytes_max.saturating_sub(earlier);
        if u64::try_from(left).is_ok_and(|left| bytes > left) {
            Err(ProtocolError::Overflow)
        } else {
            Ok(())
        }
    }
}

/// Returns the opcode and payload length, in bytes, of the frame that begins in `buffer`; `None` if
/// its length field is not complete.
fn declared_length(buffer: &[u8]) -> Option<(OpCode, u64)> {
    let (&[first, second], rest) = buffer.split_first_chunk()?;
    let bytes = match second & 0x7F {
        126 => u16::from_be_bytes(*rest.first_chunk()?).into(),
        127 => u64::from_be_bytes(*rest.first_chunk()?),
        bytes => bytes.into(),
    };
    Some((OpCode::from(first & 0x0F), bytes))
}

fn to_message(kind: OpCode, content: Bytes) -> Result<AggregatedMessage, ProtocolError> {
    if kind == OpCode::Binary {
        return Ok(AggregatedMessage::Binary(content));
    }
    let text = content
        .try_into()
        .map_err(|error| ProtocolError::Io(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok(AggregatedMessage::Text(text))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use futures::stream;

    use super::*;
    use crate::{BufferBudget, BufferLimits};

    const MAX: usize = 1_000;

    /// A masked frame.
    fn frame(is_last: bool, kind: OpCode, content: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        Parser::write_message(&mut bytes, content, kind, is_last, true);
        bytes.to_vec()
    }

    /// Creates a reader of these chunks from a peer that stays connected and sends nothing more.
    fn messages(chunks: impl IntoIterator<Item = Vec<u8>>) -> WebSocketReader {
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|chunk| Ok(Bytes::from(chunk)))
            .collect();
        let payload = Box::pin(stream::iter(chunks).chain(stream::pending()));
        let request = TestRequest::default().to_http_request();
        let payload = Payload::from_request(&request, &mut dev::Payload::Stream { payload });
        let payload = payload.now_or_never().unwrap().unwrap();
        WebSocketReader {
            payload,
            buffer: BytesMut::new(),
            fragments: None,
            message_bytes_max: MAX,
            held: None,
        }
    }

    /// Returns the sizes of messages until no more come; `Err` if they end with
    /// [`ProtocolError::Overflow`].
    fn sizes(messages: &mut WebSocketReader) -> Result<Vec<usize>, Vec<usize>> {
        let mut sizes = Vec::new();
        loop {
            match messages.recv().now_or_never() {
                Some(Some(Ok(AggregatedMessage::Text(text)))) => sizes.push(text.len()),
                Some(Some(Ok(
                    AggregatedMessage::Binary(bytes) | AggregatedMessage::Ping(bytes),
                ))) => sizes.push(bytes.len()),
                Some(Some(Err(WebSocketError::Protocol(ProtocolError::Overflow)))) => {
                    return Err(sizes);
                }
                None => return Ok(sizes),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Goal: frames are read wherever their bytes are split. Method: messages of all kinds and
    /// lengths, cut into pieces of every size.
    #[test]
    fn any_split_reads_the_same() {
        let bytes = [
            frame(true, OpCode::Text, b""),
            frame(true, OpCode::Text, &[b'x'; 125]),
            frame(true, OpCode::Binary, &[b'x'; 126]),
            frame(false, OpCode::Text, &[b'x'; 400]),
            frame(true, OpCode::Ping, b"p"),
            frame(false, OpCode::Continue, b""),
            frame(true, OpCode::Continue, &[b'x'; 600]),
            frame(true, OpCode::Text, &[b'x'; MAX]),
        ]
        .concat();
        for size in 1..=bytes.len() {
            let mut read = messages(bytes.chunks(size).map(<[u8]>::to_vec));
            assert_eq!(
                sizes(&mut read),
                Ok(vec![0, 125, 126, 1, 1_000, MAX]),
                "pieces of {size}"
            );
        }
    }

    /// Goal: a frame that declares too much is rejected before a byte of its payload. Method: the
    /// header alone, with each form of length, whole and as the fragment that exceeds the limit; at
    /// the limit, it is waited for.
    #[test]
    fn a_declared_length_is_checked_before_the_payload() {
        let header =
            |kind: u8, bytes: u64| [&[kind, 0x80 | 127][..], &bytes.to_be_bytes()].concat();
        let short = |kind: u8, bytes: u16| [&[kind, 0x80 | 126][..], &bytes.to_be_bytes()].concat();
        for bytes in [MAX as u64 + 1, 1 << 40, i64::MAX as u64, u64::MAX] {
            assert_eq!(
                sizes(&mut messages([header(0x82, bytes)])),
                Err(vec![]),
                "{bytes}"
            );
        }
        assert_eq!(
            sizes(&mut messages([short(0x81, MAX as u16 + 1)])),
            Err(vec![])
        );
        assert_eq!(sizes(&mut messages([short(0x81, MAX as u16)])), Ok(vec![]));
        let begun = frame(false, OpCode::Text, &[b'x'; 400]);
        assert_eq!(
            sizes(&mut messages([begun.clone(), short(0x80, 601)])),
            Err(vec![])
        );
        assert_eq!(sizes(&mut messages([begun, short(0x80, 600)])), Ok(vec![]));
    }

    /// Goal: frames count until the connection takes them, to the byte. Method: frames with each
    /// form of length, and control frames, before and after the body is read.
    #[tokio::test]
    async fn untaken_frames_are_counted() {
        let (request, mut payload) = TestRequest::default()
            .insert_header(("upgrade", "websocket"))
            .insert_header(("connection", "upgrade"))
            .insert_header(("sec-websocket-version", "13"))
            .insert_header(("sec-websocket-key", "x3JJHMbDL1EzLkh9GBhXDw=="))
            .to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let accepted = accept_handshake(&request, payload, &[], MAX).unwrap();
        let mut sender = accepted.sender;
        let mut expected = 0;
        for (bytes, header) in [(0, 2), (125, 2), (126, 4), (0xFFFF, 4), (0x1_0000, 10)] {
            sender.text("x".repeat(bytes)).await.unwrap();
            expected += bytes + header;
            assert_eq!(sender.untaken_bytes(), expected);
        }
        sender.try_pong(b"p").await;
        let mut body = accepted.response.into_body();
        let mut taken = 0;
        while let Some(Some(chunk)) =
            std::future::poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).now_or_never()
        {
            taken += chunk.unwrap().len();
        }
        assert_eq!((taken, sender.untaken_bytes()), (expected + 3, 0));
        assert!(sender.wait_taken().now_or_never().is_some());
        drop(body);
        assert!(sender.wait_taken().now_or_never().is_none());
    }

    /// Goal: a half-sent message counts until it is read, and is rejected beyond the budget. Method:
    /// as much of a message as a listener's share allows, and one more byte; the rest of it.
    #[test]
    fn half_sent_messages_count() {
        let budget = BufferBudget::new(BufferLimits {
            bytes_max: 100_000,
            principal_percent: 100,
        });
        let account = budget.listener().account(budget.owner(None, None));
        let message = frame(true, OpCode::Binary, &[b'x'; 90_000]);
        let reader_of = |bytes: usize| {
            let mut read = messages([message[..bytes].to_vec()]);
            read.message_bytes_max = 90_000;
            read.held = Some(account.reservation());
            read
        };
        let mut read = reader_of(75_000);
        assert!(read.recv().now_or_never().is_none());
        assert_eq!(budget.used_bytes(), 75_000);
        read.buffer.extend_from_slice(&message[75_000..]);
        let got = read.recv().now_or_never().unwrap().unwrap();
        assert!(matches!(got, Ok(AggregatedMessage::Binary(_))), "{got:?}");
        assert_eq!(budget.used_bytes(), 0);
        let got = reader_of(75_001).recv().now_or_never().unwrap().unwrap();
        assert!(matches!(got, Err(WebSocketError::Full(_))), "{got:?}");
    }

    /// Goal: the buffered data stays near the limit, whatever a client sends. Method: many
    /// fragments of one byte, which exceed the limit together; frames out of order.
    #[test]
    fn fragments_are_bounded_together() {
        let mut many = vec![frame(false, OpCode::Text, b"")];
        many.extend((0..=MAX).map(|_| frame(false, OpCode::Continue, b"x")));
        let mut read = messages(many);
        assert_eq!(sizes(&mut read), Err(vec![]));
        let (_, content) = read.fragments.unwrap();
        assert_eq!(content.len(), MAX);
        assert!(content.capacity() < 4 * MAX, "{}", content.capacity());
        let next = |chunks: Vec<Vec<u8>>| {
            messages(chunks)
                .recv()
                .now_or_never()
                .unwrap()
                .unwrap()
                .unwrap_err()
        };
        let stray = next(vec![frame(true, OpCode::Continue, b"x")]);
        assert!(
            matches!(
                stray,
                WebSocketError::Protocol(ProtocolError::ContinuationNotStarted)
            ),
            "{stray}"
        );
        let twice = next(vec![
            frame(false, OpCode::Text, b"x"),
            frame(true, OpCode::Text, b"x"),
        ]);
        assert!(
            matches!(
                twice,
                WebSocketError::Protocol(ProtocolError::ContinuationStarted)
            ),
            "{twice}"
        );
    }
}
