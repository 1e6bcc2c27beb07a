//! Cards with forbidden URLs, invalid or old cards, and the tokens that they say how to get.

use std::sync::Arc;

use callboard_a2a::outbound::{
    CARD_BYTES_MAX, CardTrust, ProtocolVersion, RemoteAuth, RemoteOptions,
};
use callboard_message::{FailureKind, Principal};
use callboard_runtime::CallContext;
use serde_json::json;

use crate::bad_peer::{SAY, hello, text_of};
use crate::client_kit::{Played, Remote, joined, quick, task};

/// Goal: URLs on a card are requested only if allowed, and never with credentials. Method:
/// interfaces at literal internal addresses, at another origin that the operator allows to be
/// reached, and at one that the operator trusts.
#[tokio::test]
async fn cards_lead_nowhere_else() {
    let elsewhere = async |options: RemoteOptions, url: &str| {
        let mut peer = Played::start().await;
        let options = RemoteOptions {
            auth: RemoteAuth::Bearer("s3cret".into()),
            ..options
        };
        let remote = Remote::at(&peer.url, options);
        let mut card = peer.card("1.0", "", false);
        card["supportedInterfaces"][0]["url"] = json!(url);
        let asked = remote.asking(SAY, hello());
        let hit = peer.get("/.well-known/agent-card.json").await;
        assert_eq!(
            hit.header("authorization"),
            Some("Bearer s3cret"),
            "the card's own server may know"
        );
        hit.json(200, &card).await;
        (asked, remote)
    };
    for url in [
        "http://127.0.0.1:9/",
        "http://169.254.169.254/latest",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433:9/",
        "http://localhost:9/",
    ] {
        let (asked, remote) = elsewhere(quick(), url).await;
        assert_eq!(
            joined(asked).await.unwrap_err().kind,
            FailureKind::Denied,
            "{url}"
        );
        remote.stop().await;
    }
    for trusts in [false, true] {
        let mut other = Played::start().await;
        let mut options = RemoteOptions {
            egress: callboard_rpc::EgressPolicy::public_internet().with_loopback(),
            ..quick()
        };
        if trusts {
            options.trusted_origins = vec![other.url.parse().unwrap()];
        }
        let (asked, remote) = elsewhere(options, &format!("{}/a2a", other.url)).await;
        let hit = other.get("/a2a").await;
        assert_eq!(
            hit.header("authorization"),
            trusts.then_some("Bearer s3cret")
        );
        hit.result(task("t", "TASK_STATE_COMPLETED")).await;
        joined(asked).await.unwrap();
        remote.stop().await;
    }
}

/// Goal: a card that is missing, too large, unsigned or of an unsupported version is reported as
/// such. Method: rows.
#[tokio::test]
async fn bad_cards_are_told() {
    let signed_only = || CardTrust::Signed {
        keys: Default::default(),
        jku_hosts: Vec::new(),
    };
    let plain = |peer: &Played| peer.card("1.0", "/a2a", false).to_string();
    let too_large = |peer: &Played| {
        let card = plain(peer);
        format!("{card}{}", " ".repeat(CARD_BYTES_MAX + 1 - card.len()))
    };
    let future = |peer: &Played| peer.card("7.0", "/a2a", false).to_string();
    type Card<'a> = &'a dyn Fn(&Played) -> String;
    let rows: [(Card<'_>, CardTrust, FailureKind, &str); 5] = [
        (
            &too_large,
            CardTrust::Any,
            FailureKind::Overloaded,
            "over the limit",
        ),
        (&plain, signed_only(), FailureKind::Denied, "not signed"),
        (
            &future,
            CardTrust::Any,
            FailureKind::Unavailable,
            "no interface",
        ),
        (
            &|_| "[]".into(),
            CardTrust::Any,
            FailureKind::Unavailable,
            "card",
        ),
        (
            &|_| r#"{"name":1,"name":2}"#.into(),
            CardTrust::Any,
            FailureKind::Unavailable,
            "card",
        ),
    ];
    for (card, card_trust, kind, why) in rows {
        let mut peer = Played::start().await;
        let remote = Remote::at(
            &format!("{}/card.json", peer.url),
            RemoteOptions {
                card_trust,
                ..quick()
            },
        );
        let asked = remote.asking(SAY, hello());
        let card = card(&peer);
        peer.get("/card.json")
            .await
            .write(200, "", "application/json", &card)
            .await;
        let failure = joined(asked).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{}", failure.message);
        assert!(failure.message.contains(why), "{}", failure.message);
        remote.stop().await;
    }
    // No card anywhere: the paths of older versions are tried too.
    let mut peer = Played::start().await;
    let remote = Remote::at(&format!("{}/x", peer.url), quick());
    let asked = remote.asking(SAY, hello());
    for path in [
        "/x/.well-known/agent-card.json",
        "/x/.well-known/agent.json",
        "/.well-known/agent-card.json",
    ] {
        peer.get(path).await.empty(404).await;
    }
    peer.get("/.well-known/agent.json").await.empty(404).await;
    assert!(
        joined(asked)
            .await
            .unwrap_err()
            .message
            .contains("no agent card")
    );
    // Redirects aren't followed.
    let asked = remote.asking(SAY, hello());
    let hit = peer.get("/x/.well-known/agent-card.json").await;
    hit.write(302, "Location: /elsewhere\r\n", "text/plain", "")
        .await;
    assert!(
        joined(asked)
            .await
            .unwrap_err()
            .message
            .contains("HTTP status 302")
    );
    remote.stop().await;
}

/// Goal: a card of version 0.1 is sufficient, and that version is used. Method: `tasks/send` with
/// an id of the client's own, by which an abandoned call is cancelled before there is a response.
#[tokio::test]
async fn the_oldest_agents_are_spoken_to() {
    let (mut peer, remote) = Played::with(RemoteOptions {
        versions: vec![ProtocolVersion::V01],
        ..quick()
    })
    .await;
    let asked = remote.asking(SAY, hello());
    peer.get("/.well-known/agent-card.json")
        .await
        .empty(404)
        .await;
    let card = json!({ "name": "old", "url": format!("{}/", peer.url), "version": "1", "capabilities": {}, "skills": [] });
    peer.get("/.well-known/agent.json")
        .await
        .json(200, &card)
        .await;
    let hit = peer.expect("tasks/send").await;
    let id = hit.body["params"]["id"].as_str().unwrap().to_owned();
    assert_eq!(hit.body["params"]["message"]["parts"][0]["text"], "hello");
    let artifact = json!({ "index": 0, "parts": [{ "type": "text", "text": "hi" }] });
    hit.result(json!({ "id": id, "status": { "state": "completed" }, "artifacts": [artifact] }))
        .await;
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["hi"]);

    let call = CallContext::new(Arc::new(Principal::local_operator()));
    let cancel = call.cancel.clone();
    let asked = remote.ask_in(SAY, hello(), call);
    let hit = peer.expect("tasks/send").await;
    cancel.cancel();
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Cancelled
    );
    let cancelled = peer.expect("tasks/cancel").await;
    let id = hit.body["params"]["id"].clone();
    assert_eq!(cancelled.body["params"]["id"], id);
    cancelled
        .result(json!({ "id": id, "status": { "state": "canceled" } }))
        .await;
    remote.stop().await;
}

