//! Which skill a message is for, and what it gives it.

use bytes::Bytes;
use callboard_message::surface::{Converse, ListTools};
use callboard_message::{Failure, Message as _, MessageSpec, Question, RawObject};
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::kit::{message, paused, request, serve, somebody};
use crate::ErrorKind;
use crate::inbound::calls::pick::pick;
use crate::inbound::calls::skills::{Skill, Skills};
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

fn of(all: Vec<Skill>) -> Skills {
    Skills {
        all,
        converses: false,
    }
}

fn data(value: Value) -> Part {
    Part::data(to_raw_value(&value).unwrap())
}

/// What is picked, in short; of an error its kind.
fn picked(
    skills: &Skills,
    parts: Vec<Part>,
    named: Option<&str>,
) -> Result<(String, Value), ErrorKind> {
    let mut request = request(message("m1", parts));
    request.metadata = named.map(|named| RawObject::of("skill", named));
    let picked = pick(skills, &request).map_err(|error| error.kind)?;
    Ok((
        picked.skill,
        serde_json::from_str(picked.arguments.get()).unwrap(),
    ))
}

/// Goal: a message is for the skill that it names, or that alone fits, and gives it what it says. Method: rows.
#[test]
fn rows() {
    let (desk, one) = (of(vec![echo(), add()]), of(vec![add()]));
    let sum = json!({ "a": 1, "b": 2 });
    let rows = [
        // Named, or the only one that takes a text.
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
        // An object of other members is a text like any.
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
        // The only one.
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
        // None.
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

/// Goal: a file goes where the skill takes one, and a media type that it doesn't take is refused. Method: rows.
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

/// Goal: an agent that converses gets the whole message, whatever it holds, unless it is for a skill. Method: a file, with a skill
/// that it has and one that it hasn't.
#[test]
fn conversations() {
    let talks = Skills {
        all: vec![echo()],
        converses: true,
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

/// Has a tool that it shows to those only who can be asked.
struct Shy;

impl Agent for Shy {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>();
    }
}

impl SyncHandler<ListTools> for Shy {
    fn handle(&mut self, _: ListTools, cx: &mut Cx) -> Result<RawObject, Failure> {
        let tools = cx
            .abilities()
            .can_answer(&Question::elicit("?", json!({})))
            .then(|| json!({ "name": "ask" }));
        Ok(RawObject::of(
            "tools",
            tools.into_iter().collect::<Vec<_>>(),
        ))
    }
}

/// Goal: what asks back is a skill too, where an agent shows it to those only who can be asked. Method: an agent that does so.
#[test]
fn tools_for_those_who_can_be_asked() {
    paused(async |system| {
        let calls = serve(&system.spawn(Shy));
        let skills = calls.skills(somebody("ann").call()).await.unwrap();
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
