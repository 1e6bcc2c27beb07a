//! Topology files that are nearly right: those of the repository, mutated.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::config::{PROBLEMS_MAX, Severity, parse_topology};

/// Files, and whether each is YAML.
const FILES: &[(&str, bool)] = &[
    (include_str!("../../../examples/bridge/bridge.toml"), false),
    (
        include_str!("../../../examples/clinics/cardiology.toml"),
        false,
    ),
    (
        include_str!("../../../examples/clinics/host-with-neurology.toml"),
        false,
    ),
    (include_str!("../../../examples/hmcp/hmcp-emr.toml"), false),
    (include_str!("../../../examples/mail/fleet.toml"), false),
    (
        include_str!("../../../examples/three_agents/agent2.toml"),
        false,
    ),
    (
        include_str!("../../../tests/it/data/magictunnel.yaml"),
        true,
    ),
];
/// Texts with a meaning for a parser or a decoder.
const TELLING: &[&str] = &[
    "\"",
    "'",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ":",
    ",",
    ".",
    "#",
    "\n",
    "\n  - ",
    "\t",
    "\r",
    "\0",
    "\u{feff}",
    "é",
    "&a ",
    "*a",
    "<<: ",
    "-1",
    "1.5",
    "99999999999999999999",
    "true",
    "null",
    "1979-05-27",
    "\"\"\"",
    "[listener]\n",
    "[[agent]]\n",
    "[[upstream]]\nid = \"a\"\n",
    "kind = \"mailroom\"\n",
    "id = \"\"\n",
    "agents = []\n",
    "url = \"http://[::1\"\n",
];

#[derive(Debug, Clone)]
enum Edit {
    Insert {
        at: Index,
        text: &'static str,
    },
    Delete {
        at: Index,
        chars: usize,
    },
    /// Repeats lines elsewhere, so that tables and ids are there twice.
    Repeat {
        from: Index,
        lines: usize,
        at: Index,
    },
    Truncate {
        at: Index,
    },
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), select(TELLING)).prop_map(|(at, text)| Edit::Insert { at, text }),
        (at(), 1..20usize).prop_map(|(at, chars)| Edit::Delete { at, chars }),
        (at(), 1..6usize, at()).prop_map(|(from, lines, at)| Edit::Repeat { from, lines, at }),
        at().prop_map(|at| Edit::Truncate { at }),
    ]
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for edit in edits {
        let place = |at: &Index| at.index(text.len() + 1);
        match edit {
            Edit::Insert { at, text: new } => {
                let at = place(at);
                text.splice(at..at, new.chars());
            }
            Edit::Delete { at, chars } => {
                let at = place(at);
                text.drain(at..(at + chars).min(text.len()));
            }
            Edit::Repeat { from, lines, at } => {
                let (from, at) = (place(from), place(at));
                let rest = text[from..].split_inclusive(|char| *char == '\n');
                let part: Vec<char> = rest.take(*lines).flatten().copied().collect();
                text.splice(at..at, part);
            }
            Edit::Truncate { at } => {
                let at = place(at);
                text.truncate(at);
            }
        }
    }
    text.into_iter().collect()
}

/// Checks what holds for any text.
fn check(text: &str, is_yaml: bool) {
    let (topology, problems) = parse_topology(text, is_yaml, Path::new("/nowhere"), false);
    assert!(
        problems.len() <= PROBLEMS_MAX + 1,
        "{} problems",
        problems.len()
    );
    let has_error = problems
        .iter()
        .any(|problem| problem.level == Severity::Error);
    assert_eq!(topology.is_none(), has_error, "{problems:?}");
    for problem in &problems {
        assert!(problem.line <= text.lines().count() + 1, "{problem:?}");
        if let Some(span) = &problem.span {
            assert!(text.get(span.clone()).is_some(), "{problem:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: no text makes the reader panic or point beside the file, and a file with an error is no topology. Method: files of
    /// the repository with up to six edits, each in both notations.
    #[test]
    fn nearly_right_files(which in any::<Index>(), edits in vec(edit(), 1..=6), other in any::<bool>()) {
        let (file, is_yaml) = FILES[which.index(FILES.len())];
        check(&edited(file, &edits), is_yaml != other);
    }
}

/// Goal: the same for a file that ends too early, whose parser points behind the end. Method: a YAML file, cut at every byte.
#[test]
fn cut_files() {
    for (file, is_yaml) in FILES.iter().filter(|(_, is_yaml)| *is_yaml) {
        let ends = (0..=file.len()).filter(|end| file.is_char_boundary(*end));
        ends.for_each(|end| check(&file[..end], *is_yaml));
    }
}
