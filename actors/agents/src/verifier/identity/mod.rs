//! Rule R2: no full name, government id, address or contact of a person.
//!
//! What the clinics' own answers mark as personal is looked for first, in any disguise. Patterns, check digits and
//! lists of names are for the rest.

mod checksum;
mod disguise;
mod known;
mod names;
mod pattern;

pub(super) use known::Known;

use super::value::Identity;

/// The first piece of personal data in `text` that isn't allowed, by its kind.
///
/// Values in `withheld` may not be shown in any form; what `allowed` covers may.
pub(super) fn find(text: &str, withheld: &Known, allowed: &Known) -> Option<Identity> {
    disguise::readings(text).iter().find_map(|reading| {
        withheld.find(reading).or_else(|| {
            let found = pattern::find(reading).into_iter().chain(names::find(reading));
            found.into_iter().find(|hit| !allowed.covers(&hit.text)).map(|hit| hit.kind)
        })
    })
}

/// Something that looks like personal data. The text never leaves the verifier.
struct Hit {
    kind: Identity,
    text: String,
}
