//! Detection of ids, contacts, birth dates and addresses by pattern.

use std::sync::LazyLock;

use regex::Regex;

use super::super::IdentityKind::{self, Address, BirthDate, Email, Id, Phone};
use super::super::read_pattern;
use super::IdentityMatch;

/// Returns all personal data in `text` that has a fixed pattern, such as id and phone numbers, in
/// the order of the pattern table. Accents and disguises must have been removed from the text, its
/// upper case kept. If the patterns can't be compiled, the whole text counts as an id.
pub(super) fn find_patterns(text: &str) -> Vec<IdentityMatch> {
    let Ok(shapes) = &*SHAPES else {
        // Without its patterns the rule can't decide, so nothing may pass.
        return vec![IdentityMatch {
            kind: Id,
            text: text.to_owned(),
        }];
    };
    let hits = shapes.iter().flat_map(|(kind, check, patterns)| {
        let found = patterns
            .iter()
            .flat_map(|pattern| pattern.captures_iter(text));
        // The value is the last group of the pattern.
        let values = found.filter_map(|found| found.get(found.len() - 1));
        let values = values
            .map(|value| value.as_str())
            .filter(|value| check(value));
        values.map(|value| IdentityMatch {
            kind: *kind,
            text: value.to_owned(),
        })
    });
    hits.collect()
}

fn always(_: &str) -> bool {
    true
}

fn has_digits(text: &str) -> bool {
    digits(text).len() >= 4
}

/// Returns whether a text has 7 to 20 digits, as phone numbers do, and isn't a date with the year
/// first, such as `1980-03-15`. Other dates pass as phone numbers.
fn is_phone(text: &str) -> bool {
    let digits = digits(text).len();
    let date = text.len() == 10 && text.split(['-', '.', '/', ' ']).map(str::len).eq([4, 2, 2]);
    (7..=20).contains(&digits) && !date
}

fn is_ipv4(text: &str) -> bool {
    text.split('.').all(|part| part.parse::<u8>().is_ok()) && !text.starts_with('0')
}

/// Row of the pattern table: the kind of personal data, a check that the value must pass, and the
/// patterns. The value is the last group that matched, else the whole match.
type PatternRow<Patterns> = (IdentityKind, fn(&str) -> bool, Patterns);

static SHAPES: LazyLock<Result<Vec<PatternRow<Vec<Regex>>>, regex::Error>> = LazyLock::new(|| {
    let read = |patterns: &[&str]| {
        patterns
            .iter()
            .map(|pattern| read_pattern(pattern))
            .collect::<Result<_, _>>()
    };
    TABLE
        .iter()
        .map(|(kind, check, patterns)| Ok((*kind, *check, read(patterns)?)))
        .collect()
});

