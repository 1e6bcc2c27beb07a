//! One card for readers of every version: who doesn't say which it reads gets the members of all.

use callboard_message::RawObject;
use serde_json::value::RawValue;

use crate::Dialect;
use crate::wire::{AgentCard, Wire};

/// Objects whose members are objects with members of each version.
const DEEP: &str = "securitySchemes";

/// The card of 1.0 with the members that 0.3 and 0.1 have besides. Where they name a member alike, it is 1.0's.
pub(super) fn write(card: &AgentCard) -> Box<RawValue> {
    let mut all = RawObject::parse(&card.to_raw()).unwrap_or_default();
    for older in [Dialect::V03, Dialect::V01] {
        let older = RawObject::parse(&older.write_card(card)).unwrap_or_default();
        for (name, value) in older.iter() {
            match all.object(name) {
                None if !all.has(name) => all.set_raw(name, value.to_owned()),
                Some(own) if name == DEEP => all.set(name, each(own, value)),
                _ => {}
            }
        }
    }
    all.to_raw()
}

/// Each member with the members that the one of its name has in `older`.
fn each(mut own: RawObject, older: &RawValue) -> RawObject {
    let Ok(older) = RawObject::parse(older) else { return own };
    for (name, value) in older.iter() {
        let (Some(mut both), Ok(value)) = (own.object(name), RawObject::parse(value)) else { continue };
        for (member, value) in value.iter().filter(|(member, _)| *member != "description") {
            if !both.has(member) {
                both.set_raw(member, value.to_owned());
            }
        }
        own.set(name, both);
    }
    own
}
