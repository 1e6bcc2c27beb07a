use std::sync::Arc;

use callboard_mcp::inbound::{McpServerOptions, SessionOptions};
use callboard_message::Principal;
use callboard_rpc::{AccessControl, BearerVerifier, CredentialError};
use serde_json::json;

use crate::mcp_client::{BOTH, initialize};
use crate::mcp_kit::Served;

/// Verifier that takes any token as the principal's id.
struct ByName;

impl BearerVerifier for ByName {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        Some(Ok(Principal::agent(String::from_utf8_lossy(token))))
    }
}

/// Goal: one principal can't hold all sessions. Method: two for each of three, the third of one, then another's.
#[tokio::test]
async fn sessions_are_shared() {
    let access = AccessControl::Bearer(Arc::new([Box::new(ByName) as Box<dyn BearerVerifier>]));
    let sessions = SessionOptions {
        sessions_max: 3,
        sessions_per_principal_max: 2,
        ..SessionOptions::default()
    };
    let server = Served::with(McpServerOptions {
        access,
        sessions,
        ..McpServerOptions::default()
    })
    .await;
    let body = initialize("2025-11-25", &json!({})).to_string();
    for (name, status) in [
        ("ana", 200),
        ("ana", 200),
        ("ana", 503),
        ("bob", 200),
        ("bob", 503),
    ] {
        let headers = format!("{BOTH}Authorization: Bearer {name}\r\n");
        assert_eq!(
            server
                .connect()
                .await
                .post_with(&headers, &body)
                .await
                .status,
            status,
            "{name}"
        );
    }
    server.stop().await;
}
