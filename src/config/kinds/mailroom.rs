//! Mailrooms (`[[agent]]` of the kind `mailroom`): agents write to each other through one. Its members, and what doesn't fit them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::time::Duration;

use callboard_mailroom::{Declare, Declared, Mailroom, MailroomOptions};
use callboard_message::DataClass;
use callboard_message::mail::{
    GUARDIAN, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MailId, MemberWay, OPERATOR,
    SYSTEM,
};
use callboard_rpc::KeyStore;
use callboard_runtime::AgentRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::tmux::TmuxDeclaration;
use super::{AgentKind, Renewed, Running, StartContext, StartError, declared, report, spawn};
use crate::config::listener::Listener;
use crate::config::problem::{Problems, did_you_mean};
use crate::config::tree::Tree;
use crate::config::{Names, SECONDS_A_DAY, Topology, personal};

/// Ids that are somebody already: the Guardian, whoever sits at this machine, the node itself.
const TAKEN: [&str; 3] = [GUARDIAN, OPERATOR, SYSTEM];

/// A mailroom: agents write to each other through it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailroomDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// Messages that one member may send a second.
    pub messages_a_second: Option<NonZeroU32>,
    /// Messages to all, or to a group, that one member may send a minute.
    pub broadcasts_a_minute: Option<NonZeroU32>,
    /// How many days a message is handed out that doesn't say it itself.
    pub expires_days: Option<NonZeroU64>,
    /// Whether replies show `agent-456` as `456`.
    #[serde(default)]
    pub example_ids: bool,
    /// What messages may hold; never `clinical`.
    #[serde(default = "personal")]
    pub class: DataClass,
    /// Those that have mail there, beside whoever comes with a key.
    #[serde(default, rename = "member")]
    pub members: Vec<MemberDeclaration>,
}

/// One that has mail (`[[agent.member]]`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberDeclaration {
    /// The id of an agent or upstream of this file: what is for it goes there. Any other asks for its mail.
    pub id: String,
    /// Its role.
    pub role: Option<String>,
    /// The phase that it works in.
    pub phase: Option<String>,
    /// The groups that it is in, beside `everyone`.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether it isn't in `everyone`: it sees, and is seen by, those of its groups alone.
    #[serde(default)]
    pub apart: bool,
}

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<MailroomDeclaration>(tree, "a mailroom", problems)
}

impl MemberDeclaration {
    fn declared(&self, topology: &Topology) -> Declared {
        let Self {
            id,
            role,
            phase,
            groups,
            apart,
        } = self.clone();
        let member = Declared {
            role,
            phase,
            groups,
            apart,
            ..Declared::new(&*id)
        };
        if !topology.has(&id) {
            // Whoever it is asks for its mail.
            return member;
        }
        let agent = topology.all().find(|agent| agent.id() == id);
        Declared {
            via: Some(agent.map_or(MemberWay::Agent, AgentKind::mail_way)),
            ..member.with_way(id)
        }
    }

    /// Keys at fault, and why.
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = MailId::parse(&*self.id) {
            wrong.push(("id", error.to_string()));
        } else if TAKEN.contains(&&*self.id) {
            wrong.push((
                "id",
                format!("{} is somebody else: no member can be called that", self.id),
            ));
        }
        let words = [("role", &self.role), ("phase", &self.phase)];
        let words = words
            .into_iter()
            .filter_map(|(key, word)| Some((key, word.as_ref()?)));
        for (key, word) in words.chain(self.groups.iter().map(|group| ("groups", group))) {
            if MailId::parse(&**word).is_err() {
                let wants = format!(
                    "use 1 to {} characters of A-Z a-z 0-9 . _ -",
                    MailId::CHARS_MAX
                );
                wrong.push((key, wants));
            }
        }
        if self.groups.len() > MAIL_GROUPS_MAX {
            wrong.push((
                "groups",
                format!("a member can be in {MAIL_GROUPS_MAX} at most"),
            ));
        }
        wrong
    }
}

