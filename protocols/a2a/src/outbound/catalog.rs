//! Catalogue of the agents that a host serves.

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::{DecodeLimits, check_json};
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::value::RawValue;
use url::Url;

use super::client::A2aClient;
use super::connection::{is_json, with_timeout};
use super::error::A2aClientError;
use super::options::{CARD_BYTES_MAX, CONTROL_REQUEST_TIMEOUT};

/// Path of a catalogue below the base URL of its host.
const CATALOG_PATH: &str = ".well-known/ai-catalog.json";
/// Maximum number of URLs that are tried. The root's is always among them.
const CATALOG_LOCATIONS_MAX: usize = 4;

/// Entry of a catalogue. All members are the host's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Id of the agent at its host.
    pub id: String,
    /// Name for people.
    pub display_name: Option<String>,
    /// Purpose of the agent.
    pub description: Option<String>,
    /// URL of its agent card.
    pub card_url: Option<String>,
}

impl A2aClient {
    /// Fetches the catalogue of the host that serves this client's URL, from
    /// `/.well-known/ai-catalog.json` below the URL or one of its parents. `None` if there is none.
    ///
    /// # Errors
    /// [`A2aClientError`] if the host can't be reached, refuses the request, or sends an invalid
    /// catalogue.
    pub async fn catalog(&self) -> Result<Option<Vec<CatalogEntry>>, A2aClientError> {
        for place in catalog_locations(self.url()) {
            if let Some(entries) =
                with_timeout(CONTROL_REQUEST_TIMEOUT, self.fetch_catalog(&place)).await?
            {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }

    async fn fetch_catalog(
        &self,
        place: &Url,
    ) -> Result<Option<Vec<CatalogEntry>>, A2aClientError> {
        let mut headers = self
            .credentials()
            .auth_headers(None, self.http_client())
            .await?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self
            .http_client()
            .send(place, true, Method::GET, headers, Bytes::new())
            .await?;
        match response.status().as_u16() {
            200 => {}
            status @ (401 | 403) => {
                return Err(A2aClientError::CardStatus {
                    status,
                    url: place.as_str().into(),
                });
            }
            _ => return Ok(None),
        }
        // Some servers answer every path with a page.
        if !is_json(&response) {
            return Ok(None);
        }
        let body = response.body(CARD_BYTES_MAX).await?;
        let limits = DecodeLimits {
            body_bytes_max: CARD_BYTES_MAX,
            ..DecodeLimits::default()
        };
        let wrong = || {
            A2aClientError::Protocol(format!(
                "the agent catalogue is no JSON object, or is over {CARD_BYTES_MAX} bytes or nested too deeply"
            ))
        };
        let text = check_json(&body, &limits).map_err(|_| wrong())?;
        let catalog: RawObject = serde_json::from_str(text).map_err(|_| wrong())?;
        Ok(Some(read_entries(&catalog)))
    }
}

/// Returns the URLs where a catalogue may be: below `url`, then below each of its parents.
fn catalog_locations(url: &Url) -> Vec<Url> {
    let mut found = Vec::new();
    let mut base = url.path().trim_end_matches('/');
    loop {
        let mut place = url.clone();
        place.set_query(None);
        place.set_fragment(None);
        place.set_path(&format!("{base}/{CATALOG_PATH}"));
        found.push(place);
        match base.rsplit_once('/') {
            Some((parent, _)) => base = parent,
            None => break,
        }
    }
    while found.len() > CATALOG_LOCATIONS_MAX {
        found.remove(CATALOG_LOCATIONS_MAX - 2);
    }
    found
}

fn read_entries(catalog: &RawObject) -> Vec<CatalogEntry> {
    let entries: Vec<Box<RawValue>> = catalog.read("entries").unwrap_or_default();
    let entry = |raw: Box<RawValue>| {
        let entry = RawObject::parse(&raw).ok()?;
        Some(CatalogEntry {
            id: entry.text("name").or_else(|| entry.text("identifier"))?,
            display_name: entry.text("displayName"),
            description: entry.text("description"),
            card_url: entry.text("url"),
        })
    };
    entries.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a catalogue is looked for at the address and above it, a bounded number of times.
    /// Method: rows.
    #[test]
    fn locations() {
        let found = |url: &str| {
            let all = catalog_locations(&url.parse().unwrap());
            all.iter()
                .map(|place| place.path().strip_suffix(CATALOG_PATH).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(found("https://a.example"), ["/"]);
        assert_eq!(found("https://a.example/a2a?q#f"), ["/a2a/", "/"]);
        assert_eq!(
            found("https://a.example/agents/x/a2a/"),
            ["/agents/x/a2a/", "/agents/x/", "/agents/", "/"]
        );
        assert_eq!(
            found("https://a.example/1/2/3/4/5").len(),
            CATALOG_LOCATIONS_MAX
        );
        assert_eq!(found("https://a.example/1/2/3/4/5").last().unwrap(), "/");
    }

    /// Goal: entries that name no agent are left out, the rest is read as far as it is there.
    /// Method: one of each.
    #[test]
    fn entries() {
        let text = r#"{"entries":[{"name":"a","displayName":"A","description":"Adds.","url":"https://a.example/c.json"},{"identifier":"urn:b"},{"x":1},7]}"#;
        let read = read_entries(&serde_json::from_str(text).unwrap());
        let ids: Vec<_> = read.iter().map(|entry| &*entry.id).collect();
        assert_eq!(ids, ["a", "urn:b"]);
        assert_eq!(
            (read[0].description.as_deref(), read[1].card_url.as_deref()),
            (Some("Adds."), None)
        );
    }
}
