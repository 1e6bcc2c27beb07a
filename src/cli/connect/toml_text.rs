//! Edits of a TOML text that leave everything else in it as it is: comments, order and line breaks. The crate `toml_edit` isn't used,
//! because it turns CRLF into LF, so that other lines would change.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::error::EditError;
use crate::client_config::{AUTHORIZATION, ServerSettings};

/// Names of the tables with the headers of a server, in the configuration of Codex.
const HEADER_TABLES: [&str; 2] = ["env_http_headers", "http_headers"];

/// Value of a document, with its place in the text.
type PlacedValue<'a> = Spanned<DeValue<'a>>;

/// Returns the value of the text as JSON.
///
/// # Errors
/// [`EditError`] if the text can't be read.
pub(super) fn to_json(text: &str) -> Result<serde_json::Value, EditError> {
    serde_json::to_value(parse(text)?).map_err(|_| EditError::UnsupportedForm)
}

/// Adds the server to the text, or updates it there; `None` if the text has it already.
///
/// # Errors
/// [`EditError`] if the text can't be read, or can't be edited without changing anything else.
pub(super) fn add_server(
    text: &str,
    settings: &ServerSettings,
) -> Result<Option<String>, EditError> {
    let section = settings.app.section();
    let current = parse(text)?;
    let mut wanted = current.clone();
    let servers = wanted.entry(section).or_insert_with(empty_table);
    let servers = servers
        .as_table_mut()
        .ok_or_else(|| EditError::not_an_object(section))?;
    let old = servers.get(&settings.name).cloned();
    let entry = servers.entry(&*settings.name).or_insert_with(empty_table);
    let entry = entry
        .as_table_mut()
        .ok_or_else(|| EditError::not_an_object(&settings.name))?;
    let is_remote = settings.entry.contains_key("url");
    if is_remote
        && HEADER_TABLES
            .iter()
            .any(|table| has_credential(entry, table))
    {
        // It would be sent to the new address.
        return Err(EditError::UnsupportedForm);
    }
    for name in settings.replaced_settings() {
        entry.remove(name);
    }
    for (name, value) in &settings.entry {
        let value = Value::try_from(value).map_err(|_| EditError::UnsupportedForm)?;
        entry.insert(name.clone(), value);
    }
    let edited = match old {
        None => append(text, settings),
        Some(Value::Table(old)) if old == *entry => return Ok(None),
        Some(_) => update(text, settings, entry)?,
    };
    if parse(&edited).is_ok_and(|edited| edited == wanted) {
        return Ok(Some(edited));
    }
    Err(EditError::UnsupportedForm)
}

fn has_credential(entry: &Table, headers: &str) -> bool {
    let headers = entry.get(headers).and_then(Value::as_table);
    headers.is_some_and(|headers| {
        let mut names = headers.keys();
        names.any(|name| name.eq_ignore_ascii_case(AUTHORIZATION))
    })
}

/// Removes the server `name` of `section` from the text; `None` if the text doesn't have it.
///
/// # Errors
/// [`EditError`] if the text can't be read, or can't be edited without changing anything else.
pub(super) fn remove_server(
    text: &str,
    section: &str,
    name: &str,
) -> Result<Option<String>, EditError> {
    let mut wanted = parse(text)?;
    let Some(servers) = wanted.get_mut(section).and_then(Value::as_table_mut) else {
        return Ok(None);
    };
    if servers.remove(name).is_none() {
        return Ok(None);
    }
    if servers.is_empty() {
        wanted.remove(section);
    }
    let edited = cut_server(text, section, name)?;
    let mut found = parse(&edited).map_err(|_| EditError::UnsupportedForm)?;
    // A header of the section alone stays.
    if found.get(section) == Some(&empty_table()) {
        found.remove(section);
    }
    if found == wanted {
        return Ok(Some(edited));
    }
    Err(EditError::UnsupportedForm)
}

fn empty_table() -> Value {
    Value::Table(Table::new())
}

fn parse(text: &str) -> Result<Table, EditError> {
    text.parse::<Table>()
        .map_err(|error| syntax_error(text, &error))
}

fn parse_places(text: &str) -> Result<Spanned<DeTable<'_>>, EditError> {
    DeTable::parse(text).map_err(|error| syntax_error(text, &error))
}

/// Returns the error without the line of the text, which the error of the parser shows.
fn syntax_error(text: &str, error: &toml::de::Error) -> EditError {
    let before = error.span().and_then(|span| text.get(..span.start));
    EditError::Toml {
        message: error.message().replace('\n', " "),
        line: 1 + before.unwrap_or_default().matches('\n').count(),
    }
}

fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Adds the server as a table of its own at the end.
fn append(text: &str, settings: &ServerSettings) -> String {
    let newline = newline_of(text);
    let mut edited = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        edited += newline;
    }
    if !text.is_empty() {
        edited += newline;
    }
    edited += &settings.to_string().replace('\n', newline);
    edited + newline
}

