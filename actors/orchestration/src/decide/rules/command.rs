//! Extraction of the command line from a request: the whole line exactly as written, or nothing.
//!
//! Only text that certainly isn't part of the command is left out: words before the program, and a
//! sentence or courtesy after it. Shell syntax stays in, so that the tool rejects it with a reason.

use callboard_message::text::is_one_of;

use super::lexicon::WordSet;
use super::reading::{RequestReading, closing_mark};
use super::tokens::TokenKind;

/// Words that may stand between the verb and the program in a request to run a command, as in `run
/// the command ls`.
const BEFORE: &str = "a an the um uma o os as this following command commands program programa comando please just : to";
/// Words that join two commands in one request.
const JOINS: &str = "and n then plus e depois";
/// Programs whose arguments are text, so that a trailing remark can't be told from an argument.
const SAY: [&str; 2] = ["echo", "printf"];
/// Minimum words of a trailing remark that isn't part of the command. Fewer words may be arguments.
const ASIDE_WORDS_MIN: usize = 3;

/// Returns the command line in a request. `None` if it isn't clear which words belong to it, or if
/// there are several commands.
pub(super) fn command_line(reading: &RequestReading, request: &str) -> Option<String> {
    let all = reading.full_span();
    let mut numbers = reading
        .tokens
        .iter()
        .filter(|token| token.kind == TokenKind::Number)
        .map(|token| &*token.folded);
    if reading.begins_with(WordSet::KillVerb, &all)
        && reading.has(WordSet::Process, &all)
        && let Some(pid) = numbers.next()
    {
        // Of several numbers, it isn't clear which one is the process id.
        let is_clear = numbers.next().is_none() && pid.bytes().all(|b| b.is_ascii_digit());
        return is_clear.then(|| format!("kill {pid}"));
    }
    let start = start(reading)?;
    let line = match delimited(reading, start) {
        Some(line) => line,
        None => undelimited(reading, start)?,
    };
    // Normalization may have changed the text; only a line exactly as written may run.
    (!line.is_empty() && request.contains(line)).then(|| line.to_owned())
}

/// Returns the byte offset in the request at which the command begins.
fn start(reading: &RequestReading) -> Option<usize> {
    let tokens = &reading.tokens;
    if let Some(prompt) = tokens.first().filter(|token| token.folded == "$") {
        return Some(prompt.range.end);
    }
    let all = reading.full_span();
    let program = all
        .clone()
        .find(|at| reading.is_in_set(*at, WordSet::Program));
    let ends = reading
        .hits_in(WordSet::RunVerb, &all)
        .map(|hit| hit.at + hit.len);
    let verb_end = ends
        .filter(|end| program.is_none_or(|program| *end <= program))
        .last();
    let Some(program) = program else {
        // The first verb counts: a later one may be an argument.
        let verb_end = reading
            .hits_in(WordSet::RunVerb, &all)
            .map(|hit| hit.at + hit.len)
            .next();
        let kill = || {
            reading
                .hits_in(WordSet::KillVerb, &all)
                .map(|hit| tokens[hit.at].range.start)
                .next()
        };
        return verb_end.map(|end| after_verb(reading, end)).or_else(kill);
    };
    if let Some(end) = verb_end {
        let begins = after_verb(reading, end);
        let between = reading
            .text
            .get(begins..tokens[program].range.start)
            .unwrap_or_default();
        let ends_sentence = between.contains([',', '.', ';', '\n', '?', '!']);
        let joined = tokens[end..program]
            .iter()
            .any(|token| is_one_of(&token.folded, JOINS));
        if !ends_sentence && !joined {
            return Some(begins);
        }
    }
    // An unknown word before it may be the program, and this word its argument.
    let is_unknown = |at: usize| {
        let token = &tokens[at];
        token.is_word() && !reading.is_known(at)
    };
    let mut first = program;
    while first > 0 && is_unknown(first - 1) {
        first -= 1;
    }
    Some(tokens[first].range.start)
}

/// Returns the byte offset in the request's text after a verb such as `run`, where the shell
/// command follows. `end` is the index of the token after the verb. Filler words such as `the
/// command` are skipped, names of programs and quoted text aren't.
fn after_verb(reading: &RequestReading, end: usize) -> usize {
    let tokens = &reading.tokens;
    let mut done = end
        .checked_sub(1)
        .and_then(|at| tokens.get(at))
        .map_or(0, |token| token.range.end);
    for (at, token) in tokens.iter().enumerate().skip(end) {
        // More than white space between two tokens means quoted text.
        let is_next = reading
            .text
            .get(done..token.range.start)
            .is_some_and(|between| between.trim().is_empty());
        if !is_next || reading.is_in_set(at, WordSet::Program) || !is_one_of(&token.folded, BEFORE)
        {
            break;
        }
        done = token.range.end;
    }
    done
}

/// Returns the command between quotation marks or backticks, if nothing follows except a remark.
fn delimited(reading: &RequestReading, start: usize) -> Option<&str> {
    let text = &*reading.text;
    // The opening mark may stand directly before the program's name.
    let before = text
        .get(..start)?
        .chars()
        .next_back()
        .filter(|mark| *mark == '`');
    let start = start - before.map_or(0, char::len_utf8);
    let tail = text.get(start..)?.trim_start();
    let mark = tail
        .chars()
        .next()
        .filter(|c| matches!(c, '`' | '"' | '\'' | '“' | '«'))?;
    let inside = tail.get(mark.len_utf8()..)?;
    let (line, rest) = inside.split_once(closing_mark(mark))?;
    let rest_at = text.len() - rest.len();
    is_aside(reading, rest_at).then(|| line.trim())
}

