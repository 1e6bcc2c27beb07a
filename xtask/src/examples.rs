//! Every example runs to its end by itself, without arguments. (Three are one half of a pair: their other half is a
//! conformance suite.)

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::command::{Outcome, cargo_tested, program, root, run, run_within, target};
use crate::tally::Tally;

/// Timeout of an example.
const EXAMPLE_TIME_MAX: Duration = Duration::from_secs(120);

/// Examples that [`crate::conformance`] and [`crate::tck`] run.
const ELSEWHERE: &[&str] = &[
    "a2a_conformance",
    "conformance_client",
    "conformance_server",
];

/// Builds all examples, then runs each as a step.
pub fn steps(tally: &mut Tally) {
    match names() {
        Ok(names) if names.is_empty() => tally.skip("examples: there are none".to_owned()),
        Ok(names) => {
            let mut is_built = false;
            tally.step("build examples", || {
                run(cargo_tested(&["build", "--examples"]))?;
                is_built = true;
                Ok(())
            });
            if !is_built {
                return tally.skip("examples: they don't build".to_owned());
            }
            let built = target().join("debug").join("examples");
            for name in names {
                tally.step(&format!("example {name}"), || {
                    let example = built.join(&name);
                    run_within(program(&example.to_string_lossy(), &[]), EXAMPLE_TIME_MAX)
                });
            }
        }
        Err(why) => tally.step("examples", || Err(why)),
    }
}

/// Returns the names of all examples: `examples/NAME.rs` and `examples/NAME/main.rs`.
fn names() -> Outcome<BTreeSet<String>> {
    let folder = root().join("examples");
    if !folder.exists() {
        return Ok(BTreeSet::new());
    }
    let entries = fs::read_dir(&folder).map_err(|e| format!("examples can't be listed: {e}"))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let examples = paths.filter(|path| {
        path.extension().is_some_and(|ext| ext == "rs") || path.join("main.rs").exists()
    });
    let names = examples.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    Ok(names
        .filter(|name| !ELSEWHERE.contains(&name.as_str()))
        .collect())
}
