//! Report of evaluations: a Markdown page, and figures as SVG beside it.

use std::fs;
use std::path::Path;

use super::metrics::{GroupCounts, Groups, Proportion, SpanCounts, percent};
use super::results::{EvalResults, WrongWay};
use crate::cli::CommandError;

/// Name of the page in the report's folder.
const PAGE: &str = "evaluation.md";
/// Folder of the figures in the report's folder.
const FIGURES: &str = "evaluation";
/// Heading of the last section, the only one that differs between runs.
const TIMES: &str = "## Times";

/// Beginning of the page.
const HEAD: &str = "\
# Evaluation

Output of `callboard eval all --report DIR`; this page in `docs/` is written by `cargo xtask evaluation`. Every number is the same on
every run, except those of the last section. In brackets: 95 % intervals after Wilson. The lines and their formats are in
[examples/eval](../examples/eval/README.md). Positive lines are those that have to be found; *precision* is the share of found lines that
are positive, *recall* the share of positive lines that are found, *FPR* the share of the others that are found.
";

/// Writes the report of these evaluations into a folder, which is created if needed.
///
/// # Errors
/// The folder or a file in it can't be written.
pub(super) fn write(folder: &Path, all: &[&EvalResults]) -> Result<(), CommandError> {
    let figures = folder.join(FIGURES);
    fs::create_dir_all(&figures).map_err(|error| CommandError::file(&figures, error))?;
    let write = |file: &Path, text: String| {
        fs::write(file, text).map_err(|error| CommandError::file(file, error))
    };
    let mut page = format!("{HEAD}\n## Summary\n\n{}", summary(all));
    for results in all.iter().filter(|results| !results.is_empty()) {
        let name = format!("{}.svg", slug(results.name));
        page += &section(results, &format!("{FIGURES}/{name}"));
        write(&figures.join(name), figure(results))?;
    }
    page += &times(all);
    write(&folder.join(PAGE), page)
}

/// Returns a name as part of a file name.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("_")
}

fn f1_cell(f1: Option<f64>) -> String {
    f1.map_or_else(|| "–".to_owned(), percent)
}

/// Returns the cells of a row about lines: number, precision, recall, false-positive rate, F1.
fn counts_cells(counts: &GroupCounts) -> String {
    let lines = counts.lines;
    format!(
        "{} | {} | {} | {} | {}",
        lines.all(),
        lines.precision().to_cell(),
        lines.recall().to_cell(),
        lines.false_positive_rate().to_cell(),
        f1_cell(lines.f1())
    )
}

fn summary(all: &[&EvalResults]) -> String {
    let mut table = "| evaluation | positive | n | precision | recall | FPR | F1 | as labelled |\n\
                     |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for results in all.iter().filter(|results| !results.is_empty()) {
        table += &format!(
            "| {} | {} | {} | {} |\n",
            results.name,
            results.positive,
            counts_cells(&results.all),
            results.all.as_labelled().to_cell()
        );
    }
    table
}

