//! Agents that answer questions about clinics: an orchestrator with its helpers.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_clinics::orchestrator::{Orchestrator, OrchestratorConfig};
use callboard_clinics::plan::{ClinicEntry, ClinicRegistry};
use callboard_clinics::planner::{ModelPlanner, Planner};
use callboard_clinics::router::{Router, RouterConfig};
use callboard_clinics::verifier::{IdentityPolicy, Verifier};
use callboard_guardrail::{CustomRule, Guardrail};
use callboard_mcp::bare::{BareClientError, BareClientOptions, BareMcpClient};
use callboard_models::LanguageModel;
use callboard_rpc::is_loopback_host;
use callboard_runtime::{Agent, AgentRef, System};
use url::Url;

use crate::config::{ModelDeclaration, Topology, client_tls, read_secret};

const WAITING_ARBITER: usize = 0;
const COMPUTING_ARBITER: usize = 1;

/// Failure to start the agents that answer questions about clinics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A clinic's `url` is invalid.
    #[error("clinic {id}: {source}")]
    Address {
        /// Id of the clinic.
        id: String,
        /// Reason.
        source: BareClientError,
    },
    /// A clinic's credential or `ca` can't be used.
    #[error("clinic {id}: `{key}`: {why}")]
    Credential {
        /// Id of the clinic.
        id: String,
        /// Key of the clinic's section.
        key: &'static str,
        /// Reason.
        why: String,
    },
    /// The model of `[clinics] planner` can't be opened.
    #[error("the planner {id}: {why}")]
    Planner {
        /// Id of the model.
        id: String,
        /// Reason.
        why: String,
    },
}

/// Opens the model that `[clinics] planner` names; `None` without one.
fn open_planner_model(topology: &Topology) -> Result<Option<LanguageModel>, PipelineError> {
    let planner = topology
        .clinics_section()
        .and_then(|clinics| clinics.planner.as_deref());
    let model = planner.and_then(|id| topology.agent_of_kind::<ModelDeclaration>(id));
    model
        .map(|model| {
            model.open_model().map_err(|why| PipelineError::Planner {
                id: model.id.clone(),
                why,
            })
        })
        .transpose()
}

/// Options of the agents that answer questions about clinics.
pub(crate) struct PipelineOptions {
    /// Name of the orchestrator for display; those of its helpers begin with it.
    pub(crate) label: String,
    pub(crate) registry: ClinicRegistry,
    /// The operator's rules of the guardrail.
    pub(crate) rules: Vec<CustomRule>,
    /// Model that plans questions; `None` plans by rules.
    pub(crate) planner_model: Option<LanguageModel>,
    pub(crate) identity_policy: IdentityPolicy,
    /// Purposes for which identities may be shown; `None` is the default.
    pub(crate) purposes_allowed: Option<Vec<String>>,
    /// Tenant whose principals may ask; `None` for all.
    pub(crate) tenant: Option<String>,
}

impl PipelineOptions {
    /// Returns the options that plan by rules.
    pub(crate) fn new(registry: ClinicRegistry, rules: Vec<CustomRule>) -> Self {
        Self {
            label: "orchestrator".to_owned(),
            registry,
            rules,
            planner_model: None,
            identity_policy: IdentityPolicy::default(),
            purposes_allowed: None,
            tenant: None,
        }
    }

    /// Returns the options for the clinics, rules and `[clinics]` section of `topology`.
    ///
    /// # Errors
    /// [`PipelineError::Planner`].
    pub(crate) fn for_topology(topology: &Topology) -> Result<Self, PipelineError> {
        let section = topology.clinics_section();
        let shown = section.and_then(|clinics| clinics.identities_shown.as_deref());
        Ok(Self {
            planner_model: open_planner_model(topology)?,
            identity_policy: shown.map_or_else(IdentityPolicy::default, IdentityPolicy::showing),
            ..Self::new(topology.registry.clone(), topology.guard_rules())
        })
    }
}

/// Orchestrator of clinics with its guardrail, planner, router and verifier, and a client of each
/// clinic.
pub(crate) struct PipelineAgents {
    pub(crate) orchestrator: AgentRef,
    /// All other agents. They serve this orchestrator only.
    pub(crate) helpers: Vec<AgentRef>,
}

impl PipelineAgents {
    /// Number of arbiters: one for agents that wait and one for agents that compute, so that deadlines
    /// are kept.
    pub(crate) const ARBITER_COUNT: usize = 2;

