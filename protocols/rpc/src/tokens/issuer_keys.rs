//! Keys of token issuers: where they are, fetching, and how long they count.

use derive_more::Debug;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reqwest::{Client, Method, Request};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use url::Url;

use super::issuer_http::{IssuerHttp, IssuerRequestError};
use super::jwk::{ISSUER_DOCUMENT_BYTES_MAX, JwkSet, JwsAlgorithm, parse_document};
use crate::egress::IpNetwork;

/// Place of an issuer's keys.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Key set that the issuer's metadata name (RFC 8414, OpenID Connect Discovery). The issuer is an
    /// absolute URL.
    Metadata(String),
    /// URL of the key set.
    Url(Url),
    /// File with the key set.
    File(PathBuf),
}

// A URL may contain a secret in its query.
impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata(issuer) => f.write_str(issuer),
            Self::Url(url) => f.write_str(&url.origin().ascii_serialization()),
            Self::File(path) => path.fmt(f),
        }
    }
}

/// Times of the keys of token issuers.
#[derive(Debug, Clone, Copy)]
pub struct IssuerKeyTimes {
    /// Age after which keys are fetched again while they are in use. Default: 10 min.
    pub refresh_after: Duration,
    /// Age after which keys don't count any more, if none could be fetched since. Default: 1 h.
    pub age_max: Duration,
    /// Minimum time between the beginnings of two fetches, whatever tokens arrive. Default: 10 s.
    pub fetch_interval: Duration,
    /// Time that a request waits for keys that are being fetched. Default: 5 s.
    pub wait_max: Duration,
    /// Timeout of one fetch, of metadata and keys together. Default: 10 s.
    pub fetch_timeout: Duration,
}

impl Default for IssuerKeyTimes {
    fn default() -> Self {
        Self {
            refresh_after: Duration::from_secs(600),
            age_max: Duration::from_secs(3_600),
            fetch_interval: Duration::from_secs(10),
            wait_max: Duration::from_secs(5),
            fetch_timeout: Duration::from_secs(10),
        }
    }
}

/// Reason why keys couldn't be fetched.
#[derive(Debug, thiserror::Error)]
enum KeyFetchError {
    #[error(transparent)]
    Request(#[from] IssuerRequestError),
    #[error("the file could not be read: {0}")]
    File(std::io::ErrorKind),
    #[error(
        "the metadata are not those of this issuer: `issuer` must be exactly the configured one"
    )]
    OtherIssuer,
    #[error("the metadata name no usable `jwks_uri`: configure `jwks`")]
    NoKeySet,
    #[error("the document is not a JSON Web Key Set within the limits")]
    Damaged,
}

/// Keys of one issuer, which are fetched when they are needed and as long as they are used.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    source: KeySource,
    /// Its authorities are read at each fetch.
    http: IssuerHttp,
    times: IssuerKeyTimes,
    #[debug(skip)]
    cached: Mutex<CachedKeys>,
    /// Number of fetches that have ended.
    #[debug(skip)]
    fetches: watch::Sender<u64>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Option<VersionedKeys>,
    fetched: Option<Instant>,
    /// Beginning of the latest fetch.
    attempted: Option<Instant>,
    is_fetching: bool,
}

/// Keys with their version, which changes with them.
#[derive(Clone)]
pub(super) struct VersionedKeys {
    pub(super) keys: Arc<JwkSet>,
    pub(super) version: u64,
}

impl IssuerKeys {
    fn new(
        source: KeySource,
        networks: &[IpNetwork],
        ca: Option<&Path>,
        times: IssuerKeyTimes,
    ) -> Self {
        let named = match &source {
            KeySource::Metadata(issuer) => Url::parse(issuer).ok(),
            KeySource::Url(url) => Some(url.clone()),
            KeySource::File(_) => None,
        };
        Self {
            source,
            http: IssuerHttp::new(named.as_ref(), networks, ca),
            times,
            cached: Mutex::default(),
            fetches: watch::Sender::new(0),
        }
    }

    /// Returns the keys, and has them fetched again if they are old. `None` without keys, and for
    /// keys older than [`IssuerKeyTimes::age_max`].
    pub(super) fn current(self: &Arc<Self>) -> Option<VersionedKeys> {
        let (keys, age) = {
            let cached = self.cached.lock();
            (cached.keys.clone(), cached.fetched.map(|at| at.elapsed()))
        };
        if age.is_none_or(|age| age >= self.times.refresh_after) {
            self.start_fetch();
        }
        keys.filter(|_| age.is_some_and(|age| age < self.times.age_max))
    }

