//! The agents that a node starts itself.

use std::path::Path;

use callboard_clinics::clinic::ClinicConfig;
use callboard_clinics::hmcp::{EmrConfig, PatientDataConfig};
use callboard_message::DataClass;
use callboard_models::{ModelConfig, ModelsConfig};

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

/// A value of a key that decides on the others, and the reader of these.
type Choice<T> = (&'static str, fn(&mut Tree, &mut Problems<'_>) -> Option<T>);

/// Kinds of agents. A new one is an entry here, beside its declaration.
const KINDS: [Choice<AgentDeclaration>; 10] = [
    ("clinic", |tree, problems| decode(tree, "a clinic", problems).map(AgentDeclaration::Clinic)),
    ("model", |tree, problems| {
        let id = id(tree, problems)?;
        let model = without_id(tree, |tree| choice(tree, "provider", &PROVIDERS, problems)?.1(tree, problems))?;
        Some(AgentDeclaration::Model(id, Box::new(model)))
    }),
    ("models", |tree, problems| {
        let id = id(tree, problems)?;
        let models = without_id(tree, |tree| decode(tree, "a choice of models", problems))?;
        Some(AgentDeclaration::Models(id, models))
    }),
    ("emr_writeback", |tree, problems| {
        decode(tree, "an EMR write-back agent", problems).map(AgentDeclaration::EmrWriteback)
    }),
    ("patient_data", |tree, problems| {
        decode(tree, "a patient-data agent", problems).map(AgentDeclaration::PatientData)
    }),
    ("a2a", |tree, problems| decode(tree, "an A2A agent", problems).map(AgentDeclaration::A2a)),
    (ORCHESTRATOR, |tree, problems| decode(tree, "an orchestrator", problems).map(AgentDeclaration::Orchestrator)),
    ("mailroom", |tree, problems| decode(tree, "a mailroom", problems).map(AgentDeclaration::Mailroom)),
    ("tmux", |tree, problems| decode(tree, "a tmux pane", problems).map(AgentDeclaration::Tmux)),
    ("webhook", |tree, problems| decode(tree, "a webhook", problems).map(AgentDeclaration::Webhook)),
];
const ORCHESTRATOR: &str = "orchestrator";
/// Kinds without a `description` for others: an orchestrator has one of its own, and a way is shown to nobody.
const NOT_DESCRIBED: [&str; 3] = [ORCHESTRATOR, "tmux", "webhook"];
const PROVIDERS: [Choice<ModelConfig>; 7] = [
    ("openai", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::Openai)),
    ("azure_openai", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::AzureOpenai)),
    ("openai_compatible", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::OpenaiCompatible)),
    ("anthropic", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::Anthropic)),
    ("ollama", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::Ollama)),
    ("scripted", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::Scripted)),
    ("echo", |tree, problems| decode(tree, MODEL, problems).map(ModelConfig::Echo)),
];
const MODEL: &str = "a model";
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
    let (kind, decode) = *choice(&mut tree, "kind", &KINDS, problems)?;
    // An orchestrator begins with its own.
    let fingerprint = if kind == ORCHESTRATOR { whole } else { untold };
    let description = if NOT_DESCRIBED.contains(&kind) { None } else { description(&mut tree, problems) };
    let value = decode(&mut tree, problems)?;
    Some((Entry { value, tree, fingerprint }, description))
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

/// Entry of `all` that `key` names. The key is taken out.
fn choice<'a, T>(
    tree: &mut Tree,
    key: &str,
    all: &'a [Choice<T>],
    problems: &mut Problems<'_>,
) -> Option<&'a Choice<T>> {
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let there_are = || Some(format!("there are `{}`", known.join("`, `")));
    let Some((_, value)) = tree.take(key) else {
        problems.error_with(Some(tree.span.clone()), format!("{WHAT} lacks `{key}`"), there_are());
        return None;
    };
    let Some(text) = value.text() else {
        problems.error(Some(value.span), format!("`{key}` must be a text"));
        return None;
    };
    let found = all.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        let help = did_you_mean(text, known.iter().copied()).or_else(there_are);
        problems.error_with(Some(value.span.clone()), format!("there is no {key} of agent `{text}`"), help);
    }
    found
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
