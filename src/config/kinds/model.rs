//! Language models (`[[agent]] kind = "model"`) and pools of them (`kind = "models"`).

use std::cell::RefCell;
use std::path::Path;

use callboard_message::DataClass;
use callboard_models::{LanguageModel, ModelConfig, ModelPool, ModelPoolConfig, PoolMember};
use futures::future::BoxFuture;

use super::{
    AGENT_SECTION, AgentDeclaration, Reachability, RunningAgent, StartContext, StartError,
    spawn_cloned, take_choice,
};
use crate::config::DeclaredNames;
use crate::config::decode::decode;
use crate::config::problem::ProblemCollector;
use crate::config::secret::{read_secret, secret_problem};
use crate::config::tls::{check_ca_file, resolve_ca};
use crate::config::tree::{ConfigTree, ConfigValue};

/// A language model (`[[agent]] kind = "model"`).
#[derive(Debug)]
pub struct ModelDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// Provider, model and limits.
    pub config: ModelConfig,
}

/// A pool of models, used as one model.
#[derive(Debug)]
struct ModelPoolDeclaration {
    id: String,
    config: ModelPoolConfig,
}

type ProviderReader = fn(&mut ConfigTree, &mut ProblemCollector<'_>) -> Option<ModelConfig>;

const PROVIDERS: [(&str, ProviderReader); 8] = [
    ("openai", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::Openai)
    }),
    ("azure_openai", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::AzureOpenai)
    }),
    ("openai_compatible", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::OpenaiCompatible)
    }),
    ("anthropic", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::Anthropic)
    }),
    ("ollama", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::Ollama)
    }),
    ("scripted", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::Scripted)
    }),
    ("echo", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::Echo)
    }),
    ("word_vectors", |tree, problems| {
        decode(tree, MODEL_TABLE, problems).map(ModelConfig::WordVectors)
    }),
];
const MODEL_TABLE: &str = "a model";

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    let id = read_id(tree, problems)?;
    let config = without_id(tree, |tree| {
        let (_, read) = take_choice(tree, "provider", &PROVIDERS, problems)?;
        read(tree, problems)
    })?;
    Some(Box::new(ModelDeclaration { id, config }))
}

pub(super) fn read_pool(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    let id = read_id(tree, problems)?;
    let config = without_id(tree, |tree| decode(tree, "a choice of models", problems))?;
    Some(Box::new(ModelPoolDeclaration { id, config }))
}

fn read_id(tree: &ConfigTree, problems: &mut ProblemCollector<'_>) -> Option<String> {
    let id = tree.get("id");
    if let Some(text) = id.and_then(ConfigTree::text) {
        return Some(text.to_owned());
    }
    let why = if id.is_some() {
        "`id` must be a text".to_owned()
    } else {
        format!("{AGENT_SECTION} lacks `id`")
    };
    problems.error(Some(id.unwrap_or(tree).span.clone()), why);
    None
}

/// Decodes the table by `read`, which doesn't see the member `id`. Afterwards the member is in the
/// tree again, for the position of later problems.
fn without_id<T>(
    tree: &mut ConfigTree,
    read: impl FnOnce(&mut ConfigTree) -> Option<T>,
) -> Option<T> {
    let id = tree.take("id");
    let value = read(tree);
    if let (Some(id), ConfigValue::Table(members)) = (id, &mut tree.value) {
        members.push(id);
    }
    value
}

impl ModelDeclaration {
    /// Opens the model with the key at the place that `key_env` names.
    ///
    /// # Errors
    /// Returns the reason why the key can't be read, or the configuration is invalid.
    pub(crate) fn open_model(&self) -> Result<LanguageModel, String> {
        let unread = RefCell::new(None);
        let key = |place: &str| match read_secret(place) {
            Ok(key) => Some(key),
            Err(why) => {
                unread.replace(Some(why));
                None
            }
        };
        let opened = LanguageModel::open_with(self.config.clone(), &key);
        let opened = opened.map(|model| model.with_id(&*self.id));
        opened.map_err(|error| match unread.take() {
            Some(why) => format!("failed to find the API key: {why}"),
            None => error.to_string(),
        })
    }

    fn start_error(&self, why: String) -> StartError {
        StartError::declaration_error("model", &self.id)(why)
    }
}

impl AgentDeclaration for ModelDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "model"
    }

    /// Returns the class `Personal`, though callers decide what they send to a model.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reachability(&self) -> Reachability {
        Reachability::Agents
    }

    fn resolve_paths(&mut self, folder: &Path) {
        self.config.resolve_ca(|file| resolve_ca(&file, folder));
        self.config.resolve_vectors(folder);
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if let Some(why) = self.config.key_variable().and_then(secret_problem) {
            let message = format!("the key of {}: {why}", self.id);
            problems.error(tree.span_of("key_env"), message);
        }
        check_ca_file(self.config.ca_file(), tree, problems);
        if let Some(file) = self.config.vectors_file().filter(|file| !file.is_file()) {
            let message = format!("there is no {} on this machine", file.display());
            problems.error(tree.span_of("path"), message);
        }
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            Ok(RunningAgent::new(spawn_cloned(
                cx.system,
                &self.id,
                self.open_model().map_err(|why| self.start_error(why))?,
            )))
        })
    }
}

impl AgentDeclaration for ModelPoolDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "models"
    }

    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reachability(&self) -> Reachability {
        Reachability::Agents
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        for (at, member) in self.config.members.iter().enumerate() {
            let models = names
                .agents_of_kind::<ModelDeclaration>()
                .map(|model| &*model.id);
            names.check_model(member, models, tree.item_span("members", at), problems);
        }
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let models = self
                .config
                .members
                .iter()
                .filter_map(|id| cx.topology.agent_of_kind::<ModelDeclaration>(id));
            let member = |model: &ModelDeclaration| {
                Ok(PoolMember::new(
                    model.id.as_str(),
                    model
                        .open_model()
                        .map_err(|why| model.start_error(why))?
                        .card(),
                ))
            };
            let members: Vec<_> = models.map(member).collect::<Result<_, StartError>>()?;
            let models = ModelPool::new(members, self.config.fallback)
                .map_err(StartError::declaration_error("model", &self.id))?;
            Ok(RunningAgent::new(spawn_cloned(cx.system, &self.id, models)))
        })
    }
}
