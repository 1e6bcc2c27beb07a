//! `callboard demo agents`: three agents that find one another.

use super::super::orderly::Stopped;
use super::super::{EXIT_FAILED, show};

/// Runs it.
pub(super) async fn demo() -> Result<u8, Stopped> {
    show::complain("not built yet");
    Ok(EXIT_FAILED)
}
