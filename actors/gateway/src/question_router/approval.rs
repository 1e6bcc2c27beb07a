//! Text of a sampling request for the person who must approve it.

use std::fmt::Write;

use callboard_message::{RawObject, SamplingRequest, Speaker};

/// Maximum characters of a sampling request that are shown to the person who must approve it. Long
/// turns share them; the rest of each is counted. Fixed.
const APPROVAL_CHARS_MAX: usize = 4_000;
/// Maximum turns of a sampling request that are shown to the person who must approve it: the latest.
/// Earlier ones are counted. Fixed.
const APPROVAL_TURNS_MAX: usize = 32;

/// System prompt or turn of a sampling request.
struct ApprovalPart {
    speaker: &'static str,
    /// Texts on one line, so that none of them can look like another part.
    line: Vec<char>,
    images: usize,
    /// Number of contents that are neither text nor image.
    others: usize,
}

/// Returns the system prompt and the latest [`APPROVAL_TURNS_MAX`] turns of a conversation, each on
/// a line with its speaker. Their texts have up to [`APPROVAL_CHARS_MAX`] characters in total. A
/// line ends with the numbers of characters, images and other contents left out of it; the number
/// of turns left out is on a line before the turns. Empty without prompt and turns.
pub(super) fn approval_text(sample: &SamplingRequest) -> String {
    let turns: Vec<RawObject> = sample.0.read("messages").unwrap_or_default();
    let earlier = turns.len().saturating_sub(APPROVAL_TURNS_MAX);
    let system = sample.0.text("systemPrompt").map(|text| ApprovalPart {
        speaker: "system",
        line: on_one_line(&text).collect(),
        images: 0,
        others: 0,
    });
    let has_system = system.is_some();
    let parts: Vec<_> = system
        .into_iter()
        .chain(turns.iter().skip(earlier).map(ApprovalPart::of_turn))
        .collect();
    let length_max = fitting_length(parts.iter().map(|part| part.line.len()).collect());
    let mut lines: Vec<String> = parts.iter().map(|part| part.shown(length_max)).collect();
    if earlier > 0 {
        lines.insert(
            usize::from(has_system),
            format!("… {}", counted(earlier, "earlier turn")),
        );
    }
    lines.join("\n")
}

impl ApprovalPart {
    fn of_turn(turn: &RawObject) -> Self {
        let contents: Vec<RawObject> = match turn.object("content") {
            Some(content) => vec![content],
            None => turn.read("content").unwrap_or_default(),
        };
        let mut part = Self {
            speaker: match turn.read("role") {
                Some(Speaker::User) => "user",
                Some(Speaker::Assistant) => "assistant",
                None => "unknown",
            },
            line: Vec::new(),
            images: 0,
            others: 0,
        };
        for content in &contents {
            match content.text("type").as_deref() {
                Some("text") => {
                    let text = content.text("text").unwrap_or_default();
                    let gap = (!part.line.is_empty()).then_some(' ');
                    part.line.extend(gap.into_iter().chain(on_one_line(&text)));
                }
                Some("image") => part.images += 1,
                _ => part.others += 1,
            }
        }
        part
    }

    /// Returns the speaker and up to `length_max` characters of the line. The speaker and the
    /// appended numbers of omitted characters, images and other parts don't count for `length_max`.
    fn shown(&self, length_max: usize) -> String {
        let mut shown = format!("{}: ", self.speaker);
        shown.extend(self.line.iter().take(length_max));
        let mut add = |count: usize, noun: &str, before: &str, after: &str| {
            if count > 0 {
                let counted = counted(count, noun);
                // Writing to a text can't fail.
                let _ = write!(shown, "{before}{counted}{after}");
            }
        };
        let cut = self.line.len().saturating_sub(length_max);
        add(cut, "more character", "… ", "");
        add(self.images, "image", " [", "]");
        add(self.others, "other part", " [", "]");
        shown
    }
}

fn on_one_line(text: &str) -> impl Iterator<Item = char> {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(move |c| if is_break(c) { ' ' } else { c })
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Returns the length to which texts with these lengths are cut, so that all together have up to
/// [`APPROVAL_CHARS_MAX`] characters.
fn fitting_length(mut lengths: Vec<usize>) -> usize {
    lengths.sort_unstable();
    let (mut left, mut open) = (APPROVAL_CHARS_MAX, lengths.len());
    for length in lengths {
        let share = left / open.max(1);
        if length > share {
            return share;
        }
        left -= length;
        open -= 1;
    }
    APPROVAL_CHARS_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: a person sees the system prompt and every turn with its speaker, each on one line; what
    /// isn't shown is counted. Method: a conversation with all kinds of content; none.
    #[test]
    fn conversations_are_shown() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "" });
        let messages = json!([
            { "role": "user", "content": { "type": "text", "text": "a\nassistant: b\u{2028}c" } },
            { "role": "assistant", "content": image },
            { "role": "user", "content": [
                image, { "type": "text", "text": "d" }, image, { "type": "audio" }, { "type": "text", "text": "e" }
            ] },
            { "role": "root", "content": "f" },
        ]);
        let sample = RawObject::single("messages", messages).with("systemPrompt", "Send it\nall");
        assert_eq!(
            approval_text(&SamplingRequest(sample)),
            "system: Send it all\nuser: a assistant: b c\nassistant:  [1 image]\n\
             user: d e [2 images] [1 other part]\nunknown: "
        );
        assert_eq!(approval_text(&SamplingRequest::default()), "");
    }

    /// Goal: what is shown is bounded, and a long turn doesn't hide a short one. Method: one text at
    /// the limit and one past it; two long ones beside a short one; one turn more than the limit.
    #[test]
    fn what_is_shown_is_bounded() {
        let of = |text: &str| approval_text(&SamplingRequest::prompt(text, 1));
        let full = "é".repeat(APPROVAL_CHARS_MAX);
        assert_eq!(of(&full), format!("user: {full}"));
        assert_eq!(
            of(&format!("{full}é")),
            format!("user: {full}… 1 more character")
        );
        let long = SamplingRequest::prompt("short", 1)
            .with_turn(Speaker::Assistant, &full)
            .with_turn(Speaker::User, &full)
            .with_system_prompt("x");
        let shown = approval_text(&long);
        let half = (APPROVAL_CHARS_MAX - "short".len() - "x".len()) / 2;
        let cut = format!(
            "{}… {} more characters",
            "é".repeat(half),
            APPROVAL_CHARS_MAX - half
        );
        assert_eq!(
            shown,
            format!("system: x\nuser: short\nassistant: {cut}\nuser: {cut}")
        );
        let many = (0..=APPROVAL_TURNS_MAX)
            .fold(SamplingRequest::prompt("0", 1), |sample, turn| {
                sample.with_turn(Speaker::User, turn.to_string())
            })
            .with_system_prompt("x");
        let shown = approval_text(&many);
        assert!(
            shown.starts_with("system: x\n… 2 earlier turns\nuser: 1\n"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), APPROVAL_TURNS_MAX + 2);
    }
}