impl MailroomDeclaration {
    /// Keys at fault, and why.
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.class == DataClass::Clinical {
            let why = "mail is kept and handed on: it can't be clinical";
            wrong.push(("class", why.to_owned()));
        }
        let days_max = MAIL_EXPIRES_MAX.as_secs() / SECONDS_A_DAY;
        if self.expires_days.is_some_and(|days| days.get() > days_max) {
            wrong.push(("expires_days", format!("it can be {days_max} at most")));
        }
        if self.members.len() > MAIL_MEMBERS_MAX {
            wrong.push((
                "member",
                format!("there can be {MAIL_MEMBERS_MAX} members at most"),
            ));
        }
        wrong
    }

    fn check_members(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let (mut seen, mut panes) = (HashSet::new(), HashMap::new());
        let trees = tree.get("member").map(Tree::items).unwrap_or_default();
        for (member, tree) in self.members.iter().zip(trees) {
            let id = &*member.id;
            for (key, why) in member.mistakes() {
                problems.error(
                    tree.place(key),
                    format!("the member {id} of {}: `{key}`: {why}", self.id),
                );
            }
            let span = tree.place("id");
            if !seen.insert(id) {
                problems.error(span, format!("{id} is a member of {} twice", self.id));
            } else if let Some(why) = self.why_not(id, names) {
                problems.error(
                    span,
                    format!("{id} can't be a member of {}: {why}", self.id),
                );
            } else {
                self.check_spelling(id, span.clone(), names, problems);
                if let Some(tmux) = names.agent::<TmuxDeclaration>(id)
                    && let Some(other) = panes.insert(tmux.pane(), id)
                {
                    problems.error(
                        span,
                        format!(
                            "{id} and {other} are the same pane: {}",
                            tmux.target.target()
                        ),
                    );
                }
            }
        }
    }

    /// Why an agent can't be a member.
    fn why_not(&self, id: &str, names: &Names<'_>) -> Option<&'static str> {
        let agent = names
            .agents
            .get(id)
            .filter(|_| !names.unread.contains(id))?;
        if agent.downcast::<Self>().is_some() || id == self.id {
            return Some("it is a mailroom");
        }
        (agent.class() == DataClass::Clinical)
            .then_some("it is clinical, and mail is kept and handed on")
    }

    /// Whoever isn't in the file asks for its mail; where somebody in it without mail is called almost so, that may be meant.
    fn check_spelling(
        &self,
        id: &str,
        span: Option<Range<usize>>,
        names: &Names<'_>,
        problems: &mut Problems<'_>,
    ) {
        if names.is_known(id) {
            return;
        }
        let with_mail: HashSet<&str> = names
            .all::<Self>()
            .flat_map(|room| room.leads_to().into_iter().chain([&*room.id]))
            .collect();
        let without = names
            .agents
            .keys()
            .copied()
            .filter(|id| !with_mail.contains(id));
        if let Some(help) = did_you_mean(id, without) {
            let message = format!(
                "the member {id} of {} isn't in this file: it has to ask for its mail",
                self.id
            );
            problems.warning_with(span, message, Some(help));
        }
    }

    /// Options as the topology declares them.
    fn options(&self, topology: &Topology) -> Result<MailroomOptions, StartError> {
        let default = MailroomOptions::default();
        let members = self
            .members
            .iter()
            .map(|member| member.declared(topology))
            .collect();
        let options = MailroomOptions {
            members: self.with_keys(members, topology)?,
            messages_a_second: self.messages_a_second.unwrap_or(default.messages_a_second),
            broadcasts_a_minute: self
                .broadcasts_a_minute
                .unwrap_or(default.broadcasts_a_minute),
            expires: self.expires_days.map_or(default.expires, |days| {
                Duration::from_secs(days.get() * SECONDS_A_DAY)
            }),
            class: self.class,
            example_ids: self.example_ids,
        };
        options.check().map_err(|source| StartError::Mailroom {
            id: self.id.clone(),
            source,
        })?;
        Ok(options)
    }

    /// Members, and whoever can come with a key of a listener that leads to the mailroom: what is for them waits.
    fn with_keys(
        &self,
        mut members: Vec<Declared>,
        topology: &Topology,
    ) -> Result<Vec<Declared>, StartError> {
        let leads_here =
            |listener: &&Listener| topology.leads_to(&topology.behind(listener), &self.id);
        let in_front = topology.listeners.iter().filter(leads_here);
        let files: BTreeSet<_> = in_front
            .filter_map(|listener| listener.keys.as_deref())
            .collect();
        let mut places: HashMap<String, usize> = members
            .iter()
            .enumerate()
            .map(|(at, member)| (member.id.clone(), at))
            .collect();
        for file in files {
            // Where nothing listens, it needn't be there.
            let keys = KeyStore::load_or_new(file)?;
            let keys = keys.list().iter().filter(|key| !key.is_revoked());
            for keyed in keys.filter_map(|key| Declared::of_key(&key.name, &key.scopes)) {
                match places.get(&keyed.id).and_then(|at| members.get_mut(*at)) {
                    Some(member) => member.key = keyed.key,
                    None => {
                        places.insert(keyed.id.clone(), members.len());
                        members.push(keyed);
                    }
                }
            }
        }
        Ok(members)
    }
}

impl AgentKind for MailroomDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn leads_to(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.id).collect()
    }

    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        report(&self.id, self.mistakes(), tree, problems);
        self.check_members(tree, names, problems);
    }

    /// It stays, with what is on its way, whoever its members are.
    fn renew(
        &self,
        running: &Running,
        cx: &StartContext<'_>,
    ) -> Result<Option<Renewed>, StartError> {
        let Some(before) = running.state::<MailroomOptions>() else {
            return Ok(None);
        };
        let options = self.options(cx.topology)?;
        let changed =
            (*before != options).then(|| declare(running.agent.clone(), options.clone()).boxed());
        Ok(Some((running.clone().with_state(options), changed)))
    }

    /// Starts it with the mail that the store has.
    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let options = self.options(cx.topology)?;
            let mailroom = Mailroom::open(cx.system, options.clone()).await;
            let mailroom = mailroom.map_err(|source| StartError::Mailroom {
                id: self.id.clone(),
                source,
            })?;
            let running =
                Running::new(spawn(cx.system, &self.id, mailroom.clone())).with_state(options);
            Ok(running.ending_with(async move { mailroom.end().await }))
        })
    }
}

/// Tells a mailroom how it is set up from now on. What it has goes on.
async fn declare(mailroom: AgentRef, options: MailroomOptions) {
    match mailroom.ask(Declare { options }).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            tracing::error!(%failure, "a mailroom doesn't take what is declared of it")
        }
        Err(error) => {
            tracing::error!(%error, "a mailroom isn't there to take what is declared of it")
        }
    }
}
