//! Where a node keeps what must last (`[store]`).

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_store::{Retention, StoreError, StoreOptions, WRITER_NAME_BYTES_MAX};
use secrecy::SecretString;
use serde::Deserialize;

use super::Section;
use crate::config::problem::{Problems, is_set};
use crate::config::tree::Tree;
use crate::config::{Names, SECONDS_A_DAY};

/// The `url` of a store that lasts as long as the process.
pub const IN_MEMORY: &str = "memory";
/// What the file of a node's store is called, after the node's name.
const FILE_ENDING: &str = ".journal.sqlite";
/// The audit's key, in the state directory, of a store that is no file there.
const AUDIT_KEY_DEFAULT: &str = "audit.key";
const MIB: u64 = 1024 * 1024;

/// A node's store (`[store]`). Without one `serve` keeps in a file of the state directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreDeclaration {
    /// `sqlite:FILE` (relative to the state directory), `postgres://USER@HOST/DATABASE?sslmode=verify-full`, or `memory`.
    pub url: Option<String>,
    /// The variable that holds the password of a Postgres store.
    pub password_env: Option<String>,
    /// Who writes, in leases and as the name of the audit's chain. By default the node's name; two nodes on one Postgres
    /// need two.
    pub writer: Option<String>,
    /// The size at which the store refuses what isn't a deletion, in MiB.
    pub size_max_mib: Option<NonZeroU64>,
    /// What crosses the node's boundaries and is put on record.
    pub audit: Audited,
    /// The file with the audit's key, relative to the state directory.
    pub audit_key: Option<PathBuf>,
    /// Makes a new audit key where the old one is lost. To be taken out of the file again.
    pub audit_key_new: bool,
    /// For how long what has ended is kept.
    pub retention: RetentionDeclaration,
}

/// What is in a node's audit, beside what its agents put there (`[store] audit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audited {
    /// Every message that crosses a boundary, every reply and question, and what decisions has: a gateway's call then costs
    /// three times the CPU.
    All,
    /// What a policy refused, and what a person agreed to.
    #[default]
    Decisions,
}

/// For how many days what has ended is kept (`[store.retention]`); 0: it goes at the next cleaning.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionDeclaration {
    /// Tasks, from their end.
    pub tasks_days: Option<u32>,
    /// The bodies of inbox entries, from their reading.
    pub inbox_days: Option<u32>,
    /// Audit entries, up to a checkpoint.
    pub audit_days: Option<u32>,
    /// Records of streams.
    pub streams_days: Option<u32>,
}

impl RetentionDeclaration {
    fn retention(self) -> Retention {
        let default = Retention::default();
        let days = |days: Option<u32>, default| {
            days.map(|days| Duration::from_secs(u64::from(days) * SECONDS_A_DAY))
                .or(default)
        };
        Retention {
            tasks: days(self.tasks_days, default.tasks),
            inbox: days(self.inbox_days, default.inbox),
            audit: days(self.audit_days, default.audit),
            streams: days(self.streams_days, default.streams),
        }
    }
}

impl StoreDeclaration {
    /// One that lasts as long as the process.
    pub(crate) fn in_memory() -> Self {
        Self {
            url: Some(IN_MEMORY.to_owned()),
            ..Self::default()
        }
    }

    /// How the store of the node `name` is opened, whose state is in `state`. `None`: it is in memory.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub(crate) fn options(
        &self,
        name: &str,
        state: &Path,
    ) -> Result<Option<StoreOptions>, StoreError> {
        let password = self
            .password_env
            .as_deref()
            .and_then(|name| std::env::var(name).ok())
            .map(SecretString::from);
        let options = match self.url.as_deref() {
            Some(IN_MEMORY) => return Ok(None),
            Some(url) => StoreOptions::parse(url, state, password)?,
            None => StoreOptions::sqlite(state.join(plain(name) + FILE_ENDING)),
        };
        let options = options.writer(self.writer.clone().unwrap_or_else(|| plain(name)));
        let options = options
            .retention(self.retention.retention())
            .audit_key_new(self.audit_key_new);
        let options = match (&self.audit_key, self.is_file()) {
            (Some(key), _) => options.audit_key(state.join(key)),
            (None, false) => options.audit_key(state.join(AUDIT_KEY_DEFAULT)),
            // Beside the file.
            (None, true) => options,
        };
        Ok(Some(match self.size_max_mib {
            Some(mib) => options.size_max(mib.get().saturating_mul(MIB)),
            None => options,
        }))
    }

    fn is_file(&self) -> bool {
        self.url
            .as_deref()
            .is_none_or(|url| url.starts_with("sqlite:"))
    }

    /// The folder of its file, where that doesn't depend on the state directory.
    fn folder(&self) -> Option<&Path> {
        let file = self.url.as_deref()?.strip_prefix("sqlite:")?;
        Path::new(file.strip_prefix("//").unwrap_or(file))
            .parent()
            .filter(|folder| folder.is_absolute())
    }
}

