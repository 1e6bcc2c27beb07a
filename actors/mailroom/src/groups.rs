//! Groups of members: the place of each, from its declaration and its credential's scopes, and their names.

use std::collections::BTreeSet;
use std::fmt;

use callboard_message::mail::{MAIL_GROUPS_MAX, MailId};
use serde::{Deserialize, Serialize};

/// Role, phase and groups of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    pub role: Option<String>,
    pub phase: Option<String>,
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// It isn't among everyone.
    #[serde(default)]
    pub apart: bool,
}

impl Place {
    /// Place that the scopes of a credential name. Names that can't be any are passed over.
    pub fn of_scopes(scopes: &[String]) -> Self {
        let mut place = Self::default();
        for scope in scopes {
            let Some(said) = scope.strip_prefix("mail.") else {
                continue;
            };
            match said.split_once(':') {
                None => place.apart |= said == "apart",
                Some((_, name)) if MailId::parse(name).is_err() => {}
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

    /// Both; where they say different things, `over`.
    pub fn with(&self, over: &Self) -> Self {
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

    /// Whether two that are in these places see each other.
    pub fn sees(&self, other: &Self) -> bool {
        (!self.apart && !other.apart) || !self.groups.is_disjoint(&other.groups)
    }

    /// Every group that it is in but everyone.
    pub fn all(&self) -> impl Iterator<Item = Group> + '_ {
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
pub(super) enum Group {
    Named(String),
    Role(String),
    Phase(String),
}

impl Group {
    /// Reads one; a bare name is a group's.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':').unwrap_or(("group", text));
        let name = MailId::parse(name).ok()?.to_string();
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

/// A group's name in a prefix: what was said to `group:NAME` is said to `NAME`.
pub(super) fn shown(audience: &str) -> &str {
    audience.strip_prefix("group:").unwrap_or(audience)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(of: &[&str]) -> Place {
        Place::of_scopes(&of.iter().map(|&scope| scope.to_owned()).collect::<Vec<_>>())
    }

    /// Goal: only what a scope says plainly puts somebody into a group. Method: one of each, names that can't be any, and a
    /// group too many.
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
                .all()
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
            Place::default()
        );
        let many: Vec<String> = (0..=MAIL_GROUPS_MAX)
            .map(|n| format!("mail.group:{n}"))
            .collect();
        assert_eq!(Place::of_scopes(&many).groups.len(), MAIL_GROUPS_MAX);
    }

    /// Goal: whoever is apart is seen by its groups alone, either way round. Method: each pair of four.
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

    /// Goal: a name reads as it is written. Method: each kind, a bare name, and what is none.
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
        assert_eq!([shown("group:a"), shown("role:a")], ["a", "role:a"]);
    }
}
