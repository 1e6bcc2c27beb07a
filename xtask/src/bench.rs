//! Writes the bench tables to benches/README.md and pages of docs/, with date, machine and commit.

use std::fs;

use crate::command::{self, Outcome, cargo, output, program, root, target, watch};
use crate::{instructions, peers, tools};

const README: &str = "benches/README.md";
const SECURITY: &str = "docs/security.md";
const SOAK_PAGE: &str = "docs/soak.md";
/// Marker lines before and after generated tables; the rest of the file is written by hand.
type MarkerLines = [&'static str; 2];
const TABLES: MarkerLines = [
    "<!-- tables: written by `cargo xtask bench` -->",
    "<!-- end of tables -->",
];
const GATEWAY: MarkerLines = [
    "<!-- gateway: written by `cargo xtask bench gateway` -->",
    "<!-- end of gateway -->",
];

const JOURNAL: MarkerLines = [
    "<!-- journal: written by `cargo xtask bench journal` -->",
    "<!-- end of journal -->",
];
const A2A: MarkerLines = [
    "<!-- a2a: written by `cargo xtask bench a2a` -->",
    "<!-- end of a2a -->",
];
const MAIL: MarkerLines = [
    "<!-- mail: written by `cargo xtask bench mail` -->",
    "<!-- end of mail -->",
];
const ABUSE: MarkerLines = [
    "<!-- abuse: written by `cargo xtask bench abuse` -->",
    "<!-- end of abuse -->",
];
const VERIFIER: MarkerLines = [
    "<!-- verifier: written by `cargo xtask bench verifier` -->",
    "<!-- end of verifier -->",
];
const SOAK: MarkerLines = [
    "<!-- soak: written by `cargo xtask soak --record` -->",
    "<!-- end of soak -->",
];
/// SQLite driven directly: a package outside the workspace.
pub const DIRECT: &str = "benches/sqlite-direct/Cargo.toml";

/// Runs table, memory and instructions, and writes what they print.
pub fn run(rounds: Option<&str>) -> Outcome {
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
    write(TABLES, &format!("{header}\n\n{}", tables.join("\n")))
}

/// Runs the bench of gateways, with the one of another house that it installs first, and writes what it prints.
pub fn gateway(rounds: Option<&str>) -> Outcome {
    let header = header()?;
    let other = tools::mcp_proxy()?;
    let other = other.to_string_lossy();
    // Ours as packages hold it, like the other one.
    command::run(cargo(&["build", "--profile", "dist", "--bin", "callboard"]))?;
    let ours = target().join("dist").join("callboard");
    let ours = ours.to_string_lossy();
    let mut bench = vec![
        "bench",
        "--bench",
        "gateway",
        "--",
        "--callboard",
        &*ours,
        "--mcp-proxy",
        &*other,
    ];
    bench.extend(rounds.map(|rounds| ["--rounds", rounds]).iter().flatten());
    write(GATEWAY, &format!("{header}\n\n{}", printed(&bench)?))
}

/// Runs the bench of the journal beside SQLite driven directly, and writes what it prints. `options` are the bench's own.
pub fn journal(options: &[&str]) -> Outcome {
    let header = header()?;
    let home = target().join("sqlite-direct");
    let mut direct = cargo(&["build", "--release", "--locked", "--manifest-path", DIRECT]);
    direct.env("CARGO_TARGET_DIR", &home);
    command::run(direct)?;
    let program = home.join("release").join("sqlite-direct");
    let program = program.to_string_lossy();
    let mut bench = vec![
        "bench",
        "--package",
        "callboard-store",
        "--bench",
        "journal",
        "--",
        "--direct",
        &*program,
    ];
    bench.extend(options);
    write(JOURNAL, &format!("{header}\n\n{}", printed(&bench)?))
}

/// Runs the bench of A2A servers, with the official Rust SDK's that it builds first, and writes what it prints. `options` are the
/// bench's own.
pub fn a2a(options: &[&str]) -> Outcome {
    let header = header()?;
    let other = peers::rust_peer(&["--release"])?;
    let other = other.to_string_lossy();
    let mut bench = vec!["bench", "--bench", "a2a", "--", "--other", &*other];
    bench.extend(options);
    write(A2A, &format!("{header}\n\n{}", printed(&bench)?))
}

/// Runs the bench of agent mail, and writes what it prints. `options` are the bench's own.
pub fn mail(options: &[&str]) -> Outcome {
    let header = header()?;
    let mut bench = vec!["bench", "--bench", "mail", "--"];
    bench.extend(options);
    write(MAIL, &format!("{header}\n\n{}", printed(&bench)?))
}

/// Runs the bench of abuses, and writes what it prints. `options` are the bench's own.
pub fn abuse(options: &[&str]) -> Outcome {
    let header = header()?;
    let mut bench = vec!["bench", "--bench", "abuse", "--"];
    bench.extend(options);
    write_to(
        SECURITY,
        ABUSE,
        &format!("{header}\n\n{}", printed(&bench)?),
    )
}

/// Runs the bench of the verifier, and writes what it prints. `options` are the bench's own.
pub fn verifier(options: &[&str]) -> Outcome {
    let header = header()?;
    let mut bench = vec![
        "bench",
        "--package",
        "callboard-clinics",
        "--bench",
        "verifier",
        "--",
    ];
    bench.extend(options);
    write(VERIFIER, &format!("{header}\n\n{}", printed(&bench)?))
}

/// Runs the soak of a whole node. `is_recorded` tells whether what it prints is written.
pub fn soak(minutes: u64, is_recorded: bool) -> Outcome {
    let header = header()?;
    let minutes = minutes.to_string();
    let table = printed(&["bench", "--bench", "soak", "--", "--minutes", &minutes])?;
    match is_recorded {
        true => write_to(SOAK_PAGE, SOAK, &format!("{header}\n\n{table}")),
        false => Ok(()),
    }
}

fn write(place: MarkerLines, tables: &str) -> Outcome {
    write_to(README, place, tables)
}

fn write_to(page: &str, place: MarkerLines, tables: &str) -> Outcome {
    let path = root().join(page);
    let text = fs::read_to_string(&path).map_err(|e| format!("{page} can't be read: {e}"))?;
    let text = replaced(&text, place, tables).map_err(|why| format!("{page} {why}"))?;
    fs::write(&path, text).map_err(|e| format!("{page} can't be written: {e}"))
}

fn printed(arguments: &[&str]) -> Outcome<String> {
    let mut text = String::new();
    watch(cargo(arguments), |line| {
        text.push_str(line);
        text.push('\n');
    })?;
    Ok(text)
}

/// Returns the header of the tables: date, machine and commit.
fn header() -> Outcome<String> {
    let date = output(program("date", &["-u", "+%Y-%m-%d"]))?;
    let commit = output(program("git", &["rev-parse", "--short", "HEAD"]))?;
    let changed = !output(program(
        "git",
        &["status", "--porcelain", "--untracked-files=no"],
    ))?
    .trim()
    .is_empty();
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
    let model = cpus
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(": "));
    model.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |(_, name)| name.to_owned(),
    )
}

/// Returns `page` with `tables` between its two marker lines.
fn replaced(page: &str, [begin, end]: MarkerLines, tables: &str) -> Outcome<String> {
    let parts = page
        .split_once(begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("needs the lines {begin} and {end}"))?;
    Ok(format!(
        "{before}{begin}\n\n{}\n\n{end}{after}",
        tables.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only the tables change, however often. Method: replace twice between the lines, and once without them.
    #[test]
    fn tables_are_replaced_in_place() {
        let [begin, end] = TABLES;
        let readme = format!("# Benches\n\n{begin}\nold\n{end}\n\nWhy.\n");
        let once = replaced(&readme, TABLES, "first\n").unwrap();
        let twice = replaced(&once, TABLES, "second\n").unwrap();
        assert_eq!(
            twice,
            format!("# Benches\n\n{begin}\n\nsecond\n\n{end}\n\nWhy.\n")
        );
        assert!(replaced(&readme, GATEWAY, "x").is_err());
    }
}
