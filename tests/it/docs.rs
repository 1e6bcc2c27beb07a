//! Commands, files, programs and links of the documentation exist. Each rule is a function from a page to complaints, and
//! each is tried on an offender.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;
use std::{fs, mem};

use callboard::cli::Arguments;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use toml::{Table, Value};

use crate::certificates::Authority;
use crate::kit::Home;
use crate::tidy::{File, file, files, none, root};

const SUMMARY: &str = "docs/SUMMARY.md";
/// Source whose tests compile the `rust` blocks of the pages that it includes.
const GUIDE: &str = "src/guide.rs";
/// First line of a `toml` block that is a whole topology file.
const TOPOLOGY: &str = "# topology.toml\n";
/// Names of the binary. In docs/operations/upgrade.md two versions of it are installed.
const BINARIES: [&str; 3] = ["callboard", "callboard-new", "callboard-old"];
/// Info strings of fenced blocks. An excerpt of a program is `rust,fragment`, a program on another crate `rust,ignore`.
const INFO_STRINGS: &[&str] = &[
    "caddyfile",
    "haproxy",
    "json",
    "nginx",
    "rust",
    "rust,fragment",
    "rust,ignore",
    "sh",
    "text",
    "toml",
    "toml,fragment",
    "yaml",
];

/// A fenced block of a page.
struct Block<'a> {
    /// Page and line, for complaints.
    place: String,
    /// Language, and what a test does with it.
    info: &'a str,
    text: String,
}

/// Names that commands of pages may use.
#[derive(Default)]
struct Names {
    /// Tasks of `cargo xtask`.
    tasks: BTreeSet<String>,
    /// Benches of all packages.
    benches: BTreeSet<String>,
}

fn markdown_files() -> Vec<File> {
    files(|path| path.extension().is_some_and(|ending| ending == "md"))
}

/// The site's pages and README.md.
fn pages() -> Vec<File> {
    let mut pages = markdown_files();
    pages.retain(|page| page.path.starts_with("docs/") || page.path == "README.md");
    for path in ["README.md", SUMMARY, "docs/concepts.md"] {
        assert!(pages.iter().any(|page| page.path == path), "no {path}");
    }
    pages
}

fn blocks(page: &File) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (at, line) in page.text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        open = match (open, fence) {
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                Some(block)
            }
            (None, fence) => fence.map(|info| Block {
                place: format!("{}:{}", page.path, at + 1),
                info,
                text: String::new(),
            }),
        };
    }
    blocks.extend(open);
    blocks
}

fn without_blocks(text: &str) -> String {
    let mut is_within = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_within ^= is_fence;
        !is_within && !is_fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

fn without_code_spans(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('`') {
        kept.push_str(&rest[..at]);
        let code = &rest[at..];
        let (ticks, after) = code.split_at(code.len() - code.trim_start_matches('`').len());
        rest = after
            .find(ticks)
            .map_or(after, |end| &after[end + ticks.len()..]);
    }
    kept + rest
}

/// Targets of inline links and images.
fn links(text: &str) -> Vec<String> {
    let prose = without_code_spans(&without_blocks(text));
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split([')', ' ']).next().map(str::to_owned))
        .collect()
}

/// Anchors of the headings, as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let prose = without_blocks(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    for title in headings.filter_map(|line| line.trim_start_matches('#').strip_prefix(' ')) {
        let kept = title
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let mut unique = anchor.clone();
        let mut repeated = 0;
        while !anchors.insert(unique) {
            repeated += 1;
            unique = format!("{anchor}-{repeated}");
        }
    }
    anchors
}

fn dead_links(page: &File) -> Vec<String> {
    let folder = root().join(&page.path);
    let folder = folder.parent().unwrap_or(root());
    let is_dead = |link: &String| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let text = if path.is_empty() {
            page.text.clone()
        } else {
            let Ok(target) = folder.join(path).canonicalize() else {
                return true;
            };
            if !target.starts_with(root().canonicalize().unwrap()) {
                return true;
            }
            if target.extension().is_none_or(|ending| ending != "md") {
                return false;
            }
            fs::read_to_string(target).unwrap()
        };
        !anchor.is_empty() && !anchors(&text).contains(anchor)
    };
    let links = links(&page.text).into_iter();
    let relative = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    relative
        .filter(is_dead)
        .map(|link| format!("{}: {link} leads nowhere", page.path))
        .collect()
}

