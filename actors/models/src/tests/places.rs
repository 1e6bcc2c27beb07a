//! Addresses and keys.

use secrecy::SecretString;

use super::super::config::ModelError;
use super::super::config::{Kind, Place};
use super::kit::KEY;
use crate::config::{Api, Remote};
use crate::{Model, ModelConfig};

fn place(kind: Kind, config: Remote) -> Result<Place, ModelError> {
    Place::of(kind, &config, &|_| Some(SecretString::from(KEY)))
}

/// Kind, address given, API, its version, and where requests go.
type Row = (
    Kind,
    Option<&'static str>,
    Api,
    Option<&'static str>,
    &'static str,
);

/// Goal: each provider is asked at its address. Method: rows of kind, address given, API, and where requests go.
#[test]
fn addresses() {
    let rows: [Row; 9] = [
        (
            Kind::Openai,
            None,
            Api::Chat,
            None,
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            Kind::Openai,
            None,
            Api::Responses,
            None,
            "https://api.openai.com/v1/responses",
        ),
        (
            Kind::Anthropic,
            None,
            Api::Chat,
            None,
            "https://api.anthropic.com/v1/messages",
        ),
        (
            Kind::Ollama,
            None,
            Api::Chat,
            None,
            "http://127.0.0.1:11434/api/chat",
        ),
        (
            Kind::OpenaiCompatible,
            Some("https://a.b/c/v1/"),
            Api::Chat,
            None,
            "https://a.b/c/v1/chat/completions",
        ),
        (
            Kind::OpenaiCompatible,
            Some("http://10.0.0.1/v1"),
            Api::Chat,
            None,
            "http://10.0.0.1/v1/chat/completions",
        ),
        (
            Kind::AzureOpenai,
            Some("https://r.openai.azure.com"),
            Api::Chat,
            None,
            "https://r.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            Kind::AzureOpenai,
            Some("https://r.openai.azure.com"),
            Api::Responses,
            None,
            "https://r.openai.azure.com/openai/v1/responses",
        ),
        (
            Kind::AzureOpenai,
            Some("https://r.openai.azure.com/"),
            Api::Chat,
            Some("2024-10-21"),
            "https://r.openai.azure.com/openai/deployments/d%2F1/chat/completions?api-version=2024-10-21",
        ),
    ];
    for (kind, url, api, version, expected) in rows {
        let config = Remote {
            url: url.map(str::to_owned),
            api,
            api_version: version.map(str::to_owned),
            ..Remote::new("d/1")
        };
        assert_eq!(place(kind, config).unwrap().url.as_str(), expected);
    }
}

/// Goal: an address that can't be meant, or would give the key away, is refused. Method: rows.
#[test]
fn addresses_that_are_refused() {
    for url in [
        "a/b",
        "ftp://a/",
        "https://u:p@a/",
        "https://a/?k=1",
        "https://a/#f",
        "http://api.example.com/v1",
    ] {
        let config = Remote {
            url: Some(url.to_owned()),
            ..Remote::new("m")
        };
        assert!(
            matches!(place(Kind::Openai, config), Err(ModelError::Url(_))),
            "{url}"
        );
    }
    assert!(matches!(
        place(Kind::OpenaiCompatible, Remote::new("m")),
        Err(ModelError::Url(_))
    ));
    let here = |url: &str| {
        place(
            Kind::Openai,
            Remote {
                url: Some(url.to_owned()),
                ..Remote::new("m")
            },
        )
        .is_ok()
    };
    assert!(
        here("http://localhost:1/v1") && here("http://127.0.0.1:1/v1") && here("http://[::1]:1/v1")
    );
    assert!(!here("http://localhost.example.com/v1"));
    for (kind, config) in [
        (Kind::Openai, Remote::new("")),
        (
            Kind::Openai,
            Remote {
                api_version: Some("1".to_owned()),
                ..Remote::new("m")
            },
        ),
        (
            Kind::Anthropic,
            Remote {
                api: Api::Responses,
                ..Remote::new("m")
            },
        ),
    ] {
        assert!(matches!(
            place(kind, config),
            Err(ModelError::Setting { .. })
        ));
    }
}

/// Goal: a key that is missing, empty or no header's is told by its variable. Method: rows; and the environment itself.
#[test]
fn keys_that_are_missing() {
    let with = |key: Option<&str>| {
        let config = Remote {
            key_env: Some("MY_KEY".to_owned()),
            ..Remote::new("m")
        };
        let place = Place::of(Kind::Anthropic, &config, &|variable| {
            assert_eq!(variable, "MY_KEY");
            key.map(SecretString::from)
        });
        place.map(|place| place.headers["x-api-key"].is_sensitive())
    };
    assert!(matches!(with(None), Err(ModelError::KeyMissing { variable }) if variable == "MY_KEY"));
    assert!(matches!(with(Some("")), Err(ModelError::KeyMissing { .. })));
    assert!(matches!(
        with(Some("sk\n1")),
        Err(ModelError::KeyUnusable { .. })
    ));
    assert!(with(Some(KEY)).unwrap());
    let config = Remote {
        key_env: Some("CALLBOARD_TEST_NO_SUCH_KEY".to_owned()),
        ..Remote::new("m")
    };
    let error = Model::open(ModelConfig::Openai(config)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to find the key: the environment variable `CALLBOARD_TEST_NO_SUCH_KEY` is missing or empty"
    );
}
