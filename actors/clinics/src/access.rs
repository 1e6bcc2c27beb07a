//! Access to clinical data by what a caller's credential says: its scopes, its tenant and its
//! patient.
//!
//! The operator of the node and the node itself may touch all data. So may guests: the check of a
//! topology lets a listener without credentials serve clinical data on this machine only. A program
//! that serves these agents by itself has to see to that.

use callboard_message::{
    DataClass, Failure, PATIENT_LEVEL_SCOPE_PREFIX, PATIENT_SCOPE_PREFIX, Principal, PrincipalKind,
    TENANT_SCOPE_PREFIX,
};
use callboard_runtime::{AuditEntry, Context};

/// Scope of HMCP for reading and writing the data of all patients.
const HMCP_ALL_SCOPE: &str = "hmcp:*";
/// Scope of HMCP for reading and writing the data of the credential's patient.
const HMCP_PATIENT_ALL_SCOPE: &str = "patient/hmcp:*";

/// Access that a request to an HMCP agent needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HmcpAccess {
    /// Reading data.
    Read,
    /// Writing data.
    Write,
}

impl HmcpAccess {
    /// Returns the scope for the data of all patients.
    pub const fn scope(self) -> &'static str {
        match self {
            Self::Read => "hmcp:read",
            Self::Write => "hmcp:write",
        }
    }

    /// Returns the scope for the data of the credential's patient.
    pub const fn patient_scope(self) -> &'static str {
        match self {
            Self::Read => "patient/hmcp:read",
            Self::Write => "patient/hmcp:write",
        }
    }
}

/// Patients that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedPatients {
    /// None.
    None,
    /// Only the one with this id.
    One(String),
    /// Several, or one that isn't known or can't be told.
    Unclear,
}

impl From<Option<String>> for NamedPatients {
    fn from(id: Option<String>) -> Self {
        id.map_or(Self::None, Self::One)
    }
}

/// Reason why a request is refused. It says nothing about the patients that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    /// The credential lacks the scopes for the access.
    #[error(
        "the credential lacks the scope {}, or {} for the data of one patient",
        access.scope(),
        access.patient_scope()
    )]
    Scope {
        access: HmcpAccess,
        /// Scope to ask for.
        needed: &'static str,
    },
    /// The credential is for one patient, and doesn't say for which, or names several.
    #[error(
        "the credential is for the data of one patient, and must name one: by the claim `patient` of a token, or `--patient` of a key"
    )]
    Unbound,
    /// The request names no patient.
    #[error("the credential is for the data of one patient: the request must name that patient")]
    NoPatient,
    /// The request names another patient, or several.
    #[error(
        "the credential is for the data of one patient: the request must be about that patient, and no other"
    )]
    OtherPatient,
    /// The credential is of no tenant, or of others.
    #[error("the credential is of another tenant, or of none: use one of the agent's tenant")]
    Tenant,
}

impl AccessError {
    /// Returns what the credential lacks, for the audit: `scope`, `patient` or `tenant`.
    pub(crate) fn lacks(self) -> &'static str {
        match self {
            Self::Scope { .. } => "scope",
            Self::Unbound | Self::NoPatient | Self::OtherPatient => "patient",
            Self::Tenant => "tenant",
        }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Scope { needed, .. } => Self::lacking_scope(error.to_string(), needed),
            _ => Self::denied(error.to_string()),
        }
    }
}

/// Checks whether a principal may send a request to an HMCP agent of `tenant`. `named` returns the
/// patients that the request names; it is called only for a credential that is limited to one.
///
/// # Errors
/// [`AccessError`].
pub(crate) fn check_hmcp(
    principal: &Principal,
    tenant: Option<&str>,
    access: HmcpAccess,
    named: impl FnOnce() -> NamedPatients,
) -> Result<(), AccessError> {
    check_tenant(principal, tenant)?;
    let has = |scopes: [&str; 2]| scopes.iter().any(|scope| principal.has_scope(scope));
    let is_guest = principal.kind == PrincipalKind::Anonymous;
    if principal.is_operator_or_system() || is_guest || has([access.scope(), HMCP_ALL_SCOPE]) {
        return Ok(());
    }
    if has([access.patient_scope(), HMCP_PATIENT_ALL_SCOPE]) {
        return check_patient(principal, &named());
    }
    let names_patient = principal.scope_values(PATIENT_SCOPE_PREFIX).next();
    Err(AccessError::Scope {
        access,
        needed: match names_patient {
            Some(_) => access.patient_scope(),
            None => access.scope(),
        },
    })
}

