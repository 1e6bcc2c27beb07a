use callboard_rpc::{DecodeError, DecodeLimits, RequestId, RpcError, RpcMessage, code, decode};

/// Returns the error code and the id of the rejection of `body`.
fn refused(body: &[u8]) -> (i64, Option<String>) {
    match decode(body, &DecodeLimits::default()) {
        Err(refusal) => (
            RpcError::from(&refusal).code,
            refusal.id.map(|id| id.to_string()),
        ),
        Ok(message) => panic!("accepted {}: {message:?}", String::from_utf8_lossy(body)),
    }
}

fn check(expected: i64, bodies: &[&[u8]]) {
    for body in bodies {
        let shown = String::from_utf8_lossy(body.get(..60).unwrap_or(body)).into_owned();
        assert_eq!(refused(body).0, expected, "{shown}");
    }
}

/// Returns a request whose `params` contain `value`.
fn around(value: &[u8]) -> Vec<u8> {
    [
        br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"v":"#,
        value,
        b"}}",
    ]
    .concat()
}

/// Goal: invalid JSON is -32700 wherever it occurs. Method: each error, at the top and inside a raw
/// payload.
#[test]
fn no_json_is_a_parse_error() {
    let mantissa = "1".repeat(1_000_000);
    let words = r#"{ } nul truth NaN 'a' " "a [1,] {"a"} {"a":} {"a":1,} {,} {a:1} 01 +1 1. .5 1e 1e+ - --1 0x10 1e400 -1e999
        1e99999999999999999999 "\ud800" "\udc00" "\ud800\u0041" "\ud800x" "\uD8" "\x" "\u12g4" [} {]"#;
    let others: [&[u8]; 15] = [
        b"",
        b" ",
        b"[1 2]",
        mantissa.as_bytes(),
        b"\"\xC3\"",
        b"\"\xED\xA0\x80\"",
        b"\"\xFF\"",
        b"\"\0\"",
        b"\0",
        b"\"\n\"",
        b"1 2",
        b"{} {}",
        b"\xEF\xBB\xBF{}",
        b"\x0b1",
        b"/* */1",
    ];
    let breaks: Vec<&[u8]> = words
        .split_ascii_whitespace()
        .map(str::as_bytes)
        .chain(others)
        .collect();
    check(code::PARSE_ERROR, &breaks);
    for bad in breaks.iter().filter(|bad| !bad.trim_ascii().is_empty()) {
        check(code::PARSE_ERROR, &[&around(bad)]);
    }
    check(
        code::PARSE_ERROR,
        &[b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"],
    );
}

/// Goal: every prefix of a message is refused. Method: cut it at each byte, also within a character.
#[test]
fn truncated_messages_are_parse_errors() {
    let body = around("\"ação \\ud83d\\ude00 😀\"".as_bytes());
    assert!(decode(&body, &DecodeLimits::default()).is_ok());
    for end in 0..body.len() {
        check(code::PARSE_ERROR, &[&body[..end]]);
    }
}

/// Goal: depth costs no stack. Method: 100,000 levels, open and closed, of arrays, objects and both.
#[test]
fn deep_nesting_is_refused() {
    const LEVELS: usize = 100_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let deep = format!("{}1{}", open.repeat(LEVELS), close.repeat(LEVELS));
        check(
            code::INVALID_REQUEST,
            &[
                deep.as_bytes(),
                &around(deep.as_bytes()),
                open.repeat(LEVELS).as_bytes(),
            ],
        );
    }
}

/// Goal: objects and numbers of any size are refused, and quickly. Method: a million members, as many as fit a body, a
/// million digits, at the top and in a payload.
#[test]
fn huge_objects_and_numbers_are_refused() {
    let object = |members: usize| {
        format!(
            "{{{}\"last\":0}}",
            (0..members)
                .map(|n| format!("\"{n}\":0,"))
                .collect::<String>()
        )
    };
    let (fits, huge) = (object(300_000), object(1_000_000));
    assert!(
        fits.len() < DecodeLimits::default().body_bytes_max
            && huge.len() > DecodeLimits::default().body_bytes_max
    );
    check(
        code::INVALID_REQUEST,
        &[fits.as_bytes(), &around(fits.as_bytes()), huge.as_bytes()],
    );
    let digits = "7".repeat(1_000_000);
    for number in [
        digits.clone(),
        format!("-{digits}"),
        format!("0.{digits}"),
        format!("1e{digits}"),
        format!("[{digits}]"),
    ] {
        check(
            code::PARSE_ERROR,
            &[number.as_bytes(), &around(number.as_bytes())],
        );
    }
}

