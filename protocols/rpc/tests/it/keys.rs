use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::{
    ADDRESS_DELAYED_RESPONSES_MAX, AUTH_FAILURE_ADDRESSES_MAX, AUTH_FAILURE_REPORTS_MAX,
    AUTH_FAILURE_WINDOW, AccessControl, AuthFailureReport, AuthFailureResponse, AuthFailures,
    BearerVerifier, CredentialError, DELAYED_RESPONSES_MAX, KEY_FILE_BYTES_MAX, KEY_NAME_BYTES_MAX,
    KEY_SCOPE_BYTES_MAX, KEY_SCOPES_MAX, KEYS_IN_FILE_MAX, KeyError, KeyOptions, KeyStore,
    PresentedCredential, ReloadingKeyStore, UNDELAYED_AUTH_FAILURES_MAX,
};
use secrecy::ExposeSecret;
use tempfile::TempDir;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("keys.toml")
    }

    fn store(&self) -> KeyStore {
        KeyStore::load_or_new(self.file()).unwrap()
    }
}

fn add(store: &mut KeyStore, name: &str, scopes: &[&str]) -> String {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    store.add(name, scopes).unwrap().expose_secret().to_owned()
}

fn owner(name: &str, scopes: &[&str]) -> Principal {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    Principal {
        id: name.into(),
        kind: PrincipalKind::ApiKey,
        scopes,
        purpose: None,
    }
}

/// Goal: a key authenticates its principal until it is revoked, across restarts. Method: two keys,
/// one revoked, the file loaded again.
#[test]
fn keys_count_until_revoked() {
    let place = Place::new();
    let mut store = place.store();
    assert!(!place.file().exists());
    let (a, b) = (
        add(&mut store, "ci", &["tools:call", "x"]),
        add(&mut store, "laptop-2.home", &[]),
    );
    assert_ne!(a, b);
    for store in [&store, &KeyStore::load(place.file()).unwrap()] {
        assert_eq!(
            store.verify(a.as_bytes()),
            Some(owner("ci", &["tools:call", "x"]))
        );
        assert_eq!(
            store.verify(b.as_bytes()),
            Some(owner("laptop-2.home", &[]))
        );
    }
    store.revoke("ci").unwrap();
    store.revoke("ci").unwrap();
    assert!(matches!(store.revoke("nobody"), Err(KeyError::Unknown)));
    for store in [&store, &KeyStore::load(place.file()).unwrap()] {
        assert_eq!(store.verify(a.as_bytes()), None);
        assert_eq!(
            store.verify(b.as_bytes()),
            Some(owner("laptop-2.home", &[]))
        );
        let listed: Vec<_> = store
            .list()
            .iter()
            .map(|key| (key.name.as_str(), key.is_revoked()))
            .collect();
        assert_eq!(listed, [("ci", true), ("laptop-2.home", false)]);
        assert!(store.list()[0].created().elapsed().unwrap() < Duration::from_secs(600));
    }
    assert!(matches!(store.add("ci", vec![]), Err(KeyError::Exists)));
}

/// Goal: nobody gets the principal of keys that stand for somebody. Method: a new key of the name that
/// a rotated key stands for, after the first one's record was removed by hand.
#[test]
fn names_of_rotated_keys_stay_taken() {
    let place = Place::new();
    let mut store = place.store();
    add(&mut store, "alice", &[]);
    store.rotate("alice", "alice-2", None, None).unwrap();
    let text = fs::read_to_string(place.file()).unwrap();
    let records: Vec<&str> = text.split("[[key]]").collect();
    let without_first = records
        .iter()
        .filter(|record| !record.contains("name = \"alice\"\n"))
        .copied()
        .collect::<Vec<_>>()
        .join("[[key]]");
    fs::write(place.file(), &without_first).unwrap();
    assert_eq!(
        records.len(),
        1 + without_first.split("[[key]]").count(),
        "{text}"
    );
    let mut store = KeyStore::load(place.file()).unwrap();
    assert!(matches!(
        store.add("alice", Vec::new()),
        Err(KeyError::Exists)
    ));
}

