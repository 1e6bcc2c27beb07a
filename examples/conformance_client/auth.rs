//! Who the client is to the suite's authorization servers.

use std::error::Error;
use std::sync::Arc;

use callboard::mcp::outbound::auth::{
    Client, FixedAssertion, Grant, HeadlessConsent, Identity, KnownClient, OAuth, OAuthOptions, SigningAlgorithm,
    SigningKey, TokenExchange,
};
use callboard::rpc::Egress;
use serde_json::Value;

/// Named only: nothing listens there.
const REDIRECT: &str = "http://localhost:3000/callback";
/// Where the suite says that the client publishes who it is.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

pub fn authorizer(url: &str, scenario: &str, context: &Value) -> Result<OAuth, Box<dyn Error>> {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let need = |name: &str| text(name).ok_or(format!("the suite gave no {name}"));
    // The suite's servers are on this machine.
    let egress = Egress::public().with_loopback();
    let with_secret = |id: String, secret: String| Client::with_secret(id, secret.into());
    let known = text("client_id").zip(text("client_secret")).map(|(id, secret)| with_secret(id, secret));
    let known = known.map(|client| KnownClient { client, issuer: text("issuer") });
    let grant = match (scenario, known) {
        ("auth/client-credentials-basic", Some(known)) => Grant::Client(known),
        ("auth/client-credentials-jwt", _) => {
            let algorithm = SigningAlgorithm::named(&need("signing_algorithm")?).ok_or("no such algorithm")?;
            let key = SigningKey::from_pem(&need("private_key_pem")?.into(), algorithm, None)?;
            Grant::Client(KnownClient { client: Client::with_key(need("client_id")?, key), issuer: None })
        }
        ("auth/wif-jwt-bearer", _) => Grant::Assertion {
            assertions: Arc::new(FixedAssertion::new(need("valid_jwt")?.into())),
            client: KnownClient { client: Client::public(need("client_id")?), issuer: None },
        },
        ("auth/enterprise-managed-authorization", Some(client)) => {
            let (endpoint, at_provider) = (need("idp_token_endpoint")?, Client::public(need("idp_client_id")?));
            let exchange = TokenExchange::new(&endpoint, at_provider, need("idp_id_token")?.into(), &egress)?;
            Grant::Assertion { assertions: Arc::new(exchange), client }
        }
        (_, known) => Grant::Consent {
            consent: Arc::new(HeadlessConsent::new(REDIRECT, &egress)?),
            identity: Identity { known, document: Some(DOCUMENT.parse()?), ..Identity::default() },
        },
    };
    let fallback_2025_03_26 = scenario.contains("2025-03-26");
    let options = OAuthOptions { egress, fallback_2025_03_26, ..OAuthOptions::default() };
    Ok(OAuth::new(url, grant, options)?)
}