/// Replaces, adds and removes settings of the server until they are those of `wanted`.
fn update(text: &str, settings: &ServerSettings, wanted: &Table) -> Result<String, EditError> {
    let newline = newline_of(text);
    let mut text = text.to_owned();
    if !text.ends_with('\n') {
        text += newline;
    }
    let document = parse_places(&text)?;
    let (_, entry) = find_server(&document, settings.app.section(), &settings.name)
        .ok_or(EditError::UnsupportedForm)?;
    let members = entry.get_ref().as_table();
    let members = members.filter(|_| is_under_header(&text, entry));
    let members = members.ok_or(EditError::UnsupportedForm)?;
    let mut edits = Vec::new();
    for (name, value) in members {
        match wanted.get(&**name.get_ref()) {
            None => {
                let removed = removed_ranges(&text, name.span(), value);
                edits.extend(removed.into_iter().map(|range| (range, String::new())));
            }
            Some(new) if settings.entry.contains_key(&**name.get_ref()) => {
                edits.push((value.span(), new.to_string()));
            }
            Some(_) => {}
        }
    }
    let after_header = line_end(&text, entry.span().end);
    let added = wanted
        .iter()
        .filter(|(name, _)| !members.contains_key(name.as_str()));
    let added: String = added
        .map(|(name, value)| format!("{name} = {value}{newline}"))
        .collect();
    edits.push((after_header..after_header, added));
    Ok(apply(&text, edits))
}

fn cut_server(text: &str, section: &str, name: &str) -> Result<String, EditError> {
    let document = parse_places(text)?;
    let (key, entry) = find_server(&document, section, name).ok_or(EditError::UnsupportedForm)?;
    let removed = removed_ranges(text, key, entry);
    let edits = removed.into_iter().map(|range| (range, String::new()));
    Ok(apply(text, edits.collect()))
}

/// Applies edits that don't overlap.
fn apply(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut edited = text.to_owned();
    for (range, new) in edits {
        edited.replace_range(range, &new);
    }
    edited
}

/// Returns a server with the place of its key.
fn find_server<'d, 'i>(
    document: &'d Spanned<DeTable<'i>>,
    section: &str,
    name: &str,
) -> Option<(Range<usize>, &'d PlacedValue<'i>)> {
    let servers = document.get_ref().get(section)?.get_ref().as_table()?;
    let (key, server) = servers.get_key_value(name)?;
    Some((key.span(), server))
}

/// Whether a value is a table that begins with a header: `[a.b]`, or `[[a.b]]`.
fn is_under_header(text: &str, value: &PlacedValue<'_>) -> bool {
    value.get_ref().is_table() && begins_with(text, value, '[')
}

fn begins_with(text: &str, value: &PlacedValue<'_>, bracket: char) -> bool {
    let rest = text.get(value.span().start..);
    rest.is_some_and(|rest| rest.starts_with(bracket))
}

/// Returns the lines of a member: those of its headers and what follows them, or those from its key to its value.
fn removed_ranges(text: &str, key: Range<usize>, value: &PlacedValue<'_>) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    collect_blocks(text, value, &mut blocks);
    if blocks.is_empty() {
        blocks.push(line_start(text, key.start)..line_end(text, value.span().end));
    }
    blocks
}

/// Collects the blocks of a value: each header within it with the lines up to the last value below it, and one empty line before.
fn collect_blocks(text: &str, value: &PlacedValue<'_>, blocks: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(members) => {
            if is_under_header(text, value) {
                let start = line_start(text, value.span().start);
                let before = text.get(..start).unwrap_or_default();
                let empty_line = ["\r\n\r\n", "\n\n"]
                    .iter()
                    .find(|lines| before.ends_with(**lines))
                    .map_or(0, |lines| lines.len() / 2);
                let end = value.span().end.max(values_end(text, members));
                blocks.push(start - empty_line..line_end(text, end));
            }
            for member in members.values() {
                collect_blocks(text, member, blocks);
            }
        }
        DeValue::Array(items) => {
            for item in items {
                collect_blocks(text, item, blocks);
            }
        }
        _ => {}
    }
}

/// Returns the end of the last value that stands below the header of `members`; 0 if there is none.
fn values_end(text: &str, members: &DeTable<'_>) -> usize {
    let end = |value: &PlacedValue<'_>| match value.get_ref() {
        DeValue::Table(_) if begins_with(text, value, '[') => 0,
        // A dotted key, or a table that only headers name.
        DeValue::Table(nested) if !begins_with(text, value, '{') => values_end(text, nested),
        DeValue::Array(items) if items.iter().any(|item| is_under_header(text, item)) => 0,
        _ => value.span().end,
    };
    members.values().map(end).max().unwrap_or_default()
}

