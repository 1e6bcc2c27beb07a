//! Hostile upstreams and authorization servers gain nothing.

use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::{
    AuthError, ClientIdentity, DOCUMENT_BYTES_MAX, OAuthAuthorizer, OAuthClient, OAuthDocument,
    OAuthGrant, OAuthOptions,
};
use callboard_rpc::EgressError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::site::{RecordedRequest, Script, Site, known, on_this_machine};
use crate::kit::soon;

/// Sends a request that must fail, and returns the error.
async fn failure(site: &Site, oauth: &OAuthAuthorizer) -> AuthError {
    soon(site.request(oauth)).await.expect_err("it has to fail")
}

/// Returns true if nothing was registered, requested of a user or issued.
fn untouched(site: &Site) -> bool {
    ["/register", "/authorize", "/token"]
        .iter()
        .all(|path| site.seen(path).is_empty())
}

/// Goal: a response to another request, or by another server, yields no code, and its error isn't
/// trusted. Method: a table of `state`, `iss` and `error`.
#[actix_web::test]
async fn responses_of_others_are_dropped() {
    let text = |text: &str| Some(text.to_owned());
    for (parameter, value, with_error, advertised) in [
        ("state", text("guessed"), false, true),
        ("state", None, false, true),
        ("state", text("guessed"), true, true),
        ("iss", text("https://evil.example"), false, true),
        ("iss", text("https://evil.example"), true, true),
        ("iss", text("https://evil.example"), false, false),
        ("iss", None, false, true),
    ] {
        let site = Site::start();
        {
            let mut script = site.script();
            script.server_metadata["authorization_response_iss_parameter_supported"] =
                json!(advertised);
            script.response.insert(parameter, value.clone());
            if with_error {
                script.response.insert("error", text("access_denied"));
            }
        }
        let why = failure(&site, &site.client()).await;
        let expected = if parameter == "state" {
            matches!(why, AuthError::State)
        } else {
            matches!(why, AuthError::ResponseIssuer)
        };
        assert!(expected, "{parameter} {value:?}: {why:?}");
        assert!(site.seen("/token").is_empty());
    }
}

/// Goal: issuers are compared as they are written. Method: the server's own, with a slash more.
#[actix_web::test]
async fn issuers_are_not_normalised() {
    let site = Site::start();
    let with_slash = format!("{}/", site.url);
    site.script()
        .response
        .insert("iss", Some(with_slash.clone()));
    assert!(matches!(
        failure(&site, &site.client()).await,
        AuthError::ResponseIssuer
    ));

    let site = Site::start();
    site.script().server_metadata["issuer"] = json!(format!("{}/", site.url));
    assert!(matches!(
        failure(&site, &site.client()).await,
        AuthError::IssuerMismatch
    ));
    assert!(untouched(&site));
}

/// Goal: a denial is reported by its code, without other text of the server. Method: a denied
/// consent, a refused token, text instead of the code.
#[actix_web::test]
async fn denials_are_told_by_code() {
    for (error, shown) in [
        ("access_denied", "access_denied"),
        ("call 555-1234 now", "an unknown error"),
    ] {
        let site = Site::start();
        site.script()
            .response
            .insert("error", Some(error.to_owned()));
        let why = failure(&site, &site.client()).await;
        assert!(
            matches!(&why, AuthError::Denied(code) if code.as_str() == shown),
            "{why:?}"
        );
    }
    let site = Site::start();
    site.script().token_error = Some("invalid_grant");
    let why = failure(&site, &site.client()).await;
    assert_eq!(
        why.to_string(),
        "the request for the token response was refused with error code invalid_grant"
    );
}

