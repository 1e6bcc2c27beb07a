//! The agents that a node starts itself.

use std::path::Path;

use callboard_agents::clinic::ClinicConfig;
use callboard_agents::hmcp::{EmrConfig, PatientDataConfig};
use callboard_agents::model::{ModelConfig, ModelsConfig};
use callboard_message::DataClass;

use super::a2a::RemoteDeclaration;
use super::decode::decode;
use super::mail::{MailroomDeclaration, TmuxDeclaration, WebhookDeclaration};
use super::orchestrator::OrchestratorDeclaration;
use super::problem::{Problems, did_you_mean};
use super::tree::{Tree, Value};
use super::{DESCRIPTION, Entry};

/// An agent to start (`[[agent]]`).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AgentDeclaration {
    /// A clinic: a data silo with four tools. Its database is relative to the state directory, its seed to the file.
    Clinic(ClinicConfig),
    /// A language model, by this id.
    Model(String, Box<ModelConfig>),
    /// Several models as one, by this id.
    Models(String, ModelsConfig),
    /// Writes clinical data into a record system. Its file is relative to the state directory.
    EmrWriteback(EmrConfig),
    /// Knows the identifiers of patients.
    PatientData(PatientDataConfig),
    /// An agent elsewhere that speaks A2A.
    A2a(Box<RemoteDeclaration>),
    /// Takes any request to its answer.
    Orchestrator(Box<OrchestratorDeclaration>),
    /// Agents write to each other through it.
    Mailroom(Box<MailroomDeclaration>),
    /// A program in a tmux pane, which gets its mail typed in.
    Tmux(TmuxDeclaration),
    /// A program elsewhere, which gets its mail by HTTP.
    Webhook(WebhookDeclaration),
}

const KINDS: [&str; 10] = [
    "clinic",
    "model",
    "models",
    "emr_writeback",
    "patient_data",
    "a2a",
    "orchestrator",
    "mailroom",
    "tmux",
    "webhook",
];
const PROVIDERS: [&str; 7] = ["openai", "azure_openai", "openai_compatible", "anthropic", "ollama", "scripted", "echo"];
const WHAT: &str = "[[agent]]";

impl AgentDeclaration {
    /// Its name in the directory.
    pub fn id(&self) -> &str {
        match self {
            Self::Clinic(clinic) => &clinic.id,
            Self::Model(id, _) | Self::Models(id, _) => id,
            Self::EmrWriteback(emr) => &emr.id,
            Self::PatientData(patients) => &patients.id,
            Self::A2a(remote) => &remote.id,
            Self::Orchestrator(orchestrator) => &orchestrator.id,
            Self::Mailroom(mailroom) => &mailroom.id,
            Self::Tmux(tmux) => &tmux.id,
            Self::Webhook(webhook) => &webhook.id,
        }
    }

    /// What its messages and replies may hold.
    pub(crate) fn class(&self) -> DataClass {
        match self {
            Self::Clinic(_) | Self::EmrWriteback(_) | Self::PatientData(_) => DataClass::Clinical,
            // Whatever somebody asks a model.
            Self::Model(..) | Self::Models(..) => DataClass::Personal,
            Self::A2a(remote) => remote.class,
            Self::Orchestrator(orchestrator) => orchestrator.class,
            Self::Mailroom(mailroom) => mailroom.class,
            // Whatever somebody writes to it.
            Self::Tmux(_) | Self::Webhook(_) => DataClass::Personal,
        }
    }

    /// Whether it is one language model.
    pub fn is_model(&self) -> bool {
        matches!(self, Self::Model(..))
    }

    /// Whether it is a way out of a mailroom, and nobody's to ask.
    pub(super) fn is_way(&self) -> bool {
        matches!(self, Self::Tmux(_) | Self::Webhook(_))
    }

    /// Whether it is there to answer what others ask, so that no listener needs to lead to it.
    pub(super) fn answers_others(&self) -> bool {
        matches!(self, Self::Model(..) | Self::Models(..))
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        match self {
            Self::Clinic(clinic) => clinic.seed = folder.join(&clinic.seed),
            Self::A2a(remote) => remote.resolve(folder),
            Self::Orchestrator(orchestrator) => orchestrator.resolve(folder),
            _ => {}
        }
    }
}

