use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::kit::clinics::{Served, identities};
use crate::kit::{Home, soon};

fn call(id: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

/// Goal: the golden exchanges of the documents (technical blueprint, section 2), with a real process. Method: the
/// requests as written there; the whole response where it is given whole.
/// Rows: C-11, C-14.
#[tokio::test]
async fn the_golden_exchanges() {
    let home = Home::new();
    let clinic = Served::example(&home, "cardiology").await;

    let id = "\"550e8400-e29b-41d4-a716-446655440000\"";
    let asked = call(
        id,
        r#"{"name":"get_patient","arguments":{"patient_id":"CARD-001"}}"#,
    );
    let (status, body) = clinic.post(asked).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &answer["jsonrpc"], &answer["error"]),
        (200, &json!("2.0"), &Value::Null)
    );
    assert_eq!(answer["id"], "550e8400-e29b-41d4-a716-446655440000");
    let patient = &answer["result"]["patient"];
    assert_eq!(
        (&patient["patient_id"], &patient["condition"]),
        (&json!("CARD-001"), &json!("Hypertension"))
    );
    assert!(body.contains("\"error\":null"), "{body}");

    for (tool, arguments, rows) in [
        ("list_patients", json!({}), "patients"),
        ("query", json!({"query": "hypertension"}), "matches"),
    ] {
        let answer = clinic.call(tool, arguments).await;
        let rows = answer["result"][rows].as_array().unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            let keys: Vec<_> = row.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["condition", "patient_id"]);
        }
        let whole = answer.to_string();
        assert!(
            !identities("cardiology")
                .iter()
                .any(|identity| whole.contains(identity)),
            "{tool}"
        );
    }
    assert_eq!(
        clinic.call("query", json!({"query": "hypertension"})).await["result"]["specialty"],
        "cardiology"
    );
    let medications = clinic
        .call("check_medications", json!({"patient_id": "CARD-001"}))
        .await;
    assert_eq!(medications["result"]["medications"][0]["name"], "Losartan");
    assert_eq!(clinic.end().await.code, Some(0));
}

/// Goal: bad input has its code and takes nothing else with it. Method: rows, each followed by a good call; then the
/// process still ends in order, with nothing on standard error.
#[tokio::test]
async fn bad_input_is_survived() {
    let home = Home::new();
    let clinic = Served::example(&home, "cardiology").await;
    let good = r#"{"name":"list_patients","arguments":{}}"#;
    let nested = |depth: usize| format!("{{\"name\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let rows: Vec<(String, i64, Value)> = [
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/delete"}"#.into(),
            -32601,
            json!("a"),
        ),
        (
            call("\"a\"", r#"{"name":"dump_all","arguments":{}}"#),
            -32602,
            json!("a"),
        ),
        (
            call("7", r#"{"name":"get_patient","arguments":{}}"#),
            -32602,
            json!(7),
        ),
        (
            call(
                "7",
                r#"{"name":"get_patient","arguments":{"patient_id":"CARD-001","all":true}}"#,
            ),
            -32602,
            json!(7),
        ),
        (
            call(
                "7",
                r#"{"name":"get_patient","arguments":{"patient_id":"CARD-999"}}"#,
            ),
            -32602,
            json!(7),
        ),
        (
            call(
                "7",
                r#"{"name":"query","arguments":{"query":"'; DROP TABLE patients; --"}}"#,
            ),
            0,
            json!(7),
        ),
        (
            call("-9223372036854775809", good),
            0,
            json!(-9223372036854775809_f64),
        ),
        (call("\"1\"", good), 0, json!("1")),
        (call("null", good), -32600, Value::Null),
        (call("1.5", good), -32600, Value::Null),
        (call("[]", good), -32600, Value::Null),
        (call("true", good), -32600, Value::Null),
        ("[]".into(), -32600, Value::Null),
        (format!("[{}]", call("1", good)), -32600, Value::Null),
        ("{".into(), -32700, Value::Null),
        (String::new(), -32700, Value::Null),
        (call("7", &nested(100)), -32600, Value::Null),
        ("[".repeat(100_000), -32600, Value::Null),
    ]
    .into();
    for (body, code, id) in rows {
        let shown: String = body.chars().take(120).collect();
        let (status, answer) = clinic.post(body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(status, 200, "{shown}");
        assert_eq!(
            (answer["error"]["code"].as_i64().unwrap_or(0), &answer["id"]),
            (code, &id),
            "{shown}: {answer}"
        );
        assert_eq!(answer["result"].is_null(), code != 0, "{shown}");
        assert!(
            clinic.call("list_patients", json!({})).await["result"].is_object(),
            "after {shown}"
        );
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(clinic.post(notification).await, (202, String::new()));

    // The limit is 4 MiB; a client may be cut off while it still sends.
    let over = format!("{}{}", call("1", good), " ".repeat(4 * 1024 * 1024));
    let client = reqwest::Client::new()
        .post(&clinic.url)
        .header("content-type", "application/json")
        .body(over);
    if let Ok(response) = soon("a refusal", client.send()).await {
        assert_eq!(response.status().as_u16(), 413);
    }
    // Refused by what it declares.
    assert_eq!(
        declared(&clinic, 4 * 1024 * 1024 + 1).await,
        "HTTP/1.1 413 Payload Too Large"
    );

    assert!(clinic.call("list_patients", json!({})).await["result"].is_object());
    clinic.end().await.quiet(0);
    assert_eq!(home.left_behind(), 0);
}

/// The first line of the response to a body of which only the length was sent.
async fn declared(clinic: &Served, bytes: usize) -> String {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let address = clinic
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    soon("a status", lines.next_line()).await.unwrap().unwrap()
}