/// Goal: a key counts until it expires, and two keys of one principal count at a time. Method: a
/// key that is replaced; both before and after the first has expired, by dates written into the
/// file as people write them.
#[test]
fn keys_expire_and_are_replaced() {
    let place = Place::new();
    let mut store = place.store();
    let first = add(&mut store, "ci", &["tools:call"]);
    assert!(matches!(
        store.rotate("nobody", "ci-2", None, None),
        Err(KeyError::Unknown)
    ));
    assert!(matches!(
        store.rotate("ci", "ci-2", Some(1), None),
        Err(KeyError::Expiry)
    ));
    let second = store
        .rotate("ci", "ci-2", Some(4_102_444_800), None)
        .unwrap();
    let third = store.rotate("ci-2", "ci-3", None, None).unwrap();
    let text = fs::read_to_string(place.file()).unwrap();
    assert!(
        text.contains("expires = \"2100-01-01T00:00:00Z\""),
        "{text}"
    );
    let all = [
        first.as_bytes(),
        second.expose_secret().as_bytes(),
        third.expose_secret().as_bytes(),
    ];
    let ci = Some(owner("ci", &["tools:call"]));
    let verified = || {
        let store = KeyStore::load(place.file()).unwrap();
        all.map(|key| store.verify(key))
    };
    assert_eq!(verified(), [ci.clone(), ci.clone(), ci.clone()]);
    for (written, counts) in [
        ("\"2099-12-31\"", true),
        ("4102444800", true),
        ("\"2020-12-31\"", false),
        ("\"2020-12-31T12:00:00Z\"", false),
        ("1", false),
    ] {
        fs::write(
            place.file(),
            text.replace("\"2100-01-01T00:00:00Z\"", written),
        )
        .unwrap();
        let first = counts.then(|| ci.clone()).flatten();
        assert_eq!(verified(), [first, ci.clone(), ci.clone()], "{written}");
    }
    for wrong in ["\"soon\"", "-1", "true", "\"2026-02-30\""] {
        fs::write(
            place.file(),
            text.replace("\"2100-01-01T00:00:00Z\"", wrong),
        )
        .unwrap();
        assert!(
            matches!(KeyStore::load(place.file()), Err(KeyError::Damaged { .. })),
            "{wrong}"
        );
    }
}

/// Goal: a key names the patient that its field names, byte by byte, and so does the key that replaces it;
/// a scope names none; and one that can't be told is refused. Method: keys with patients, scopes in the
/// file as somebody may write them, and bad patients, up to a byte too many.
/// Rows: H-37.
#[test]
fn keys_name_patients() {
    let place = Place::new();
    let mut store = place.store();
    let options = |patient: &str| KeyOptions {
        patient: Some(patient.to_owned()),
        ..KeyOptions::default()
    };
    let scopes = || vec!["patient/hmcp:read".to_owned()];
    let first = store.add_with("app", scopes(), options("PT1")).unwrap();
    let second = store.rotate("app", "app-2", None, None).unwrap();
    let both = [first, second];
    let expected = Some(owner("app", &["patient/hmcp:read", "patient:PT1"]));
    for key in &both {
        assert_eq!(store.verify(key.expose_secret().as_bytes()), expected);
    }
    let named = store.add("b", vec!["a".into(), "patient:PT2".into()]);
    assert!(matches!(named, Err(KeyError::PatientScope)));
    let longest = "P".repeat(KEY_SCOPE_BYTES_MAX - "patient:".len());
    assert!(store.add_with("c", vec![], options(&longest)).is_ok());
    for bad in ["", " ", "PT1 PT2", "PT\"1", "PT１", "PT1\u{301}", "PT1\n"] {
        let added = store.add_with("d", vec![], options(bad));
        assert!(matches!(added, Err(KeyError::Patient)), "{bad:?}");
    }
    let added = store.add_with("d", vec![], options(&format!("{longest}P")));
    assert!(matches!(added, Err(KeyError::Patient)));

    let text = fs::read_to_string(place.file()).unwrap();
    let written = text.replace(
        "patient/hmcp:read\"",
        "patient/hmcp:read\", \"patient:PT2\"",
    );
    assert_ne!(written, text);
    fs::write(place.file(), &written).unwrap();
    let read = KeyStore::load(place.file());
    assert!(matches!(read, Err(KeyError::Damaged { .. })));
    for bad in ["\"\"", "\"a b\"", "\"PT１\"", "[\"PT1\", \"PT2\"]", "1"] {
        fs::write(place.file(), text.replace("\"PT1\"", bad)).unwrap();
        let read = KeyStore::load(place.file());
        assert!(matches!(read, Err(KeyError::Damaged { .. })), "{bad}");
    }
}

