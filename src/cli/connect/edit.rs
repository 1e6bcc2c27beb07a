//! Servers in the text of a configuration file: added, updated and removed.

use serde_json::{Map, Value};

use super::error::EditError;
use super::{json_text, toml_text};
use crate::client_config::{ClientApp, ServerSettings, key_input};

/// Text of a JSON file without settings.
const EMPTY_JSON: &str = "{}\n";
/// Name of the list of inputs of VS Code.
const INPUTS: &str = "inputs";

/// Outcome of adding a server to a text, with the new text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddedServer {
    /// The text has the server already.
    Unchanged,
    /// The text had no server of that name.
    Added(String),
    /// The text had an entry of that name for callboard.
    Updated(String),
}

/// Adds a server to the text of its application's file, or updates it there. Settings of the server that this program doesn't
/// know stay.
///
/// # Errors
/// [`EditError`] if the text can't be read, has another program's server of that name, or can't be edited without changing
/// anything else.
pub(super) fn add_server(text: &str, settings: &ServerSettings) -> Result<AddedServer, EditError> {
    let is_toml = settings.app == ClientApp::Codex;
    // An empty file has no settings.
    let text = match !is_toml && text.trim().is_empty() {
        true => EMPTY_JSON,
        false => text,
    };
    let (current, edited) = match is_toml {
        true => (
            toml_text::to_json(text)?,
            toml_text::add_server(text, settings),
        ),
        false => {
            let current = serde_json::from_str(text)?;
            let edited = add_to_json_text(text, &current, settings);
            (current, edited)
        }
    };
    let servers = current.get(settings.app.section());
    let earlier = servers.and_then(|servers| servers.get(&settings.name));
    let is_foreign =
        earlier.is_some_and(|earlier| earlier.is_object() && !settings.may_replace(earlier));
    if is_foreign && !matches!(edited, Ok(None)) {
        return Err(EditError::OtherProgram {
            name: settings.name.clone(),
        });
    }
    Ok(match (edited?, earlier) {
        (None, _) => AddedServer::Unchanged,
        (Some(text), Some(_)) => AddedServer::Updated(text),
        (Some(text), None) => AddedServer::Added(text),
    })
}

/// Adds the server to a JSON text with the value `current`; `None` if the text has the server already.
fn add_to_json_text(
    text: &str,
    current: &Value,
    settings: &ServerSettings,
) -> Result<Option<String>, EditError> {
    let mut wanted = current.clone();
    add_to_json(&mut wanted, settings)?;
    match wanted == *current {
        true => Ok(None),
        false => json_text::rewrite(text, &wanted).map(Some),
    }
}

