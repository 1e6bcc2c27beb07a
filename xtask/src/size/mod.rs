//! `cargo xtask size`: the size of the code in Rust tokens outside of tests and comments, and of the data that is compiled
//! in, in bytes. Tokens don't depend on the layout of the text, so that two revisions can be compared.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::command::{Outcome, program, root};
use tokens::FileTokens;

/// A row of the table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Size {
    tokens: u64,
    /// Bytes of the files in `include_str!` and `include_bytes!`, each once a row.
    data_bytes: u64,
}

/// Size of each row: a crate, or its examples or benches.
type Sizes = BTreeMap<String, Size>;

/// `cargo xtask size [--json] [--at REV]`.
pub fn run(options: &[&str]) -> Outcome {
    let (mut is_json, mut revision) = (false, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--json" => is_json = true,
            "--at" => revision = Some(*options.next().ok_or("--at needs a revision")?),
            other => return Err(format!("size knows --json and --at REV, not {other:?}")),
        }
    }
    let sizes = match revision {
        None => measure(root(), &listed(&["ls-files", "-z"])?)?,
        Some(revision) => {
            let files = listed(&[
                "ls-tree",
                "-r",
                "-z",
                "--name-only",
                "--full-tree",
                revision,
            ])?;
            let exported = Exported::of(revision)?;
            measure(&exported.0, &files)?
        }
    };
    print!(
        "{}",
        if is_json {
            as_json(&sizes)
        } else {
            as_table(&sizes)
        }
    );
    Ok(())
}

