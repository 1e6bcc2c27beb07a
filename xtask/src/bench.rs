//! Writes the bench tables to benches/README.md, with date, machine and commit.

use std::fs;

use crate::command::{Outcome, cargo, output, program, root, watch};
use crate::instructions;

const README: &str = "benches/README.md";
/// The tables stand between these lines; all else in the file is a person's.
const BEGIN: &str = "<!-- tables: written by `cargo xtask bench` -->";
const END: &str = "<!-- end of tables -->";

/// Runs table, memory and instructions, and writes what they print.
pub fn run(rounds: Option<&str>) -> Outcome {
    let path = root().join(README);
    let readme = fs::read_to_string(&path).map_err(|e| format!("{README} can't be read: {e}"))?;
    let header = header()?;
    let mut table = vec!["bench", "--bench", "mailbox_table", "--"];
    table.extend(rounds.map(|rounds| ["--rounds", rounds]).iter().flatten());
    let tables = [
        printed(&table)?,
        printed(&["bench", "--bench", "mailbox_memory"])?,
        instructions::table()?,
        printed(&["bench", "--bench", "wire"])?,
        printed(&["bench", "--bench", "http"])?,
    ];
    let readme = replaced(&readme, &format!("{header}\n\n{}", tables.join("\n")))?;
    fs::write(&path, readme).map_err(|e| format!("{README} can't be written: {e}"))
}

fn printed(arguments: &[&str]) -> Outcome<String> {
    let mut text = String::new();
    watch(cargo(arguments), |line| {
        text.push_str(line);
        text.push('\n');
    })?;
    Ok(text)
}

/// When, where and of what.
fn header() -> Outcome<String> {
    let date = output(program("date", &["-u", "+%Y-%m-%d"]))?;
    let commit = output(program("git", &["rev-parse", "--short", "HEAD"]))?;
    let changed = !output(program("git", &["status", "--porcelain", "--untracked-files=no"]))?.trim().is_empty();
    let rust = output(program("rustc", &["--version"]))?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!(
        "{}, commit {}{}; {}, {cores} cores, {}.",
        date.trim(),
        commit.trim(),
        if changed { " with changes" } else { "" },
        cpu(),
        rust.trim()
    ))
}

fn cpu() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// `readme` with `tables` in the place for them.
fn replaced(readme: &str, tables: &str) -> Outcome<String> {
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{README} needs the lines {BEGIN} and {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", tables.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only the tables change, however often. Method: replace twice between the lines, and once without them.
    #[test]
    fn tables_are_replaced_in_place() {
        let readme = format!("# Benches\n\n{BEGIN}\nold\n{END}\n\nWhy.\n");
        let once = replaced(&readme, "first\n").unwrap();
        let twice = replaced(&once, "second\n").unwrap();
        assert_eq!(twice, format!("# Benches\n\n{BEGIN}\n\nsecond\n\n{END}\n\nWhy.\n"));
        assert!(replaced("no place", "x").is_err());
    }
}
