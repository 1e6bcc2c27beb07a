//! The node's store: opened before the first agent, closed after the last.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use callboard_runtime::System;
use callboard_store::{SqlStore, StoreError};

use super::NodeError;
use crate::config::{StoreDeclaration, Topology};

/// How long what the audit has waiting may take to be kept at the end.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(5);

/// What a node without `[store]` keeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undeclared {
    /// A file in the state directory.
    File,
    /// Memory.
    Memory,
}

/// Opens what is declared and makes it the system's. `None`: the store is in memory.
pub(super) async fn open(
    system: &System,
    topology: &Topology,
    state: &Path,
    undeclared: Undeclared,
) -> Result<Option<SqlStore>, NodeError> {
    let declared = match (&topology.store, undeclared) {
        (Some(declared), _) => declared,
        (None, Undeclared::File) => &StoreDeclaration::default(),
        (None, Undeclared::Memory) => return Ok(None),
    };
    let Some(options) = declared.options(&topology.name, state)? else { return Ok(None) };
    let opened = SqlStore::open(&options).await?;
    if let Err(error) = system.keep_in(opened.store()) {
        opened.close().await;
        return Err(error.into());
    }
    tracing::info!(place = options.place(), run = opened.run(), "the store is open");
    Ok(Some(opened))
}

/// Keeps what the audit has waiting, then lets others have the store.
pub(super) async fn close(system: &System, opened: Option<SqlStore>) {
    let Some(opened) = opened else { return };
    if tokio::time::timeout(AUDIT_FLUSH_MAX, system.audit().flush()).await.is_err() {
        tracing::error!("the store didn't keep the last entries of the audit");
    }
    opened.close().await;
}

/// An error with what is behind it: a database's own words are in its source.
pub(crate) fn in_full(error: &StoreError) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !said.contains(&words) {
            said.push_str(": ");
            said.push_str(&words);
        }
        source = error.source();
    }
    said
}
