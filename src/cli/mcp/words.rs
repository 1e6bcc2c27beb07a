//! Words of a command line, and words that a server sent.

use callboard_message::Content;

/// Cuts a command into words as a shell does, with single and double quotes and backslashes, and nothing else of it.
/// `None`: a quote isn't closed, or there is no word.
pub(super) fn cut(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), letter) if open == letter => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().push(letters.next()?),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    (quote.is_none() && !words.is_empty()).then_some(words)
}

/// What a server sent, without what would move a terminal's cursor or change its colours.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// The first line of a text, for lists.
pub(in crate::cli) fn first_line(text: &str) -> String {
    printable(text.trim().lines().next().unwrap_or_default())
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

    /// Goal: a command reads as in a shell. Method: quotes, escapes, empty words, and quotes left open.
    #[test]
    fn commands_are_cut() {
        let words = |text: &str| cut(text).map(|words| words.join("|"));
        assert_eq!(words(r#"npx  -y "a b" 'c "d"' e\ f "" g"h"i"#).as_deref(), Some(r#"npx|-y|a b|c "d"|e f||ghi"#));
        for bad in ["", "   ", "a 'b", "a \"b", "a \\"] {
            assert_eq!(cut(bad), None, "{bad:?}");
        }
    }

    /// Goal: a server can't play with the terminal. Method: an escape sequence, a bell, a carriage return.
    #[test]
    fn escapes_are_taken_out() {
        assert_eq!(printable("a\u{1b}[31mb\u{7}\rc\n\td\u{9b}"), "a[31mbc\n\td");
    }
}