fn line_start(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// Returns the place after the line break that follows `at`, or the end of the text.
fn line_end(text: &str, at: usize) -> usize {
    let after = text.get(at..).and_then(|rest| rest.find('\n'));
    after.map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_config::{ClientApp, KeySource};

    const OTHERS: &str = "# My settings\nmodel = \"m\"   # kept\n\n[mcp_servers.\"a.b\"]\nargs = ['x']\ncommand = 'y'\n\n# The end\n";

    fn remote() -> ServerSettings {
        let key = KeySource {
            variable: "KEY",
            input: None,
        };
        ServerSettings::remote(ClientApp::Codex, "board", "http://b/mcp", Some(key))
    }

    fn program() -> ServerSettings {
        ServerSettings::program(
            ClientApp::Codex,
            "board",
            "/callboard",
            &["stdio", "/f.toml"],
        )
    }

    fn added(text: &str, settings: &ServerSettings) -> String {
        let edited = add_server(text, settings).unwrap().unwrap();
        assert_eq!(add_server(&edited, settings).unwrap(), None, "{edited}");
        edited
    }

    fn removed(text: &str) -> String {
        remove_server(text, "mcp_servers", "board")
            .unwrap()
            .unwrap()
    }

    /// Goal: a server that is added and removed again leaves the text as it was. Method: texts of several forms, with line breaks
    /// of both kinds.
    #[test]
    fn everything_else_stays() {
        for text in [
            "",
            OTHERS,
            "a = 1\n",
            "[[x]]\nb = 2\n[mcp_servers.other.env]\nA = \"1\"\n",
        ] {
            for text in [text.to_owned(), text.replace('\n', "\r\n")] {
                let edited = added(&text, &remote());
                assert!(edited.starts_with(&*text), "{edited}");
                assert_eq!(edited.contains('\r'), text.contains('\r'), "{edited}");
                assert_eq!(removed(&edited), text);
            }
        }
    }

    /// Goal: an update keeps place, comments and settings of the user, and drops those of the other transport. Method: a server
    /// between others, from a URL to a program and back.
    #[test]
    fn updates_in_place() {
        let before = "[mcp_servers.board] # mine\nurl = 'http://old/mcp' # old\nstartup_timeout_sec = 9\nhttp_headers = { A = \"b\" }\n\
            \n[mcp_servers.board.tools.x]\nenabled = true\n\n# Next\n[mcp_servers.next]\ncommand = \"n\"\n";
        let url = added(before, &remote());
        assert_eq!(
            url,
            "[mcp_servers.board] # mine\nbearer_token_env_var = \"KEY\"\nurl = \"http://b/mcp\" # old\nstartup_timeout_sec = 9\n\
             http_headers = { A = \"b\" }\n\n[mcp_servers.board.tools.x]\nenabled = true\n\n# Next\n[mcp_servers.next]\ncommand = \"n\"\n"
        );
        let started = added(&url, &program());
        assert_eq!(
            started,
            "[mcp_servers.board] # mine\nargs = [\"stdio\", \"/f.toml\"]\ncommand = \"/callboard\"\nstartup_timeout_sec = 9\n\
             \n[mcp_servers.board.tools.x]\nenabled = true\n\n# Next\n[mcp_servers.next]\ncommand = \"n\"\n"
        );
        assert_eq!(
            removed(&started),
            "\n# Next\n[mcp_servers.next]\ncommand = \"n\"\n"
        );
    }

    /// Goal: a server in another form is removed if that is possible, and else left. Method: rows of texts and results.
    #[test]
    fn other_forms() {
        let inline = "[mcp_servers]\nboard = { url = \"u\" } # x\nother = { url = \"o\" }\n";
        assert_eq!(removed(inline), "[mcp_servers]\nother = { url = \"o\" }\n");
        assert_eq!(
            removed("[mcp_servers]\nboard.url = \"u\"\n"),
            "[mcp_servers]\n"
        );
        let with_environment =
            "[mcp_servers.board]\ncommand = \"c\"\n[mcp_servers.board.env]\nA = \"1\"\n";
        assert_eq!(
            added(with_environment, &remote()),
            "[mcp_servers.board]\nbearer_token_env_var = \"KEY\"\nurl = \"http://b/mcp\"\n"
        );
        for text in [
            inline,
            "mcp_servers = { board = { url = \"u\" } }\n",
            "mcp_servers = { other = { url = \"u\" } }\n",
            "mcp_servers = 3\n",
            "[mcp_servers]\nboard = 3\n",
            "[mcp_servers\nsecret",
        ] {
            let error = add_server(text, &program()).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let with_key =
            "[mcp_servers.board]\nurl = \"u\"\nhttp_headers = { authorization = \"Bearer x\" }\n";
        add_server(with_key, &remote()).unwrap_err();
        let none = remove_server(OTHERS, "mcp_servers", "board");
        assert_eq!(none.unwrap(), None);
    }
}
