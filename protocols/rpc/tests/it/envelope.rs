use callboard_rpc::{
    DecodeLimits, RequestId, RpcError, RpcMessage, RpcRequest, RpcResponse, UnusedMember, code,
    decode, encode_notification, encode_request, encode_response,
};
use serde_json::value::RawValue;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn request(json: &str) -> RpcRequest<'_> {
    match decode(json.as_bytes(), &DecodeLimits::default()) {
        Ok(RpcMessage::Request(request)) => request,
        other => panic!("no request: {other:?}"),
    }
}

fn response(json: &str) -> RpcResponse<'_> {
    match decode(json.as_bytes(), &DecodeLimits::default()) {
        Ok(RpcMessage::Response(response)) => response,
        other => panic!("no response: {other:?}"),
    }
}

/// Goal: an id comes back with type and value. Method: the ids that other implementations lose, echoed.
/// Rows: M-31, X-10.
#[test]
fn ids_are_echoed_byte_for_byte() {
    for id in [
        "1",
        "\"1\"",
        "0",
        "-0",
        "-7",
        "9223372036854775808",
        "-9223372036854775809",
        "\"\"",
    ]
    .into_iter()
    .chain([
        "\"\\u0061\\n\\\"\"",
        "\"550e8400-e29b-41d4-a716-446655440000\"",
        "123456789012345678901234567890",
    ]) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let request = request(&body);
        let reply = encode_response(Some(&request.id), Ok(&raw("{}")), UnusedMember::Omit);
        assert_eq!(
            String::from_utf8(reply).unwrap(),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
}

/// Goal: a response is paired with its own request only. Method: ids that look alike.
#[test]
fn ids_are_equal_by_type_and_value() {
    let id = |json: &str| request(&format!(r#"{{"jsonrpc":"2.0","id":{json},"method":"m"}}"#)).id;
    assert_ne!(id("1"), id("\"1\""));
    assert_ne!(id("9223372036854775808"), id("9223372036854775807"));
    assert_eq!(id("\"a\""), id("\"\\u0061\""));
    assert_eq!(id("-0"), id("0"));
    assert_eq!(id("7"), RequestId::integer(7));
    assert_eq!(id("\"caf\\u00e9\""), RequestId::text("café"));
}

/// Goal: payloads are forwarded unchanged. Method: numbers, spaces, order and escapes that a parsed
/// value would change.
#[test]
fn params_stay_raw() {
    let params = r#"{ "b":1.10, "a":[1E2,  "\u0041"], "big":12345678901234567890123 }"#;
    let body = format!(
        r#" {{"params":{params} ,"method":"tools/call","id":"x","jsonrpc":"2.0","extra":[{{}}]}} "#
    );
    let request = request(&body);
    assert_eq!(
        (request.method.as_str(), request.params.map(RawValue::get)),
        ("tools/call", Some(params))
    );
}

/// Goal: kinds are told apart by `method` and `id`. Method: the smallest of each kind, written and read.
/// Rows: M-14, X-10.
#[test]
fn kinds_are_told_apart() {
    let limits = DecodeLimits::default();
    let bytes = encode_notification("notifications/progress", Some(&raw("{}")));
    assert!(
        matches!(decode(&bytes, &limits), Ok(RpcMessage::Notification(n)) if n.method == "notifications/progress")
    );
    let bytes = encode_notification("n", None);
    assert!(
        matches!(decode(&bytes, &limits), Ok(RpcMessage::Notification(n)) if n.params.is_none())
    );
    let bytes = encode_request(&RequestId::integer(-1), "m\n\"", &raw("[1]"));
    assert!(matches!(decode(&bytes, &limits), Ok(RpcMessage::Request(r)) if r.method == "m\n\""));
    let bytes = br#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#;
    assert!(matches!(decode(bytes, &limits), Ok(RpcMessage::Request(_))));
    // The version may be escaped: it is a string like any other.
    assert_eq!(
        request(r#"{"jsonrpc":"\u0032.0","id":1,"\u006dethod":"m"}"#).method,
        "m"
    );
}

/// Goal: a response is a result or an error, whichever way its writer treats the other. Method: all four spellings.
/// Rows: C-15.
#[test]
fn responses_are_read_with_and_without_nulls() {
    let ok = |json| response(json).outcome.unwrap().get().to_owned();
    assert_eq!(
        ok(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#),
        r#"{"a":1}"#
    );
    assert_eq!(
        ok(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}"#),
        r#"{"a":1}"#
    );
    assert_eq!(ok(r#"{"jsonrpc":"2.0","id":1,"result":null}"#), "null");
    assert_eq!(
        ok(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#),
        "null"
    );
    for json in [
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"away","data":[1.0]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32000,"message":"away","data":[1.0]}}"#,
    ] {
        let error = response(json).outcome.unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (code::SERVER_ERROR, "away")
        );
        assert_eq!(error.data.unwrap().get(), "[1.0]");
    }
    assert_eq!(
        response(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}"#).id,
        None
    );
}

/// Goal: both spellings of a response are exact. Method: the bytes.
/// Rows: C-15, X-38.
#[test]
fn responses_are_written_in_both_dialects() {
    let id = RequestId::text("a");
    let error = RpcError {
        data: Some(raw("{\"k\":1}")),
        needed_scope: Some("untold".into()),
        ..RpcError::invalid_params("no \"x\"")
    };
    let write =
        |outcome, nulls| String::from_utf8(encode_response(Some(&id), outcome, nulls)).unwrap();
    let result = raw("[1]");
    assert_eq!(
        write(Ok(&result), UnusedMember::Omit),
        r#"{"jsonrpc":"2.0","id":"a","result":[1]}"#
    );
    assert_eq!(
        write(Ok(&result), UnusedMember::Emit),
        r#"{"jsonrpc":"2.0","id":"a","result":[1],"error":null}"#
    );
    assert_eq!(
        write(Err(&error), UnusedMember::Omit),
        r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32602,"message":"no \"x\"","data":{"k":1}}}"#
    );
    assert_eq!(
        write(Err(&error), UnusedMember::Emit),
        r#"{"jsonrpc":"2.0","id":"a","result":null,"error":{"code":-32602,"message":"no \"x\"","data":{"k":1}}}"#
    );
    let nobody = encode_response(
        None,
        Err(&RpcError::new(code::PARSE_ERROR, "x")),
        UnusedMember::Omit,
    );
    assert_eq!(
        nobody,
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#
    );
}

/// Goal: no data of a peer is printed by `Debug`. Method: a name in each payload.
#[test]
fn debug_shows_no_payload() {
    let limits = DecodeLimits::default();
    for json in [
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"Ana Souza"}}"#,
        r#"{"jsonrpc":"2.0","method":"m","params":{"name":"Ana Souza"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":"Ana Souza"}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"Ana Souza","data":"Ana Souza"}}"#,
    ] {
        let shown = format!("{:?}", decode(json.as_bytes(), &limits).unwrap());
        assert!(!shown.contains("Souza"), "{shown}");
    }
}
