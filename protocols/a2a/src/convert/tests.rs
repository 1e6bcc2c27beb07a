use bytes::Bytes;
use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Answer, Content, DIRECT_MESSAGE_META_KEY, Elicitation,
    ElicitationAction, Failure, FailureKind, Question, RawObject, ResourceContent, TaskState,
    ToolResult,
};
use callboard_runtime::TaskStep;
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{
    TaskCompletion, accepting_parts, accepts_parts, check_answer_files, content_to_parts,
    parse_answer, parse_direct_reply, parts_to_content, question_parts, task_completion,
};
use crate::ErrorKind;
use crate::wire::{A2aArtifact, A2aMessage, Part, PartContent, Role, WireType as _};

fn object(value: Value) -> RawObject {
    RawObject::parse(&to_raw_value(&value).unwrap()).unwrap()
}

fn value(object: &RawObject) -> Value {
    serde_json::from_str(object.to_raw().get()).unwrap()
}

fn word() -> impl Strategy<Value = String> {
    "[a-zé ]{0,8}"
}

fn media_type() -> impl Strategy<Value = String> {
    prop_oneof![
        "",
        "image/png",
        "audio/wav",
        "text/plain",
        "application/pdf"
    ]
    .prop_map(String::from)
}

fn metadata() -> impl Strategy<Value = Option<RawObject>> {
    proptest::option::of(word().prop_map(|word| object(json!({ "note": word }))))
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        word().prop_map(Part::text),
        proptest::collection::vec(any::<u8>(), 0..16).prop_map(|bytes| Part::raw(bytes, "")),
        word().prop_map(|name| Part::url(format!("https://a.example/{name}"), "")),
        prop_oneof![
            Just(json!({ "a": [1, null] })),
            Just(json!("text")),
            Just(json!(1.5)),
            Just(Value::Null)
        ]
        .prop_map(|value| Part::data(to_raw_value(&value).unwrap())),
    ];
    (content, metadata(), word(), media_type()).prop_map(
        |(part, metadata, filename, media_type)| Part {
            metadata,
            filename,
            media_type,
            ..part
        },
    )
}

/// Strategy for a block of any kind, with annotations and metadata.
fn block() -> impl Strategy<Value = Content> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..16);
    let made = prop_oneof![
        word().prop_map(Content::text),
        (bytes(), media_type()).prop_map(|(bytes, kind)| Content::image(&bytes, &kind)),
        (bytes(), media_type()).prop_map(|(bytes, kind)| Content::audio(&bytes, &kind)),
        (word(), media_type()).prop_map(|(text, kind)| Content::resource(ResourceContent::text(
            "file:///a",
            &kind,
            text
        ))),
        (bytes(), word())
            .prop_map(|(bytes, uri)| Content::resource(ResourceContent::blob(&uri, "a/b", &bytes))),
        (word(), word()).prop_map(|(uri, name)| Content::resource_link(&uri, &name)),
        word().prop_map(|word| Content(object(
            json!({ "type": "tool_use", "id": word, "input": {} })
        ))),
    ];
    let rest = prop_oneof![
        Just(json!({})),
        Just(json!({ "annotations": { "audience": ["user"] } })),
        Just(json!({ "_meta": { "x": 1 }, "title": "t" })),
    ];
    (made, rest).prop_map(|(Content(mut made), rest)| {
        for (name, value) in rest.as_object().unwrap() {
            made.set(name, value);
        }
        Content(made)
    })
}

proptest! {
    /// Goal: parts are restored from blocks unchanged. Method: any.
    #[test]
    fn parts_survive(parts in proptest::collection::vec(part(), 1..4)) {
        let back = content_to_parts(&parts_to_content(&parts));
        prop_assert!(back == parts, "{:?}", parts_to_content(&parts).iter().map(|c| value(&c.0)).collect::<Vec<_>>());
    }

    /// Goal: blocks are restored from parts unchanged. Method: any, with annotations and metadata
    /// of their own.
    #[test]
    fn blocks_survive(blocks in proptest::collection::vec(block(), 1..4)) {
        let back = parts_to_content(&content_to_parts(&blocks));
        let values = |blocks: &[Content]| blocks.iter().map(|block| value(&block.0)).collect::<Vec<_>>();
        prop_assert_eq!(values(&back), values(&blocks));
    }
}

