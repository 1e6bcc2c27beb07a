//! Mailrooms (`[[agent]] kind = "mailroom"`) and their members.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::time::Duration;

use callboard_mailroom::{Mailroom, MailroomOptions, MemberDeclaration, ReconfigureMailroom};
use callboard_message::DataClass;
use callboard_message::mail::{
    DeliveryMethod, GUARDIAN_ID, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MemberId,
    OPERATOR_ID, SYSTEM_ID,
};
use callboard_rpc::KeyStore;
use callboard_runtime::AgentRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tmux::TmuxDeclaration;
use super::{
    AgentDeclaration, ReconfiguredAgent, RunningAgent, StartContext, StartError,
    decode_declaration, report_key_errors, spawn_cloned,
};
use crate::config::listener::ListenerDeclaration;
use crate::config::problem::{ProblemCollector, suggestion};
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, SECONDS_PER_DAY, Topology, personal};

/// Reserved ids: the Guardian, the local operator, and the node itself.
const RESERVED_IDS: [&str; 3] = [GUARDIAN_ID, OPERATOR_ID, SYSTEM_ID];

/// A mailroom: durable messages between its members.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailroomDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// Maximum number of messages per second of one member, broadcasts included. Default: 50.
    pub messages_a_second: Option<NonZeroU32>,
    /// Maximum number of messages per minute of one member to all or to a group. Default: 30.
    pub broadcasts_a_minute: Option<NonZeroU32>,
    /// Time in days until a message expires that states no expiry, at most 30. Default: 7.
    pub expires_days: Option<NonZeroU64>,
    /// Whether replies show `agent-456` as `456`.
    #[serde(default)]
    pub short_ids: bool,
    /// Highest class of data in messages. `clinical` is an error.
    #[serde(default = "personal")]
    pub class: DataClass,
    /// Declared members. Holders of a key are members too.
    #[serde(default, rename = "member")]
    pub members: Vec<MailMemberDeclaration>,
}

/// A member of a mailroom (`[[agent.member]]`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailMemberDeclaration {
    /// Id of the member. Mail for an agent or upstream of this file is delivered to it; any other
    /// member fetches its mail.
    pub id: String,
    /// Role of the member.
    pub role: Option<String>,
    /// Phase that the member works in.
    pub phase: Option<String>,
    /// Groups of the member, in addition to `everyone`.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether the member is outside the group `everyone`. Then it sees, and is seen by, members of
    /// its own groups only.
    #[serde(default)]
    pub exclude_from_broadcast: bool,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<MailroomDeclaration>(tree, "a mailroom", problems)
}

impl MailMemberDeclaration {
    fn mailroom_member(&self, topology: &Topology) -> MemberDeclaration {
        let Self {
            id,
            role,
            phase,
            groups,
            exclude_from_broadcast,
        } = self.clone();
        let member = MemberDeclaration {
            role,
            phase,
            groups,
            is_isolated: exclude_from_broadcast,
            ..MemberDeclaration::new(&*id)
        };
        if !topology.has_id(&id) {
            // A member outside this file fetches its mail.
            return member;
        }
        let agent = topology
            .agents_and_upstreams()
            .find(|agent| agent.id() == id);
        MemberDeclaration {
            delivery_method: Some(
                agent.map_or(DeliveryMethod::Agent, AgentDeclaration::mail_delivery),
            ),
            ..member.with_delivery_agent(id)
        }
    }

    /// Returns the mailroom's keys with invalid values, each with a reason; empty if all are valid.
    fn key_errors(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = MemberId::parse(&*self.id) {
            wrong.push(("id", error.to_string()));
        } else if RESERVED_IDS.contains(&&*self.id) {
            wrong.push((
                "id",
                format!("{} is a reserved id: choose another one", self.id),
            ));
        }
        let words = [("role", &self.role), ("phase", &self.phase)];
        let words = words
            .into_iter()
            .filter_map(|(key, word)| Some((key, word.as_ref()?)));
        for (key, word) in words.chain(self.groups.iter().map(|group| ("groups", group))) {
            if MemberId::parse(&**word).is_err() {
                let wants = format!(
                    "use 1 to {} characters of A-Z a-z 0-9 . _ -",
                    MemberId::CHARS_MAX
                );
                wrong.push((key, wants));
            }
        }
        if self.groups.len() > MAIL_GROUPS_MAX {
            wrong.push((
                "groups",
                format!("a member can be in {MAIL_GROUPS_MAX} groups at most"),
            ));
        }
        wrong
    }
}

impl MailroomDeclaration {
    /// Returns the member's keys with invalid values, each with a reason; empty if all are valid.
    fn key_errors(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.class == DataClass::Clinical {
            let why = "mail is stored and passed on, so it can't be clinical";
            wrong.push(("class", why.to_owned()));
        }
        let days_max = MAIL_EXPIRES_MAX.as_secs() / SECONDS_PER_DAY;
        if self.expires_days.is_some_and(|days| days.get() > days_max) {
            wrong.push(("expires_days", format!("it must be {days_max} at most")));
        }
        if self.members.len() > MAIL_MEMBERS_MAX {
            wrong.push((
                "member",
                format!("there can be {MAIL_MEMBERS_MAX} members at most"),
            ));
        }
        wrong
    }

