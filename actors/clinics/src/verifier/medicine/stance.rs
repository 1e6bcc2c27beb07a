//! Attitude of a sentence to a medicine that it names: taken, denied, stopped.

use callboard_message::word_set;

use std::ops::Range;

use super::model::Stance;
use super::token::Token;
use super::word_meanings::flags;

/// Maximum number of tokens before a medicine in which a negation is searched for.
const NEGATION_TOKENS_MAX: usize = 24;
/// Maximum number of tokens between a medicine and a negation after it.
const NEGATION_AFTER_TOKENS_MAX: usize = 4;

/// Returns the attitude of a segment with these tokens to the medicine at `place`.
pub(super) fn stance(tokens: &[Token<'_>], place: &Range<usize>) -> Stance {
    let from = place.start.saturating_sub(NEGATION_TOKENS_MAX);
    let before = &tokens[from..place.start];
    let mut is_taken = false;
    for (n, token) in before.iter().enumerate().rev() {
        if token.is(flags::BUT) || token.is_sign(',') && is_taken {
            break;
        }
        if is_negation(token) {
            // "doesn't take", "is no longer on"
            let near = before[n + 1..].iter().take(3);
            let is_not_taken = near.take_while(|t| !t.is_sign(',')).any(|t| {
                t.is_word(word_set!("take taking takes on use using receive receiving toma usa recebe tomando usando"))
            });
            let of_person = n == 0
                || !before[..n]
                    .iter()
                    .any(|t| t.is_word(word_set!("nobody none ninguem nenhum")));
            let is_whole = !before[n + 1..]
                .iter()
                .any(|t| t.is_word(word_set!("other outro more mais any change missed")));
            return if is_not_taken
                && of_person
                && is_whole
                && !token.is_word(word_set!(
                    "no none nobody nenhum nenhuma ninguem sem without"
                ))
                || token.is_word(word_set!("no"))
                    && before
                        .get(n + 1)
                        .is_some_and(|t| t.is_word(word_set!("longer")))
                    && is_not_taken
            {
                Stance::NotTaken
            } else {
                Stance::Denied
            };
        }
        is_taken |= token.is(flags::TAKING);
    }
    stance_after(&tokens[place.end..], before)
}

fn stance_after(after: &[Token<'_>], before: &[Token<'_>]) -> Stance {
    let skipped = after
        .iter()
        .take(NEGATION_AFTER_TOKENS_MAX)
        .take_while(|t| {
            t.is(flags::AUXILIARY) && !t.is(flags::NEGATION)
                || matches!(t.sign(), Some(':' | '=' | '-' | '(' | '\''))
        })
        .count();
    let rest = &after[skipped..];
    if rest.first().is_some_and(is_negation) {
        let stopped = rest.iter().take(3).any(|t| t.is(flags::TAKING));
        return if stopped {
            Stance::NotTaken
        } else {
            Stance::Denied
        };
    }
    let near_before = before.iter().rev().take(4);
    let near_after = after
        .iter()
        .take(5)
        .take_while(|t| !t.is_sign(',') && !t.is(flags::AND));
    if near_before.chain(near_after).any(|t| t.is(flags::STOPPED)) {
        return Stance::Stopped;
    }
    Stance::Asserted
}

pub(super) fn is_negation(token: &Token<'_>) -> bool {
    token.is(flags::NEGATION) || token.number() == Some(0.0)
}

/// Returns whether the tokens before a patient's id say that nothing is recorded: "there is no record
/// that", "nao ha registro de que".
pub(super) fn denies_record(before: &[Token<'_>]) -> bool {
    let Some(at) = before.iter().position(is_negation) else {
        return false;
    };
    before[at..].iter().any(|t| {
        t.is_word(word_set!("record records recorded mention evidence entry indication sign registro registros mencao indicacao evidencia indicio"))
    })
}
