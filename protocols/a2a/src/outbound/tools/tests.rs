use super::*;
use crate::wire::{AgentCapabilities, AgentExtension, PartContent};

fn skill(id: &str) -> AgentSkill {
    AgentSkill {
        id: id.into(),
        name: "Name".into(),
        description: "Does".into(),
        ..AgentSkill::default()
    }
}

fn raw(value: Value) -> Box<RawValue> {
    to_raw_value(&value).unwrap()
}

fn said(card: &AgentCard, tool: &str, arguments: Value) -> Result<A2aMessage, Failure> {
    let book = SkillTools::from_card(card);
    let meta = RawObject::single("a2a", json!({ "contextId": "c" }));
    book.conversation_request(book.get(tool).unwrap(), &raw(arguments), &meta)
        .map(|opening| opening.message)
}

/// Goal: every skill is a tool with a unique name that clients accept. Method: unsuitable ids, and
/// the same twice.
#[test]
fn skills_have_names() {
    let ids = ["plain", "with space/é", "with space/é", "callboard.x", ""];
    let book = SkillTools::from_card(&AgentCard {
        skills: ids.map(skill).to_vec(),
        ..AgentCard::default()
    });
    let names: Vec<&str> = book.skills.iter().map(|skill| &*skill.tool).collect();
    assert_eq!(
        names,
        [
            "plain",
            "with_space__",
            "with_space__-2",
            "callboard_x",
            "message"
        ]
    );
    let tools: Vec<RawObject> = book.page.read("tools").unwrap();
    assert_eq!(tools[0].text("title").unwrap(), "Name");
    assert!(tools[0].object("inputSchema").unwrap().has("anyOf"));
    let long = SkillTools::from_card(&AgentCard {
        skills: vec![skill(&"x".repeat(500)); 2],
        ..AgentCard::default()
    });
    assert!(
        long.skills
            .iter()
            .all(|skill| skill.tool.len() <= TOOL_NAME_BYTES_MAX)
    );
    let disguised = AgentCard {
        skills: ["add", "\u{430}dd"].map(skill).to_vec(),
        ..AgentCard::default()
    };
    assert_eq!(
        SkillTools::from_card(&disguised).skills.len(),
        1,
        "one that looks like the other"
    );
    let many = AgentCard {
        skills: vec![skill("x"); SKILLS_MAX + 1],
        ..AgentCard::default()
    };
    assert_eq!(SkillTools::from_card(&many).skills.len(), SKILLS_MAX);
}

/// Goal: a tool contains all metadata of its skill. Method: a skill that has everything, then one
/// with the card's defaults.
#[test]
fn skills_keep_their_traits() {
    let needs = |name: &str| crate::wire::SecurityRequirement {
        schemes: [(name.to_owned(), Default::default())].into(),
    };
    let words = |word: &str| vec![word.to_owned()];
    let wipe = AgentSkill {
        tags: vec!["disk".into(), "Destructive".into()],
        examples: words("wipe it"),
        input_modes: words("text/plain"),
        output_modes: words("image/png"),
        security_requirements: vec![needs("own")],
        ..skill("wipe")
    };
    let card = AgentCard {
        skills: vec![wipe, skill("look")],
        default_input_modes: words("text/csv"),
        default_output_modes: words("text/html"),
        security_requirements: vec![needs("all")],
        ..AgentCard::default()
    };
    let [wipe, look] = &skill_tools(&card)[..] else {
        panic!("two skills")
    };
    let list = |tool: &RawObject, member: &str| tool.read::<Value>(member).unwrap_or_default();
    assert_eq!(list(wipe, "tags"), json!(["disk", "Destructive"]));
    assert_eq!(list(wipe, "examples"), json!(["wipe it"]));
    assert_eq!(
        (list(wipe, "inputModes"), list(wipe, "outputModes")),
        (json!(["text/plain"]), json!(["image/png"]))
    );
    let both = json!([{ "schemes": { "all": {} } }, { "schemes": { "own": {} } }]);
    assert_eq!(list(wipe, "securityRequirements"), both);
    assert_eq!(
        list(wipe, "annotations"),
        json!({ "readOnlyHint": false, "destructiveHint": true })
    );
    assert_eq!(
        (list(look, "inputModes"), list(look, "outputModes")),
        (json!(["text/csv"]), json!(["text/html"]))
    );
    assert_eq!(
        list(look, "securityRequirements"),
        json!([{ "schemes": { "all": {} } }])
    );
    assert!(
        ["tags", "examples", "annotations"]
            .iter()
            .all(|member| !look.has(member))
    );
    assert!(skill_tools(&AgentCard::default()).is_empty());
}

