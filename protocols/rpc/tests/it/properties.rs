use callboard_rpc::{
    DecodeError, DecodeLimits, JsonError, RequestId, RpcError, RpcMessage, UnusedMember,
    check_json, decode, encode_request, encode_response,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

const JSON_LIKE: &str = r#"([\[\]{},:"0123.eE+\- \\u]|"a"|"b"|true|null|\\ud83d\\ude00|\\n){0,24}"#;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::from),
            btree_map(any::<String>(), inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn params() -> impl Strategy<Value = Value> {
    btree_map("[a-z]{1,8}", value(), 0..6).prop_map(|m| Value::Object(m.into_iter().collect()))
}

/// Edits: position, kind and byte.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..4)
}

fn id() -> impl Strategy<Value = RequestId> {
    prop_oneof![
        any::<i64>().prop_map(RequestId::integer),
        "\\PC{0,30}".prop_map(|text| RequestId::text(&text))
    ]
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

proptest! {
    /// Goal: no input panics, and accepted input is valid for serde_json too. Method: any bytes.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        if decode(&bytes, &DecodeLimits::default()).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }

    /// Goal: the scanner's grammar is serde_json's. Method: short texts of JSON's own characters,
    /// checked by both; they may differ only on duplicate keys, which serde_json accepts.
    #[test]
    fn grammar_agrees_with_serde_json(text in JSON_LIKE) {
        let ours = check_json(text.as_bytes(), &DecodeLimits::default());
        let theirs = serde_json::from_str::<Value>(&text);
        match ours {
            Err(JsonError::DuplicateKey { .. }) => {}
            _ => prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs),
        }
    }

    /// Goal: whatever serde_json writes passes. Method: generated values.
    #[test]
    fn written_values_pass(value in value()) {
        let text = value.to_string();
        prop_assert_eq!(check_json(text.as_bytes(), &DecodeLimits::default()), Ok(text.as_str()));
    }

    /// Goal: a request survives the wire, its payload byte for byte. Method: write, read, compare.
    #[test]
    fn requests_round_trip(id in id(), method in "\\PC{1,30}", params in params()) {
        let params = raw(&params);
        let bytes = encode_request(&id, &method, &params);
        match decode(&bytes, &DecodeLimits::default()) {
            Ok(RpcMessage::Request(read)) => {
                prop_assert_eq!(read.id.as_json(), id.as_json());
                prop_assert_eq!((read.id, read.method), (id, method));
                prop_assert_eq!(read.params.map(RawValue::get), Some(params.get()));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Goal: a response survives the wire in both dialects. Method: write, read, compare.
    #[test]
    fn responses_round_trip(id in id(), result in value(), code: i64, message: String, nulls: bool) {
        let nulls = if nulls { UnusedMember::Emit } else { UnusedMember::Omit };
        let result = raw(&result);
        let bytes = encode_response(Some(&id), Ok(&result), nulls);
        match decode(&bytes, &DecodeLimits::default()) {
            Ok(RpcMessage::Response(read)) => {
                prop_assert_eq!(read.id, Some(id.clone()));
                prop_assert_eq!(read.outcome.map(RawValue::get).map_err(|e| e.code), Ok(result.get()));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        let error = RpcError { data: Some(result), ..RpcError::new(code, message) };
        let bytes = encode_response(Some(&id), Err(&error), nulls);
        match decode(&bytes, &DecodeLimits::default()).map(|m| match m {
            RpcMessage::Response(response) => response.outcome.map(RawValue::get),
            _ => Ok("no response"),
        }) {
            Ok(Err(read)) => {
                prop_assert_eq!((read.code, &read.message), (error.code, &error.message));
                prop_assert_eq!(read.data.as_deref().map(RawValue::get), error.data.as_deref().map(RawValue::get));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Goal: a message with a byte changed, cut, doubled or inserted is decoded or rejected with a
    /// known code, in agreement with serde_json. Method: mutate valid messages.
    #[test]
    fn mutations_are_read_or_refused(params in params(), id in id(), edits in edits()) {
        let mut bytes = encode_request(&id, "tools/call", &raw(&params));
        for (at, edit, byte) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match edit {
                _ if bytes.is_empty() => {}
                0 => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..),
            }
        }
        match decode(&bytes, &DecodeLimits::default()) {
            Ok(_) => prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok()),
            Err(refusal) => {
                prop_assert!([-32700, -32600, -32602].contains(&refusal.error.code()));
                if matches!(refusal.error, DecodeError::Json(json) if !json.is_well_formed()) {
                    prop_assert!(serde_json::from_slice::<Value>(&bytes).is_err());
                }
            }
        }
    }
}
