//! Which of our own tools a request is for, and with which parameters.

use std::ops::Range;

use callboard_message::RawObject;
use callboard_message::text::is_one_of;
use serde_json::Value;

use super::command::command_line;
use super::index::only_addressed;
use super::lexicon::Set;
use super::reading::Reading;
use super::words::Kind;
use crate::decide::{ToolChoice, ToolView};
use crate::tools::Tool;

/// Whether the rules have a grammar for the tool of that name.
pub(super) fn is_ours(name: &str) -> bool {
    Tool::named(name).is_some()
}

/// A tool, and how clearly a part of a request is for it (0 to 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Intent {
    pub(super) tool: Tool,
    pub(super) score: f32,
}

/// What a part of a request is for, the clearest; `None`: nothing says so.
pub(super) fn intent(reading: &Reading, span: &Range<usize>) -> Option<Intent> {
    let scores = [
        (Tool::Echo, echo(reading, span)),
        (Tool::ExecuteCommand, command(reading, span)),
        (Tool::RememberAgent, remember(reading, span)),
        (Tool::HumanInput, human(reading, span)),
        (Tool::ListAgents, list_agents(reading, span)),
        (Tool::Summarize, summarize(reading, span)),
    ];
    // The first of equals: the order above is from the most to the least particular.
    let mut best: Option<Intent> = None;
    for (tool, score) in scores {
        if score > best.map_or(0.0, |best| best.score) {
            best = Some(Intent { tool, score });
        }
    }
    best
}

fn word(reading: &Reading, at: usize) -> &str {
    reading.tokens.get(at).map_or("", |token| token.folded.as_str())
}

fn echo(reading: &Reading, span: &Range<usize>) -> f32 {
    if !reading.has_content() {
        return 0.0;
    }
    if reading.begins_with(Set::EchoVerb, span) && !reading.has(Set::SummarizeVerb, span) {
        return 0.95;
    }
    let asks = reading.has(Set::Question, span);
    let says = reading.begins_with(Set::SayVerb, span) && !reading.has(Set::Languages, span) && !asks;
    // `say 'x'`, and little else: what is about something goes elsewhere.
    let rest = span.clone().filter(|at| {
        reading.tokens.get(*at).is_some_and(|t| t.is_word())
            && !reading.is(*at, Set::Stop)
            && !reading.is(*at, Set::SayVerb)
    });
    const MORE_WORDS_MAX: usize = 3;
    if says && rest.count() <= MORE_WORDS_MAX && !reading.has(Set::Genre, span) { 0.85 } else { 0.0 }
}

fn command(reading: &Reading, span: &Range<usize>) -> f32 {
    let runs =
        reading.begins_with(Set::RunVerb, span) || reading.of(Set::RunVerb, span).any(|hit| hit.at < span.start + 6);
    let code = span.clone().any(|at| reading.tokens.get(at).is_some_and(|t| t.kind == Kind::Code));
    let first_word = word(reading, span.start) == "$";
    if first_word {
        return 0.95;
    }
    if runs && (reading.has(Set::Program, span) || code) {
        return 0.9;
    }
    if runs && reading.has(Set::CommandWord, span) {
        return 0.75;
    }
    let kind = |at: usize| reading.tokens.get(at).map(|t| t.kind);
    let given = |at: usize| matches!(kind(at), Some(Kind::Code | Kind::Address));
    // `df -h`, `ping 10.0.0.5`, wherever it stands.
    if reading.of(Set::Program, span).any(|hit| given(hit.at + 1) || given(hit.at + 2) && hit.at < span.start + 4) {
        return 0.85;
    }
    if reading.begins_with(Set::KillVerb, span) && reading.has(Set::Process, span) { 0.85 } else { 0.0 }
}

