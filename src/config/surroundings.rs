//! Whether this machine has what a file names: variables, programs, key files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::agent::AgentDeclaration;
use super::check::place;
use super::file::{Entry, Sections};
use super::problem::Problems;
use super::store;
use super::upstream::UpstreamDeclaration;

/// Reports what isn't there.
pub(super) fn check(sections: &Sections, problems: &mut Problems<'_>) {
    for entry in &sections.upstreams {
        variables(entry, problems);
        program(entry, problems);
    }
    for entry in &sections.listeners {
        if let Some(keys) = entry.value.keys.as_ref().filter(|keys| !keys.is_file()) {
            let help = format!("make one with `callboard keys --keys {} add NAME`", keys.display());
            let message = format!("there is no key file {}", keys.display());
            problems.error_with(place(&entry.tree, &["keys"]), message, Some(help));
        }
        key_file(entry.value.signing_key.as_deref(), place(&entry.tree, &["signing_key"]), problems);
    }
    if let Some(entry) = &sections.store {
        store::look_around(entry, problems);
    }
    for entry in &sections.agents {
        match &entry.value {
            AgentDeclaration::Clinic(clinic) if !clinic.seed.is_file() => {
                // A database that is there needs none.
                if let Some(span) = place(&entry.tree, &["seed"]) {
                    problems.warning(Some(span), format!("there is no file {}", clinic.seed.display()));
                }
            }
            AgentDeclaration::Model(id, model) => {
                if let Some(name) = model.key_variable().filter(|name| std::env::var_os(name).is_none()) {
                    let span = place(&entry.tree, &["key_env"]);
                    problems.error(span, format!("there is no {} with the key of {id}", variable(name)));
                }
            }
            AgentDeclaration::A2a(remote) => {
                for (path, name) in remote.variables() {
                    is_set(name, place(&entry.tree, path), problems);
                }
                key_file(remote.trusted_keys.as_deref(), place(&entry.tree, &["trusted_keys"]), problems);
            }
            AgentDeclaration::Webhook(webhook) => {
                let place = place(&entry.tree, &["secret_env"]);
                webhook.secret_env.iter().for_each(|name| is_set(name, place.clone(), problems));
            }
            AgentDeclaration::Tmux(_) if in_path("tmux").is_none() => {
                problems.warning(place(&entry.tree, &["target"]), "there is no program tmux in PATH");
            }
            AgentDeclaration::Orchestrator(declared) => {
                for (path, file) in declared.missing() {
                    let message = format!("there is no {}", file.display());
                    problems.error(place(&entry.tree, path), message);
                }
            }
            _ => {}
        }
    }
}

fn variables(entry: &Entry<UpstreamDeclaration>, problems: &mut Problems<'_>) {
    let (upstream, tree) = (&entry.value, &entry.tree);
    upstream.bearer_env.iter().for_each(|name| is_set(name, place(tree, &["bearer_env"]), problems));
    for (header, name) in &upstream.header_env {
        is_set(name, place(tree, &["header_env", header]), problems);
    }
    for (at, name) in upstream.environment.iter().enumerate().filter(|(_, name)| std::env::var_os(name).is_none()) {
        let span = tree.get("environment").and_then(|list| list.items().get(at)).map(|item| item.span.clone());
        problems.warning(span, format!("there is no {} that {} could get", variable(name), upstream.id));
    }
}

fn program(entry: &Entry<UpstreamDeclaration>, problems: &mut Problems<'_>) {
    let (upstream, tree) = (&entry.value, &entry.tree);
    if let Some(directory) = upstream.directory.as_ref().filter(|directory| !directory.is_dir()) {
        let message = format!("there is no folder {}", directory.display());
        problems.error(place(tree, &["directory"]), message);
        return;
    }
    let Some(program) = upstream.command.first().filter(|program| !program.is_empty()) else { return };
    let found = match program.contains('/') {
        true => upstream.directory.as_deref().unwrap_or(Path::new("")).join(program).is_file(),
        false => in_path(program).is_some(),
    };
    if !found {
        let span = tree.get("command").and_then(|list| list.items().first()).map(|item| item.span.clone());
        let place = if program.contains('/') { "" } else { " in PATH" };
        problems.warning(span, format!("there is no program {program}{place}"));
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// An error unless the variable is there.
pub(super) fn is_set(name: &str, span: Option<Range<usize>>, problems: &mut Problems<'_>) {
    if std::env::var_os(name).is_none() {
        problems.error(span, format!("there is no {}", variable(name)));
    }
}

fn key_file(file: Option<&Path>, span: Option<Range<usize>>, problems: &mut Problems<'_>) {
    if let Some(file) = file.filter(|file| !file.is_file()) {
        problems.error(span, format!("there is no key file {}", file.display()));
    }
}

/// A variable as a message may name it: what can't be a name may be the secret itself, put in the wrong place.
fn variable(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !name.is_empty() && name.len() <= 64 && name.chars().all(is_name) {
        true => format!("variable {name}"),
        false => "variable of that name (write the name of one, not what it holds)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::variable;

    /// Goal: a secret in a name's place isn't repeated. Method: a name, and what can't be one.
    #[test]
    fn secrets_are_not_repeated() {
        assert_eq!(variable("OPENAI_API_KEY"), "variable OPENAI_API_KEY");
        for secret in ["sk-proj-1234", "", "a b", &"A".repeat(65)] {
            assert!(!variable(secret).contains("sk-") && !variable(secret).contains("AAAA"), "{secret}");
        }
    }
}