/// Checks whether a principal may read data that names `named`, at an agent of `tenant` that demands
/// no scope. A credential that names a patient, or has a scope for one patient, is limited to that
/// patient, unless it may read all data.
///
/// # Errors
/// [`AccessError`].
pub(crate) fn check_clinic(
    principal: &Principal,
    tenant: Option<&str>,
    named: &NamedPatients,
) -> Result<(), AccessError> {
    check_tenant(principal, tenant)?;
    let mut limiting = principal.scopes.iter();
    let is_limited = limiting.any(|scope| {
        scope.starts_with(PATIENT_SCOPE_PREFIX) || scope.starts_with(PATIENT_LEVEL_SCOPE_PREFIX)
    });
    let reads_all = [HmcpAccess::Read.scope(), HMCP_ALL_SCOPE];
    if principal.is_operator_or_system()
        || !is_limited
        || reads_all.iter().any(|scope| principal.has_scope(scope))
    {
        return Ok(());
    }
    check_patient(principal, named)
}

/// Checks a request to a clinic as [`check_clinic`] does, and records a refusal in the audit.
///
/// # Errors
/// `Denied`.
pub(crate) async fn admit_to_clinic(
    cx: &Context,
    message: &'static str,
    tenant: Option<&str>,
    named: NamedPatients,
) -> Result<(), Failure> {
    let Err(refused) = check_clinic(cx.principal(), tenant, &named) else {
        return Ok(());
    };
    let entry = AuditEntry::new("denied")
        .with_agent(cx.me().to_string())
        .with_message(message)
        .with_principal(cx.principal())
        .with_class(DataClass::Clinical)
        .with_outcome("denied")
        .with_detail("lacks", refused.lacks());
    let entry = match cx.call() {
        Some(call) => entry.with_call(call.id).with_detail("hops", call.hops),
        None => entry,
    };
    // The refusal stands in any case; a failing audit store is reported in the log.
    let _ = cx.system().audit().record(entry).await;
    Err(refused.into())
}

/// Returns the purpose that the principal states if its credential may claim it, and logs one that it
/// may not claim, which counts as none.
pub(crate) fn claimed_purpose(principal: &Principal) -> Option<&str> {
    let stated = principal.purpose.as_deref()?;
    if principal.may_claim_purpose(stated) {
        return Some(stated);
    }
    // Without the purpose, which is a text of the caller.
    callboard_message::log::info!(by: &principal.id, principal = principal.id, "a stated purpose counts as none: the credential lacks the scope `purpose:PURPOSE`");
    None
}

/// Checks that the principal is of the agent's tenant. An agent without one serves all.
fn check_tenant(principal: &Principal, tenant: Option<&str>) -> Result<(), AccessError> {
    let is_of = |tenant| {
        let mut own = principal.scope_values(TENANT_SCOPE_PREFIX);
        own.any(|own| own == tenant)
    };
    match tenant {
        Some(tenant) if !principal.is_operator_or_system() && !is_of(tenant) => {
            Err(AccessError::Tenant)
        }
        _ => Ok(()),
    }
}

