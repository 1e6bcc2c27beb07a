//! What of a request fits into a prompt: least important first, it is left out.

use std::cmp::Reverse;
use std::fmt::Write;

use callboard_message::Speaker;

use super::prompt::{Fill, Fills, Prompt, one_line};
use crate::decide::limits::{DESCRIPTION_CHARS_MAX, cut_bytes};
use crate::decide::{AgentView, ToolView, Turn};
use crate::text::{fold, words};

/// Longest prompt, in tokens, by default.
pub const PROMPT_TOKENS_MAX: usize = 8_000;
/// How many bytes of text are taken for one token.
const BYTES_A_TOKEN: usize = 4;
/// Descriptions where there isn't room for the whole ones, in characters.
const SHORT_DESCRIPTION_CHARS: usize = 160;
/// Agents where there isn't room for all.
const AGENTS_KEPT: usize = 32;
/// What is left at least of a text whose middle is cut out, in bytes: less says nothing.
const TEXT_BYTES_MIN: usize = 256;
/// Longest turn of the conversation in one line, in characters.
const TURN_CHARS_MAX: usize = 4_096;
/// Examples that are shown of a tool or skill.
const EXAMPLES_SHOWN: usize = 4;

/// What is known of a request, as far as a prompt may show it.
#[derive(Debug, Clone, Default)]
pub(super) struct Material {
    /// For the first line.
    pub subject: String,
    pub history: Vec<Turn>,
    pub tools: Vec<ToolView>,
    /// Whether the tools' parameters are shown.
    pub with_params: bool,
    pub agents: Vec<AgentView>,
    /// Texts by place: their middles can be cut out.
    pub texts: Vec<(&'static str, String)>,
    /// What can't be cut.
    pub fixed: Fills,
}

impl Material {
    /// What somebody says, and nothing else yet.
    pub fn said(text: &str) -> Self {
        Self { subject: text.to_owned(), texts: vec![("latest_user_text", text.to_owned())], ..Self::default() }
    }
}

/// It doesn't fit, whatever is left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// What the model is told, and the turn, in so many tokens.
pub(super) fn fit(prompt: &Prompt, mut material: Material, tokens_max: usize) -> Result<(String, String), TooLong> {
    let bytes_max = tokens_max.saturating_mul(BYTES_A_TOKEN);
    let over = |material: &Material| {
        let (system, turn) = material.fill(prompt);
        (system.len() + turn.len()).saturating_sub(bytes_max)
    };
    material.history.iter_mut().for_each(|turn| turn.text = one_line(&turn.text, TURN_CHARS_MAX));
    let mut too_much = over(&material);
    if too_much > 0 {
        let mut freed = 0;
        let gone = material.history.iter().take_while(|turn| {
            let more = freed < too_much;
            freed += turn.text.len();
            more
        });
        let gone = gone.count();
        material.history.drain(..gone);
    }
    let cuts: [fn(&mut Material); 3] =
        [Material::without_examples, Material::with_short_descriptions, Material::with_few_agents];
    for cut in cuts {
        if over(&material) == 0 {
            break;
        }
        cut(&mut material);
    }
    too_much = over(&material);
    if too_much > 0 {
        material.cut_texts(too_much)?;
    }
    match over(&material) {
        0 => Ok(material.fill(prompt)),
        _ => Err(TooLong),
    }
}

impl Material {
    fn fill(&self, prompt: &Prompt) -> (String, String) {
        let mut fills = self.fixed.clone();
        fills.push(("history_as_bullet_points", Fill::Data(self.history_lines())));
        fills.push(("tool_table", Fill::Data(self.tool_lines())));
        fills.push(("agent_table", Fill::Data(self.agent_lines())));
        fills.extend(self.texts.iter().map(|(name, text)| (*name, Fill::Data(text.clone()))));
        prompt.fill(&self.subject, &fills)
    }