fn unlisted_pages(pages: &[File]) -> Vec<String> {
    let summary = pages.iter().filter(|page| page.path == SUMMARY);
    let listed: BTreeSet<_> = summary
        .flat_map(|page| links(&page.text))
        .map(|link| format!("docs/{link}"))
        .collect();
    let below = pages
        .iter()
        .filter(|page| page.path.starts_with("docs/") && page.path != SUMMARY);
    below
        .filter(|page| !listed.contains(&page.path))
        .map(|page| format!("{} isn't in {SUMMARY}", page.path))
        .collect()
}

/// Simple commands of a script; those of `$(…)` come before the command that they are part of.
fn simple_commands(script: &str) -> Vec<String> {
    let mut found = Vec::new();
    split_commands(&mut script.chars().peekable(), false, &mut found);
    found
}

/// Adds the commands up to the end of the script, or to the `)` that ends a substitution.
fn split_commands(script: &mut Peekable<Chars<'_>>, is_nested: bool, found: &mut Vec<String>) {
    let (mut command, mut quote) = (String::new(), None);
    while let Some(c) = script.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => match script.next() {
                Some('\n') => {}
                escaped => command.extend([c].into_iter().chain(escaped)),
            },
            (None | Some('"'), '$') if script.peek() == Some(&'(') => {
                script.next();
                split_commands(script, true, found);
                command.push_str("VALUE");
            }
            (Some(open), _) => {
                command.push(c);
                quote = (c != open).then_some(open);
            }
            (None, '\'' | '"') => {
                command.push(c);
                quote = Some(c);
            }
            (None, ')') if is_nested => break,
            (None, '#') if command.is_empty() || command.ends_with(' ') => {
                while script.next_if(|c| *c != '\n').is_some() {}
            }
            (None, '\n' | ';' | '|' | '&') => found.push(mem::take(&mut command)),
            (None, _) => command.push(c),
        }
    }
    found.push(command);
}

/// Words from the program on: without `sudo`, `export` and assignments before it, and without redirections at the end.
fn program_words(words: &[String]) -> &[String] {
    let is_redirection = |word: &String| {
        word.trim_start_matches(|c: char| c.is_ascii_digit())
            .starts_with(['<', '>'])
    };
    let is_assignment = |word: &str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let end = words.iter().position(is_redirection);
    let mut rest = &words[..end.unwrap_or(words.len())];
    loop {
        let before = match rest {
            [first, option, ..] if first == "sudo" && option == "-u" => 3,
            [first, ..] if first == "sudo" || first == "export" || is_assignment(first) => 1,
            _ => return rest,
        };
        rest = rest.get(before..).unwrap_or_default();
    }
}

/// Commands of a script that callboard or cargo would refuse, each with the reason. Nothing is run.
fn wrong_commands(script: &str, names: &Names) -> Vec<String> {
    let mut wrong = Vec::new();
    for command in simple_commands(script) {
        let words = shlex::split(&command);
        let reason = match words.as_deref().map(program_words) {
            None => Some("a quote isn't closed".to_owned()),
            Some([shell, option, script]) if shell == "sh" && option == "-c" => {
                wrong.extend(wrong_commands(script, names));
                None
            }
            Some([program, rest @ ..]) if BINARIES.contains(&&**program) => usage_error(rest),
            Some([program, rest @ ..]) if program == "cargo" => cargo_error(rest, names),
            Some(_) => None,
        };
        wrong.extend(reason.map(|reason| format!("`{}`: {reason}", command.trim())));
    }
    wrong
}

/// Arguments that a variable of the environment may stand for, as usage errors show them.
fn arguments_with_variable(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter(|it| it.get_env().is_some());
    let below = command.get_subcommands().flat_map(arguments_with_variable);
    own.map(ToString::to_string).chain(below).collect()
}

/// First line of the usage error of callboard with these arguments. The reader's environment has the variables.
fn usage_error(arguments: &[String]) -> Option<String> {
    let mut command = Arguments::command();
    command.build();
    let optional = arguments_with_variable(&command);
    let program = String::from(BINARIES[0]);
    let words = [program].into_iter().chain(arguments.iter().cloned());
    let error = command.try_get_matches_from(words).err()?;
    let is_in_environment = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            missing.iter().all(|argument| optional.contains(argument))
        }
        _ => false,
    };
    // Help and version are errors of the parser, too.
    let is_usage_error = error.exit_code() != 0 && !is_in_environment;
    let text = error.to_string();
    is_usage_error.then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// Task, example or bench that a command of cargo names and that isn't there, or the usage error of the callboard that it runs.
