use std::fs;
use std::path::{Path, PathBuf};

use callboard_message::PrincipalKind;
use callboard_rpc::KeyStore;
use secrecy::ExposeSecret;
use tempfile::TempDir;

/// Environment variable with the folder that [`write_fixture`] writes to.
const FOLDER: &str = "CALLBOARD_FIXTURE";
/// Files of a fixture: a key file with one valid and one revoked key, and both keys in clear, one a
/// line.
const FILES: [&str; 2] = ["keys.toml", "keys.txt"];

/// Goal: keys of an earlier version are still valid in every later one, revoked ones are not, and
/// keys can be added to the file. Method: the key files of every version.
#[test]
fn earlier_key_files_are_gone_on_with() {
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/upgrade");
    let mut versions: Vec<_> = fs::read_dir(versions)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!versions.is_empty());
    versions.sort();
    for version in versions {
        let folder = TempDir::new().unwrap();
        let [text, keys] = FILES.map(|name| fs::read_to_string(version.join(name)).unwrap());
        // With the permissions of a key file, which a clone does not preserve.
        let file = folder.path().join("keys.toml");
        drop(
            KeyStore::load_or_new(&file)
                .unwrap()
                .add("first", Vec::new())
                .unwrap(),
        );
        fs::write(&file, text).unwrap();
        let [given, revoked] = keys.lines().collect::<Vec<_>>()[..] else {
            panic!("{keys}")
        };
        let mut store = KeyStore::load(&file).unwrap();
        let principal = store.verify(given.as_bytes()).unwrap();
        assert_eq!(
            (&*principal.id, principal.kind),
            ("alice", PrincipalKind::ApiKey)
        );
        assert_eq!(principal.scopes, ["agents:ask"]);
        assert_eq!(store.verify(revoked.as_bytes()), None);
        let listed: Vec<_> = store
            .list()
            .iter()
            .map(|key| (key.name.as_str(), key.is_revoked()))
            .collect();
        assert_eq!(listed, [("alice", false), ("bob", true)]);

        let added = store.add("carol", Vec::new()).unwrap();
        let store = KeyStore::load(&file).unwrap();
        for key in [given, added.expose_secret()] {
            assert!(
                store.verify(key.as_bytes()).is_some(),
                "{}",
                version.display()
            );
        }
    }
}

/// Writes the fixture of this version: `cargo xtask fixture`.
#[test]
#[ignore = "writes a fixture for later versions: cargo xtask fixture"]
fn write_fixture() {
    let Ok(folder) = std::env::var(FOLDER).map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).unwrap();
    let [file, keys] = FILES.map(|name| folder.join(name));
    let mut store = KeyStore::load_or_new(file).unwrap();
    let given = store.add("alice", vec!["agents:ask".to_owned()]).unwrap();
    let revoked = store.add("bob", Vec::new()).unwrap();
    store.revoke("bob").unwrap();
    fs::remove_file(folder.join("keys.toml.lock")).unwrap();
    fs::write(
        keys,
        format!("{}\n{}\n", given.expose_secret(), revoked.expose_secret()),
    )
    .unwrap();
}
