//! Selection of a message's skill and arguments.

use bytes::Bytes;
use callboard_message::capabilities::{Converse, ListTools};
use callboard_message::{Failure, Message as _, MessageSpec, Question, RawObject};
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::kit::{message, paused, request, serve, somebody};
use crate::ErrorKind;
use crate::inbound::calls::skill_selection::select_skill;
use crate::inbound::calls::skills::{Skill, SkillSet};
use crate::wire::Part;

fn skill(name: &str, schema: Value) -> Skill {
    let spec = MessageSpec {
        name: name.into(),
        description: String::new(),
        input_schema: schema,
        output_schema: None,
        more: RawObject::new(),
    };
    Skill::new(spec)
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn echo() -> Skill {
    skill(
        "echo",
        json!({ "type": "object", "properties": { "text": text() }, "required": ["text"] }),
    )
}

fn add() -> Skill {
    let number = json!({ "type": "integer" });
    let properties = json!({ "a": number, "b": number });
    skill(
        "add",
        json!({ "type": "object", "properties": properties, "required": ["a", "b"] }),
    )
}

fn scan() -> Skill {
    let file = json!({ "type": "string", "contentEncoding": "base64" });
    skill(
        "scan",
        json!({ "type": "object", "properties": { "file": file, "note": text() }, "required": ["file"] }),
    )
}

fn of(all: Vec<Skill>) -> SkillSet {
    SkillSet {
        all,
        accepts_messages: false,
        withheld: Vec::new(),
        need_approval: false,
    }
}

fn data(value: Value) -> Part {
    Part::data(to_raw_value(&value).unwrap())
}

/// Returns the selected skill and arguments in short form, or the kind of the error.
fn picked(
    skills: &SkillSet,
    parts: Vec<Part>,
    named: Option<&str>,
) -> Result<(String, Value), ErrorKind> {
    let mut request = request(message("m1", parts));
    request.metadata = named.map(|named| RawObject::single("skill", named));
    let picked = select_skill(skills, &request).map_err(|error| error.kind)?;
    Ok((
        picked.skill,
        serde_json::from_str(picked.arguments.get()).unwrap(),
    ))
}

/// Goal: a message selects the skill that it names, or the only one that fits, with its content as
/// arguments. Method: rows.
#[test]
fn rows() {
    let (desk, one) = (of(vec![echo(), add()]), of(vec![add()]));
    let sum = json!({ "a": 1, "b": 2 });
    let rows = [
        // The named skill, or the only one that takes a text.
        (
            &desk,
            vec![Part::text("hi")],
            Some("echo"),
            Ok(("echo", json!({ "text": "hi" }))),
        ),
        (
            &desk,
            vec![Part::text("hi")],
            None,
            Ok(("echo", json!({ "text": "hi" }))),
        ),
        (
            &desk,
            vec![Part::text("a"), Part::text("b")],
            None,
            Ok(("echo", json!({ "text": "a\nb" }))),
        ),
        (
            &desk,
            vec![data(sum.clone())],
            Some("add"),
            Ok(("add", sum.clone())),
        ),
        (
            &desk,
            vec![Part::text(r#"{"a":1,"b":2}"#)],
            Some("add"),
            Ok(("add", sum.clone())),
        ),
        // An object with unknown members counts as text.
        (
            &desk,
            vec![Part::text(r#"{"x":1}"#)],
            None,
            Ok(("echo", json!({ "text": r#"{"x":1}"# }))),
        ),
        // A call in a data part.
        (
            &desk,
            vec![data(json!({ "skill": "add", "arguments": sum }))],
            None,
            Ok(("add", sum.clone())),
        ),
        (
            &desk,
            vec![data(json!({ "name": "add", "args": sum }))],
            None,
            Ok(("add", sum.clone())),
        ),
        (
            &desk,
            vec![data(json!({ "tool": "add", "input": sum }))],
            None,
            Ok(("add", sum.clone())),
        ),
        // The only skill.
        (
            &one,
            vec![data(sum.clone())],
            None,
            Ok(("add", sum.clone())),
        ),
        (
            &one,
            vec![data(json!({ "a": 1 }))],
            None,
            Err(ErrorKind::InvalidParams),
        ),
        (
            &one,
            vec![Part::text("one and two")],
            None,
            Err(ErrorKind::InvalidParams),
        ),
        (
            &one,
            vec![data(sum.clone()), data(sum.clone())],
            None,
            Err(ErrorKind::InvalidParams),
        ),
        (
            &one,
            vec![data(json!([1, 2]))],
            None,
            Err(ErrorKind::InvalidParams),
        ),
        // No skill fits.
        (
            &desk,
            vec![Part::text("hi")],
            Some("sing"),
            Err(ErrorKind::InvalidParams),
        ),
        (
            &desk,
            vec![Part::raw(Bytes::from_static(b"x"), "image/png")],
            None,
            Err(ErrorKind::ContentTypeNotSupported),
        ),
    ];
    for (nth, (skills, parts, named, wanted)) in rows.into_iter().enumerate() {
        let wanted = wanted.map(|(skill, arguments)| (skill.to_owned(), arguments));
        assert_eq!(picked(skills, parts, named), wanted, "row {nth}");
    }
    let ambiguous = of(vec![echo(), skill("say", echo().spec.input_schema)]);
    assert_eq!(
        picked(&ambiguous, vec![Part::text("hi")], None),
        Err(ErrorKind::InvalidParams)
    );
}

/// Goal: a file goes to the argument for files, and an unsupported media type is rejected. Method:
/// rows.
#[test]
fn files() {
    let scan = of(vec![scan()]);
    let png = || Part::raw(Bytes::from_static(b"png"), "image/png");
    assert_eq!(
        picked(&scan, vec![png(), Part::text("left hand")], None),
        Ok((
            "scan".into(),
            json!({ "file": "cG5n", "note": "left hand" })
        ))
    );
    assert_eq!(
        picked(&scan, vec![png(), png()], None),
        Err(ErrorKind::InvalidParams)
    );
    assert_eq!(
        picked(&scan, vec![Part::text("left hand")], None),
        Err(ErrorKind::InvalidParams)
    );
    let html = Part {
        media_type: "text/html".into(),
        ..Part::text("<p>")
    };
    assert_eq!(
        picked(&of(vec![echo()]), vec![html], None),
        Err(ErrorKind::ContentTypeNotSupported)
    );
    let utf8 = Part {
        media_type: "text/plain; charset=utf-8".into(),
        ..Part::text("hi")
    };
    assert!(picked(&of(vec![echo()]), vec![utf8], None).is_ok());
}

/// Goal: a skill that the rules keep back isn't reached as a conversation, nor behind another name. Method: an
/// agent that converses, with one skill of two; each of both, and both at once.
#[test]
fn skills_that_are_kept_back() {
    let restricted = SkillSet {
        all: vec![echo()],
        accepts_messages: true,
        withheld: vec!["wipe".to_owned()],
        need_approval: false,
    };
    let picked = |metadata: Value| {
        let mut request = request(message("m1", vec![Part::text("x")]));
        request.metadata = RawObject::parse(&to_raw_value(&metadata).unwrap()).ok();
        let picked = select_skill(&restricted, &request);
        picked
            .map(|picked| picked.skill)
            .map_err(|error| error.kind)
    };
    assert_eq!(picked(json!({ "skill": "echo" })), Ok("echo".to_owned()));
    let converse = "callboard.converse".to_owned();
    assert_eq!(picked(json!({})), Ok(converse));
    let named = Part::data(to_raw_value(&json!({ "skill": "wipe", "arguments": {} })).unwrap());
    let request = request(message("m1", vec![named]));
    let refused = select_skill(&restricted, &request).map(|picked| picked.skill);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidParams);
    for metadata in [
        json!({ "skill": "wipe" }),
        json!({ "skill": "echo", "skillId": "wipe" }),
        json!({ "skillId": "wipe" }),
    ] {
        let refused = picked(metadata.clone());
        assert_eq!(refused, Err(ErrorKind::InvalidParams), "{metadata}");
    }
}

/// Goal: while skills need approvals, a conversation can't hide a call of one. Method: parts and metadata that name a
/// skill, by another name too, beside a text; the same without such rules, and parts that only look like calls.
#[test]
fn conversations_that_hide_calls() {
    let data = |data: Value| Part::data(to_raw_value(&data).unwrap());
    for (part, metadata, is_hidden) in [
        (json!({ "skill": "pay", "arguments": {} }), json!({}), true),
        (json!({ "skillId": "pay now", "args": {} }), json!({}), true),
        (json!({ "skill": "welding" }), json!({}), false),
        (json!({ "name": "pay now", "input": {} }), json!({}), true),
        (json!({ "name": "Bob" }), json!({}), false),
        (json!({ "arguments": {} }), json!({}), false),
        (json!({ "a": 1 }), json!({ "skillId": "pay" }), true),
    ] {
        for need_approval in [true, false] {
            let talks = SkillSet {
                all: vec![echo()],
                accepts_messages: true,
                withheld: Vec::new(),
                need_approval,
            };
            let parts = vec![Part::text("x"), data(part.clone())];
            let mut request = request(message("m1", parts));
            request.metadata = RawObject::parse(&to_raw_value(&metadata).unwrap()).ok();
            let selected = select_skill(&talks, &request);
            assert_eq!(
                selected.is_err(),
                is_hidden && need_approval,
                "{part} {metadata}"
            );
        }
    }
}

/// Goal: an agent that converses gets the whole message, unless it is for a skill. Method: a file,
/// with a skill that it has and one that it doesn't have.
#[test]
fn conversations() {
    let talks = SkillSet {
        all: vec![echo()],
        accepts_messages: true,
        withheld: Vec::new(),
        need_approval: false,
    };
    let html = || {
        vec![Part {
            media_type: "text/html".into(),
            ..Part::text("<p>")
        }]
    };
    let (skill, body) = picked(&talks, html(), None).unwrap();
    assert_eq!(skill, Converse::NAME);
    assert_eq!(
        (&body["key"], &body["content"][0]["text"]),
        (&json!("m1"), &json!("<p>"))
    );
    assert_eq!(
        picked(&talks, html(), Some("sing")).unwrap().1["skill"],
        "sing"
    );
    assert_eq!(
        picked(&talks, vec![Part::text("hi")], Some("echo"))
            .unwrap()
            .0,
        "echo"
    );
}

/// Agent with a tool that it lists only for callers that can answer questions.
struct Shy;

impl Agent for Shy {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>();
    }
}

impl SyncHandler<ListTools> for Shy {
    fn handle(&mut self, _: ListTools, cx: &mut Context) -> Result<RawObject, Failure> {
        let tools = cx
            .caller_capabilities()
            .can_answer(&Question::elicit("?", json!({})))
            .then(|| json!({ "name": "ask" }));
        Ok(RawObject::single(
            "tools",
            tools.into_iter().collect::<Vec<_>>(),
        ))
    }
}

/// Goal: a tool listed only for callers that can answer questions is a skill too. Method: an agent
/// with such a tool.
#[test]
fn tools_for_those_who_can_be_asked() {
    paused(async |system| {
        let calls = serve(&system.spawn(Shy));
        let skills = calls
            .visible_skills(somebody("ann").call_context())
            .await
            .unwrap();
        assert_eq!(
            skills
                .all
                .iter()
                .map(|skill| &*skill.spec.name)
                .collect::<Vec<_>>(),
            ["ask"]
        );
    });
}