fn remember(reading: &Reading, span: &Range<usize>) -> f32 {
    let addressed = span.clone().any(|at| reading.tokens.get(at).is_some_and(|t| t.kind == Kind::Address));
    let notes = reading.has(Set::NoteVerb, span);
    let agents = reading.has(Set::Agents, span);
    match (addressed, agents, notes) {
        (true, true, _) => 0.95,
        (true, false, true) => 0.8,
        // An address, and nothing that anybody would do with it.
        (true, false, false) if !reading.has_code => 0.55,
        _ => 0.0,
    }
}

fn list_agents(reading: &Reading, span: &Range<usize>) -> f32 {
    if reading.has(Set::CanHelp, span) {
        return 0.85;
    }
    if !reading.has(Set::Agents, span) {
        let helpers = reading.has(Set::Helpers, span) && reading.begins_with(Set::Who, span);
        return if helpers { 0.5 } else { 0.0 };
    }
    let words = span.clone().filter(|at| reading.tokens.get(*at).is_some_and(|t| t.is_word())).count();
    const BARE_WORDS_MAX: usize = 3;
    // `travel agent`, `agente de viagem` are no agents of ours: a word of who or of knowing has to be near.
    let spoken_to = only_addressed(reading);
    let near = reading.of(Set::Agents, span).filter(|hit| !spoken_to.contains(&hit.at)).any(|hit| {
        let from = hit.at.saturating_sub(5).max(span.start);
        let to = (hit.at + 6).min(span.end);
        (from..to).any(|at| reading.is(at, Set::Who))
    });
    if near {
        0.85
    } else if words <= BARE_WORDS_MAX && spoken_to.is_empty() {
        0.6
    } else {
        0.0
    }
}

fn human(reading: &Reading, span: &Range<usize>) -> f32 {
    const NEAR: usize = 8;
    let real = reading.has(Set::RealPerson, span);
    let talks = |at: usize| {
        let from = at.saturating_sub(NEAR).max(span.start);
        (from..(at + NEAR).min(span.end)).any(|at| reading.is(at, Set::TalkVerb))
    };
    if reading.of(Set::RealPerson, span).any(|hit| talks(hit.at)) {
        return 0.95;
    }
    if real {
        return 0.7;
    }
    // `put a person on`: one of them is wanted, not spoken about.
    const ONE: &str = "a an the um uma o";
    let wanted = |at: usize| {
        at > span.start
            && is_one_of(word(reading, at - 1), ONE)
            && (at.saturating_sub(4).max(span.start)..at)
                .any(|at| reading.is(at, Set::TalkVerb) || is_one_of(word(reading, at), "put to com"))
    };
    const KINDS: &str =
        "human person operator representative supervisor humano humana pessoa atendente operador gerente manager";
    if reading.of(Set::Person, span).any(|hit| is_one_of(word(reading, hit.at), KINDS) && wanted(hit.at)) {
        return 0.85;
    }
    const FEW_WORDS: usize = 10;
    let few = span.len() <= FEW_WORDS && *span == reading.all();
    if few
        && reading.of(Set::Person, span).any(|hit| {
            is_one_of(
                word(reading, hit.at),
                "human humano humana supervisor supervisora gerente atendente operator operador",
            )
        })
    {
        return 0.7;
    }
    const SPEAKS: &str = "talk speak talking speaking chat transfer falar conversar transfere transfira chama chame";
    let speaks = |at: usize| {
        let from = at.saturating_sub(NEAR).max(span.start);
        (from..(at + NEAR).min(span.end)).any(|at| is_one_of(word(reading, at), SPEAKS))
    };
    if reading.of(Set::Person, span).any(|hit| speaks(hit.at) && hit.at + 1 >= span.start) { 0.85 } else { 0.0 }
}

