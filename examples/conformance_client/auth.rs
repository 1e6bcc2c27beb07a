//! Who the client is to the suite's authorization servers.

use std::error::Error;
use std::sync::Arc;

use callboard::mcp::outbound::auth::{Client, Grant, HeadlessConsent, Identity, KnownClient, OAuth, OAuthOptions};
use callboard::rpc::Egress;
use serde_json::Value;

/// Named only: nothing listens there.
const REDIRECT: &str = "http://localhost:3000/callback";
/// Where the suite says that the client publishes who it is.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

pub fn authorizer(url: &str, scenario: &str, context: &Value) -> Result<OAuth, Box<dyn Error>> {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    // The suite's servers are on this machine.
    let egress = Egress::public().with_loopback();
    let known = text("client_id")
        .zip(text("client_secret"))
        .map(|(id, secret)| KnownClient { client: Client::with_secret(id, secret.into()), issuer: text("issuer") });
    let grant = match known {
        Some(known) if scenario == "auth/client-credentials-basic" => Grant::Client(known),
        known => Grant::Consent {
            consent: Arc::new(HeadlessConsent::new(REDIRECT, &egress)?),
            identity: Identity { known, document: Some(DOCUMENT.parse()?), ..Identity::default() },
        },
    };
    let fallback_2025_03_26 = scenario.contains("2025-03-26");
    let options = OAuthOptions { egress, fallback_2025_03_26, ..OAuthOptions::default() };
    Ok(OAuth::new(url, grant, options)?)
}
