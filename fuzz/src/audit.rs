//! Audit exports: what counts as signed is what the store wrote.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use callboard_store::{AuditVerifyOptions, verify_export};
use serde_json::Value;

/// Store whose export is in the corpus, with its public key and its anchor.
const STORE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../actors/store/tests/data/upgrade/0.1.0/sqlite"
);
/// The whole export.
const EXPORT: &str = include_str!("../corpus/audit/whole");

static WRITTEN: LazyLock<HashSet<(u64, String)>> =
    LazyLock::new(|| EXPORT.lines().filter_map(entry).collect());

/// Number and text of a line that is an entry.
fn entry(line: &str) -> Option<(u64, String)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is_entry = line["kind"] == "entry";
    let entry = (line["number"].as_u64()?, line["line"].as_str()?.to_owned());
    is_entry.then_some(entry)
}

pub fn export(bytes: &[u8]) {
    let file = |ending: &str| Some(PathBuf::from(format!("{STORE}.{ending}")));
    let options = AuditVerifyOptions {
        chain: None,
        public_keys: file("pub"),
        anchor: file("anchor"),
    };
    let Ok(reports) = verify_export(bytes, &options) else {
        return;
    };
    let signed = reports
        .iter()
        .filter(|report| report.chain == "node" && report.fault.is_none())
        .map(|report| report.signed_up_to)
        .max();
    let Some(signed) = signed else { return };
    let text = String::from_utf8_lossy(bytes);
    let of_node = |(_, line): &(u64, String)| line.contains(r#""chain":"node""#);
    let entries = text.lines().filter_map(entry).filter(of_node);
    for (number, line) in entries.filter(|(number, _)| *number <= signed) {
        assert!(
            WRITTEN.contains(&(number, line)),
            "entry {number} counts as signed, and isn't the store's"
        );
    }
}
