//! Tests of the access to the orchestrator by credentials, and of stated purposes.

use std::sync::{Arc, Mutex};

use callboard_message::{Failure, FailureKind, Message, Principal, PrincipalKind, RawMessage};
use callboard_runtime::{
    Agent, AgentRef, AuditEntry, AuditValue, ConcurrentHandler, Context, Handlers,
    MemoryAuditStore, Store,
};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::tests::{Cast, remove, until_ended};
use super::*;

/// Clinic that records the principals of its calls.
struct Nosy(Arc<Mutex<Vec<Principal>>>);

impl Agent for Nosy {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(1);
    }
}

impl ConcurrentHandler<RawMessage> for Nosy {
    fn handle(
        &mut self,
        _: RawMessage,
        cx: Context,
    ) -> impl Future<Output = <RawMessage as Message>::Reply> + Send + 'static {
        self.0
            .lock()
            .unwrap_or_else(|e| panic!("{e}"))
            .push(cx.principal().clone());
        async {
            to_raw_value(&json!({})).map_err(|e| Failure::internal(e.to_string()))
                as Result<Box<RawValue>, Failure>
        }
    }
}

fn key(scopes: &[&str]) -> Principal {
    Principal {
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..Principal::agent("nurse")
    }
}

async fn ask(
    orchestrator: &AgentRef,
    principal: &Principal,
    purpose: Option<&str>,
) -> Result<ClinicAnswer, Failure> {
    let message = AskClinics {
        query: "list cardiology patients".into(),
        purpose: purpose.map(str::to_owned),
    };
    let call = orchestrator.call(message).principal(principal.clone());
    let reply = call.start().reply().await;
    reply.unwrap_or_else(|e| panic!("{e}"))
}

/// Goal: clinics receive the principal, and the stated purpose only if the credential may claim it; a
/// message can't change the principal. Method: a clinic that records; credentials that may claim the
/// purpose, and others.
/// Rows: C-34.
#[test]
fn claimable_purposes_travel_to_the_clinics() {
    until_ended(async |system| {
        let orchestrator = Orchestrator::new(Cast::new(system).config(system));
        let orchestrator = system.spawn(orchestrator);
        remove(system, "clinic_a").await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let nosy = system.spawn(Nosy(seen.clone()));
        system
            .directory()
            .register("clinic_a", &nosy)
            .unwrap_or_else(|e| panic!("{e}"));
        let stating = |principal: Principal| principal.with_purpose("treatment");
        for (principal, purpose, told) in [
            (
                Principal::local_operator(),
                Some("treatment"),
                Some("treatment"),
            ),
            (Principal::local_operator(), None, None),
            // Of the purposes of connection and message, the latter counts.
            (
                Principal::local_operator().with_purpose("audit"),
                Some("treatment"),
                Some("treatment"),
            ),
            (
                key(&["purpose:treatment"]),
                Some("treatment"),
                Some("treatment"),
            ),
            (
                stating(key(&["purpose:treatment"])),
                None,
                Some("treatment"),
            ),
            (key(&["purpose:treatment"]), Some("audit"), None),
            (key(&["patient.identity"]), Some("treatment"), None),
            (stating(key(&["patient.identity"])), None, None),
            (Principal::anonymous(), Some("treatment"), None),
            (Principal::agent("nurse"), Some("treatment"), None),
        ] {
            let _ = ask(&orchestrator, &principal, purpose).await;
            let expected = Principal {
                purpose: told.map(str::to_owned),
                ..principal
            };
            let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(|e| panic!("{e}")));
            assert_eq!(seen, [expected], "{purpose:?}");
        }
    });
}

/// Goal: a credential for one patient, or of another tenant, can't ask, because a question may be about
/// any patient; its refusal is in the audit. Method: such credentials, and others.
#[test]
fn patients_and_tenants_bind() {
    until_ended(async |system| {
        let audit = Arc::new(MemoryAuditStore::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        system.set_store(store).unwrap_or_else(|e| panic!("{e}"));
        let config = OrchestratorConfig {
            tenant: Some("acme".into()),
            ..Cast::new(system).config(system)
        };
        let orchestrator = system.spawn(Orchestrator::new(config));
        for (principal, lacks) in [
            (key(&["tenant:acme"]), None),
            (key(&["tenant:acme", "patient:CARD-001", "hmcp:read"]), None),
            (Principal::local_operator(), None),
            (key(&["tenant:acme", "patient:CARD-001"]), Some("patient")),
            (key(&["tenant:acme", "patient/hmcp:*"]), Some("patient")),
            (key(&["tenant:other"]), Some("tenant")),
            (key(&[]), Some("tenant")),
            (Principal::anonymous(), Some("tenant")),
        ] {
            let told = ask(&orchestrator, &principal, None).await;
            let refused = told.err().map(|failure| failure.kind);
            assert_eq!(refused, lacks.map(|_| FailureKind::Denied), "{principal:?}");
            let Some(lacks) = lacks else {
                continue;
            };
            let is_refusal = |entry: &AuditEntry| entry.event == "denied";
            let last = audit.entries().into_iter().rfind(is_refusal);
            let details = last.unwrap_or_else(|| panic!("no entry")).details;
            assert_eq!(details["lacks"], AuditValue::from(lacks), "{principal:?}");
        }
    });
}
