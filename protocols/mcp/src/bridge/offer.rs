//! What is offered to a legacy server in `initialize`: which of the questions that are known can be answered.

use callboard_message::{Abilities, RawObject};

/// A set of abilities, small enough to be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Offer(u8);

const SAMPLING: u8 = 1;
const SAMPLING_TOOLS: u8 = 1 << 1;
const SAMPLING_CONTEXT: u8 = 1 << 2;
const FORM: u8 = 1 << 3;
const URL: u8 = 1 << 4;
const ROOTS: u8 = 1 << 5;
const ROOTS_CHANGES: u8 = 1 << 6;

impl Offer {
    /// Nothing can be answered.
    pub(super) const NOTHING: Self = Self(0);

    pub(super) fn of(abilities: &Abilities) -> Self {
        if abilities.0.is_empty() {
            return Self::NOTHING;
        }
        let sampling = abilities.0.object("sampling").unwrap_or_default();
        let bits = [
            (SAMPLING, abilities.sampling()),
            (SAMPLING_TOOLS, sampling.has("tools")),
            (SAMPLING_CONTEXT, sampling.has("context")),
            (FORM, abilities.elicitation_form()),
            (URL, abilities.elicitation_url()),
            (ROOTS, abilities.roots()),
            (ROOTS_CHANGES, abilities.roots_list_changed()),
        ];
        Self(bits.iter().filter(|(_, has)| *has).fold(0, |all, (bit, _)| all | bit))
    }

    /// In MCP's words.
    pub(super) fn abilities(self) -> Abilities {
        let of = |members: &[(u8, &str)]| {
            let has = members.iter().filter(|(bit, _)| self.has(*bit));
            has.fold(RawObject::new(), |all, (_, name)| all.with(name, RawObject::new()))
        };
        let mut all = RawObject::new();
        if self.has(SAMPLING) {
            all.set("sampling", of(&[(SAMPLING_TOOLS, "tools"), (SAMPLING_CONTEXT, "context")]));
        }
        if self.has(FORM | URL) {
            all.set("elicitation", of(&[(FORM, "form"), (URL, "url")]));
        }
        if self.has(ROOTS) {
            let changes = RawObject::new().with("listChanged", true);
            all.set("roots", if self.has(ROOTS_CHANGES) { changes } else { RawObject::new() });
        }
        Abilities(all)
    }

    /// Whether a server that is offered this may ask for roots, and keep them for as long as the connection stands.
    pub(super) fn has_roots(self) -> bool {
        self.has(ROOTS)
    }

    /// What may be offered on a connection of several clients: all but roots, which are each client's own.
    pub(super) fn without_roots(self) -> Self {
        Self(self.0 & !(ROOTS | ROOTS_CHANGES))
    }

    /// The same where changes of the roots, if there are any, are told.
    pub(super) fn with_roots_changes(self) -> Self {
        if self.has_roots() { Self(self.0 | ROOTS_CHANGES) } else { self }
    }

    fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(json: &str) -> Abilities {
        Abilities(serde_json::from_str(json).unwrap())
    }

    /// Goal: what is offered is what can be answered, in one spelling. Method: capabilities in several spellings, there
    /// and back.
    #[test]
    fn abilities_have_one_spelling() {
        for (told, offered) in [
            ("{}", "{}"),
            (r#"{"experimental":{"a":{}},"tasks":{}}"#, "{}"),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{"url":{}}}"#),
            (
                r#"{"roots":{"listChanged":true},"sampling":{"tools":{}}}"#,
                r#"{"sampling":{"tools":{}},"roots":{"listChanged":true}}"#,
            ),
            (r#"{"roots":{"listChanged":false}}"#, r#"{"roots":{}}"#),
            (r#"{"sampling":{"context":{},"new":1}}"#, r#"{"sampling":{"context":{}}}"#),
        ] {
            let offer = Offer::of(&abilities(told));
            assert_eq!(offer.abilities().0.to_raw().get(), offered);
            assert_eq!(Offer::of(&offer.abilities()), offer);
        }
        assert_eq!(Offer::of(&Abilities::all()).abilities(), Abilities(Abilities::all().0));
    }
}