fn cargo_error(words: &[String], names: &Names) -> Option<String> {
    let value = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1)
    };
    if let Some(example) = value("--example") {
        let paths = [format!("{example}.rs"), format!("{example}/main.rs")];
        let exists = paths
            .iter()
            .any(|path| root().join("examples").join(path).exists());
        return (!exists).then(|| format!("there is no example {example}"));
    }
    if let Some(bench) = value("--bench") {
        return (!names.benches.contains(bench)).then(|| format!("there is no bench {bench}"));
    }
    match words {
        [command, task, ..] if command == "xtask" => {
            (!names.tasks.contains(task)).then(|| format!("xtask has no task {task}"))
        }
        [command, rest @ ..] if command == "run" => {
            let arguments = rest.split(|word| word == "--").nth(1).unwrap_or_default();
            usage_error(arguments)
        }
        _ => None,
    }
}

/// Tasks in the usage text of xtask: the first word of each line with two spaces before it.
fn tasks(source: &str) -> BTreeSet<String> {
    let usage = source.split_once("const USAGE: &str = \"\\\n");
    let usage = usage.and_then(|(_, rest)| rest.split_once("\";"));
    let lines = usage.map_or("", |(usage, _)| usage).lines();
    let entries = lines
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    entries
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Names of the `[[bench]]` tables of a manifest, or of a part of one.
fn bench_names(manifest: &str) -> Vec<String> {
    let table: Table = manifest.parse().unwrap_or_default();
    let benches = table.get("bench").and_then(Value::as_array);
    let names = benches.into_iter().flatten();
    names
        .filter_map(|bench| Some(bench.get("name")?.as_str()?.to_owned()))
        .collect()
}

fn names() -> Names {
    let tasks = tasks(&fs::read_to_string(root().join("xtask/src/main.rs")).unwrap());
    let manifests = files(|path| path.file_name().is_some_and(|name| name == "Cargo.toml"));
    let benches: BTreeSet<_> = manifests
        .iter()
        .flat_map(|manifest| bench_names(&manifest.text))
        .collect();
    assert!(tasks.contains("test") && benches.contains("mailbox_table"));
    Names { tasks, benches }
}

/// Complaints about the `sh` blocks of a page. Its reader has the benches that its `toml` blocks declare.
fn wrong_scripts(page: &File, names: &Names) -> Vec<String> {
    let blocks = blocks(page);
    let own = blocks.iter().flat_map(|block| bench_names(&block.text));
    let names = Names {
        tasks: names.tasks.clone(),
        benches: names.benches.iter().cloned().chain(own).collect(),
    };
    let scripts = blocks.iter().filter(|block| block.info == "sh");
    let wrong = scripts.flat_map(|block| {
        let wrong = wrong_commands(&block.text, &names).into_iter();
        wrong.map(move |wrong| format!("{}: {wrong}", block.place))
    });
    wrong.collect()
}

/// Complaints about info strings, about TOML and JSON that can't be parsed, and about nodes that nothing checks.
fn wrong_data(page: &File) -> Vec<String> {
    let wrong = |block: &Block<'_>| match block.info {
        info if !INFO_STRINGS.contains(&info) => Some(format!("`{info}` is no known info string")),
        "toml" if has_node(block) && !block.text.starts_with(TOPOLOGY) => Some(format!(
            "isn't checked: begin with `{}`, or write `toml,fragment`",
            TOPOLOGY.trim_end()
        )),
        "json" => {
            let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
            parsed.err().map(|error| error.to_string())
        }
        info if info.starts_with("toml") => {
            let parsed = block.text.parse::<Table>();
            parsed.err().map(|error| error.message().to_owned())
        }
        _ => None,
    };
    let blocks = blocks(page);
    let wrong = blocks
        .iter()
        .filter_map(|block| Some(format!("{}: {}", block.place, wrong(block)?)));
    wrong.collect()
}

/// Whether a `toml` block has the section of a node.
fn has_node(block: &Block<'_>) -> bool {
    block
        .text
        .parse::<Table>()
        .is_ok_and(|table| table.contains_key("node"))
}