/// Removes a server from the text of an application's file. Returns the new text; `None` if the text doesn't have the server.
///
/// # Errors
/// [`EditError`] if the text can't be read, or can't be edited without changing anything else.
pub(super) fn remove_server(
    text: &str,
    app: ClientApp,
    name: &str,
) -> Result<Option<String>, EditError> {
    if app == ClientApp::Codex {
        return toml_text::remove_server(text, app.section(), name);
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut wanted: Value = serde_json::from_str(text)?;
    let servers = wanted.get_mut(app.section()).and_then(Value::as_object_mut);
    if servers.and_then(|servers| servers.remove(name)).is_none() {
        return Ok(None);
    }
    drop_unused_input(&mut wanted, app, name);
    json_text::rewrite(text, &wanted).map(Some)
}

fn add_to_json(document: &mut Value, settings: &ServerSettings) -> Result<(), EditError> {
    let section = settings.app.section();
    let root = object(document, "its top level")?;
    let servers = root.entry(section).or_insert_with(empty_object);
    let entry = object(servers, section)?
        .entry(&*settings.name)
        .or_insert_with(empty_object);
    settings.merge_into(object(entry, &settings.name)?);
    if let Some(input) = &settings.input {
        let inputs = root
            .entry(INPUTS)
            .or_insert_with(|| Value::Array(Vec::new()));
        let inputs = inputs.as_array_mut().ok_or_else(|| EditError::WrongType {
            what: INPUTS.to_owned(),
            expected: "a list",
        })?;
        if inputs.iter().all(|known| known["id"] != input["id"]) {
            inputs.push(input.clone());
        }
    }
    drop_unused_input(document, settings.app, &settings.name);
    Ok(())
}

/// Removes the declaration of the input for a server's key unless a server still refers to it.
fn drop_unused_input(document: &mut Value, app: ClientApp, name: &str) {
    let id = key_input(name);
    let reference = format!("${{input:{id}}}");
    let is_used = document[app.section()].to_string().contains(&reference);
    if app != ClientApp::VsCode || is_used {
        return;
    }
    let inputs = document.get_mut(INPUTS).and_then(Value::as_array_mut);
    if let Some(inputs) = inputs {
        inputs.retain(|input| input["id"] != *id);
    }
}

fn object<'a>(value: &'a mut Value, what: &str) -> Result<&'a mut Map<String, Value>, EditError> {
    value
        .as_object_mut()
        .ok_or_else(|| EditError::not_an_object(what))
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_config::KeySource;

    fn settings(app: ClientApp, key: Option<KeySource<'_>>) -> ServerSettings {
        ServerSettings::remote(app, "board", "http://b/mcp", key)
    }

    fn updated(text: &str, settings: &ServerSettings) -> String {
        match add_server(text, settings).unwrap() {
            AddedServer::Updated(text) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Goal: the input for a key comes and goes with the server that refers to it. Method: VS Code's file, with inputs of others.
    #[test]
    fn inputs_of_vs_code() {
        let before = "{\n\t\"inputs\": [\n\t\t{ \"id\": \"other\", \"type\": \"promptString\" }\n\t],\n\t\"servers\": {\n\t\t\"a\": { \"url\": \"u\" }\n\t}\n}\n";
        let key = KeySource {
            variable: "KEY",
            input: Some("board-key"),
        };
        let with_key = settings(ClientApp::VsCode, Some(key));
        let AddedServer::Added(added) = add_server(before, &with_key).unwrap() else {
            panic!("the server is new");
        };
        let document: Value = serde_json::from_str(&added).unwrap();
        assert_eq!(document["inputs"][1]["id"], "board-key");
        assert_eq!(
            add_server(&added, &with_key).unwrap(),
            AddedServer::Unchanged
        );

        let without_key = updated(&added, &settings(ClientApp::VsCode, None));
        let document: Value = serde_json::from_str(&without_key).unwrap();
        assert_eq!(document["inputs"].as_array().unwrap().len(), 1);
        assert_eq!(document["servers"]["board"].get("headers"), None);

        let removed = remove_server(&added, ClientApp::VsCode, "board").unwrap();
        assert_eq!(removed.as_deref(), Some(before));
    }

    /// Goal: an update keeps the user's own settings of the server and drops those of the other transport. Method: from a program
    /// to a URL and back.
    #[test]
    fn updates_keep_own_settings() {
        let app = ClientApp::Cursor;
        let before = "{\"mcpServers\": {\"board\": {\"disabled\": true, \"command\": \"/old/callboard\", \"env\": {\"A\": \"1\"}}}}";
        let url = updated(before, &settings(app, None));
        assert_eq!(
            url,
            "{\"mcpServers\": {\"board\": {\"disabled\": true,\"url\": \"http://b/mcp\"}}}"
        );
        let program = ServerSettings::program(app, "board", "/callboard", &["stdio", "/f"]);
        assert_eq!(
            updated(before, &program),
            "{\"mcpServers\": {\"board\": {\"disabled\": true, \"command\": \"/callboard\", \"env\": {\"A\": \"1\"},\"args\": [\"stdio\",\"/f\"]}}}"
        );
    }

    /// Goal: a server of another program isn't replaced. Method: an entry of the same name in both formats.
    #[test]
    fn other_programs() {
        let toml = "[mcp_servers.board]\ncommand = \"other\"\n";
        let json = "{\"mcpServers\": {\"board\": {\"command\": \"other\"}}}";
        for (app, text) in [(ClientApp::Codex, toml), (ClientApp::Cursor, json)] {
            let error = add_server(text, &settings(app, None)).unwrap_err();
            assert!(matches!(error, EditError::OtherProgram { .. }), "{error}");
        }
    }

    /// Goal: a file in which the servers have no place is refused. Method: rows of other types.
    #[test]
    fn other_types() {
        for (text, said) in [
            ("[]", "its top level is not an object"),
            ("{\"servers\": []}", "servers is not an object"),
            ("{\"servers\": {\"board\": 1}}", "board is not an object"),
            ("{\"inputs\": {}}", "inputs is not a list"),
            ("{ // servers\n}", "not plain JSON"),
        ] {
            let key = KeySource {
                variable: "KEY",
                input: Some("board-key"),
            };
            let error = add_server(text, &settings(ClientApp::VsCode, Some(key))).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
        assert_eq!(
            remove_server("[]", ClientApp::Cursor, "board").unwrap(),
            None
        );
    }
}
