use callboard_mailroom::MailroomOptions;
use callboard_message::surface::RESERVED_PREFIX;

use crate::kit::{Room, until_ended};

/// Goal: the tools are those that are agreed and some beside them, and say when to use them, and when not, in few words. Method:
/// names, arguments and descriptions of all that isn't reserved.
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
            // One that has none says so.
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
