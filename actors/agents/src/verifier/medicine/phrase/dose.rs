//! Amounts with their units.

use super::{Per, Schedule, number, sign, word};
use crate::verifier::medicine::claim::Dose;
use crate::verifier::medicine::token::Token;
use crate::verifier::medicine::unit::{Kind, period_per_day, unit};

/// The kind of a unit, its size in the base unit, and the tokens it takes.
fn unit_at(tokens: &[Token], at: usize) -> Option<(Kind, f64, usize)> {
    if sign(tokens, at, '%') {
        return Some((Kind::Percent, 1.0, 1));
    }
    match (word(tokens, at)?, word(tokens, at + 1)) {
        ("micro", Some("g" | "gram" | "grams" | "grama" | "gramas")) => Some((Kind::Mass, 1e-3, 2)),
        ("international", Some("units" | "unit")) | ("unidades", Some("internacionais")) => {
            Some((Kind::Activity, 1.0, 2))
        }
        ("per" | "por", Some("cent" | "cento")) => Some((Kind::Percent, 1.0, 2)),
        (w, next) => {
            let (kind, size) = unit(w)?;
            let twice = kind == Kind::Activity && matches!(next, Some("units" | "unit"));
            Some((kind, size, 1 + usize::from(twice)))
        }
    }
}

/// A dose at the start of `tokens`, a schedule that its unit carries (mg/day), and the tokens both take.
pub(in crate::verifier::medicine) fn dose(tokens: &[Token]) -> Option<(Dose, Option<Schedule>, usize)> {
    let (first, mut at) = number(tokens)?;
    let mut amounts = vec![first];
    if let Some(halved) = half_of_a_piece(tokens, first, at) {
        return Some(halved);
    }
    let first_unit = unit_at(tokens, at);
    let gap = first_unit.map_or(at, |(_, _, n)| at + n);
    let mut scales = first_unit.map(|(kind, size, _)| (kind, size));
    if let Some((joint, skip)) = joint(tokens, gap)
        && let Some((second, taken)) = number(&tokens[gap + skip..])
        && let Some((kind, size, n)) = unit_at(tokens, gap + skip + taken)
        && first_unit.is_none_or(|(k, _, _)| k == kind)
    {
        let first_size = first_unit.map_or(size, |(_, s, _)| s);
        amounts = match joint {
            Joint::Times => vec![first * second * size],
            Joint::Fraction if kind.is_count() && first < second => vec![first / second],
            Joint::Fraction | Joint::Range => vec![first * first_size, second * size],
        };
        scales = Some((kind, 1.0));
        at = gap + skip + taken + n;
    } else {
        at = gap;
    }
    let (kind, size) = scales?;
    for amount in &mut amounts {
        *amount *= size;
    }
    let mut dose = Dose { kind, amounts, per: None, strength: false };
    let schedule = denominators(tokens, &mut at, &mut dose);
    dose.strength = !kind.is_count() && word(tokens, at).and_then(unit).is_some_and(|(k, _)| k.is_count());
    Some((dose, schedule, at))
}

/// "half a tablet", "half of a 200 mg tablet".
fn half_of_a_piece(tokens: &[Token], value: f64, at: usize) -> Option<(Dose, Option<Schedule>, usize)> {
    let skip =
        tokens[at..].iter().take_while(|t| matches!(t.word(), Some("a" | "an" | "of" | "de" | "um" | "uma"))).count();
    if skip == 0 || value >= 1.0 {
        return None;
    }
    let dose = |kind| Dose { kind, amounts: vec![value], per: None, strength: false };
    let from = at + skip;
    if let Some((kind, _)) = word(tokens, from).and_then(unit).filter(|(k, _)| k.is_count()) {
        return Some((dose(kind), None, from + 1));
    }
    let ahead = tokens.get(from..)?.iter().take(4).filter_map(Token::word).filter_map(unit);
    let (kind, _) = ahead.into_iter().find(|(k, _)| k.is_count())?;
    Some((dose(kind), None, from))
}

enum Joint {
    Range,
    Fraction,
    Times,
}