/// Returns the command that begins at byte `start` without quotation marks. It ends at the end of
/// the text or before a trailing remark.
fn undelimited(reading: &RequestReading, start: usize) -> Option<&str> {
    let text = &*reading.text;
    let start = start + text.get(start..)?.len() - text.get(start..)?.trim_start().len();
    let first = reading
        .tokens
        .iter()
        .position(|token| token.range.start >= start);
    let program = text.get(start..)?.split_whitespace().next()?;
    let mut end = text.len();
    for (at, token) in reading
        .tokens
        .iter()
        .enumerate()
        .skip(first.map_or(usize::MAX, |first| first + 1))
    {
        let begins = token.range.start;
        let is_joint = is_one_of(&token.folded, JOINS);
        let another = |at: usize| {
            let is_same = reading
                .tokens
                .get(at)
                .is_some_and(|token| text.get(token.range.clone()) == Some(program));
            is_same
                || [WordSet::Program, WordSet::RunVerb]
                    .into_iter()
                    .any(|set| reading.is_in_set(at, set))
        };
        if is_joint && another(at + 1) {
            return None;
        }
        let ends = match token.kind {
            TokenKind::Sign => {
                is_end_of_clause(text, begins, &token.folded) && is_aside(reading, token.range.end)
            }
            _ => begins_courtesy(reading, at) && is_aside(reading, begins),
        };
        if ends && !SAY.contains(&program) && (!token.is_sign("?") || is_question(reading)) {
            end = begins;
            break;
        }
    }
    Some(text.get(start..end)?.trim())
}

/// Whether a sign ends a clause: it is followed, but not preceded, by white space or nothing.
fn is_end_of_clause(text: &str, at: usize, sign: &str) -> bool {
    let goes_before = text.get(..at).and_then(|before| before.chars().next_back());
    let follows = text
        .get(at + sign.len()..)
        .and_then(|after| after.chars().next());
    match sign {
        "\n" => true,
        "," | "." | "?" | "!" => {
            follows.is_none_or(char::is_whitespace)
                && goes_before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '\'' | '"'))
        }
        _ => false,
    }
}

/// Whether a courtesy phrase begins at token `at`: `please`, `thanks`, or in Portuguese `aí`, `por
/// favor`, `pra mim`, `pra eu ver`.
fn begins_courtesy(reading: &RequestReading, at: usize) -> bool {
    let word = |at: usize| reading.tokens.get(at).map_or("", |token| &*token.folded);
    match word(at) {
        "please" | "thanks" => true,
        "ai" => reading.portuguese,
        "por" => word(at + 1) == "favor",
        "pra" | "para" => reading.portuguese && is_one_of(word(at + 1), "mim eu gente nos ver"),
        _ => false,
    }
}

/// Whether the request is phrased as a question, such as `can you …`.
fn is_question(reading: &RequestReading) -> bool {
    const ASKS: &str = "can could would will may pode poderia podia consegue da";
    reading
        .tokens
        .first()
        .is_some_and(|token| is_one_of(&token.folded, ASKS))
}

/// Whether the text from byte `from` on is certainly a remark and no part of a command: empty, a
/// courtesy, or words of a sentence.
fn is_aside(reading: &RequestReading, from: usize) -> bool {
    let Some(rest) = reading.text.get(from..) else {
        return false;
    };
    let mut before = ' ';
    for c in rest.chars() {
        let opens_quote = c == '\'' && !before.is_alphanumeric();
        if opens_quote
            || matches!(
                c,
                '"' | '“' | '«' | '`' | '$' | '|' | '<' | '>' | '&' | '*' | '\\' | '=' | ';'
            )
        {
            return false;
        }
        before = c;
    }
    let rest = || (0..reading.tokens.len()).filter(|at| reading.tokens[*at].range.start >= from);
    let is_of = |at: usize, sets: &[WordSet]| sets.iter().any(|set| reading.is_in_set(at, *set));
    // For example `run that for me`.
    let runs_more = |at: usize| {
        reading.is_in_set(at, WordSet::RunVerb) && !reading.is_in_set(at + 1, WordSet::Pronoun)
    };
    let is_command = |at: usize| {
        matches!(
            reading.tokens[at].kind,
            TokenKind::Code | TokenKind::Address
        ) || reading.is_in_set(at, WordSet::Program)
            || runs_more(at)
    };
    if rest().any(is_command) {
        return false;
    }
    let words: Vec<usize> = rest()
        .filter(|at| reading.tokens[*at].kind != TokenKind::Sign)
        .collect();
    let Some(first) = words.first() else {
        return true;
    };
    let is_courtesy = begins_courtesy(reading, *first)
        && words
            .iter()
            .all(|at| is_of(*at, &[WordSet::Stop, WordSet::Filler, WordSet::Pronoun]));
    let is_sentence = words.len() >= ASIDE_WORDS_MIN
        && reading.is_known(*first)
        && words.iter().any(|at| reading.is_in_set(*at, WordSet::Stop));
    is_courtesy || is_sentence
}