    fn check_members(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let (mut seen, mut panes) = (HashSet::new(), HashMap::new());
        let trees = tree
            .get("member")
            .map(ConfigTree::items)
            .unwrap_or_default();
        for (member, tree) in self.members.iter().zip(trees) {
            let id = &*member.id;
            for (key, why) in member.key_errors() {
                problems.error(
                    tree.span_of(key),
                    format!("the member {id} of {}: `{key}`: {why}", self.id),
                );
            }
            let span = tree.span_of("id");
            if !seen.insert(id) {
                problems.error(span, format!("{id} is a member of {} twice", self.id));
            } else if let Some(why) = self.why_not_member(id, names) {
                problems.error(
                    span,
                    format!("{id} can't be a member of {}: {why}", self.id),
                );
            } else {
                self.check_spelling(id, span.clone(), names, problems);
                if let Some(tmux) = names.agent_of_kind::<TmuxDeclaration>(id)
                    && let Some(other) = panes.insert(tmux.pane_id(), id)
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

    /// Returns the reason why an agent can't be a member; `None` if it can.
    fn why_not_member(&self, id: &str, names: &DeclaredNames<'_>) -> Option<&'static str> {
        let agent = names
            .agents
            .get(id)
            .filter(|_| !names.unreadable_ids.contains(id))?;
        if agent.downcast::<Self>().is_some() || id == self.id {
            return Some("it is a mailroom");
        }
        (agent.class() == DataClass::Clinical)
            .then_some("its class is clinical, and mail is stored and passed on")
    }

    /// Warns if a member that isn't in the file has almost the id of an agent without mail.
    fn check_spelling(
        &self,
        id: &str,
        span: Option<Range<usize>>,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        if names.is_known(id) {
            return;
        }
        let with_mail: HashSet<&str> = names
            .agents_of_kind::<Self>()
            .flat_map(|room| room.reachable_ids().into_iter().chain([&*room.id]))
            .collect();
        let without = names
            .agents
            .keys()
            .copied()
            .filter(|id| !with_mail.contains(id));
        if let Some(help) = suggestion(id, without) {
            let message = format!(
                "the member {id} of {} isn't in this file: it has to ask for its mail",
                self.id
            );
            problems.warning_with(span, message, Some(help));
        }
    }

    /// Returns the mailroom's options, with the declared members and those that hold a key of a
    /// listener in front of it.
    ///
    /// # Errors
    /// [`StartError::Keys`] if a key file can't be read; [`StartError::Mailroom`] if the options
    /// are invalid.
    fn mailroom_options(&self, topology: &Topology) -> Result<MailroomOptions, StartError> {
        let default = MailroomOptions::default();
        let members = self
            .members
            .iter()
            .map(|member| member.mailroom_member(topology))
            .collect();
        let options = MailroomOptions {
            members: self.with_key_holders(members, topology)?,
            messages_per_second: self
                .messages_a_second
                .unwrap_or(default.messages_per_second),
            broadcasts_per_minute: self
                .broadcasts_a_minute
                .unwrap_or(default.broadcasts_per_minute),
            expires: self.expires_days.map_or(default.expires, |days| {
                Duration::from_secs(days.get() * SECONDS_PER_DAY)
            }),
            class: self.class,
            example_ids: self.short_ids,
        };
        options.validate().map_err(|source| StartError::Mailroom {
            id: self.id.clone(),
            source,
        })?;
        Ok(options)
    }

    /// Adds the holders of all keys of listeners in front of the mailroom. Mail for them is kept
    /// until they connect.
    fn with_key_holders(
        &self,
        mut members: Vec<MemberDeclaration>,
        topology: &Topology,
    ) -> Result<Vec<MemberDeclaration>, StartError> {
        let leads_here = |listener: &&ListenerDeclaration| {
            topology.includes_agent(&topology.served_ids(listener), &self.id)
        };
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
            // A key file may be absent if its listener isn't opened.
            let keys = KeyStore::load_or_new(file)?;
            let keys = keys.list().iter();
            let keys = keys.filter(|key| !key.is_revoked() && !key.is_expired());
            for keyed in
                keys.filter_map(|key| MemberDeclaration::from_key(key.principal_id(), &key.scopes))
            {
                match places.get(&keyed.id).and_then(|at| members.get_mut(*at)) {
                    Some(member) => member.key_scopes = keyed.key_scopes,
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

impl AgentDeclaration for MailroomDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "mailroom"
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn reachable_ids(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.id).collect()
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        report_key_errors(&self.id, self.key_errors(), tree, problems);
        self.check_members(tree, names, problems);
    }

    /// Applies changed options and members to the running mailroom. Undelivered mail is kept.
    fn reconfigure(
        &self,
        running: &RunningAgent,
        cx: &StartContext<'_>,
    ) -> Result<Option<ReconfiguredAgent>, StartError> {
        let Some(before) = running.kind_state::<MailroomOptions>() else {
            return Ok(None);
        };
        let options = self.mailroom_options(cx.topology)?;
        let changed = (*before != options)
            .then(|| apply_options(running.agent.clone(), options.clone()).boxed());
        Ok(Some((running.clone().with_kind_state(options), changed)))
    }

    /// Starts the mailroom with the mail in the store.
    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let options = self.mailroom_options(cx.topology)?;
            let mailroom = Mailroom::open(cx.system, options.clone()).await;
            let mailroom = mailroom.map_err(|source| StartError::Mailroom {
                id: self.id.clone(),
                source,
            })?;
            let running = RunningAgent::new(spawn_cloned(cx.system, &self.id, mailroom.clone()))
                .with_kind_state(options);
            Ok(running.with_teardown(async move { mailroom.close().await }))
        })
    }
}

/// Sends changed options to a running mailroom.
async fn apply_options(mailroom: AgentRef, options: MailroomOptions) {
    match mailroom.ask(ReconfigureMailroom { options }).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            tracing::error!(%failure, "mailroom rejected its changed configuration: the previous one stays in force")
        }
        Err(error) => {
            tracing::error!(%error, "failed to send a mailroom its changed configuration")
        }
    }
}
