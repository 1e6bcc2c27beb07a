use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

/// Authenticated identity of a message's sender. It comes from a credential, never from the
/// message's body.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    /// Identifier, unique among principals of the same kind, for example the name of a key.
    pub id: String,
    /// Kind of credential that authenticated the principal.
    pub kind: PrincipalKind,
    /// Permissions that the credential grants. Policies define their names and meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Purpose of the request, for example `treatment`. Field-level policies read it (LGPD Art. 6,
    /// purpose limitation).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

text_enum! {
    /// Kind of credential that authenticated a principal.
    #[non_exhaustive]
    PrincipalKind {
        /// No credential was presented.
        Anonymous = "anonymous",
        /// The operating system user that started this process.
        LocalOperator = "local_operator",
        /// An agent of this system.
        Agent = "agent",
        /// A peer with an API key.
        ApiKey = "api_key",
        /// A peer with an access token of an authorization server.
        Token = "token",
    }
}

impl Principal {
    /// Returns the principal of a peer without a credential.
    pub fn anonymous() -> Self {
        Self {
            id: "anonymous".into(),
            kind: PrincipalKind::Anonymous,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// Returns the principal of the user that started this process.
    pub fn local_operator() -> Self {
        Self {
            id: crate::mail::OPERATOR_ID.into(),
            kind: PrincipalKind::LocalOperator,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// Returns the principal of the agent `id` of this system.
    pub fn agent(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind: PrincipalKind::Agent,
            scopes: Vec::new(),
            purpose: None,
        }
    }

    /// Sets the purpose of the request and returns the principal.
    pub fn with_purpose(mut self, purpose: impl Into<String>) -> Self {
        self.purpose = Some(purpose.into());
        self
    }
}

text_enum! {
    /// Confidentiality class of a message body, which decides where it may be stored. Classes are
    /// ordered from low to high. Data derived from several bodies has the highest of their classes.
    #[derive(Default)]
    DataClass {
        /// Public data.
        Public = "public",
        /// Data for use inside the organisation; disclosure would harm nobody.
        #[default]
        Internal = "internal",
        /// Data that may be about people. It is stored; the audit log identifies it by a keyed
        /// hash.
        Personal = "personal",
        /// Data that may be about patients. It is never written to disk.
        Clinical = "clinical",
    }
}

impl DataClass {
    /// Returns whether the audit log identifies bodies of this class by a keyed hash. With a plain
    /// hash, short personal values such as names could be guessed.
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
