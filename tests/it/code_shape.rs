//! Rules for the shape of code: length of functions, dispatch that can be found by reading, and types whose functions lie
//! together. Each rule is a function from sources to complaints, and each is tried on an offender.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{File, file, none, rust_files};

/// Longest function of a product crate, in lines from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 80;
/// Largest number of files that the inherent `impl` blocks of one type lie in.
const IMPL_FILES_MAX: usize = 3;
/// Types with more, as crate folder and name, with the reason. A new one fails, and so does one that has fewer again.
const SPREAD_TYPES: &[(&str, &str, &str)] = &[(
    "actors/runtime",
    "AgentCell",
    "The mailbox kernel: the steps of a turn lie beside the state that they change.",
)];

/// Functions over [`FUNCTION_LINES_MAX`] in the files of product crates, tests left out. The code is formatted, so a
/// function ends at the brace that is indented as its signature is.
fn long_functions(files: &[File]) -> Vec<String> {
    let is_product = |path: &str| {
        let in_tests = path.contains("/tests/") || path.ends_with("tests.rs");
        ["src/", "actors/", "protocols/"]
            .iter()
            .any(|folder| path.starts_with(folder))
            && !in_tests
    };
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| is_product(&file.path)) {
        let lines = lines_without_tests(&file.text);
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = lines[at..].iter().position(|line| {
                let rest = line.strip_prefix(indent).unwrap_or_default();
                rest == "}" || (!rest.starts_with(' ') && rest.ends_with([';', '}']))
            });
            let length = end.map_or(1, |end| end + 1);
            if length > FUNCTION_LINES_MAX {
                wrong.push(format!(
                    "{}:{}: {name} has {length} lines, {FUNCTION_LINES_MAX} are allowed: split it",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    wrong
}

/// Lines of a file, those of its test modules empty. The code is formatted, so such a module ends at a brace that isn't
/// indented.
fn lines_without_tests(text: &str) -> Vec<&str> {
    let (mut in_tests, mut is_next) = (false, false);
    text.lines()
        .map(|line| {
            in_tests |= is_next && line.starts_with("mod ") && line.ends_with('{');
            is_next = line == "#[cfg(test)]";
            let kept = if in_tests { "" } else { line };
            in_tests &= line != "}";
            kept
        })
        .collect()
}

/// Macros of product crates that implement handlers of agents: which message goes where must be found by reading and by
/// searching.
fn dispatching_macros(files: &[File]) -> Vec<String> {
    let is_product = |path: &str| {
        ["src/", "actors/", "protocols/"]
            .iter()
            .any(|folder| path.starts_with(folder))
            && path.contains("src/")
            && !path.starts_with("actors/macros/")
            && !path.contains("/tests/")
            && !path.ends_with("tests.rs")
    };
    let dispatches = |file: &&File| {
        let lines = lines_without_tests(&file.text);
        let mut bodies = lines.split(|line| line.trim_start().starts_with("macro_rules!"));
        // Before the first macro.
        bodies.next();
        bodies.any(|body| {
            let body = body.iter().take_while(|line| !line.starts_with('}'));
            body.filter(|line| line.contains("impl"))
                .any(|line| line.contains("Handler<$"))
        })
    };
    let found = files.iter().filter(|file| is_product(&file.path));
    found
        .filter(dispatches)
        .map(|file| {
            format!(
                "{} has a macro that implements handlers: write the implementations, or one for a trait of the messages",
                file.path
            )
        })
        .collect()
}

/// Types of product crates whose inherent `impl` blocks lie in more than [`IMPL_FILES_MAX`] files, as crate folder and name, with
/// the files. A file's own tests don't count.
fn spread_types(files: &[File]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for File { path, text } in files {
        let Some((folder, inside)) = path
            .split_once("/src/")
            .or_else(|| path.strip_prefix("src/").map(|inside| ("", inside)))
        else {
            continue;
        };
        let is_test = |part: &str| part == "tests" || part.ends_with("tests.rs");
        if inside.split('/').any(is_test) {
            continue;
        }
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for name in code.lines().filter_map(inherent_type) {
            found
                .entry((folder.to_owned(), name.to_owned()))
                .or_default()
                .insert(path.clone());
        }
    }
    found.retain(|_, files| files.len() > IMPL_FILES_MAX);
    found
}

/// The type of an inherent `impl` block that begins in this line; `None` for other lines and for a trait's.
fn inherent_type(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if let Some(generics) = rest.strip_prefix('<') {
        let mut depth = 1;
        let end = generics.find(|c| {
            depth += match c {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            depth == 0
        })?;
        rest = &generics[end + 1..];
    }
    let rest = rest.strip_prefix(' ')?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
    let name = name.rsplit("::").next().unwrap_or(name);
    (!line.contains(" for ") && !name.is_empty() && name != "dyn").then_some(name)
}

/// Name of the function whose signature begins on the line.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_signature = before.split_whitespace().all(|word| {
        ["pub", "const", "async", "unsafe", "extern"].contains(&word) || word.starts_with("pub(")
    });
    let name = after.split(['(', '<']).next()?;
    is_signature.then_some(name)
}

/// Goal: a function can be read on one screen. Method: count lines from signature to closing brace.
#[test]
fn functions_are_short() {
    none(long_functions(&rust_files()));
}

/// Goal: who handles a message is found by reading. Method: search the macros of product crates for implementations of
/// handlers.
#[test]
fn no_macro_hides_dispatch() {
    none(dispatching_macros(&rust_files()));
}

/// Goal: an object has its functions in one place, so that it can be read as a whole. Method: the files of each type's inherent
/// `impl` blocks, but for the listed ones.
#[test]
fn impls_stay_together() {
    let spread = spread_types(&rust_files());
    let listed: BTreeSet<_> = SPREAD_TYPES
        .iter()
        .map(|(folder, name, _)| ((*folder).to_owned(), (*name).to_owned()))
        .collect();
    let new = spread.iter().filter(|(of, _)| !listed.contains(of));
    let new = new.map(|((folder, name), files)| {
        format!("{name} of {folder} has its impl in {} files, {IMPL_FILES_MAX} are the limit: {files:?}", files.len())
    });
    let gone = listed.iter().filter(|of| !spread.contains_key(of));
    let gone = gone.map(|(folder, name)| format!("{name} of {folder} keeps the limit: unlist it"));
    none(new.chain(gone).collect());
}

/// Goal: the rules see what breaks them. Method: one offender a rule, beside one that only looks like it.
#[test]
fn rules_of_shape_catch_offenders() {
    let function = |head: &str, lines: usize| {
        let body = "        x();\n".repeat(lines - 2);
        format!("    {head} {{\n{body}    }}\n    fn next();\n")
    };
    let long = function("pub(crate) async fn g<T>(&self)", FUNCTION_LINES_MAX + 1);
    let functions = [
        file("src/a.rs", &function("fn f()", FUNCTION_LINES_MAX)),
        file("actors/b/src/b.rs", &long),
        file(
            "actors/b/src/c.rs",
            &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"),
        ),
        file("actors/b/tests/it/d.rs", &long),
        // Tests in a file of their own, or before other code, hide nothing.
        file(
            "actors/b/src/e.rs",
            &format!("#[cfg(test)]\nmod tests;\n\n{long}"),
        ),
        file(
            "actors/b/src/f.rs",
            &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n\n{long}"),
        ),
    ];
    let named = [("b", 1), ("e", 4), ("f", 87)].map(|(file, line)| {
        format!("actors/b/src/{file}.rs:{line}: g has 81 lines, 80 are allowed: split it")
    });
    assert_eq!(long_functions(&functions), named);

    let hiding = "macro_rules! handles {\n    ($m:ty) => {\n        impl ConcurrentHandler<$m> for A {}\n    };\n}\n";
    let other = "macro_rules! named {\n    ($m:ty) => {\n        impl Named for $m {}\n    };\n}\nimpl Handler<M> for A {}\n";
    let macros = [
        file("actors/b/src/a.rs", hiding),
        file("actors/b/src/b.rs", other),
        file("actors/b/src/c.rs", hiding),
        file("actors/b/tests/it/d.rs", hiding),
        file("actors/b/src/tests.rs", hiding),
        file("actors/macros/src/e.rs", hiding),
    ];
    let complaints = dispatching_macros(&macros);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].starts_with("actors/b/src/a.rs has a macro"));
    assert!(complaints[1].starts_with("actors/b/src/c.rs has a macro"));

    let mut files: Vec<_> = (0..=IMPL_FILES_MAX)
        .map(|n| {
            let text = match n {
                0 => {
                    "impl<T: Into<u8>> wide::Wide<T> {\n}\nimpl Narrow {}\nimpl Clone for Narrow {}"
                }
                1 => "impl Wide<u8> {}\nimpl Narrow {}\nimpl dyn Open {}",
                2 => "impl Wide<u8>\nwhere\n    u8: Copy,\n{}\nimpl Narrow {}",
                _ => "impl Wide<u8> {}\n#[cfg(test)]\nmod tests {\nimpl Narrow {}\n}",
            };
            file(&format!("actors/b/src/a{n}.rs"), text)
        })
        .collect();
    files.push(file("actors/c/src/a.rs", "impl Narrow {}"));
    files.push(file("actors/b/src/tests/a.rs", "impl Narrow {}"));
    let spread = spread_types(&files);
    let spread: Vec<_> = spread
        .keys()
        .map(|(folder, name)| (&**folder, &**name))
        .collect();
    assert_eq!(spread, [("actors/b", "Wide")]);
}
