//! Client registration and credentials for the suite's authorization servers.

use std::error::Error;
use std::sync::Arc;

use callboard::mcp::outbound::auth::{
    ClientIdentity, ClientSigningKey, FixedAssertion, HeadlessConsent, OAuthAuthorizer, OAuthClient, OAuthGrant,
    OAuthOptions, PreregisteredClient, SigningAlgorithm, TokenExchange,
};
use callboard::rpc::EgressPolicy;
use serde_json::Value;

/// Redirect URI; nothing listens there.
const REDIRECT: &str = "http://localhost:3000/callback";
/// URL of the client metadata document, as the suite defines it.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

pub fn authorizer(url: &str, scenario: &str, context: &Value) -> Result<OAuthAuthorizer, Box<dyn Error>> {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let need = |name: &str| text(name).ok_or(format!("the suite gave no {name}"));
    // The suite's servers are on this machine.
    let egress = EgressPolicy::public_internet().with_loopback();
    let with_secret = |id: String, secret: String| OAuthClient::with_secret(id, secret.into());
    let known = text("client_id").zip(text("client_secret")).map(|(id, secret)| with_secret(id, secret));
    let known = known.map(|client| PreregisteredClient { client, issuer: text("issuer") });
    let grant = match (scenario, known) {
        ("auth/client-credentials-basic", Some(known)) => OAuthGrant::Client(known),
        ("auth/client-credentials-jwt", _) => {
            let algorithm = SigningAlgorithm::from_name(&need("signing_algorithm")?).ok_or("no such algorithm")?;
            let key = ClientSigningKey::from_pem(&need("private_key_pem")?.into(), algorithm, None)?;
            OAuthGrant::Client(PreregisteredClient {
                client: OAuthClient::with_key(need("client_id")?, key),
                issuer: None,
            })
        }
        ("auth/wif-jwt-bearer", _) => OAuthGrant::Assertion {
            assertions: Arc::new(FixedAssertion::new(need("valid_jwt")?.into())),
            client: PreregisteredClient { client: OAuthClient::public(need("client_id")?), issuer: None },
        },
        ("auth/enterprise-managed-authorization", Some(client)) => {
            let (endpoint, at_provider) = (need("idp_token_endpoint")?, OAuthClient::public(need("idp_client_id")?));
            let exchange = TokenExchange::new(&endpoint, at_provider, need("idp_id_token")?.into(), &egress)?;
            OAuthGrant::Assertion { assertions: Arc::new(exchange), client }
        }
        (_, known) => OAuthGrant::Consent {
            consent: Arc::new(HeadlessConsent::new(REDIRECT, &egress)?),
            identity: ClientIdentity {
                preregistered: known,
                metadata_document_url: Some(DOCUMENT.parse()?),
                ..ClientIdentity::default()
            },
        },
    };
    let fallback_2025_03_26 = scenario.contains("2025-03-26");
    let options = OAuthOptions { egress, fallback_2025_03_26, ..OAuthOptions::default() };
    Ok(OAuthAuthorizer::new(url, grant, options)?)
}
