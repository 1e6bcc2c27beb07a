//! `cargo xtask evaluation`: docs/evaluation.md and its figures, as `callboard eval all` writes them.

use std::fs;
use std::path::Path;

use crate::command::{Outcome, cargo, failed_at, remove_folder, root, run, target};

/// Page and folder of figures in a report, and in `docs`.
const PAGE: &str = "evaluation.md";
const FIGURES: &str = "evaluation";

/// Measures with the release build, and replaces page and figures.
pub fn write() -> Outcome {
    let report = target().join("evaluation");
    let mut measure = cargo(&["run", "--release", "--quiet", "--"]);
    measure.args(["eval", "all", "--report"]).arg(&report);
    run(measure)?;
    let docs = root().join("docs");
    // Figures of evaluations that are gone must not stay.
    let figures = docs.join(FIGURES);
    remove_folder(&figures)?;
    fs::create_dir_all(&figures).map_err(|error| failed_at(&figures, &error))?;
    let drawn = report.join(FIGURES);
    for entry in fs::read_dir(&drawn).map_err(|error| failed_at(&drawn, &error))? {
        let entry = entry.map_err(|error| failed_at(&drawn, &error))?;
        copy(&entry.path(), &figures.join(entry.file_name()))?;
    }
    copy(&report.join(PAGE), &docs.join(PAGE))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| failed_at(to, &error))
}
