//! Check digits of identification numbers.

/// Returns the digits of a number; `None` unless there are exactly `count` and they aren't all the
/// same.
fn digits_exactly(count: usize, text: &str) -> Option<Vec<u32>> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    Some(digits).filter(|digits| digits.len() == count && !all_same(digits))
}

fn all_same(digits: &[u32]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// Returns the sum of the digits, each times its weight.
fn weighted(digits: &[u32], weights: impl IntoIterator<Item = u32>) -> u32 {
    digits.iter().zip(weights).map(|(d, w)| d * w).sum()
}

/// Returns whether the digits of a text are a valid CPF (Brazil): eleven, not all the same, the
/// last two of them check digits modulo 11.
pub(super) fn is_cpf(text: &str) -> bool {
    digits_exactly(11, text).is_some_and(|d| {
        let check = |n: usize| (weighted(&d[..n], (2..=n as u32 + 1).rev()) * 10 % 11) % 10;
        check(9) == d[9] && check(10) == d[10]
    })
}

/// Returns whether the digits of a text are a valid CNPJ (company, Brazil): fourteen, the last two
/// of them check digits modulo 11.
pub(super) fn is_cnpj(text: &str) -> bool {
    digits_exactly(14, text).is_some_and(|d| {
        let check = |n: usize| {
            // The weights run from 2 to 9 and again, from the right.
            let weights = (0..n as u32).rev().map(|place| place % 8 + 2);
            match weighted(&d[..n], weights) % 11 {
                0 | 1 => 0,
                rest => 11 - rest,
            }
        };
        check(12) == d[12] && check(13) == d[13]
    })
}

/// Returns whether the digits of a text are a valid CNS (health card, Brazil): fifteen, the first
/// one 1, 2, 7, 8 or 9, their weighted sum divisible by 11.
pub(super) fn is_cns(text: &str) -> bool {
    digits_exactly(15, text).is_some_and(|d| {
        [1, 2, 7, 8, 9].contains(&d[0]) && weighted(&d, (1..=15).rev()).is_multiple_of(11)
    })
}

/// Returns whether the digits of a text are a valid NIF (Portugal): nine, the first one not 0 or
/// 4, the last one a check digit modulo 11.
pub(super) fn is_nif(text: &str) -> bool {
    digits_exactly(9, text).is_some_and(|d| {
        let check = match weighted(&d[..8], (2..=9).rev()) % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        };
        ![0, 4].contains(&d[0]) && check == d[8]
    })
}

/// Returns whether the digits of a text are a valid NHS number (England): ten, not all the same,
/// the last one a check digit modulo 11.
pub(super) fn is_nhs_number(text: &str) -> bool {
    digits_exactly(10, text)
        .is_some_and(|d| (11 - weighted(&d[..9], (2..=10).rev()) % 11) % 11 == d[9])
}

/// Returns whether the digits of a text are a valid NPI (United States): ten, the first one 1 or 2,
/// that pass the Luhn check behind the prefix 80840.
pub(super) fn is_npi(text: &str) -> bool {
    digits_exactly(10, text).is_some_and(|d| {
        let prefixed: Vec<u32> = [8, 0, 8, 4, 0]
            .into_iter()
            .chain(d.iter().copied())
            .collect();
        matches!(d[0], 1 | 2) && is_luhn_sum(&prefixed)
    })
}

/// Returns whether the digits of a text are a valid Aadhaar number (India): twelve with a Verhoeff
/// check digit, the first 2 or more, not all the same.
pub(super) fn is_aadhaar(text: &str) -> bool {
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
pub(super) fn is_luhn_valid(text: &str) -> bool {
    let d: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    (12..=19).contains(&d.len()) && !all_same(&d) && is_luhn_sum(&d)
}

/// Returns whether the digits of a text are a valid personal number of Sweden: a date of birth with a
/// year of two or four digits, three digits and a check digit.
pub(super) fn is_personnummer(text: &str) -> bool {
    let d: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    matches!(d.len(), 10 | 12) && {
        let short = &d[d.len() - 10..];
        let (month, day) = (short[2] * 10 + short[3], short[4] * 10 + short[5]);
        (1..=12).contains(&month) && (1..=31).contains(&day) && is_luhn_sum(short)
    }
}

fn is_luhn_sum(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        // Every second digit counts as the sum of the digits of its double.
        .map(|(n, d)| match n % 2 {
            0 => *d,
            _ => d * 2 / 10 + d * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Returns whether a text is a valid IBAN: 15 to 34 letters and digits that pass the check modulo
/// 97.
pub(super) fn is_iban(text: &str) -> bool {
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
pub(super) fn is_dni(text: &str) -> bool {
    let digits = text.chars().filter_map(|c| c.to_digit(10));
    let number: u32 = digits.fold(0, |n, d| (n * 10 + d) % 23);
    "TRWAGMYFPDXBNJZSQVHLCKE"
        .chars()
        .nth(number as usize)
        .is_some_and(|letter| text.ends_with(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: right numbers pass, one changed digit fails. Method: published examples of each scheme.
    #[test]
    fn check_digits() {
        let verhoeff: fn(&str) -> bool = |text| {
            let d: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
            is_verhoeff_valid(&d)
        };
        for (check, good, bad) in [
            (
                is_cpf as fn(&str) -> bool,
                "529.982.247-25",
                "529.982.247-26",
            ),
            (is_cnpj, "11.222.333/0001-81", "11.222.333/0001-82"),
            (is_nhs_number, "943 476 5919", "943 476 5918"),
            (is_npi, "1234567893", "1234567894"),
            (is_nif, "123456789", "123456788"),
            (verhoeff, "2363", "2364"),
            (is_luhn_valid, "4111 1111 1111 1111", "4111 1111 1111 1112"),
            (
                is_iban,
                "GB82 WEST 1234 5698 7654 32",
                "GB82 WEST 1234 5698 7654 33",
            ),
            (is_dni, "12345678Z", "12345678A"),
        ] {
            assert!(check(good) && !check(bad), "{good}");
        }
        assert!(!is_cpf("111.111.111-11"));
    }
}
