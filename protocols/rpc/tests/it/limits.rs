use callboard_rpc::{DecodeError, DecodeLimits, JsonError, check_json, decode};

/// Checks that `at_limit` passes and `over` is rejected with `error`.
fn bound(limits: &DecodeLimits, at_limit: &str, over: &str, error: impl Into<DecodeError>) {
    assert!(
        decode(at_limit.as_bytes(), limits).is_ok(),
        "refused at the limit"
    );
    assert_eq!(
        decode(over.as_bytes(), limits).unwrap_err().error,
        error.into()
    );
}

fn with_params(value: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{value}}}"#)
}

/// Goal: the limit of the body is exact. Method: pad a string to the default and one byte more.
#[test]
fn body_bytes() {
    let limits = DecodeLimits::default();
    let pad = limits.body_bytes_max - with_params("[\"\"]").len();
    let body = |pad: usize| with_params(&format!("[\"{}\"]", "x".repeat(pad)));
    bound(
        &limits,
        &body(pad),
        &body(pad + 1),
        JsonError::BytesOver {
            max: limits.body_bytes_max,
        },
    );
}

/// Goal: the limit of the depth is exact, and accepted text can be read by serde_json. Method:
/// nested arrays.
#[test]
fn depth() {
    let limits = DecodeLimits::default();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    // The envelope is one level itself.
    let (at, over) = (
        with_params(&nested(limits.depth_max - 1)),
        with_params(&nested(limits.depth_max)),
    );
    bound(
        &limits,
        &at,
        &over,
        JsonError::DepthOver {
            max: limits.depth_max,
        },
    );
    assert!(serde_json::from_str::<serde_json::Value>(&at).is_ok());
}

/// Goal: the limit of members is exact, and applies to each object. Method: the default, one more,
/// and many objects.
#[test]
fn keys() {
    let limits = DecodeLimits::default();
    let object = |keys: usize| {
        let members: Vec<String> = (0..keys).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let error = JsonError::KeysOver {
        max: limits.keys_max,
    };
    bound(
        &limits,
        &with_params(&object(limits.keys_max)),
        &with_params(&object(limits.keys_max + 1)),
        error,
    );
    let many = with_params(&format!("[{0},{0},{{\"a\":{0}}}]", object(limits.keys_max)));
    assert!(decode(many.as_bytes(), &limits).is_ok());
    assert_eq!(
        check_json(
            object(1_000_000).as_bytes(),
            &DecodeLimits {
                body_bytes_max: usize::MAX,
                ..limits
            }
        ),
        Err(error)
    );
}

/// Goal: the limit of digits is exact and includes fraction and exponent. Method: a fraction of
/// that length.
#[test]
fn digits() {
    let limits = DecodeLimits::default();
    let number = |digits: usize| with_params(&format!("[-0.{}e1]", "3".repeat(digits - 2)));
    let at = number(limits.digits_max).find('-').unwrap();
    let error = JsonError::DigitsOver {
        at,
        max: limits.digits_max,
    };
    bound(
        &limits,
        &number(limits.digits_max),
        &number(limits.digits_max + 1),
        error,
    );
    // The largest double written out passes; ten times as much doesn't.
    let largest = format!("{:.0}", f64::MAX);
    assert!(check_json(largest.as_bytes(), &limits).is_ok());
    assert_eq!(
        check_json(format!("{largest}0").as_bytes(), &limits),
        Err(JsonError::NumberRange { at: 0 })
    );
}

/// Goal: the limit of an id's length as written is exact. Method: a string and an integer of that
/// length.
#[test]
fn id_bytes() {
    let limits = DecodeLimits::default();
    let max = limits.id_bytes_max;
    let body = |id: String| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    let text = |bytes: usize| body(format!("\"{}\"", "i".repeat(bytes - 2)));
    bound(
        &limits,
        &text(max),
        &text(max + 1),
        DecodeError::Id { bytes_max: max },
    );
    bound(
        &limits,
        &body("7".repeat(max)),
        &body("7".repeat(max + 1)),
        DecodeError::Id { bytes_max: max },
    );
}

/// Goal: the limit of a method name's length is exact. Method: that length and one more.
#[test]
fn method_bytes() {
    let limits = DecodeLimits::default();
    let body = |bytes: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#,
            "m".repeat(bytes)
        )
    };
    let max = limits.method_bytes_max;
    bound(
        &limits,
        &body(max),
        &body(max + 1),
        DecodeError::Method { bytes_max: max },
    );
}