/// Goal: each kind has the format that the other side's clients read. Method: rows, both ways.
#[test]
fn forms() {
    let png = Bytes::from_static(b"png");
    let rows = [
        (Part::text("hi"), json!({ "type": "text", "text": "hi" })),
        (
            Part::raw(png.clone(), "image/png"),
            json!({ "type": "image", "data": "cG5n", "mimeType": "image/png" }),
        ),
        (
            Part {
                filename: "a.pdf".into(),
                ..Part::url("https://a.example/a.pdf", "application/pdf")
            },
            json!({ "type": "resource_link", "uri": "https://a.example/a.pdf", "name": "a.pdf", "mimeType": "application/pdf" }),
        ),
        (
            Part::data(to_raw_value(&json!({ "a": 1 })).unwrap()),
            json!({ "type": "text", "text": "{\"a\":1}", "_meta": { "callboard/data": true } }),
        ),
        (
            Part {
                filename: "a b".into(),
                ..Part::raw(png, "application/x")
            },
            json!({
                "type": "resource",
                "resource": { "uri": "attachment:a%20b", "mimeType": "application/x", "blob": "cG5n" },
                "_meta": { "a2a/part": { "filename": "a b" } },
            }),
        ),
    ];
    for (part, block) in rows {
        assert_eq!(
            value(&parts_to_content(std::slice::from_ref(&part))[0].0),
            block
        );
        assert!(content_to_parts(&[Content(object(block))])[0] == part);
    }
}

/// Goal: invalid values are kept whole. Method: blocks with something missing or broken, and
/// metadata that names a block that the part can't be.
#[test]
fn broken_blocks_stay_whole() {
    for block in [
        json!({ "type": "image", "data": "not base64!", "mimeType": "image/png" }),
        json!({ "type": "image", "data": "cG5n" }),
        json!({ "type": "text" }),
        json!({ "type": "resource" }),
        json!({ "type": "resource", "resource": { "uri": "a:b", "text": "a", "blob": "YQ==" } }),
        json!({}),
        json!({ "type": "text", "text": "no JSON", "_meta": { "callboard/data": true } }),
    ] {
        let parts = content_to_parts(&[Content(object(block.clone()))]);
        assert_eq!(
            parts[0].media_type,
            "application/vnd.callboard.content+json"
        );
        assert_eq!(value(&parts_to_content(&parts)[0].0), block);
    }
    for claim in [
        json!({ "type": "image" }),
        json!({ "type": "resource", "resource": 1 }),
        json!("x"),
    ] {
        let part = Part {
            metadata: Some(object(json!({ "callboard/content": claim }))),
            ..Part::text("hi")
        };
        assert!(content_to_parts(&parts_to_content(std::slice::from_ref(&part)))[0] == part);
    }
}

fn says(parts: Vec<Part>) -> A2aMessage {
    A2aMessage {
        message_id: "m7".into(),
        role: Role::User,
        parts,
        ..A2aMessage::default()
    }
}

/// Returns the answer to a form in short form.
fn fits(question: &Question, parts: Vec<Part>) -> Result<(ElicitationAction, Value), Vec<String>> {
    let Answer::Elicit(answer) = parse_answer(question, &says(parts))? else {
        panic!("another answer")
    };
    Ok((
        answer.action(),
        answer.0.read("content").unwrap_or(Value::Null),
    ))
}

