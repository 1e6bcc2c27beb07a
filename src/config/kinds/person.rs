//! People as agents (`[[agent]] kind = "person"`).

use std::time::Duration;

use callboard_message::DataClass;
use callboard_person::{
    ANSWER_TIME_DEFAULT, PERSON_SCOPE_PREFIX, PersonAgent, PersonOptions, PersonOptionsError,
};
use callboard_rpc::{KEY_SCOPE_BYTES_MAX, is_valid_scope};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AgentDeclaration, RunningAgent, StartContext, StartError, decode_declaration, report_key_errors,
};
use crate::config::DeclaredNames;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;

/// Agent that stands for a person, whose questions wait in the store.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PersonDeclaration {
    /// Unique name in the directory. Whoever answers for the person needs the scope `person:ID`.
    pub id: String,
    /// Name of the person for display. Default: the id.
    pub label: Option<String>,
    /// Time within which a question is answered, in seconds. Default: an hour.
    pub answer_time_s: Option<u64>,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<PersonDeclaration>(tree, "a person", problems)
}

impl PersonDeclaration {
    fn options(&self) -> PersonOptions {
        PersonOptions {
            label: self.label.clone(),
            answer_time: self
                .answer_time_s
                .map_or(ANSWER_TIME_DEFAULT, Duration::from_secs),
            ..PersonOptions::new(self.id.as_str())
        }
    }

    /// Returns the reason why no credential can have the scope of the person.
    fn id_error(&self) -> Option<String> {
        let is_possible = is_valid_scope(&format!("{PERSON_SCOPE_PREFIX}{}", self.id));
        (!is_possible).then(|| {
            format!(
                "no credential can have the scope `{PERSON_SCOPE_PREFIX}ID`: write 1 to {} printable ASCII characters without spaces, \" and \\",
                KEY_SCOPE_BYTES_MAX - PERSON_SCOPE_PREFIX.len()
            )
        })
    }
}

impl AgentDeclaration for PersonDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "person"
    }

    /// Returns the class `Personal`: questions and answers are stored, and may be about people.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn check(
        &self,
        tree: &ConfigTree,
        _names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let of_options = self.options().validate().err().map(|error| {
            let key = match error {
                PersonOptionsError::Label => "label",
                PersonOptionsError::AnswerTime => "answer_time_s",
            };
            (key, error.to_string())
        });
        let of_id = self.id_error().map(|why| ("id", why));
        report_key_errors(
            &self.id,
            of_id.into_iter().chain(of_options),
            tree,
            problems,
        );
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move { cx.spawn_opened(&self.id, PersonAgent::new(self.options())) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::parse_topology;

    /// Goal: a mistake in a person's table names the key. Method: rows of tables, the longest time and a second more.
    #[test]
    fn mistakes_in_people() {
        for (keys, expected) in [
            ("id = \"alice\"", None),
            (
                "id = \"alice\"\nlabel = \"Alice\"\nanswer_time_s = 604800",
                None,
            ),
            (
                "id = \"alice\"\nanswer_time_s = 604801",
                Some("`answer_time_s`: write 1 to 604800"),
            ),
            (
                "id = \"alice\"\nanswer_time_s = 0",
                Some("`answer_time_s`: write 1 to 604800"),
            ),
            (
                "id = \"alice\"\nlabel = \"\"",
                Some("`label`: write 1 to 64"),
            ),
            ("id = \"alice smith\"", Some("`id`: no credential can have")),
        ] {
            let text = format!("node = {{ name = \"n\" }}\n[[agent]]\nkind = \"person\"\n{keys}\n");
            let (_, problems) = parse_topology(&text, false, Path::new(""), false);
            let messages: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
            match expected {
                None => assert!(messages.is_empty(), "{keys} {messages:?}"),
                Some(expected) => {
                    let is_told = messages.iter().any(|told| told.contains(expected));
                    assert!(is_told, "{keys} {messages:?}");
                }
            }
        }
    }
}