/// Goal: a token is obtained by client credentials, used until it is rejected, and then renewed;
/// secrets go nowhere else. Method: a token endpoint that the card names beside the agent; cards
/// that name an internal one, or one without TLS.
#[tokio::test]
async fn tokens_are_got() {
    let mut peer = Played::start().await;
    let auth = || RemoteAuth::ClientCredentials {
        token_url: None,
        client_id: "me:you".into(),
        secret: "s3cret".into(),
        scopes: vec!["a".into(), "b".into()],
    };
    let remote = Remote::at(
        &peer.url,
        RemoteOptions {
            auth: auth(),
            ..quick()
        },
    );
    let mut card = peer.card("1.0", "/a2a", false);
    let flows =
        json!({ "clientCredentials": { "tokenUrl": format!("{}/token", peer.url), "scopes": {} } });
    card["securitySchemes"] = json!({ "oauth": { "oauth2SecurityScheme": { "flows": flows } } });
    let asked = remote.asking(SAY, hello());
    let hit = peer.get("/.well-known/agent-card.json").await;
    assert_eq!(hit.header("authorization"), None);
    hit.json(200, &card).await;
    for (nth, status) in [("1", 401), ("2", 200)] {
        let hit = peer.get("/token").await;
        // `me%3Ayou:s3cret`
        assert_eq!(
            hit.header("authorization"),
            Some("Basic bWUlM0F5b3U6czNjcmV0")
        );
        hit.json(
            200,
            &json!({ "access_token": nth, "token_type": "Bearer", "expires_in": 3600 }),
        )
        .await;
        let hit = peer.get("/a2a").await;
        assert_eq!(hit.header("authorization"), Some(&*format!("Bearer {nth}")));
        match status {
            200 => hit.result(task("t", "TASK_STATE_COMPLETED")).await,
            status => hit.empty(status).await,
        }
    }
    joined(asked).await.unwrap();
    remote.stop().await;
    for elsewhere in [
        "https://169.254.169.254/token",
        "https://localhost:9/token",
        "http://tokens.example/",
    ] {
        let (mut peer, remote) = Played::with(RemoteOptions {
            auth: auth(),
            ..quick()
        })
        .await;
        let asked = remote.asking(SAY, hello());
        card["securitySchemes"]["oauth"]["oauth2SecurityScheme"]["flows"]["clientCredentials"]["tokenUrl"] =
            json!(elsewhere);
        card["supportedInterfaces"][0]["url"] = json!(format!("{}/a2a", peer.url));
        peer.show(&card).await;
        assert_eq!(
            joined(asked).await.unwrap_err().kind,
            FailureKind::Denied,
            "{elsewhere}"
        );
        assert!(peer.is_quiet());
        remote.stop().await;
    }
}
