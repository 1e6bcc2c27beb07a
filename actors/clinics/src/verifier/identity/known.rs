//! Personal data that is known from records, and its search in every usual disguise.
//!
//! Names are compared word by word, in any order and with initials. Beside that, names, ids,
//! addresses and contacts are compared letter by letter without what stands between the letters,
//! with signs that look like letters, backwards, and shifted by 13 letters.

use callboard_message::text::words;
use foldhash::{HashMap, HashSet};

use super::Hit;
use super::class::IdentityClass;
use super::date::{Date, date_at};
use super::joined::{
    DISGUISED_LETTERS_MIN, JOINED_CHARS_MIN, JoinedText, Needles, joined, sound_of, whole_number,
};
use super::lexicon::{DISCOVERY, DOCTOR, PARTICLE, TITLE, meaning_of};
use super::reading::{IdentityReading, Tokens};
use crate::verifier::spans::{IdentityKind, SpanKind, TextSpan};
use crate::verifier::word_lists::{EPONYMS, EVERYDAY};

/// Number of words before a word among which the other part of a name is looked for. Up to one word
/// less, such as middle names or initials, may stand between two parts.
const NAME_DISTANCE_WORDS: usize = 3;
/// Minimum letters of a part of a name that is found alone.
const PART_LETTERS_MIN: usize = 3;
/// Number of last digits by which phone numbers are compared, because country and area codes are
/// often left out.
const PHONE_DIGITS: usize = 8;
/// Maximum parts of one name. Further ones are ignored.
const NAME_PARTS_MAX: usize = 8;

/// Personal values of records, indexed for the search in texts.
#[derive(Default)]
pub(crate) struct KnownIdentities {
    /// Parts of names.
    parts: HashMap<String, NamePart>,
    /// Pairs of parts of the same name.
    pairs: HashSet<(String, String)>,
    /// Initials of names of three or more parts.
    initials: HashSet<String>,
    /// Sounds of pairs of parts of the same name.
    sounds: HashSet<(String, String)>,
    needles: Needles,
    /// Dates as year, month and day, also with day and month exchanged and with two digits of the year.
    dates: HashSet<(u16, u8, u8)>,
    /// Values as a whole, and words of addresses: what may be shown, if the caller may see it.
    values: HashSet<Vec<u8>>,
    address_words: HashSet<String>,
}

struct NamePart {
    /// Initials of the other parts, one bit a letter.
    initials: u32,
    /// Whether the part alone is found.
    alone: bool,
}

/// Reach of a search for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameReach {
    /// Full names, also backwards and shifted, and each of their parts alone.
    Parts,
    /// Full names only, in any order and spacing.
    Full,
}