const TABLE: &[PatternRow<&[&str]>] = &[
    // Contacts
    (
        Email,
        always,
        &[
            r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,5}\.[A-Za-z]{2,24}",
            r"(?i)[a-z0-9._%+-]{2,64} ?(?:\[at\]|\(at\)| at ) ?[a-z0-9-]{2,63} ?(?:\[dot\]|\(dot\)| dot |
            \.)(?: ?)(?:com|org|net|br|uk|pt|edu)(?-u:\b)",
        ],
    ),
    (
        Phone,
        is_phone,
        &[
            r"\+\d[\d ().-]{6,20}\d(?: ?(?:x|ext\.?) ?\d{1,6})?",
            r"(?-u:\b)00\d[\d ().-]{7,18}\d(?: ?(?:x|ext\.?) ?\d{1,6})?",
            r"\(\d{2,5}\) ?\d{3,5}[ .-]?\d{3,4}",
            r"(?-u:\b)(?:1[-. ])?\d{3}[-. ]\d{3}[-. ]\d{4}(?-u:\b)(?: ?(?:x|ext\.?) ?\d{1,6})?",
            r"(?-u:\b)\d{2} 9?\d{4}-\d{4}(?-u:\b)",
            r"(?-u:\b)9\d{4}-\d{4}(?-u:\b)",
            r"(?-u:\b)0\d{2,4} \d{3,4} ?\d{3,4}(?-u:\b)",
            r"(?-u:\b)0[1-9]\d{9}(?-u:\b)",
            r"(?i)(?-u:\b)(?:phone|telephone|tel|mobile|cell|call|fone|telefone|celular|fax|whatsapp|
            ligue)(?-u:\b)[^\d\n+]{0,20}([\d(][\d ().-]{5,18}\d)",
            r"(?i)(?-u:\b)(?:reach(?:able|ed)?|contact(?:ed)?|call(?:ed)?)(?: \w+){0,2} (?:at|on) ([\d(][\d ().-]{5,18}\d)",
        ],
    ),
    // Government and other ids, by shape
    (
        Id,
        always,
        &[
            r"(?-u:\b)\d{3}-\d{2}-\d{4}(?-u:\b)",
            r"(?-u:\b)\d{3}\.\d{3}\.\d{3}-\d{2}(?-u:\b)",
            r"(?-u:\b)\d{2}\.\d{3}\.\d{3}-[\dXx](?-u:\b)",
            r"(?-u:\b)\d{3} \d{3} \d{4}(?-u:\b)",
        ],
    ),
    (Id, is_nhs_number, &[r"(?-u:\b)\d{10}(?-u:\b)"]),
    (Id, is_cpf, &[r"(?-u:\b)\d{11}(?-u:\b)"]),
    (
        Id,
        always,
        &[r"(?-u:\b)[2-9]\d{3}[ -]\d{4}[ -]\d{4}(?-u:\b)"],
    ),
    (Id, is_aadhaar, &[r"(?-u:\b)\d{12}(?-u:\b)"]),
    (
        Id,
        is_luhn_valid,
        &[
            r"(?-u:\b)\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{1,7}(?-u:\b)",
            r"(?-u:\b)3[47]\d{2}[ -]?\d{6}[ -]?\d{5}(?-u:\b)",
            r"(?-u:\b)(?:4|5[0-8]|6)\d{10,18}(?-u:\b)",
        ],
    ),
    (
        Id,
        is_iban,
        &[r"(?-u:\b)[A-Z]{2}\d{2} ?(?:[A-Z0-9]{4} ?){2,7}[A-Z0-9]{1,4}(?-u:\b)"],
    ),
    (Id, is_dni, &[r"(?-u:\b)\d{8}-?[A-Z](?-u:\b)"]),
    (
        Id,
        always,
        &[r"(?-u:\b)[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D](?-u:\b)"],
    ),
    (
        Id,
        is_ipv4,
        &[r"(?-u:\b)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?-u:\b)"],
    ),
    (
        Id,
        always,
        &[r"(?-u:\b)(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?-u:\b)"],
    ),
    // Ids, by their label
    (
        Id,
        has_digits,
        &[
            r"(?i)(?-u:\b)(?:ssn|social security|cpf|rg|nhs|nif|aadhaar|passport|passaporte|mrn|
            medical record|prontuario|npi|national id|government id|id card|identity card|identidade|
            insurance|licen[cs]e|cns|cartao sus|tax id|taxpayer|pesel|bsn|dni|nino|account|
            iban)(?-u:\b)(?:'s)?(?:[ .:#]{1,2}(?:number|no|num|numero|n|id|is|was|e|of|card|plan|member|
            policy)(?-u:\b)){0,4}[ .:#=o]{0,4}([A-Za-z]{0,4}-?\d[A-Za-z\d. /-]{2,20}[A-Za-z\d])",
        ],
    ),
    (Id, always, &[r"(?-u:\b)(?:MRN|PRONT)-?\d{5,10}(?-u:\b)"]),
    // Dates of birth
    (
        BirthDate,
        always,
        &[
            r"(?i)(?-u:\b)(?:dob|d\.o\.b|date of birth|birth ?date|born(?: on)?|nascid[oa] em|
            data de nascimento|nascimento|dn)(?-u:\b)[ :.=]{0,3}(?:is |was |
            e )?(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}(?:st|nd|rd|
            th)? (?:de )?[a-z]{3,9}\.?,? (?:de )?\d{4}|[a-z]{3,9}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4})",
        ],
    ),
    // Addresses
    (
        Address,
        always,
        &[
            r"(?-u:\b)\d{1,6}[A-Za-z]?,? (?:\d{1,4}(?:st|nd|rd|th)? )?(?:[A-Z][\w'.-]{0,24} ){1,4}(?:Street|
            St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Boulevard|Blvd|Court|Place|Square|Terrace|Crescent|Close|
            Mews|Parkway|Pkwy|Highway|Hwy|Circle|Row|Gardens|Grove|Walk|Trail|Turnpike|Alley|Loop|Plaza|
            Ridge|Heights|Crossing|Quay|Wharf)(?-u:\b)",
            r"(?i)(?-u:\b)\d{1,6}[a-z]? (?:[a-z][\w'.-]{1,24} ){1,3}(?:street|avenue|road|lane|boulevard|
            terrace|crescent|drive|court)(?-u:\b)",
            r"(?-u:\b)(?:Rua|Avenida|Av\.?|Travessa|Alameda|Praca|Rodovia|Estrada|Largo|Viela|Via|Calle|Rue|
            Carrer|Strada|Piazza|Viale|Conjunto|Condominio|Residencial|Recanto|Vereda|Chacara|Sitio|Fazenda|
            Aeroporto|Esplanada|Ladeira|Loteamento|Morro|Nucleo|Parque|Passarela|Patio|Quadra|Setor|Trecho|
            Trevo|Vale|Vila|Favela|Lagoa|Lago|Jardim|Feira|Estacao|Distrito|Colonia|
            Campo) (?:d[aeo]s? )?[A-Z][\w'. -]{1,50},? (?:n\.?o? ?)?\d{1,6}(?-u:\b)",
            r"(?-u:\b)\d{1,6},? (?:rue|via|calle|rua|avenida|avenue|boulevard|chemin|place|impasse|
            quai) (?:d[aeu]s? |de la |de l')?[A-Z][\w'-]+",
            r"(?i)(?-u:\b)[a-z]{3,24}(?:strasse|strase|strabe|weg|gasse|allee|gata|gatan|vagen|vegen|katu|tie|
            straat|laan|gade|vej|utca|terrasse|plads)\.? \d{1,5}[a-z]?(?-u:\b)",
            r"(?i)(?-u:\b)\d{1,6} [a-z][\w .'-]{2,30} \d{1,4},? ?(?:apt|suite|\n)",
            r"(?-u:\b)[A-Z][a-z]+(?: [A-Z][a-z]+){0,2},? (?:A[LKZRAEPS]|C[AOT]|D[CE]|F[LM]|G[AU]|HI|I[ADLN]|
            K[SY]|LA|M[ADEHINOPST]|N[CDEHJMVY]|O[HKR]|P[ARW]|RI|S[CD]|T[NX]|UT|V[AIT]|
            W[AIVY]),? \d{5}(?:-\d{4})?(?-u:\b)",
            r"(?-u:\b)(?:[A-Z]{1,2}\d[A-Z\d]?) \d[ABD-HJLNP-UW-Z]{2}(?-u:\b)",
            r"(?-u:\b)\d{5}-\d{3}(?-u:\b)",
            r"(?i)(?-u:\b)(?:apt|apartment|suite|flat|studio)\.? (?:no\.? ?)?\d{1,5}[a-z]?,? [A-Za-z]",
            r"(?-u:\b)(?:PSC|CMR|Unit) \d{1,6},? Box \d{1,6}|(?-u:\b)(?:APO|FPO|DPO),? A[AEP] \d{5}(?-u:\b)",
            r"(?i)(?-u:\b)\d{1,4} rue (?:de |du |des )?[a-z]{3}",
        ],
    ),
    (
        Phone,
        always,
        &[r"(?-u:\b)\d{2}(?:[-. ]\d{2}){3,4}(?-u:\b)"],
    ),
    (
        Address,
        always,
        &[r"(?i)(?-u:\b)p\.?o\.? ?box \d{1,6}(?-u:\b)"],
    ),
    (
        Address,
        has_number,
        &[
            r"(?i)(?-u:\b)(?:address(?: is|:)|lives? (?:at|on)|living at|resid(?:es|ing) at|endereco(?: e|:)|
            reside n[ao]|mora n[ao]|mor(?:a|o) em)[ :]{0,2}([^\n.;]{6,80})",
        ],
    ),
];

