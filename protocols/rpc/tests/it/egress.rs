use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callboard_rpc::{EgressError, EgressPolicy, REDIRECTS_MAX, RESOLVED_ADDRESSES_MAX};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An HTTP server that counts connections and redirects to `send_on_to`, if set.
struct Site {
    address: SocketAddr,
    seen: Arc<AtomicUsize>,
}

impl Site {
    async fn start(ip: &str, send_on_to: Option<String>) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let site = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let seen = site.seen.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let head = match &send_on_to {
                    Some(to) => format!("302 Found\r\nLocation: {to}"),
                    None => "200 OK".to_owned(),
                };
                let mut request = [0; 4_096];
                let _ = connection.read(&mut request).await;
                let answer =
                    format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        site
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

/// A resolver that returns each answer once, and the last one forever.
struct Answers(Mutex<VecDeque<Vec<SocketAddr>>>);

impl Answers {
    fn new<const N: usize>(answers: [&str; N]) -> Arc<Self> {
        let addresses = |answer: &str| {
            answer
                .split(' ')
                .map(|ip| SocketAddr::new(ip.parse().unwrap(), 0))
                .collect()
        };
        Arc::new(Self(Mutex::new(
            answers.into_iter().map(addresses).collect(),
        )))
    }
}

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers[0].clone()
        };
        Box::pin(async { Ok(Box::new(answer.into_iter()) as Addrs) })
    }
}

async fn get(egress: &EgressPolicy, url: &str) -> Result<(), EgressError> {
    let url = egress.parse_url(url)?;
    let sent = egress
        .http_client_builder()
        .build()
        .unwrap()
        .get(url)
        .send()
        .await;
    match sent {
        Ok(_) => Ok(()),
        Err(error) => Err(EgressError::find_in_causes(&error)
            .unwrap_or_else(|| panic!("another error: {error:?}"))),
    }
}

/// Goal: no spelling of a local address or network is connected to. Method: bad-input D1 on a
/// listener's port.
#[tokio::test]
async fn no_spelling_leads_inside() {
    let site = Site::start("127.0.0.1", None).await;
    let port = site.address.port();
    let hosts = "169.254.169.254 127.0.0.1 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 0.0.0.0 [fc00::1] [fd00:ec2::254] \
        [fe80::1] [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::127.0.0.1] 0x7f.1 0x7f000001 \
        2130706433 0177.0.0.1 017700000001 127.1 127.0.0.1. 0 １２７.0.0.1 127。0。0。1 %31%32%37.0.0.1 localhost LOCALHOST \
        localhost. localhost.. a.localhost ｌocalhost public.example@127.0.0.1 public.example:x@127.0.0.1 \
        127.0.0.1:1@public.example";
    for host in hosts.split(' ') {
        let refused = get(
            &EgressPolicy::public_internet(),
            &format!("http://{host}:{port}/"),
        )
        .await;
        assert!(refused.is_err(), "{host}");
        assert_ne!(
            refused,
            Err(EgressError::Name),
            "{host} is told without a name service"
        );
    }
    // A backslash is a slash to a browser, and a fragment ends the authority.
    for url in [
        format!("http://127.0.0.1:{port}\\@public.example/"),
        format!("http://127.0.0.1:{port}#@public.example/"),
    ] {
        assert_eq!(
            get(&EgressPolicy::public_internet(), &url).await,
            Err(EgressError::Loopback)
        );
    }
    for (url, error) in [
        ("file:///etc/passwd", EgressError::Scheme),
        ("ftp://a.example/", EgressError::Scheme),
        ("javascript:alert(1)", EgressError::Scheme),
        ("data:text/html,x", EgressError::Scheme),
        ("//a.example", EgressError::Url),
        ("/path", EgressError::Url),
        ("", EgressError::Url),
        ("http://", EgressError::Url),
        ("http://[::1", EgressError::Url),
        ("http://[fe80::1%25eth0]/", EgressError::Url),
        ("http://256.256.256.256/", EgressError::Url),
    ] {
        assert_eq!(
            EgressPolicy::public_internet().parse_url(url),
            Err(error),
            "{url}"
        );
    }
    assert_eq!(site.seen(), 0, "a connection was made");
}

