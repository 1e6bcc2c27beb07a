//! Numbers as people write them in a prescription: `1,500`, `1.500`, `0,5`, `half`, `duzentos e cinquenta`.

use std::sync::LazyLock;

use crate::text::{Meanings, meanings};

/// Reads digits with separators. `decimal_comma` says how a lone separator before three digits is meant
/// (`1,500`): a Portuguese text writes 1.5 so, an English one 1500; `1.500` is the other way round.
pub(super) fn read(digits: &str, decimal_comma: bool) -> Option<f64> {
    let (commas, dots) = (digits.matches(',').count(), digits.matches('.').count());
    let decimal = match (commas, dots) {
        (0, 0) => None,
        (c, d) if c > 0 && d > 0 => {
            if digits.rfind(',') > digits.rfind('.') {
                Some(',')
            } else {
                Some('.')
            }
        }
        (c, _) => {
            let separator = if c > 0 { ',' } else { '.' };
            if c + dots > 1 { None } else { lone_separator(digits, separator, decimal_comma).then_some(separator) }
        }
    };
    let plain: String = digits
        .chars()
        .filter_map(|c| match c {
            c if c.is_ascii_digit() => Some(c),
            c if Some(c) == decimal => Some('.'),
            _ => None,
        })
        .collect();
    plain.parse().ok()
}

/// Whether the only separator in `digits` is a decimal one.
fn lone_separator(digits: &str, separator: char, decimal_comma: bool) -> bool {
    let Some((whole, part)) = digits.split_once(separator) else { return false };
    let thousands_shape = part.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
    !thousands_shape || (separator == ',') == decimal_comma
}

/// Reads spelled-out numbers at the start of `words`: the value and how many words it took.
pub(super) fn read_words(words: &[&str]) -> Option<(f64, usize)> {
    let (mut total, mut current, mut used, mut any) = (0.0, 0.0, 0, false);
    while let Some(word) = words.get(used) {
        match SPELLED.get(word).copied() {
            Some(Spelled::Value(v)) => current += v,
            Some(Spelled::Hundred) => current = if current == 0.0 { 100.0 } else { current * 100.0 },
            Some(Spelled::Scale(s)) => {
                total += if current == 0.0 { s } else { current * s };
                current = 0.0;
            }
            None if any && matches!(*word, "and" | "e" | "y" | "-") => {
                let follows = words.get(used + 1).copied();
                let article = usize::from(matches!(follows, Some("a" | "an")));
                if words.get(used + 1 + article).is_some_and(|w| SPELLED.contains_key(w)) {
                    used += 1 + article;
                    continue;
                }
                break;
            }
            None => break,
        }
        any = true;
        used += 1;
    }
    any.then_some((total + current, used))
}

#[derive(Clone, Copy)]
enum Spelled {
    Value(f64),
    Hundred,
    Scale(f64),
}

static SPELLED: Meanings<Spelled> = LazyLock::new(|| {
    use Spelled::*;
    meanings(&[
        ("half meio meia", Value(0.5)),
        ("quarter", Value(0.25)),
        ("one um uma", Value(1.0)),
        ("two dois duas", Value(2.0)),
        ("three tres", Value(3.0)),
        ("four quatro", Value(4.0)),
        ("five cinco", Value(5.0)),
        ("six seis", Value(6.0)),
        ("seven sete", Value(7.0)),
        ("eight oito", Value(8.0)),
        ("nine nove", Value(9.0)),
        ("ten dez", Value(10.0)),
        ("eleven onze", Value(11.0)),
        ("twelve doze", Value(12.0)),
        ("thirteen treze", Value(13.0)),
        ("fourteen quatorze catorze", Value(14.0)),
        ("fifteen quinze", Value(15.0)),
        ("sixteen dezesseis", Value(16.0)),
        ("seventeen dezessete", Value(17.0)),
        ("eighteen dezoito", Value(18.0)),
        ("nineteen dezenove", Value(19.0)),
        ("twenty vinte", Value(20.0)),
        ("thirty trinta", Value(30.0)),
        ("forty quarenta", Value(40.0)),
        ("fifty cinquenta", Value(50.0)),
        ("sixty sessenta", Value(60.0)),
        ("seventy setenta", Value(70.0)),
        ("eighty oitenta", Value(80.0)),
        ("ninety noventa", Value(90.0)),
        ("cem cento", Value(100.0)),
        ("duzentos duzentas", Value(200.0)),
        ("trezentos trezentas", Value(300.0)),
        ("quatrocentos quatrocentas", Value(400.0)),
        ("quinhentos quinhentas", Value(500.0)),
        ("seiscentos seiscentas", Value(600.0)),
        ("setecentos setecentas", Value(700.0)),
        ("oitocentos oitocentas", Value(800.0)),
        ("novecentos novecentas", Value(900.0)),
        ("hundred", Hundred),
        ("thousand mil", Scale(1e3)),
        ("million milhao milhoes", Scale(1e6)),
    ])
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a separator is read as the text's language means it. Method: a table.
    #[test]
    fn separators() {
        for (digits, decimal_comma, expect) in [
            ("1,500", false, 1500.0),
            ("1,500", true, 1.5),
            ("1.500", false, 1.5),
            ("1.500", true, 1500.0),
            ("0.125", true, 0.125),
            ("0,125", false, 0.125),
            ("2,5", false, 2.5),
            ("1.234,5", false, 1234.5),
            ("1,234.5", true, 1234.5),
            ("1.200.000", false, 1_200_000.0),
        ] {
            assert_eq!(read(digits, decimal_comma), Some(expect), "{digits} {decimal_comma}");
        }
    }

    /// Goal: spelled-out numbers count. Method: a table in both languages.
    #[test]
    fn spelled_out() {
        for (text, expect) in [
            ("two hundred and fifty mg", Some((250.0, 4))),
            ("one and a half tablets", Some((1.5, 4))),
            ("duzentos e cinquenta mg", Some((250.0, 3))),
            ("dois comprimidos e meio", Some((2.0, 1))),
            ("one point two million units", Some((1.0, 1))),
            ("two million units", Some((2e6, 2))),
            ("mg", None),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(read_words(&words), expect, "{text}");
        }
    }
}