fn has_number(text: &str) -> bool {
    !digits(text).is_empty()
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// Returns the digits of a number; `None` unless there are exactly `count` and they aren't all the
/// same.
fn digits_exactly(count: usize, text: &str) -> Option<Vec<u32>> {
    Some(digits(text)).filter(|digits| digits.len() == count && !all_same(digits))
}

fn all_same(digits: &[u32]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// Returns whether the digits of a text are a valid CPF (Brazil): eleven, not all the same, the
/// last two of them check digits modulo 11. A CPF with separators counts as an id without this
/// check.
fn is_cpf(text: &str) -> bool {
    let Some(d) = digits_exactly(11, text) else {
        return false;
    };
    let check = |n: usize| {
        let sum: u32 = d
            .iter()
            .take(n)
            .zip((2..=n as u32 + 1).rev())
            .map(|(d, w)| d * w)
            .sum();
        (sum * 10 % 11) % 10
    };
    check(9) == d[9] && check(10) == d[10]
}

/// Returns whether the digits of a text are a valid NHS number (England): ten, not all the same,
/// the last one a check digit modulo 11. A number with spaces counts as an id without this check.
fn is_nhs_number(text: &str) -> bool {
    let Some(d) = digits_exactly(10, text) else {
        return false;
    };
    let sum: u32 = d
        .iter()
        .take(9)
        .zip((2..=10).rev())
        .map(|(d, w)| d * w)
        .sum();
    (11 - sum % 11) % 11 == d[9]
}

/// Returns whether the digits of a text are a valid Aadhaar number (India): twelve with a Verhoeff
/// check digit, the first 2 or more, not all the same. A number with separators counts as an id
/// without this check.
fn is_aadhaar(text: &str) -> bool {
    digits_exactly(12, text).is_some_and(|d| d[0] >= 2 && is_verhoeff_valid(&d))
}

fn is_verhoeff_valid(digits: &[u32]) -> bool {
    // Rotations are 0–4, reflections 5–9.
    let product = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b) % 5,
        (false, true) => 5 + (a + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let permute = |d: u32| [1, 5, 7, 6, 2, 8, 3, 0, 9, 4][d as usize % 10];
    let check = digits
        .iter()
        .rev()
        .enumerate()
        .fold(0, |check, (position, digit)| {
            let permuted = (0..position % 8).fold(*digit, |d, _| permute(d));
            product(check, permuted)
        });
    check == 0
}

/// Returns whether a text has 12 to 19 digits, not all the same, that pass the Luhn check, as
/// payment card numbers do.
fn is_luhn_valid(text: &str) -> bool {
    let d = digits(text);
    let sum: u32 = d
        .iter()
        .rev()
        .enumerate()
        // Every second digit counts as the sum of the digits of its double.
        .map(|(n, d)| {
            if n % 2 == 0 {
                *d
            } else {
                d * 2 / 10 + d * 2 % 10
            }
        })
        .sum();
    (12..=19).contains(&d.len()) && !all_same(&d) && sum.is_multiple_of(10)
}

/// Returns whether a text is a valid IBAN: 15 to 34 letters and digits that pass the check modulo
/// 97.
fn is_iban(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(char::is_ascii_alphanumeric).collect();
    if !(15..=34).contains(&compact.len()) {
        return false;
    }
    let remainder = compact[4..]
        .iter()
        .chain(&compact[..4])
        .filter_map(|c| c.to_digit(36))
        .fold(0, |remainder, value| {
            let shift = if value > 9 { 100 } else { 10 };
            (remainder * shift + value) % 97
        });
    remainder == 1
}

/// Returns whether the last letter of a text is that of a NIF or DNI (Spain): the check letter
/// modulo 23 of the digits. Their number isn't checked.
fn is_dni(text: &str) -> bool {
    let number: u32 = digits(text).iter().fold(0, |n, d| (n * 10 + d) % 23);
    "TRWAGMYFPDXBNJZSQVHLCKE"
        .chars()
        .nth(number as usize)
        .is_some_and(|letter| text.ends_with(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ids, contacts and addresses are found by pattern, clinical numbers aren't. Method: a
    /// table.
    #[test]
    fn shapes() {
        for (text, expect) in [
            ("SSN 123-45-6789", Some(Id)),
            ("CPF 529.982.247-25", Some(Id)),
            ("CPF 111.222.333-44", Some(Id)),
            ("NHS number: 943 476 5919", Some(Id)),
            ("NIF: 123456789", Some(Id)),
            ("Aadhaar 2345 6789 0123", Some(Id)),
            ("passport number A11764701", Some(Id)),
            ("write to a.silva@example.org", Some(Email)),
            ("tel +55 11 91234-5678", Some(Phone)),
            ("12 Acacia Avenue", Some(Address)),
            ("Rua das Flores, 123", Some(Address)),
            ("L3 6AY", Some(Address)),
            ("born on 12/03/1961", Some(BirthDate)),
            ("CARD-001 amiodarone 200 mg once daily", None),
            ("potassium 4.1 mmol/L on 2026-10-16", None),
            ("BP 120/80, HR 72, sample 790343", None),
            ("pain for 12-24 hours, 1990-1995", None),
        ] {
            let found = find_patterns(text).first().map(|h| h.kind);
            assert_eq!(found.is_some(), expect.is_some(), "{text}: {found:?}");
        }
    }

    /// Goal: right numbers pass, one changed digit fails. Method: published examples of each scheme.
    #[test]
    fn check_digits() {
        for (check, good, bad) in [
            (
                is_cpf as fn(&str) -> bool,
                "529.982.247-25",
                "529.982.247-26",
            ),
            (is_nhs_number, "943 476 5919", "943 476 5918"),
            (|text| is_verhoeff_valid(&digits(text)), "2363", "2364"),
            (is_luhn_valid, "4111 1111 1111 1111", "4111 1111 1111 1112"),
            (
                is_iban,
                "GB82 WEST 1234 5698 7654 32",
                "GB82 WEST 1234 5698 7654 33",
            ),
            (is_dni, "12345678Z", "12345678A"),
        ] {
            assert!(check(good), "{good}");
            assert!(!check(bad), "{bad}");
        }
    }
}
