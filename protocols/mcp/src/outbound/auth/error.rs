/// Why a request couldn't be authorised. Each variant tells what to do next; none carries a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The token holds characters that no header may: get another.
    #[error("the token can't stand in a header")]
    Token,
}
