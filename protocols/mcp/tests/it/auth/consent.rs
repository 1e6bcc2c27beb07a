//! Users who consent in a browser, slowly, or not at all.

use std::sync::Arc;

use callboard_mcp::outbound::auth::{
    AuthChallenge, AuthError, AuthorizationResponse, Authorizer, ClientIdentity, ConsentProvider,
    HeadlessConsent, LoopbackConsent, OAuthAuthorizer, OAuthGrant, OAuthOptions,
    REQUEST_HEAD_BYTES_MAX,
};
use callboard_rpc::EgressPolicy;
use futures::future::{BoxFuture, join_all};
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use super::site::{CALLBACK, Site, on_this_machine};
use crate::kit::soon;

/// Sends `head` to a local port and returns the response.
async fn browse(port: u16, head: &str) -> String {
    let mut browser = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("somebody listens");
    browser
        .write_all(head.as_bytes())
        .await
        .expect("it is read");
    let mut answer = String::new();
    // A connection that is cut returns nothing.
    let _ = browser.read_to_string(&mut answer).await;
    answer
}

/// Goal: a user is shown the URL, and only their browser's response counts. Method: foreign
/// requests first: other paths, methods, states, and a head that is too large.
#[actix_web::test]
async fn person_consents_in_a_browser() {
    let (shown, mut urls) = mpsc::channel::<Url>(1);
    let show = move |url: &Url| shown.try_send(url.clone()).expect("one URL is shown");
    let consent = LoopbackConsent::bind(0, show).await.expect("a free port");
    let back: Url = consent.redirect_uri().parse().expect("a URL");
    let port = back.port().expect("a port");
    let site = Site::start();
    let oauth = site.client_by(OAuthGrant::Consent {
        consent: Arc::new(consent),
        identity: ClientIdentity::default(),
    });

    let person = async {
        let url = urls.recv().await.expect("a URL is shown");
        assert!(
            url.as_str()
                .starts_with(&format!("{}/authorize?", site.url))
        );
        let answer = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client");
        let answer = answer.get(url).send().await.expect("the site answers");
        let location = answer.headers()["location"]
            .to_str()
            .expect("text")
            .to_owned();
        let target = location
            .strip_prefix(&format!("http://127.0.0.1:{port}"))
            .expect("it leads here")
            .to_owned();

        for head in [
            "GET /callback?code=c0de&state=guessed HTTP/1.1\r\n\r\n".to_owned(),
            "GET /callback?code=c0de HTTP/1.1\r\n\r\n".to_owned(),
            "GET /favicon.ico HTTP/1.1\r\n\r\n".to_owned(),
            format!(
                "GET {} HTTP/1.1\r\n\r\n",
                target.replace("/callback", "/elsewhere")
            ),
            format!("GET {target}&code=other HTTP/1.1\r\n\r\n"),
            format!("POST {target} HTTP/1.1\r\n\r\n"),
            "nonsense\r\n\r\n".to_owned(),
        ] {
            assert!(
                browse(port, &head).await.starts_with("HTTP/1.1 400 "),
                "{head}"
            );
        }
        let padded = |bytes: usize| {
            let (start, end) = ("GET /favicon.ico HTTP/1.1\r\nX: ", "\r\n\r\n");
            format!(
                "{start}{}{end}",
                "x".repeat(bytes - start.len() - end.len())
            )
        };
        assert!(
            browse(port, &padded(REQUEST_HEAD_BYTES_MAX))
                .await
                .starts_with("HTTP/1.1 400 ")
        );
        assert_eq!(browse(port, &padded(REQUEST_HEAD_BYTES_MAX + 1)).await, "");

        let page = browse(
            port,
            &format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        )
        .await;
        assert!(
            page.starts_with("HTTP/1.1 200 ") && !page.contains("c0de"),
            "{page}"
        );
    };
    let (answer, ()) = soon(async { tokio::join!(site.request(&oauth), person) }).await;
    assert_eq!(answer.expect("they consented"), 200);
}

/// User who delays the consent.
struct Slow {
    asked: Notify,
    consents: Notify,
    at_once: HeadlessConsent,
}

impl ConsentProvider for Slow {
    fn redirect_uri(&self) -> &str {
        self.at_once.redirect_uri()
    }

