//! Rules of language for names, doc comments and commit subjects (CONTRIBUTING.md, "Language").
//! Each rule is a function from sources to complaints, and each is tried on an offender.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::tidy::{File, none, rust_files};

/// Type names that state no role: participles, pronouns and household words.
const DENIED_TYPES: &[&str] = &[
    "Admitted",
    "Again",
    "Answering",
    "Aside",
    "Asides",
    "Asked",
    "Badge",
    "Begun",
    "Behind",
    "Bell",
    "Bells",
    "CallMeta",
    "Cast",
    "Crossing",
    "Cx",
    "Desk",
    "Door",
    "Doubt",
    "Duty",
    "Ear",
    "Entrance",
    "Errand",
    "Flights",
    "Front",
    "Gone",
    "Got",
    "Handed",
    "Head",
    "Heard",
    "Hearing",
    "Held",
    "Here",
    "Hub",
    "Kept",
    "Left",
    "Letter",
    "Line",
    "Mark",
    "Means",
    "Mirror",
    "News",
    "Notes",
    "Offer",
    "Passing",
    "Place",
    "Posed",
    "Prints",
    "Reach",
    "Rest",
    "Ringer",
    "Room",
    "Said",
    "Seen",
    "Served",
    "Shown",
    "Sieve",
    "Standing",
    "Story",
    "Surface",
    "Talk",
    "Talks",
    "Told",
    "Trouble",
    "Visitor",
    "What",
    "Who",
    "Wish",
    "Work",
    "World",
];
/// File names that state no content.
const DENIED_FILES: &[&str] = &[
    "bell",
    "cast",
    "desk",
    "ear",
    "elsewhere",
    "errand",
    "farewell",
    "hub",
    "keeper",
    "look",
    "marks",
    "mirror",
    "notes",
    "once",
    "orderly",
    "parked",
    "said",
    "seal",
    "spread",
    "stopped",
    "story",
    "surroundings",
    "visits",
    "who",
    "words",
];
/// First words of a doc comment that make its sentence depend on the item above it.
const DENIED_OPENINGS: &[&str] = &[
    "What",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Where",
    "How often",
    "How long",
    "How much",
    "How many",
];
/// Longest subject of a commit, in characters.
const SUBJECT_CHARS_MAX: usize = 72;

/// Lines of a file that declare something that isn't a deprecated alias.
fn current_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    text.lines().filter(move |line| {
        let is_alias = before.starts_with("#[deprecated");
        before = *line;
        !is_alias
    })
}

/// Name that a line declares as a struct, an enum, a trait or an alias, and whether it is `pub`.
fn declared_type(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let (line, is_public) = match line.strip_prefix("pub ") {
        Some(rest) => (rest, true),
        None if line.starts_with("pub(") => (line.split_once(") ")?.1, false),
        None => (line, false),
    };
    let rest = ["struct ", "enum ", "trait ", "type "]
        .iter()
        .find_map(|kind| line.strip_prefix(kind))?;
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    // A macro's `$name` is none.
    (end > 0).then_some((&rest[..end], is_public))
}

fn is_test(path: &str) -> bool {
    path.contains("tests") || path.starts_with("benches/") || path.starts_with("examples/")
}

fn denied_types(files: &[File]) -> Vec<String> {
    let files = files.iter().filter(|file| !is_test(&file.path));
    let declared = files
        .flat_map(|file| current_lines(&file.text).map(move |line| (file, declared_type(line))));
    let denied = declared
        .filter_map(|(file, name)| Some((file, name?.0)))
        .filter(|(_, name)| DENIED_TYPES.contains(name));
    denied
        .map(|(file, name)| {
            format!(
                "{}: type `{name}` states no role: name it by the field's noun",
                file.path
            )
        })
        .collect()
}

fn denied_files(files: &[File]) -> Vec<String> {
    let stem = |path: &str| {
        Path::new(path)
            .file_stem()
            .is_some_and(|stem| DENIED_FILES.iter().any(|name| stem == *name))
    };
    let denied = files
        .iter()
        .filter(|file| !is_test(&file.path) && stem(&file.path));
    denied
        .map(|file| format!("{}: the file's name states no content", file.path))
        .collect()
}

/// Public types of different files with one name, types within a macro's braces included. A type in a test isn't
/// public.
fn shared_names(files: &[File]) -> Vec<String> {
    let mut places = BTreeMap::<&str, Vec<&str>>::new();
    for file in files.iter().filter(|file| {
        ["src/", "actors/", "protocols/"]
            .iter()
            .any(|of| file.path.starts_with(of))
            && !is_test(&file.path)
    }) {
        let code = file
            .text
            .split("#[cfg(test)]\nmod ")
            .next()
            .unwrap_or_default();
        // Types within a macro of the crate are indented.
        let declared = current_lines(code).filter_map(declared_type);
        for (name, _) in declared.filter(|(_, is_public)| *is_public) {
            let places = places.entry(name).or_default();
            if places.last() != Some(&file.path.as_str()) {
                places.push(&file.path);
            }
        }
    }
    let shared = places.into_iter().filter(|(_, files)| files.len() > 1);
    shared
        .map(|(name, files)| format!("`{name}` names public types in {}", files.join(" and ")))
        .collect()
}