/// Goal: metadata of another resource, or without protection of the code, are rejected. Method: a
/// table of changes.
#[actix_web::test]
async fn unfit_metadata_lead_nowhere() {
    type Change = fn(&mut Script);
    type Expected = fn(&AuthError) -> bool;
    let cases: [(Change, Expected); 6] = [
        (
            |s| s.resource_metadata["resource"] = json!("https://evil.example/mcp"),
            |e| matches!(e, AuthError::ResourceMismatch),
        ),
        (
            |s| s.resource_metadata["authorization_servers"] = json!([]),
            |e| matches!(e, AuthError::Malformed(_)),
        ),
        (
            |s| s.server_metadata["code_challenge_methods_supported"] = json!(["plain"]),
            |e| matches!(e, AuthError::NoPkce),
        ),
        (
            |s| s.server_metadata["code_challenge_methods_supported"] = Value::Null,
            |e| matches!(e, AuthError::NoPkce),
        ),
        (
            |s| s.server_metadata["token_endpoint"] = Value::Null,
            |e| matches!(e, AuthError::Malformed(_)),
        ),
        (
            |s| s.resource_metadata = json!("no metadata"),
            |e| matches!(e, AuthError::Malformed(_)),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let site = Site::start();
        change(&mut site.script());
        let why = failure(&site, &site.client()).await;
        assert!(expected(&why) && untouched(&site), "case {number}: {why:?}");
    }
}

/// Goal: no URL named by another side leads to a forbidden address or one that a browser mustn't
/// open. Method: forbidden URLs in each place, and the site's requests after it named them.
#[actix_web::test]
async fn forbidden_urls_are_not_followed() {
    for forbidden in [
        "http://169.254.169.254/latest",
        "https://169.254.169.254/latest",
        "https://10.0.0.1/",
        "https://[::ffff:192.168.0.1]/",
        "https://100.64.0.1/",
        "https://0x0a.1/",
        "http://example.com/",
        "https://user@127.0.0.1/",
        "file:///etc/passwd",
        "javascript:alert(1)",
    ] {
        let refused = |why: &AuthError| {
            matches!(
                why,
                AuthError::Unreachable { .. } | AuthError::AuthorizationUrl
            )
        };
        let site = Site::start();
        site.script().challenge = format!("resource_metadata=\"{forbidden}\"");
        assert!(
            refused(&failure(&site, &site.client()).await) && untouched(&site),
            "{forbidden}"
        );

        let site = Site::start();
        site.script().resource_metadata["authorization_servers"] = json!([forbidden]);
        assert!(
            refused(&failure(&site, &site.client()).await) && untouched(&site),
            "{forbidden}"
        );

        for endpoint in [
            "token_endpoint",
            "registration_endpoint",
            "authorization_endpoint",
        ] {
            let site = Site::start();
            site.script().server_metadata[endpoint] = json!(forbidden);
            assert!(
                refused(&failure(&site, &site.client()).await),
                "{endpoint} {forbidden}"
            );
            assert!(site.seen("/authorize").is_empty() && site.seen("/token").is_empty());
        }
    }
}

/// Goal: without permission, not even this machine is contacted; a redirect isn't followed either.
/// Method: a listener that must see no connection, by address, by name and by redirect.
#[actix_web::test]
async fn this_machine_needs_leave() {
    let trap = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = trap.local_addr().expect("an address").port();
    let site = Site::start();
    for named in [
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("http://localhost:{port}/"),
    ] {
        site.script().challenge = format!("resource_metadata=\"{named}\"");
        let grant = OAuthGrant::Client(known(OAuthClient::public("me"), None));
        let oauth = OAuthAuthorizer::new(&site.mcp(), grant, OAuthOptions::default())
            .expect("the options fit");
        let why = failure(&site, &oauth).await;
        assert!(
            matches!(
                why,
                AuthError::Unreachable {
                    document: OAuthDocument::ResourceMetadata,
                    ..
                }
            ),
            "{named}: {why:?}"
        );
    }
    // The upstream's own well-known URLs count, too: only the configuration permits them on this
    // machine.
    site.script().challenge = String::new();
    let oauth = OAuthAuthorizer::new(
        &site.mcp(),
        OAuthGrant::Client(known(OAuthClient::public("me"), None)),
        OAuthOptions::default(),
    )
    .expect("they fit");
    assert!(matches!(
        failure(&site, &oauth).await,
        AuthError::Unreachable { .. }
    ));
    assert!(
        site.seen("/.well-known/oauth-protected-resource/mcp")
            .is_empty()
    );

    // `/authorize` redirects to the trap: for metadata that is an invalid response.
    let redirect = format!(
        "{}/authorize?redirect_uri=http%3A%2F%2F127.0.0.1%3A{port}%2F",
        site.url
    );
    site.script().challenge = format!("resource_metadata=\"{redirect}\"");
    let why = failure(&site, &site.client()).await;
    assert!(
        matches!(why, AuthError::Status { status: 302, .. }),
        "{why:?}"
    );
    let seen = tokio::time::timeout(Duration::from_millis(1), trap.accept()).await;
    assert!(seen.is_err(), "somebody connected");
}

/// A DNS resolver that answers every name with one address.
struct Answers(IpAddr);

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let address = SocketAddr::new(self.0, 0);
        Box::pin(async move { Ok(Box::new(iter::once(address)) as Addrs) })
    }
}

/// Goal: a harmless name that resolves to an internal address isn't contacted. Method: a resolver
/// that returns one.
#[actix_web::test]
async fn names_are_judged_by_their_addresses() {
    for address in [
        "10.0.0.1",
        "169.254.169.254",
        "::ffff:10.0.0.1",
        "fd00::1",
        "0.0.0.0",
    ] {
        let site = Site::start();
        site.script().resource_metadata["authorization_servers"] = json!(["https://auth.example"]);
        let lookup = Arc::new(Answers(address.parse().expect("an address")));
        let options = OAuthOptions {
            egress: on_this_machine().egress.with_resolver(lookup),
            ..on_this_machine()
        };
        let grant = OAuthGrant::Client(known(OAuthClient::public("me"), None));
        let oauth = OAuthAuthorizer::new(&site.mcp(), grant, options).expect("the options fit");
        let why = failure(&site, &oauth).await;
        let named = matches!(
            why,
            AuthError::Unreachable {
                document: OAuthDocument::ServerMetadata,
                reason: EgressError::Name
            }
        );
        assert!(named, "{address}: {why:?}");
    }
}