    fn authorize<'a>(
        &'a self,
        url: &'a Url,
    ) -> BoxFuture<'a, Result<AuthorizationResponse, AuthError>> {
        Box::pin(async move {
            self.asked.notify_one();
            self.consents.notified().await;
            self.at_once.authorize(url).await
        })
    }
}

fn slow() -> Arc<Slow> {
    let at_once = HeadlessConsent::new(CALLBACK, &EgressPolicy::public_internet().with_loopback())
        .expect("a client");
    Arc::new(Slow {
        asked: Notify::new(),
        consents: Notify::new(),
        at_once,
    })
}

/// Goal: a consent after its request was cancelled isn't lost. Method: cancel during the consent.
#[actix_web::test]
async fn late_consent_serves_the_next_request() {
    let (site, person) = (Site::start(), slow());
    let oauth = site.client_by(OAuthGrant::Consent {
        consent: person.clone(),
        identity: ClientIdentity::default(),
    });
    tokio::select! {
        answer = site.request(&oauth) => panic!("nobody consented: {answer:?}"),
        () = soon(person.asked.notified()) => {}
    }
    person.consents.notify_one();
    assert_eq!(
        soon(site.request(&oauth)).await.expect("they consented"),
        200
    );
    assert_eq!(site.seen("/authorize").len(), 1);
}

/// Goal: waiting for a user ends after the time limit, and with the client. Method: a user who
/// never consents; a client that is dropped.
#[actix_web::test]
async fn nobody_is_waited_for_without_end() {
    let (site, person) = (Site::start(), slow());
    let grant = || OAuthGrant::Consent {
        consent: person.clone(),
        identity: ClientIdentity::default(),
    };
    let options = OAuthOptions {
        consent_timeout: std::time::Duration::from_millis(10),
        ..on_this_machine()
    };
    let oauth = OAuthAuthorizer::new(&site.mcp(), grant(), options).expect("the options fit");
    let answer = soon(site.request(&oauth)).await;
    assert!(matches!(answer, Err(AuthError::Consent(_))), "{answer:?}");
    soon(person.asked.notified()).await;
    drop(oauth);

    let oauth = site.client_by(grant());
    tokio::select! {
        answer = site.request(&oauth) => panic!("nobody consented: {answer:?}"),
        () = soon(person.asked.notified()) => {}
    }
    drop(oauth);
    // The client's reference to the user is released: ours and the grant's closure are left.
    soon(async {
        while Arc::strong_count(&person) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Goal: a rejection that isn't about authorization is passed on. Method: a 403 without
/// `insufficient_scope`, a 401 for an older token.
#[actix_web::test]
async fn other_refusals_stay() -> Result<(), AuthError> {
    let site = Site::start();
    let oauth = site.client();
    let refused = |status, sent_authorization| AuthChallenge {
        status,
        www_authenticate: &["Bearer"],
        sent_authorization,
        earlier_rejections: 0,
    };
    assert!(!oauth.handle_challenge(refused(403, None)).await?);
    assert!(!oauth.handle_challenge(refused(500, None)).await?);
    assert!(site.seen("/authorize").is_empty());

    assert_eq!(soon(site.request(&oauth)).await?, 200);
    assert!(
        oauth
            .handle_challenge(refused(401, Some(&"Bearer old".into())))
            .await?
    );
    assert_eq!(site.seen("/authorize").len(), 1);
    Ok(())
}

/// Goal: a user who declines isn't asked again by each waiting request. Method: eight rejections at
/// once, one later.
#[actix_web::test]
async fn one_denial_serves_all_who_wait() {
    let site = Site::start();
    site.script()
        .response
        .insert("error", Some("access_denied".to_owned()));
    let oauth = site.client();
    let refused = AuthChallenge {
        status: 401,
        www_authenticate: &["Bearer"],
        sent_authorization: None,
        earlier_rejections: 0,
    };
    let answers = soon(join_all((0..8).map(|_| oauth.handle_challenge(refused)))).await;
    let denied = answers
        .iter()
        .filter(|answer| matches!(answer, Err(AuthError::Denied(_))))
        .count();
    let waited = answers
        .iter()
        .filter(|answer| matches!(answer, Err(AuthError::FailedMeanwhile)))
        .count();
    assert_eq!((denied, waited, site.seen("/authorize").len()), (1, 7, 1));
    assert!(matches!(
        soon(oauth.handle_challenge(refused)).await,
        Err(AuthError::Denied(_))
    ));
}
