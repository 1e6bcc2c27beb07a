//! The legacy era: a handshake first (2024-11-05 to 2025-11-25).

use callboard_message::RawObject;
use callboard_rpc::encode_notification;

use super::ear::Ear;
use super::link::{Link, LinkError};
use super::options::ClientOptions;
use super::session::{legacy_request, quietly};
use crate::wire::{Era, Revision};

/// Shakes hands. Gives the revision that the server chose, and what it says of itself.
pub(super) async fn initialize(
    link: &Link,
    ear: &Ear,
    options: &ClientOptions,
) -> Result<(Revision, RawObject), LinkError> {
    let params = RawObject::new()
        .with("protocolVersion", options.revision.as_str())
        .with("capabilities", &options.offers)
        .with("clientInfo", &options.info);
    let result = quietly(link, ear, |number| legacy_request(number, "initialize", &params, None)).await?;
    let about =
        RawObject::parse(&result).map_err(|_| LinkError::Protocol("the handshake's result is no object".into()))?;
    let chosen = about.text("protocolVersion").and_then(|version| Revision::parse(&version));
    let Some(revision) = chosen.filter(|revision| revision.era() == Era::Legacy) else {
        return Err(LinkError::Protocol("the server chose a revision that isn't spoken here".into()));
    };
    if let Some(http) = link.http() {
        http.speak(revision);
    }
    link.send(encode_notification("notifications/initialized", None)).await?;
    Ok((revision, about))
}
