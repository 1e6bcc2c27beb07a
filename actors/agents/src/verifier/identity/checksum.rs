//! Check digits of government ids and cards. Input: digits only.

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn all_same(digits: &[u32]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// CPF (Brazil): eleven digits, two of them check digits modulo 11.
pub(super) fn cpf(text: &str) -> bool {
    let d = digits(text);
    if d.len() != 11 || all_same(&d) {
        return false;
    }
    let check = |n: usize| {
        let sum: u32 = d.iter().take(n).zip((2..=n as u32 + 1).rev()).map(|(d, w)| d * w).sum();
        (sum * 10 % 11) % 10
    };
    check(9) == d[9] && check(10) == d[10]
}

/// NHS number (England): ten digits, modulo 11.
pub(super) fn nhs(text: &str) -> bool {
    let d = digits(text);
    if d.len() != 10 || all_same(&d) {
        return false;
    }
    let sum: u32 = d.iter().take(9).zip((2..=10).rev()).map(|(d, w)| d * w).sum();
    (11 - sum % 11) % 11 == d[9]
}

/// Aadhaar (India): twelve digits, Verhoeff's scheme in the dihedral group of order 10.
pub(super) fn aadhaar(text: &str) -> bool {
    let d = digits(text);
    d.len() == 12 && d[0] >= 2 && !all_same(&d) && verhoeff(&d)
}

fn verhoeff(digits: &[u32]) -> bool {
    // Rotations are 0–4, reflections 5–9.
    let product = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b) % 5,
        (false, true) => 5 + (a + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let permute = |d: u32| [1, 5, 7, 6, 2, 8, 3, 0, 9, 4][d as usize % 10];
    let check = digits.iter().rev().enumerate().fold(0, |check, (position, digit)| {
        let permuted = (0..position % 8).fold(*digit, |d, _| permute(d));
        product(check, permuted)
    });
    check == 0
}

/// Luhn's sum, as on payment cards.
pub(super) fn luhn(text: &str) -> bool {
    let d = digits(text);
    let sum: u32 = d
        .iter()
        .rev()
        .enumerate()
        .map(|(n, d)| match n % 2 {
            0 => *d,
            _ if d * 2 > 9 => d * 2 - 9,
            _ => d * 2,
        })
        .sum();
    (12..=19).contains(&d.len()) && !all_same(&d) && sum.is_multiple_of(10)
}

/// IBAN: letters and digits, modulo 97.
pub(super) fn iban(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(char::is_ascii_alphanumeric).collect();
    if !(15..=34).contains(&compact.len()) {
        return false;
    }
    let remainder =
        compact[4..].iter().chain(&compact[..4]).filter_map(|c| c.to_digit(36)).fold(0, |remainder, value| {
            let shift = if value > 9 { 100 } else { 10 };
            (remainder * shift + value) % 97
        });
    remainder == 1
}

/// NIF or DNI (Spain): eight digits and a letter modulo 23.
pub(super) fn dni(text: &str) -> bool {
    let letter = text.chars().last().map(|c| c.to_ascii_uppercase());
    let number: u32 = digits(text).iter().fold(0, |n, d| (n * 10 + d) % 23);
    letter == "TRWAGMYFPDXBNJZSQVHLCKE".chars().nth(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: right numbers pass, one changed digit fails. Method: published examples of each scheme.
    #[test]
    fn check_digits() {
        for (check, good, bad) in [
            (cpf as fn(&str) -> bool, "529.982.247-25", "529.982.247-26"),
            (nhs, "943 476 5919", "943 476 5918"),
            (|text| verhoeff(&digits(text)), "2363", "2364"),
            (luhn, "4111 1111 1111 1111", "4111 1111 1111 1112"),
            (iban, "GB82 WEST 1234 5698 7654 32", "GB82 WEST 1234 5698 7654 33"),
            (dni, "12345678Z", "12345678A"),
        ] {
            assert!(check(good), "{good}");
            assert!(!check(bad), "{bad}");
        }
    }
}