fn listed(arguments: &[&str]) -> Outcome<Vec<String>> {
    let output = program("git", arguments)
        .output()
        .map_err(|e| format!("git can't be started: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Temporary folder with the files of a revision; removed on drop.
struct Exported(PathBuf);

impl Exported {
    fn of(revision: &str) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("callboard_size_{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("{} can't be made: {e}", folder.display()))?;
        // From here on, dropping it cleans up.
        let exported = Self(folder);
        let archive = exported
            .0
            .join("archive.tar")
            .to_string_lossy()
            .into_owned();
        listed(&["archive", "--format=tar", "--output", &archive, revision])?;
        let mut unpack = program("tar", &["-xf", &archive, "-C"]);
        let status = unpack
            .arg(&exported.0)
            .status()
            .map_err(|e| format!("tar can't be started: {e}"))?;
        if status.success() {
            Ok(exported)
        } else {
            Err(format!("tar ended with {status}"))
        }
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("{} can't be removed: {e}", self.0.display());
        }
    }
}

/// Measures `files`, whose paths are relative to `folder`.
fn measure(folder: &Path, files: &[String]) -> Outcome<Sizes> {
    let read = |path: &str| {
        fs::read_to_string(folder.join(path)).map_err(|e| format!("{path} can't be read: {e}"))
    };
    let mut crates = BTreeMap::new();
    for path in files.iter().filter(|path| file_name(path) == "Cargo.toml") {
        if let Some(name) = package_name(&read(path)?) {
            crates.insert(parent(path).to_owned(), name);
        }
    }
    let mut sources = BTreeMap::new();
    for path in files
        .iter()
        .filter(|path| path.ends_with(".rs") && !is_test(path))
    {
        let tokens =
            FileTokens::read(&read(path)?).map_err(|e| format!("{path} isn't Rust: {e}"))?;
        sources.insert(path.as_str(), tokens);
    }
    let test_modules: Vec<String> = sources
        .iter()
        .flat_map(|(path, tokens)| test_files(path, tokens))
        .collect();
    let is_test_module = |path: &str| {
        test_modules.iter().any(|module| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    let mut sizes = Sizes::new();
    let mut data: BTreeSet<(String, &str)> = BTreeSet::new();
    for (path, tokens) in sources.iter().filter(|(path, _)| !is_test_module(path)) {
        let row = row(path, &crates);
        sizes.entry(row.clone()).or_default().tokens += tokens.count;
        for pieces in &tokens.included {
            let included = included(path, pieces, files);
            if included.is_empty() {
                return Err(format!(
                    "{path} includes {pieces:?}, which is no file of the repository"
                ));
            }
            data.extend(included.into_iter().map(|file| (row.clone(), file)));
        }
    }
    for (row, file) in data {
        let bytes = fs::metadata(folder.join(file))
            .map_err(|e| format!("{file} can't be read: {e}"))?
            .len();
        sizes.entry(row).or_default().data_bytes += bytes;
    }
    Ok(sizes)
}

/// Returns the Rust files of this work tree outside of test folders.
///
/// # Errors
/// Git can't be run.
pub fn product_files() -> Outcome<Vec<String>> {
    let files = rust_files()?;
    Ok(files.into_iter().filter(|path| !is_test(path)).collect())
}

/// Paths of all Rust sources, tests among them.
pub fn rust_files() -> Outcome<Vec<String>> {
    let files = listed(&["ls-files", "-z"])?;
    Ok(files
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .collect())
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The name in `[package]`; `None` for a workspace without one.
fn package_name(manifest: &str) -> Option<String> {
    let package = manifest
        .lines()
        .skip_while(|line| line.trim() != "[package]")
        .skip(1);
    let mut keys = package
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='));
    keys.find_map(|(key, value)| {
        (key.trim() == "name").then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Returns whether a file is in a test folder.
fn is_test(path: &str) -> bool {
    let name = file_name(path);
    path.split('/').any(|part| part == "tests") || name == "tests.rs" || name.ends_with("_tests.rs")
}

/// Returns the row of a file: its crate, or the crate's examples or benches.
fn row(path: &str, crates: &BTreeMap<String, String>) -> String {
    let mut folder = parent(path);
    while !crates.contains_key(folder) && !folder.is_empty() {
        folder = parent(folder);
    }
    let name = crates.get(folder).map_or("(no crate)", String::as_str);
    let within = path
        .strip_prefix(folder)
        .unwrap_or(path)
        .trim_start_matches('/');
    match within.split_once('/') {
        Some((part @ ("examples" | "benches"), _)) => format!("{name} {part}"),
        _ => name.to_owned(),
    }
}

/// Returns the paths of modules under `#[cfg(test)]`, without extension: each may be a file or a
/// folder.
fn test_files(path: &str, tokens: &FileTokens) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let parts = if ["mod", "lib", "main"].contains(&file_name(stem)) {
        parent(path)
    } else {
        stem
    };
    let file = |(name, given): &(String, Option<String>)| match given {
        Some(given) => joined(parent(path), given)
            .trim_end_matches(".rs")
            .to_owned(),
        None => joined(parts, name),
    };
    tokens.test_modules.iter().map(file).collect()
}

/// Joins a folder and a relative path, resolving `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the files that an `include_str!` in `path` refers to. A macro variable between two
/// literal pieces matches any name.
fn included<'a>(path: &str, pieces: &[String], files: &'a [String]) -> Vec<&'a str> {
    let [first, .., last] = pieces else {
        let target = joined(parent(path), &pieces.concat());
        return files
            .iter()
            .filter(|file| **file == target)
            .map(String::as_str)
            .collect();
    };
    let start = joined(parent(path), first);
    let depth = pieces
        .concat()
        .trim_start_matches("../")
        .matches('/')
        .count();
    let fits = |file: &&String| {
        file.strip_prefix(&start)
            .is_some_and(|rest| rest.ends_with(last.as_str()))
            && file.matches('/').count() == depth
    };
    files.iter().filter(fits).map(String::as_str).collect()
}

/// Returns the sum of the rows for which `counts` is true.
fn sum(sizes: &Sizes, counts: impl Fn(&str) -> bool) -> Size {
    let rows = sizes
        .iter()
        .filter(|(name, _)| counts(name))
        .map(|(_, size)| size);
    rows.fold(Size::default(), |sum, size| Size {
        tokens: sum.tokens + size.tokens,
        data_bytes: sum.data_bytes + size.data_bytes,
    })
}

/// Returns whether a row is part of the product, not an example, bench, fuzz target or task.
fn is_product(row: &str) -> bool {
    row.starts_with("callboard")
        && !row.contains(' ')
        && !["callboard-fuzz", "callboard-kernel-bench"].contains(&row)
}

fn as_table(sizes: &Sizes) -> String {
    let line =
        |name: &str, size: &Size| format!("{name:<32}{:>12}{:>12}\n", size.tokens, size.data_bytes);
    let rows: String = sizes.iter().map(|(name, size)| line(name, size)).collect();
    let (product, all) = (sum(sizes, is_product), sum(sizes, |_| true));
    format!(
        "{:<32}{:>12}{:>12}\n{rows}{}{}",
        "",
        "tokens",
        "data bytes",
        line("product", &product),
        line("total", &all)
    )
}

fn as_json(sizes: &Sizes) -> String {
    let size = |size: &Size| json!({"tokens": size.tokens, "data_bytes": size.data_bytes});
    let rows: serde_json::Map<_, _> = sizes
        .iter()
        .map(|(name, of)| (name.clone(), size(of)))
        .collect();
    let report = json!({"rows": rows, "product": size(&sum(sizes, is_product)), "total": size(&sum(sizes, |_| true))});
    format!("{report:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each file counts in its row, tests in none, data once. Method: a small repository.
    #[test]
    fn rows_are_measured() {
        let folder =
            std::env::temp_dir().join(format!("callboard_size_test_{}", std::process::id()));
        let files = [
            (
                "Cargo.toml",
                "[workspace]\n[package]\nname = \"callboard\"\n[lib]\nname = \"x\"\n",
            ),
            (
                "src/lib.rs",
                "//! Doc.\n#[cfg(test)] mod checks; mod a; const A: &str = include_str!(\"a.txt\");",
            ),
            (
                "src/a.rs",
                "const A: &str = include_str!(\"a.txt\"); const B: &str = include_str!(concat!(\"../\", n, \"/b.txt\"));",
            ),
            ("src/a.txt", "12345"),
            ("data/b.txt", "1234567"),
            ("src/checks.rs", "mod more;"),
            ("src/checks/more.rs", "struct A;"),
            ("src/a/tests.rs", "struct A;"),
            ("tests/it.rs", "struct A;"),
            ("examples/e.rs", "fn main() {}"),
            ("actors/b/Cargo.toml", "[package]\nname = \"callboard-b\""),
            ("actors/b/src/lib.rs", "struct B;"),
            ("xtask/Cargo.toml", "[package]\nname = \"xtask\""),
            ("xtask/src/main.rs", "fn main() {}"),
        ];
        for (path, text) in files {
            fs::create_dir_all(folder.join(parent(path))).unwrap();
            fs::write(folder.join(path), text).unwrap();
        }
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let sizes = measure(&folder, &paths);
        fs::remove_dir_all(&folder).unwrap();
        let sizes = sizes.unwrap();
        let size = |tokens, data_bytes| Size { tokens, data_bytes };
        let expected = [
            ("callboard", size(3 + 12 + 12 + 20, 12)),
            ("callboard examples", size(6, 0)),
            ("callboard-b", size(3, 0)),
            ("xtask", size(6, 0)),
        ];
        assert_eq!(
            sizes,
            expected.map(|(name, size)| (name.to_owned(), size)).into()
        );
        assert_eq!(sum(&sizes, is_product), size(50, 12));
        assert_eq!(sum(&sizes, |_| true), size(62, 12));
    }
}
