//! Runs the targets on their corpus and its mutations.

use std::fs;
use std::path::Path;

use callboard_fuzz::{CORPUS, TARGETS, Target};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Maximum size of an input made from the corpus, in bytes.
const INPUT_BYTES_MAX: usize = 16 * 1024;
/// Number of places at which a file of the corpus is cut, at least; a longer one isn't cut at every byte.
const CUTS_MIN: usize = 512;
/// Number of mutations for each target, unless `PROPTEST_CASES` sets it.
const CASES: u32 = 1_000;

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(Path::new(CORPUS).join(target.name)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{} has no corpus", target.name);
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

#[derive(Debug, Clone)]
enum Edit {
    Flip {
        at: Index,
        bit: u8,
    },
    Set {
        at: Index,
        byte: u8,
    },
    Delete {
        at: Index,
        bytes: usize,
    },
    Duplicate {
        at: Index,
        bytes: usize,
        times: usize,
    },
    /// Replaces the rest from `at` by another input from `from` on.
    Splice {
        at: Index,
        other: Index,
        from: Index,
    },
    Truncate {
        at: Index,
    },
}

/// Bytes with a meaning for some decoder.
const TELLING: &[u8] = b"{}[]\",:\\\r\n\0 \t0123456789eE+-.utdn/@#%=\x7f\x80\xC3\xED\xEF\xFF";

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip { at, bit }),
        (
            at(),
            prop_oneof![any::<u8>(), prop::sample::select(TELLING)]
        )
            .prop_map(|(at, byte)| Edit::Set { at, byte }),
        (at(), 1..20usize).prop_map(|(at, bytes)| Edit::Delete { at, bytes }),
        (at(), 1..40usize, 1..20usize).prop_map(|(at, bytes, times)| Edit::Duplicate {
            at,
            bytes,
            times
        }),
        (at(), at(), at()).prop_map(|(at, other, from)| Edit::Splice { at, other, from }),
        at().prop_map(|at| Edit::Truncate { at }),
    ]
}

fn edited(input: &[u8], edits: &[Edit], corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = input.to_vec();
    for edit in edits {
        let within = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
        match edit {
            Edit::Flip { at, bit } => {
                let at = within(at, &input);
                input
                    .get_mut(at)
                    .into_iter()
                    .for_each(|byte| *byte ^= 1 << bit);
            }
            Edit::Set { at, byte } => {
                let at = within(at, &input);
                input.get_mut(at).into_iter().for_each(|old| *old = *byte);
            }
            Edit::Delete { at, bytes } => {
                let at = within(at, &input);
                input.drain(at..(at + bytes).min(input.len()));
            }
            Edit::Duplicate { at, bytes, times } => {
                let at = within(at, &input);
                let part = input[at..(at + bytes).min(input.len())].repeat(*times);
                input.splice(at..at, part);
            }
            Edit::Splice { at, other, from } => {
                let other: &Vec<u8> = other.get(corpus);
                input.truncate(within(at, &input));
                input.extend_from_slice(&other[within(from, other)..]);
            }
            Edit::Truncate { at } => input.truncate(within(at, &input)),
        }
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

/// Goal: the properties hold for the corpus. Method: each file whole, truncated at every byte, and
/// from every byte on; a file of several KiB at every second, third, … one.
#[test]
fn corpus_and_each_part_of_it() {
    for target in TARGETS {
        for input in corpus(target) {
            for at in (0..=input.len()).step_by(1 + input.len() / CUTS_MIN) {
                (target.run)(&input[..at]);
                (target.run)(&input[at..]);
            }
            (target.run)(&input);
        }
    }
}

/// Goal: the properties hold for nearly valid input. Method: files of the corpus with up to six
/// edits.
#[test]
fn mutations_of_the_corpus() {
    let cases = Config::default().cases;
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
        cases
    } else {
        CASES
    };
    for target in TARGETS {
        let corpus = corpus(target);
        let inputs = (any::<Index>(), vec(edit(), 1..=6));
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        });
        let run = runner.run(&inputs, |(which, edits)| {
            let input: &Vec<u8> = which.get(&corpus);
            (target.run)(&edited(input, &edits, &corpus));
            Ok(())
        });
        run.unwrap_or_else(|why| panic!("{}: {why}", target.name));
    }
}

/// Goal: the properties hold for random bytes. Method: any bytes, and those with a meaning.
#[test]
fn any_bytes() {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(TELLING)];
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let run = runner.run(&vec(byte, 0..200), |bytes| {
        TARGETS.iter().for_each(|target| (target.run)(&bytes));
        Ok(())
    });
    run.unwrap_or_else(|why| panic!("{why}"));
}

/// Goal: every directory of the corpus belongs to a target. Method: names.
#[test]
fn corpus_is_used() {
    for entry in fs::read_dir(CORPUS).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            TARGETS.iter().any(|target| *target.name == *name),
            "{} is no target",
            name.display()
        );
    }
}
