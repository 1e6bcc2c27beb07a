//! Messages: read as serde_json reads them or refused, and the same after they are written again.

use callboard_rpc::{
    Body, DecodeError, Id, Incoming, Limits, Nulls, Refusal, RpcError, decode, decode_body,
    encode_batch, encode_notification, encode_request, encode_response,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// Small ones, so that short inputs meet them.
const TIGHT: Limits = Limits {
    body_bytes_max: 200,
    depth_max: 4,
    keys_max: 6,
    digits_max: 12,
    id_bytes_max: 12,
    method_bytes_max: 12,
    batch_entries_max: 3,
};

/// Longest text of an error: it can't grow with the input.
const ERROR_CHARS_MAX: usize = 200;

pub fn envelope(bytes: &[u8]) {
    let read = decode(bytes, &Limits::default());
    match &read {
        Ok(message) => {
            assert!(
                serde_json::from_slice::<Value>(bytes).is_ok(),
                "accepted what serde_json refuses"
            );
            written_again(message, &Limits::default());
        }
        Err(refusal) => refused(refusal, &Limits::default()),
    }
    // Tighter limits refuse more, and change nothing in what they let pass.
    match (decode(bytes, &TIGHT), &read) {
        (Ok(tight), Ok(loose)) => assert_eq!(rewrite(&tight), rewrite(loose)),
        (Ok(_), Err(_)) => panic!("tighter limits accepted more"),
        (Err(refusal), _) => refused(&refusal, &TIGHT),
    }
}

pub fn batch(bytes: &[u8]) {
    for limits in [Limits::default(), TIGHT] {
        let one = decode(bytes, &limits);
        match decode_body(bytes, &limits) {
            Ok(Body::One(message)) => {
                assert_eq!(
                    rewrite(&message),
                    rewrite(&one.expect("the same, read as one"))
                );
            }
            Ok(Body::Batch(entries)) => {
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
                    let Ok(Body::Batch(read)) = decode_body(&again, &Limits::default()) else {
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

/// The bytes are taken for an id.
pub fn id(bytes: &[u8]) {
    let body = [
        b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":",
        bytes,
        b"}",
    ]
    .concat();
    let limits = Limits::default();
    let Ok(Incoming::Request(request)) = decode(&body, &limits) else {
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
        assert_eq!(Id::text(text), id);
    }
    let answer = encode_response(Some(&id), Err(&RpcError::new(1, "")), Nulls::Omit);
    let Ok(Incoming::Response(response)) = decode(&answer, &limits) else {
        panic!("no response")
    };
    let echoed = response.id.expect("an id");
    assert_eq!((echoed.as_json(), &echoed), (id.as_json(), &id));
}

fn written_again(message: &Incoming<'_>, limits: &Limits) {
    let bytes = rewrite(message);
    let read = decode(
        &bytes,
        &Limits {
            body_bytes_max: usize::MAX,
            ..*limits
        },
    )
    .expect("what was accepted is again");
    assert_eq!(rewrite(&read), bytes);
    assert!(format!("{message:?}").len() < ERROR_CHARS_MAX + limits.id_bytes_max);
}

fn rewrite(message: &Incoming<'_>) -> Vec<u8> {
    match message {
        Incoming::Request(request) => match request.params {
            Some(params) => encode_request(&request.id, &request.method, params),
            None => encode_request(
                &request.id,
                &request.method,
                &RawValue::from_string("[]".into()).expect("JSON"),
            ),
        },
        Incoming::Notification(notification) => {
            encode_notification(&notification.method, notification.params)
        }
        Incoming::Response(response) => encode_response(
            response.id.as_ref(),
            response.outcome.as_ref().copied(),
            Nulls::Omit,
        ),
    }
}

fn refused(refusal: &Refusal, limits: &Limits) {
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
        &encode_response(refusal.id.as_ref(), Err(&error), Nulls::Omit),
        &Limits::default(),
    )
    .expect("an answer");
}
