//! WebSocket connections: the handshake, and messages of bounded size (RFC 6455).
//!
//! `actix_ws` looks at a frame's length only once all of the frame is buffered. Here the length that a header declares is
//! checked before its payload is read.

use std::io;

use actix_http::ws::{OpCode, Parser};
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse, dev};
use actix_ws::{AggregatedMessage, ProtocolError, Session};
use futures::{FutureExt, StreamExt};

/// Messages that a client sends over one WebSocket.
pub struct Messages {
    payload: Payload,
    /// Bytes that are no whole frame yet; the first is the first of a frame's header.
    buffer: BytesMut,
    /// Kind and content of a message whose last fragment has not come yet.
    fragments: Option<(OpCode, BytesMut)>,
    message_bytes_max: usize,
}

/// Answers the handshake of a WebSocket whose client may send at most `message_bytes_max` bytes a message, be it one frame
/// or many. The first protocol that the client offers and `protocols` contains is chosen.
///
/// # Errors
/// The handshake is not complete.
pub fn open(
    request: &HttpRequest,
    payload: Payload,
    protocols: &[&str],
    message_bytes_max: usize,
) -> Result<(HttpResponse, Session, Messages), Error> {
    let (response, session, _) =
        actix_ws::handle_with_protocols(request, empty(request)?, protocols)?;
    let (buffer, fragments) = (BytesMut::new(), None);
    Ok((
        response,
        session,
        Messages {
            payload,
            buffer,
            fragments,
            message_bytes_max,
        },
    ))
}

/// Payload without content: `actix_ws` gets it in place of the one that [`Messages`] reads.
fn empty(request: &HttpRequest) -> Result<Payload, Error> {
    let made = Payload::from_request(request, &mut dev::Payload::None).now_or_never();
    made.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::WouldBlock).into()))
}

impl Messages {
    /// Returns the next message; `None` once the client has closed its side. Cancel safe.
    ///
    /// # Errors
    /// [`ProtocolError::Overflow`] as soon as a header declares more bytes than a message may have; others where a frame is
    /// not of RFC 6455 or the connection breaks. No message follows an error.
    pub async fn recv(&mut self) -> Option<Result<AggregatedMessage, ProtocolError>> {
        loop {
            if let Some(read) = self.buffered().transpose() {
                return Some(read);
            }
            match self.payload.next().await? {
                Ok(bytes) if self.buffer.is_empty() => self.buffer = bytes.into(),
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(error) => return Some(Err(ProtocolError::Io(io::Error::other(error)))),
            }
        }
    }

    /// Returns the next message of those that are buffered.
    fn buffered(&mut self) -> Result<Option<AggregatedMessage>, ProtocolError> {
        loop {
            self.check_declared()?;
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
                    return whole(kind, payload.freeze()).map(Some);
                }
                (OpCode::Text | OpCode::Binary, fragments) => *fragments = Some((kind, payload)),
                // Copied, as a fragment of one byte would keep all of the buffer that it came in.
                (OpCode::Continue, Some((_, content))) => content.extend_from_slice(&payload),
                (OpCode::Continue, None) => return Err(ProtocolError::ContinuationNotStarted),
                (OpCode::Bad, _) => return Err(ProtocolError::BadOpCode),
            }
            if kind == OpCode::Continue
                && is_last
                && let Some((kind, content)) = self.fragments.take()
            {
                return whole(kind, content.freeze()).map(Some);
            }
        }
    }

    /// Rejects a frame that declares more bytes than its message has left.
    fn check_declared(&self) -> Result<(), ProtocolError> {
        let Some((kind, bytes)) = declared(&self.buffer) else {
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

/// Returns kind and payload length in bytes of the frame whose header begins `buffer`; `None` until its length is there.
fn declared(buffer: &[u8]) -> Option<(OpCode, u64)> {
    let (&[first, second], rest) = buffer.split_first_chunk()?;
    let bytes = match second & 0x7F {
        126 => u16::from_be_bytes(*rest.first_chunk()?).into(),
        127 => u64::from_be_bytes(*rest.first_chunk()?),
        bytes => bytes.into(),
    };
    Some((OpCode::from(first & 0x0F), bytes))
}

fn whole(kind: OpCode, content: Bytes) -> Result<AggregatedMessage, ProtocolError> {
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

    const MAX: usize = 1_000;

    /// A masked frame.
    fn frame(is_last: bool, kind: OpCode, content: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        Parser::write_message(&mut bytes, content, kind, is_last, true);
        bytes.to_vec()
    }

    /// Messages of these chunks, in front of a peer that stays and sends nothing more.
    fn messages(chunks: impl IntoIterator<Item = Vec<u8>>) -> Messages {
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|chunk| Ok(Bytes::from(chunk)))
            .collect();
        let payload = Box::pin(stream::iter(chunks).chain(stream::pending()));
        let request = TestRequest::default().to_http_request();
        let payload = Payload::from_request(&request, &mut dev::Payload::Stream { payload });
        let payload = payload.now_or_never().unwrap().unwrap();
        Messages {
            payload,
            buffer: BytesMut::new(),
            fragments: None,
            message_bytes_max: MAX,
        }
    }

    /// Sizes of what comes until nothing more does; `Err` where it ends with the refusal of a size.
    fn sizes(messages: &mut Messages) -> Result<Vec<usize>, Vec<usize>> {
        let mut sizes = Vec::new();
        loop {
            match messages.recv().now_or_never() {
                Some(Some(Ok(AggregatedMessage::Text(text)))) => sizes.push(text.len()),
                Some(Some(Ok(
                    AggregatedMessage::Binary(bytes) | AggregatedMessage::Ping(bytes),
                ))) => sizes.push(bytes.len()),
                Some(Some(Err(ProtocolError::Overflow))) => return Err(sizes),
                None => return Ok(sizes),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Goal: frames are read wherever their bytes are split. Method: messages of all kinds and lengths, cut into pieces of
    /// every size.
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

    /// Goal: a header that declares too much is refused before a byte of its payload. Method: the header alone, of each
    /// form of length, whole and as the fragment that goes over the limit; at the limit, it is waited for.
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

    /// Goal: what is buffered stays near the limit, whatever a client sends. Method: many fragments of one byte, which go
    /// over the limit together; frames out of order.
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
            matches!(stray, ProtocolError::ContinuationNotStarted),
            "{stray}"
        );
        let twice = next(vec![
            frame(false, OpCode::Text, b"x"),
            frame(true, OpCode::Text, b"x"),
        ]);
        assert!(
            matches!(twice, ProtocolError::ContinuationStarted),
            "{twice}"
        );
    }
}
