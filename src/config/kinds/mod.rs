//! Kinds of agents. Each is one module with its declaration, its checks and its start, and one line in [`KINDS`].

mod a2a;
mod clinic;
mod emr_writeback;
mod mailroom;
mod model;
mod orchestrator;
mod patient_data;
mod tmux;
mod upstream;
mod webhook;

use std::any::Any;
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::path::Path;
use std::sync::Arc;

use callboard_gateway::bundle::{BundleError, Filter};
use callboard_mailroom::MailroomError;
use callboard_message::DataClass;
use callboard_message::mail::MemberWay;
use callboard_rpc::KeyError;
use callboard_runtime::{Agent, AgentId, AgentRef, Answering, System};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::decode::decode;
use super::problem::{Problems, one_of};
use super::tree::Tree;
use super::{DESCRIPTION, Entry, Names, Topology, table};

pub(crate) use a2a::Inboxes;
pub use a2a::{
    BindingName, InterfaceDeclaration, OauthDeclaration, RemoteDeclaration, VersionName,
};
pub use mailroom::{MailroomDeclaration, MemberDeclaration};
pub use model::ModelDeclaration;
pub(crate) use orchestrator::EXECUTE_COMMAND;
pub use orchestrator::{
    CommandDeclaration, LearningDeclaration, Orchestrated, OrchestratorDeclaration, Structured,
};
pub use tmux::{Pane, TmuxDeclaration};
pub use upstream::{
    EraName, SamplingDeclaration, StartWhen, Transport, UpstreamDeclaration, UpstreamError,
};
pub use webhook::WebhookDeclaration;

