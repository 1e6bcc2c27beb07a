//! Language models (`[[agent]]` of the kind `model`), and several as one (kind `models`).

use callboard_message::DataClass;
use callboard_models::{Member, Model, ModelConfig, Models, ModelsConfig};
use futures::future::BoxFuture;

use super::{AgentKind, Reach, Running, StartContext, StartError, WHAT, choice, spawn};
use crate::config::Names;
use crate::config::decode::decode;
use crate::config::problem::{Problems, variable};
use crate::config::tree::{Tree, Value};

/// A language model.
#[derive(Debug)]
pub struct ModelDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// Its provider, and how that is asked.
    pub config: ModelConfig,
}

/// Several models as one.
#[derive(Debug)]
struct ModelsDeclaration {
    id: String,
    config: ModelsConfig,
}

type ReadProvider = fn(&mut Tree, &mut Problems<'_>) -> Option<ModelConfig>;

const PROVIDERS: [(&str, ReadProvider); 7] = [
    ("openai", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::Openai)
    }),
    ("azure_openai", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::AzureOpenai)
    }),
    ("openai_compatible", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::OpenaiCompatible)
    }),
    ("anthropic", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::Anthropic)
    }),
    ("ollama", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::Ollama)
    }),
    ("scripted", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::Scripted)
    }),
    ("echo", |tree, problems| {
        decode(tree, MODEL, problems).map(ModelConfig::Echo)
    }),
];
const MODEL: &str = "a model";

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    let id = id(tree, problems)?;
    let config = without_id(tree, |tree| {
        choice(tree, "provider", &PROVIDERS, problems)?(tree, problems)
    })?;
    Some(Box::new(ModelDeclaration { id, config }))
}

pub(super) fn read_choice(
    tree: &mut Tree,
    problems: &mut Problems<'_>,
) -> Option<Box<dyn AgentKind>> {
    let id = id(tree, problems)?;
    let config = without_id(tree, |tree| decode(tree, "a choice of models", problems))?;
    Some(Box::new(ModelsDeclaration { id, config }))
}

fn id(tree: &Tree, problems: &mut Problems<'_>) -> Option<String> {
    let id = tree.get("id");
    if let Some(text) = id.and_then(Tree::text) {
        return Some(text.to_owned());
    }
    let why = if id.is_some() {
        "`id` must be a text".to_owned()
    } else {
        format!("{WHAT} lacks `id`")
    };
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

impl ModelDeclaration {
    fn open(&self) -> Result<Model, StartError> {
        Model::open(self.config.clone()).map_err(StartError::declared("model", &self.id))
    }
}

impl AgentKind for ModelDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    /// Whatever somebody asks a model.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reach(&self) -> Reach {
        Reach::Agents
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        if let Some(name) = self
            .config
            .key_variable()
            .filter(|name| std::env::var_os(name).is_none())
        {
            let message = format!("there is no {} with the key of {}", variable(name), self.id);
            problems.error(tree.place("key_env"), message);
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move { Ok(Running::new(spawn(cx.system, &self.id, self.open()?))) })
    }
}

impl AgentKind for ModelsDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reach(&self) -> Reach {
        Reach::Agents
    }

    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        for (at, member) in self.config.members.iter().enumerate() {
            let models = names.all::<ModelDeclaration>().map(|model| &*model.id);
            names.check_model(member, models, tree.item_place("members", at), problems);
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let models = self
                .config
                .members
                .iter()
                .filter_map(|id| cx.topology.agent::<ModelDeclaration>(id));
            let member =
                |model: &ModelDeclaration| Ok(Member::new(model.id.as_str(), model.open()?.card()));
            let members: Vec<_> = models.map(member).collect::<Result<_, StartError>>()?;
            let models = Models::new(members, self.config.fallback)
                .map_err(StartError::declared("model", &self.id))?;
            Ok(Running::new(spawn(cx.system, &self.id, models)))
        })
    }
}
