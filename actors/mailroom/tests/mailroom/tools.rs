use callboard_mailroom::MailroomOptions;
use callboard_message::capabilities::RESERVED_PREFIX;

use crate::kit::{Room, until_ended};

/// Goal: the schemas of all messages are plain JSON Schema, of which clients don't warn. Method: no
/// `format` of a number in the schemas of requests and replies.
/// Rows: P-7.
#[test]
fn schemas_are_plain() {
    until_ended(async |system| {
        let room = Room::open(system, MailroomOptions::default()).await;
        let specs = room.agent.specs();
        assert!(specs.len() > 20, "{}", specs.len());
        for spec in specs {
            let reply = spec.output_schema.unwrap_or_default();
            let schemas = format!("{} {reply}", spec.input_schema);
            assert!(!schemas.contains("\"format\""), "{}: {schemas}", spec.name);
        }
    });
}

/// Goal: the tools are the agreed ones and some more, with short descriptions of when to use them
/// and when not. Method: names, arguments and descriptions of all messages without the reserved
/// prefix.
/// Rows: P-6, P-7, P-8, P-30, P-31, P-32.
#[test]
fn descriptions() {
    until_ended(async |system| {
        let room = Room::open(system, MailroomOptions::default()).await;
        let tools = room
            .agent
            .specs()
            .into_iter()
            .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX));
        let told = tools.map(|tool| {
            assert!(tool.description.chars().count() <= 300, "{}", tool.name);
            // A message without a description shows as such.
            let arguments = tool.input_schema["properties"]
                .as_object()
                .expect(&tool.name);
            let arguments: Vec<&str> = arguments.keys().map(String::as_str).collect();
            let hints = tool
                .more
                .object("annotations")
                .map(|hints| hints.to_raw().get().to_owned())
                .unwrap_or_default();
            format!(
                "{}({}) {hints}\n  {}\n",
                tool.name,
                arguments.join(", "),
                tool.description
            )
        });
        let told: String = told.collect();
        insta::assert_snapshot!(told);
    });
}