    fn history_lines(&self) -> String {
        let line = |turn: &Turn| {
            let by = match turn.by {
                Speaker::User => "user",
                Speaker::Assistant => "assistant",
            };
            format!("- {by}: {}", turn.text)
        };
        self.history.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn tool_lines(&self) -> String {
        let line = |tool: &ToolView| {
            let mut line = format!("- {}: {}", tool.name, one_line(&tool.description, DESCRIPTION_CHARS_MAX));
            add_words(&mut line, &tool.tags, &tool.examples);
            if self.with_params {
                // A String takes whatever is written to it.
                let _ = write!(line, "; parameters: {}", tool.params);
            }
            line
        };
        self.tools.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn agent_lines(&self) -> String {
        self.agents.iter().map(agent_line).collect::<Vec<_>>().join("\n")
    }

    fn without_examples(&mut self) {
        let skills = self.agents.iter_mut().flat_map(|agent| &mut agent.skills).map(|skill| &mut skill.examples);
        skills.chain(self.tools.iter_mut().map(|tool| &mut tool.examples)).for_each(Vec::clear);
    }

    fn with_short_descriptions(&mut self) {
        let tools = self.tools.iter_mut().map(|tool| &mut tool.description);
        let agents = self.agents.iter_mut().flat_map(|agent| {
            std::iter::once(&mut agent.description).chain(agent.skills.iter_mut().map(|skill| &mut skill.description))
        });
        tools.chain(agents).for_each(|text| *text = one_line(text, SHORT_DESCRIPTION_CHARS));
    }

    /// Those that share most words with the request, in their order.
    fn with_few_agents(&mut self) {
        if self.agents.len() <= AGENTS_KEPT {
            return;
        }
        let wanted = fold(&self.texts.iter().map(|(_, text)| &**text).collect::<Vec<_>>().join(" "));
        let wanted: Vec<&str> = words(&wanted).filter(|word| word.chars().count() > 2).collect();
        let shared = |agent: &AgentView| {
            let told = fold(&agent_line(agent));
            let told: Vec<&str> = words(&told).collect();
            wanted.iter().filter(|word| told.contains(word)).count()
        };
        let mut ranked: Vec<(usize, usize)> =
            self.agents.iter().enumerate().map(|(at, agent)| (at, shared(agent))).collect();
        ranked.sort_by_key(|(_, shared)| Reverse(*shared));
        ranked.truncate(AGENTS_KEPT);
        let mut at = 0;
        self.agents.retain(|_| {
            let kept = ranked.iter().any(|(kept, _)| *kept == at);
            at += 1;
            kept
        });
    }

    /// The middles of the texts, the longer the more.
    fn cut_texts(&mut self, too_much: usize) -> Result<(), TooLong> {
        let all: usize = self.texts.iter().map(|(_, text)| text.len()).sum();
        let left = all.saturating_sub(too_much);
        for (_, text) in &mut self.texts {
            let bytes_max = (text.len() as u128 * left as u128 / all.max(1) as u128) as usize;
            if text.len() > bytes_max {
                *text = without_middle(text, bytes_max).ok_or(TooLong)?;
            }
        }
        Ok(())
    }
}

/// Its beginning and end in so many bytes, and between them how much is left out. `None` where little would be left.
pub(super) fn without_middle(text: &str, bytes_max: usize) -> Option<String> {
    if text.len() <= bytes_max {
        return Some(text.to_owned());
    }
    let note = |count: usize| format!("\n[… {count} characters left out …]\n");
    let room = bytes_max.checked_sub(note(text.len()).len()).filter(|room| *room >= TEXT_BYTES_MIN)?;
    // A request begins with what is wanted: more of the beginning is kept.
    let head = cut_bytes(text, room / 3 * 2);
    let from = text.len() - room / 3;
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let (middle, tail) =
        text.get(head.len()..).unwrap_or_default().split_at_checked(from - head.len()).unwrap_or_default();
    Some(format!("{head}{}{tail}", note(middle.chars().count())))
}

fn agent_line(agent: &AgentView) -> String {
    let mut line = format!("- {} ({})", agent.id, one_line(&agent.name, SHORT_DESCRIPTION_CHARS));
    if !agent.is_up {
        line.push_str(" [away]");
    }
    // A String takes whatever is written to it.
    let _ = write!(line, ": {}", one_line(&agent.description, DESCRIPTION_CHARS_MAX));
    for skill in &agent.skills {
        let (name, description) = (one_line(&skill.name, 80), one_line(&skill.description, DESCRIPTION_CHARS_MAX));
        let _ = write!(line, " Skill {name}: {description}");
        add_words(&mut line, &skill.tags, &skill.examples);
        for (what, words) in [("takes", &skill.input_modes), ("makes", &skill.output_modes), ("needs", &skill.security)]
        {
            add_traits(&mut line, what, words);
        }
        line.push('.');
    }
    line
}

/// Adds media types and security schemes, without the types that any agent has.
fn add_traits(line: &mut String, what: &str, words: &[String]) {
    let is_plain = |word: &&String| matches!(word.as_str(), "text/plain" | "application/json" | "*/*" | "text");
    let words: Vec<&str> = words.iter().filter(|word| !is_plain(word)).map(String::as_str).collect();
    if !words.is_empty() {
        let _ = write!(line, "; {what} {}", one_line(&words.join(", "), SHORT_DESCRIPTION_CHARS));
    }
}

fn add_words(line: &mut String, tags: &[String], examples: &[String]) {
    if !tags.is_empty() {
        line.push_str("; about ");
        line.push_str(&one_line(&tags.join(", "), DESCRIPTION_CHARS_MAX));
    }
    let examples = examples.iter().take(EXAMPLES_SHOWN).map(|example| one_line(example, SHORT_DESCRIPTION_CHARS));
    let examples: Vec<String> = examples.map(|example| format!("“{example}”")).collect();
    if !examples.is_empty() {
        line.push_str("; for example ");
        line.push_str(&examples.join(", "));
    }
}