/// Goal: a new authorization server learns nothing of the previous one. Method: an upstream that
/// moves from one to another: with a registered client, and with configured ones.
#[actix_web::test]
async fn servers_learn_nothing_of_each_other() {
    let (old, new) = (Site::start(), Site::start());
    let oauth = old.client();
    assert_eq!(soon(old.request(&oauth)).await.expect("it is let in"), 200);
    let bound = old.client_with(ClientIdentity {
        preregistered: Some(known(OAuthClient::public("mine"), Some(&old.url))),
        ..ClientIdentity::default()
    });
    let secret = || OAuthClient::with_secret("me", "cl1ent-s3cret".into());
    let first_come = old.client_by(OAuthGrant::Client(known(secret(), None)));
    assert_eq!(
        soon(old.request(&first_come)).await.expect("it is let in"),
        200
    );

    old.revoke();
    old.script().resource_metadata["authorization_servers"] = json!([new.url]);
    assert!(matches!(
        failure(&old, &bound).await,
        AuthError::ForeignClient
    ));
    assert!(matches!(
        failure(&old, &first_come).await,
        AuthError::ForeignClient
    ));
    assert!(untouched(&new));

    // The old site doesn't know the new server's tokens, so it rejects the request in the end.
    assert_eq!(soon(old.request(&oauth)).await.expect("an answer"), 401);
    assert_eq!(new.seen("/register").len(), 1);
    let theirs = format!("client of {}", new.url);
    for RecordedRequest { path, fields, .. } in
        [new.seen("/authorize"), new.seen("/token")].concat()
    {
        assert_eq!(fields["client_id"], theirs, "{path}");
        assert!(!fields.values().any(|value| value.contains("r3fresh")
            || value.contains(&old.url) && value.contains("client")));
    }
}

/// Goal: responses are limited in size. Method: metadata at the limit and one byte over.
#[actix_web::test]
async fn answers_are_bounded_in_size() {
    for over in [0, 1] {
        let site = Site::start();
        let mut metadata = site.script().resource_metadata.clone();
        metadata["padding"] = json!("");
        let padding = DOCUMENT_BYTES_MAX - metadata.to_string().len() + over;
        metadata["padding"] = json!("x".repeat(padding));
        site.script().resource_metadata = metadata;
        let answer = soon(site.request(&site.client())).await;
        if over == 0 {
            assert_eq!(answer.expect("it fits"), 200);
        } else {
            assert!(
                matches!(
                    answer,
                    Err(AuthError::TooLarge {
                        bytes_max: DOCUMENT_BYTES_MAX,
                        ..
                    })
                ),
                "{answer:?}"
            );
        }
    }
}

/// Goal: responses are limited in time. Method: a server that accepts and doesn't answer.
#[actix_web::test]
async fn answers_are_bounded_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("an address");
    let site = Site::start();
    site.script().challenge = format!("resource_metadata=\"http://{address}/\"");
    let options = OAuthOptions {
        request_timeout: Duration::from_millis(20),
        ..on_this_machine()
    };
    let grant = OAuthGrant::Client(known(OAuthClient::public("me"), None));
    let oauth = OAuthAuthorizer::new(&site.mcp(), grant, options).expect("the options fit");
    let why = failure(&site, &oauth).await;
    assert!(
        matches!(&why, AuthError::Http { source, .. } if source.is_timeout()),
        "{why:?}"
    );
}

/// Goal: no secret is ever printed. Method: Debug and Display of the client and of errors, after
/// each kind of use.
#[actix_web::test]
async fn secrets_are_never_printed() {
    let site = Site::start();
    let client = OAuthClient::with_secret("me", "cl1ent-s3cret".into());
    let identity = ClientIdentity {
        preregistered: Some(known(client, None)),
        ..ClientIdentity::default()
    };
    let oauth = site.client_with(identity);
    assert_eq!(soon(site.request(&oauth)).await.expect("it is let in"), 200);
    let mut printed = format!("{oauth:?} {oauth:#?}");
    site.revoke();
    site.script().takes_tokens = false;
    for change in [
        ("token_error", ""),
        ("state", "wr0ng-s3cret"),
        ("iss", "https://s3cret.example"),
    ] {
        match change {
            ("token_error", _) => site.script().token_error = Some("invalid_grant"),
            (parameter, value) => drop(
                site.script()
                    .response
                    .insert(parameter, Some(value.to_owned())),
            ),
        }
        if let Err(why) = soon(site.request(&oauth)).await {
            printed.push_str(&format!("{why} {why:?}"));
        }
    }
    assert!(
        printed.contains("PreregisteredClient") && printed.contains("State"),
        "{printed}"
    );
    for secret in ["s3cret", "acc3ss", "r3fresh", "c0de"] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}
