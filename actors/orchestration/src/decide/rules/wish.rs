//! Where in a request of several sentences something is wanted: what only tells how it came to that is background.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::lexicon::Set;
use super::reading::Reading;

/// A sentence of fewer words is of the one before: `p.m.`, `Dr.`, `Ok.`.
const SENTENCE_WORDS_MIN: usize = 3;

/// The tokens from the first sentence that wants something to the last that does; all where none does, or there is one alone.
pub(super) fn wish(reading: &Reading) -> Range<usize> {
    let sentences = sentences(reading);
    let mut wanting = sentences.iter().filter(|span| wants(reading, span));
    let Some(first) = wanting.next() else { return past_refused(reading, reading.all())..reading.tokens.len() };
    let last = wanting.next_back().unwrap_or(first);
    let is_last = sentences.last() == Some(last);
    let end = if is_last { reading.tokens.len() } else { last.end };
    past_refused(reading, first.start..end)..end
}

/// Where what is wanted begins, behind what isn't: `not a recipe, no menu, …`, `don't translate it: …`.
fn past_refused(reading: &Reading, span: Range<usize>) -> usize {
    const ENDS: [&str; 5] = [",", ":", ";", ".", "!"];
    let mut start = span.start;
    while refuses(reading, start) {
        let end = (start..span.end).find(|at| ENDS.iter().any(|sign| reading.tokens[*at].is_sign(sign)));
        let Some(next) = end.map(|at| at + 1) else { break };
        let words = (next..span.end).filter(|at| reading.tokens[*at].is_word()).count();
        if words < SENTENCE_WORDS_MIN {
            break;
        }
        start = next;
    }
    start
}

/// Whether a clause says what isn't wanted, and not what somebody can't, has not or doesn't know.
fn refuses(reading: &Reading, at: usize) -> bool {
    const NOT: &str = "not no dont don't never nao nem";
    const OF_ONESELF: &str = "sei consigo tenho quero lembro posso entendo vou estou sou sabia gosto acho faco da deu temos podemos percebo vejo \
        conheco funciona ha foi era me idea clue sure problem longer one way";
    let word = |at: usize| reading.tokens.get(at).map_or("", |token| token.folded.as_str());
    let is_not = is_one_of(word(at), NOT) || word(at) == "do" && word(at + 1) == "not";
    is_not && !is_one_of(word(at + 1), OF_ONESELF)
}

/// Sentences, each with the sign that it ends with.
fn sentences(reading: &Reading) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for (at, token) in reading.tokens.iter().enumerate() {
        let ends = [".", "?", "!", "\n", "…"].iter().any(|sign| token.is_sign(sign));
        if ends || at + 1 == reading.tokens.len() {
            let span = start..at + 1;
            let words = span.clone().filter(|at| reading.tokens[*at].is_word()).count();
            match out.last_mut() {
                Some(last) if words < SENTENCE_WORDS_MIN => last.end = at + 1,
                _ => out.push(span),
            }
            start = at + 1;
        }
    }
    out
}

/// Whether a sentence asks, or says what is wanted.
fn wants(reading: &Reading, span: &Range<usize>) -> bool {
    let signs = |sign: &str| span.clone().any(|at| reading.tokens[at].is_sign(sign));
    signs("?") || signs(":") || reading.has(Set::Wish, span) || orders(reading, span)
}

/// Whether it begins with a verb that orders, or with what is ordered.
fn orders(reading: &Reading, span: &Range<usize>) -> bool {
    const VERBS: [Set; 13] = [
        Set::VagueVerb,
        Set::TranslateVerb,
        Set::SummarizeVerb,
        Set::EchoVerb,
        Set::SayVerb,
        Set::RunVerb,
        Set::KillVerb,
        Set::NoteVerb,
        Set::PlanVerb,
        Set::ReviewVerb,
        Set::Compose,
        Set::Governs,
        Set::TalkVerb,
    ];
    let first = span.clone().find(|at| reading.tokens[*at].is_word() && !reading.is(*at, Set::Filler));
    // `Reserva um hotel.`, `Hotel in Graz.`: a word of a field that nothing stands before is wanted, too.
    let of_field = |at: usize| reading.fields.iter().any(|hit| hit.at == at);
    first.is_some_and(|at| VERBS.iter().any(|set| reading.is(at, *set)) || of_field(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what led to a request, and what isn't wanted, is told from what is. Method: rows, what is wanted behind the arrow.
    #[test]
    fn what_is_wanted() {
        for (request, expect) in [
            ("will it rain in Cork", "will it rain in Cork"),
            (
                "The choir sings on Sunday. The hall is cold. Could you order two heaters?",
                "Could you order two heaters?",
            ),
            ("O síndico viajou ontem. Agradecia que lesse a ata.", "Agradecia que lesse a ata."),
            ("We met Dr. Ames at noon. Please write to her. She likes short letters.", "Please write to her."),
            (
                "Book the hall. It was full last year. Invite the mayor.",
                "Book the hall. It was full last year. Invite the mayor.",
            ),
            ("The roof leaks. The cellar is wet.", "The roof leaks. The cellar is wet."),
            ("No songs, no games: two riddles for children", "two riddles for children"),
            ("não quero nada disso", "não quero nada disso"),
            ("não sei cozinhar, me ajuda com o jantar", "não sei cozinhar, me ajuda com o jantar"),
            ("not that one", "not that one"),
        ] {
            let reading = Reading::new(request);
            assert_eq!(reading.shown(&reading.wish), expect, "{request}");
        }
    }
}