/// A node's name as a file and a writer can be called.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut plain = String::new();
    for c in name.chars().map(|c| if is_plain(c) { c } else { '_' }) {
        if plain.len() + c.len_utf8() > WRITER_NAME_BYTES_MAX {
            break;
        }
        plain.push(c);
    }
    if plain.is_empty() {
        "node".to_owned()
    } else {
        plain
    }
}

impl Section for StoreDeclaration {
    fn check(&self, tree: &Tree, _: &Names<'_>, problems: &mut Problems<'_>) {
        let url = self.url.as_deref().filter(|url| *url != IN_MEMORY);
        if let Some(Err(error)) = url.map(|url| StoreOptions::parse(url, Path::new(""), None))
            && let Some(span) = tree.place("url")
        {
            let help =
                "write `sqlite:FILE`, `postgres://USER@HOST/DATABASE?sslmode=verify-full` or `memory`".to_owned();
            problems.error_with(Some(span), error.to_string(), Some(help));
        }
        let is_in_memory = self.url.as_deref() == Some(IN_MEMORY);
        for key in [
            "writer",
            "size_max_mib",
            "audit",
            "audit_key",
            "audit_key_new",
            "retention",
        ] {
            if is_in_memory && tree.get(key).is_some() {
                problems.error(
                    tree.key_span(key),
                    format!("`{key}` has no use: a store in memory ends with the node"),
                );
            }
        }
        if tree.get("password_env").is_some() && (is_in_memory || self.is_file()) {
            problems.error(
                tree.key_span("password_env"),
                "`password_env` is for a store in Postgres",
            );
        }
        if let Some(writer) = &self.writer
            && (writer.is_empty()
                || writer.len() > WRITER_NAME_BYTES_MAX
                || writer.contains(['#', '\0', '\n']))
            && let Some(span) = tree.place("writer")
        {
            let message = format!(
                "`writer` must have 1 to {WRITER_NAME_BYTES_MAX} bytes, and no `#` or line break"
            );
            problems.error(Some(span), message);
        }
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        self.password_env
            .iter()
            .for_each(|name| is_set(name, tree.place("password_env"), problems));
        // A file without a name: nothing is left of it. A folder that isn't there yet is made in the one above.
        let there = self
            .folder()
            .and_then(|folder| folder.ancestors().find(|folder| folder.exists()));
        if let Some(folder) = there.filter(|folder| tempfile::tempfile_in(folder).is_err()) {
            problems.error(
                tree.place("url"),
                format!("{} can't be written to", folder.display()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{StoreDeclaration, plain};

    /// Goal: a node's name is never a way out of its folder. Method: names, and what becomes of them.
    #[test]
    fn names_are_plain() {
        for (name, expected) in [
            ("clinic_a", "clinic_a"),
            ("../a/b", ".._a_b"),
            ("a#1\n", "a_1_"),
            ("", "node"),
        ] {
            assert_eq!(plain(name), expected);
        }
        assert!(plain(&"é".repeat(100)).len() <= super::WRITER_NAME_BYTES_MAX);
    }

    /// Goal: paths are the state directory's, and memory is no store. Method: each kind of `url`.
    #[test]
    fn where_it_is() {
        let at = |url: Option<&str>| {
            let store = StoreDeclaration {
                url: url.map(str::to_owned),
                ..StoreDeclaration::default()
            };
            store
                .options("n", Path::new("/state"))
                .unwrap()
                .map(|options| options.place())
        };
        assert_eq!(at(None).unwrap(), "/state/n.journal.sqlite");
        assert_eq!(at(Some("sqlite:x.sqlite")).unwrap(), "/state/x.sqlite");
        assert_eq!(at(Some("sqlite:///var/x.sqlite")).unwrap(), "/var/x.sqlite");
        assert_eq!(
            at(Some("postgres://u@localhost/db")).unwrap(),
            "postgres://localhost/db"
        );
        assert_eq!(at(Some("memory")), None);
    }
}