    /// Waits until a key of this id and algorithm has been fetched, the fetch has failed, or
    /// [`IssuerKeyTimes::wait_max`] has passed. Returns at once if there is such a key, or if the
    /// latest fetch has begun less than [`IssuerKeyTimes::fetch_interval`] ago.
    pub(super) async fn wait_for_key(self: &Arc<Self>, id: Option<&str>, algorithm: JwsAlgorithm) {
        let mut fetches = self.fetches.subscribe();
        let is_known = self
            .current()
            .is_some_and(|current| current.keys.has_key(id, algorithm));
        if !is_known && self.start_fetch() {
            // After the time the token is refused, and its sender tries again.
            let _ = timeout(self.times.wait_max, fetches.changed()).await;
        }
    }

    /// Begins a fetch in the background. Returns whether one runs.
    fn start_fetch(self: &Arc<Self>) -> bool {
        let Ok(runtime) = Handle::try_current() else {
            return false;
        };
        {
            let mut cached = self.cached.lock();
            if cached.is_fetching {
                return true;
            }
            let interval = self.times.fetch_interval;
            if cached.attempted.is_some_and(|at| at.elapsed() < interval) {
                return false;
            }
            (cached.is_fetching, cached.attempted) = (true, Some(Instant::now()));
        }
        let running = RunningFetch(self.clone());
        runtime.spawn(async move {
            let this = &running.0;
            let fetched = timeout(this.times.fetch_timeout, this.fetch()).await;
            match fetched.unwrap_or(Err(IssuerRequestError::Unreachable.into())) {
                Ok(keys) => this.set_keys(keys),
                Err(error) => {
                    let source = format!("{:?}", this.source);
                    callboard_message::log::warn!(by: &source, source, %error, "failed to fetch the keys of a token issuer");
                }
            }
        });
        true
    }

    fn set_keys(&self, keys: JwkSet) {
        let mut cached = self.cached.lock();
        let version = match &cached.keys {
            Some(before) if *before.keys == keys => before.version,
            Some(before) => before.version + 1,
            None => 0,
        };
        let keys = Arc::new(keys);
        cached.keys = Some(VersionedKeys { keys, version });
        cached.fetched = Some(Instant::now());
    }

    async fn fetch(&self) -> Result<JwkSet, KeyFetchError> {
        let text = match &self.source {
            KeySource::File(path) => read_file(path)?,
            KeySource::Url(url) => self.get(&self.http.client()?, url).await?,
            KeySource::Metadata(issuer) => {
                let client = self.http.client()?;
                let url = self.discover_key_set(&client, issuer).await?;
                self.get(&client, &url).await?
            }
        };
        JwkSet::parse(&text).ok_or(KeyFetchError::Damaged)
    }