/// Complaints about `rust` blocks that nothing compiles: each is the program that its first line names, or a test of [`GUIDE`].
fn wrong_programs(page: &File, guide: &str) -> Vec<String> {
    let is_included = guide.contains(&format!("include_str!(\"../{}\")", page.path));
    let wrong = |block: &Block<'_>| {
        let named = block.text.strip_prefix("// examples/");
        let Some((name, program)) = named.and_then(|rest| rest.split_once('\n')) else {
            let reason = format!(
                "isn't compiled: include the page in {GUIDE}, begin with `// examples/NAME.rs`, or write `rust,fragment`"
            );
            return (!is_included).then_some(reason);
        };
        let example = fs::read_to_string(root().join("examples").join(name)).unwrap_or_default();
        let is_excerpt = example.contains(program.trim_matches('\n'));
        (!is_excerpt).then(|| format!("isn't in examples/{name} word for word"))
    };
    let blocks = blocks(page);
    let programs = blocks.iter().filter(|block| block.info == "rust");
    programs
        .filter_map(|block| Some(format!("{}: {}", block.place, wrong(block)?)))
        .collect()
}

fn topologies(page: &File) -> Vec<Block<'_>> {
    let mut blocks = blocks(page);
    blocks.retain(|block| block.info == "toml" && block.text.starts_with(TOPOLOGY));
    blocks
}

/// Creates the key file, the certificate and its key that topology files of pages name.
async fn add_credentials(home: &Home) {
    let add = ["keys", "--keys", "keys.toml", "add", "alice"];
    let added = home.run(&add).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let folder = home.path("");
    let issued = Authority::new("authority").issue(&["agents.example"], &folder, "fullchain");
    fs::rename(issued.key, folder.join("privkey.pem")).unwrap();
}

/// Complaints of `callboard check` about the whole topology files of a page. Warnings pass.
async fn wrong_topologies(page: &File, home: &Home) -> Vec<String> {
    let mut wrong = Vec::new();
    for block in topologies(page) {
        let path = home.write("topology.toml", &block.text);
        let checked = home.run(&["check", &path]).await;
        if checked.code != Some(0) {
            wrong.push(format!("{}: {}{}", block.place, checked.out, checked.err));
        }
    }
    wrong
}

/// Goal: no link of a text in the repository is dead, and every page is in the site. Method: paths and anchors of all
/// Markdown files; pages beside the summary.
#[test]
fn links_lead_somewhere() {
    none(markdown_files().iter().flat_map(dead_links).collect());
    none(unlisted_pages(&pages()));
}

/// Goal: a command can be copied from a page. Method: parse those of `callboard` as the binary does, and compare names for cargo
/// with what there is.
#[test]
fn commands_of_pages_parse() {
    let names = names();
    none(
        pages()
            .iter()
            .flat_map(|page| wrong_scripts(page, &names))
            .collect(),
    );
}

/// Goal: a file can be copied from a page. Method: parse TOML and JSON, and check whole topology files with the binary, beside
/// a key file and a certificate.
#[tokio::test]
async fn files_of_pages_are_valid() {
    let (home, pages) = (Home::new(), pages());
    none(pages.iter().flat_map(wrong_data).collect());
    let is_checked = |path: &str| {
        let page = pages.iter().find(|page| page.path == path);
        page.is_some_and(|page| !topologies(page).is_empty())
    };
    assert!(is_checked("docs/operations/secure.md"));
    add_credentials(&home).await;
    for page in &pages {
        none(wrong_topologies(page, &home).await);
    }
}

/// Goal: a program can be copied from a page. Method: compare it with the example that it names, or find the page in the source
/// whose tests compile it.
#[test]
fn programs_of_pages_are_compiled() {
    let guide = fs::read_to_string(root().join(GUIDE)).unwrap();
    none(
        pages()
            .iter()
            .flat_map(|page| wrong_programs(page, &guide))
            .collect(),
    );
}

