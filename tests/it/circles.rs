//! Import circles between sibling modules. Two modules of one folder that need each other can't be read, tested or moved apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use walkdir::WalkDir;

/// Circles that stay, as a folder and the modules in it, each with its reason. A new one fails, and so does one that is gone.
const KNOWN: &[(&str, &[&str], &str)] = &[(
    "actors/runtime/src",
    &["agent", "agent_cell", "handle", "mailbox", "system"],
    "The mailbox kernel: a mailbox runs an agent's handlers, which reach other mailboxes.",
)];

/// Path of a module from its crate's root, without `crate`.
type ModulePath = Vec<String>;

/// A crate's modules: the text of each without tests, by path.
type Modules = BTreeMap<ModulePath, String>;

/// Reads the modules of a crate from its folder of sources.
fn modules(source: &Path) -> Modules {
    let files = WalkDir::new(source)
        .into_iter()
        .map(|entry| entry.unwrap().into_path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    files
        .filter_map(|path| {
            Some((
                module_path(path.strip_prefix(source).unwrap())?,
                code(&path),
            ))
        })
        .collect()
}

/// `None` for a test's file.
fn module_path(file: &Path) -> Option<ModulePath> {
    let mut parts: ModulePath = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts
        .iter()
        .any(|part| part == "tests" || part.ends_with("_tests"))
    {
        return None;
    }
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    Some(parts)
}

/// The code up to the tests in the file, without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Paths that begin with `crate`, `self` or `super`, and those of `use` and `pub use`, with their braces resolved.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            // `super::super::x` was seen at its beginning, `$crate::` is a macro's.
            if !before.ends_with(|c: char| is_name(c) || c == ':' || c == '$') {
                resolve(&code[at..], Vec::new(), &mut found);
            }
        }
    }
    for (at, _) in code.match_indices("use ") {
        if code[..at].ends_with(['\n', ' ', ')']) || at == 0 {
            resolve(code[at + 4..].trim_start(), Vec::new(), &mut found);
        }
    }
    found
}

/// Adds each path of the tree that `text` begins with, and returns what follows it.
fn resolve<'a>(text: &'a str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text;
    loop {
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        rest = &rest[name.len()..];
        if !name.is_empty() {
            path.push(name);
        }
        match rest.strip_prefix("::") {
            Some(after) => rest = after,
            None => break,
        }
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = resolve(inside.trim_start(), path.clone(), found).trim_start();
                match inside.strip_prefix(',') {
                    Some(next) => inside = next,
                    None => return inside.strip_prefix('}').unwrap_or(inside),
                }
            }
        }
    }
    // `as Other`, a wildcard, or nothing of a path.
    let end = rest
        .find([',', '}', ';', '\n', '(', ')', ' ', '<', '>'])
        .unwrap_or(rest.len());
    rest = rest[end..]
        .strip_prefix(" as ")
        .map_or(&rest[end..], |alias| {
            alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
        });
    if !path.is_empty() {
        found.push(path);
    }
    rest
}

/// The path from the crate's root that `path` means in `module`; `None` for one of another crate.
fn absolute(path: &[String], module: &[String], modules: &Modules) -> Option<ModulePath> {
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        // A child module, as `pub use child::Item` names it.
        child => {
            let within = [module, &[child.to_owned()]].concat();
            return modules
                .contains_key(&within)
                .then(|| [module, path].concat());
        }
    };
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => _ = base.pop(),
            _ => break,
        }
        rest = after;
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Modules that each module names, with what parents pass on from their children as the child's.
fn references(modules: &Modules) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
    let named: BTreeMap<&ModulePath, Vec<ModulePath>> = modules
        .iter()
        .map(|(module, code)| {
            (
                module,
                paths(code)
                    .iter()
                    .filter_map(|path| absolute(path, module, modules))
                    .collect(),
            )
        })
        .collect();
    // Item as the parent names it, and where it is.
    let mut passed_on: BTreeMap<ModulePath, ModulePath> = BTreeMap::new();
    for (module, paths) in &named {
        for path in paths
            .iter()
            .filter(|path| path.len() > module.len() + 1 && path.starts_with(module))
        {
            passed_on.insert(
                [module.as_slice(), &path[path.len() - 1..]].concat(),
                path.clone(),
            );
        }
    }
    let target = |path: &ModulePath| match passed_on.get(path) {
        Some(item) if !modules.contains_key(path) => item.clone(),
        _ => path.clone(),
    };
    named
        .into_iter()
        .map(|(module, paths)| (module, paths.iter().map(target).collect()))
        .collect()
}

