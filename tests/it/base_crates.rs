//! The library without features stays small.

use std::collections::BTreeSet;
use std::process::Command;

use crate::tidy::root;

/// Maximum number of crates of the library without features, itself included.
const BASE_CRATES_MAX: usize = 110;

/// Goal: those who embed the runtime alone compile no more crates than `src/lib.rs` says. Method: the crates that cargo
/// builds, by name and version.
#[test]
fn base_crates_are_few() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "callboard"])
        .args(["--no-default-features", "--edges", "normal,build"])
        .args(["--prefix", "none"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let name_and_version = |line| {
        let mut words = str::split(line, ' ');
        words.next().zip(words.next())
    };
    let crates: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
    assert!(crates.iter().any(|(name, _)| *name == "callboard"));
    let count = crates.len();
    assert!(count <= BASE_CRATES_MAX, "{count} crates: {crates:#?}");
}