/// What joins two numbers of one dose, and the tokens it takes.
fn joint(tokens: &[Token], at: usize) -> Option<(Joint, usize)> {
    match tokens.get(at)? {
        Token::Sign('/') => Some((Joint::Fraction, 1)),
        Token::Sign('-' | '±' | '~') => Some((Joint::Range, 1)),
        Token::Sign('+') if sign(tokens, at + 1, '/') => Some((Joint::Range, 3)),
        Token::Word(w) => match w.as_str() {
            "to" | "or" | "ou" | "a" | "ate" => Some((Joint::Range, 1)),
            "x" => Some((Joint::Times, 1)),
            _ => None,
        },
        _ => None,
    }
}

/// Reads "/kg/day", "per m2", "a day" behind a unit.
fn denominators(tokens: &[Token], at: &mut usize, dose: &mut Dose) -> Option<Schedule> {
    let mut schedule = None;
    loop {
        let article = match tokens.get(*at) {
            Some(Token::Sign('/')) => false,
            Some(Token::Word(w)) => match w.as_str() {
                "per" | "por" => false,
                "a" | "ao" | "each" | "an" => true,
                _ => return schedule,
            },
            _ => return schedule,
        };
        let counted = match tokens.get(*at + 1) {
            Some(Token::Number(n)) if *n > 0.0 => Some(*n),
            _ => None,
        };
        let name_at = *at + 1 + usize::from(counted.is_some());
        let Some(name) = word(tokens, name_at) else { return schedule };
        let squared = matches!(tokens.get(name_at + 1), Some(Token::Number(n)) if *n == 2.0);
        let mut taken = 1;
        match name {
            _ if period_per_day(name).is_some() => {
                let per_day = period_per_day(name).unwrap_or(1.0) / counted.unwrap_or(1.0);
                schedule = Some(Schedule::total(per_day));
            }
            _ if article => return schedule,
            "kg" | "kilo" | "quilo" | "kilogram" => dose.per = Some(Per::Weight),
            "m" if squared => {
                dose.per = Some(Per::Surface);
                taken = 2;
            }
            "ml" | "millilitre" | "milliliter" => {
                dose.per = Some(Per::Millilitre);
                let volume = counted.unwrap_or(1.0);
                dose.amounts.iter_mut().for_each(|a| *a /= volume);
            }
            "l" | "dl" | "litre" | "liter" | "mm" | "mmol" => dose.per = Some(Per::LabVolume),
            "dose" | "doses" | "day1" => {}
            _ if unit(name).is_some_and(|(k, _)| k.is_count()) => {}
            _ => return schedule,
        }
        *at = name_at + taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::medicine::token::sentences;

    fn tokens(text: &str) -> Vec<Token> {
        sentences(&crate::verifier::fold::fold(text)).concat()
    }

    /// Goal: one amount, whatever its spelling. Method: a table of doses in base units.
    #[test]
    fn doses() {
        for (text, kind, amounts) in [
            ("200 mg", Kind::Mass, vec![200.0]),
            ("0.2 g", Kind::Mass, vec![200.0]),
            ("1,500 mg", Kind::Mass, vec![1500.0]),
            ("50 µg", Kind::Mass, vec![0.05]),
            ("50 micro g", Kind::Mass, vec![0.05]),
            ("200-400 mg", Kind::Mass, vec![200.0, 400.0]),
            ("200 mg to 400 mg", Kind::Mass, vec![200.0, 400.0]),
            ("875/125 mg", Kind::Mass, vec![875.0, 125.0]),
            ("half a tablet", Kind::Tablet, vec![0.5]),
            ("½ tablet", Kind::Tablet, vec![0.5]),
            ("2½ tablets", Kind::Tablet, vec![2.5]),
            ("meio comprimido", Kind::Tablet, vec![0.5]),
            ("half of a 200 mg tablet", Kind::Tablet, vec![0.5]),
            ("two hundred milligrams", Kind::Mass, vec![200.0]),
            ("5000 UI", Kind::Activity, vec![5000.0]),
            ("1.2 million units", Kind::Activity, vec![1.2e6]),
            ("2 x 500 mg", Kind::Mass, vec![1000.0]),
            ("250 mg/5 mL", Kind::Mass, vec![50.0]),
            ("10 ± 2 mg", Kind::Mass, vec![10.0, 2.0]),
        ] {
            let found = dose(&tokens(text)).map(|(d, _, _)| (d.kind, d.amounts));
            assert_eq!(found, Some((kind, amounts)), "{text}");
        }
    }
}