/// Goal: a message is read as its question requires, and an unsuitable one is reported with the
/// missing fields. Method: rows of a form's field, a message, and the expected answer.
#[test]
fn answers_to_forms() {
    use ElicitationAction::{Accept, Cancel, Decline};
    let form = |properties: Value, required: Value| {
        Question::elicit(
            "?",
            json!({ "type": "object", "properties": properties, "required": required }),
        )
    };
    let one = |schema: Value| form(json!({ "x": schema }), json!(["x"]));
    let text = |text: &str| vec![Part::text(text)];
    let data = |value: Value| vec![Part::data(to_raw_value(&value).unwrap())];
    let needs = |names: &[&str]| Err(names.iter().map(|name| (*name).to_owned()).collect());
    let string = json!({ "type": "string" });
    let rows = [
        (
            one(string.clone()),
            text("Ann"),
            Ok((Accept, json!({ "x": "Ann" }))),
        ),
        (
            one(json!({ "type": "integer" })),
            text(" 7 "),
            Ok((Accept, json!({ "x": 7 }))),
        ),
        (
            one(json!({ "type": "integer" })),
            text("seven"),
            needs(&["x"]),
        ),
        (
            one(json!({ "type": "number" })),
            text("1.5"),
            Ok((Accept, json!({ "x": 1.5 }))),
        ),
        (one(json!({ "type": "number" })), text("inf"), needs(&["x"])),
        (
            one(json!({ "type": "boolean" })),
            text("Yes"),
            Ok((Accept, json!({ "x": true }))),
        ),
        (
            one(json!({ "type": "boolean" })),
            text("Yes, go ahead"),
            Ok((Accept, json!({ "x": true }))),
        ),
        (
            one(json!({ "type": "boolean" })),
            text("não"),
            Ok((Accept, json!({ "x": false }))),
        ),
        (
            one(json!({ "type": "boolean" })),
            text("maybe"),
            needs(&["x"]),
        ),
        (
            one(json!({ "type": "string", "enum": ["a", "b"] })),
            text("B"),
            Ok((Accept, json!({ "x": "b" }))),
        ),
        (
            one(json!({ "type": "string", "enum": ["a"], "enumNames": ["Anna"] })),
            text("anna"),
            Ok((Accept, json!({ "x": "a" }))),
        ),
        (
            one(json!({ "type": "string", "oneOf": [{ "const": "a", "title": "Anna" }] })),
            text("Anna"),
            Ok((Accept, json!({ "x": "a" }))),
        ),
        (
            one(json!({ "type": "string", "enum": ["a", "b"] })),
            text("c"),
            needs(&["x"]),
        ),
        (
            one(string.clone()),
            text("DECLINE"),
            Ok((Decline, Value::Null)),
        ),
        (
            one(string.clone()),
            text("cancel"),
            Ok((Cancel, Value::Null)),
        ),
        (
            one(string.clone()),
            text("I decline"),
            Ok((Accept, json!({ "x": "I decline" }))),
        ),
        (
            one(string.clone()),
            data(json!({ "action": "decline" })),
            Ok((Decline, Value::Null)),
        ),
        (
            one(string.clone()),
            data(json!({ "action": "accept", "content": { "x": "a" } })),
            Ok((Accept, json!({ "x": "a" }))),
        ),
        (
            one(string.clone()),
            data(json!({ "x": "a" })),
            Ok((Accept, json!({ "x": "a" }))),
        ),
        (
            one(string.clone()),
            data(json!({ "y": "a" })),
            needs(&["x"]),
        ),
        (
            one(string.clone()),
            text(r#"{"x":"a"}"#),
            Ok((Accept, json!({ "x": "a" }))),
        ),
        (
            one(string.clone()),
            text(r#"{"y":"a"}"#),
            Ok((Accept, json!({ "x": r#"{"y":"a"}"# }))),
        ),
        (one(string.clone()), text(""), needs(&["x"])),
        (
            form(json!({ "a": string, "b": string }), json!(["a", "b"])),
            text("x"),
            needs(&["a", "b"]),
        ),
        (
            form(json!({ "a": string, "b": string }), json!(["b"])),
            text("x"),
            Ok((Accept, json!({ "b": "x" }))),
        ),
        (
            form(json!({}), json!([])),
            text("go on"),
            Ok((Accept, json!({ "text": "go on" }))),
        ),
        (
            form(json!({}), json!([])),
            text(""),
            Ok((Accept, Value::Null)),
        ),
    ];
    for (nth, (question, parts, wanted)) in rows.into_iter().enumerate() {
        assert_eq!(fits(&question, parts), wanted, "row {nth}");
    }
    let visit = Question::Elicit(Elicitation::url("Sign in", "https://id.example", "v1"));
    assert_eq!(fits(&visit, text("done")), Ok((Accept, Value::Null)));
    assert_eq!(fits(&visit, text("decline")), Ok((Decline, Value::Null)));
}

/// Goal: questions for models and folders can be answered too, and every answer contains its
/// message. Method: one each.
#[test]
fn other_answers() {
    let Ok(Answer::Sample(sample)) =
        parse_answer(&Question::sample("?", 9), &says(vec![Part::text("hm")]))
    else {
        panic!("no sample")
    };
    assert_eq!(sample.written_text().as_deref(), Some("hm"));
    let said = sample
        .0
        .object("_meta")
        .unwrap()
        .object(SOURCE_MESSAGE_META_KEY)
        .unwrap();
    assert_eq!(
        value(&said),
        json!({ "key": "m7", "content": [{ "type": "text", "text": "hm" }] })
    );
    let roots = Part::data(to_raw_value(&json!({ "roots": [{ "uri": "file:///a" }] })).unwrap());
    let Ok(Answer::Roots(roots)) = parse_answer(&Question::roots(), &says(vec![roots])) else {
        panic!("no roots")
    };
    assert_eq!(roots.roots().len(), 1);
    assert!(parse_answer(&Question::roots(), &says(vec![Part::text("/a")])).is_err());
}

/// Goal: a program can read the original question from the message. Method: read back.
#[test]
fn questions_travel_whole() {
    let question = Question::elicit("Which name?", json!({ "type": "object", "properties": {} }));
    let parts = question_parts("q1", &question);
    assert_eq!(parts[0].as_text(), Some("Which name?"));
    let told: Value = serde_json::from_str(parts[1].as_data().unwrap().get()).unwrap();
    assert_eq!(told["question"]["key"], "q1");
    let whole = RawObject::parse(parts[1].as_data().unwrap())
        .unwrap()
        .object("question")
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Question>(whole.to_raw().get()).unwrap(),
        question
    );
}

fn raw(value: Value) -> Box<RawValue> {
    to_raw_value(&value).unwrap()
}

/// Returns the end of a task in short form: the parts of its artifact, and its state.
fn became(
    reply: Result<Value, Failure>,
    is_result: bool,
    has_all: bool,
) -> (Vec<String>, &'static str) {
    let TaskCompletion { artifact, step } =
        task_completion(reply.map(raw), "skill", is_result, has_all);
    let told = |part: &Part| match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Data(data) => format!("data {}", data.get()),
        PartContent::Raw(_) | PartContent::Url(_) => "file".into(),
    };
    let artifact = artifact.map(|artifact| A2aArtifact::from_raw(&artifact).unwrap());
    (
        artifact
            .iter()
            .flat_map(|artifact| artifact.parts.iter().map(told))
            .collect(),
        step.name(),
    )
}

/// Goal: a reply becomes an artifact and a final state, once each. Method: rows of replies.
#[test]
fn replies() {
    let result = |result: ToolResult| Ok(value(&result.0));
    let marked = |mark: &str| {
        result(ToolResult(
            ToolResult::text("hi")
                .0
                .with("_meta", json!({ mark: true })),
        ))
    };
    let failed_as = |state: &str| {
        result(ToolResult::error("why").with_structured_content(json!({ "state": state })))
    };
    let texts = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let failure = |kind| Err(Failure::new(kind, "why"));
    for (nth, (reply, is_result, has_all, parts, end)) in [
        (Ok(json!("hi")), false, false, texts(&["hi"]), "completed"),
        (
            Ok(json!({ "a": 1 })),
            false,
            false,
            texts(&["data {\"a\":1}"]),
            "completed",
        ),
        (Ok(json!(7)), false, false, texts(&["data 7"]), "completed"),
        (Ok(Value::Null), false, false, texts(&[]), "completed"),
        (
            result(ToolResult::text("hi")),
            true,
            false,
            texts(&["hi"]),
            "completed",
        ),
        (
            result(ToolResult::from_content([])),
            true,
            false,
            texts(&[]),
            "completed",
        ),
        (
            result(ToolResult::text("hi").with_structured_content(json!({ "a": 1 }))),
            true,
            false,
            texts(&["hi", "data {\"a\":1}"]),
            "completed",
        ),
        // The text that repeats the value is omitted.
        (
            result(ToolResult::text("{\"a\": 1}").with_structured_content(json!({ "a": 1 }))),
            true,
            false,
            texts(&["data {\"a\":1}"]),
            "completed",
        ),
        (
            marked(ARTIFACTS_SENT_META_KEY),
            true,
            true,
            texts(&[]),
            "completed",
        ),
        // An artifact wasn't stored, so the reply's content is used.
        (
            marked(ARTIFACTS_SENT_META_KEY),
            true,
            false,
            texts(&["hi"]),
            "completed",
        ),
        (
            marked(DIRECT_MESSAGE_META_KEY),
            true,
            false,
            texts(&[]),
            "completed",
        ),
        (
            result(ToolResult::error("why")),
            true,
            false,
            texts(&[]),
            "failed",
        ),
        (
            failed_as("TASK_STATE_REJECTED"),
            true,
            false,
            texts(&[]),
            "rejected",
        ),
        (failed_as("canceled"), true, false, texts(&[]), "cancelled"),
        (failed_as("failed"), true, false, texts(&[]), "failed"),
        (
            failure(FailureKind::Rejected),
            true,
            false,
            texts(&[]),
            "rejected",
        ),
        (
            failure(FailureKind::Cancelled),
            true,
            false,
            texts(&[]),
            "cancelled",
        ),
        (
            failure(FailureKind::TimedOut),
            true,
            false,
            texts(&[]),
            "failed",
        ),
        (Ok(json!([1])), true, false, texts(&["[1]"]), "completed"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(became(reply, is_result, has_all), (parts, end), "row {nth}");
    }
    let said = raw(json!({ "content": [], "_meta": { DIRECT_MESSAGE_META_KEY: true } }));
    assert!(parse_direct_reply(&said).is_some());
    let quoted = raw(json!({ "content": [{ "type": "text", "text": DIRECT_MESSAGE_META_KEY }] }));
    assert!(parse_direct_reply(&quoted).is_none());
    let TaskCompletion {
        step: TaskStep::Failed(why),
        ..
    } = task_completion(failed_as("failed").map(raw), "s", true, false)
    else {
        panic!()
    };
    assert_eq!(
        (&*why.message, TaskState::Failed.as_str()),
        ("why", "failed")
    );
}

/// Goal: a file fills the form's field for one, beside the text or values for the other fields, and
/// a file without a field is refused. Method: rows of a form, a message, and the answer; one file
/// more than fields; questions that have no fields.
#[test]
fn files_in_answers() {
    let file = json!({ "type": "string", "contentEncoding": "base64" });
    let string = json!({ "type": "string" });
    let form = Question::elicit(
        "?",
        json!({ "type": "object", "properties": { "scan": file, "note": string }, "required": ["scan"] }),
    );
    let png = || Part::raw("png", "image/png");
    let data = |value: Value| Part::data(to_raw_value(&value).unwrap());
    for (parts, content) in [
        (vec![png()], json!({ "scan": "cG5n" })),
        (
            vec![Part::text("mine"), png()],
            json!({ "note": "mine", "scan": "cG5n" }),
        ),
        (
            vec![
                data(json!({ "note": "x" })),
                Part::url("https://x.example/y", ""),
            ],
            json!({ "note": "x", "scan": "https://x.example/y" }),
        ),
    ] {
        assert!(check_answer_files(&form, &says(parts.clone())).is_ok());
        let wanted = Ok((ElicitationAction::Accept, content));
        assert_eq!(fits(&form, parts), wanted);
    }
    let text = Question::elicit("?", json!({ "properties": { "text": string } }));
    let twice = || says(vec![png(), png()]);
    let given = says(vec![data(json!({ "scan": "cG5n" })), png()]);
    for (question, message) in [
        (&form, twice()),
        (&form, given),
        (&text, says(vec![Part::text("hi"), png()])),
        (&Question::sample("?", 9), says(vec![png()])),
        (&Question::roots(), says(vec![png()])),
    ] {
        let refused = check_answer_files(question, &message).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::ContentTypeNotSupported);
        assert!(check_answer_files(question, &says(vec![Part::text("hi")])).is_ok());
    }
}

/// Goal: any message answers a question whose asker reads the message itself, unless it is blank or
/// refuses. Method: rows.
#[test]
fn answers_of_parts() {
    let form = Elicitation::form(
        "?",
        json!({ "properties": { "text": { "type": "string" } }, "required": ["text"] }),
    );
    let question = Question::Elicit(accepting_parts(form));
    assert!(accepts_parts(&question));
    let value = Part::data(to_raw_value(&json!([1])).unwrap());
    let file = Part::raw("x", "image/png");
    let accepted = |text: &str| Ok((ElicitationAction::Accept, json!({ "text": text })));
    for (parts, wanted) in [
        (vec![Part::text("Monday")], accepted("Monday")),
        (vec![value], accepted("")),
        (vec![file.clone()], accepted("")),
        (
            vec![Part::text("decline"), file.clone()],
            accepted("decline"),
        ),
        (
            vec![Part::text("Decline")],
            Ok((ElicitationAction::Decline, Value::Null)),
        ),
        (vec![Part::text(" ")], Err(vec!["text".to_owned()])),
    ] {
        assert_eq!(fits(&question, parts), wanted);
    }
    assert!(check_answer_files(&question, &says(vec![file])).is_ok());
}
