//! E-mail addresses and network addresses.

use std::net::Ipv6Addr;
use std::ops::Range;

use super::Hit;
use super::class::IdentityClass::{Email, Id};
use super::reading::{IdentityReading, Tokens};

/// Maximum length of an e-mail address on each side of its `@`, in bytes.
const SIDE_BYTES_MAX: usize = 254;

/// Adds e-mail addresses, also those with words for `@` and the dots, and network addresses.
pub(super) fn find_contacts(tokens: &Tokens<'_>, out: &mut Vec<Hit>) {
    let reading = tokens.reading;
    out.extend(emails(reading).map(|range| Hit::new(range, Email)));
    for at in 0..tokens.len() {
        if tokens.is_word(at) {
            out.extend(spelled_email(tokens, at).map(|range| Hit::new(range, Email)));
        }
        out.extend(network_address(tokens, at).map(|range| Hit::new(range, Id)));
    }
}

fn emails(reading: &IdentityReading) -> impl Iterator<Item = Range<usize>> {
    let bytes = reading.lower.as_bytes();
    memchr::memchr_iter(b'@', bytes).filter_map(move |at| {
        let local = |b: &u8| b.is_ascii_alphanumeric() || b"._%+-".contains(b) || !b.is_ascii();
        let domain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
        let before = bytes[..at]
            .iter()
            .rev()
            .take(SIDE_BYTES_MAX)
            .take_while(|b| local(b))
            .count();
        let after = bytes[at + 1..]
            .iter()
            .take(SIDE_BYTES_MAX)
            .take_while(|b| domain(b))
            .count();
        let host = reading.lower[at + 1..at + 1 + after].trim_end_matches(['.', '-']);
        let (name, top) = host.rsplit_once('.')?;
        let letters = top.len() >= 2 && top.bytes().all(|b| b.is_ascii_alphabetic());
        let mut start = at - before;
        while !reading.lower.is_char_boundary(start) {
            start += 1;
        }
        (start < at && !name.is_empty() && letters).then(|| start..at + 1 + host.len())
    })
}

/// Returns an address such as `a.silva [at] example [dot] org` whose word for `@` is at `at`.
fn spelled_email(tokens: &Tokens<'_>, at: usize) -> Option<Range<usize>> {
    if !matches!(tokens.lower(at), "at" | "arroba") || at == 0 {
        return None;
    }
    let bracket = |at: usize| {
        usize::from(matches!(
            tokens.sign(at),
            Some(b'(' | b')' | b'[' | b']' | b'<' | b'>')
        ))
    };
    let before = at.checked_sub(1 + bracket(at - 1))?;
    let mut next = at + 1 + bracket(at + 1);
    if !tokens.is_word(before) && !tokens.is_number(before) || !tokens.is_word(next) {
        return None;
    }
    // Host names with a word or sign for each dot.
    let (mut last, mut dots) = (next, 0);
    for _ in 0..4 {
        let dot = last + 1 + bracket(last + 1);
        let spelled = matches!(tokens.lower(dot), "dot" | "ponto");
        let sign = tokens.sign(dot) == Some(b'.') && !tokens.gap(dot + 1);
        next = dot + 1 + bracket(dot + 1);
        if !(spelled || sign) || !tokens.is_word(next) || tokens.lines(next) > 0 {
            break;
        }
        dots += 1;
        last = next;
    }
    let top = tokens.lower(last).len();
    if dots == 0 || !(2..=10).contains(&top) {
        return None;
    }
    // The local part: words with dots, without white space or with spelled dots.
    let mut first = before;
    while first >= 2 {
        let sign = matches!(tokens.sign(first - 1), Some(b'.' | b'_' | b'-' | b'+'))
            && !tokens.gap(first)
            && !tokens.gap(first - 1);
        let spelled = matches!(tokens.lower(first - 1), "dot" | "ponto");
        if !(sign || spelled) || before - first > 8 {
            break;
        }
        first -= 2;
    }
    while first >= 1
        && !tokens.gap(first)
        && before - first <= 8
        && (tokens.is_word(first - 1) || tokens.is_number(first - 1))
    {
        first -= 1;
    }
    Some(tokens.range(first, last))
}

/// Maximum length of an IP address as text, in bytes.
const IP_BYTES_MAX: usize = 45;

fn network_address(tokens: &Tokens<'_>, at: usize) -> Option<Range<usize>> {
    let token = tokens.get(at)?;
    let text = &tokens.reading.lower;
    let starts = at == 0
        || token.gap
        || matches!(
            tokens.sign(at - 1),
            Some(b'(' | b'[' | b'|' | b'"' | b'=' | b'/' | b',')
        );
    if !starts {
        return None;
    }
    if tokens.is_number(at) {
        let four = (0..4).all(|n| {
            let number = tokens.cased(at + 2 * n);
            let dot = n == 0
                || tokens.sign(at + 2 * n - 1) == Some(b'.')
                    && !tokens.gap(at + 2 * n)
                    && !tokens.gap(at + 2 * n - 1);
            dot && number.parse::<u8>().is_ok() && (number.len() == 1 || !number.starts_with('0'))
        });
        let ends =
            tokens.sign(at + 7) != Some(b'.') || tokens.gap(at + 7) || !tokens.is_number(at + 8);
        // A version number has the same form.
        let version = (1..=2).any(|back| {
            let word = at.checked_sub(back).map_or("", |i| tokens.lower(i));
            matches!(
                word,
                "version" | "versao" | "firmware" | "software" | "release" | "v"
            )
        });
        if four && ends && !version && tokens.cased(at) != "0" {
            return Some(tokens.range(at, at + 6));
        }
    }
    let bytes = &text.as_bytes()[token.start..];
    // A colon stands behind at most four digits.
    if !bytes.iter().take(5).any(|b| *b == b':') {
        return None;
    }
    let len = bytes
        .iter()
        .take(IP_BYTES_MAX)
        .take_while(|b| b.is_ascii_hexdigit() || **b == b':')
        .count();
    let address = &text[token.start..token.start + len];
    let colons = address.bytes().filter(|b| *b == b':').count();
    (colons >= 4 && address.parse::<Ipv6Addr>().is_ok()).then_some(token.start..token.start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: addresses are found whole. Method: a table, with texts that only look similar.
    #[test]
    fn contacts() {
        for (text, expect) in [
            ("write to a.silva@example.org.", Some("a.silva@example.org")),
            (
                "a.silva [at] example [dot] org",
                Some("a.silva [at] example [dot] org"),
            ),
            (
                "silva at example dot com dot br",
                Some("silva at example dot com dot br"),
            ),
            ("from 172.61.42.192 blocked", Some("172.61.42.192")),
            (
                "6e40:4041:c617:e898:c11:40d2:c669:2eb4",
                Some("6e40:4041:c617:e898:c11:40d2:c669:2eb4"),
            ),
            ("seen at clinic. dot", None),
            ("2 mg @ 8 h, version 1.2.3", None),
            ("at 10:30:00", None),
        ] {
            let reading = IdentityReading::new(text);
            let mut hits = Vec::new();
            find_contacts(&Tokens::new(&reading), &mut hits);
            let found = hits.first().map(|hit| &reading.cased[hit.range.clone()]);
            assert_eq!(found, expect, "{text}");
        }
    }
}
