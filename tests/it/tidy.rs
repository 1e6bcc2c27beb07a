//! The repository's rules, held by a test. Each rule is a function from files to complaints, so that the rules
//! themselves can be tried on files that break them.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use walkdir::WalkDir;

/// Which of our crates a crate may depend on. The vocabulary (`message`, `macros`) comes along with the runtime. A new
/// arrow is a design change: ARCHITECTURE.md says why in the same commit.
const ARROWS: &[(&str, &[&str])] = &[
    ("callboard-message", &[]),
    ("callboard-macros", &[]),
    (
        "callboard-runtime",
        &["callboard-macros", "callboard-message"],
    ),
    (
        "callboard-clinics",
        &[
            "callboard-guardrail",
            "callboard-macros",
            "callboard-message",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-gateway",
        &[
            "callboard-macros",
            "callboard-message",
            "callboard-models",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-guardrail",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    (
        "callboard-mailroom",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    (
        "callboard-models",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    (
        "callboard-person",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    (
        "callboard-orchestration",
        &[
            "callboard-guardrail",
            "callboard-macros",
            "callboard-message",
            "callboard-models",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-store",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    ("callboard-rpc", &["callboard-message"]),
    (
        "callboard-mcp",
        &[
            "callboard-macros",
            "callboard-message",
            "callboard-rpc",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-a2a",
        &[
            "callboard-macros",
            "callboard-message",
            "callboard-rpc",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-mail",
        &[
            "callboard-macros",
            "callboard-message",
            "callboard-rpc",
            "callboard-runtime",
        ],
    ),
    (
        "callboard-kernel-bench",
        &["callboard-macros", "callboard-message", "callboard-runtime"],
    ),
    (
        "callboard-fuzz",
        &[
            "callboard-a2a",
            "callboard-message",
            "callboard-rpc",
            "callboard-store",
        ],
    ),
    ("a2a-rust-peer", &[]),
    ("sqlite-direct", &[]),
    ("xtask", &[]),
];
/// The root package: it may depend on all of ours.
const ROOT: &str = "callboard";
/// The only crate on actix.
const ON_ACTIX: &str = "callboard-runtime";
/// Crate in which actix is a contestant.
const BESIDE_ACTIX: &str = "callboard-kernel-bench";
/// Folders that may name actix: the runtime, and the bench in which it is a contestant.
const ACTIX_NAMED_IN: &[&str] = &["actors/runtime/", "benches/kernel/contest/"];

/// Longest Rust file, in lines.
const FILE_LINES_MAX: usize = 800;
/// Longest example that is one file, in lines: people read it first. Programs in folders of their own are as all others.
const EXAMPLE_LINES_MAX: usize = 60;
/// Endings of text files that are searched for paths that only one machine has.
const TEXT: &[&str] = &[
    "rs", "toml", "md", "json", "yaml", "yml", "sql", "html", "sh", "py", "mjs",
];

/// A file of the repository: path from the root with `/`, and text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A crate of the workspace, or beside it.
struct Manifest {
    name: String,
    table: Table,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn files(wanted: impl Fn(&Path) -> bool) -> Vec<File> {
    let hidden_or_built = |name: &str| {
        (name.starts_with('.') && name != ".ci" && name != ".cargo") || name == "target"
    };
    let walk = WalkDir::new(root()).sort_by_file_name().into_iter();
    walk.filter_entry(|entry| {
        entry.depth() == 0 || !hidden_or_built(&entry.file_name().to_string_lossy())
    })
    .map(|entry| entry.unwrap().into_path())
    .filter(|path| path.is_file() && wanted(path))
    .map(|path| File {
        text: fs::read_to_string(&path).unwrap(),
        path: from_root(&path),
    })
    .collect()
}

fn from_root(path: &Path) -> String {
    let parts = path
        .strip_prefix(root())
        .unwrap()
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    parts.collect::<Vec<_>>().join("/")
}

fn ends_with(path: &Path, endings: &[&str]) -> bool {
    path.extension()
        .is_some_and(|ending| endings.iter().any(|e| *e == ending))
}

pub(crate) fn rust_files() -> Vec<File> {
    let files = files(|path| ends_with(path, &["rs"]));
    assert!(
        files.iter().any(|file| file.path == "tests/it/tidy.rs"),
        "the walk misses files"
    );
    files
}

fn manifests() -> Vec<Manifest> {
    let manifest = |path: PathBuf| {
        let table: Table = fs::read_to_string(path).unwrap().parse().unwrap();
        let name = table["package"]["name"].as_str().unwrap().to_owned();
        Manifest { name, table }
    };
    let paths = files(|path| path.file_name().is_some_and(|name| name == "Cargo.toml"));
    let manifests: Vec<_> = paths
        .into_iter()
        .map(|file| manifest(root().join(file.path)))
        .collect();
    assert!(
        manifests.iter().any(|manifest| manifest.name == ON_ACTIX),
        "the walk misses crates"
    );
    manifests
}

/// Names under `[dependencies]`, `[dev-dependencies]` or `[build-dependencies]`, for any target.
fn dependencies<'a>(table: &'a Table, section: &'a str) -> Vec<&'a str> {
    let targets = table.get("target").and_then(|targets| targets.as_table());
    let tables = targets
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(|target| target.as_table()));
    let sections = std::iter::once(table)
        .chain(tables)
        .filter_map(move |table| table.get(section)?.as_table());
    sections
        .flat_map(|section| section.keys().map(String::as_str))
        .collect()
}

fn wrong_arrows(manifests: &[Manifest]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Manifest { name, table } in manifests.iter().filter(|manifest| manifest.name != ROOT) {
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| from == name) else {
            wrong.push(format!(
                "{name} has no arrows: add it to ARROWS and to ARCHITECTURE.md"
            ));
            continue;
        };
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let ours = dependencies(table, section)
                .into_iter()
                .filter(|to| to.starts_with(ROOT));
            let forbidden = ours.filter(|to| !allowed.contains(to) && *to != name);
            wrong.extend(
                forbidden
                    .map(|to| format!("{name} → {to} in [{section}] is no arrow of the design")),
            );
        }
    }
    wrong
}

fn crates_on_actix(manifests: &[Manifest]) -> Vec<String> {
    let elsewhere = manifests
        .iter()
        .filter(|manifest| ![ON_ACTIX, BESIDE_ACTIX].contains(&&*manifest.name));
    let on_actix = elsewhere
        .filter(|manifest| dependencies(&manifest.table, "dependencies").contains(&"actix"));
    on_actix
        .map(|manifest| format!("{} depends on actix; only {ON_ACTIX} may", manifest.name))
        .collect()
}

fn files_naming_actix(files: &[File]) -> Vec<String> {
    let names_it = |line: &str| {
        let is_start = |at: usize| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"')
        };
        line.match_indices("actix::").any(|(at, _)| is_start(at))
    };
    let elsewhere = files.iter().filter(|file| {
        !ACTIX_NAMED_IN
            .iter()
            .any(|place| file.path.starts_with(place))
    });
    let code = elsewhere.filter(|file| {
        file.text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && names_it(line))
    });
    code.map(|file| {
        format!(
            "{} names the actix crate; only actors/runtime may",
            file.path
        )
    })
    .collect()
}

fn too_long(files: &[File]) -> Vec<String> {
    let most = |path: &str| {
        let is_example = path
            .strip_prefix("examples/")
            .is_some_and(|name| !name.contains('/'));
        if is_example {
            EXAMPLE_LINES_MAX
        } else {
            FILE_LINES_MAX
        }
    };
    let long = files
        .iter()
        .map(|file| (&file.path, file.text.lines().count(), most(&file.path)));
    let long = long.filter(|(_, lines, most)| lines > most);
    long.map(|(path, lines, most)| {
        format!("{path} has {lines} lines, {most} are allowed: split it")
    })
    .collect()
}

/// Whether it stands outside the workspace, which it can't inherit from.
fn is_apart(Manifest { name, table }: &Manifest) -> bool {
    name != ROOT && table.contains_key("workspace")
}

/// `lints` are the workspace's: taken from it, or word for word by a crate that can't.
fn without_lints(manifests: &[Manifest], lints: &Value) -> Vec<String> {
    let inherits = |table: &Table| {
        table
            .get("lints")
            .and_then(|lints| lints.get("workspace")?.as_bool())
            == Some(true)
    };
    let (apart, within): (Vec<_>, Vec<_>) =
        manifests.iter().partition(|manifest| is_apart(manifest));
    let without = within
        .into_iter()
        .filter(|manifest| !inherits(&manifest.table));
    let without =
        without.map(|manifest| format!("{} lacks `[lints] workspace = true`", manifest.name));
    let others = apart
        .into_iter()
        .filter(|manifest| manifest.table.get("lints") != Some(lints));
    without
        .chain(
            others.map(|manifest| format!("{} has other lints than the workspace", manifest.name)),
        )
        .collect()
}

/// Paths that lead out of the repository, spelled so that this file doesn't hold them.
fn leading_out(files: &[File]) -> Vec<String> {
    let outside = [
        concat!("../", "shared"),
        concat!("/work", "/"),
        concat!("/root", "/"),
    ];
    let mut found = Vec::new();
    for file in files {
        let here = outside.iter().filter(|path| file.text.contains(*path));
        found.extend(here.map(|path| format!("{} names {path}, which nobody else has", file.path)));
    }
    found
}

/// Crates whose lines outside input can cause: they log within limits.
const LOG_WITHIN_LIMITS: [&str; 2] = ["actors/", "protocols/"];
/// Files there that log without: the limits themselves, and audit and access log, of which every entry is a line.
const LOG_WITHOUT_LIMITS: [&str; 3] = [
    "actors/runtime/src/access_log.rs",
    "actors/message/src/log.rs",
    "actors/runtime/src/store/audit_log.rs",
];

fn logs_without_limit(files: &[File]) -> Vec<String> {
    let macros =
        ["error", "warn", "info", "debug"].map(|level| format!("{}::{level}!(", "tracing"));
    let is_within = |path: &str| {
        LOG_WITHIN_LIMITS
            .iter()
            .any(|place| path.starts_with(place))
            && path.contains("/src/")
    };
    let within = files
        .iter()
        .filter(|file| is_within(&file.path) && !LOG_WITHOUT_LIMITS.contains(&&*file.path));
    let without = within.filter(|file| macros.iter().any(|name| file.text.contains(name)));
    without
        .map(|file| {
            format!(
                "{} logs without a limit: use callboard_message::log",
                file.path
            )
        })
        .collect()
}

/// Messages of ours that take their name on a wire from their type, which may be renamed.
fn unnamed_messages(files: &[File]) -> Vec<String> {
    // Protobuf's have the same name.
    let is_ours = |file: &&File| !file.text.contains("use prost::Message;");
    let is_code = |file: &&File| file.path.contains("src/") && !file.path.contains("test");
    let mut unnamed = Vec::new();
    for file in files.iter().filter(is_ours).filter(is_code) {
        let code = file
            .text
            .split("\n#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let derives = line
                .strip_prefix("#[derive(")
                .and_then(|list| list.strip_suffix(")]"));
            if !derives.is_some_and(|list| list.split(", ").any(|name| name == "Message")) {
                continue;
            }
            let mut attributes = lines
                .by_ref()
                .take_while(|line| line.starts_with("#[") || line.starts_with("//"));
            if !attributes.any(|line| line.starts_with("#[message(name = \"")) {
                unnamed.push(format!(
                    "{} has a message without `#[message(name = \"…\")]`",
                    file.path
                ));
            }
        }
    }
    unnamed
}

#[track_caller]
pub(crate) fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn manifest(text: &str) -> Manifest {
    let table: Table = text.parse().unwrap();
    Manifest {
        name: table["package"]["name"].as_str().unwrap().to_owned(),
        table,
    }
}

pub(crate) fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// Goal: crates depend on one another as the design draws it. Method: read every Cargo.toml.
#[test]
fn arrows_are_those_of_the_design() {
    none(wrong_arrows(&manifests()));
}

/// Goal: only the runtime knows what hosts the agents. Method: dependencies and source lines of all others.
#[test]
fn only_the_runtime_is_on_actix() {
    none(crates_on_actix(&manifests()));
    none(files_naming_actix(&rust_files()));
}

/// Goal: a file can be read in one sitting, an example at a glance. Method: count lines.
#[test]
fn files_are_short() {
    none(too_long(&rust_files()));
}

/// Goal: no crate opts out of the lints. Method: every Cargo.toml takes the workspace's, or has the same, and they
/// forbid unsafe code.
#[test]
fn lints_hold_everywhere() {
    let manifests = manifests();
    let root = manifests
        .iter()
        .find(|manifest| manifest.name == ROOT)
        .unwrap();
    let lints = &root.table["workspace"]["lints"];
    none(without_lints(&manifests, lints));
    assert_eq!(lints["rust"]["unsafe_code"].as_str(), Some("forbid"));
}

/// Goal: no peer can fill the disk through the log. Method: search the crates that face peers for macros without a limit.
#[test]
fn log_lines_are_limited() {
    none(logs_without_limit(&rust_files()));
}

/// Goal: a name on a wire doesn't change with a type's. Method: each message of our crates says its own.
#[test]
fn messages_are_named() {
    none(unnamed_messages(&rust_files()));
}

/// Goal: a clone is complete. Method: search all text files for paths out of it.
#[test]
fn nothing_leads_out_of_the_repository() {
    none(leading_out(&files(|path| ends_with(path, TEXT))));
}

/// Goal: the rules see what breaks them. Method: one offender a rule, beside one that only looks like it.
#[test]
fn rules_catch_offenders() {
    let crates = [
        "[package]\nname = \"callboard-mcp\"\n[dependencies]\ncallboard-a2a.workspace = true\nactix = \"0.13\"",
        "[package]\nname = \"callboard-rpc\"\n[target.'cfg(unix)'.dev-dependencies]\ncallboard-runtime = \"1\"",
        "[package]\nname = \"callboard-rpc\"\n[dependencies]\ncallboard-message = \"1\"\n[lints]\nworkspace = true",
        "[package]\nname = \"callboard-new\"",
    ];
    let crates = crates.map(manifest);
    assert_eq!(wrong_arrows(&crates).len(), 3);
    assert_eq!(crates_on_actix(&crates).len(), 1);
    let lints: Table = "[rust]\nunsafe_code = \"forbid\"".parse().unwrap();
    let lints = Value::Table(lints);
    assert_eq!(without_lints(&crates, &lints).len(), 3);
    let same = "[package]\nname = \"apart\"\n[workspace]\n[lints.rust]\nunsafe_code = \"forbid\"";
    let laxer = "[package]\nname = \"laxer\"\n[workspace]\n[lints.rust]\nunsafe_code = \"warn\"";
    let apart = [manifest(same), manifest(laxer)];
    assert_eq!(
        without_lints(&apart, &lints),
        ["laxer has other lints than the workspace"]
    );

    let files = [
        file(
            "src/a.rs",
            concat!("fn f() { act", "ix::spawn(async {}); }"),
        ),
        file(
            "src/b.rs",
            concat!(
                "// like act",
                "ix::spawn\nuse actix_web::web; use my_actix::x;"
            ),
        ),
        file("actors/runtime/src/c.rs", concat!("use act", "ix::Actor;")),
        file("examples/d.rs", &"\n".repeat(EXAMPLE_LINES_MAX + 1)),
        file("examples/d/main.rs", &"\n".repeat(EXAMPLE_LINES_MAX + 1)),
        file("src/e.rs", &"\n".repeat(FILE_LINES_MAX)),
        file("src/f.rs", &"\n".repeat(FILE_LINES_MAX + 1)),
        file(
            "protocols/mcp/src/g.rs",
            concat!("fn f() { trac", "ing::warn!(\"x\"); }"),
        ),
        file(
            "protocols/mcp/tests/it/h.rs",
            concat!("fn f() { trac", "ing::warn!(\"x\"); }"),
        ),
        file("README.md", concat!("see ../", "shared/notes.md")),
    ];
    assert_eq!(
        files_naming_actix(&files),
        ["src/a.rs names the actix crate; only actors/runtime may"]
    );
    assert_eq!(too_long(&files).len(), 2);

    assert_eq!(leading_out(&files).len(), 1);
    assert_eq!(logs_without_limit(&files).len(), 1);

    let files = [
        file(
            "src/a.rs",
            "#[derive(Clone, Message)]\n#[message(reply = u32)]\nstruct A;",
        ),
        file(
            "actors/b/src/b.rs",
            "#[derive(Message)]\nstruct B;\n#[derive(Message)]\n#[message(name = \"b\")]\nstruct C;",
        ),
        file(
            "src/c.rs",
            "struct C;\n#[cfg(test)]\nmod tests {\n#[derive(Message)]\nstruct D;\n}",
        ),
        file("examples/d.rs", "#[derive(Message)]\nstruct D;"),
    ];
    assert_eq!(unnamed_messages(&files).len(), 2);
}
