use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Who is behind a message: from a credential, never from the message's body.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    /// Unique among principals of its kind, for example a key's name.
    pub id: String,
    /// What vouches for it.
    pub kind: PrincipalKind,
    /// What it may do, in the words of the policy that reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Why it asks now, for example `treatment`: field-level policy reads it (LGPD Art. 6, purpose limitation).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

words! {
    /// What vouches for a principal.
    #[non_exhaustive]
    PrincipalKind {
        /// Nothing: it showed no credential.
        Anonymous = "anonymous",
        /// Whoever started this process.
        LocalOperator = "local_operator",
        /// An agent of this system.
        Agent = "agent",
        /// A peer with a key.
        ApiKey = "api_key",
    }
}

impl Principal {
    /// A peer that showed no credential.
    pub fn anonymous() -> Self {
        Self {
            id: "anonymous".into(),
            kind: PrincipalKind::Anonymous,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// Whoever started this process, as its own user.
    pub fn local_operator() -> Self {
        Self {
            id: crate::mail::OPERATOR.into(),
            kind: PrincipalKind::LocalOperator,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// An agent of this system.
    pub fn agent(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind: PrincipalKind::Agent,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// The same principal, asking for a stated purpose.
    pub fn for_purpose(mut self, purpose: impl Into<String>) -> Self {
        self.purpose = Some(purpose.into());
        self
    }
}

words! {
    /// What a body may hold, and so where it may be kept. Ordered: what is made of several bodies has the highest class of them.
    #[derive(Default)]
    DataClass {
        /// Anybody may know it.
        Public = "public",
        /// Nobody outside need know it, and nobody is harmed by it.
        #[default]
        Internal = "internal",
        /// It may be about people: kept, and marked by a keyed hash in the audit.
        Personal = "personal",
        /// It may be about patients: never on a disk of this system.
        Clinical = "clinical",
    }
}

impl DataClass {
    /// Whether a body can be guessed from a plain hash of it with harm: names, dates of birth. Its mark is keyed then.
    pub const fn is_keyed(self) -> bool {
        matches!(self, Self::Personal | Self::Clinical)
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
