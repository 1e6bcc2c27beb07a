//! Texts of others, for people: without what moves a terminal's cursor, shortened, and blocks in words.

use callboard_message::{Content, Progress};
use serde_json::Value;

/// What a server sent, without what would move a terminal's cursor, change its colours, or turn the direction of what follows.
pub(crate) fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || turns(*c)))
        .collect()
}

/// How far something is: the amount where there is one, and what is said of it.
pub(crate) fn told_progress(progress: &Progress) -> String {
    let said = progress.message.as_deref();
    match (progress.done, progress.total, said) {
        (0.0, None, Some(said)) => said.to_owned(),
        (done, None, None) => done.to_string(),
        (done, None, Some(said)) => format!("{done}  {said}"),
        (done, Some(total), None) => format!("{done} of {total}"),
        (done, Some(total), Some(said)) => format!("{done} of {total}  {said}"),
    }
}

/// What people read of a value: a text as it is, else its JSON.
pub(crate) fn told_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The first line of a text, for lists.
pub(crate) fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// A text on one line, cut to so many characters.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    cut(
        &text.split_whitespace().collect::<Vec<_>>().join(" "),
        chars_max,
    )
}

/// The beginning of a text, with `…` where it goes on.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What people read of a block: its text, or what else it is.
pub(crate) fn told(block: &Content) -> String {
    if let Some(text) = block.as_text() {
        return text;
    }
    let member = |name: &str| block.0.text(name).unwrap_or_default();
    match member("type").as_str() {
        kind @ ("image" | "audio") => {
            let bytes = member("data").trim_end_matches('=').len() * 3 / 4;
            format!("[{kind}, {}, {bytes} bytes]", member("mimeType"))
        }
        "resource" => {
            let resource = block.0.object("resource").unwrap_or_default();
            let uri = resource.text("uri").unwrap_or_default();
            match resource.text("text") {
                Some(text) => format!("[{uri}]\n{text}"),
                None => format!("[{uri}, {}]", resource.text("mimeType").unwrap_or_default()),
            }
        }
        "resource_link" => format!("[{}: {}]", member("name"), member("uri")),
        other => format!("[{other}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server can't play with the terminal. Method: an escape sequence, a bell, a carriage return, overrides of direction.
    #[test]
    fn escapes_are_taken_out() {
        assert_eq!(printable("a\u{1b}[31mb\u{7}\rc\n\td\u{9b}"), "a[31mbc\n\td");
        assert_eq!(
            printable("pay \u{202e}001\u{2069} \u{5d0}"),
            "pay 001 \u{5d0}"
        );
    }

    /// Goal: progress is told as far as it is known. Method: with and without amount, total and words.
    #[test]
    fn progress_is_told() {
        for (done, total, message, expect) in [
            (0.0, None, Some("DP2"), "DP2"),
            (0.0, None, None, "0"),
            (2.0, None, Some("files"), "2  files"),
            (2.5, Some(4.0), None, "2.5 of 4"),
            (0.0, Some(4.0), Some("files"), "0 of 4  files"),
        ] {
            assert_eq!(
                told_progress(&Progress {
                    done,
                    total,
                    message: message.map(str::to_owned)
                }),
                expect
            );
        }
    }
}