/// Checks that a request names the only patient of the principal's credential, and no other. Ids are
/// compared byte by byte.
fn check_patient(principal: &Principal, named: &NamedPatients) -> Result<(), AccessError> {
    let mut own = principal.scope_values(PATIENT_SCOPE_PREFIX);
    let (Some(patient), None) = (own.next(), own.next()) else {
        return Err(AccessError::Unbound);
    };
    match named {
        NamedPatients::One(id) if id == patient => Ok(()),
        NamedPatients::None => Err(AccessError::NoPatient),
        NamedPatients::One(_) | NamedPatients::Unclear => Err(AccessError::OtherPatient),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scopes: &[&str]) -> Principal {
        Principal {
            kind: PrincipalKind::ApiKey,
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..Principal::agent("nurse")
        }
    }

    fn one(id: &str) -> NamedPatients {
        NamedPatients::One(id.into())
    }

    const ACCESSES: [HmcpAccess; 2] = [HmcpAccess::Read, HmcpAccess::Write];

    /// Goal: a scope opens what it says, written exactly so, and a credential without one nothing.
    /// Method: rows of scopes, and what each opens: reading and writing of any patient.
    /// Rows: H-37.
    #[test]
    fn scopes_open_what_they_say() {
        for (scope, opens) in [
            ("hmcp:read", [true, false]),
            ("hmcp:write", [false, true]),
            ("hmcp:*", [true, true]),
            ("HMCP:read", [false, false]),
            ("hmcp:Read", [false, false]),
            ("hmcp:read2", [false, false]),
            ("hmcp:", [false, false]),
            ("hmcp", [false, false]),
            ("hmcp*", [false, false]),
            ("hmcp:r*", [false, false]),
            ("*", [false, false]),
            ("*:*", [false, false]),
            ("user/hmcp:read", [false, false]),
            ("patient/*.read", [false, false]),
            ("patient/*:*", [false, false]),
            ("role:hmcp:read", [false, false]),
            ("patient.identity", [false, false]),
            ("purpose:treatment", [false, false]),
        ] {
            for (access, opens) in ACCESSES.into_iter().zip(opens) {
                let checked = check_hmcp(&key(&[scope]), None, access, || one("PT1"));
                let needed = access.scope();
                let expected = match opens {
                    true => Ok(()),
                    false => Err(AccessError::Scope { access, needed }),
                };
                assert_eq!(checked, expected, "{scope} {access:?}");
            }
        }
        for access in ACCESSES {
            let lacking = check_hmcp(&key(&[]), None, access, || one("PT1")).unwrap_err();
            assert_eq!(Failure::from(lacking).needed_scope(), Some(access.scope()));
            let of_patient = check_hmcp(&key(&["patient:PT1"]), None, access, || one("PT1"));
            let failure = Failure::from(of_patient.unwrap_err());
            assert_eq!(failure.needed_scope(), Some(access.patient_scope()));
        }
    }

    /// Goal: operator, node and guests are as before, and an agent needs scopes. Method: each kind.
    #[test]
    fn principals_without_credentials() {
        for access in ACCESSES {
            let check = |principal: &Principal| {
                check_hmcp(principal, None, access, || panic!("not limited")).is_ok()
            };
            assert!(check(&Principal::local_operator()) && check(&Principal::system()));
            assert!(check(&Principal::anonymous()) && !check(&Principal::agent("nurse")));
        }
    }

    /// Goal: a credential for one patient opens that one's data and no other's. Method: rows of scopes
    /// and named patients, for reading.
    #[test]
    fn patients_bind() {
        use AccessError::{NoPatient, OtherPatient, Unbound};
        const READ: &str = "patient/hmcp:read";
        for (scopes, named, checked) in [
            (&[READ, "patient:PT1"][..], one("PT1"), Ok(())),
            (&["patient/hmcp:*", "patient:PT1"], one("PT1"), Ok(())),
            (&["patient:PT1", READ], one("PT2"), Err(OtherPatient)),
            (&[READ, "patient:PT1"], one("pt1"), Err(OtherPatient)),
            (&[READ, "patient:PT1"], one("PT11"), Err(OtherPatient)),
            (&[READ, "patient:PT1"], one("PT1 "), Err(OtherPatient)),
            (&[READ, "patient:PT1"], one("ＰＴ１"), Err(OtherPatient)),
            (
                &[READ, "patient:PT1"],
                one("PT1\u{200b}"),
                Err(OtherPatient),
            ),
            (&[READ, "patient:PT1"], NamedPatients::None, Err(NoPatient)),
            (
                &[READ, "patient:PT1"],
                NamedPatients::Unclear,
                Err(OtherPatient),
            ),
            (&[READ], one("PT1"), Err(Unbound)),
            (&[READ], one(""), Err(Unbound)),
            (&[READ, "Patient:PT1"], one("PT1"), Err(Unbound)),
            (
                &[READ, "patient:PT1", "patient:PT2"],
                one("PT1"),
                Err(Unbound),
            ),
            // What is wider counts.
            (&[READ, "patient:PT1", "hmcp:read"], one("PT2"), Ok(())),
            (&[READ, "patient:PT1", "hmcp:*"], one("PT2"), Ok(())),
            (
                &[READ, "patient:PT1", "hmcp:write"],
                one("PT2"),
                Err(OtherPatient),
            ),
        ] {
            let principal = key(scopes);
            let read = check_hmcp(&principal, None, HmcpAccess::Read, || named.clone());
            assert_eq!(read, checked, "{scopes:?} {named:?}");
        }
        let reader = key(&[READ, "patient:PT1"]);
        let access = HmcpAccess::Write;
        let needed = access.patient_scope();
        let written = check_hmcp(&reader, None, access, || one("PT1"));
        assert_eq!(written, Err(AccessError::Scope { access, needed }));
    }

    /// Goal: at a clinic, whatever names a patient limits, and nothing else does. Method: rows.
    #[test]
    fn clinics_are_bound_by_patients_only() {
        for (scopes, of_own, of_other) in [
            (&[][..], true, true),
            (&["patient.identity", "user/Observation.read"], true, true),
            (
                &["patient.identity", "patient/Observation.read"],
                false,
                false,
            ),
            (&["patient:CARD-001"], true, false),
            (&["patient:CARD-001", "patient.identity"], true, false),
            (&["patient:CARD-001", "patient/hmcp:*"], true, false),
            (&["patient/hmcp:read"], false, false),
            (&["patient:CARD-001", "patient:CARD-002"], false, false),
            (&["patient:CARD-001", "hmcp:write"], true, false),
            (&["patient:CARD-001", "hmcp:read"], true, true),
            (&["patient:CARD-001", "hmcp:*"], true, true),
        ] {
            let checked = |named: NamedPatients| check_clinic(&key(scopes), None, &named).is_ok();
            assert_eq!(checked(one("CARD-001")), of_own, "{scopes:?}");
            assert_eq!(checked(one("CARD-002")), of_other, "{scopes:?}");
            assert_eq!(checked(one("card-001")), of_other, "{scopes:?}");
            assert_eq!(checked(NamedPatients::None), of_other, "{scopes:?}");
        }
    }

    /// Goal: an agent of a tenant serves that one's principals, and the operator. Method: rows, at both
    /// kinds of agents, with and without a tenant.
    #[test]
    fn tenants_bind() {
        for (principal, is_of) in [
            (key(&["hmcp:*", "tenant:acme"]), true),
            (key(&["hmcp:*", "tenant:other", "tenant:acme"]), true),
            (key(&["hmcp:*", "tenant:other"]), false),
            (key(&["hmcp:*", "tenant:Acme"]), false),
            (key(&["hmcp:*", "tenant:acme2"]), false),
            (key(&["hmcp:*", "tenant:"]), false),
            (key(&["hmcp:*", "tenant:*"]), false),
            (key(&["hmcp:*", "acme"]), false),
            (key(&["hmcp:*"]), false),
            (Principal::anonymous(), false),
            (Principal::agent("nurse"), false),
            (Principal::local_operator(), true),
            (Principal::system(), true),
        ] {
            let hmcp = |tenant| check_hmcp(&principal, tenant, HmcpAccess::Read, || one("PT1"));
            let clinic = |tenant| check_clinic(&principal, tenant, &NamedPatients::None);
            let expected = if is_of {
                Ok(())
            } else {
                Err(AccessError::Tenant)
            };
            assert_eq!(hmcp(Some("acme")), expected, "{principal:?}");
            assert_eq!(clinic(Some("acme")), expected, "{principal:?}");
            assert_eq!(clinic(None), Ok(()), "{principal:?}");
            let is_agent =
                principal.kind == PrincipalKind::Agent && !principal.is_operator_or_system();
            assert_eq!(hmcp(None).is_ok(), !is_agent, "{principal:?}");
        }
    }
}