fn section(results: &EvalResults, figure: &str) -> String {
    let mut text = format!(
        "\n## {}\n\n![{} by kind]({figure})\n\n",
        results.name, results.name
    );
    text += &groups_table("set", &results.by_set);
    if results.all.spans != SpanCounts::default() {
        text += &spans_table(results);
    }
    if !results.shares.is_empty() {
        text += "| measure | share |\n|---|---|\n";
        for (name, share) in &results.shares {
            text += &format!("| {name} | {} |\n", share.to_cell());
        }
        text.push('\n');
    }
    text += &groups_table("kind", &results.by_kind);
    if results.by_source.len() > 1 {
        text += &groups_table("source", &results.by_source);
    }
    if results.by_lang.len() > 1 {
        text += &groups_table("language", &results.by_lang);
    }
    let passes = "Shortest that passes and must not (dev)";
    let blocked = "Shortest that is stopped and must not be (dev)";
    for (heading, way) in [(passes, WrongWay::Missed), (blocked, WrongWay::FalseAlarm)] {
        text += &example(results, heading, way);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn groups_table(heading: &str, groups: &Groups) -> String {
    let mut table = format!(
        "| {heading} | n | precision | recall | FPR | F1 | as labelled |\n|---|---|---|---|---|---|---|\n"
    );
    for (name, counts) in groups {
        table += &format!(
            "| {name} | {} | {} |\n",
            counts_cells(counts),
            counts.as_labelled().to_cell()
        );
    }
    table + "\n"
}

fn spans_table(results: &EvalResults) -> String {
    let mut table = "The numbers above count documents: has personal data, and is it found. By place, where any overlap counts:\n\n\
                     | set | places | precision | recall | F1 |\n|---|---|---|---|---|\n"
        .to_owned();
    for (name, counts) in &results.by_set {
        let spans = counts.spans;
        table += &format!(
            "| {name} | {} | {} | {} | {} |\n",
            spans.labelled.all,
            spans.found.to_cell(),
            spans.labelled.to_cell(),
            f1_cell(spans.f1())
        );
    }
    table + "\n"
}

/// Returns the shortest wrong line of that way whose text may be shown; nothing if there is none.
fn example(results: &EvalResults, heading: &str, way: WrongWay) -> String {
    let wrong = results.wrong.iter().filter(|line| line.way == way);
    let shown = wrong.filter_map(|line| Some((line, line.text.as_deref()?)));
    let shortest = shown.min_by_key(|(line, text)| (text.chars().count(), line.id.clone()));
    let Some((line, text)) = shortest else {
        return String::new();
    };
    let text = text.replace('`', "'");
    format!(
        "{heading}: `{}`, expected {}, got {}.\n\n```text\n{text}\n```\n\n",
        line.id, line.expected, line.got
    )
}

fn times(all: &[&EvalResults]) -> String {
    let mut text = format!(
        "\n{TIMES}\n\nOf one judgement, in microseconds, on the machine and build that made this page. The first of a process prepares the \
         patterns.\n\n| evaluation | first | p50 | p99 |\n|---|---|---|---|\n"
    );
    for results in all.iter().filter(|results| !results.is_empty()) {
        let [first, median, p99] = results.durations.microseconds();
        text += &format!(
            "| {} | {first:.0} | {median:.0} | {p99:.0} |\n",
            results.name
        );
    }
    text
}

/// Width of a figure's part with bars, in pixels.
const BARS_WIDTH: f64 = 420.0;
/// Width of a figure's part with names, in pixels.
const NAMES_WIDTH: f64 = 220.0;
/// Height of one row of a figure, in pixels.
const ROW_HEIGHT: usize = 24;

/// Draws the share judged as labelled of each kind as a bar, with its interval.
fn figure(results: &EvalResults) -> String {
    let rows: Vec<(String, Proportion)> = results
        .by_kind
        .iter()
        .map(|(name, counts)| (name.clone(), counts.as_labelled()))
        .chain([("all".to_owned(), results.all.as_labelled())])
        .collect();
    let height = ROW_HEIGHT * (rows.len() + 1);
    let width = NAMES_WIDTH + BARS_WIDTH + 80.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{NAMES_WIDTH}\" y=\"16\">{}: judged as labelled, with 95 % interval</text>\n",
        escape(results.name)
    );
    for (at, (name, share)) in rows.iter().enumerate() {
        let top = (at + 1) * ROW_HEIGHT;
        let (middle, baseline) = (top + ROW_HEIGHT / 2, top + 16);
        let x = |share: f64| NAMES_WIDTH + share * BARS_WIDTH;
        let [low, high] = share.interval().map(x);
        svg += &format!(
            "<text x=\"{:.0}\" y=\"{baseline}\" text-anchor=\"end\">{} ({})</text>\n\
             <rect x=\"{NAMES_WIDTH}\" y=\"{}\" width=\"{:.1}\" height=\"14\" fill=\"#4a7fb5\"/>\n\
             <path d=\"M{low:.1} {middle}H{high:.1}\" stroke=\"black\"/>\n\
             <text x=\"{:.0}\" y=\"{baseline}\">{}</text>\n",
            NAMES_WIDTH - 8.0,
            escape(name),
            share.all,
            top + 5,
            share.accuracy() * BARS_WIDTH,
            NAMES_WIDTH + BARS_WIDTH + 8.0,
            percent(share.accuracy())
        );
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names of files and texts in a figure can't break either. Method: a name with spaces,
    /// one with markup.
    #[test]
    fn names_are_safe() {
        assert_eq!(slug("clinics, hostile clinic"), "clinics_hostile_clinic");
        assert_eq!(escape("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