/// Goal: a key has 256 random bits behind its prefix and is stored nowhere. Method: its shape; the file's text; Debug.
#[test]
fn keys_are_shown_once() {
    let place = Place::new();
    let mut store = place.store();
    let secret = store.add("ci", vec![]).unwrap();
    let key = secret.expose_secret();
    let random = key.strip_prefix("cbk_").unwrap();
    assert_eq!(random.len(), 43);
    assert!(
        random
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    );
    let text = fs::read_to_string(place.file()).unwrap();
    assert!(!text.contains(random) && text.contains("sha256 = "));
    let hash = text
        .lines()
        .find_map(|line| line.strip_prefix("sha256 = \""))
        .unwrap()
        .trim_end_matches('"');
    let shown = format!("{secret:?} {store:?} {:?}", store.list());
    assert!(!shown.contains(random) && !shown.contains(hash));
}

/// Goal: only the exact key is accepted. Method: each byte changed, cut, longer, the hash itself,
/// nothing.
#[test]
fn other_keys_are_wrong() {
    let place = Place::new();
    let mut store = place.store();
    let key = add(&mut store, "ci", &[]);
    for at in 0..key.len() {
        let mut other = key.clone().into_bytes();
        other[at] ^= 1;
        assert_eq!(store.verify(&other), None, "{at}");
    }
    for other in [
        &key[1..],
        &key[..key.len() - 1],
        &format!("{key}A"),
        "",
        "cbk_",
        &key[4..],
    ] {
        assert_eq!(store.verify(other.as_bytes()), None);
    }
    assert_eq!(
        KeyStore::load_or_new(place.directory.path().join("none"))
            .unwrap()
            .verify(key.as_bytes()),
        None
    );
}

/// Goal: a listener with keys accepts only requests with a valid key. Method: right, wrong,
/// revoked, none; the file removed.
/// Rows: H-37.
#[test]
fn listener_with_keys_asks_for_them() {
    let place = Place::new();
    let mut store = place.store();
    let (good, revoked) = (add(&mut store, "good", &["s"]), add(&mut store, "old", &[]));
    store.revoke("old").unwrap();
    let access = AccessControl::with_keys(
        ReloadingKeyStore::open_with_poll_interval(place.file(), Duration::ZERO).unwrap(),
    );
    let ask = |authorization: Option<String>| {
        let here = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let authorization = authorization.as_deref().map(str::as_bytes);
        access.authenticate(&PresentedCredential {
            peer: here,
            local: here,
            authorization,
            certificate: None,
            is_forwarded: false,
        })
    };
    assert_eq!(
        ask(Some(format!("Bearer {good}"))),
        Ok(owner("good", &["s"]))
    );
    assert_eq!(ask(None), Err(CredentialError::Missing));
    for wrong in [
        &revoked,
        "cbk_",
        "cbk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "eyJhbGciOiJub25lIn0.e30.",
    ] {
        assert_eq!(
            ask(Some(format!("Bearer {wrong}"))),
            Err(CredentialError::Wrong)
        );
    }
    assert_eq!(CredentialError::Wrong.http_status(), 401);
    assert_eq!(CredentialError::Missing.challenge(), Some("Bearer"));
    // Beside a running server.
    let late = add(&mut store, "late", &[]);
    assert_eq!(ask(Some(format!("Bearer {late}"))), Ok(owner("late", &[])));
    store.revoke("good").unwrap();
    assert_eq!(
        ask(Some(format!("Bearer {good}"))),
        Err(CredentialError::Wrong)
    );
    let kept = fs::read(place.file()).unwrap();
    fs::write(place.file(), "version = 1\nkey = broken").unwrap();
    assert_eq!(
        ask(Some(format!("Bearer {late}"))),
        Err(CredentialError::Unavailable)
    );
    fs::remove_file(place.file()).unwrap();
    assert_eq!(
        ask(Some(format!("Bearer {late}"))),
        Err(CredentialError::Unavailable)
    );
    fs::write(place.file(), kept).unwrap();
    assert_eq!(ask(Some(format!("Bearer {late}"))), Ok(owner("late", &[])));
    assert!(!format!("{access:?}").contains("cbk_"));
}