/// Goal: an agent that may destroy something is marked, even if the skill with the tag is omitted.
/// Method: one with a confusable id beside an honest skill, and alone; one more than become tools;
/// the same skills without the tag.
#[test]
fn destructive_skills_left_out_are_known() {
    let tagged = |id: &str, tag: &str| AgentSkill {
        tags: vec![tag.into()],
        ..skill(id)
    };
    let tools = |skills: Vec<AgentSkill>| {
        skill_tools(&AgentCard {
            skills,
            ..AgentCard::default()
        })
    };
    let marked = |tools: &[RawObject]| {
        let tags = |tool: &RawObject| tool.read::<Vec<String>>("tags").unwrap_or_default();
        let is_marked = |tool: &&RawObject| {
            let hints = tool.object("annotations").unwrap_or_default();
            tags(tool).contains(&TAG_DESTRUCTIVE.to_owned())
                && hints.read("destructiveHint") == Some(true)
        };
        tools.iter().filter(is_marked).count()
    };
    for (tag, count) in [(TAG_DESTRUCTIVE, 1), ("tame", 0)] {
        let beside = tools(vec![skill("add"), tagged("\u{430}dd", tag)]);
        assert_eq!((beside.len(), marked(&beside)), (1, count), "{tag}");
        let alone = tools(vec![tagged("\u{430}dd", tag)]);
        assert_eq!(
            (alone[0].text("name").as_deref(), marked(&alone)),
            (Some(MESSAGE_TOOL), count),
            "{tag}"
        );
        let mut many = vec![skill("x"); SKILLS_MAX];
        many.push(tagged("y", tag));
        assert_eq!(marked(&tools(many)), count, "{tag}");
    }
}

/// Goal: an agent without skills can be sent messages. Method: its one tool, each kind of argument,
/// and none.
#[test]
fn plain_arguments_are_parts() {
    let card = AgentCard::default();
    let files = json!([{ "name": "a.txt", "mimeType": "text/plain", "bytes": "aGk=" }, { "uri": "https://x.example/b" }]);
    let message = said(
        &card,
        "message",
        json!({ "text": "hi", "data": { "n": 1 }, "files": files }),
    )
    .unwrap();
    assert_eq!(message.parts.len(), 4);
    assert!(matches!(&message.parts[2].content, PartContent::Raw(bytes) if &bytes[..] == b"hi"));
    assert_eq!(
        (
            message.parts[2].filename.as_str(),
            message.parts[2].media_type.as_str()
        ),
        ("a.txt", "text/plain")
    );
    assert!(
        matches!(&message.parts[3].content, PartContent::Url(url) if url == "https://x.example/b")
    );
    assert_eq!((message.context_id.as_str(), message.metadata), ("c", None));
    assert!(said(&card, "message", json!({ "contextId": "d" })).is_err());
    assert!(
        said(
            &card,
            "message",
            json!({ "text": "a", "files": [{ "name": "x" }] })
        )
        .is_err()
    );
}