    /// Spawns the agents. None of them is in the directory: only the router reaches the clinics.
    ///
    /// # Errors
    /// [`PipelineError::Address`].
    pub(crate) fn spawn(system: &System, options: PipelineOptions) -> Result<Self, PipelineError> {
        let PipelineOptions {
            label,
            registry,
            rules,
            planner_model,
            identity_policy,
            purposes_allowed,
            tenant,
        } = options;
        let registry = Arc::new(registry);
        let clients = connect_clinics(&registry)?;
        let clinics: HashMap<String, AgentRef> = clients
            .into_iter()
            .map(|(id, client)| {
                let agent = spawn_on(system, WAITING_ARBITER, &id, move || client.clone());
                (id, agent)
            })
            .collect();
        let name = |part: &str| format!("{label}.{part}");
        let guardrail = spawn_on(system, COMPUTING_ARBITER, &name("guardrail"), move || {
            Guardrail::with_rules(&rules)
        });
        let verifier = spawn_on(system, COMPUTING_ARBITER, &name("verifier"), move || {
            Verifier::with_policy(identity_policy.clone())
        });
        let mut helpers: Vec<AgentRef> = clinics.values().cloned().collect();
        let planner = match planner_model {
            None => {
                let planning = registry.clone();
                spawn_on(system, WAITING_ARBITER, &name("planner"), move || {
                    Planner::new(planning.clone())
                })
            }
            Some(model) => {
                let model = spawn_on(system, WAITING_ARBITER, &name("planner_model"), move || {
                    model.clone()
                });
                helpers.push(model.clone());
                let planner = ModelPlanner::new(&registry, model);
                spawn_on(system, WAITING_ARBITER, &name("planner"), move || {
                    planner.clone()
                })
            }
        };
        let routing = RouterConfig {
            clinics,
            ..RouterConfig::new(registry.clone(), guardrail.clone())
        };
        let router = spawn_on(system, WAITING_ARBITER, &name("router"), move || {
            Router::new(routing.clone())
        });
        helpers.extend([&guardrail, &verifier, &planner, &router].map(AgentRef::clone));
        let mut config = OrchestratorConfig::new(registry, guardrail, planner, router, verifier);
        if let Some(purposes) = purposes_allowed {
            config.purposes_allowed = purposes;
        }
        config.tenant = tenant;
        let orchestrator = spawn_on(system, WAITING_ARBITER, &label, move || {
            Orchestrator::new(config.clone())
        });
        Ok(Self {
            orchestrator,
            helpers,
        })
    }
}

/// Returns the options of a clinic's client, with its credential and authorities.
///
/// # Errors
/// [`PipelineError::Credential`].
fn clinic_options(clinic: &ClinicEntry) -> Result<BareClientOptions, PipelineError> {
    let wrong = |key| {
        let id = clinic.id.clone();
        move |why| PipelineError::Credential { id, key, why }
    };
    let url = Url::parse(&clinic.url);
    if clinic.bearer_env.is_some()
        && url.is_ok_and(|url| url.scheme() == "http" && !is_loopback_host(&url))
    {
        let why = "a token is sent only over https, or to this machine: write an https URL";
        return Err(wrong("bearer_env")(why.to_owned()));
    }
    let bearer = clinic.bearer_env.as_deref().map(read_secret);
    Ok(BareClientOptions {
        bearer: bearer.transpose().map_err(wrong("bearer_env"))?,
        tls: client_tls(clinic.ca.as_deref()).map_err(wrong("ca"))?,
        ..BareClientOptions::default()
    })
}

fn connect_clinics(
    registry: &ClinicRegistry,
) -> Result<Vec<(String, BareMcpClient)>, PipelineError> {
    let connect = |clinic: &ClinicEntry| {
        let client = BareMcpClient::new(&clinic.url, clinic_options(clinic)?);
        let id = clinic.id.clone();
        match client {
            Ok(client) => Ok((id, client)),
            Err(source) => Err(PipelineError::Address { id, source }),
        }
    };
    registry.clinics().iter().map(connect).collect()
}

fn spawn_on<A: Agent>(
    system: &System,
    arbiter: usize,
    label: &str,
    make: impl Fn() -> A + Send + Sync + 'static,
) -> AgentRef {
    system.prepare_with(make).label(label).on(arbiter).spawn()
}