/// Goal: the key file isn't checked again within the poll interval. Method: an hour; the file
/// removed.
#[test]
fn ring_looks_now_and_then() {
    let place = Place::new();
    let key = add(&mut place.store(), "a", &[]);
    let ring = ReloadingKeyStore::open_with_poll_interval(place.file(), Duration::from_secs(3_600))
        .unwrap();
    fs::remove_file(place.file()).unwrap();
    assert!(matches!(ring.verify(key.as_bytes()), Some(Ok(_))));
    assert!(ring.verify(b"another kind").is_none());
    assert!(matches!(
        ReloadingKeyStore::open(place.file()),
        Err(KeyError::Io { .. })
    ));
}

/// Goal: concurrent changes are all kept, and readers see whole files. Method: two threads, a
/// reader.
#[test]
fn changes_beside_each_other_are_kept() {
    let place = Place::new();
    add(&mut place.store(), "first", &[]);
    std::thread::scope(|threads| {
        for writer in ["a", "b"] {
            let place = &place;
            threads.spawn(move || {
                let mut store = place.store();
                for nth in 0..10 {
                    store.add(&format!("{writer}{nth}"), vec![]).unwrap();
                }
            });
        }
        for _ in 0..200 {
            assert!(!KeyStore::load(place.file()).unwrap().list().is_empty());
        }
    });
    assert_eq!(place.store().list().len(), 21);
    // No partially written file is left behind.
    let names = fs::read_dir(place.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 2, "the file and its lock");
}

/// Goal: only the owner can read and write the file. Method: the mode of new files; files that
/// others may write.
#[cfg(unix)]
#[test]
fn file_is_its_owners() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new();
    let mut store = place.store();
    add(&mut store, "a", &[]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.file()), 0o600);
    for loose in [0o620, 0o602, 0o666] {
        fs::set_permissions(place.file(), fs::Permissions::from_mode(loose)).unwrap();
        assert!(matches!(
            KeyStore::load(place.file()),
            Err(KeyError::Writable { .. })
        ));
        assert!(matches!(
            store.add("b", vec![]),
            Err(KeyError::Writable { .. })
        ));
    }
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let link = place.directory.path().join("link.toml");
    symlink(place.file(), &link).unwrap();
    add(&mut KeyStore::load(&link).unwrap(), "b", &[]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!((mode(place.file()), place.store().list().len()), (0o600, 2));
}

/// Goal: a file that others may write from now on is noticed while it is in use, although its time
/// and size stay. Method: change the mode of an open key file to and fro.
#[cfg(unix)]
#[test]
fn permissions_are_followed() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let key = add(&mut place.store(), "a", &[]);
    let open = ReloadingKeyStore::open_with_poll_interval(place.file(), Duration::ZERO).unwrap();
    for (mode, expect) in [
        (0o600, Ok(owner("a", &[]))),
        (0o622, Err(CredentialError::Unavailable)),
        (0o600, Ok(owner("a", &[]))),
    ] {
        fs::set_permissions(place.file(), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(open.verify(key.as_bytes()), Some(expect), "{mode:o}");
    }
}