/// Goal: two readers can't see different values. Method: the same key twice, plain and escaped, at each level.
#[test]
fn duplicate_keys_are_refused() {
    let many = (0..40).map(|n| format!("\"k{n}\":0,")).collect::<String>();
    check(
        code::INVALID_REQUEST,
        &[
            br#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":1}"#,
            &around(br#"{"dose":1,"dose":2}"#),
            &around(br#"[{"a":{"dose":1,"b":{},"d\u006fse":2}}]"#),
            &around(format!("{{{many}\"k7\":1}}").as_bytes()),
            &around(br#"{"":1,"":2}"#),
        ],
    );
    let distinct = format!(r#"{{{many}"a":{{"k1":1}},"A":{{"k1":1}}}}"#);
    assert!(decode(&around(distinct.as_bytes()), &DecodeLimits::default()).is_ok());
}

/// Goal: batches are refused. Method: empty, of messages, of rubbish.
#[test]
fn batches_are_refused() {
    for body in [
        "[]",
        "[{},{}]",
        r#" [{"jsonrpc":"2.0","id":1,"method":"m"}]"#,
        "[1]",
    ] {
        let refusal = decode(body.as_bytes(), &DecodeLimits::default()).unwrap_err();
        assert_eq!((refusal.error, refusal.id), (DecodeError::Batch, None));
        check(code::INVALID_REQUEST, &[body.as_bytes()]);
    }
}

/// Goal: with `allows_null_id` a request may have the id `null`, which is repeated, and a result
/// still not; other ids stay invalid. Method: each.
#[test]
fn null_is_an_id_where_it_is_allowed() {
    let limits = DecodeLimits {
        allows_null_id: true,
        ..DecodeLimits::default()
    };
    let body = br#"{"jsonrpc":"2.0","id":null,"method":"m"}"#;
    let Ok(RpcMessage::Request(request)) = decode(body, &limits) else {
        panic!("no request")
    };
    assert_eq!((request.id.as_json(), request.id.as_text()), ("null", None));
    assert_ne!(request.id, RequestId::text("null"));
    for body in [
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
    ] {
        let refused = decode(body.as_bytes(), &limits).unwrap_err();
        assert!(matches!(refused.error, DecodeError::Id { .. }), "{body}");
    }
}

/// Goal: only strings and integers are valid ids. Method: every other value.
#[test]
fn other_ids_are_invalid() {
    for id in ["null", "1.0", "1e2", "-1.5", "true", "{}", "[]", "[1]"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        assert_eq!(
            refused(body.as_bytes()),
            (code::INVALID_REQUEST, None),
            "{id}"
        );
    }
}

/// Goal: an invalid envelope is -32600 under its own id, invalid params are -32602. Method: one
/// fault at a time.
#[test]
fn wrong_members_are_answered_under_the_id() {
    let invalid = (code::INVALID_REQUEST, Some("\"i\"".to_owned()));
    for body in [
        r#"{"id":"i","method":"m"}"#,
        r#"{"jsonrpc":"1.0","id":"i","method":"m"}"#,
        r#"{"jsonrpc":2.0,"id":"i","method":"m"}"#,
        r#"{"jsonrpc":null,"id":"i","method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":"i"}"#,
        r#"{"jsonrpc":"2.0","id":"i","method":null}"#,
        r#"{"jsonrpc":"2.0","id":"i","method":7}"#,
        r#"{"jsonrpc":"2.0","id":"i","method":["m"]}"#,
    ] {
        assert_eq!(refused(body.as_bytes()), invalid, "{body}");
    }
    for params in ["null", "1", "\"a\"", "true"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":"i","method":"m","params":{params}}}"#);
        assert_eq!(
            refused(body.as_bytes()),
            (code::INVALID_PARAMS, Some("\"i\"".to_owned())),
            "{params}"
        );
    }
    check(
        code::INVALID_REQUEST,
        &[
            b"1",
            b"\"a\"",
            b"null",
            b"true",
            b"{}",
            br#"{"jsonrpc":"2.0"}"#,
        ],
    );
}

/// Goal: a response with neither or both of result and error is rejected. Method: each mix.
#[test]
fn ambiguous_responses_are_refused() {
    for members in [
        r#""id":1,"result":1,"error":{"code":1,"message":"m"}"#,
        r#""id":1,"result":{},"error":{}"#,
        r#""id":1,"error":null"#,
        r#""id":1"#,
        r#""result":1"#,
        r#""id":null,"result":1"#,
        r#""id":1.5,"result":1"#,
        r#""id":1,"error":"broken""#,
        r#""id":1,"error":[1,"m"]"#,
        r#""id":1,"error":{"code":1.5,"message":"m"}"#,
        r#""id":1,"error":{"code":"1","message":"m"}"#,
        r#""id":1,"error":{"message":"m"}"#,
        r#""id":1,"error":{"code":1}"#,
    ] {
        check(
            code::INVALID_REQUEST,
            &[format!("{{\"jsonrpc\":\"2.0\",{members}}}").as_bytes()],
        );
    }
}

/// Goal: an error message never repeats the input. Method: a name at each place of an error.
#[test]
fn refusals_repeat_nothing() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"Ana Souza":1,"Ana Souza":2}}"#,
        r#"{"jsonrpc":"Ana Souza","id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":["Ana Souza"]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"Ana Souza"}"#,
        r#"{"Ana Souza" 1}"#,
    ] {
        let refusal = decode(body.as_bytes(), &DecodeLimits::default()).unwrap_err();
        assert!(!format!("{refusal} {refusal:?}").contains("Souza"));
    }
}
