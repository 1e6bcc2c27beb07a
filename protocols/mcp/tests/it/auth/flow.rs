//! Honest upstreams, and the requests that they see.

use std::sync::Arc;

use callboard_mcp::outbound::auth::{
    AssertionProvider, AuthError, ClientIdentity, ClientSigningKey, FixedAssertion,
    HeadlessConsent, OAuthAuthorizer, OAuthClient, OAuthGrant, OAuthOptions, SigningAlgorithm,
    TokenExchange,
};
use futures::future::join_all;
use serde_json::json;

use super::site::{CALLBACK, Site, fresh_key, known, on_this_machine};
use crate::kit::soon;

/// Goal: an ordinary upstream is reached with one authorization, bound to it by PKCE and resource.
/// Method: two requests, and the requests of each endpoint.
/// Rows: H-17.
#[actix_web::test]
async fn one_authorization_serves_all_requests() -> Result<(), AuthError> {
    let site = Site::start();
    let oauth = site.client();
    assert_eq!(soon(site.request(&oauth)).await?, 200);
    assert_eq!(soon(site.request(&oauth)).await?, 200);

    let registered = site.seen("/register");
    assert_eq!(registered.len(), 1);
    assert_eq!(
        registered[0].fields["redirect_uris"],
        json!([CALLBACK]).to_string()
    );
    assert_eq!(
        registered[0].fields["application_type"],
        json!("native").to_string()
    );
    assert_eq!(
        registered[0].fields["grant_types"],
        json!(["authorization_code", "refresh_token"]).to_string()
    );

    let (asked, given) = (site.seen("/authorize"), site.seen("/token"));
    assert_eq!((asked.len(), given.len()), (1, 1));
    let (asked, given) = (&asked[0].fields, &given[0].fields);
    assert_eq!(
        (asked["resource"].as_str(), given["resource"].as_str()),
        (&*site.mcp(), &*site.mcp())
    );
    assert_eq!(
        (
            asked["code_challenge_method"].as_str(),
            asked["scope"].as_str()
        ),
        ("S256", "read")
    );
    assert!(asked["state"].len() >= 43 && given["code_verifier"].len() >= 43);
    assert_eq!(given["client_secret"], "cl1ent-s3cret");
    assert_eq!(given["redirect_uri"], CALLBACK);
    Ok(())
}

/// Goal: requests rejected at the same time cost one authorization. Method: sixteen at once.
#[actix_web::test]
async fn requests_share_one_authorization() {
    let site = Site::start();
    let oauth = site.client();
    for status in soon(join_all((0..16).map(|_| site.request(&oauth)))).await {
        assert_eq!(status.expect("all are let in"), 200);
    }
    assert_eq!(
        (site.seen("/authorize").len(), site.seen("/token").len()),
        (1, 1)
    );
}

