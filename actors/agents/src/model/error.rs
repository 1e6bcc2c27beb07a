//! Why a model doesn't open.

/// Why a model can't be made of its configuration. Each variant tells the operator what to change; none holds a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Put the key into that variable of this process.
    #[error("failed to find the key: the environment variable `{variable}` is missing or empty")]
    KeyMissing {
        /// The variable.
        variable: String,
    },
    /// Keys are printable ASCII: see what stands in the variable, for example a line end.
    #[error("failed to use the key in `{variable}`: it has characters that no key has")]
    KeyUnusable {
        /// The variable.
        variable: String,
    },
    /// Name the API by an absolute `http` or `https` URL without user, password or query.
    #[error("failed to read `url`: {0}")]
    Url(&'static str),
    /// Add the setting, or correct it.
    #[error("failed to accept `{setting}`: {rule}")]
    Setting {
        /// Its name in the configuration.
        setting: &'static str,
        /// What it has to be.
        rule: &'static str,
    },
    /// The HTTP client can't be made: the TLS set-up of this machine is broken.
    #[error("failed to make an HTTP client")]
    Client(#[source] reqwest::Error),
}
