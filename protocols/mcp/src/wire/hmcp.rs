//! HMCP 0.1.0: `sampling/createMessage` from client to server. No revision of MCP has it; a server says that it does.

use callboard_message::{Failure, RawObject};
use serde_json::value::RawValue;

/// The method, in either direction.
pub const METHOD: &str = "sampling/createMessage";
/// What the extension is called among MCP's extensions (2026-07-28).
const EXTENSION: &str = "com.innovaccer/hmcp";
/// What it is called among experimental capabilities, where HMCP itself puts it.
const EXPERIMENTAL: &str = "hmcp";
const VERSION: &str = "0.1.0";

/// What a server says that has it.
fn offer() -> RawObject {
    RawObject::of("sampling", true).with("version", VERSION)
}

/// What server capabilities say of it, in the words of either era.
fn offered(capabilities: &RawObject) -> Option<RawObject> {
    let offer = |holder: &str, name: &str| capabilities.object(holder)?.object(name);
    let offer = offer("experimental", EXPERIMENTAL).or_else(|| offer("extensions", EXTENSION))?;
    let wanted = offer.get("sampling").map(RawValue::get);
    wanted
        .is_some_and(|sampling| !matches!(sampling, "false" | "null"))
        .then_some(offer)
}

/// Says it in server capabilities.
pub fn advertise(capabilities: &mut RawObject) {
    put(capabilities, "experimental", EXPERIMENTAL, offer());
}

/// Says in the words of the stateless era too what server capabilities say in HMCP's own; the words of the legacy era have
/// no extensions.
pub fn translate(capabilities: &mut RawObject, extensions: bool) {
    let Some(offer) = offered(capabilities) else {
        return;
    };
    put(capabilities, "experimental", EXPERIMENTAL, offer.clone());
    if extensions {
        put(capabilities, "extensions", EXTENSION, offer);
    }
}

fn put(capabilities: &mut RawObject, holder: &str, name: &str, offer: RawObject) {
    let mut held = capabilities.object(holder).unwrap_or_default();
    if !held.has(name) {
        held.set(name, offer);
        capabilities.set(holder, held);
    }
}

/// Lets a request of it go to a server that says of itself that it has it.
///
/// # Errors
/// `NotFound` where it doesn't.
pub fn gate(about: &RawObject) -> Result<(), Failure> {
    let has_it = about
        .object("capabilities")
        .is_some_and(|capabilities| offered(&capabilities).is_some());
    match has_it {
        true => Ok(()),
        false => Err(Failure::not_found(
            "the server doesn't say that it answers sampling/createMessage (HMCP)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> RawObject {
        serde_json::from_str(json).unwrap()
    }

    /// Goal: only a server that says so is asked. Method: capabilities that do, in either era's words, and that don't.
    #[test]
    fn servers_must_say_so() {
        for (capabilities, has_it) in [
            (
                r#"{"experimental":{"hmcp":{"sampling":true,"version":"0.1.0"}}}"#,
                true,
            ),
            (
                r#"{"extensions":{"com.innovaccer/hmcp":{"sampling":{}}}}"#,
                true,
            ),
            (r#"{"experimental":{"hmcp":{"sampling":false}}}"#, false),
            (r#"{"experimental":{"hmcp":{"version":"0.1.0"}}}"#, false),
            (
                r#"{"experimental":{"other":{"sampling":true}},"sampling":{}}"#,
                false,
            ),
            (r#"{}"#, false),
        ] {
            let about = RawObject::of("capabilities", of(capabilities));
            assert_eq!(gate(&about).is_ok(), has_it, "{capabilities}");
        }
        assert!(gate(&RawObject::new()).is_err());
    }

    /// Goal: each era hears it in its own words, and what else was said stays. Method: from either to either.
    #[test]
    fn eras_are_told_in_their_words() {
        let mut ours = of(r#"{"experimental":{"x":1}}"#);
        advertise(&mut ours);
        let hmcp = r#"{"sampling":true,"version":"0.1.0"}"#;
        assert_eq!(
            ours.to_raw().get(),
            format!(r#"{{"experimental":{{"x":1,"hmcp":{hmcp}}}}}"#)
        );
        translate(&mut ours, true);
        assert_eq!(
            ours.object("extensions")
                .unwrap()
                .get("com.innovaccer/hmcp")
                .unwrap()
                .get(),
            hmcp
        );
        let mut theirs =
            of(r#"{"extensions":{"com.innovaccer/hmcp":{"sampling":true,"version":"0.2.0"}}}"#);
        translate(&mut theirs, false);
        assert_eq!(
            theirs
                .object("experimental")
                .unwrap()
                .object("hmcp")
                .unwrap()
                .text("version")
                .unwrap(),
            "0.2.0"
        );
        let mut none = of(r#"{"tools":{}}"#);
        translate(&mut none, true);
        assert_eq!(none.to_raw().get(), r#"{"tools":{}}"#);
    }
}