/// Reader of an agent's table, without its `kind`. Reports what is wrong.
type Read = fn(&mut Tree, &mut Problems<'_>) -> Option<Box<dyn AgentKind>>;

/// How agents of a kind are read.
#[derive(Clone, Copy)]
struct Kind {
    read: Read,
    /// Whether a `description` in the table is for cards alone, so that nothing begins anew for it.
    is_described: bool,
}

const KINDS: [(&str, Kind); 10] = [
    (
        "clinic",
        Kind {
            read: clinic::read,
            is_described: true,
        },
    ),
    (
        "model",
        Kind {
            read: model::read,
            is_described: true,
        },
    ),
    (
        "models",
        Kind {
            read: model::read_choice,
            is_described: true,
        },
    ),
    (
        "emr_writeback",
        Kind {
            read: emr_writeback::read,
            is_described: true,
        },
    ),
    (
        "patient_data",
        Kind {
            read: patient_data::read,
            is_described: true,
        },
    ),
    (
        "a2a",
        Kind {
            read: a2a::read,
            is_described: true,
        },
    ),
    (
        "orchestrator",
        Kind {
            read: orchestrator::read,
            is_described: false,
        },
    ),
    (
        "mailroom",
        Kind {
            read: mailroom::read,
            is_described: true,
        },
    ),
    (
        "tmux",
        Kind {
            read: tmux::read,
            is_described: false,
        },
    ),
    (
        "webhook",
        Kind {
            read: webhook::read,
            is_described: false,
        },
    ),
];

/// Section of agents, in messages.
const WHAT: &str = "[[agent]]";

/// Declaration of an agent of one kind.
pub(crate) trait AgentKind: Any + Debug + Send + Sync {
    /// Name in the directory.
    fn id(&self) -> &str;

    /// Highest class of what its messages and replies may hold.
    fn class(&self) -> DataClass;

    /// Purpose, where the declaration itself has it.
    fn description(&self) -> Option<&str> {
        None
    }

    /// Who comes to it.
    fn reach(&self) -> Reach {
        Reach::Listeners
    }

    /// Delivery of its mail, where it is a member of a mailroom.
    fn mail_way(&self) -> MemberWay {
        MemberWay::Agent
    }

    /// Ids of the agents that it is built on. They start first, and it starts anew with them.
    fn needs(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Ids of the agents that are reached through it.
    fn leads_to(&self) -> Vec<&str> {
        self.needs()
    }

    /// Makes paths that are relative to the topology file paths of this process.
    fn resolve(&mut self, _folder: &Path) {}

    /// Reports what doesn't fit together, in itself or with other declarations.
    fn check(&self, _tree: &Tree, _names: &Names<'_>, _problems: &mut Problems<'_>) {}

    /// Reports variables, files and programs that it names and this machine lacks.
    fn check_machine(&self, _tree: &Tree, _problems: &mut Problems<'_>) {}

    /// Takes over an agent of its id that runs and goes on, however it was declared. `None`: it can't be taken over.
    fn renew(
        &self,
        _running: &Running,
        _cx: &StartContext<'_>,
    ) -> Result<Option<Renewed>, StartError> {
        Ok(None)
    }

    /// Starts it. Nobody finds it yet.
    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>>;
}

impl dyn AgentKind {
    /// The declaration, where it is one of type `K`.
    pub(crate) fn downcast<K: AgentKind>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Who comes to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Peers, through a listener.
    Listeners,
    /// Other agents, which it answers as a language model: no listener needs to lead to it.
    Agents,
    /// A mailroom alone.
    Mail,
}

/// An agent as it is declared.
pub(super) type ReadAgent = Entry<Box<dyn AgentKind>>;

/// Reads an agent by its `kind`, and its description for cards. (serde's own way to tell kinds apart would lose the places.)
pub(super) fn read(tree: Tree, problems: &mut Problems<'_>) -> Option<(ReadAgent, Option<String>)> {
    let mut tree = table(tree, WHAT, problems)?;
    let kind = choice(&mut tree, "kind", &KINDS, problems)?;
    let description = if kind.is_described {
        description(&mut tree, problems)
    } else {
        None
    };
    let fingerprint = tree.fingerprint();
    let value = (kind.read)(&mut tree, problems)?;
    Some((
        Entry {
            value,
            tree,
            fingerprint,
        },
        description,
    ))
}

fn description(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<String> {
    let (_, value) = tree.take(DESCRIPTION)?;
    let text = value.text().map(str::to_owned);
    if text.is_none() {
        problems.error(Some(value.span), "`description` must be a text");
    }
    text
}

/// Entry of `all` that `key` names. The key is taken out.
fn choice<T: Copy>(
    tree: &mut Tree,
    key: &str,
    all: &[(&str, T)],
    problems: &mut Problems<'_>,
) -> Option<T> {
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some((_, value)) = tree.take(key) else {
        problems.error_with(
            Some(tree.span.clone()),
            format!("{WHAT} lacks `{key}`"),
            one_of(&known),
        );
        return None;
    };
    let Some(text) = value.text() else {
        problems.error(Some(value.span), format!("`{key}` must be a text"));
        return None;
    };
    let found = all.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        problems.not_among(
            Some(value.span.clone()),
            format!("there is no {key} of agent `{text}`"),
            text,
            &known,
        );
    }
    found.map(|(_, entry)| *entry)
}

/// Reads a declaration that serde can read. `what` names the table in messages.
fn declared<K: AgentKind + DeserializeOwned>(
    tree: &mut Tree,
    what: &str,
    problems: &mut Problems<'_>,
) -> Option<Box<dyn AgentKind>> {
    Some(Box::new(decode::<K>(tree, what, problems)?))
}

/// Reports what is wrong with keys of the agent `id`: each key, and why.
fn report<W: Display>(
    id: &str,
    wrong: impl IntoIterator<Item = (&'static str, W)>,
    tree: &Tree,
    problems: &mut Problems<'_>,
) {
    for (key, why) in wrong {
        problems.error(tree.place(key), format!("agent {id}: `{key}`: {why}"));
    }
}

/// The secret in a variable, or that there is no such variable.
fn secret(name: &str) -> Result<SecretString, String> {
    std::env::var(name)
        .map(SecretString::from)
        .map_err(|_| format!("there is no variable {name}"))
}

/// What an agent starts with.
#[derive(Clone, Copy)]
pub(crate) struct StartContext<'a> {
    pub(crate) system: &'a System,
    /// The folder of agents' data.
    pub(crate) state: &'a Path,
    pub(crate) topology: &'a Topology,
    /// Answers what servers elsewhere ask.
    pub(crate) answering: &'a Arc<dyn Answering>,
    /// Where agents elsewhere push.
    pub(crate) inboxes: &'a Inboxes,
    /// Fires when the node ends.
    pub(crate) ending: &'a CancellationToken,
    /// Agents that run already, by id; among them those that it needs.
    pub(crate) running: &'a HashMap<String, Running>,
}

impl StartContext<'_> {
    /// Spawns an agent that was opened, if it could be.
    fn spawn_opened<A: Agent + Clone + Sync, E: Display>(
        &self,
        id: &str,
        opened: Result<A, E>,
    ) -> Result<Running, StartError> {
        let agent = opened.map_err(|why| StartError::Failed {
            id: id.to_owned(),
            why: why.to_string(),
        })?;
        Ok(Running::new(spawn(self.system, id, agent)))
    }
}

/// Spawns an agent that begins anew from a clone after a failure.
pub(crate) fn spawn<A: Agent + Clone + Sync>(system: &System, label: &str, agent: A) -> AgentRef {
    system
        .prepare_with(move || agent.clone())
        .label(label)
        .spawn()
}

/// An agent that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) agent: AgentRef,
    /// Fingerprint of its declaration.
    pub(crate) fingerprint: u64,
    /// The agents that it was built on.
    pub(crate) needs: Vec<AgentId>,
    /// Which of its tools are shown.
    pub(crate) filter: Filter,
    /// Whether it stands for others of this node.
    pub(crate) is_bundle: bool,
    /// What its kind knows of it.
    state: Option<Arc<dyn Any + Send + Sync>>,
    /// The end of what it has elsewhere.
    teardown: Option<Shared<BoxFuture<'static, ()>>>,
}

/// An agent that goes on under another declaration, and what tells it so once the change is made.
pub(crate) type Renewed = (Running, Option<BoxFuture<'static, ()>>);

impl Running {
    pub(crate) fn new(agent: AgentRef) -> Self {
        let filter = Filter::default();
        Self {
            agent,
            fingerprint: 0,
            needs: Vec::new(),
            filter,
            is_bundle: false,
            state: None,
            teardown: None,
        }
    }

    /// The same, with `teardown` to be done after its end.
    fn ending_with(self, teardown: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            teardown: Some(teardown.boxed().shared()),
            ..self
        }
    }

    /// The same, with what its kind knows of it.
    fn with_state(self, state: impl Any + Send + Sync) -> Self {
        Self {
            state: Some(Arc::new(state)),
            ..self
        }
    }

    /// What its kind knows of it.
    pub(crate) fn state<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.state.as_ref()?.downcast_ref()
    }

    /// Ends what it has elsewhere, after its own end.
    pub(crate) async fn tear_down(self) {
        if let Some(teardown) = self.teardown {
            teardown.await;
        }
    }
}

/// Why an agent of a topology doesn't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// See what the agent says of its database, seed or file.
    #[error("failed to start {id}: {why}")]
    Failed {
        /// The agent's id.
        id: String,
        /// What is wrong.
        why: String,
    },
    /// Correct the declaration, or what it names.
    #[error("{what} {id}: {why}")]
    Declared {
        /// The kind of the declaration, for example `upstream`.
        what: &'static str,
        /// Its id.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Correct the `[[agent]]`, or see what the store says.
    #[error("mailroom {id}: {source}")]
    Mailroom {
        /// Whose.
        id: String,
        /// Why.
        source: MailroomError,
    },
    /// Correct the upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Rename a tool.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Mend the key file.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl StartError {
    /// Error of the `what` of that id, for `map_err`.
    fn declared<E: Display>(what: &'static str, id: &str) -> impl Fn(E) -> Self {
        move |why| Self::Declared {
            what,
            id: id.to_owned(),
            why: why.to_string(),
        }
    }

    /// Whether the user's file is at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Failed { .. } => false,
            Self::Mailroom { source, .. } => !matches!(source, MailroomError::Store(_)),
            Self::Declared { .. } | Self::Upstream(_) | Self::Bundle(_) | Self::Keys(_) => true,
        }
    }
}
