//! Text for terminals: control characters removed, lengths limited, content blocks described.

use callboard_message::{Content, Progress};
use serde_json::Value;

/// Removes characters from a remote text that move the cursor, change colours or change the text
/// direction.
pub(crate) fn strip_control_chars(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || turns(*c)))
        .collect()
}

/// Formats progress: the amount if known, and the message.
pub(crate) fn format_progress(progress: &Progress) -> String {
    let said = progress.message.as_deref();
    match (progress.done, progress.total, said) {
        (0.0, None, Some(said)) => said.to_owned(),
        (done, None, None) => done.to_string(),
        (done, None, Some(said)) => format!("{done}  {said}"),
        (done, Some(total), None) => format!("{done} of {total}"),
        (done, Some(total), Some(said)) => format!("{done} of {total}  {said}"),
    }
}

/// Formats a value: a text as it is, other values as JSON.
pub(crate) fn format_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the first line of a text, for lists.
pub(crate) fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// Returns a text on one line, cut to `chars_max` characters.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    truncate_chars(
        &text.split_whitespace().collect::<Vec<_>>().join(" "),
        chars_max,
    )
}

/// Returns the first `chars_max` characters of a text, with `…` if it was cut.
pub(crate) fn truncate_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Formats a content block: its text, or a description of it.
pub(crate) fn format_content(block: &Content) -> String {
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
        assert_eq!(
            strip_control_chars("a\u{1b}[31mb\u{7}\rc\n\td\u{9b}"),
            "a[31mbc\n\td"
        );
        assert_eq!(
            strip_control_chars("pay \u{202e}001\u{2069} \u{5d0}"),
            "pay 001 \u{5d0}"
        );
    }

    /// Goal: progress is told as far as it is known. Method: with and without amount, total and words.
    #[test]
    fn progress_is_told() {
        for (done, total, message, expect) in [
            (0.0, None, Some("Routing"), "Routing"),
            (0.0, None, None, "0"),
            (2.0, None, Some("files"), "2  files"),
            (2.5, Some(4.0), None, "2.5 of 4"),
            (0.0, Some(4.0), Some("files"), "0 of 4  files"),
        ] {
            assert_eq!(
                format_progress(&Progress {
                    done,
                    total,
                    message: message.map(str::to_owned)
                }),
                expect
            );
        }
    }
}
