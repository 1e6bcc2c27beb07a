use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mail::SYSTEM_ID;
use crate::text_enum::text_enum;

/// Prefix of the scope that names the tenant of a credential.
pub const TENANT_SCOPE_PREFIX: &str = "tenant:";
/// Prefix of the scope that names the patient of a credential, as the launch context of SMART on
/// FHIR does.
pub const PATIENT_SCOPE_PREFIX: &str = "patient:";
/// Prefix of scopes for the data of the credential's patient, of HMCP and of others (SMART on FHIR).
pub const PATIENT_LEVEL_SCOPE_PREFIX: &str = "patient/";
/// Prefix of HMCP's scopes for the data of all patients.
const HMCP_SCOPE_PREFIX: &str = "hmcp:";
/// Prefix of the scope with which a credential may claim a purpose.
pub const PURPOSE_SCOPE_PREFIX: &str = "purpose:";

/// Scope that a principal other than the local operator needs to see patients' identities. The
/// purpose of its call must be allowed too, and one that its credential may claim.
pub const IDENTITY_SCOPE: &str = "patient.identity";

/// Authenticated identity of a message's sender. It comes from a credential, never from the
/// message's body.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    /// Identifier, unique among principals of the same kind, for example the name of a key.
    pub id: String,
    /// Kind of credential that authenticated the principal.
    pub kind: PrincipalKind,
    /// Permissions that the credential grants. Policies define their names and meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Purpose of the request, for example `treatment`, as the caller states it. Field-level policies
    /// read it (LGPD Art. 6, purpose limitation) if [`Principal::may_claim_purpose`] permits it.
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
        /// A peer with a client certificate that its listener lists.
        Certificate = "certificate",
    }
}

/// Shows everything but the id of a patient.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes = self.scopes.iter().map(String::as_str);
        let scopes = scopes.map(|scope| match scope.starts_with(PATIENT_SCOPE_PREFIX) {
            true => PATIENT_SCOPE_PREFIX,
            false => scope,
        });
        f.debug_struct("Principal")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("scopes", &scopes.collect::<Vec<_>>())
            .field("purpose", &self.purpose)
            .finish()
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

    /// Returns the principal of messages outside of any call, which this program itself sends.
    pub fn system() -> Self {
        Self::agent(SYSTEM_ID)
    }

    /// Returns whether the principal is the operator of this process, or the process itself.
    pub fn is_operator_or_system(&self) -> bool {
        match self.kind {
            PrincipalKind::LocalOperator => true,
            PrincipalKind::Agent => self.id == SYSTEM_ID,
            _ => false,
        }
    }

    /// Returns whether the credential grants a scope. Scopes are compared byte by byte.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|granted| granted == scope)
    }

    /// Returns the rests of the scopes that begin with `prefix`, such as [`TENANT_SCOPE_PREFIX`].
    pub fn scope_values<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let scopes = self.scopes.iter();
        scopes.filter_map(move |scope| scope.strip_prefix(prefix))
    }

    /// Returns the scopes that bind what data the credential opens, in alphabetical order: tenant, patient,
    /// those of HMCP, [`IDENTITY_SCOPE`] and purposes. What one credential of a principal has begun isn't shown to another one with
    /// other such scopes.
    pub fn data_scopes(&self) -> Vec<&str> {
        let binds = |scope: &&str| {
            let prefixes = [
                TENANT_SCOPE_PREFIX,
                PATIENT_SCOPE_PREFIX,
                PATIENT_LEVEL_SCOPE_PREFIX,
                HMCP_SCOPE_PREFIX,
                PURPOSE_SCOPE_PREFIX,
            ];
            *scope == IDENTITY_SCOPE || prefixes.iter().any(|prefix| scope.starts_with(prefix))
        };
        let mut scopes: Vec<_> = self
            .scopes
            .iter()
            .map(String::as_str)
            .filter(binds)
            .collect();
        scopes.sort_unstable();
        scopes
    }

    /// Returns whether the credential may claim a purpose: that of the local operator may claim any,
    /// others those for which they have a scope with [`PURPOSE_SCOPE_PREFIX`].
    pub fn may_claim_purpose(&self, purpose: &str) -> bool {
        self.kind == PrincipalKind::LocalOperator
            || self
                .scope_values(PURPOSE_SCOPE_PREFIX)
                .any(|claimable| claimable == purpose)
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

    /// Goal: only scopes that are written exactly so let a credential claim a purpose, and the operator
    /// may claim any. Method: rows.
    #[test]
    fn purposes_are_claimed_by_scopes() {
        let key = |scope: &str| Principal {
            kind: PrincipalKind::ApiKey,
            scopes: vec!["other".into(), scope.into()],
            ..Principal::agent("nurse")
        };
        for (scope, may) in [
            ("purpose:treatment", true),
            ("Purpose:treatment", false),
            ("purpose:Treatment", false),
            ("purpose:treatment2", false),
            ("purpose:*", false),
            ("purpose:", false),
            ("treatment", false),
            ("role:purpose:treatment", false),
        ] {
            assert_eq!(key(scope).may_claim_purpose("treatment"), may, "{scope}");
        }
        assert!(Principal::local_operator().may_claim_purpose("anything"));
        assert!(!Principal::anonymous().may_claim_purpose("treatment"));
        assert!(!Principal::system().may_claim_purpose("treatment"));
        assert!(!key("purpose:").may_claim_purpose("treatment"));
    }

    /// Goal: only the operator and the process itself are their own. Method: each kind, and others of
    /// the same name.
    #[test]
    fn own_principals() {
        let named = |kind| Principal {
            kind,
            ..Principal::system()
        };
        for (principal, is_own) in [
            (Principal::local_operator(), true),
            (Principal::system(), true),
            (Principal::anonymous(), false),
            (Principal::agent("nurse"), false),
            (named(PrincipalKind::ApiKey), false),
            (named(PrincipalKind::Token), false),
            (named(PrincipalKind::Certificate), false),
            (named(PrincipalKind::Anonymous), false),
        ] {
            assert_eq!(principal.is_operator_or_system(), is_own, "{principal:?}");
        }
    }

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
