//! Which agents are at a listener: a catalogue for whoever looks at the well-known place.

use callboard_message::RawObject;
use url::Url;

use super::serve::CardBody;
use crate::inbound::options::Info;

/// The version of the catalogue's form.
const CATALOG_VERSION: &str = "1.0";
/// What an entry leads to.
const CARD_TYPE: &str = "application/a2a-agent-card+json";

/// The catalogue of agents by their ids, with what they are for, under the listener's address.
pub(crate) fn catalog<'a>(base_url: &Url, agents: impl IntoIterator<Item = (&'a str, &'a Info, String)>) -> CardBody {
    let base = base_url.as_str().trim_end_matches('/');
    let host = base_url.host_str().unwrap_or("localhost");
    let entry = |(id, info, description): (&str, &Info, String)| {
        let entry = RawObject::new()
            .with("identifier", format!("urn:air:{host}:agents:{id}"))
            .with("name", id)
            .with("displayName", &info.name)
            .with("version", &info.version)
            // The form was published with either name.
            .with("type", CARD_TYPE)
            .with("mediaType", CARD_TYPE)
            .with("url", format!("{base}/agents/{id}/.well-known/agent-card.json"));
        // What its skills say stands in its card.
        if description.is_empty() { entry } else { entry.with("description", description) }
    };
    let entries: Vec<_> = agents.into_iter().map(entry).collect();
    CardBody::new(RawObject::new().with("specVersion", CATALOG_VERSION).with("entries", entries).to_raw().get())
}