/// Goal: loopback and networks are allowed only once they are configured. Method: the same URLs
/// with each setting.
#[tokio::test]
async fn configuration_opens_places() {
    let (here, other) = (
        Site::start("127.0.0.1", None).await,
        Site::start("127.0.0.2", None).await,
    );
    let network = EgressPolicy::public_internet().with_network("127.0.0.2".parse().unwrap());
    assert_eq!(get(&network, &other.url()).await, Ok(()));
    assert_eq!(get(&network, &here.url()).await, Err(EgressError::Loopback));
    assert_eq!(
        get(
            &network,
            &format!("http://localhost:{}/", here.address.port())
        )
        .await,
        Err(EgressError::Name)
    );
    let loopback = EgressPolicy::public_internet().with_loopback();
    assert_eq!(get(&loopback, &here.url()).await, Ok(()));
    assert_eq!(
        get(
            &loopback,
            &format!("http://localhost:{}/", here.address.port())
        )
        .await,
        Ok(())
    );
    assert!(loopback.parse_url("http://10.0.0.1/").is_err());
    assert_eq!((here.seen(), other.seen()), (2, 1));
}

/// Goal: names are checked by the addresses they resolve to. Method: private, mixed and no answers;
/// one that changes between two requests.
#[tokio::test]
async fn names_are_pinned_to_allowed_addresses() {
    let (allowed, inside) = (
        Site::start("127.0.0.2", None).await,
        Site::start("127.0.0.1", None).await,
    );
    let with = |answers| {
        EgressPolicy::public_internet()
            .with_network("127.0.0.2".parse().unwrap())
            .with_resolver(answers)
    };
    let url = format!("http://flip.example:{}/", allowed.address.port());
    for private in [
        "127.0.0.1",
        "10.0.0.1 192.168.0.1 ::1",
        "::ffff:127.0.0.1 169.254.169.254",
    ] {
        assert_eq!(
            get(&with(Answers::new([private])), &url).await,
            Err(EgressError::Name),
            "{private}"
        );
    }
    assert_eq!(
        get(&with(Answers::new(["10.0.0.1 127.0.0.1 127.0.0.2"])), &url).await,
        Ok(())
    );
    // The port differs from the allowed site's: a client that connected to the second answer would
    // reach `inside`.
    let egress = with(Answers::new(["127.0.0.2", "127.0.0.1"]));
    let client = egress.http_client_builder().build().unwrap();
    assert!(client.get(&url).send().await.is_ok());
    let inside_url = format!("http://flip.example:{}/", inside.address.port());
    let flipped = client.get(&inside_url).send().await.unwrap_err();
    assert_eq!(
        (EgressError::find_in_causes(&flipped), inside.seen()),
        (Some(EgressError::Name), 0)
    );
    // The limit of addresses: an allowed one behind that many others isn't reached.
    let behind = |others: usize| format!("{}127.0.0.2", "10.0.0.1 ".repeat(others));
    assert_eq!(
        get(
            &with(Answers::new([behind(RESOLVED_ADDRESSES_MAX - 1).as_str()])),
            &url
        )
        .await,
        Ok(())
    );
    assert_eq!(
        get(
            &with(Answers::new([behind(RESOLVED_ADDRESSES_MAX).as_str()])),
            &url
        )
        .await,
        Err(EgressError::Name)
    );
}

/// Goal: each redirect is checked. Method: an allowed site redirects to a forbidden one, by
/// address, by name, by file, and endlessly.
#[tokio::test]
async fn redirects_are_judged() {
    let inside = Site::start("127.0.0.1", None).await;
    let port = inside.address.port();
    let egress = || EgressPolicy::public_internet().with_network("127.0.0.2".parse().unwrap());
    for (to, error) in [
        (inside.url(), EgressError::Loopback),
        (format!("http://0x7f.1:{port}/"), EgressError::Loopback),
        (
            format!("http://public@127.0.0.2:{port}/"),
            EgressError::Credentials,
        ),
        (format!("http://inside.example:{port}/"), EgressError::Name),
        (
            "http://169.254.169.254/latest/meta-data/".into(),
            EgressError::Address([169, 254, 169, 254].into()),
        ),
        // Only http and https are ever followed.
        (
            "http://[fd00::1]/".into(),
            EgressError::Address("fd00::1".parse::<IpAddr>().unwrap()),
        ),
        ("/again".into(), EgressError::Redirects),
    ] {
        let open = Site::start("127.0.0.2", Some(to.clone())).await;
        let egress = egress().with_resolver(Answers::new(["127.0.0.1"]));
        assert_eq!(get(&egress, &open.url()).await, Err(error.clone()), "{to}");
        let hops = if error == EgressError::Redirects {
            1 + REDIRECTS_MAX
        } else {
            1
        };
        assert_eq!(open.seen(), hops, "{to}");
    }
    assert_eq!(inside.seen(), 0, "a connection was made");
    let last = Site::start("127.0.0.2", None).await;
    let open = Site::start("127.0.0.2", Some(last.url())).await;
    assert_eq!(
        (get(&egress(), &open.url()).await, last.seen()),
        (Ok(()), 1)
    );
}

