//! `cargo xtask features`: docs/features.md, from the list of rows and the lines `Rows:` above the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use crate::command::{Outcome, root};
use crate::size;

const PAGE: &str = "docs/features.md";
/// Rows in the order of the page. Its head says how they are written.
const ROWS: &str = include_str!("rows.txt");
/// Beginning of the doc line by which a test names the rows that it shows.
const MARK: &str = "/// Rows: ";
const HEAD: &str = "\
# Features

Features of the five systems that callboard stands in for, one row each, and the tests that show them. This page is made by
`cargo xtask features` from `xtask/src/features/rows.txt` and the lines `Rows:` above the tests: change those. A row without a test
says why, or that there is none.
";

/// Writes the page.
pub fn write() -> Outcome {
    fs::write(root().join(PAGE), page()?).map_err(|e| format!("{PAGE} can't be written: {e}"))
}

/// Returns the page made from the present rows and tests.
fn page() -> Outcome<String> {
    let mut evidence = Evidence::default();
    for path in size::rust_files()? {
        let text = fs::read_to_string(root().join(&path))
            .map_err(|e| format!("{path} can't be read: {e}"))?;
        evidence.read(&path, &text)?;
    }
    render(&sections(ROWS)?, evidence)
}

/// A group of rows.
struct Section<'a> {
    title: &'a str,
    rows: Vec<Row<'a>>,
}

/// Row of the list: a feature of a source document.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    id: &'a str,
    name: &'a str,
    /// Reason for which no test can show it.
    note: Option<&'a str>,
}

/// Reads the list of rows.
fn sections(text: &str) -> Outcome<Vec<Section<'_>>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    for line in lines {
        if let Some(title) = line.strip_prefix("# ") {
            let rows = Vec::new();
            sections.push(Section { title, rows });
            continue;
        }
        let mut cells = line.splitn(3, " | ");
        let (Some(id), Some(name), Some(section)) =
            (cells.next(), cells.next(), sections.last_mut())
        else {
            return Err(format!(
                "a row is `ID | NAME` or `ID | NAME | NOTE`, not {line:?}"
            ));
        };
        let note = cells.next();
        section.rows.push(Row { id, name, note });
    }
    Ok(sections)
}

/// Tests by the row that they show, each as its file and its name.
#[derive(Default)]
struct Evidence(BTreeMap<String, BTreeSet<(String, String)>>);

impl Evidence {
    /// Adds the tests of a source file.
    fn read(&mut self, path: &str, text: &str) -> Outcome {
        let mut lines = text.lines().map(str::trim_start);
        while let Some(line) = lines.next() {
            let Some(ids) = line.strip_prefix(MARK) else {
                continue;
            };
            let mut is_test = false;
            let name = lines.by_ref().find_map(|line| {
                is_test |= line.starts_with("#[") && line.contains("test");
                function_name(line)
            });
            let (true, Some(name)) = (is_test, name) else {
                return Err(format!("{path}: no test follows {line:?}"));
            };
            for id in ids.trim_end_matches('.').split(", ") {
                self.0
                    .entry(id.to_owned())
                    .or_default()
                    .insert((path.to_owned(), name.to_owned()));
            }
        }
        Ok(())
    }
}

/// Name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = line.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

fn render(sections: &[Section<'_>], Evidence(mut evidence): Evidence) -> Outcome<String> {
    let mut page = HEAD.to_owned();
    for Section { title, rows } in sections {
        let _ = write!(
            page,
            "\n## {title}\n\n| row | feature | tests |\n|---|---|---|\n"
        );
        for Row { id, name, note } in rows {
            let shown = match (evidence.remove(*id), note) {
                (Some(tests), None) => by_file(&tests),
                (None, Some(note)) => (*note).to_owned(),
                (None, None) => "no test".to_owned(),
                (Some(_), Some(_)) => {
                    return Err(format!("{id} has tests: take its note out of rows.txt"));
                }
            };
            let _ = writeln!(page, "| {id} | {name} | {shown} |");
        }
    }
    match evidence.first_key_value() {
        None => Ok(page),
        Some((id, tests)) => Err(format!("rows.txt has no {id}, which {tests:?} name")),
    }
}

/// Formats tests as a table cell, grouped by file.
fn by_file(tests: &BTreeSet<(String, String)>) -> String {
    let mut files = BTreeMap::<&str, Vec<String>>::new();
    for (path, name) in tests {
        files.entry(path).or_default().push(format!("`{name}`"));
    }
    let cells = files
        .iter()
        .map(|(path, names)| format!("{} ([{path}](../{path}))", names.join(", ")));
    cells.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page never tells anything else than the tests. Method: it is made again.
    /// Rows: X-11.
    #[test]
    fn page_is_up_to_date() {
        let written = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(
            written == page().unwrap(),
            "{PAGE} differs from the tests: run `cargo xtask features`"
        );
    }

    fn made(rows: &str, source: &str) -> Outcome<String> {
        let mut evidence = Evidence::default();
        evidence.read("a.rs", source)?;
        render(&sections(rows)?, evidence).map(|page| page.replace(HEAD, ""))
    }

    /// Goal: a row has its tests, else its reason, else says that it has none. Method: one row of each.
    #[test]
    fn rows_have_their_tests() {
        let source = format!(
            "{MARK}A-1, A-2.\n#[tokio::test]\nasync fn one() {{}}\n{MARK}A-1.\n#[test]\nfn two() {{}}\n"
        );
        let rows = "// how\n# A\nA-1 | first\nA-2 | second\nA-3 | third | a claim\nA-4 | fourth\n";
        let page = "\n## A\n\n| row | feature | tests |\n|---|---|---|\n\
             | A-1 | first | `one`, `two` ([a.rs](../a.rs)) |\n| A-2 | second | `one` ([a.rs](../a.rs)) |\n\
             | A-3 | third | a claim |\n| A-4 | fourth | no test |\n";
        assert_eq!(made(rows, &source).unwrap(), page);
    }

    /// Goal: nothing that is written is lost. Method: an unknown row, a line above no test, a note beside a test, a row
    /// without a name.
    #[test]
    fn mistakes_are_told() {
        let test = format!("{MARK}A-1.\n#[test]\nfn one() {{}}\n");
        for (rows, source, why) in [
            ("# A\nA-2 | x\n", &*test, "no A-1"),
            (
                "# A\nA-1 | x\n",
                &*test.replace("#[test]\n", ""),
                "no test follows",
            ),
            ("# A\nA-1 | x | a claim\n", &test, "A-1 has tests"),
            ("# A\nA-1\n", "", "a row is"),
        ] {
            let told = made(rows, source).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