/// Groups of siblings that reach each other, as folder and names, with what each names of another.
fn circles(modules: &Modules) -> BTreeMap<(String, Vec<String>), Vec<String>> {
    let mut folders: BTreeMap<&[String], BTreeMap<&str, BTreeMap<String, String>>> =
        BTreeMap::new();
    let references = references(modules);
    for (module, targets) in &references {
        for target in targets {
            let shared = module
                .iter()
                .zip(target)
                .take_while(|(a, b)| a == b)
                .count();
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared))
                && modules.contains_key(&target[..=shared])
            {
                let (from, to) = (
                    folders
                        .entry(&module[..shared])
                        .or_default()
                        .entry(from)
                        .or_default(),
                    to.clone(),
                );
                from.insert(
                    to,
                    format!("{} names {}", module.join("::"), target.join("::")),
                );
            }
        }
    }
    let mut found = BTreeMap::new();
    for (folder, edges) in folders {
        let reached = |from: &str| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(module) = next.pop() {
                let news = edges
                    .get(module.as_str())
                    .into_iter()
                    .flat_map(BTreeMap::keys);
                let news = news.filter(|to| seen.insert((*to).clone()));
                next.extend(news.cloned());
            }
            seen
        };
        let reach: BTreeMap<&str, BTreeSet<String>> =
            edges.keys().map(|from| (*from, reached(from))).collect();
        for (from, seen) in &reach {
            let circle = seen.iter().filter(|to| {
                reach
                    .get(to.as_str())
                    .is_some_and(|back| back.contains(*from))
            });
            let circle: Vec<String> = circle.cloned().collect();
            if circle.len() > 1 {
                let inside = |from: &String| edges.get(from.as_str()).into_iter().flatten();
                let names = circle
                    .iter()
                    .flat_map(|from| inside(from).filter(|(to, _)| circle.contains(to)));
                let names = names.map(|(_, named)| named.clone()).collect();
                found.insert((folder.join("/"), circle), names);
            }
        }
    }
    found
}

/// Goal: siblings don't need each other in a circle. Method: imports and paths of all crates, against the list of known circles.
#[test]
fn there_are_no_new_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["actors", "protocols"]
        .iter()
        .flat_map(|group| fs::read_dir(root.join(group)).unwrap());
    let sources = sources
        .map(|entry| entry.unwrap().path().join("src"))
        .chain([root.join("src")]);
    let mut found = BTreeMap::new();
    for source in sources.filter(|source| source.is_dir()) {
        let name = source.strip_prefix(root).unwrap().display().to_string();
        for ((folder, circle), names) in circles(&modules(&source)) {
            found.insert(
                (
                    format!("{name}/{folder}").trim_end_matches('/').to_owned(),
                    circle,
                ),
                names,
            );
        }
    }
    let known: BTreeSet<_> = KNOWN
        .iter()
        .map(|(folder, names, _)| {
            (
                (*folder).to_owned(),
                names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    let listed =
        |(folder, names): &(String, Vec<String>)| format!("{folder}: {}", names.join(", "));
    let new = found.iter().filter(|(circle, _)| !known.contains(circle));
    let new: Vec<_> = new
        .map(|(circle, names)| format!("{}\n    {}", listed(circle), names.join("\n    ")))
        .collect();
    let gone: Vec<_> = known
        .iter()
        .filter(|circle| !found.contains_key(circle))
        .map(listed)
        .collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "new circles:\n{}\ncircles that are gone:\n{}",
        new.join("\n"),
        gone.join("\n")
    );
}

/// Goal: the rule sees circles, also through what a parent passes on, and nothing else. Method: three small crates.
#[test]
fn circles_are_seen() {
    let of = |files: &[(&str, &str)]| {
        let module = |path: &str| {
            path.split('/')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        circles(
            &files
                .iter()
                .map(|(path, code)| (module(path), (*code).to_owned()))
                .collect(),
        )
    };
    let tree = [
        ("", "mod a; mod b;"),
        ("a", "use super::b::{X, c::{D}};"),
        ("b", "pub struct X;"),
        ("b/c", ""),
    ];
    assert!(of(&tree).is_empty());
    let circle = [
        ("", ""),
        ("a", "use crate::b::X;"),
        ("b", "fn f() { super::a::g() }"),
    ];
    let names = vec!["a names b::X".to_owned(), "b names a::g".to_owned()];
    assert_eq!(
        of(&circle),
        BTreeMap::from([((String::new(), vec!["a".to_owned(), "b".to_owned()]), names)])
    );
    let through_the_parent = [
        ("", "pub use a::A;\nuse b::B;"),
        ("a", "use super::b::f;"),
        ("b", "use crate::A;"),
    ];
    assert_eq!(of(&through_the_parent).len(), 1);
}