/// Goal: the rules see what breaks them. Method: one offender a rule, beside one that only looks like it.
#[test]
fn rules_of_pages_catch_offenders() {
    let linking = "[a](../none.md) [b](../concepts.md#none) [c](#none) [d](/etc/hosts)\n`[e](none)`\n```text\n[f](none)\n```\n\
                   # Two `words`\n[g](#two-words) [h](../concepts.md#runtime) [i](../../Cargo.toml) [`j`](https://none.example)\n";
    let page = file("docs/hours/a.md", linking);
    let dead: Vec<_> = ["../none.md", "../concepts.md#none", "#none", "/etc/hosts"]
        .map(|link| format!("docs/hours/a.md: {link} leads nowhere"))
        .into();
    assert_eq!(dead_links(&page), dead);
    assert!(anchors("# a b\n# A b\n#[c]\n").iter().eq(["a-b", "a-b-1"]));
    let pages = [
        file(SUMMARY, "- [B](b.md)"),
        file("docs/a.md", ""),
        file("docs/b.md", ""),
        file("README.md", ""),
    ];
    assert_eq!(
        unlisted_pages(&pages),
        ["docs/a.md isn't in docs/SUMMARY.md"]
    );

    let names = Names {
        tasks: tasks("const USAGE: &str = \"\\\nusage\n\n  test  all\n         more\";"),
        benches: bench_names("[[bench]]\nname = \"wire\"")
            .into_iter()
            .collect(),
    };
    let right = [
        "callboard check FILE --strict   # --no-such-option",
        "sudo -u callboard A=1 callboard --version > version.txt",
        "callboard ask \"Who's there?\" \\\n    --json | grep '; callboard no-such-command'",
        "cargo xtask test && cargo bench --bench wire -- --no-such-option; cargo run --example hello",
        "cargo run -- demo\nother --no-such-option",
        "callboard mail members",
        "sudo -u callboard callboard-new check FILE; callboard-old --version",
    ];
    assert_eq!(wrong_commands(&right.join("\n"), &names), [""; 0]);
    let wrong = [
        "callboard check FILE --no-such-option",
        "sudo -u callboard A=1 callboard no-such-command",
        "x \"$(callboard check)\"",
        "true && callboard top --view none",
        "cat a | callboard schema b",
        "sudo sh -c 'cd a; callboard serve'",
        "callboard ask 'a",
        "cargo xtask more",
        "cargo bench --bench none",
        "cargo run --example none",
        "cargo run -- no-such-command",
        "callboard-new no-such-command",
        "sudo callboard-old check FILE --no-such-option",
    ];
    for script in wrong {
        assert_eq!(wrong_commands(script, &names).len(), 1, "{script}");
    }
    let own = "```toml,fragment\n[[bench]]\nname = \"own\"\n```\n```sh\ncargo bench --bench own\ncallboard none\n```\n";
    let wrong = wrong_scripts(&file("docs/a.md", own), &names);
    assert!(
        matches!(&*wrong, [one] if one.starts_with("docs/a.md:5: `callboard none`")),
        "{wrong:?}"
    );

    let data =
        "```toml\na = 1\na = 2\n```\n```json\n{\"a\": …}\n```\n```bash\n```\n```json\n{}\n```\n";
    assert_eq!(wrong_data(&file("docs/a.md", data)).len(), 3);
    let node = "[node]\nname = \"a\"\n```\n";
    let nodes = format!("```toml\n{node}```toml,fragment\n{node}```toml\n{TOPOLOGY}{node}");
    let wrong = wrong_data(&file("docs/a.md", &nodes));
    assert!(
        matches!(&*wrong, [one] if one.starts_with("docs/a.md:1: isn't checked")),
        "{wrong:?}"
    );
    let programs = "```rust\n// examples/hello.rs\nfn none() {}\n```\n```rust,ignore\nfn main() {}\n```\n```rust\nfn main() {}\n```\n";
    let page = file("docs/a.md", programs);
    assert_eq!(wrong_programs(&page, "").len(), 2);
    assert_eq!(
        wrong_programs(&page, "include_str!(\"../docs/a.md\")").len(),
        1
    );
}

/// Goal: a mistake in a topology file of a page is seen. Method: a key that doesn't exist, in a whole file and in a part of one.
#[tokio::test]
async fn wrong_topologies_are_caught() {
    let home = Home::new();
    let wrong = "[node]\nnmae = \"a\"\n```\n";
    let page =
        format!("```toml\n{TOPOLOGY}{wrong}```toml,fragment\n{TOPOLOGY}{wrong}```toml\n{wrong}");
    let wrong = wrong_topologies(&file("docs/a.md", &page), &home).await;
    assert!(
        matches!(&*wrong, [one] if one.contains("nmae")),
        "{wrong:?}"
    );
}
