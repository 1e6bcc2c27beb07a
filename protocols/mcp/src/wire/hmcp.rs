//! HMCP 0.1.0: `sampling/createMessage` from client to server. It is an extension that a server
//! advertises; no revision of MCP has it.

use callboard_message::{Failure, RawObject};
use serde_json::value::RawValue;

/// Method of HMCP's requests from client to server. MCP uses the same name from server to client.
pub const METHOD: &str = "sampling/createMessage";
/// Name of the HMCP capability among the `extensions` (2026-07-28).
const EXTENSION: &str = "com.innovaccer/hmcp";
/// Name of the HMCP capability among the `experimental` capabilities, as HMCP defines.
const EXPERIMENTAL: &str = "hmcp";
const VERSION: &str = "0.1.0";

fn capability() -> RawObject {
    RawObject::single("sampling", true).with("version", VERSION)
}

/// Returns the HMCP capability among a server's capabilities, from `experimental` or `extensions`.
/// `None` if it is missing, or its `sampling` is off.
fn find_capability(capabilities: &RawObject) -> Option<RawObject> {
    let offer = |holder: &str, name: &str| capabilities.object(holder)?.object(name);
    let offer = offer("experimental", EXPERIMENTAL).or_else(|| offer("extensions", EXTENSION))?;
    let wanted = offer.get("sampling").map(RawValue::get);
    wanted
        .is_some_and(|sampling| !matches!(sampling, "false" | "null"))
        .then_some(offer)
}

/// Adds the HMCP capability to server capabilities.
pub fn advertise(capabilities: &mut RawObject) {
    insert_capability(capabilities, "experimental", EXPERIMENTAL, capability());
}

/// Copies a server's HMCP capability to `experimental`, and if `extensions` is true also to
/// `extensions`, which only the modern era has.
pub fn copy_to_extensions(capabilities: &mut RawObject, extensions: bool) {
    let Some(offer) = find_capability(capabilities) else {
        return;
    };
    insert_capability(capabilities, "experimental", EXPERIMENTAL, offer.clone());
    if extensions {
        insert_capability(capabilities, "extensions", EXTENSION, offer);
    }
}

fn insert_capability(capabilities: &mut RawObject, holder: &str, name: &str, offer: RawObject) {
    let mut held = capabilities.object(holder).unwrap_or_default();
    if !held.has(name) {
        held.set(name, offer);
        capabilities.set(holder, held);
    }
}

/// Checks that a server's description advertises HMCP.
///
/// # Errors
/// `NotFound` if it doesn't.
pub fn check_supported(about: &RawObject) -> Result<(), Failure> {
    let has_it = about
        .object("capabilities")
        .is_some_and(|capabilities| find_capability(&capabilities).is_some());
    match has_it {
        true => Ok(()),
        false => Err(Failure::not_found(
            "the server doesn't advertise sampling/createMessage (HMCP)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> RawObject {
        serde_json::from_str(json).unwrap()
    }

    /// Goal: only a server that advertises HMCP is asked. Method: capabilities with and without it,
    /// in the form of either era.
    /// Rows: H-7.
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
            let about = RawObject::single("capabilities", of(capabilities));
            assert_eq!(check_supported(&about).is_ok(), has_it, "{capabilities}");
        }
        assert!(check_supported(&RawObject::new()).is_err());
    }

    /// Goal: each era gets the capability in its own form, and other members stay. Method: from
    /// either to either.
    /// Rows: H-4, H-5, H-6, X-1.
    #[test]
    fn eras_are_told_in_their_words() {
        let mut ours = of(r#"{"experimental":{"x":1}}"#);
        advertise(&mut ours);
        let hmcp = r#"{"sampling":true,"version":"0.1.0"}"#;
        assert_eq!(
            ours.to_raw().get(),
            format!(r#"{{"experimental":{{"x":1,"hmcp":{hmcp}}}}}"#)
        );
        copy_to_extensions(&mut ours, true);
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
        copy_to_extensions(&mut theirs, false);
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
        copy_to_extensions(&mut none, true);
        assert_eq!(none.to_raw().get(), r#"{"tools":{}}"#);
    }
}