impl KnownIdentities {
    /// Collects the values of those spans whose keys mark them as personal.
    pub(in crate::verifier) fn new(spans: &[TextSpan<'_>]) -> Self {
        let mut known = Self::default();
        let mut before = None;
        for span in spans {
            if let SpanKind::Identity(kind) = span.kind {
                known.insert(kind, &span.text, NameReach::Parts);
            }
            if let Some(id) = span.patient.filter(|id| before != Some(*id)) {
                known.insert_public(id);
                before = Some(id);
            }
        }
        known
    }

    /// Returns whether there is anything that [`Self::find`] could find.
    pub(super) fn is_searched(&self) -> bool {
        !(self.needles.is_empty() && self.parts.is_empty() && self.dates.is_empty())
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a value that only [`Self::covers`] knows, such as the id by which a clinic calls a
    /// patient: it identifies nobody outside of the clinic.
    pub(super) fn insert_public(&mut self, text: &str) {
        self.values
            .insert(joined(&IdentityReading::new(text).lower));
    }

    /// Adds a value.
    pub fn insert(&mut self, kind: IdentityKind, text: &str, reach: NameReach) {
        let reading = IdentityReading::new(text);
        let whole = joined(&reading.lower);
        if whole.is_empty() || !self.values.insert(whole.clone()) {
            return;
        }
        match kind {
            IdentityKind::Name | IdentityKind::NamePart => {
                self.insert_name(&reading.lower, reach);
                self.insert_sounds(text);
            }
            IdentityKind::Id => self.insert_id(&whole),
            IdentityKind::Email => self.insert_email(&reading.lower, &whole),
            IdentityKind::Phone => {
                let digits: String = reading.lower.chars().filter(char::is_ascii_digit).collect();
                if digits.len() >= PHONE_DIGITS - 1 {
                    let tail = joined(&digits[digits.len().saturating_sub(PHONE_DIGITS)..]);
                    self.values.insert(tail.clone());
                    self.needles.insert(tail, IdentityClass::Phone, false);
                }
            }
            IdentityKind::Address => self.insert_address(&reading.lower),
            IdentityKind::BirthDate => self.insert_date(&reading),
        }
    }

    fn insert_name(&mut self, lower: &str, reach: NameReach) {
        let is_title = |w: &&str| meaning_of(w) & (TITLE | DOCTOR) == 0;
        let all: Vec<&str> = words(lower).filter(is_title).take(NAME_PARTS_MAX).collect();
        let particle = |w: &&str| meaning_of(w) & PARTICLE == 0 && w.chars().count() > 1;
        let parts: Vec<&str> = all.iter().copied().filter(particle).collect();
        let bit = |w: &str| {
            w.bytes()
                .next()
                .filter(u8::is_ascii_lowercase)
                .map_or(0, |b| 1 << (b - b'a'))
        };
        for (at, part) in parts.iter().enumerate() {
            let others = parts.iter().enumerate().filter(|(other, _)| *other != at);
            let initials = others.clone().fold(0, |bits, (_, other)| bits | bit(other));
            let alone = reach == NameReach::Parts
                && part.chars().count() >= PART_LETTERS_MIN
                && !EVERYDAY.contains(part);
            let entry = self.parts.entry((*part).to_owned()).or_insert(NamePart {
                initials: 0,
                alone: false,
            });
            entry.initials |= initials;
            entry.alone |= alone;
            for (_, other) in others {
                self.pairs.insert(((*part).to_owned(), (*other).to_owned()));
            }
            if alone && part.len() >= DISGUISED_LETTERS_MIN {
                self.needles.insert(joined(part), IdentityClass::Name, true);
                if part.len() >= JOINED_CHARS_MIN {
                    self.insert_turned(part, true);
                }
            }
        }
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return;
        };
        if parts.len() < 2 {
            if !first.is_ascii() {
                self.needles
                    .insert(joined(first), IdentityClass::Name, false);
            }
            return;
        }
        if parts.len() > 2 {
            self.initials
                .insert(parts.iter().filter_map(|w| w.chars().next()).collect());
        }
        let last_first = |parts: &[&str]| {
            let (last, rest) = parts.split_last().unwrap_or((&"", &[]));
            format!("{last}{}", rest.concat())
        };
        let orders = HashSet::from_iter([
            parts.concat(),
            last_first(&parts),
            all.concat(),
            last_first(&all),
            format!("{first}{last}"),
            format!("{last}{first}"),
        ]);
        for order in orders {
            self.needles
                .insert(joined(&order), IdentityClass::Name, false);
            if reach == NameReach::Parts {
                self.insert_turned(&order, false);
            }
        }
    }

    /// Adds the sounds of a name's parts.
    fn insert_sounds(&mut self, name: &str) {
        // A cedilla tells how a letter sounds; a reading has none.
        let spelled = IdentityReading::new(&name.to_lowercase().replace('ç', "s"));
        let sounds: Vec<String> = words(&spelled.lower)
            .filter(|w| meaning_of(w) & PARTICLE == 0)
            .take(NAME_PARTS_MAX)
            .map(sound_of)
            .collect();
        for (at, first) in sounds.iter().enumerate() {
            for second in sounds.iter().skip(at + 1) {
                if first.len() + second.len() >= JOINED_CHARS_MIN {
                    self.sounds.insert((first.clone(), second.clone()));
                    self.sounds.insert((second.clone(), first.clone()));
                }
            }
        }
    }

    /// Adds names that sound like known ones: two parts of one name, one after the other.
    fn find_sounds(&self, tokens: &Tokens<'_>, out: &mut Vec<Hit>) {
        let words: Vec<(usize, String)> = (0..tokens.len())
            .filter(|at| tokens.is_word(*at))
            .map(|at| (at, sound_of(tokens.lower(at))))
            .collect();
        for pair in words.windows(2) {
            let [(first, a), (second, b)] = pair else {
                continue;
            };
            if second - first <= 2 && self.sounds.contains(&(a.clone(), b.clone())) {
                out.push(Hit::new(tokens.range(*first, *second), IdentityClass::Name));
            }
        }
    }

    /// Adds a text in lower case backwards, and shifted by 13 letters.
    fn insert_turned(&mut self, text: &str, is_part: bool) {
        if !text.is_ascii() {
            return;
        }
        let backwards: String = text.chars().rev().collect();
        let shifted: String = text
            .bytes()
            .map(|b| match b {
                b'a'..=b'z' => char::from((b - b'a' + 13) % 26 + b'a'),
                b => char::from(b),
            })
            .collect();
        for turned in [backwards, shifted] {
            if !(is_part && EVERYDAY.contains(&turned)) {
                self.needles
                    .insert(joined(&turned), IdentityClass::Name, is_part);
            }
        }
    }

    fn insert_id(&mut self, whole: &[u8]) {
        let backwards: Vec<u8> = whole.iter().rev().copied().collect();
        for form in [whole.to_vec(), backwards] {
            self.needles.insert(form, IdentityClass::Id, false);
        }
    }

    fn insert_email(&mut self, lower: &str, whole: &[u8]) {
        self.needles
            .insert(whole.to_vec(), IdentityClass::Email, false);
        if let Some((local, host)) = lower.split_once('@') {
            let spelled = format!("{local}at{}", host.replace('.', "dot"));
            self.needles
                .insert(joined(&spelled), IdentityClass::Email, false);
            self.needles.insert(
                joined(&format!("{local}a{host}")),
                IdentityClass::Email,
                false,
            );
            let backwards: String = lower.chars().rev().collect();
            self.needles
                .insert(joined(&backwards), IdentityClass::Email, false);
        }
    }

    /// Adds the start of an address's first line: its part before the first comma or, if that has
    /// no digit, its first two parts. So the street without its number or the town alone doesn't
    /// count, unless the address has nothing else.
    fn insert_address(&mut self, lower: &str) {
        self.address_words.extend(words(lower).map(str::to_owned));
        let street = lower.split(['\n', ';']).next().unwrap_or(lower);
        let mut parts = street.split(',').map(str::trim).filter(|p| !p.is_empty());
        let Some(first) = parts.next() else { return };
        let first = if first.chars().any(|c| c.is_ascii_digit()) {
            first.to_owned()
        } else {
            format!("{first} {}", parts.next().unwrap_or(""))
        };
        let numbers = |is: bool| {
            let chosen: Vec<&str> = words(&first)
                .filter(|w| w.bytes().all(|b| b.is_ascii_digit()) == is)
                .collect();
            chosen.concat()
        };
        if numbers(false).is_empty() {
            return;
        }
        let backwards: String = first.chars().rev().collect();
        let whole = lower.to_owned();
        for form in [
            whole,
            first.clone(),
            format!("{}{}", numbers(true), numbers(false)),
            backwards,
        ] {
            self.needles
                .insert(joined(&form), IdentityClass::Address, false);
        }
    }

    fn insert_date(&mut self, reading: &IdentityReading) {
        let tokens = Tokens::new(reading);
        let Some(date) = (0..tokens.len()).find_map(|at| date_at(&tokens, at)) else {
            return;
        };
        let (a, b) = date.parts;
        let years = match date.year {
            short @ ..100 => [short, 1_900 + short, 2_000 + short],
            year => [year, year % 100, year],
        };
        for year in years {
            self.dates.extend([(year, a, b), (year, b, a)]);
        }
        for form in [
            format!("{:04}{a:02}{b:02}", date.year),
            format!("{a:02}{b:02}{:04}", date.year),
            format!("{b:02}{a:02}{:04}", date.year),
        ] {
            self.needles
                .insert(joined(&form), IdentityClass::BirthDate, true);
        }
    }

    fn knows_date(&self, date: &Date) -> bool {
        self.dates
            .contains(&(date.year, date.parts.0, date.parts.1))
    }

    /// Adds all known values that a text holds, parts of names alone only if `reach` has them.
    pub(super) fn find(&self, tokens: &Tokens<'_>, reach: NameReach, out: &mut Vec<Hit>) {
        if !self.is_searched() {
            return;
        }
        self.find_names(tokens, reach, out);
        if tokens.reading.is_transliterated {
            self.find_sounds(tokens, out);
        }
        self.find_joined(tokens, reach, out);
        if !self.dates.is_empty() {
            let mut at = 0;
            while at < tokens.len() {
                let Some(date) = date_at(tokens, at) else {
                    at += 1;
                    continue;
                };
                if self.knows_date(&date) {
                    out.push(Hit::new(
                        tokens.range(date.first, date.last),
                        IdentityClass::BirthDate,
                    ));
                }
                at = date.last + 1;
            }
        }
    }

    /// Adds names by their words: two parts of one name near each other, a part with an initial
    /// of another, or a part alone.
    fn find_names(&self, tokens: &Tokens<'_>, reach: NameReach, out: &mut Vec<Hit>) {
        if self.parts.is_empty() {
            return;
        }
        let places: Vec<usize> = (0..tokens.len()).filter(|at| tokens.is_word(*at)).collect();
        let mut add = |first: usize, last: usize| {
            out.push(Hit::new(
                tokens.range(first.min(last), first.max(last)),
                IdentityClass::Name,
            ));
        };
        for (n, at) in places.iter().copied().enumerate() {
            let word = tokens.lower(at);
            if word.len() == 1 && self.is_initials(tokens, at) {
                add(at, at + 2 * self.initials_len(tokens, at) - 1);
            }
            let Some(part) = self.parts.get(word) else {
                continue;
            };
            let everyday = EVERYDAY.contains(word);
            let mut found = false;
            for back in 1..=NAME_DISTANCE_WORDS.min(n) {
                let other = places[n - back];
                let text = tokens.lower(other);
                let pair = self.parts.contains_key(text)
                    && self.pairs.contains(&(text.to_owned(), word.to_owned()));
                let capital = back == 1 && !everyday
                    || tokens.is_capital(at) && tokens.is_capital(other)
                    || !everyday && !EVERYDAY.contains(text);
                if pair && capital {
                    add(other, at);
                    found = true;
                }
                let initial = back <= 2
                    && is_initial_of(part, text)
                    && tokens.is_capital(other)
                    && at - other <= 4;
                if initial && tokens.is_capital(at) {
                    add(other, at);
                    found = true;
                }
            }
            let after = places
                .get(n + 1)
                .copied()
                .filter(|next| next - at <= 2 && tokens.lines(*next) == 0);
            let initial_after = after.filter(|next| {
                tokens.is_capital(at)
                    && tokens.is_capital(*next)
                    && is_initial_of(part, tokens.lower(*next))
                    && (tokens.sign(next + 1) == Some(b'.') || tokens.sign(next - 1) == Some(b','))
            });
            if let Some(next) = initial_after {
                add(at, next + usize::from(tokens.sign(next + 1) == Some(b'.')));
                found = true;
            }
            let alone = part.alone && reach == NameReach::Parts;
            if !found && alone && !is_discovery(tokens, at, at) {
                add(at, at);
            }
        }
    }

    fn initials_len(&self, tokens: &Tokens<'_>, at: usize) -> usize {
        (0..NAME_PARTS_MAX)
            .take_while(|n| {
                let letter = at + 2 * n;
                tokens.is_capital(letter)
                    && tokens.cased(letter).len() == 1
                    && tokens.sign(letter + 1) == Some(b'.')
            })
            .count()
    }

    /// Returns whether initials with full stops from `at` are those of a whole name: `M.C.S.`
    fn is_initials(&self, tokens: &Tokens<'_>, at: usize) -> bool {
        let begins = at < 2 || tokens.sign(at - 1) != Some(b'.') || tokens.lower(at - 2).len() != 1;
        let len = self.initials_len(tokens, at);
        if !begins || len < 3 {
            return false;
        }
        let letters: String = (0..len).map(|n| tokens.lower(at + 2 * n)).collect();
        self.initials.contains(&letters)
    }

    /// Adds values by their letters and digits, without what stands between them.
    fn find_joined(&self, tokens: &Tokens<'_>, reach: NameReach, out: &mut Vec<Hit>) {
        if self.needles.is_empty() {
            return;
        }
        let joined = JoinedText::new(tokens.reading);
        self.search(tokens, &joined, reach, out);
        if let Some(spoken) = JoinedText::spoken(tokens) {
            self.search(tokens, &spoken, reach, out);
        }
    }

    fn search(&self, tokens: &Tokens<'_>, text: &JoinedText, reach: NameReach, out: &mut Vec<Hit>) {
        let mut at = 0;
        while at < text.bytes.len() {
            let Some((len, needle)) = self.needles.longest_at(&text.bytes[at..], |len, needle| {
                text.fits(tokens, at, len, needle)
            }) else {
                at += 1;
                continue;
            };
            let range = text.range(at, len);
            let range = match needle.class {
                IdentityClass::Phone | IdentityClass::Id => {
                    whole_number(&tokens.reading.lower, range)
                }
                _ => range,
            };
            let discovery = needle.is_part && {
                let token = tokens.ending_at(range.end);
                is_discovery(tokens, token, token)
            };
            let alone = needle.is_part && needle.class == IdentityClass::Name;
            if !discovery && (!alone || reach != NameReach::Full) {
                out.push(Hit::new(range, needle.class));
            }
            at += len;
        }
    }

    /// Returns whether a text that was found is a known value, or part of one: so a caller who may
    /// see the known values may see it. Case, accents and separators don't matter.
    pub(super) fn covers(&self, tokens: &Tokens<'_>, found: &Hit) -> bool {
        let lower = &tokens.reading.lower[found.range.clone()];
        let whole = joined(lower);
        if self.values.contains(&whole) {
            return true;
        }
        match found.class {
            IdentityClass::Address | IdentityClass::Place => {
                !self.address_words.is_empty()
                    && words(lower).all(|w| self.address_words.contains(w))
            }
            IdentityClass::Phone => {
                let digits = joined(
                    &lower
                        .chars()
                        .filter(char::is_ascii_digit)
                        .collect::<String>(),
                );
                digits.len() >= PHONE_DIGITS
                    && self.values.contains(&digits[digits.len() - PHONE_DIGITS..])
            }
            IdentityClass::BirthDate => {
                let reading = IdentityReading::new(lower);
                let tokens = Tokens::new(&reading);
                date_at(&tokens, 0).is_some_and(|date| self.knows_date(&date))
            }
            IdentityClass::Id | IdentityClass::Email => false,
            _ => self.covers_name(lower),
        }
    }

    /// Returns whether all words are parts of one name, or initials of its parts.
    fn covers_name(&self, lower: &str) -> bool {
        let parts: Vec<&str> = words(lower)
            .filter(|w| meaning_of(w) & (PARTICLE | TITLE | DOCTOR) == 0)
            .collect();
        let is_part = |w: &&str| self.parts.contains_key(*w);
        let full: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|w| w.chars().count() > 1)
            .collect();
        let paired = full.windows(2).all(|pair| {
            self.pairs
                .contains(&(pair[0].to_owned(), pair[1].to_owned()))
        });
        let initials = parts
            .iter()
            .filter(|w| w.chars().count() == 1)
            .all(|initial| {
                full.iter().any(|w| {
                    self.parts
                        .get(*w)
                        .is_some_and(|part| is_initial_of(part, initial))
                })
            });
        !full.is_empty() && full.iter().all(is_part) && paired && initials
    }
}