/// Goal: an expiring token is renewed before use, and a revoked one by its refresh token, without a
/// user. Method: a token without lifetime, then a revocation.
#[actix_web::test]
async fn tokens_are_renewed_quietly() -> Result<(), AuthError> {
    let site = Site::start();
    site.script().lifetimes = vec![0];
    let oauth = site.client();
    assert_eq!(soon(site.request(&oauth)).await?, 200);
    let sent: Vec<_> = site
        .seen("/mcp")
        .into_iter()
        .map(|seen| seen.authorization)
        .collect();
    assert_eq!(sent, [None, Some("Bearer acc3ss-2".to_owned())]);

    site.revoke();
    assert_eq!(soon(site.request(&oauth)).await?, 200);
    let grants: Vec<_> = site
        .seen("/token")
        .into_iter()
        .map(|seen| seen.fields)
        .collect();
    let kinds: Vec<&str> = grants
        .iter()
        .map(|fields| fields["grant_type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        ["authorization_code", "refresh_token", "refresh_token"]
    );
    // Each refresh token is used once, and for the same resource.
    assert_eq!(
        (
            grants[1]["refresh_token"].as_str(),
            grants[2]["refresh_token"].as_str()
        ),
        ("r3fresh-1", "r3fresh-2")
    );
    assert_eq!(grants[2]["resource"], site.mcp());
    assert_eq!(site.seen("/authorize").len(), 1);
    Ok(())
}

/// Goal: if a refresh token is rejected, the user is asked again, and a lost registration is
/// renewed. Method: revoke and refuse, for each of both reasons.
#[actix_web::test]
async fn refused_refresh_leads_to_consent() -> Result<(), AuthError> {
    for (reason, registrations) in [("invalid_grant", 1), ("invalid_client", 2)] {
        let site = Site::start();
        let oauth = site.client();
        assert_eq!(soon(site.request(&oauth)).await?, 200);
        site.revoke();
        site.script().token_error = Some(reason);
        assert_eq!(soon(site.request(&oauth)).await?, 200);
        assert_eq!(
            (site.seen("/authorize").len(), site.seen("/register").len()),
            (2, registrations),
            "{reason}"
        );
    }
    Ok(())
}

/// Goal: a request that needs more scopes gets them in addition to the old ones, and a hopeless one
/// ends. Method: a growing requirement, then one that was requested already, then an upstream that
/// rejects every token.
#[actix_web::test]
async fn scopes_grow_and_loops_end() -> Result<(), AuthError> {
    let site = Site::start();
    let oauth = site.client();
    assert_eq!(soon(site.request(&oauth)).await?, 200);
    site.script().needs = vec!["write".to_owned()];
    assert_eq!(soon(site.request(&oauth)).await?, 200);
    let asked: Vec<_> = site
        .seen("/authorize")
        .into_iter()
        .map(|seen| seen.fields["scope"].clone())
        .collect();
    assert_eq!(asked, ["read", "read write"]);

    // A token without scopes: asking for the same again would change nothing.
    let given = |site: &Site| site.seen("/token").len();
    let before = given(&site);
    site.script().needs = vec!["read".to_owned(), "never given".to_owned()];
    assert_eq!(soon(site.request(&oauth)).await?, 403);
    assert_eq!(given(&site), before + 1);

    let site = Site::start();
    site.script().takes_tokens = false;
    assert_eq!(soon(site.request(&site.client())).await?, 401);
    assert_eq!(site.seen("/authorize").len(), 1);
    Ok(())
}

/// Goal: refresh tokens are requested if the server lists them. Method: servers with, without and
/// with no list.
#[actix_web::test]
async fn offline_access_is_asked_for_where_listed() -> Result<(), AuthError> {
    for (listed, scope, prompt) in [
        (
            json!(["read", "offline_access"]),
            "read offline_access",
            Some("consent"),
        ),
        (json!(["read"]), "read", None),
        (json!(null), "read", None),
    ] {
        let site = Site::start();
        site.script().server_metadata["scopes_supported"] = listed;
        assert_eq!(soon(site.request(&site.client())).await?, 200);
        let asked = site.seen("/authorize").remove(0).fields;
        assert_eq!(
            (
                asked["scope"].as_str(),
                asked.get("prompt").map(String::as_str)
            ),
            (scope, prompt)
        );
    }
    Ok(())
}

/// Goal: the configured client is preferred to a metadata document, and that to registration.
/// Method: each identity.
#[actix_web::test]
async fn identities_are_tried_in_order() -> Result<(), AuthError> {
    let document = "https://callboard.example/client.json";
    let all = ClientIdentity {
        preregistered: Some(known(OAuthClient::public("known"), None)),
        metadata_document_url: Some(document.parse().expect("a URL")),
        registration_name: Some("callboard".to_owned()),
    };
    let unknown = ClientIdentity {
        preregistered: None,
        ..all.clone()
    };
    for (identity, documents, id) in [
        (&all, true, Some("known")),
        (&unknown, true, Some(document)),
        (&unknown, false, None),
    ] {
        let site = Site::start();
        site.script().server_metadata["client_id_metadata_document_supported"] = json!(documents);
        assert_eq!(
            soon(site.request(&site.client_with(identity.clone()))).await?,
            200
        );
        let asked = site.seen("/authorize").remove(0).fields;
        match id {
            Some(id) => assert_eq!(
                (asked["client_id"].as_str(), site.seen("/register").len()),
                (id, 0)
            ),
            None => assert_eq!(site.seen("/register").len(), 1),
        }
    }
    let site = Site::start();
    let nobody = ClientIdentity {
        preregistered: None,
        metadata_document_url: None,
        registration_name: None,
    };
    let refused = soon(site.request(&site.client_with(nobody))).await;
    assert!(
        matches!(refused, Err(AuthError::NoRegistration)),
        "{refused:?}"
    );
    Ok(())
}

/// Goal: the client credentials grant needs no user, neither at first nor later. Method: by secret
/// and by key; an expiring token.
#[actix_web::test]
async fn clients_authorise_themselves() -> Result<(), AuthError> {
    let key = ClientSigningKey::from_pem(&fresh_key(), SigningAlgorithm::Es256, None)?;
    for (client, proof) in [
        (
            OAuthClient::with_secret("me", "cl1ent-s3cret".into()),
            "client_secret",
        ),
        (OAuthClient::with_key("me", key), "client_assertion"),
    ] {
        let site = Site::start();
        site.script().lifetimes = vec![0];
        let oauth = site.client_by(OAuthGrant::Client(known(client, Some(&site.url))));
        assert_eq!(soon(site.request(&oauth)).await?, 200);
        let given = site.seen("/token");
        let first = &given[0].fields;
        assert_eq!(
            (first["grant_type"].as_str(), first["scope"].as_str()),
            ("client_credentials", "read")
        );
        assert!(
            first.contains_key(proof)
                && first["client_id"] == "me"
                && first["resource"] == site.mcp()
        );
        assert_eq!(
            (
                given.len(),
                site.seen("/authorize").len(),
                site.seen("/register").len()
            ),
            (2, 0, 0)
        );
    }
    Ok(())
}

/// Goal: asserted clients are accepted, with a new assertion for each server. Method: a workload's
/// token, and an identity provider that exchanges a user's.
#[actix_web::test]
async fn assertions_are_taken_to_the_server() -> Result<(), AuthError> {
    let provider = Site::start();
    let endpoint = format!("{}/token", provider.url);
    let exchange = TokenExchange::new(
        &endpoint,
        OAuthClient::public("us"),
        "id-t0ken".into(),
        &on_this_machine().egress,
    )?;
    let fixed = FixedAssertion::new("workl0ad".into());
    let vouching: [(Arc<dyn AssertionProvider>, Option<&str>); 2] = [
        (Arc::new(fixed), Some("workl0ad")),
        (Arc::new(exchange), None),
    ];
    for (assertions, expected) in vouching {
        let site = Site::start();
        let client = known(
            OAuthClient::with_secret("me", "cl1ent-s3cret".into()),
            Some(&site.url),
        );
        assert_eq!(
            soon(site.request(&site.client_by(OAuthGrant::Assertion { assertions, client })))
                .await?,
            200
        );
        let given = site.seen("/token").remove(0).fields;
        let for_this_site = format!("ass3rtion for {}", site.url);
        assert_eq!(
            given["grant_type"],
            "urn:ietf:params:oauth:grant-type:jwt-bearer"
        );
        assert_eq!(
            (given["assertion"].as_str(), &*given["resource"]),
            (expected.unwrap_or(&for_this_site), &*site.mcp())
        );
        if expected.is_none() {
            let exchanged = provider.seen("/token").remove(0).fields;
            assert_eq!(
                (exchanged["subject_token"].as_str(), &*exchanged["resource"]),
                ("id-t0ken", &*site.mcp())
            );
            assert_eq!(
                (
                    exchanged["client_id"].as_str(),
                    exchanged.get("client_secret")
                ),
                ("us", None)
            );
        }
    }
    Ok(())
}

/// Goal: an upstream of revision 2025-03-26 is its own authorization server, if configured. Method:
/// one with server metadata, one with none at all, and the default.
#[actix_web::test]
async fn upstreams_without_resource_metadata() -> Result<(), AuthError> {
    let consent =
        || Arc::new(HeadlessConsent::new(CALLBACK, &on_this_machine().egress).expect("a client"));
    let grant = || OAuthGrant::Consent {
        consent: consent(),
        identity: ClientIdentity::default(),
    };
    for server_metadata in [true, false] {
        let site = Site::start();
        site.script().resource_metadata = json!(null);
        if !server_metadata {
            site.script().server_metadata = json!(null);
        }
        let refused = soon(site.request(&site.client_by(grant()))).await;
        assert!(
            matches!(refused, Err(AuthError::NoResourceMetadata)),
            "{refused:?}"
        );
        let options = OAuthOptions {
            fallback_2025_03_26: true,
            ..on_this_machine()
        };
        let oauth = OAuthAuthorizer::new(&site.mcp(), grant(), options)?;
        assert_eq!(soon(site.request(&oauth)).await?, 200);
        let asked = site.seen("/authorize").remove(0).fields;
        assert_eq!(
            (asked["resource"].as_str(), asked.get("scope")),
            (&*site.mcp(), None)
        );
    }
    Ok(())
}