fn denied_openings(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let mut is_within = false;
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line
                .strip_prefix("/// ")
                .or_else(|| line.strip_prefix("//! "));
            let opening = text.filter(|_| !is_within).and_then(|text| {
                DENIED_OPENINGS.iter().find(|opening| {
                    text.strip_prefix(**opening)
                        .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                })
            });
            if let Some(opening) = opening {
                found.push(format!(
                    "{}:{}: begins with `{opening}`: begin with a noun or a verb",
                    file.path,
                    number + 1
                ));
            }
            is_within = line.starts_with("///") || line.starts_with("//!");
        }
    }
    found
}

/// Subjects that aren't `area: imperative summary`.
fn wrong_subjects<'a>(subjects: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_area = |area: &str| {
        !area.is_empty()
            && area
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || " ,/_-".contains(c))
    };
    let is_imperative = |summary: &str| {
        let verb = summary.split(' ').next().unwrap_or_default();
        let past = verb.ends_with("ed")
            && !["embed", "feed", "need", "seed", "shed", "speed"].contains(&verb);
        !past
            && !verb.ends_with("ing")
            && !summary.ends_with('.')
            && summary.starts_with(char::is_alphanumeric)
    };
    let is_right = |subject: &str| {
        subject.chars().count() <= SUBJECT_CHARS_MAX
            && subject
                .split_once(": ")
                .is_some_and(|(area, summary)| is_area(area) && is_imperative(summary))
    };
    let wrong = subjects.filter(|subject| !is_right(subject));
    wrong.map(|subject| format!("commit `{subject}` isn't `area: imperative summary` of up to {SUBJECT_CHARS_MAX} characters")).collect()
}

/// Standard output of git in the repository; `None` outside a clone.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Goal: a name says what a type or a file is for. Method: search for names that were used for everything.
#[test]
fn names_state_a_role() {
    let files = rust_files();
    none(denied_types(&files));
    none(denied_files(&files));
}

/// Goal: one public name, one type. Method: count declarations in all crates.
#[test]
fn public_types_have_names_of_their_own() {
    none(shared_names(&rust_files()));
}

/// Goal: a doc comment stands alone. Method: look at the first words of each.
#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    none(denied_openings(&rust_files()));
}

/// Goal: the history can be read by area. Method: check the subjects since this rule was added.
#[test]
fn commit_subjects_name_area_and_change() {
    let added = git(&[
        "log",
        "--diff-filter=A",
        "--format=%H",
        "--",
        "tests/it/language.rs",
    ]);
    let Some(added) = added.as_deref().and_then(|commits| commits.lines().last()) else {
        return println!("no history here: subjects aren't checked");
    };
    let subjects = git(&[
        "log",
        "--no-merges",
        "--format=%s",
        &format!("{added}..HEAD"),
    ])
    .unwrap();
    none(wrong_subjects(subjects.lines()));
}

/// Goal: the rules see what breaks them. Method: one offender a rule, beside one that only looks like it.
#[test]
fn rules_of_language_catch_offenders() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let files = [
        file(
            "actors/a/src/words.rs",
            concat!(
                "/// Wh",
                "at it is.\n/// What follows is free.\npub struct Session;\n"
            ),
        ),
        file(
            "actors/b/src/format.rs",
            concat!(
                "    pub(super) struct Sa",
                "id<'a>(&'a str);\nwire! {\n    pub enum Session {}\n}\n/// Whatever else.\n"
            ),
        ),
        file(
            "actors/b/src/wire.rs",
            "pub struct Saidly;\n#[deprecated(note = \"renamed\")]\npub type Said = Saidly;\n#[cfg(test)]\nmod tests {\npub struct Session;\n}\n",
        ),
        file("actors/b/tests/it.rs", "pub struct Session;\n"),
    ];
    assert_eq!(denied_types(&files).len(), 1);
    assert_eq!(denied_files(&files).len(), 1);
    assert_eq!(
        shared_names(&files),
        ["`Session` names public types in actors/a/src/words.rs and actors/b/src/format.rs"]
    );
    assert_eq!(denied_openings(&files).len(), 1);
    let right = [
        "mcp, a2a: keep a token",
        "docs: embed the picture",
        "actors/store: write `a: b` apart",
    ];
    assert!(wrong_subjects(right.into_iter()).is_empty());
    let long = format!("store: {}", "a".repeat(SUBJECT_CHARS_MAX - 6));
    let wrong = [
        "Keep a token",
        "mcp: kept a token that works, fixed",
        "mcp: adding a token",
        "mcp: Said.",
        "MCP: keep",
        &long,
    ];
    assert_eq!(
        wrong_subjects(wrong.into_iter()).len(),
        5,
        "past tenses other than -ed pass"
    );
}