/// Goal: failed authentications of an address are delayed from the sixth on, reported once a minute
/// and forgotten after a quiet minute; others aren't touched. Method: failures in paused time.
#[tokio::test(start_paused = true)]
async fn failures_are_delayed_and_reported() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = reports.clone();
    let failures = AuthFailures::with_report(move |report| heard.lock().unwrap().push(report));
    let address = |text: &str| -> Option<IpAddr> { text.parse().ok() };
    let penalty_ms = async |peer, reason| {
        let begun = tokio::time::Instant::now();
        let response = failures.penalize(peer, reason).await;
        assert_eq!(response, AuthFailureResponse::Reject);
        begun.elapsed().as_millis()
    };
    let guesser = address("2001:db8::1");
    let mut delays = Vec::new();
    for nth in 0..=UNDELAYED_AUTH_FAILURES_MAX + 1 {
        // Another address of the same network.
        let peer = address(&format!("2001:db8::{nth}"));
        delays.push(penalty_ms(peer, CredentialError::Wrong).await);
    }
    assert_eq!(delays, [0, 0, 0, 0, 0, 500, 1_000]);
    assert_eq!(
        penalty_ms(address("10.0.0.7"), CredentialError::Wrong).await,
        0
    );
    // Nobody guesses without a key or where none is required, and the last isn't the client's fault.
    for reason in [
        CredentialError::Missing,
        CredentialError::Unverifiable,
        CredentialError::Forwarded,
        CredentialError::Unavailable,
    ] {
        assert_eq!(penalty_ms(guesser, reason).await, 0);
    }
    let counts = |reports: &[AuthFailureReport]| -> Vec<(IpAddr, u64)> {
        reports
            .iter()
            .map(|report| (report.address, report.count))
            .collect()
    };
    let network = address("2001:db8::").unwrap();
    let other = address("10.0.0.7").unwrap();
    assert_eq!(counts(&reports.lock().unwrap()), [(network, 1), (other, 1)]);

    tokio::time::advance(AUTH_FAILURE_WINDOW).await;
    assert_eq!(penalty_ms(guesser, CredentialError::Malformed).await, 0);
    let last = reports.lock().unwrap().pop().unwrap();
    let expect = (network, CredentialError::Malformed, 7);
    assert_eq!((last.address, last.reason, last.count), expect);
}

/// Goal: the number of responses that are delayed at once is limited for an address and for all.
/// Method: the limit of an address and one more, from as many addresses as fill all places, and one
/// more; in paused time.
#[tokio::test(start_paused = true)]
async fn delayed_responses_are_bounded() {
    let failures = AuthFailures::default();
    let guessers = DELAYED_RESPONSES_MAX / ADDRESS_DELAYED_RESPONSES_MAX;
    let peer = |nth: usize| Some(IpAddr::from([10, 0, 0, u8::try_from(nth).unwrap()]));
    for nth in 0..=guessers {
        for _ in 0..UNDELAYED_AUTH_FAILURES_MAX {
            failures.penalize(peer(nth), CredentialError::Wrong).await;
        }
    }
    let of_each = ADDRESS_DELAYED_RESPONSES_MAX + 1;
    let guesses = (0..guessers).flat_map(|nth| std::iter::repeat_n(nth, of_each));
    let guesses = guesses
        .chain([guessers])
        .map(|nth| failures.penalize(peer(nth), CredentialError::Wrong));
    let responses = futures::future::join_all(guesses).await;
    let too_many: Vec<usize> = responses
        .iter()
        .enumerate()
        .filter(|(_, response)| **response == AuthFailureResponse::TooMany)
        .map(|(place, _)| place)
        .collect();
    // The last guess of each address, and the one for which no place is left.
    let expect = (1..=guessers).map(|nth| nth * of_each - 1);
    let expect: Vec<usize> = expect.chain([guessers * of_each]).collect();
    assert_eq!(too_many, expect);
    // Their places are free again.
    let response = failures.penalize(peer(0), CredentialError::Wrong).await;
    assert_eq!(response, AuthFailureResponse::Reject);
}

/// Goal: the number of reports in a minute is limited over all addresses, and no failure is lost from
/// the numbers. Method: a failure of each of many addresses, so that some are forgotten; another
/// after a minute; in paused time.
#[tokio::test(start_paused = true)]
async fn reports_are_bounded() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = reports.clone();
    let failures = AuthFailures::with_report(move |report| heard.lock().unwrap().push(report));
    let count = u32::try_from(AUTH_FAILURE_ADDRESSES_MAX + 100).unwrap();
    for nth in 0..count {
        let peer = Some(IpAddr::from(nth.to_be_bytes()));
        failures.penalize(peer, CredentialError::Wrong).await;
    }
    let reported = reports.lock().unwrap().len();
    assert_eq!(reported, AUTH_FAILURE_REPORTS_MAX as usize);
    tokio::time::advance(AUTH_FAILURE_WINDOW).await;
    let peer = Some(IpAddr::from([10, 0, 0, 7]));
    failures.penalize(peer, CredentialError::Wrong).await;
    let reports = reports.lock().unwrap();
    let last = reports.last().unwrap();
    assert_eq!(
        (last.count, last.others),
        (1, u64::from(count - AUTH_FAILURE_REPORTS_MAX))
    );
}

