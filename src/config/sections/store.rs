//! Declaration of a node's persistent store (`[store]`).

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_store::{Retention, StoreError, StoreOptions, WRITER_NAME_BYTES_MAX};
use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::ProblemCollector;
use crate::config::secret::{check_secret, read_secret};
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, SECONDS_PER_DAY};

/// Value of `url` for a store in memory, which ends with the process.
pub const IN_MEMORY_URL: &str = "memory";
/// Suffix of the store's default file name, after the node's name.
const STORE_FILE_SUFFIX: &str = ".journal.sqlite";
/// Default file name of the audit key in the state directory, for stores without a file there.
const AUDIT_KEY_DEFAULT: &str = "audit.key";
const MIB: u64 = 1024 * 1024;

/// A node's store (`[store]`). Default: a SQLite file in the state directory.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreDeclaration {
    /// Location of the store: `sqlite:FILE` (relative to the state directory),
    /// `postgres://USER@HOST/DATABASE?sslmode=verify-full`, or `memory`.
    pub url: Option<String>,
    /// Environment variable with the password of a Postgres store.
    pub password_env: Option<String>,
    /// Writer name in leases and in the audit chain. Default: the node's name. Two nodes on one
    /// Postgres store need different names.
    pub writer: Option<String>,
    /// Size in MiB beyond which the store rejects writes, except those that free space, or that end
    /// and record running work. Default: 1,024.
    pub size_max_mib: Option<NonZeroU64>,
    /// Maximum MiB of one owner's tasks, and of one sender's mail, once the store is half full.
    /// Default: a quarter of `size_max_mib`.
    pub owner_bytes_max_mib: Option<NonZeroU64>,
    /// Days by which the system clock may be ahead of the last time known, 7 by default. Beyond it,
    /// the cleanup doesn't use the clock. Raise it for one start after a longer rest.
    pub clock_jump_max_days: Option<NonZeroU32>,
    /// Messages recorded in the audit.
    pub audit: AuditScope,
    /// Maximum MiB of the audit's lines about calls; the oldest are removed then. Default: an eighth of
    /// `size_max_mib`.
    pub audit_calls_max_mib: Option<NonZeroU64>,
    /// File of the audit signing key, relative to the state directory.
    pub audit_key: Option<PathBuf>,
    /// Whether to create a new audit key if the old one is lost. Remove it from the file after one
    /// start.
    pub audit_key_new: bool,
    /// Retention of completed records.
    pub retention: RetentionDeclaration,
}

/// Messages recorded in a node's audit (`[store] audit`), in addition to entries of its agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditScope {
    /// Every message, reply and question that crosses a boundary, and all that `Decisions` records.
    /// A gateway's call takes three times the CPU.
    All,
    /// A line for each call: who called which tool, with its outcome; and all that `Decisions` records.
    #[default]
    Calls,
    /// Rejections by a policy, and consents of a person.
    Decisions,
}

/// Retention of completed records in days (`[store.retention]`). 0 deletes a record at the next
/// cleanup.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionDeclaration {
    /// Retention of tasks, from their end. Default: 7.
    pub tasks_days: Option<u32>,
    /// Retention of mail bodies, from reading by the last recipient or from expiry. Default: 30.
    pub mail_days: Option<u32>,
    /// Retention of audit entries, which are removed up to a signed checkpoint. Default: 365.
    pub audit_days: Option<u32>,
    /// Retention of journal records, for example mail events. Default: 30.
    pub streams_days: Option<u32>,
}

impl RetentionDeclaration {
    fn to_retention(self) -> Retention {
        let default = Retention::default();
        let days = |days: Option<u32>, default| {
            days.map(|days| Duration::from_secs(u64::from(days) * SECONDS_PER_DAY))
                .or(default)
        };
        Retention {
            tasks: days(self.tasks_days, default.tasks),
            mail_bodies: days(self.mail_days, default.mail_bodies),
            audit: days(self.audit_days, default.audit),
            streams: days(self.streams_days, default.streams),
        }
    }
}

impl StoreDeclaration {
    /// Returns a store in memory.
    pub(crate) fn in_memory() -> Self {
        Self {
            url: Some(IN_MEMORY_URL.to_owned()),
            ..Self::default()
        }
    }

