//! Renamed keys of a topology. An old name is accepted for one release, with a warning that names the new one.

use std::ops::Range;

use super::problem::ProblemCollector;
use super::tree::{ConfigTree, ConfigValue, PathStep};

/// Advice beside each warning.
const OLD_NAME_HELP: &str = "this release is the last that reads the old name";

/// Renaming of one key of one table.
struct RenamedKey {
    /// Path of the table: `[]` is each item of a list, `[KIND]` each of that `kind`, `{}` each member of a table.
    table: &'static str,
    old: &'static str,
    new: &'static str,
    /// Values that changed with the key. Others are taken over as they are, unless `is_by_value`.
    values: &'static [(&'static str, NewValue)],
    /// Renamed for `values` only: with any other the key keeps its name.
    is_by_value: bool,
    /// Accepted without a warning, for files that another program wrote.
    is_alias: bool,
}

/// Value under the new name, as it is written in TOML.
enum NewValue {
    Text(&'static str),
    List(&'static [&'static str]),
    /// The default, which may be written as this text.
    Default(&'static str),
}

const RENAMED_KEYS: [RenamedKey; 17] = [
    RenamedKey::new("store.retention", "inbox_days", "mail_days"),
    RenamedKey::new("upstream[]", "set", "env"),
    RenamedKey::new("upstream[]", "environment", "env_passthrough"),
    RenamedKey::new("upstream[]", "directory", "working_directory"),
    RenamedKey::new("external_mcp.servers{}", "set", "env"),
    RenamedKey::new("external_mcp.servers{}", "environment", "env_passthrough"),
    RenamedKey::new("external_mcp.servers{}", "directory", "working_directory"),
    RenamedKey::new(
        "agent[orchestrator].command",
        "directory",
        "working_directory",
    ),
    RenamedKey::new("agent[orchestrator]", "directory", "registry"),
    RenamedKey::new("agent[mailroom]", "example_ids", "short_ids"),
    RenamedKey::new(
        "agent[mailroom].member[]",
        "apart",
        "exclude_from_broadcast",
    ),
    RenamedKey::new("listener[]", "list_anonymous", "anonymous_task_listing"),
    RenamedKey::new("listener[]", "repeat_s", "idempotency_window_s"),
    RenamedKey {
        values: &[
            ("loopback_operator", NewValue::Text("operator")),
            // With `keys`, and beyond loopback addresses, `anonymous` required a key: there it means the default.
            ("anonymous", NewValue::Default("guest")),
        ],
        ..RenamedKey::new("listener[]", "trust", "anonymous")
    },
    RenamedKey {
        values: &[("bare", NewValue::List(&["bare"]))],
        is_by_value: true,
        ..RenamedKey::new("listener[]", "dialect", "compat")
    },
    RenamedKey {
        is_alias: true,
        ..RenamedKey::new("routing{}", "fallback_to_magictunnel", "fallback_to_models")
    },
    RenamedKey {
        is_alias: true,
        ..RenamedKey::new(
            "external_mcp.external_routing{}",
            "fallback_to_magictunnel",
            "fallback_to_models",
        )
    },
];

/// Gives renamed keys their new names in the tree of a whole file. Reports old names, and keys that stand under both.
pub(super) fn rename_keys(root: &mut ConfigTree, problems: &mut ProblemCollector<'_>) {
    for key in &RENAMED_KEYS {
        let path: Vec<_> = key.table.split('.').collect();
        for_each_table(root, &path, &mut |table| key.rename(table, problems));
    }
}

impl RenamedKey {
    const fn new(table: &'static str, old: &'static str, new: &'static str) -> Self {
        Self {
            table,
            old,
            new,
            values: &[],
            is_by_value: false,
            is_alias: false,
        }
    }

    fn rename(&self, table: &mut ConfigTree, problems: &mut ProblemCollector<'_>) {
        let Some(written) = table.get(self.old) else {
            return;
        };
        let changed = self
            .values
            .iter()
            .find(|(old, _)| written.text() == Some(*old));
        if self.is_by_value && changed.is_none() {
            return;
        }
        let has_both = table.get(self.new).is_some();
        let Some((mut key, mut value)) = table.take(self.old) else {
            return;
        };
        let message = match changed {
            Some((old, new)) => format!(
                "`{} = \"{old}\"` is now `{} = {}`",
                self.old,
                self.new,
                new.as_toml()
            ),
            None => format!("`{}` is now `{}`", self.old, self.new),
        };
        if has_both {
            let help = format!("write `{}` only", self.new);
            problems.error_with(
                Some(key.span),
                format!(
                    "`{}` and `{}` can't both be set: {message}",
                    self.old, self.new
                ),
                Some(help),
            );
            return;
        }
        if !self.is_alias {
            problems.warning_with(
                Some(key.span.clone()),
                message,
                Some(OLD_NAME_HELP.to_owned()),
            );
        }
        if let Some((_, new)) = changed {
            value.value = new.to_value(&value.span);
        }
        self.new.clone_into(&mut key.name);
        if let ConfigValue::Table(members) = &mut table.value {
            members.push((key, value));
        }
    }
}

impl NewValue {
    fn as_toml(&self) -> String {
        match self {
            Self::Text(text) | Self::Default(text) => format!("\"{text}\""),
            Self::List(items) => format!("[\"{}\"]", items.join("\", \"")),
        }
    }

    fn to_value(&self, span: &Range<usize>) -> ConfigValue {
        let text =
            |text: &&str| ConfigTree::new(span.clone(), ConfigValue::Text((*text).to_owned()));
        match self {
            Self::Text(text) => ConfigValue::Text((*text).to_owned()),
            Self::List(items) => ConfigValue::List(items.iter().map(text).collect()),
            Self::Default(_) => ConfigValue::Null,
        }
    }
}

/// Visits each table that a path leads to. A path that leads nowhere is none.
fn for_each_table(tree: &mut ConfigTree, path: &[&str], visit: &mut dyn FnMut(&mut ConfigTree)) {
    let Some((step, rest)) = path.split_first() else {
        return visit(tree);
    };
    let name = step.split(['[', '{']).next().unwrap_or_default();
    let kind = step
        .split_once('[')
        .map(|(_, kind)| kind.trim_end_matches(']'));
    let Some(child) = tree.child_mut(&PathStep::Key(name.to_owned())) else {
        return;
    };
    match &mut child.value {
        ConfigValue::List(items) => {
            let is_kind =
                |item: &ConfigTree, kind| item.get("kind").and_then(ConfigTree::text) == Some(kind);
            let of_kind = |item: &&mut ConfigTree| {
                kind.is_some_and(|kind| kind.is_empty() || is_kind(item, kind))
            };
            items
                .iter_mut()
                .filter(of_kind)
                .for_each(|item| for_each_table(item, rest, visit));
        }
        ConfigValue::Table(members) if step.ends_with("{}") => {
            members
                .iter_mut()
                .for_each(|(_, member)| for_each_table(member, rest, visit));
        }
        ConfigValue::Table(_) if kind.is_none() => for_each_table(child, rest, visit),
        _ => {}
    }
}
