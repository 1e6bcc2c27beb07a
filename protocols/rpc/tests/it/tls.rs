//! TLS of listeners and clients, over real sockets.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{HttpRequest, HttpResponse, web};
use callboard_rpc::http1::{ConnectFailure, Connector, Http1Client, NetError, RequestTarget};
use callboard_rpc::serve::client_address::client_address;
use callboard_rpc::serve::guard::authenticate;
use callboard_rpc::serve::tls::{ListenerTls, client_certificate};
use callboard_rpc::serve::{ListenOptions, serve};
use callboard_rpc::{
    AccessControl, CertificateClient, CertificateClients, CertificateFault, ClientTls, KeyStore,
    ReloadingKeyStore, TlsFileError, TlsFiles,
};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::HandshakeKind;
use tokio_util::either::Either;

use crate::certificates::{Authority, Issued, LOCAL};

const SOON: Duration = Duration::from_secs(30);

/// A running listener that answers `GET /` with the client's address, and whether it has shown a
/// certificate; and `GET /principal` with the principal of the request.
struct TestServer {
    address: SocketAddr,
    server: ServerHandle,
}

impl TestServer {
    fn start(listen: &ListenOptions) -> Self {
        Self::with_access(listen, AccessControl::default())
    }

    fn with_access(listen: &ListenOptions, access: AccessControl) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = serve(listener, listen, move |config| {
            config
                .app_data(web::Data::new(access.clone()))
                .route("/", web::get().to(answer))
                .route("/principal", web::get().to(principal));
        })
        .unwrap();
        let served = Self {
            address: bound.address,
            server: bound.server.handle(),
        };
        tokio::spawn(bound.server);
        served
    }

    fn with_tls(tls: ListenerTls) -> Self {
        Self::start(&ListenOptions {
            tls: Some(tls),
            ..ListenOptions::default()
        })
    }

    async fn stop(self) {
        timeout(SOON, self.server.stop(true)).await.unwrap();
    }

    /// Sends a request on a new connection and returns the body.
    async fn get(&self, tls: &ClientTls) -> Result<String, NetError> {
        let url = format!("https://localhost:{}/", self.address.port());
        get(&client(tls), &url, HeaderMap::new()).await
    }

    async fn fails_with(&self, tls: &ClientTls, fault: CertificateFault) {
        let failure = NetError::Unreachable(ConnectFailure::Certificate(fault));
        assert_eq!(self.get(tls).await, Err(failure));
    }

    /// Opens a TLS connection that offers these protocols.
    async fn connect(&self, tls: &ClientTls, alpn: &[&str]) -> io::Result<TlsStream<TcpStream>> {
        let mut config = tls.config().unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = "localhost".try_into().unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

async fn answer(request: HttpRequest) -> HttpResponse {
    let address = client_address(&request).unwrap();
    let certificate = client_certificate(&request).is_some();
    HttpResponse::Ok().body(format!("{address} {certificate}"))
}

async fn principal(request: HttpRequest, access: web::Data<AccessControl>) -> HttpResponse {
    let text = match authenticate(&request, None, &access).await {
        Ok(who) => format!("{} {} {}", who.kind, who.id, who.scopes.join(" ")),
        Err(rejection) => format!("refused: {}", rejection.status.as_u16()),
    };
    HttpResponse::Ok().body(text)
}

fn client(tls: &ClientTls) -> Http1Client {
    Http1Client::new(Connector::with_tls(SOON, tls).unwrap())
}

async fn get(client: &Http1Client, url: &str, headers: HeaderMap) -> Result<String, NetError> {
    let target = RequestTarget::new(&url.parse().unwrap()).unwrap();
    let sent = client.send(&target, Method::GET, headers, Default::default());
    let response = timeout(SOON, sent).await.unwrap()?;
    let body = response.body(1_000).await.unwrap();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

fn files(issued: &Issued) -> TlsFiles {
    TlsFiles {
        certificate: issued.certificate.clone(),
        key: issued.key.clone(),
        client_ca: None,
    }
}

/// An authority, its file, and a folder for what it issues.
struct TestAuthority {
    folder: TempDir,
    authority: Authority,
    trusting: ClientTls,
}

impl TestAuthority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("test authority");
        let ca = authority.write(folder.path(), "ca");
        Self {
            trusting: ClientTls::default().with_ca(&ca).unwrap(),
            folder,
            authority,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn tls(&self) -> ListenerTls {
        let issued = self.authority.issue(&LOCAL, self.path(), "server");
        ListenerTls::open(files(&issued)).unwrap()
    }
}

/// Goal: a client reaches a listener with TLS if it trusts the authority, and its error says why
/// not otherwise. Method: our own client with and without the authority, with another authority;
/// certificates for another name and an expired one.
#[tokio::test]
async fn certificates_are_verified() {
    let place = TestAuthority::new();
    let served = TestServer::with_tls(place.tls());
    assert_eq!(
        served.get(&place.trusting).await.unwrap(),
        "127.0.0.1 false"
    );
    served
        .fails_with(&ClientTls::default(), CertificateFault::Untrusted)
        .await;
    let other = Authority::new("another").write(place.path(), "other");
    let other = ClientTls::default().with_ca(&other).unwrap();
    served.fails_with(&other, CertificateFault::Untrusted).await;
    served.stop().await;

    let wrong_name = place
        .authority
        .issue(&["other.example"], place.path(), "wrong");
    let expired = place
        .authority
        .issue_until(2_001, &LOCAL, place.path(), "expired");
    for (issued, fault) in [
        (wrong_name, CertificateFault::WrongName),
        (expired, CertificateFault::Expired),
    ] {
        let served = TestServer::with_tls(ListenerTls::open(files(&issued)).unwrap());
        served.fails_with(&place.trusting, fault).await;
        served.stop().await;
    }
    let why = CertificateFault::Untrusted.to_string();
    assert!(why.contains("`ca`"), "{why}");
}

/// Goal: other clients than ours are served too. Method: reqwest with and without the authority,
/// and plain HTTP to the port.
#[tokio::test]
async fn other_clients() {
    let place = TestAuthority::new();
    let served = TestServer::with_tls(place.tls());
    let pem = fs::read(place.path().join("ca.pem")).unwrap();
    let ca = reqwest::Certificate::from_pem(&pem).unwrap();
    let url = format!("https://127.0.0.1:{}/", served.address.port());
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .add_root_certificate(ca);
    let got = trusting.build().unwrap().get(&url).send().await.unwrap();
    assert_eq!(got.text().await.unwrap(), "127.0.0.1 false");
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(stranger.get(&url).send().await.unwrap_err().is_connect());
    let plain = url.replace("https", "http");
    assert!(stranger.get(&plain).send().await.is_err());
    served.stop().await;
}

/// Goal: the listener offers HTTP/1.1 only. Method: clients that offer HTTP/2 too, and alone.
#[tokio::test]
async fn http_1_1_only() {
    let place = TestAuthority::new();
    let served = TestServer::with_tls(place.tls());
    let both = served.connect(&place.trusting, &["h2", "http/1.1"]).await;
    assert_eq!(
        both.unwrap().get_ref().1.alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
    assert!(served.connect(&place.trusting, &["h2"]).await.is_err());
    served.stop().await;
}

/// Goal: a listener with `client_ca` serves clients with a certificate of that authority only, and
/// tells the others. Method: a client without a certificate, one of another authority, and the
/// right one.
#[tokio::test]
async fn client_certificates() {
    let place = TestAuthority::new();
    let clients = Authority::new("clients");
    let client_ca = clients.write(place.path(), "clients");
    let issued = place.authority.issue(&LOCAL, place.path(), "server");
    let listening = TlsFiles {
        client_ca: Some(client_ca),
        ..files(&issued)
    };
    let served = TestServer::with_tls(ListenerTls::open(listening).unwrap());
    served
        .fails_with(&place.trusting, CertificateFault::ClientRefused)
        .await;
    let with = |issued: &Issued| {
        let tls = place.trusting.clone();
        tls.with_certificate(&issued.certificate, &issued.key)
            .unwrap()
    };
    let foreign = place.authority.issue(&["someone"], place.path(), "foreign");
    served
        .fails_with(&with(&foreign), CertificateFault::ClientRefused)
        .await;
    let known = clients.issue(&["someone"], place.path(), "known");
    assert_eq!(served.get(&with(&known)).await.unwrap(), "127.0.0.1 true");
    served.stop().await;
}

/// Goal: a certificate with a listed name is its principal with its scopes, and no other is a
/// credential; with a token, the token alone counts. Method: certificates with the name, another one
/// and a wildcard; beside the first a valid and a wrong key, and the header of a proxy; then over the
/// connection of a trusted proxy, without a header.
#[tokio::test]
async fn certificates_are_credentials() {
    let place = TestAuthority::new();
    let clients = Authority::new("clients");
    let client_ca = clients.write(place.path(), "clients");
    let issued = place.authority.issue(&LOCAL, place.path(), "server");
    let listening = TlsFiles {
        client_ca: Some(client_ca),
        ..files(&issued)
    };
    let robot = CertificateClient {
        name: "robot.example".to_owned(),
        principal: "robot".to_owned(),
        scopes: vec!["mail.watch".to_owned()],
    };
    let keys = place.path().join("keys.toml");
    let mut store = KeyStore::load_or_new(&keys).unwrap();
    let key = store.add("alice", Vec::new()).unwrap();
    let mut listen = ListenOptions {
        tls: Some(ListenerTls::open(listening).unwrap()),
        ..ListenOptions::default()
    };
    let access = AccessControl::with_verifiers(vec![
        Box::new(ReloadingKeyStore::open(&keys).unwrap()),
        Box::new(CertificateClients::new([robot])),
    ]);
    let served = TestServer::with_access(&listen, access.clone());
    let url = format!("https://localhost:{}/principal", served.address.port());
    let bearer = |token: &str| (AUTHORIZATION, format!("Bearer {token}"));
    let forwarded = HeaderName::from_static("x-forwarded-for");
    for (name, header, expected) in [
        ("robot.example", None, "certificate robot mail.watch"),
        ("other.example", None, "refused: 401"),
        ("*.example", None, "refused: 401"),
        (
            "robot.example",
            Some(bearer(key.expose_secret())),
            "api_key alice ",
        ),
        (
            "other.example",
            Some(bearer(key.expose_secret())),
            "api_key alice ",
        ),
        ("robot.example", Some(bearer("cbk_wrong")), "refused: 401"),
        (
            "robot.example",
            Some((forwarded, "192.0.2.7".to_owned())),
            "refused: 401",
        ),
    ] {
        let shown = clients.issue(&[name], place.path(), "client");
        let tls = place.trusting.clone();
        let tls = tls
            .with_certificate(&shown.certificate, &shown.key)
            .unwrap();
        let headers: HeaderMap = header
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect();
        let answered = get(&client(&tls), &url, headers).await.unwrap();
        assert_eq!(answered, expected, "{name} {header:?}");
    }
    served.stop().await;

    listen.trusted_proxies = ["127.0.0.1".parse().unwrap()].into_iter().collect();
    let served = TestServer::with_access(&listen, access);
    let url = format!("https://localhost:{}/principal", served.address.port());
    let shown = clients.issue(&["robot.example"], place.path(), "client");
    let tls = place.trusting.clone();
    let tls = tls
        .with_certificate(&shown.certificate, &shown.key)
        .unwrap();
    let answered = get(&client(&tls), &url, HeaderMap::new()).await.unwrap();
    assert_eq!(answered, "refused: 401");
    served.stop().await;
}

/// Goal: a client certificate is verified on each connection, so that none outlives its expiry. Method:
/// two connections of one client, which resumes its session where that is possible: without
/// `client_ca`.
#[tokio::test]
async fn client_certificates_are_shown_each_time() {
    let place = TestAuthority::new();
    let clients = Authority::new("clients");
    let client_ca = clients.write(place.path(), "clients");
    let issued = place.authority.issue(&LOCAL, place.path(), "server");
    let known = clients.issue(&["someone"], place.path(), "known");
    let tls = place.trusting.clone();
    let tls = tls
        .with_certificate(&known.certificate, &known.key)
        .unwrap();
    for (client_ca, kind) in [
        (None, HandshakeKind::Resumed),
        (Some(client_ca), HandshakeKind::Full),
    ] {
        let listening = TlsFiles {
            client_ca,
            ..files(&issued)
        };
        let served = TestServer::with_tls(ListenerTls::open(listening).unwrap());
        let connector = TlsConnector::from(Arc::new(tls.config().unwrap()));
        let mut last = None;
        for _ in 0..2 {
            let stream = TcpStream::connect(served.address).await.unwrap();
            let name = "localhost".try_into().unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            last = stream.get_ref().1.handshake_kind();
            let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            let _ = timeout(SOON, stream.read_to_end(&mut answer))
                .await
                .unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200"));
        }
        assert_eq!(last, Some(kind));
        served.stop().await;
    }
}

/// Goal: a client that doesn't complete its handshake is cut off. Method: a connection that sends
/// nothing, and one that sends no TLS.
#[tokio::test]
async fn slow_handshakes_end() {
    let place = TestAuthority::new();
    let served = TestServer::with_tls(place.tls().handshake_timeout(Duration::from_millis(100)));
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let ended = timeout(SOON, silent.read_u8()).await.unwrap();
    assert!(ended.is_err());
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut alert = Vec::new();
    // An alert may come before the end.
    let _ = timeout(SOON, plain.read_to_end(&mut alert)).await.unwrap();
    assert!(!alert.starts_with(b"HTTP"));
    served.get(&place.trusting).await.unwrap();
    served.stop().await;
}

/// Goal: an address has three quarters of the handshakes in progress at most, and room again after
/// one has ended. Method: silent connections up to the limit, and one more.
#[tokio::test]
async fn handshakes_in_progress_are_bounded() {
    let place = TestAuthority::new();
    let served = TestServer::with_tls(place.tls().handshakes_max(4).handshake_timeout(SOON * 4));
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    // Those before are counted once this one is refused, whatever thread took them.
    let refused = async { while served.get(&place.trusting).await.is_ok() {} };
    timeout(SOON, refused).await.unwrap();
    silent.pop();
    let room = async {
        while served.get(&place.trusting).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, room).await.unwrap();
    drop(silent);
    served.stop().await;
}

/// Goal: the connections of an address are limited with TLS too, counted until they are closed.
/// Method: the limit and one more, and again after one was closed.
#[tokio::test]
async fn connections_of_an_address_are_bounded() {
    let place = TestAuthority::new();
    let served = TestServer::start(&ListenOptions {
        tls: Some(place.tls()),
        address_connections_max: Some(1),
        ..ListenOptions::default()
    });
    let first = served.connect(&place.trusting, &[]).await.unwrap();
    assert!(served.get(&place.trusting).await.is_err());
    drop(first);
    let again = async {
        while served.get(&place.trusting).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, again).await.unwrap();
    served.stop().await;
}

/// Goal: a renewed certificate is used for new connections, and open ones go on; a broken file
/// changes nothing. Method: a connection that is kept, files replaced by those of another
/// authority, then by garbage.
#[tokio::test]
async fn certificates_are_reloaded() {
    let place = TestAuthority::new();
    let issued = place.authority.issue(&LOCAL, place.path(), "server");
    let served = TestServer::with_tls(
        ListenerTls::open_with_poll_interval(files(&issued), Duration::ZERO).unwrap(),
    );
    let mut open = served.connect(&place.trusting, &[]).await.unwrap();
    let mut ask = async || {
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        open.write_all(request).await.unwrap();
        let mut response = String::new();
        while !response.ends_with("127.0.0.1 false") {
            let mut part = [0; 4_096];
            let bytes = timeout(SOON, open.read(&mut part)).await.unwrap().unwrap();
            assert_ne!(bytes, 0, "{response}");
            response.push_str(&String::from_utf8_lossy(&part[..bytes]));
        }
    };
    ask().await;

    let renewed = Authority::new("renewed");
    let ca = renewed.write(place.path(), "renewed");
    renewed.issue(&LOCAL, place.path(), "server");
    let trusting = ClientTls::default().with_ca(&ca).unwrap();
    served.get(&trusting).await.unwrap();
    served
        .fails_with(&place.trusting, CertificateFault::Untrusted)
        .await;
    ask().await;

    fs::write(&issued.certificate, "no certificate").unwrap();
    served.get(&trusting).await.unwrap();
    fs::remove_file(&issued.key).unwrap();
    served.get(&trusting).await.unwrap();
    renewed.issue(&LOCAL, place.path(), "server");
    served.get(&trusting).await.unwrap();
    served.stop().await;
}

/// Goal: a file that can't be used is refused with its path and the reason, and a key that others
/// may write is. Method: rows.
#[tokio::test]
async fn unusable_files() {
    let place = TestAuthority::new();
    let issued = place.authority.issue(&LOCAL, place.path(), "server");
    let other = place.authority.issue(&LOCAL, place.path(), "other");
    let missing = place.path().join("missing");
    let with = |certificate: &Path, key: &Path| {
        let files = TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_ca: None,
        };
        files.check().unwrap_err()
    };
    let (certificate, key) = (&issued.certificate, &issued.key);
    assert!(matches!(with(&missing, key), TlsFileError::Io { path, .. } if path == missing));
    assert!(matches!(
        with(certificate, &missing),
        TlsFileError::Io { .. }
    ));
    assert!(matches!(with(key, key), TlsFileError::NoCertificate { .. }));
    assert!(matches!(
        with(certificate, certificate),
        TlsFileError::NoKey { .. }
    ));
    assert!(matches!(
        with(certificate, &other.key),
        TlsFileError::OtherKey { .. }
    ));
    assert!(matches!(with(place.path(), key), TlsFileError::Io { .. }));
    let cut = place.path().join("cut");
    let pem = fs::read_to_string(certificate).unwrap();
    fs::write(&cut, pem.split("-----END").next().unwrap()).unwrap();
    assert!(matches!(with(&cut, key), TlsFileError::Damaged { .. }));
    let large = place.path().join("large");
    fs::write(&large, vec![b'\n'; callboard_rpc::TLS_FILE_BYTES_MAX + 1]).unwrap();
    assert!(matches!(with(&large, key), TlsFileError::TooLarge { .. }));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(key, fs::Permissions::from_mode(0o620)).unwrap();
        let error = with(certificate, key);
        assert!(matches!(error, TlsFileError::Writable { .. }));
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}

/// Goal: only a trusted proxy may name the client. Method: the same header from a proxy in a
/// trusted network, and without the setting; with and without TLS.
#[tokio::test]
async fn trusted_proxies() {
    let place = TestAuthority::new();
    for tls in [None, Some(place.tls())] {
        for (trusted, expected) in [(Some("127.0.0.0/8"), "192.0.2.7"), (None, "127.0.0.1")] {
            let served = TestServer::start(&ListenOptions {
                tls: tls.clone(),
                trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
                ..ListenOptions::default()
            });
            let scheme = if tls.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://localhost:{}/", served.address.port());
            let name = HeaderName::from_static("x-forwarded-for");
            let value = HeaderValue::from_static("198.51.100.1, 192.0.2.7, 127.0.0.9");
            let headers = HeaderMap::from_iter([(name, value)]);
            let got = get(&client(&place.trusting), &url, headers).await.unwrap();
            assert_eq!(got, format!("{expected} false"), "{url} {trusted:?}");
            served.stop().await;
        }
    }
}

/// Connects as a proxy that sends a PROXY header, with TLS if `tls` is given.
async fn connect_through_proxy(
    served: &TestServer,
    header: &str,
    tls: Option<&ClientTls>,
) -> io::Result<Either<TcpStream, TlsStream<TcpStream>>> {
    let mut stream = TcpStream::connect(served.address).await?;
    stream.write_all(header.as_bytes()).await?;
    let Some(tls) = tls else {
        return Ok(Either::Left(stream));
    };
    let connector = TlsConnector::from(Arc::new(tls.config().unwrap()));
    let name = "localhost".try_into().unwrap();
    Ok(Either::Right(connector.connect(name, stream).await?))
}

/// Sends a PROXY header and a request, with a forwarding header, on a new connection. Returns the
/// response, which is empty if the connection is closed without one.
async fn get_through_proxy(served: &TestServer, header: &str, tls: Option<&ClientTls>) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 198.51.100.1\r\nconnection: close\r\n\r\n";
    let mut response = Vec::new();
    let exchange = async {
        let mut stream = connect_through_proxy(served, header, tls).await?;
        stream.write_all(request).await?;
        stream.read_to_end(&mut response).await
    };
    // A refused connection may be reset.
    let _ = timeout(SOON, exchange).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Goal: a trusted proxy's PROXY header names the client, with and without TLS, whose connections are
/// limited, also if it names nobody; no other header is believed; without a valid one the connection is
/// closed. Method: listeners with and without TLS; headers of clients, at the limit of one connection,
/// which is open and has been answered; no header, and a proxy that isn't trusted.
#[tokio::test]
async fn proxy_headers_name_clients() {
    let place = TestAuthority::new();
    for tls in [None, Some(place.tls())] {
        let trusting = tls.as_ref().map(|_| &place.trusting);
        let listen = |network: &str| ListenOptions {
            tls: tls.clone(),
            trusted_proxies: [network.parse().unwrap()].into_iter().collect(),
            proxy_protocol: true,
            address_connections_max: Some(1),
            ..ListenOptions::default()
        };
        let served = TestServer::start(&listen("127.0.0.1"));
        let named = |client: &str| format!("PROXY TCP4 {client} 10.0.0.1 4711 443\r\n");
        let get = async |header: &str| get_through_proxy(&served, header, trusting).await;
        for none in ["", "PROXY TCP4 192.0.2.7\r\n"] {
            assert_eq!(get(none).await, "", "{none:?}");
        }
        for (header, client, other) in [
            (&*named("192.0.2.7"), "192.0.2.7", "192.0.2.8"),
            ("PROXY UNKNOWN\r\n", "127.0.0.1", "192.0.2.9"),
        ] {
            let open = connect_through_proxy(&served, header, trusting).await;
            let mut open = open.unwrap();
            let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
            open.write_all(request).await.unwrap();
            let expected = format!("{client} false");
            let mut answered = Vec::new();
            while !String::from_utf8_lossy(&answered).ends_with(&expected) {
                let read = timeout(SOON, open.read_buf(&mut answered)).await.unwrap();
                assert_ne!(read.unwrap(), 0, "{client}");
            }
            let further = get(header).await;
            assert!(!further.contains("200 OK"), "{further}");
            let others = get(&named(other)).await;
            assert!(others.ends_with(&format!("{other} false")), "{others}");
            drop(open);
            let is_free = async { while !get(header).await.ends_with(&expected) {} };
            timeout(SOON, is_free).await.unwrap();
        }
        served.stop().await;

        let served = TestServer::start(&listen("10.0.0.0/8"));
        let direct = get_through_proxy(&served, "", trusting).await;
        assert!(direct.ends_with("127.0.0.1 false"), "{direct}");
        let claimed = get_through_proxy(&served, &named("192.0.2.7"), trusting).await;
        assert!(!claimed.contains("200 OK"), "{claimed}");
        served.stop().await;
    }
}

/// Goal: a proxy that sends no PROXY header is cut off. Method: a silent connection.
#[tokio::test]
async fn slow_proxy_headers_end() {
    let served = TestServer::start(&ListenOptions {
        headers_timeout: Duration::from_secs(1),
        trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
        proxy_protocol: true,
        ..ListenOptions::default()
    });
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    silent.write_all(b"PROXY ").await.unwrap();
    let ended = timeout(SOON, silent.read_u8()).await.unwrap();
    assert!(ended.is_err());
    served.stop().await;
}