/// Goal: typed arguments are sent as a value, or as text to a skill that accepts no values; the
/// skill is named. Method: a skill with a schema, one without, one that takes text only.
#[test]
fn typed_arguments_are_values() {
    let params = RawObject::single(
        "add",
        json!({ "input": { "type": "object" }, "output": { "type": "string" } }),
    );
    let schemas = AgentExtension {
        uri: SCHEMAS_EXTENSION.into(),
        params: Some(params),
        ..AgentExtension::default()
    };
    let capabilities = AgentCapabilities {
        extensions: vec![schemas],
        ..AgentCapabilities::default()
    };
    let text_only = AgentSkill {
        input_modes: vec!["text/plain".into()],
        ..skill("say")
    };
    let card = AgentCard {
        capabilities,
        skills: vec![skill("add"), skill("any"), text_only],
        ..AgentCard::default()
    };
    let add = said(&card, "add", json!({ "text": "a" })).unwrap();
    assert_eq!(
        add.parts[0].as_data().unwrap().get(),
        r#"{"text":"a"}"#,
        "its own schema"
    );
    assert_eq!(add.metadata.unwrap().text("skill").unwrap(), "add");
    assert!(
        SkillTools::from_card(&card)
            .get("add")
            .unwrap()
            .answers_text
    );
    assert!(
        said(&card, "any", json!({ "x": 1 })).unwrap().parts[0]
            .as_data()
            .is_some()
    );
    assert_eq!(
        said(&card, "say", json!({ "words": "hello" }))
            .unwrap()
            .parts[0]
            .as_text(),
        Some("hello")
    );
    assert_eq!(
        said(&card, "say", json!({ "a": "b", "c": 1 }))
            .unwrap()
            .parts[0]
            .as_text(),
        Some(r#"{"a":"b","c":1}"#)
    );
}

/// Goal: a value of any JSON type can be sent to an agent without schemas, and a list of files that
/// can't be read isn't dropped. Method: each type; `null` alone and beside a text; files of another
/// type.
#[test]
fn values_of_any_type_are_sent() {
    let card = AgentCard::default();
    for value in [json!([1]), json!(7), json!("x"), json!(true), json!(null)] {
        let message = said(&card, "message", json!({ "data": value })).unwrap();
        let data: Vec<_> = message.parts.iter().filter_map(Part::as_data).collect();
        assert_eq!(data.len(), 1, "{value}");
        assert_eq!(serde_json::from_str::<Value>(data[0].get()).unwrap(), value);
    }
    let unused = json!({ "text": "hi", "data": null, "files": null });
    let message = said(&card, "message", unused).unwrap();
    assert_eq!(message.parts, [Part::text("hi")]);
    for files in [
        json!("x"),
        json!({ "uri": "https://x.example" }),
        json!([7]),
    ] {
        let wrong = json!({ "text": "hi", "files": files });
        assert!(said(&card, "message", wrong).is_err(), "{files}");
    }
}

/// Goal: the tool of an agent without skills has the card's media types, and values that it doesn't
/// accept are sent as text. Method: cards with and without JSON.
#[test]
fn default_modes_hold_without_skills() {
    for (modes, is_data) in [
        (vec![], true),
        (vec!["application/json"], true),
        (vec!["image/png", "text/plain"], false),
    ] {
        let modes: Vec<String> = modes.into_iter().map(str::to_owned).collect();
        let card = AgentCard {
            default_input_modes: modes.clone(),
            ..AgentCard::default()
        };
        let tools: Vec<RawObject> = SkillTools::from_card(&card).page.read("tools").unwrap();
        let told: Option<Vec<String>> = tools[0].read("inputModes");
        assert_eq!(told.unwrap_or_default(), modes);
        let message = said(&card, "message", json!({ "own": 1 })).unwrap();
        assert_eq!(message.parts[0].as_data().is_some(), is_data, "{modes:?}");
    }
}

/// Goal: a conversational message that calls a tool is sent instead of the arguments, for the
/// tool's skill. Method: one with everything; one without parts.
#[test]
fn messages_call_tools() {
    let card = AgentCard {
        skills: vec![skill("see it")],
        ..AgentCard::default()
    };
    let book = SkillTools::from_card(&card);
    let call = |message: Value| {
        let meta = RawObject::single("callboard/said", message);
        book.conversation_request(book.get("see_it").unwrap(), &raw(json!({})), &meta)
    };
    let opening = call(json!({
        "content": [{ "type": "text", "text": "look" }, { "type": "text", "text": "[1]", "_meta": { "callboard/data": true } }],
        "key": "k", "context": "c", "metadata": { "skill": "shown__see_it", "m": 1 }, "extensions": ["urn:e"],
        "referenceTaskIds": ["t"], "requestMetadata": { "r": 1 },
    }))
    .unwrap();
    let message = opening.message;
    assert_eq!(
        message.parts,
        [Part::text("look"), Part::data(raw(json!([1])))]
    );
    assert_eq!(
        (&*message.message_id, &*message.context_id),
        ("k", ""),
        "the caller's context isn't the agent's"
    );
    assert_eq!(opening.caller_context, "c");
    let metadata: Value = serde_json::from_str(message.metadata.unwrap().to_raw().get()).unwrap();
    assert_eq!(metadata, json!({ "skill": "see it", "m": 1 }));
    assert_eq!(message.extensions, ["urn:e"]);
    assert_eq!(message.reference_task_ids, ["t"]);
    assert!(opening.metadata.is_some());
    assert!(call(json!({ "content": [] })).is_err());
}