/// Goal: a damaged file is rejected with the place and without its text. Method: rows.
#[test]
fn damaged_files_are_refused() {
    let good = format!(
        "version = 1\n[[key]]\nname = \"a\"\nsha256 = \"{}\"\ncreated_unix_s = 1\n",
        "0f".repeat(32)
    );
    let read = |text: &str| KeyStore::from_text("keys.toml", text.as_bytes());
    assert_eq!(read(&good).unwrap().list().len(), 1);
    assert!(read("version = 1").unwrap().list().is_empty());
    for (text, why) in [
        ("", "line 1"),
        ("version = 2", "`version` is 2, but only 1 is known here"),
        ("version = 1\ncbk_secret", "line 2"),
        ("version = 1\ncbk_secret = 1", "line 2"),
        (&good.replace("0f0f0f", "0f0f"), "line 4"),
        (&good.replace("0f0f0f", "cbk_se"), "line 4"),
        (
            &good.replace("created_unix_s = 1", "created_unix_s = \"cbk_secret\""),
            "line 5",
        ),
        (
            &good.replace("\"a\"", "\"a b\""),
            "key 1 has an invalid name or scope",
        ),
        (
            &good.replace("\"a\"", "\"\""),
            "key 1 has an invalid name or scope",
        ),
        (
            &(good.clone() + "scopes = [\"a b\"]"),
            "key 1 has an invalid name or scope",
        ),
        (
            &(good.clone() + good.trim_start_matches("version = 1")),
            "key 2 has the same name as an earlier one",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert_eq!(error, format!("the key file keys.toml is damaged: {why}"));
    }
    assert!(KeyStore::from_text("k", b"\xFF").is_err());
}

/// Goal: each limit is exact. Method: the value, and one more.
#[test]
fn bounds() {
    let place = Place::new();
    let mut store = place.store();
    let text = |bytes: usize| "a".repeat(bytes);
    assert!(
        store
            .add(
                &text(KEY_NAME_BYTES_MAX),
                vec![text(KEY_SCOPE_BYTES_MAX); KEY_SCOPES_MAX]
            )
            .is_ok()
    );
    assert!(matches!(
        store.add(&text(KEY_NAME_BYTES_MAX + 1), vec![]),
        Err(KeyError::Name)
    ));
    assert!(matches!(
        store.add("b", vec![text(1); KEY_SCOPES_MAX + 1]),
        Err(KeyError::Scope)
    ));
    assert!(matches!(
        store.add("b", vec![text(KEY_SCOPE_BYTES_MAX + 1)]),
        Err(KeyError::Scope)
    ));
    for name in ["", "a b", "ä", "a/b", "a\n"] {
        assert!(
            matches!(store.add(name, vec![]), Err(KeyError::Name)),
            "{name:?}"
        );
    }
    for scope in ["", "a b", "\"", "\\", "ä"] {
        assert!(
            matches!(store.add("b", vec![scope.into()]), Err(KeyError::Scope)),
            "{scope:?}"
        );
    }

    let key = |nth: usize| {
        format!(
            "[[key]]\nname = \"k{nth}\"\nsha256 = \"{}\"\ncreated_unix_s = 1\n",
            "00".repeat(32)
        )
    };
    let many = |keys: usize| format!("version = 1\n{}", (0..keys).map(key).collect::<String>());
    assert!(KeyStore::from_text("k", many(KEYS_IN_FILE_MAX + 1).as_bytes()).is_err());
    fs::write(place.file(), many(KEYS_IN_FILE_MAX)).unwrap();
    assert!(matches!(store.add("one-more", vec![]), Err(KeyError::Full)));
    let padded = |bytes: usize| format!("version = 1\n{}", "#".repeat(bytes - 12));
    assert!(KeyStore::from_text("k", padded(KEY_FILE_BYTES_MAX).as_bytes()).is_ok());
    assert!(KeyStore::from_text("k", padded(KEY_FILE_BYTES_MAX + 1).as_bytes()).is_err());
    fs::write(place.file(), padded(KEY_FILE_BYTES_MAX + 1)).unwrap();
    assert!(KeyStore::load(place.file()).is_err());
}
