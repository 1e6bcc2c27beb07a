//! Handlers that nobody registers: an implementation of a handler trait compiles without `on.sync::<M>()`, and its messages then
//! fail at run time. Found here by the text of the repository.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{File, none, rust_files};

/// Handler traits with the function that registers them.
const KINDS: [(&str, &str); 3] = [
    ("SyncHandler<", "sync"),
    ("ConcurrentHandler<", "concurrent"),
    ("Handler<", "exclusive"),
];

/// An implementation of a handler trait.
#[derive(Debug, PartialEq)]
struct HandlerImpl {
    /// Name of the function that registers it.
    function: &'static str,
    message: String,
    agent: String,
}

/// The text without lines of comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text up to the `>` that closes what was opened before it, and the rest.
fn until_closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// A type's name without path and parameters.
fn bare(name: &str) -> String {
    let name = name.split('<').next().unwrap_or(name).trim();
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

fn handler_impls(code: &str) -> Vec<HandlerImpl> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (begin, function) in KINDS {
        for (at, _) in code.match_indices(begin) {
            let whole = !code[..at].ends_with(is_name);
            let Some((message, rest)) = until_closed(&code[at + begin.len()..]).filter(|_| whole)
            else {
                continue;
            };
            let Some(agent) = rest.trim_start().strip_prefix("for ") else {
                continue;
            };
            let agent = agent.trim_start();
            let end = agent
                .find(|c| !is_name(c) && c != ':')
                .unwrap_or(agent.len());
            found.push(HandlerImpl {
                function,
                message: bare(message),
                agent: bare(&agent[..end]),
            });
        }
    }
    // What a macro or a generic implementation is for isn't in the text.
    found.retain(|handler| !handler.message.contains('$') && handler.message.len() > 1);
    found
}

/// Registrations in a text: function and message.
fn registrations(code: &str) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    for (_, function) in KINDS {
        let begin = format!(".{function}::<");
        for (at, _) in code.match_indices(&begin) {
            if let Some((message, rest)) = until_closed(&code[at + begin.len()..])
                && rest.starts_with('(')
            {
                found.insert((function, bare(message)));
            }
        }
    }
    if code.contains(".fallback(") {
        found.insert(("concurrent", "RawMessage".to_owned()));
    }
    found
}

/// The agents that a text implements `Agent` for.
fn agents(code: &str) -> impl Iterator<Item = String> + '_ {
    code.match_indices("Agent for ").map(|(at, begin)| {
        let name = &code[at + begin.len()..];
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        bare(&name[..end.unwrap_or(name.len())])
    })
}

/// Folder of the crate that a file belongs to.
fn crate_of(path: &str) -> &str {
    let end = ["/src/", "/tests/", "/"]
        .iter()
        .find_map(|part| path.find(part));
    &path[..end.unwrap_or(path.len())]
}

/// Implementations whose message is registered neither beside them nor beside the `impl Agent`.
fn unregistered(files: &[File]) -> Vec<String> {
    let codes: Vec<_> = files
        .iter()
        .map(|file| (&*file.path, code(&file.text)))
        .collect();
    let mut known: BTreeMap<(&str, String), BTreeSet<(&str, String)>> = BTreeMap::new();
    for (path, code) in &codes {
        let here = registrations(code);
        for agent in agents(code) {
            known
                .entry((crate_of(path), agent))
                .or_default()
                .extend(here.iter().cloned());
        }
    }
    let mut wrong = Vec::new();
    for (path, code) in &codes {
        let here = registrations(code);
        for handler in handler_impls(code) {
            let of_agent = known.get(&(crate_of(path), handler.agent.clone()));
            let registration = (handler.function, handler.message.clone());
            if !here.contains(&registration)
                && !of_agent.is_some_and(|known| known.contains(&registration))
            {
                let HandlerImpl {
                    function,
                    message,
                    agent,
                } = handler;
                wrong.push(format!(
                    "{path}: {agent} handles {message}, and never gets it: add `on.{function}::<{message}>()` to its `handlers`"
                ));
            }
        }
    }
    wrong
}

/// Goal: no handler is forgotten. Method: each implementation of a handler trait in the repository against the registrations
/// beside it and beside its agent.
#[test]
fn handlers_are_registered() {
    let mut files = rust_files();
    // This one has examples of forgotten ones, and the others are mistakes on purpose.
    files.retain(|file| {
        file.path != "tests/it/registered.rs"
            && !file.path.starts_with("actors/runtime/tests/mistakes/")
    });
    none(unregistered(&files));
}

/// Goal: the rule sees a forgotten handler, and nothing else. Method: one of each kind, registered here, elsewhere and nowhere.
#[test]
fn forgotten_handlers_are_seen() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let text = "impl Agent for A { fn handlers(on) { on.sync::<M>().exclusive::<x::N<u8>>(); on.concurrent::<O>(4).fallback(3); } }\n\
         impl SyncHandler<m::M> for A {}\nimpl Handler<N<u8>> for A {}\nimpl ConcurrentHandler<O> for A {}\n\
         impl ConcurrentHandler<RawMessage> for A {}\nimpl<T: Message> SyncHandler<T> for A {}\nimpl SyncHandler<$name> for A {}\n\
         // impl SyncHandler<Comment> for A {}";
    let other = "impl super::Handler<N<u8>> for A {}\nimpl SyncHandler<Lost>\n    for A {}\nimpl ConcurrentHandler<MM> for A {}";
    let files = [
        file("actors/a/src/lib.rs", text),
        file("actors/a/src/other.rs", other),
        file("actors/b/src/lib.rs", "impl SyncHandler<MM> for A {}"),
    ];
    let wrong = unregistered(&files);
    let wrong: Vec<_> = wrong
        .iter()
        .map(|line| line.split(',').next().unwrap())
        .collect();
    assert_eq!(
        wrong,
        [
            "actors/a/src/other.rs: A handles Lost",
            "actors/a/src/other.rs: A handles MM",
            "actors/b/src/lib.rs: A handles MM",
        ]
    );
}