fn summarize(reading: &Reading, span: &Range<usize>) -> f32 {
    if !reading.has(Set::SummarizeVerb, span) {
        let measured = reading.has_content() && is_measured(reading, span) && !reading.has(Set::Languages, span);
        // A text of some length, and nothing else that is wanted of it.
        const TEXT_WORDS_MIN: usize = 12;
        let is_text = reading.content.split_whitespace().nth(TEXT_WORDS_MIN - 1).is_some() && !reading.has_code;
        let alone =
            *span == reading.all() && !reading.has(Set::Languages, span) && !reading.has(Set::TranslateVerb, span);
        let bare = is_text && alone && !composes(reading, span) && !explains(reading, span);
        return match (measured, bare) {
            (true, _) => 0.8,
            (false, true) => 0.52,
            (false, false) => 0.0,
        };
    }
    // English `resume` is another word.
    let pt_only = reading.of(Set::SummarizeVerb, span).all(|hit| word(reading, hit.at) == "resume");
    if pt_only && !reading.portuguese {
        return 0.0;
    }
    if reading.has_content() { 0.9 } else { 0.7 }
}

/// `in two lines`, `em três frases`: with a text, it is to become so long.
fn is_measured(reading: &Reading, span: &Range<usize>) -> bool {
    const UNITS: &str = "line lines sentence sentences word words point points bullet bullets paragraph linha linhas frase frases palavra palavras ponto pontos topico topicos paragrafo";
    span.clone().any(|at| {
        is_one_of(word(reading, at), "in em into numa num")
            && (at + 1..at + 4).any(|at| span.contains(&at) && is_one_of(word(reading, at), UNITS))
    })
}

/// Whether the request is for a piece of writing: `write a limerick`.
pub(super) fn composes(reading: &Reading, span: &Range<usize>) -> bool {
    const NEAR: usize = 9;
    let piece = |hit: usize| reading.of(Set::Genre, span).any(|genre| genre.at > hit && genre.at - hit <= NEAR);
    // What is surely a verb of writing may also come after: "a speech …, could you draft something".
    const WRITES: &str = "write draft compose word pen redige redigir redija escreve escrever escreva compor componha";
    let writes = span.clone().any(|at| is_one_of(word(reading, at), WRITES)) && reading.has(Set::Genre, span);
    let about = span.clone().any(|at| is_one_of(word(reading, at), WRITES))
        && span.clone().any(|at| matches!(word(reading, at), "about" | "sobre"));
    writes || about || reading.of(Set::Compose, span).any(|hit| piece(hit.at))
}

/// Whether it is for an explanation or what everybody may know: `who invented …`, `what does … mean`.
pub(super) fn explains(reading: &Reading, span: &Range<usize>) -> bool {
    if reading.has_code {
        return false;
    }
    if reading.has(Set::Knowledge, span) {
        return true;
    }
    let means = span.clone().any(|at| matches!(word(reading, at), "mean" | "means" | "meaning" | "significa"));
    means && reading.has(Set::Question, span)
}

/// The tool for a request, with its parameters; `None`: none of them, or what it needs isn't there.
pub(super) fn choose(reading: &Reading, request: &str, tools: &[ToolView], tool: &str) -> Option<ToolChoice> {
    let view = tools.iter().find(|view| view.name == tool)?;
    let params = match Tool::named(tool) {
        Some(ours) => params(reading, request, ours)?,
        None => only_text(&view.params, request)?,
    };
    Some(ToolChoice { tool_name: tool.to_owned(), params })
}

fn params(reading: &Reading, request: &str, tool: Tool) -> Option<RawObject> {
    let text = if reading.has_content() { reading.content.trim() } else { request.trim() };
    Some(match tool {
        Tool::Echo | Tool::Summarize => RawObject::of("text", text),
        Tool::Llm => RawObject::of("text", request),
        Tool::ListAgents => RawObject::new(),
        Tool::RememberAgent => RawObject::of("url", reading.only_address()?),
        Tool::ExecuteCommand => RawObject::of("command", command_line(reading, request)?),
        Tool::HumanInput => RawObject::of("question", request),
    })
}

/// The request under the only text that a tool needs.
fn only_text(schema: &Value, request: &str) -> Option<RawObject> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).collect());
    match required.as_slice() {
        [] => Some(RawObject::new()),
        [name] => {
            let kind = schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str);
            (kind.unwrap_or("string") == "string").then(|| RawObject::of(name, request))
        }
        _ => None,
    }
}
