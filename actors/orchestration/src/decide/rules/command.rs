//! The command line that a request in words gives, as it was written: the whole of it, or none.
//!
//! Only what is surely no part of the command is left out: words before the program, and a sentence or a courtesy after it. What
//! needs a shell stays in it, so that the tool refuses it and says why.

use callboard_message::text::is_one_of;

use super::lexicon::Set;
use super::reading::{Reading, closing_mark};
use super::words::Kind;

/// Words between the verb and the program.
const BEFORE: &str = "a an the um uma o os as this following command commands program programa comando please just : to";
/// Words that join one command to the next.
const JOINS: &str = "and n then plus e depois";
/// Programs whose arguments are words: what looks like an aside behind them may be of those.
const SAY: [&str; 2] = ["echo", "printf"];
/// An aside of fewer words may be arguments.
const ASIDE_WORDS_MIN: usize = 3;

/// The command line; `None` where it isn't clear which words are of it, or where there are several commands.
pub(super) fn command_line(reading: &Reading, request: &str) -> Option<String> {
    let all = reading.all();
    let mut numbers = reading
        .tokens
        .iter()
        .filter(|token| token.kind == Kind::Number)
        .map(|token| &*token.folded);
    if reading.begins_with(Set::KillVerb, &all)
        && reading.has(Set::Process, &all)
        && let Some(pid) = numbers.next()
    {
        // Of several numbers it isn't known which is a process, and which a signal or a time.
        let is_clear = numbers.next().is_none() && pid.bytes().all(|b| b.is_ascii_digit());
        return is_clear.then(|| format!("kill {pid}"));
    }
    let start = start(reading)?;
    let line = match delimited(reading, start) {
        Some(line) => line,
        None => undelimited(reading, start)?,
    };
    // What was put into one spelling isn't what was written.
    (!line.is_empty() && request.contains(line)).then(|| line.to_owned())
}

/// Where the command begins, in bytes of the text.
fn start(reading: &Reading) -> Option<usize> {
    let tokens = &reading.tokens;
    if let Some(prompt) = tokens.first().filter(|token| token.folded == "$") {
        return Some(prompt.range.end);
    }
    let all = reading.all();
    let program = all.clone().find(|at| reading.is(*at, Set::Program));
    let ends = reading.of(Set::RunVerb, &all).map(|hit| hit.at + hit.len);
    let verb_end = ends
        .filter(|end| program.is_none_or(|program| *end <= program))
        .last();
    let Some(program) = program else {
        // After the first of the verbs: another may be an argument.
        let verb_end = reading
            .of(Set::RunVerb, &all)
            .map(|hit| hit.at + hit.len)
            .next();
        let kill = || {
            reading
                .of(Set::KillVerb, &all)
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
    // A word before it that nobody knows may be the program, and this one its argument.
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

/// Where the command begins after the verb that ends before token `end`: words like `the command` are passed over.
fn after_verb(reading: &Reading, end: usize) -> usize {
    let tokens = &reading.tokens;
    let mut done = end
        .checked_sub(1)
        .and_then(|at| tokens.get(at))
        .map_or(0, |token| token.range.end);
    for (at, token) in tokens.iter().enumerate().skip(end) {
        // Quoted text stands between them where there is more than white space.
        let is_next = reading
            .text
            .get(done..token.range.start)
            .is_some_and(|between| between.trim().is_empty());
        if !is_next || reading.is(at, Set::Program) || !is_one_of(&token.folded, BEFORE) {
            break;
        }
        done = token.range.end;
    }
    done
}

/// The command where it stands between marks, with no more than an aside behind them.
fn delimited(reading: &Reading, start: usize) -> Option<&str> {
    let text = &*reading.text;
    // The mark may stand just before a program's name.
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

/// The command up to the end of the text, without an aside behind it.
fn undelimited(reading: &Reading, start: usize) -> Option<&str> {
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
                || [Set::Program, Set::RunVerb]
                    .into_iter()
                    .any(|set| reading.is(at, set))
        };
        if is_joint && another(at + 1) {
            return None;
        }
        let ends = match token.kind {
            Kind::Sign => {
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

/// Whether a sign ends a clause, as in a sentence: white space or nothing follows it, and none goes before it.
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

/// `please`, and in Portuguese `aí`, `por favor`, `pra mim`, `pra eu ver`.
fn begins_courtesy(reading: &Reading, at: usize) -> bool {
    let word = |at: usize| reading.tokens.get(at).map_or("", |token| &*token.folded);
    match word(at) {
        "please" | "thanks" => true,
        "ai" => reading.portuguese,
        "por" => word(at + 1) == "favor",
        "pra" | "para" => reading.portuguese && is_one_of(word(at + 1), "mim eu gente nos ver"),
        _ => false,
    }
}

/// Whether the request asks whether it could be done.
fn is_question(reading: &Reading) -> bool {
    const ASKS: &str = "can could would will may pode poderia podia consegue da";
    reading
        .tokens
        .first()
        .is_some_and(|token| is_one_of(&token.folded, ASKS))
}

/// Whether the text from a byte on is surely no part of a command: nothing, a courtesy, or some words of a sentence.
fn is_aside(reading: &Reading, from: usize) -> bool {
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
    let is_of = |at: usize, sets: &[Set]| sets.iter().any(|set| reading.is(at, *set));
    // `run that for me`
    let runs_more = |at: usize| reading.is(at, Set::RunVerb) && !reading.is(at + 1, Set::Pronoun);
    let is_command = |at: usize| {
        matches!(reading.tokens[at].kind, Kind::Code | Kind::Address)
            || reading.is(at, Set::Program)
            || runs_more(at)
    };
    if rest().any(is_command) {
        return false;
    }
    let words: Vec<usize> = rest()
        .filter(|at| reading.tokens[*at].kind != Kind::Sign)
        .collect();
    let Some(first) = words.first() else {
        return true;
    };
    let is_courtesy = begins_courtesy(reading, *first)
        && words
            .iter()
            .all(|at| is_of(*at, &[Set::Stop, Set::Filler, Set::Pronoun]));
    let is_sentence = words.len() >= ASIDE_WORDS_MIN
        && reading.is_known(*first)
        && words.iter().any(|at| reading.is(*at, Set::Stop));
    is_courtesy || is_sentence
}
