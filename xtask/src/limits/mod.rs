//! `cargo xtask limits`: docs/limits.md, from the constants and option structs of the sources and their doc comments.

mod source;
mod value;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use syn::Expr;

use crate::command::{Outcome, root};
use crate::size;
use source::{FileLimits, Limit};

const PAGE: &str = "docs/limits.md";
/// Crates in the order of the page: folder of the sources, name, title.
const CRATES: &[(&str, &str, &str)] = &[
    ("actors/runtime/src/", "callboard_runtime", "Runtime"),
    ("actors/message/src/", "callboard_message", "Messages"),
    ("actors/store/src/", "callboard_store", "Store"),
    ("actors/models/src/", "callboard_models", "Models"),
    ("actors/gateway/src/", "callboard_gateway", "Gateway"),
    ("actors/guardrail/src/", "callboard_guardrail", "Guardrail"),
    ("actors/mailroom/src/", "callboard_mailroom", "Mailroom"),
    ("actors/person/src/", "callboard_person", "People"),
    (
        "actors/orchestration/src/",
        "callboard_orchestration",
        "General orchestrator",
    ),
    ("actors/clinics/src/", "callboard_clinics", "Clinics"),
    (
        "protocols/rpc/src/",
        "callboard_rpc",
        "JSON-RPC, HTTP, keys and egress",
    ),
    ("protocols/mcp/src/", "callboard_mcp", "MCP"),
    ("protocols/a2a/src/", "callboard_a2a", "A2A"),
    ("protocols/mail/src/", "callboard_mail", "Mail over HTTP"),
    ("src/", "callboard", "Host and command line"),
];
const HEAD: &str = "\
# Limits

This page is made by `cargo xtask limits` from the doc comments in the sources: change those. A limit is inclusive: a value equal
to it passes, one more doesn't. *Options* can be changed, by embedders as fields and by operators through the keys of
[topology.md](topology.md) that the text names; *fixed* limits can't.
";

/// Writes the page.
pub fn write() -> Outcome {
    fs::write(root().join(PAGE), page()?).map_err(|e| format!("{PAGE} can't be written: {e}"))
}

/// The page as the sources have it now.
fn page() -> Outcome<String> {
    let mut files = Vec::new();
    let mut constants = BTreeMap::new();
    for path in size::product_files()? {
        let text = fs::read_to_string(root().join(&path))
            .map_err(|e| format!("{path} can't be read: {e}"))?;
        let read = FileLimits::read(&text).map_err(|e| format!("{path} isn't Rust: {e}"))?;
        constants.extend(read.constants.clone());
        files.push((path, read));
    }
    let mut page = HEAD.to_owned();
    for (folder, name, title) in CRATES {
        let _ = write!(page, "\n## {title} (`{name}`)\n");
        let mut modules: BTreeMap<String, (Vec<Row>, Vec<Row>)> = BTreeMap::new();
        for (path, read) in files
            .iter()
            .filter_map(|(path, read)| Some((path.strip_prefix(folder)?, read)))
        {
            let rows = modules.entry(module(path)).or_default();
            for limit in &read.limits {
                let row = Row::of(limit, &read.constants, &constants);
                match limit.owner {
                    Some(_) => rows.0.push(row),
                    None if is_shown_by_option(limit, &files) => {}
                    None => rows.1.push(row),
                }
            }
        }
        for (module, (options, fixed)) in modules {
            if options.is_empty() && fixed.is_empty() {
                continue;
            }
            let _ = write!(page, "\n### `{module}`\n");
            table(&mut page, "option", &options);
            table(&mut page, "fixed", &fixed);
        }
    }
    Ok(page)
}

/// First part of the module's path; the file's own name at the root of a crate.
fn module(path: &str) -> String {
    path.split('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".rs")
        .to_owned()
}

/// Whether an option's default is this constant: the option's row tells it.
fn is_shown_by_option(constant: &Limit, files: &[(String, FileLimits)]) -> bool {
    let names_it = |limit: &Limit| match &limit.value {
        Some(Expr::Path(path)) => {
            limit.owner.is_some()
                && path
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == constant.name)
        }
        _ => false,
    };
    files
        .iter()
        .flat_map(|(_, read)| &read.limits)
        .any(names_it)
}

/// A row of a table.
struct Row {
    name: String,
    value: String,
    doc: String,
}

impl Row {
    /// Constants of the same file go before others of their name.
    fn of(limit: &Limit, own: &BTreeMap<String, Expr>, all: &BTreeMap<String, Expr>) -> Self {
        let mut known = all.clone();
        known.extend(own.clone());
        let value = limit.value.as_ref();
        Self {
            name: limit.owner.as_ref().map_or_else(
                || limit.name.clone(),
                |owner| format!("{owner}::{}", limit.name),
            ),
            value: value.map_or_else(String::new, |value| {
                value::text(&limit.name, limit.kind, value, &known)
            }),
            doc: plain(&limit.doc),
        }
    }
}

/// A doc comment as a cell: links to items are names only.
fn plain(doc: &str) -> String {
    let mut text = doc
        .replace('|', "\\|")
        .replace("[`", "`")
        .replace("`]", "`");
    while let Some(start) = text.find("`(") {
        match text[start..].find(')') {
            Some(end) => text.replace_range(start + 1..=start + end, ""),
            None => break,
        }
    }
    text
}

fn table(page: &mut String, kind: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(page, "\n| {kind} | value | meaning |\n|---|---|---|\n");
    for Row { name, value, doc } in rows {
        let _ = writeln!(page, "| `{name}` | {value} | {doc} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page never tells anything else than the sources. Method: it is made again.
    #[test]
    fn page_is_up_to_date() {
        let written = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(
            written == page().unwrap(),
            "{PAGE} differs from the sources: run `cargo xtask limits`"
        );
    }

    /// Goal: each limit says what it limits. Method: no row is without text.
    #[test]
    fn every_limit_is_documented() {
        let page = page().unwrap();
        let bare: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `") && line.ends_with("|  |"))
            .collect();
        assert!(bare.is_empty(), "limits without a doc comment: {bare:#?}");
    }

    /// Goal: links don't lead nowhere. Method: comments with each kind of link.
    #[test]
    fn links_are_names() {
        assert_eq!(
            plain("See [`Limits`] and [`a`](Self::a) | b."),
            "See `Limits` and `a` \\| b."
        );
    }
}
