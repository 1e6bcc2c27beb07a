use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a body may hold, and so where it may be kept. Ordered: what is made of several bodies has the highest class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataClass {
    /// Anybody may know it.
    Public,
    /// Nobody outside need know it, and nobody is harmed by it.
    #[default]
    Internal,
    /// It may be about people: kept, and marked by a keyed hash in the audit.
    Personal,
    /// It may be about patients: never on a disk of this system.
    Clinical,
}

impl DataClass {
    /// Every class, lowest first.
    pub const ALL: [Self; 4] = [Self::Public, Self::Internal, Self::Personal, Self::Clinical];

    /// Its name as it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Personal => "personal",
            Self::Clinical => "clinical",
        }
    }

    /// The class of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether a body can be guessed from a plain hash of it with harm: names, dates of birth. Its mark is keyed then.
    pub const fn is_keyed(self) -> bool {
        matches!(self, Self::Personal | Self::Clinical)
    }
}

impl fmt::Display for DataClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a class has one name, here and in JSON, reads back, and is over those before it. Method: every class.
    #[test]
    fn names() {
        for class in DataClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(DataClass::parse(class.as_str()), Some(class));
        }
        assert!(DataClass::ALL.is_sorted());
        assert_eq!(DataClass::parse("secret"), None);
    }
}