    /// Returns the URL of the key set that the metadata of the issuer name.
    async fn discover_key_set(&self, client: &Client, issuer: &str) -> Result<Url, KeyFetchError> {
        let base = self.http.parse_url(issuer)?;
        let mut failure = KeyFetchError::NoKeySet;
        for url in metadata_urls(&base) {
            let text = match self.get(client, &url).await {
                Ok(text) => text,
                Err(error @ IssuerRequestError::Status(_)) => {
                    failure = error.into();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // It may be a page that the server returns for all paths.
            let Some(metadata) = parse_document(&text) else {
                failure = KeyFetchError::NoKeySet;
                continue;
            };
            // Issuers are compared as texts: "https://a" and "https://a/" are two.
            if metadata.text("issuer").as_deref() != Some(issuer) {
                return Err(KeyFetchError::OtherIssuer);
            }
            let url = metadata.text("jwks_uri").ok_or(KeyFetchError::NoKeySet)?;
            return Ok(self.http.parse_url(&url)?);
        }
        Err(failure)
    }

    async fn get(&self, client: &Client, url: &Url) -> Result<Vec<u8>, IssuerRequestError> {
        let request = Request::new(Method::GET, url.clone());
        self.http
            .send(client, request, ISSUER_DOCUMENT_BYTES_MAX)
            .await
    }
}

/// A fetch in progress. Its end, also by an abort, is announced when it is dropped.
struct RunningFetch(Arc<IssuerKeys>);

impl Drop for RunningFetch {
    fn drop(&mut self) {
        self.0.cached.lock().is_fetching = false;
        self.0.fetches.send_modify(|count| *count += 1);
    }
}

/// Keys of all issuers of a node, so that listeners with the same issuer fetch them once. Clones
/// share the registry. Keys that no verifier uses are forgotten.
#[derive(Debug, Clone, Default)]
pub struct IssuerRegistry {
    #[debug("{} issuers", known.lock().len())]
    known: Arc<Mutex<Vec<Weak<IssuerKeys>>>>,
    times: IssuerKeyTimes,
}

impl IssuerRegistry {
    /// Creates a registry with other times than the default.
    pub fn with_times(times: IssuerKeyTimes) -> Self {
        Self {
            times,
            ..Self::default()
        }
    }

    /// Returns the keys at a place. Nothing is fetched yet. The place may be on the public internet
    /// and in `networks`, and on this machine if it is declared as there. `ca` is the file with the
    /// authorities of its certificate; `None` for the public ones.
    pub(super) fn keys(
        &self,
        source: &KeySource,
        networks: &[IpNetwork],
        ca: Option<&Path>,
    ) -> Arc<IssuerKeys> {
        let mut known = self.known.lock();
        known.retain(|keys| keys.strong_count() > 0);
        let mut used = known.iter().filter_map(Weak::upgrade);
        if let Some(same) = used.find(|keys| {
            keys.source == *source
                && keys.http.networks == networks
                && keys.http.ca.as_deref() == ca
        }) {
            return same;
        }
        let keys = Arc::new(IssuerKeys::new(source.clone(), networks, ca, self.times));
        known.push(Arc::downgrade(&keys));
        keys
    }
}

fn read_file(path: &PathBuf) -> Result<Vec<u8>, KeyFetchError> {
    let failed = |error: std::io::Error| KeyFetchError::File(error.kind());
    let file = File::open(path).map_err(failed)?;
    let mut text = Vec::new();
    file.take(ISSUER_DOCUMENT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    match text.len() > ISSUER_DOCUMENT_BYTES_MAX {
        true => Err(IssuerRequestError::TooLarge(ISSUER_DOCUMENT_BYTES_MAX).into()),
        false => Ok(text),
    }
}

/// Returns the URLs at which an issuer's metadata may be, in the order in which they are tried.
fn metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![format!("/.well-known/oauth-authorization-server{path}")];
    if !path.is_empty() {
        paths.push(format!("/.well-known/openid-configuration{path}"));
    }
    paths.push(format!("{path}/.well-known/openid-configuration"));
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        url
    };
    paths.into_iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: metadata are looked for where RFC 8414 and OpenID Connect have them. Method: issuers
    /// without and with a path.
    #[test]
    fn places_of_metadata() {
        let urls = |issuer: &str| -> Vec<String> {
            let urls = metadata_urls(&issuer.parse().unwrap());
            urls.iter().map(Url::to_string).collect()
        };
        assert_eq!(
            urls("https://a.example"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            urls("https://a.example/realms/x/"),
            [
                "https://a.example/.well-known/oauth-authorization-server/realms/x",
                "https://a.example/.well-known/openid-configuration/realms/x",
                "https://a.example/realms/x/.well-known/openid-configuration"
            ]
        );
    }

    /// Goal: issuers are shared while they are used, with their networks and authorities. Method:
    /// the same place twice, with another network, with other authorities, and after it is forgotten.
    #[test]
    fn issuers_are_shared() {
        let registry = IssuerRegistry::default();
        let source = KeySource::Metadata("https://a.example".into());
        let network: IpNetwork = "10.0.0.0/8".parse().unwrap();
        let first = registry.keys(&source, &[], None);
        assert!(Arc::ptr_eq(
            &first,
            &registry.clone().keys(&source, &[], None)
        ));
        let other = registry.keys(&source, &[network], None);
        let trusting = registry.keys(&source, &[], Some(Path::new("/ca.pem")));
        assert!(!Arc::ptr_eq(&first, &other) && !Arc::ptr_eq(&first, &trusting));
        drop((first, other, trusting));
        let file = KeySource::File("/nowhere".into());
        let _kept = registry.keys(&file, &[], None);
        assert_eq!(registry.known.lock().len(), 1);
    }
}
