//! JSON-RPC messages: read as serde_json reads them or rejected, and unchanged after they are
//! written again.

use callboard_rpc::{
    DecodeError, DecodeFailure, DecodeLimits, RequestId, RpcBody, RpcError, RpcMessage,
    UnusedMember, decode, decode_body, encode_batch, encode_notification, encode_request,
    encode_response,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// Small limits, so that short inputs reach them.
const TIGHT: DecodeLimits = DecodeLimits {
    body_bytes_max: 200,
    depth_max: 4,
    keys_max: 6,
    digits_max: 12,
    id_bytes_max: 12,
    method_bytes_max: 12,
    batch_entries_max: 3,
    allows_null_id: false,
};

/// Maximum length of an error's text, in characters: it can't grow with the input.
const ERROR_CHARS_MAX: usize = 200;

pub fn envelope(bytes: &[u8]) {
    let read = decode(bytes, &DecodeLimits::default());
    match &read {
        Ok(message) => {
            assert!(
                serde_json::from_slice::<Value>(bytes).is_ok(),
                "accepted what serde_json refuses"
            );
            written_again(message, &DecodeLimits::default());
        }
        Err(refusal) => refused(refusal, &DecodeLimits::default()),
    }
    // Tighter limits reject more, but don't change what they accept.
    match (decode(bytes, &TIGHT), &read) {
        (Ok(tight), Ok(loose)) => assert_eq!(rewrite(&tight), rewrite(loose)),
        (Ok(_), Err(_)) => panic!("tighter limits accepted more"),
        (Err(refusal), _) => refused(&refusal, &TIGHT),
    }
}

pub fn batch(bytes: &[u8]) {
    for limits in [DecodeLimits::default(), TIGHT] {
        let one = decode(bytes, &limits);
        match decode_body(bytes, &limits) {
            Ok(RpcBody::One(message)) => {
                assert_eq!(
                    rewrite(&message),
                    rewrite(&one.expect("the same, read as one"))
                );
            }
            Ok(RpcBody::Batch(entries)) => {
                assert!((1..=limits.batch_entries_max).contains(&entries.len()));
                assert_eq!(
                    one.expect_err("a batch is no message").error,
                    DecodeError::Batch
                );
                entries
                    .iter()
                    .filter_map(|entry| entry.as_ref().err())
                    .for_each(|refusal| refused(refusal, &limits));
                let messages: Vec<Vec<u8>> = entries.iter().flatten().map(rewrite).collect();
                if let Some(again) = encode_batch(&messages) {
                    let Ok(RpcBody::Batch(read)) = decode_body(&again, &DecodeLimits::default())
                    else {
                        panic!("not a batch")
                    };
                    assert_eq!(
                        read.iter().flatten().map(rewrite).collect::<Vec<_>>(),
                        messages
                    );
                }
            }
            Err(refusal) => {
                assert!(one.is_err());
                refused(&refusal, &limits);
            }
        }
    }
}

/// Reads the bytes as a request id.
pub fn id(bytes: &[u8]) {
    let body = [
        b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":",
        bytes,
        b"}",
    ]
    .concat();
    let limits = DecodeLimits::default();
    let Ok(RpcMessage::Request(request)) = decode(&body, &limits) else {
        return;
    };
    let id = request.id;
    assert!(id.as_json().len() <= limits.id_bytes_max);
    assert!(
        body.windows(id.as_json().len())
            .any(|part| part == id.as_json().as_bytes()),
        "not as it was written"
    );
    let is_text = serde_json::from_str::<Value>(id.as_json()).is_ok_and(|value| value.is_string());
    assert_eq!(id.as_text().is_some(), is_text);
    if let Some(text) = id.as_text() {
        assert_eq!(
            serde_json::from_str::<String>(id.as_json()).ok().as_deref(),
            Some(text)
        );
        assert_eq!(RequestId::text(text), id);
    }
    let answer = encode_response(Some(&id), Err(&RpcError::new(1, "")), UnusedMember::Omit);
    let Ok(RpcMessage::Response(response)) = decode(&answer, &limits) else {
        panic!("no response")
    };
    let echoed = response.id.expect("an id");
    assert_eq!((echoed.as_json(), &echoed), (id.as_json(), &id));
}

fn written_again(message: &RpcMessage<'_>, limits: &DecodeLimits) {
    let bytes = rewrite(message);
    let read = decode(
        &bytes,
        &DecodeLimits {
            body_bytes_max: usize::MAX,
            ..*limits
        },
    )
    .expect("what was accepted is again");
    assert_eq!(rewrite(&read), bytes);
    assert!(format!("{message:?}").len() < ERROR_CHARS_MAX + limits.id_bytes_max);
}

fn rewrite(message: &RpcMessage<'_>) -> Vec<u8> {
    match message {
        RpcMessage::Request(request) => match request.params {
            Some(params) => encode_request(&request.id, &request.method, params),
            None => encode_request(
                &request.id,
                &request.method,
                &RawValue::from_string("[]".into()).expect("JSON"),
            ),
        },
        RpcMessage::Notification(notification) => {
            encode_notification(&notification.method, notification.params)
        }
        RpcMessage::Response(response) => encode_response(
            response.id.as_ref(),
            response.outcome.as_ref().copied(),
            UnusedMember::Omit,
        ),
    }
}

fn refused(refusal: &DecodeFailure, limits: &DecodeLimits) {
    let error = RpcError::from(refusal);
    assert!([-32700, -32600, -32602].contains(&error.code));
    assert!(error.message.len() < ERROR_CHARS_MAX);
    assert!(
        refusal
            .id
            .as_ref()
            .is_none_or(|id| id.as_json().len() <= limits.id_bytes_max)
    );
    decode(
        &encode_response(refusal.id.as_ref(), Err(&error), UnusedMember::Omit),
        &DecodeLimits::default(),
    )
    .expect("an answer");
}
