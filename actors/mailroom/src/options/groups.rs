//! Groups of members, as declared and as granted by scopes of their credentials.

use std::collections::BTreeSet;
use std::fmt;

use callboard_message::mail::{MAIL_GROUPS_MAX, MemberId};
use serde::{Deserialize, Serialize};

/// Role, phase and groups of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct GroupSet {
    pub role: Option<String>,
    pub phase: Option<String>,
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// Whether the member is isolated: it sees, and is seen by, only agents that share one of its
    /// named groups, and the Guardian and the operator.
    #[serde(default)]
    pub apart: bool,
}

impl GroupSet {
    /// Parses groups from a credential's scopes: `mail.group:NAME`, `mail.role:NAME`,
    /// `mail.phase:NAME`, and `mail.apart` for isolation. Other scopes, invalid names, and named
    /// groups beyond [`MAIL_GROUPS_MAX`] are ignored.
    pub fn from_scopes(scopes: &[String]) -> Self {
        let mut place = Self::default();
        for scope in scopes {
            let Some(grant) = scope.strip_prefix("mail.") else {
                continue;
            };
            match grant.split_once(':') {
                None => place.apart |= grant == "apart",
                Some((_, name)) if MemberId::parse(name).is_err() => {}
                Some(("role", name)) => place.role = Some(name.to_owned()),
                Some(("phase", name)) => place.phase = Some(name.to_owned()),
                Some(("group", name)) if place.groups.len() < MAIL_GROUPS_MAX => {
                    place.groups.insert(name.to_owned());
                }
                Some(_) => {}
            }
        }
        place
    }

    /// Returns the union of both sets. Role and phase are those of `over` if it has them. At most
    /// [`MAIL_GROUPS_MAX`] named groups are kept. The union is isolated if one of the sets is.
    pub fn merged_with(&self, over: &Self) -> Self {
        Self {
            role: over.role.as_ref().or(self.role.as_ref()).cloned(),
            phase: over.phase.as_ref().or(self.phase.as_ref()).cloned(),
            groups: self
                .groups
                .union(&over.groups)
                .take(MAIL_GROUPS_MAX)
                .cloned()
                .collect(),
            apart: self.apart || over.apart,
        }
    }

    /// Returns whether members with these groups see each other: neither is isolated, or they share
    /// a named group.
    pub fn sees(&self, other: &Self) -> bool {
        (!self.apart && !other.apart) || !self.groups.is_disjoint(&other.groups)
    }

    /// Iterates over the named groups, the role and the phase, each as a [`Group`].
    pub fn iter_groups(&self) -> impl Iterator<Item = Group> + '_ {
        let groups = self.groups.iter().cloned().map(Group::Named);
        let role = self.role.iter().cloned().map(Group::Role);
        groups
            .chain(role)
            .chain(self.phase.iter().cloned().map(Group::Phase))
    }

    pub fn is_in(&self, group: &Group) -> bool {
        match group {
            Group::Named(name) => self.groups.contains(name),
            Group::Role(name) => self.role.as_ref() == Some(name),
            Group::Phase(name) => self.phase.as_ref() == Some(name),
        }
    }
}

/// A group by its name: `group:NAME`, `role:NAME` or `phase:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Named(String),
    Role(String),
    Phase(String),
}

impl Group {
    /// Parses a group; a bare name means `group:NAME`. Returns `None` for another prefix, or a name
    /// that isn't valid as a [`MemberId`].
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':').unwrap_or(("group", text));
        let name = MemberId::parse(name).ok()?.to_string();
        match kind {
            "group" => Some(Self::Named(name)),
            "role" => Some(Self::Role(name)),
            "phase" => Some(Self::Phase(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "group:{name}"),
            Self::Role(name) => write!(f, "role:{name}"),
            Self::Phase(name) => write!(f, "phase:{name}"),
        }
    }
}

/// Returns a group's name for display: `group:NAME` without `group:`, `role:NAME` and `phase:NAME`
/// unchanged.
pub(crate) fn audience_name(audience: &str) -> &str {
    audience.strip_prefix("group:").unwrap_or(audience)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(of: &[&str]) -> GroupSet {
        GroupSet::from_scopes(&of.iter().map(|&scope| scope.to_owned()).collect::<Vec<_>>())
    }

    /// Goal: only valid scopes assign groups. Method: one of each, invalid names, and a group too
    /// many.
    #[test]
    fn scopes_say_where() {
        let place = scopes(&[
            "mail.role:reviewer",
            "mail.phase:2",
            "mail.group:red",
            "mail.apart",
            "read",
            "mail.watch",
        ]);
        assert_eq!(
            place
                .iter_groups()
                .map(|group| group.to_string())
                .collect::<Vec<_>>(),
            ["group:red", "role:reviewer", "phase:2"]
        );
        assert!(place.apart);
        assert_eq!(
            scopes(&[
                "mail.role:a b",
                "mail.group:",
                "mail.group",
                "mail.other:x",
                "role:x"
            ]),
            GroupSet::default()
        );
        let many: Vec<String> = (0..=MAIL_GROUPS_MAX)
            .map(|n| format!("mail.group:{n}"))
            .collect();
        assert_eq!(GroupSet::from_scopes(&many).groups.len(), MAIL_GROUPS_MAX);
    }

    /// Goal: an isolated member is visible to its groups only, in both directions. Method: each
    /// pair of four.
    /// Rows: X-45.
    #[test]
    fn who_sees_whom() {
        let all = [
            scopes(&[]),
            scopes(&["mail.group:a"]),
            scopes(&["mail.group:a", "mail.apart"]),
            scopes(&["mail.apart"]),
        ];
        let seen: Vec<Vec<bool>> = all
            .iter()
            .map(|one| all.iter().map(|other| one.sees(other)).collect())
            .collect();
        assert_eq!(
            seen,
            [
                vec![true, true, false, false],
                vec![true, true, true, false],
                vec![false, true, true, false],
                vec![false, false, false, false],
            ]
        );
    }

    /// Goal: a group's name can be parsed and written. Method: each kind, a bare name, and invalid
    /// ones.
    #[test]
    fn names() {
        for text in ["group:a", "role:b", "phase:3"] {
            assert_eq!(Group::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Group::parse("a"), Some(Group::Named("a".into())));
        assert!(
            ["", "group:", "team:a", "a:b:c", "a b"]
                .iter()
                .all(|text| Group::parse(text).is_none())
        );
        assert_eq!(
            [audience_name("group:a"), audience_name("role:a")],
            ["a", "role:a"]
        );
    }
}
