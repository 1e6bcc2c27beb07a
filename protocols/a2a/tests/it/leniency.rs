//! Lenient reading: input as real peers send it is accepted, ambiguous input is rejected with the
//! field's name.

use callboard_a2a::wire::*;
use callboard_a2a::{A2aError, Dialect, ErrorKind, limits};
use callboard_message::TaskState;

use crate::samples::*;

fn part(json: &str) -> Result<String, ReadError> {
    Part::from_raw(&raw(json)).map(|part| part.to_json())
}

/// Goal: a part is read in every spelling in use. Method: rows, each with its format in 1.0.
#[test]
fn parts_in_all_spellings() {
    for (sent, canonical) in [
        (r#"{"text":"a"}"#, r#"{"text":"a"}"#),
        (
            r#"{"kind":"text","text":"a","metadata":null}"#,
            r#"{"text":"a"}"#,
        ),
        (r#"{"type":"text"}"#, r#"{"text":""}"#),
        (
            r#"{"raw":"-_8","media_type":"image/png"}"#,
            r#"{"raw":"+/8=","mediaType":"image/png"}"#,
        ),
        (
            r#"{"raw":"+/8","filename":"x"}"#,
            r#"{"raw":"+/8=","filename":"x"}"#,
        ),
        (
            r#"{"bytes":"+/8=","mimeType":"a/b","name":"x"}"#,
            r#"{"raw":"+/8=","filename":"x","mediaType":"a/b"}"#,
        ),
        (
            r#"{"kind":"file","file":{"bytes":"","mimeType":"a/b","name":"x"}}"#,
            r#"{"raw":"","filename":"x","mediaType":"a/b"}"#,
        ),
        (
            r#"{"file":{"fileWithUri":"https://x","mime_type":"a/b"}}"#,
            r#"{"url":"https://x","mediaType":"a/b"}"#,
        ),
        (
            r#"{"file":{"file_with_bytes":"AA=="}}"#,
            r#"{"raw":"AA=="}"#,
        ),
        (r#"{"uri":"https://x"}"#, r#"{"url":"https://x"}"#),
        (
            r#"{"kind":"data","data":{"a":1.0}}"#,
            r#"{"data":{"a":1.0}}"#,
        ),
        (r#"{"data":null}"#, r#"{"data":null}"#),
        (
            r#"{"text":"a","raw":null,"url":null,"data":null,"x":[1]}"#,
            r#"{"text":"a"}"#,
        ),
    ] {
        assert_eq!(part(sent).as_deref(), Ok(canonical), "{sent}");
    }
}

/// Goal: ambiguous or invalid input is rejected. Method: rows, each with the field and the reason.
#[test]
fn parts_that_are_none() {
    for (sent, field, why) in [
        (
            r#"{}"#,
            "",
            "has no content: one of text, raw, url and data",
        ),
        (
            r#"{"kind":"video"}"#,
            "",
            "has no content: one of text, raw, url and data",
        ),
        (
            r#"{"file":{}}"#,
            "",
            "has no content: one of text, raw, url and data",
        ),
        (r#"{"text":"a","data":1}"#, "", "has two contents"),
        (
            r#"{"file":{"bytes":"AA==","uri":"x"}}"#,
            "",
            "has two contents",
        ),
        (r#"{"text":{}}"#, "text", "must be a string"),
        (r#"{"raw":"?"}"#, "raw", "must be base64"),
        (r#"{"raw":"A"}"#, "raw", "must be base64"),
        (r#"{"file":{"bytes":7}}"#, "file.bytes", "must be base64"),
        (
            r#"{"text":"a","metadata":[]}"#,
            "metadata",
            "must be an object",
        ),
        (
            r#"{"mediaType":"a/b","media_type":"a/c","text":""}"#,
            "mediaType",
            "occurs twice, in two spellings",
        ),
        (r#""a""#, "", "must be an object"),
        (r#"{"text":"a","text":"b"}"#, "", "must be an object"),
    ] {
        let error = part(sent).unwrap_err();
        assert_eq!((&*error.field, error.why), (field, why), "{sent}");
    }
}

/// Goal: a task is read in the formats of all versions. Method: rows, each with its format in 1.0.
#[test]
fn tasks_in_all_spellings() {
    for (sent, canonical) in [
        (
            r#"{"id":"t","context_id":"c","status":{"state":"TASK_STATE_WORKING"}}"#,
            r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#,
        ),
        (
            r#"{"kind":"task","id":7,"sessionId":"c","status":{"state":"input-required","timestamp":"2026-07-28T12:30:00+02:00"}}"#,
            r#"{"id":"7","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-07-28T10:30:00.000Z"}}"#,
        ),
        (
            r#"{"id":"t","status":{"state":"Cancelled","timestamp":1785234600.5}}"#,
            r#"{"id":"t","status":{"state":"TASK_STATE_CANCELED","timestamp":"2026-07-28T10:30:00.500Z"}}"#,
        ),
        (
            r#"{"id":"t","status":{"state":3,"timestamp":"yesterday"}}"#,
            r#"{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}"#,
        ),
        (
            r#"{"id":"t","status":{"state":"task_state_auth_required"},"artifacts":null,"history":[]}"#,
            r#"{"id":"t","status":{"state":"TASK_STATE_AUTH_REQUIRED"},"history":[]}"#,
        ),
        (
            r#"{"id":"t","status":{"state":"unknown","message":{"parts":null}}}"#,
            r#"{"id":"t","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}}}"#,
        ),
        (
            r#"{"id":"t","status":{"state":"failed"},"artifacts":{"index":2,"parts":{"type":"text","text":"a"}}}"#,
            r#"{"id":"t","status":{"state":"TASK_STATE_FAILED"},"artifacts":[{"artifactId":"2","parts":[{"text":"a"}]}]}"#,
        ),
    ] {
        assert_eq!(
            A2aTask::from_raw(&raw(sent))
                .map(|task| task.to_json())
                .as_deref(),
            Ok(canonical),
            "{sent}"
        );
    }
    for (sent, field) in [
        (r#"{"status":{"state":"working"}}"#, "id"),
        (r#"{"id":"","status":{"state":"working"}}"#, "id"),
        (r#"{"id":"t"}"#, "status"),
        (r#"{"id":"t","status":{}}"#, "status.state"),
        (
            r#"{"id":"t","status":{"state":"failed"},"artifacts":[{"parts":[{"text":"a"},3]}]}"#,
            "artifacts[0].parts[1]",
        ),
    ] {
        assert_eq!(
            A2aTask::from_raw(&raw(sent)).unwrap_err().field,
            field,
            "{sent}"
        );
    }
}

/// Goal: an event is identified by its name, its kind or its members. Method: rows.
#[test]
fn events_in_all_spellings() {
    let status = r#""status":{"state":"working"}"#;
    for (sent, is) in [
        (format!(r#"{{"task":{{"id":"t",{status}}}}}"#), "task"),
        (
            format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c",{status}}}}}"#),
            "status",
        ),
        (
            format!(r#"{{"status_update":{{"task_id":"t",{status}}}}}"#),
            "status",
        ),
        (
            r#"{"artifactUpdate":{"taskId":"t","artifact":{"parts":[]}}}"#.into(),
            "artifact",
        ),
        (
            r#"{"message":{"messageId":"m","role":"agent","parts":[]}}"#.into(),
            "message",
        ),
        (format!(r#"{{"kind":"task","id":"t",{status}}}"#), "task"),
        (
            format!(
                r#"{{"kind":"status-update","taskId":"t","contextId":"c","final":true,{status}}}"#
            ),
            "status",
        ),
        (
            r#"{"kind":"artifact-update","taskId":"t","artifact":{"parts":[]}}"#.into(),
            "artifact",
        ),
        (r#"{"kind":"message","parts":[]}"#.into(), "message"),
        (format!(r#"{{"id":"t","final":false,{status}}}"#), "status"),
        (
            format!(r#"{{"id":"t","final":false,"artifacts":[],{status}}}"#),
            "task",
        ),
        (format!(r#"{{"id":"t","sessionId":"s",{status}}}"#), "task"),
        (r#"{"id":"t","artifact":{"parts":[]}}"#.into(), "artifact"),
        (r#"{"role":"agent","parts":[]}"#.into(), "message"),
    ] {
        let found = match StreamResponse::from_raw(&raw(&sent)).unwrap() {
            StreamResponse::Task(_) => "task",
            StreamResponse::Message(_) => "message",
            StreamResponse::StatusUpdate(_) => "status",
            StreamResponse::ArtifactUpdate(_) => "artifact",
        };
        assert_eq!(found, is, "{sent}");
    }
    assert!(StreamResponse::from_raw(&raw("{}")).is_err());
    assert!(SendMessageResponse::from_raw(&raw(r#"{"ok":true}"#)).is_err());
}

/// Goal: an invalid response is an error of the peer. Method: a task without an id, through each
/// dialect.
#[test]
fn answers_that_are_none() {
    for dialect in [Dialect::V10, Dialect::V03, Dialect::V03Rest, Dialect::V01] {
        let none = raw(r#"{"status":{"state":"working"}}"#);
        assert_eq!(
            dialect.read_task(&none).unwrap_err().kind,
            ErrorKind::InvalidAgentResponse
        );
        assert_eq!(
            dialect.read_send_response(&none).unwrap_err().kind,
            ErrorKind::InvalidAgentResponse
        );
        assert_eq!(
            dialect.read_event(&raw("[]")).unwrap_err().kind,
            ErrorKind::InvalidAgentResponse
        );
    }
}

fn refused(dialect: Dialect, json: &str) -> A2aError {
    dialect
        .read_send(Some(&raw(json)))
        .map(drop)
        .expect_err(json)
}

/// Goal: a message without an id, a role or a part is rejected in every version that has them.
/// Method: rows.
#[test]
fn requests_must_say_what_they_mean() {
    for dialect in [Dialect::V10, Dialect::V03, Dialect::V03Rest] {
        for (json, why) in [
            (r#"{}"#, "message is missing"),
            (r#"{"message":null}"#, "message is missing"),
            (
                r#"{"message":{"role":"user","parts":[{"text":"a"}]}}"#,
                "message.messageId is missing",
            ),
            (
                r#"{"message":{"messageId":"m","parts":[{"text":"a"}]}}"#,
                "message.role is missing",
            ),
            (
                r#"{"message":{"messageId":"m","role":"nobody","parts":[{"text":"a"}]}}"#,
                "message.role is missing",
            ),
            (
                r#"{"message":{"messageId":"m","role":"user"}}"#,
                "message.parts is missing",
            ),
            (
                r#"{"message":{"messageId":"m","role":"user","parts":[]}}"#,
                "message.parts is missing",
            ),
            (
                r#"{"message":{"messageId":"m","role":"user","parts":[{"text":"a"}]},"configuration":{"historyLength":-1}}"#,
                "configuration.historyLength must not be negative",
            ),
            (
                r#"{"message":{"messageId":"m\u0000","role":"user","parts":[{"text":"a"}]}}"#,
                "message.messageId has control characters",
            ),
            (r#"[]"#, "the request must be an object"),
        ] {
            let error = refused(dialect, json);
            assert_eq!(
                (error.kind, &*error.message),
                (ErrorKind::InvalidParams, why),
                "{dialect:?} {json}"
            );
        }
    }
    for (json, why) in [
        (
            r#"{"message":{"role":"user","parts":[{"text":"a"}]}}"#,
            "id is missing",
        ),
        (r#"{"id":"t"}"#, "message is missing"),
        (
            r#"{"id":"t","message":{"role":"user","parts":[]}}"#,
            "message.parts is missing",
        ),
    ] {
        assert_eq!(refused(Dialect::V01, json).message, why);
    }
    let odd = r#"{"id":"t","message":{"messageId":"m","role":"user","parts":[{"text":"a"},{"type":"odd","text":"a"}]}}"#;
    for dialect in [Dialect::V03, Dialect::V03Rest, Dialect::V01] {
        assert!(
            refused(dialect, odd)
                .message
                .starts_with("message.parts[1] is of an unknown kind"),
            "{dialect:?}"
        );
    }
    // In 1.0 these members have no meaning.
    assert!(Dialect::V10.read_send(Some(&raw(odd))).is_ok());
    assert_eq!(
        Dialect::V10.read_send(None).unwrap_err().message,
        "message is missing"
    );
    assert_eq!(
        Dialect::V10.read_get(None).unwrap_err().message,
        "id is missing"
    );
    assert_eq!(
        Dialect::V03.read_push_get(None).unwrap_err().message,
        "id is missing"
    );
    assert_eq!(
        Dialect::V03
            .read_push_delete(Some(&raw(r#"{"id":"t"}"#)))
            .unwrap_err()
            .kind,
        ErrorKind::InvalidParams
    );
    let missing = refused(Dialect::V10, "{}");
    assert_eq!(
        missing.details[0].to_raw().get(),
        r#"{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message","description":"is missing"}]}"#
    );
}

/// Goal: each limit is exact. Method: at the limit, and one above.
#[test]
fn bounds() {
    let send = |change: &dyn Fn(&mut A2aMessage)| {
        let mut request = send();
        request.message.parts.truncate(1);
        change(&mut request.message);
        Dialect::V10
            .read_send(Some(&Dialect::V10.write_send(&request)))
            .map(drop)
    };
    let id = |bytes: usize| "i".repeat(bytes);
    for (max, change) in [
        (
            limits::PARTS_MAX,
            &(|m: &mut A2aMessage, n| m.parts = vec![Part::text(""); n])
                as &dyn Fn(&mut A2aMessage, usize),
        ),
        (limits::REFERENCES_MAX, &|m, n| {
            m.reference_task_ids = vec!["t".into(); n]
        }),
        (limits::EXTENSIONS_MAX, &|m, n| {
            m.extensions = vec!["e".into(); n]
        }),
        (limits::ID_BYTES_MAX, &|m, n| m.message_id = id(n)),
        (limits::ID_BYTES_MAX, &|m, n| m.task_id = id(n)),
        (limits::ID_BYTES_MAX, &|m, n| m.context_id = id(n)),
        (limits::ID_BYTES_MAX, &|m, n| {
            m.reference_task_ids = vec![id(n)]
        }),
    ] {
        assert!(send(&|message| change(message, max)).is_ok());
        let over = send(&|message| change(message, max + 1)).unwrap_err();
        assert_eq!(over.kind, ErrorKind::InvalidParams);
        assert!(over.message.len() < 200);
    }
    let page = |size: i32| {
        Dialect::V10
            .read_list(Some(&raw(&format!(r#"{{"pageSize":"{size}"}}"#))))
            .map(drop)
    };
    assert!(page(1).is_ok() && page(limits::PAGE_SIZE_MAX).is_ok());
    assert!(page(0).is_err() && page(limits::PAGE_SIZE_MAX + 1).is_err());
    let tenant = |bytes: usize| {
        Dialect::V10.read_cancel(Some(&of(object(&format!(
            r#"{{"id":"t","tenant":"{}"}}"#,
            id(bytes)
        )))))
    };
    assert!(tenant(limits::ID_BYTES_MAX).is_ok() && tenant(limits::ID_BYTES_MAX + 1).is_err());
}

/// Goal: strings of a query are accepted as parameters. Method: strings for every kind of value.
#[test]
fn strings_do() {
    let query = raw(
        r#"{"contextId":"c-1","status":"TASK_STATE_INPUT_REQUIRED","pageSize":"10","historyLength":"0","includeArtifacts":"false","statusTimestampAfter":"2026-07-28T10:30:00.250Z","pageToken":"p"}"#,
    );
    assert_eq!(
        Dialect::V10.read_list(Some(&query)).unwrap().to_json(),
        list_request().to_json()
    );
    let any = Dialect::V10
        .read_list(Some(&raw(r#"{"status":"TASK_STATE_UNSPECIFIED"}"#)))
        .unwrap();
    assert_eq!(any.status, None);
    for (json, field) in [
        (r#"{"status":"asleep"}"#, "status"),
        (r#"{"pageSize":"ten"}"#, "pageSize"),
        (r#"{"pageSize":1.5}"#, "pageSize"),
        (r#"{"pageSize":4294967297}"#, "pageSize"),
        (r#"{"historyLength":-1}"#, "historyLength"),
        (r#"{"includeArtifacts":"yes"}"#, "includeArtifacts"),
        (r#"{"statusTimestampAfter":"soon"}"#, "statusTimestampAfter"),
    ] {
        let error = Dialect::V10.read_list(Some(&raw(json))).unwrap_err();
        assert!(
            error.message.starts_with(field),
            "{json}: {}",
            error.message
        );
    }
}

/// Goal: blocking means the same in both versions. Method: all values of 0.3.
#[test]
fn blocking_is_told_apart() {
    let sent = |configuration: &str| {
        let json = format!(
            r#"{{"message":{{"messageId":"m","role":"user","parts":[{{"kind":"text","text":"a"}}]}}{configuration}}}"#
        );
        let request = Dialect::V03.read_send(Some(&raw(&json))).unwrap();
        request
            .configuration
            .is_some_and(|configuration| configuration.return_immediately)
    };
    assert!(!sent(""));
    assert!(!sent(r#","configuration":{}"#));
    assert!(!sent(r#","configuration":{"blocking":true}"#));
    assert!(sent(r#","configuration":{"blocking":false}"#));
}

/// Goal: cards of all versions are read with their interfaces and versions. Method: rows.
#[test]
fn cards_of_all_ages() {
    let interfaces = |json: &str| {
        let card = Dialect::read_card(&raw(json)).unwrap();
        let of =
            |i: &AgentInterface| format!("{} {} {}", i.url, i.protocol_binding, i.protocol_version);
        card.supported_interfaces.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(
        interfaces(
            r#"{"name":"a","url":"u","protocolVersion":"0.3.0","preferredTransport":"HTTP+JSON","additionalInterfaces":[{"url":"u","transport":"HTTP+JSON"},{"url":"v","transport":"JSONRPC"}]}"#
        ),
        ["u HTTP+JSON 0.3", "v JSONRPC 0.3"]
    );
    assert_eq!(
        interfaces(r#"{"url":"u","protocolVersion":"0.2.6"}"#),
        ["u JSONRPC 0.3"]
    );
    assert_eq!(
        interfaces(r#"{"url":"u","authentication":{"schemes":["Bearer"]}}"#),
        ["u JSONRPC 0.1"]
    );
    assert_eq!(
        interfaces(r#"{"url":"u","name":"a","skills":[]}"#),
        ["u JSONRPC 0.3", "u JSONRPC 0.1"]
    );
    assert_eq!(
        interfaces(
            r#"{"url":"u","protocolVersion":"0.3.0","supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"0.3"}]}"#
        ),
        ["u JSONRPC 1.0", "u JSONRPC 0.3"]
    );
    let card = Dialect::read_card(&raw(
        r#"{"url":"u","authentication":{"schemes":["Bearer"]},"capabilities":{"streaming":true},"skills":[{"id":"a","name":null,"tags":null}]}"#,
    ))
    .unwrap();
    assert!(
        matches!(card.security_schemes.get("bearer"), Some(SecurityScheme::HttpAuth(http)) if http.scheme == "Bearer")
    );
    assert_eq!(
        (card.capabilities.streaming, &*card.skills[0].id),
        (Some(true), "a")
    );
    let card = Dialect::read_card(&raw(
        r#"{"url":"u","supportsAuthenticatedExtendedCard":true,"security":[{"k":["a"]}],"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X"}}}"#,
    ))
    .unwrap();
    assert_eq!(card.capabilities.extended_agent_card, Some(true));
    assert_eq!(card.security_requirements[0].schemes["k"].list, ["a"]);
    assert!(
        matches!(&card.security_schemes["k"], SecurityScheme::ApiKey(key) if key.location == "header")
    );
}

/// Goal: an unknown state isn't the end. Method: one of the future, and 0.3's `unknown`.
#[test]
fn unknown_states_go_on() {
    for state in ["TASK_STATE_PAUSED", "unknown", "", "99"] {
        let json = format!(r#"{{"id":"t","status":{{"state":"{state}"}}}}"#);
        assert_eq!(
            A2aTask::from_raw(&raw(&json)).unwrap().status.state,
            TaskState::Working
        );
    }
}
