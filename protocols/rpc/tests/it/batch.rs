use callboard_rpc::{
    BATCH_ENTRIES_MAX_DEFAULT, DecodeError, DecodeLimits, JsonError, RequestId, RpcBody, RpcError,
    RpcMessage, UnusedMember, code, decode, decode_body, encode_batch, encode_response,
};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;

/// Method or id of a batch entry, or code and id of its rejection.
type Entry = Result<String, (i64, Option<String>)>;

fn batch(text: &str) -> Result<Vec<Entry>, DecodeError> {
    match decode_body(text.as_bytes(), &DecodeLimits::default()) {
        Ok(RpcBody::Batch(entries)) => Ok(entries
            .into_iter()
            .map(|entry| match entry {
                Ok(RpcMessage::Request(request)) => Ok(request.method),
                Ok(RpcMessage::Notification(notification)) => Ok(notification.method),
                Ok(RpcMessage::Response(response)) => Ok(format!("{:?}", response.id)),
                Err(refusal) => Err((refusal.error.code(), refusal.id.map(|id| id.to_string()))),
            })
            .collect()),
        Ok(RpcBody::One(message)) => panic!("no batch: {message:?}"),
        Err(refusal) => {
            assert_eq!(refusal.id, None);
            Err(refusal.error)
        }
    }
}

/// Goal: entries keep their order, and an invalid one doesn't affect the others. Method: every
/// kind, between invalid ones.
#[test]
fn entries_stand_for_themselves() {
    let text = format!(
        r#" [ {CALL}, 1, {{"jsonrpc":"2.0","method":"n"}},{{"jsonrpc":"1.0","id":"x","method":"m"}},[{CALL}],
            {{"jsonrpc":"2.0","id":7,"result":{{}}}}, {{}}, null ] "#
    );
    let invalid = |id: Option<&str>| Err((code::INVALID_REQUEST, id.map(str::to_owned)));
    let expected = [
        Ok("m".to_owned()),
        invalid(None),
        Ok("n".to_owned()),
        invalid(Some("\"x\"")),
        invalid(None),
        Ok("Some(Id(7))".to_owned()),
        invalid(None),
        invalid(None),
    ];
    assert_eq!(batch(&text).unwrap(), expected);
}

/// Goal: a single message is no batch, even where batches are allowed. Method: the same body
/// decoded both ways.
#[test]
fn one_message_is_no_batch() {
    assert!(matches!(
        decode_body(CALL.as_bytes(), &DecodeLimits::default()),
        Ok(RpcBody::One(RpcMessage::Request(_)))
    ));
    for body in ["", "1", "{}", "{", r#"{"jsonrpc":"2.0","id":1,"method":1}"#] {
        let both = [
            decode(body.as_bytes(), &DecodeLimits::default()).err(),
            decode_body(body.as_bytes(), &DecodeLimits::default()).err(),
        ];
        assert!(both[0].is_some() && both[0] == both[1], "{body}");
    }
}

/// Goal: an invalid batch is rejected as a whole. Method: empty, broken, a duplicate key in one
/// entry.
#[test]
fn bad_batches_are_refused_whole() {
    assert_eq!(batch("[]"), Err(DecodeError::BatchEmpty));
    assert_eq!(
        batch(" [ ] ").map_err(|e| e.code()),
        Err(code::INVALID_REQUEST)
    );
    assert_eq!(
        batch(&format!("[{CALL},]")).map_err(|e| e.code()),
        Err(code::PARSE_ERROR)
    );
    assert_eq!(
        batch(&format!("[{CALL}")).map_err(|e| e.code()),
        Err(code::PARSE_ERROR)
    );
    let twice = batch(&format!(r#"[{CALL},{{"a":1,"a":2}}]"#));
    assert!(matches!(
        twice,
        Err(DecodeError::Json(JsonError::DuplicateKey { .. }))
    ));
}

/// Goal: the limit of entries is exact, and entries beyond it use no memory. Method: the default,
/// one more, a million.
#[test]
fn batch_entries() {
    let entries_max = BATCH_ENTRIES_MAX_DEFAULT;
    let of = |entries: usize| format!("[{}]", vec![CALL; entries].join(","));
    assert_eq!(batch(&of(entries_max)).unwrap().len(), entries_max);
    assert_eq!(
        batch(&of(entries_max + 1)),
        Err(DecodeError::BatchOver { entries_max })
    );
    assert_eq!(
        batch(&format!("[{}1]", "1,".repeat(1_000_000))),
        Err(DecodeError::BatchOver { entries_max })
    );
}

/// Goal: responses are sent as one batch, and no batch is empty. Method: two, one, none; decoded
/// again.
#[test]
fn batches_are_written() {
    let error = RpcError::new(code::METHOD_NOT_FOUND, "no such method");
    let answers = [1, 2].map(|id| {
        encode_response(
            Some(&RequestId::integer(id)),
            Err(&error),
            UnusedMember::Omit,
        )
    });
    let both = encode_batch(&answers).unwrap();
    assert_eq!(
        batch(std::str::from_utf8(&both).unwrap()).unwrap(),
        [Ok("Some(Id(1))".into()), Ok("Some(Id(2))".into())]
    );
    assert_eq!(
        encode_batch(&answers[..1]).unwrap(),
        [b"[", answers[0].as_slice(), b"]"].concat()
    );
    assert_eq!(encode_batch(Vec::<Vec<u8>>::new()), None);
}