/// Goal: with `https` only, `http` is allowed for this machine at most. Method: rows.
#[test]
fn https_only() {
    let egress = EgressPolicy::public_internet().with_loopback().https_only();
    for url in [
        "https://a.example/",
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://[::1]/",
        "https://1.1.1.1/",
    ] {
        assert!(egress.parse_url(url).is_ok(), "{url}");
    }
    for url in [
        "http://a.example/",
        "http://1.1.1.1/",
        "http://localhost.example/",
    ] {
        assert_eq!(egress.parse_url(url), Err(EgressError::Scheme), "{url}");
    }
    assert_eq!(
        EgressPolicy::public_internet()
            .https_only()
            .parse_url("http://localhost/"),
        Err(EgressError::Loopback)
    );
    assert!(!format!("{egress:?}").is_empty());
}

/// Goal: the addresses of a name can be checked before a connection, by the same rules. Method:
/// allowed, mixed and forbidden answers, none, addresses, and a policy with one network only.
#[tokio::test]
async fn a_name_can_be_looked_up() {
    let with = |egress: EgressPolicy, answer| egress.with_resolver(Answers::new([answer]));
    let look_up =
        async |egress: &EgressPolicy, url: &str| egress.resolve_url(&url.parse().unwrap()).await;
    let ips = |ips: &str| -> Vec<IpAddr> { ips.split(' ').map(|ip| ip.parse().unwrap()).collect() };
    let url = "https://a.example/";
    for (egress, answer, expected) in [
        (
            EgressPolicy::public_internet(),
            "1.1.1.1 10.0.0.1 2606:4700::1111",
            Ok(ips("1.1.1.1 2606:4700::1111")),
        ),
        (
            EgressPolicy::public_internet(),
            "10.0.0.1 127.0.0.1",
            Err(EgressError::Name),
        ),
        (
            EgressPolicy::public_internet().with_network("10.0.0.0/8".parse().unwrap()),
            "10.0.0.1",
            Ok(ips("10.0.0.1")),
        ),
        (
            EgressPolicy::deny_all().with_network("10.0.0.0/8".parse().unwrap()),
            "1.1.1.1 10.0.0.1",
            Ok(ips("10.0.0.1")),
        ),
        (
            EgressPolicy::deny_all(),
            "1.1.1.1 10.0.0.1 127.0.0.1",
            Err(EgressError::Name),
        ),
    ] {
        assert_eq!(
            look_up(&with(egress, answer), url).await,
            expected,
            "{answer}"
        );
    }
    assert_eq!(
        look_up(&EgressPolicy::public_internet(), "http://1.1.1.1/").await,
        Ok(ips("1.1.1.1"))
    );
    assert_eq!(
        look_up(&EgressPolicy::public_internet(), "http://127.0.0.1/").await,
        Err(EgressError::Loopback)
    );
    let public: IpAddr = [1, 1, 1, 1].into();
    assert_eq!(
        look_up(&EgressPolicy::deny_all(), "http://1.1.1.1/").await,
        Err(EgressError::Address(public))
    );
    assert_eq!(
        look_up(&EgressPolicy::public_internet(), "ftp://a.example/").await,
        Err(EgressError::Scheme)
    );
    // A resolver that knows no name.
    struct Silent;
    impl Resolve for Silent {
        fn resolve(&self, _: Name) -> Resolving {
            Box::pin(async { Err(std::io::Error::other("no answer").into()) })
        }
    }
    assert_eq!(
        look_up(
            &EgressPolicy::public_internet().with_resolver(Arc::new(Silent)),
            url
        )
        .await,
        Err(EgressError::Lookup)
    );
}
