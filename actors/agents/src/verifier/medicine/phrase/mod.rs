//! Phrases of a prescription: doses, schedules, routes, in English and Portuguese.

mod dose;
mod schedule;

pub(super) use dose::dose;
pub(super) use schedule::{Schedule, schedule};

use std::sync::LazyLock;

use super::number as digits;
use super::token::Token;
use super::unit::unit;
use crate::text::{Meanings, is_one_of, meanings};

/// What a dose is counted against, other than time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    /// Per kilogram of body weight.
    Weight,
    /// Per square metre of body surface.
    Surface,
    /// Per millilitre: the strength of a liquid.
    Millilitre,
    /// Per litre or decilitre: a laboratory value, not a dose.
    LabVolume,
}

/// Where a medicine goes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Oral,
    Intravenous,
    Intramuscular,
    Subcutaneous,
    Topical,
    Inhaled,
    Sublingual,
    Rectal,
    Nasal,
    Eye,
    Transdermal,
    Vaginal,
}

fn word(tokens: &[Token], at: usize) -> Option<&str> {
    tokens.get(at)?.word()
}

fn sign(tokens: &[Token], at: usize, sign: char) -> bool {
    tokens.get(at).is_some_and(|t| t.is_sign(sign))
}

/// A number in digits or words, with a fraction or a multiplier, and the tokens it takes.
fn number(tokens: &[Token]) -> Option<(f64, usize)> {
    let (value, taken) = match tokens.first()? {
        Token::Number(v) => (*v, 1),
        Token::Word(_) => {
            let words: Vec<&str> = tokens.iter().map_while(Token::word).take(8).collect();
            digits::read_words(&words)?
        }
        Token::Sign(_) => return None,
    };
    if let (Some(Token::Number(over)), true, Some(Token::Number(under))) =
        (tokens.get(taken), sign(tokens, taken + 1, '/'), tokens.get(taken + 2))
        && over < under
    {
        return Some((value + over / under, taken + 3));
    }
    match word(tokens, taken) {
        Some("thousand" | "mil") => Some((value * 1e3, taken + 1)),
        Some("million" | "milhao" | "milhoes") => Some((value * 1e6, taken + 1)),
        _ => Some((value, taken)),
    }
}

/// A route at the start of `tokens` and the tokens it takes.
pub(super) fn route(tokens: &[Token]) -> Option<(Route, usize)> {
    let first = word(tokens, 0)?;
    match (first, word(tokens, 1)) {
        ("by", Some("mouth")) | ("via", Some("oral")) => Some((Route::Oral, 2)),
        _ => Some((*ROUTES.get(first)?, 1)),
    }
}

static ROUTES: Meanings<Route> = LazyLock::new(|| {
    use Route::*;
    meanings(&[
        ("oral orally po vo oralmente", Oral),
        ("iv ev intravenous intravenously intravenosa intravenoso endovenosa endovenoso", Intravenous),
        ("im intramuscular intramuscularly", Intramuscular),
        ("sc sq subcutaneous subcutaneously subcutanea subcutaneo", Subcutaneous),
        ("topical topically topica topico cutaneous", Topical),
        ("inhaled inalatoria inalado inhalational", Inhaled),
        ("sublingual sublingually sl", Sublingual),
        ("rectal rectally retal", Rectal),
        ("nasal intranasal intranasally", Nasal),
        ("ophthalmic ocular oftalmica oftalmico", Eye),
        ("transdermal transdermica", Transdermal),
        ("vaginal vaginally", Vaginal),
    ])
});

/// Whether a sentence says that something isn't so, or that nothing was found.
pub(super) fn denies(tokens: &[Token]) -> bool {
    tokens.iter().any(|t| match t {
        Token::Number(n) => *n == 0.0,
        Token::Word(w) => is_one_of(
            w,
            "no not never without denies denied none nobody nothing neither nao nenhum \
            nenhuma sem nega nunca ninguem nada t absent unknown",
        ),
        Token::Sign(_) => false,
    })
}

/// What a medicine for the skin or the eye comes as.
pub(super) fn is_preparation(token: &Token) -> bool {
    const WORDS: &str = "cream ointment gel lotion shampoo solution creme pomada locao colirio";
    token.word().is_some_and(|w| is_one_of(w, WORDS))
}

/// Words between a dose and the medicine that follows it.
pub(super) fn is_link_or_form(token: &Token) -> bool {
    token
        .word()
        .is_some_and(|w| is_one_of(w, "of de do da the oral iv") || unit(w).is_some_and(|(kind, _)| kind.is_count()))
}

/// Words between a medicine and the dose that follows it.
pub(super) fn is_filler(token: &Token) -> bool {
    match token {
        Token::Word(w) => is_one_of(
            w,
            "at a an the of is was dose dosage doses to in with on de do da na em uma um foi dosagem oral orally iv \
            po total about approximately up as for s and",
        ),
        Token::Sign(s) => matches!(s, ':' | '(' | ',' | '-' | '=' | '"' | '\'' | '*' | '|'),
        Token::Number(_) => false,
    }
}

/// Words that stand before an amount without being a medicine.
pub(super) fn is_ordinary(word: &str) -> bool {
    const WORDS: &str = "about added additional administered adjusted amount another approximately around aumentada \
        aumentado average below bolus comprimidos continue continued continues cream current currently daily dosagem \
        doses dosed either every exactly extra first followed full given gives gram increase increased infusion \
        initial initially injection least level loading maintenance maximum medication medicine medicamento minimum \
        mesma needs ointment patient paciente pediatric plus prescribed prescribe prescription quantity receive \
        received receives receiving recebe recebeu reduced remains same second single solution start started \
        starting strength strong syrup tablet tablets takes taking taper tapered target than their then third \
        titrated tomar tomou total treatment twice under using usual weight weighing weighed which within capsules \
        drops dosage toma usava usando";
    is_one_of(word, WORDS)
}