/// Reads one, by its `kind`, and what it is for. (serde's own way to tell them apart would lose the places.)
pub(super) fn read(mut tree: Tree, problems: &mut Problems<'_>) -> Option<(Entry<AgentDeclaration>, Option<String>)> {
    let (whole, untold) = (tree.fingerprint(), tree.fingerprint_without(DESCRIPTION));
    if !matches!(tree.value, Value::Table(_)) {
        problems.error(Some(tree.span), format!("{WHAT} must be a table"));
        return None;
    }
    let kind = choice(&mut tree, "kind", &KINDS, problems)?;
    // An orchestrator begins with its own.
    let fingerprint = if kind == "orchestrator" { whole } else { untold };
    let description = match kind.as_str() {
        // It has one of its own, and a way is shown to nobody.
        "orchestrator" | "tmux" | "webhook" => None,
        _ => description(&mut tree, problems),
    };
    let value = match kind.as_str() {
        "clinic" => decode(&mut tree, "a clinic", problems).map(AgentDeclaration::Clinic),
        "emr_writeback" => decode(&mut tree, "an EMR write-back agent", problems).map(AgentDeclaration::EmrWriteback),
        "patient_data" => decode(&mut tree, "a patient-data agent", problems).map(AgentDeclaration::PatientData),
        "a2a" => decode(&mut tree, "an A2A agent", problems).map(AgentDeclaration::A2a),
        "orchestrator" => decode(&mut tree, "an orchestrator", problems).map(AgentDeclaration::Orchestrator),
        "mailroom" => decode(&mut tree, "a mailroom", problems).map(AgentDeclaration::Mailroom),
        "tmux" => decode(&mut tree, "a tmux pane", problems).map(AgentDeclaration::Tmux),
        "webhook" => decode(&mut tree, "a webhook", problems).map(AgentDeclaration::Webhook),
        "models" => {
            let id = id(&mut tree, problems)?;
            let models = without_id(&mut tree, |tree| decode::<ModelsConfig>(tree, "a choice of models", problems));
            models.map(|models| AgentDeclaration::Models(id, models))
        }
        _ => {
            let id = id(&mut tree, problems)?;
            let model = without_id(&mut tree, |tree| model(tree, problems));
            model.map(|model| AgentDeclaration::Model(id, Box::new(model)))
        }
    };
    Some((Entry { value: value?, tree, fingerprint }, description))
}

/// What an agent of any kind is for, taken out: no kind knows it.
fn description(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<String> {
    let (_, value) = tree.take(DESCRIPTION)?;
    let text = value.text().map(str::to_owned);
    if text.is_none() {
        problems.error(Some(value.span), "`description` must be a text");
    }
    text
}

fn model(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<ModelConfig> {
    match choice(tree, "provider", &PROVIDERS, problems)?.as_str() {
        "openai" => decode(tree, "a model", problems).map(ModelConfig::Openai),
        "azure_openai" => decode(tree, "a model", problems).map(ModelConfig::AzureOpenai),
        "openai_compatible" => decode(tree, "a model", problems).map(ModelConfig::OpenaiCompatible),
        "anthropic" => decode(tree, "a model", problems).map(ModelConfig::Anthropic),
        "ollama" => decode(tree, "a model", problems).map(ModelConfig::Ollama),
        "scripted" => decode(tree, "a model", problems).map(ModelConfig::Scripted),
        _ => decode(tree, "a model", problems).map(ModelConfig::Echo),
    }
}

/// What a key that decides on the others says: one of `known`. It is taken out.
fn choice(tree: &mut Tree, key: &str, known: &[&str], problems: &mut Problems<'_>) -> Option<String> {
    let all = || format!("there are `{}`", known.join("`, `"));
    let Some((_, value)) = tree.take(key) else {
        problems.error_with(Some(tree.span.clone()), format!("{WHAT} lacks `{key}`"), Some(all()));
        return None;
    };
    match value.text() {
        Some(text) if known.contains(&text) => Some(text.to_owned()),
        Some(text) => {
            let help = did_you_mean(text, known.iter().copied()).or_else(|| Some(all()));
            problems.error_with(Some(value.span.clone()), format!("there is no {key} of agent `{text}`"), help);
            None
        }
        None => {
            problems.error(Some(value.span), format!("`{key}` must be a text"));
            None
        }
    }
}

fn id(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<String> {
    let id = tree.get("id");
    if let Some(text) = id.and_then(Tree::text) {
        return Some(text.to_owned());
    }
    let why = if id.is_some() { "`id` must be a text".to_owned() } else { format!("{WHAT} lacks `id`") };
    problems.error(Some(id.unwrap_or(tree).span.clone()), why);
    None
}

/// Reads a type that knows no `id`; the place of the id is still known after it.
fn without_id<T>(tree: &mut Tree, read: impl FnOnce(&mut Tree) -> Option<T>) -> Option<T> {
    let id = tree.take("id");
    let value = read(tree);
    if let (Some(id), Value::Table(members)) = (id, &mut tree.value) {
        members.push(id);
    }
    value
}
