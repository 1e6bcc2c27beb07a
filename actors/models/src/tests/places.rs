//! URLs and keys of providers.

use secrecy::SecretString;

use super::super::config::ModelError;
use super::super::config::{ApiEndpoint, ProviderKind};
use super::kit::KEY;
use crate::config::{OpenaiApi, RemoteModelConfig};
use crate::{LanguageModel, ModelConfig};

fn place(kind: ProviderKind, config: RemoteModelConfig) -> Result<ApiEndpoint, ModelError> {
    ApiEndpoint::resolve(kind, &config, &|_| Some(SecretString::from(KEY)))
}

/// Row of a test: provider, configured URL, API, API version, and the resulting URL.
type Row = (
    ProviderKind,
    Option<&'static str>,
    OpenaiApi,
    Option<&'static str>,
    &'static str,
);

/// Goal: each provider is contacted at its URL. Method: rows of provider, configured URL, API, and
/// the resulting URL.
/// Rows: C-5.
#[test]
fn addresses() {
    let rows: [Row; 9] = [
        (
            ProviderKind::Openai,
            None,
            OpenaiApi::Chat,
            None,
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            ProviderKind::Openai,
            None,
            OpenaiApi::Responses,
            None,
            "https://api.openai.com/v1/responses",
        ),
        (
            ProviderKind::Anthropic,
            None,
            OpenaiApi::Chat,
            None,
            "https://api.anthropic.com/v1/messages",
        ),
        (
            ProviderKind::Ollama,
            None,
            OpenaiApi::Chat,
            None,
            "http://127.0.0.1:11434/api/chat",
        ),
        (
            ProviderKind::OpenaiCompatible,
            Some("https://a.b/c/v1/"),
            OpenaiApi::Chat,
            None,
            "https://a.b/c/v1/chat/completions",
        ),
        (
            ProviderKind::OpenaiCompatible,
            Some("http://10.0.0.1/v1"),
            OpenaiApi::Chat,
            None,
            "http://10.0.0.1/v1/chat/completions",
        ),
        (
            ProviderKind::AzureOpenai,
            Some("https://r.openai.azure.com"),
            OpenaiApi::Chat,
            None,
            "https://r.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            ProviderKind::AzureOpenai,
            Some("https://r.openai.azure.com"),
            OpenaiApi::Responses,
            None,
            "https://r.openai.azure.com/openai/v1/responses",
        ),
        (
            ProviderKind::AzureOpenai,
            Some("https://r.openai.azure.com/"),
            OpenaiApi::Chat,
            Some("2024-10-21"),
            "https://r.openai.azure.com/openai/deployments/d%2F1/chat/completions?api-version=2024-10-21",
        ),
    ];
    for (kind, url, api, version, expected) in rows {
        let config = RemoteModelConfig {
            url: url.map(str::to_owned),
            api,
            api_version: version.map(str::to_owned),
            ..RemoteModelConfig::new("d/1")
        };
        assert_eq!(place(kind, config).unwrap().url.as_str(), expected);
    }
}

/// Goal: an invalid URL, or one that would expose the key, is rejected. Method: rows.
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
        let config = RemoteModelConfig {
            url: Some(url.to_owned()),
            ..RemoteModelConfig::new("m")
        };
        assert!(
            matches!(
                place(ProviderKind::Openai, config),
                Err(ModelError::InvalidUrl(_))
            ),
            "{url}"
        );
    }
    assert!(matches!(
        place(ProviderKind::OpenaiCompatible, RemoteModelConfig::new("m")),
        Err(ModelError::InvalidUrl(_))
    ));
    let here = |url: &str| {
        place(
            ProviderKind::Openai,
            RemoteModelConfig {
                url: Some(url.to_owned()),
                ..RemoteModelConfig::new("m")
            },
        )
        .is_ok()
    };
    assert!(
        here("http://localhost:1/v1") && here("http://127.0.0.1:1/v1") && here("http://[::1]:1/v1")
    );
    assert!(!here("http://localhost.example.com/v1"));
    for (kind, config) in [
        (ProviderKind::Openai, RemoteModelConfig::new("")),
        (
            ProviderKind::Openai,
            RemoteModelConfig {
                api_version: Some("1".to_owned()),
                ..RemoteModelConfig::new("m")
            },
        ),
        (
            ProviderKind::Anthropic,
            RemoteModelConfig {
                api: OpenaiApi::Responses,
                ..RemoteModelConfig::new("m")
            },
        ),
    ] {
        assert!(matches!(
            place(kind, config),
            Err(ModelError::InvalidSetting { .. })
        ));
    }
}

/// Goal: a missing, empty or invalid key is reported by its variable. Method: rows; and the
/// environment itself.
#[test]
fn keys_that_are_missing() {
    let with = |key: Option<&str>| {
        let config = RemoteModelConfig {
            key_env: Some("MY_KEY".to_owned()),
            ..RemoteModelConfig::new("m")
        };
        let place = ApiEndpoint::resolve(ProviderKind::Anthropic, &config, &|variable| {
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
    let config = RemoteModelConfig {
        key_env: Some("CALLBOARD_TEST_NO_SUCH_KEY".to_owned()),
        ..RemoteModelConfig::new("m")
    };
    let error = LanguageModel::open(ModelConfig::Openai(config)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to find the API key: the environment variable `CALLBOARD_TEST_NO_SUCH_KEY` is missing or empty"
    );
}
