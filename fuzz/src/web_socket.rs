//! WebSocket messages: the same however the bytes are split, and each within the limit.

use actix_web::test::TestRequest;
use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest, dev};
use actix_ws::AggregatedMessage;
use callboard_rpc::serve::websocket::accept_handshake;
use futures::{FutureExt, StreamExt, stream};

use crate::framing::steps;

/// Limits of a message, in bytes: below and above what one length byte can say.
const LIMITS: [usize; 2] = [100, 1_000];

pub fn messages(bytes: &[u8]) {
    for max in LIMITS {
        let whole = read([bytes], max);
        for message in &whole.0 {
            let size = match message {
                AggregatedMessage::Text(text) => text.len(),
                AggregatedMessage::Binary(content) => content.len(),
                AggregatedMessage::Ping(content) | AggregatedMessage::Pong(content) => {
                    assert!(content.len() <= 125, "a control frame of {}", content.len());
                    content.len()
                }
                AggregatedMessage::Close(_) => 0,
            };
            assert!(size <= max, "{size} bytes of {max}");
        }
        for step in steps(bytes) {
            assert_eq!(
                read(bytes.chunks(step), max),
                whole,
                "cut every {step} bytes"
            );
        }
    }
}

/// Returns the messages of these chunks, and whether an error ended them. Which error may depend on where the bytes are split.
fn read<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    max: usize,
) -> (Vec<AggregatedMessage>, bool) {
    let request = TestRequest::default()
        .insert_header(("connection", "upgrade"))
        .insert_header(("upgrade", "websocket"))
        .insert_header(("sec-websocket-version", "13"))
        .insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
        .to_http_request();
    let chunks: Vec<_> = chunks
        .into_iter()
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    let payload = Box::pin(stream::iter(chunks).chain(stream::pending()));
    let payload = Payload::from_request(&request, &mut dev::Payload::Stream { payload });
    let payload = payload.now_or_never().expect("at once").expect("a payload");
    let accepted = accept_handshake(&request, payload, &[], max).expect("a handshake");
    let mut reader = accepted.messages;
    let mut messages = Vec::new();
    loop {
        match reader.recv().now_or_never().flatten() {
            Some(Ok(message)) => messages.push(message),
            Some(Err(_)) => return (messages, true),
            None => return (messages, false),
        }
    }
}