    /// Returns the options to open the store of the node `name` with state directory `state`;
    /// `None` for a store in memory.
    ///
    /// # Errors
    /// [`StoreError::Url`] if `url` is invalid.
    pub(crate) fn store_options(
        &self,
        name: &str,
        state: &Path,
    ) -> Result<Option<StoreOptions>, StoreError> {
        let password = self.password_env.as_deref().and_then(|place| {
            let read = read_secret(place);
            read.inspect_err(|why| tracing::error!(why, "the store gets no password"))
                .ok()
        });
        let options = match self.url.as_deref() {
            Some(IN_MEMORY_URL) => return Ok(None),
            Some(url) => StoreOptions::parse(url, state, password)?,
            None => StoreOptions::sqlite(state.join(sanitized_name(name) + STORE_FILE_SUFFIX)),
        };
        let options = options.writer(self.writer.clone().unwrap_or_else(|| sanitized_name(name)));
        let options = options
            .retention(self.retention.to_retention())
            .audit_key_new(self.audit_key_new);
        let options = match (&self.audit_key, self.is_file()) {
            (Some(key), _) => options.audit_key(state.join(key)),
            (None, false) => options.audit_key(state.join(AUDIT_KEY_DEFAULT)),
            // The default: beside the store's file.
            (None, true) => options,
        };
        let options = match self.clock_jump_max_days {
            Some(days) => {
                let seconds = u64::from(days.get()) * SECONDS_PER_DAY;
                options.clock_jump_max(Duration::from_secs(seconds))
            }
            None => options,
        };
        let options = match self.owner_bytes_max_mib {
            Some(mib) => options.owner_bytes_max(mib.get().saturating_mul(MIB)),
            None => options,
        };
        let options = match self.audit_calls_max_mib {
            Some(mib) => options.audit_calls_bytes_max(mib.get().saturating_mul(MIB)),
            None => options,
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

    /// Returns the folder of the store's file, if its path is absolute.
    fn absolute_folder(&self) -> Option<&Path> {
        let file = self.url.as_deref()?.strip_prefix("sqlite:")?;
        Path::new(file.strip_prefix("//").unwrap_or(file))
            .parent()
            .filter(|folder| folder.is_absolute())
    }
}

/// Returns a node's name as a valid file and writer name.
fn sanitized_name(name: &str) -> String {
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

impl SectionDeclaration for StoreDeclaration {
    fn check(&self, tree: &ConfigTree, _: &DeclaredNames<'_>, problems: &mut ProblemCollector<'_>) {
        let url = self.url.as_deref().filter(|url| *url != IN_MEMORY_URL);
        if let Some(Err(error)) = url.map(|url| StoreOptions::parse(url, Path::new(""), None))
            && let Some(span) = tree.span_of("url")
        {
            let help =
                "write `sqlite:FILE`, `postgres://USER@HOST/DATABASE?sslmode=verify-full` or `memory`".to_owned();
            problems.error_with(Some(span), error.to_string(), Some(help));
        }
        let is_in_memory = self.url.as_deref() == Some(IN_MEMORY_URL);
        for key in [
            "writer",
            "size_max_mib",
            "clock_jump_max_days",
            "owner_bytes_max_mib",
            "audit",
            "audit_key",
            "audit_key_new",
            "retention",
        ] {
            if is_in_memory && tree.is_set(key) {
                problems.error(
                    tree.key_span(key),
                    format!("`{key}` has no effect: a store in memory ends with the node"),
                );
            }
        }
        if tree.is_set("password_env") && (is_in_memory || self.is_file()) {
            problems.error(
                tree.key_span("password_env"),
                "`password_env` is for a store in Postgres",
            );
        }
        if let Some(writer) = &self.writer
            && (writer.is_empty()
                || writer.len() > WRITER_NAME_BYTES_MAX
                || writer.contains(['#', '\0', '\n']))
            && let Some(span) = tree.span_of("writer")
        {
            let message = format!(
                "`writer` must have 1 to {WRITER_NAME_BYTES_MAX} bytes, and no `#` or line break"
            );
            problems.error(Some(span), message);
        }
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        self.password_env
            .iter()
            .for_each(|name| check_secret(name, tree.span_of("password_env"), problems));
        // The probe file has no name, so nothing remains. A missing folder is created in its
        // nearest existing parent.
        let there = self
            .absolute_folder()
            .and_then(|folder| folder.ancestors().find(|folder| folder.exists()));
        if let Some(folder) = there.filter(|folder| tempfile::tempfile_in(folder).is_err()) {
            problems.error(
                tree.span_of("url"),
                format!("the folder {} can't be written to", folder.display()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{StoreDeclaration, sanitized_name};

    /// Goal: a node's name is never a way out of its folder. Method: names, and what becomes of them.
    #[test]
    fn names_are_plain() {
        for (name, expected) in [
            ("clinic_a", "clinic_a"),
            ("../a/b", ".._a_b"),
            ("a#1\n", "a_1_"),
            ("", "node"),
        ] {
            assert_eq!(sanitized_name(name), expected);
        }
        assert!(sanitized_name(&"é".repeat(100)).len() <= super::WRITER_NAME_BYTES_MAX);
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
                .store_options("n", Path::new("/state"))
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
        assert_eq!(
            at(Some("postgres://u@127.0.0.1:5433/db?sslmode=disable")).unwrap(),
            "postgres://127.0.0.1:5433/db"
        );
        assert_eq!(at(Some("memory")), None);
    }
}