fn is_initial_of(part: &NamePart, letter: &str) -> bool {
    let [b @ b'a'..=b'z'] = letter.as_bytes() else {
        return false;
    };
    part.initials & (1 << (b - b'a')) != 0
}

/// Returns whether a word that may be an eponym stands before a word such as "disease".
fn is_discovery(tokens: &Tokens<'_>, first: usize, last: usize) -> bool {
    let possessive = tokens.sign(last + 1) == Some(b'\'') && tokens.lower(last + 2) == "s";
    let next = last + if possessive { 3 } else { 1 };
    EPONYMS.contains(tokens.lower(first)) && tokens.is(next, DISCOVERY) && tokens.lines(next) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownIdentities {
        let mut known = KnownIdentities::default();
        for (kind, text) in [
            (IdentityKind::Name, "Maria Conceição da Silva"),
            (IdentityKind::Id, "529.982.247-25"),
            (IdentityKind::Address, "Rua das Acácias, 120, Campinas"),
            (IdentityKind::Phone, "+55 11 91234-5678"),
            (IdentityKind::Email, "m.silva@example.org"),
            (IdentityKind::BirthDate, "1958-03-12"),
            (IdentityKind::Name, "王小明"),
            (IdentityKind::Name, "James Parkinson"),
            (IdentityKind::Name, "Grace Long"),
            (IdentityKind::Name, "José Gonçalves"),
        ] {
            known.insert(kind, text, NameReach::Parts);
        }
        known
    }

    fn found(text: &str) -> Vec<String> {
        let mut hits = Vec::new();
        for reading in IdentityReading::all(text) {
            let mut found = Vec::new();
            known().find(&Tokens::new(&reading), NameReach::Parts, &mut found);
            let placed = found.into_iter();
            hits.extend(placed.map(|hit| Hit::new(reading.original(hit.range), hit.class)));
        }
        super::super::merge(&mut hits);
        hits.into_iter()
            .map(|hit| text[hit.range].to_owned())
            .collect()
    }

    /// Goal: a known value is found in every disguise, and all of it. Method: a table of disguises,
    /// each a whole text.
    /// Rows: C-24.
    #[test]
    fn disguises() {
        for text in [
            "Maria Conceição da Silva",
            "MARIA SILVA",
            "Silva, Maria",
            "maria silva",
            "M. Silva",
            "Silva M.",
            "Maria\nSilva",
            "Mar-\nia Sil-\nva",
            "M a r i a  S i l v a",
            "M.a.r.i.a S.i.l.v.a",
            "S i l v a",
            "Ma\u{200b}ria Sil\u{00ad}va",
            "avliS airaM",
            "airaM avliS",
            "Znevn Fvyin",
            "M4r14 S1lv4",
            "M@ri@ $ilv@",
            "5i1va",
            "M&#97;ria S&#x69;lva",
            "\\u004daria \\u0053ilva",
            "M%61ria%20Silva",
            "Мария Силва",
            "М\u{430}ri\u{430} Silv\u{430}",
            "Жозе Гонсалвеш",
            "mariasilva",
            "maria_silva",
            "M.C.S.",
            "52998224725",
            "529 982 247 25",
            "5 2 9 9 8 2 2 4 7 2 5",
            "five two nine nine eight two two four seven two five",
            "cinco dois nove nove oito dois dois quatro sete dois cinco",
            "52742289925",
            "rua das acacias 120",
            "120 Rua das Acácias",
            "+55 (11) 91234 5678",
            "912345678",
            "m.silva@example.org",
            "m.silva at example dot org",
            "12/03/1958",
            "12 March 1958",
            "12 de março de 1958",
            "王小明",
            "James Parkinson",
            "Grace Long",
        ] {
            assert_eq!(found(text), [text], "{text}");
        }
    }

    /// Goal: what only resembles a known value isn't taken for it. Method: a table.
    /// Rows: C-24.
    #[test]
    fn resemblances() {
        for text in [
            "Parkinson's disease",
            "Parkinson disease for a long time",
            "a grace period of long standing",
            "Salivary silvadene cream",
            "marianas trench",
            "CARD-001 amiodarone 200 mg, 12/03/2020",
            "1958 patients, 12 of them",
            "Rua das Flores, 120",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    /// Goal: values of several people are told apart, and parts of words don't count. Method: names
    /// and mixed names, a caller who may see the known ones.
    #[test]
    fn covered() {
        let known = known();
        for (text, class, expect) in [
            ("Maria Silva", IdentityClass::Name, true),
            ("M. Silva", IdentityClass::Name, true),
            ("Mrs. Silva", IdentityClass::Name, true),
            ("Maria Parkinson", IdentityClass::Name, false),
            ("Mar", IdentityClass::Name, false),
            ("529.982.247-25", IdentityClass::Id, true),
            ("982.247", IdentityClass::Id, false),
            ("Rua das Acácias, 120", IdentityClass::Address, true),
            ("Rua das Flores, 120", IdentityClass::Address, false),
            ("11 91234-5678", IdentityClass::Phone, true),
            ("12/03/1958", IdentityClass::BirthDate, true),
            ("12/03/1959", IdentityClass::BirthDate, false),
        ] {
            let reading = IdentityReading::new(text);
            let hit = Hit::new(0..reading.lower.len(), class);
            assert_eq!(known.covers(&Tokens::new(&reading), &hit), expect, "{text}");
        }
    }
}
