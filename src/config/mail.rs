//! Mailrooms, their members, and the ways to those: what a file declares of them, and what doesn't fit.

use std::collections::{HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};

use callboard_mail::outbound::tmux::{PaneTarget, PaneTargetError};
use callboard_message::DataClass;
use callboard_message::mail::{
    GUARDIAN, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MailId, OPERATOR, SYSTEM,
};
use callboard_rpc::Egress;
use serde::Deserialize;

use super::a2a::{Range, WebUrl};
use super::agent::AgentDeclaration;
use super::listener::{Listener, Speaks, Trust};
use super::problem::{Problems, did_you_mean};
use super::tree::Tree;
use super::{Entry, Sections};

/// Ids that are somebody already: the Guardian, whoever sits at this machine, the node itself.
const TAKEN: [&str; 3] = [GUARDIAN, OPERATOR, SYSTEM];

/// A day.
pub(crate) const SECONDS_A_DAY: u64 = 24 * 60 * 60;

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

/// A program in a tmux pane, which gets its mail typed in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmuxDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// The pane: `session:window.pane`.
    pub target: Pane,
    /// tmux' server: its name, or the path of its socket where there is a `/` in it; the user's own where it isn't said.
    pub socket: Option<String>,
    /// Whether a message is followed by Enter.
    #[serde(default = "yes")]
    pub submit: bool,
    /// The programs of which one must be in front; without them, anything but a shell.
    #[serde(default)]
    pub command: Vec<String>,
}

/// A program elsewhere, which gets its mail by HTTP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// Where each message is posted.
    pub url: WebUrl,
    /// The variable with the secret that messages are signed with.
    pub secret_env: Option<String>,
    /// Networks that it may be in, beside the public internet.
    #[serde(default)]
    pub allow: Vec<Range>,
}

fn personal() -> DataClass {
    DataClass::Personal
}

fn yes() -> bool {
    true
}

impl MailroomDeclaration {
    /// What doesn't fit: the key at fault, and why.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
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
            wrong.push(("member", format!("there can be {MAIL_MEMBERS_MAX} members at most")));
        }
        wrong
    }
}

impl MemberDeclaration {
    /// What doesn't fit: the key at fault, and why.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = MailId::parse(&*self.id) {
            wrong.push(("id", error.to_string()));
        } else if TAKEN.contains(&&*self.id) {
            wrong.push(("id", format!("{} is somebody else: no member can be called that", self.id)));
        }
        let words = [("role", &self.role), ("phase", &self.phase)];
        let words = words.into_iter().filter_map(|(key, word)| Some((key, word.as_ref()?)));
        for (key, word) in words.chain(self.groups.iter().map(|group| ("groups", group))) {
            if MailId::parse(&**word).is_err() {
                let wants = format!("use 1 to {} characters of A-Z a-z 0-9 . _ -", MailId::CHARS_MAX);
                wrong.push((key, wants));
            }
        }
        if self.groups.len() > MAIL_GROUPS_MAX {
            wrong.push(("groups", format!("a member can be in {MAIL_GROUPS_MAX} at most")));
        }
        wrong
    }
}

impl TmuxDeclaration {
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.socket.as_deref().is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
            wrong.push(("socket", "write the name of a server of tmux, or the path of its socket".to_owned()));
        }
        if self.command.iter().any(String::is_empty) {
            wrong.push(("command", "a program has a name".to_owned()));
        }
        wrong
    }

    /// The pane that it is: two with the same one are one.
    fn pane(&self) -> (Option<&str>, &PaneTarget) {
        (self.socket.as_deref(), self.target.target())
    }
}

/// A pane, as `session:window.pane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pane(PaneTarget);

impl Pane {
    /// The pane.
    pub fn target(&self) -> &PaneTarget {
        &self.0
    }
}

impl TryFrom<String> for Pane {
    type Error = PaneTargetError;

    fn try_from(written: String) -> Result<Self, PaneTargetError> {
        written.parse().map(Self)
    }
}

impl WebhookDeclaration {
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let url = self.url.url();
        let begin = match url.scheme() {
            "http" if self.allow.is_empty() => {
                let why = "write https, or its network in `allow`: plain http stays on networks of your own";
                return vec![("url", why.to_owned())];
            }
            "http" => Egress::nowhere(),
            _ => Egress::public(),
        };
        // As far as the address itself says; where a name leads is judged at each post.
        let egress = self.allow.iter().fold(begin, |egress, range| egress.with_network(range.network()));
        egress.check(url).err().map(|error| ("url", error.to_string())).into_iter().collect()
    }
}

/// The ids of all that have mail: what is for them leads to them.
pub(super) fn led_to(sections: &Sections) -> impl Iterator<Item = &str> {
    mailrooms(sections).flat_map(|(declared, _)| declared.members.iter().map(|member| &*member.id))
}

fn mailrooms(sections: &Sections) -> impl Iterator<Item = (&MailroomDeclaration, &Tree)> {
    sections.agents.iter().filter_map(|entry| match &entry.value {
        AgentDeclaration::Mailroom(declared) => Some((&**declared, &entry.tree)),
        _ => None,
    })
}

/// Reports what doesn't fit together.
pub(super) fn check(sections: &Sections, known: &HashSet<&str>, problems: &mut Problems<'_>) {
    let mut checking = Checking { sections, known, problems };
    for entry in &sections.agents {
        checking.agent(entry);
    }
    for (declared, tree) in mailrooms(sections) {
        checking.members(declared, tree);
    }
    for entry in &sections.listeners {
        checking.listener(&entry.value, &entry.tree);
    }
}

struct Checking<'a, 'p, 't> {
    sections: &'a Sections,
    known: &'a HashSet<&'a str>,
    problems: &'p mut Problems<'t>,
}

impl<'a> Checking<'a, '_, '_> {
    fn agent(&mut self, entry: &Entry<AgentDeclaration>) {
        let (id, tree) = (entry.value.id(), &entry.tree);
        let mistakes = match &entry.value {
            AgentDeclaration::Mailroom(declared) => declared.mistakes(),
            AgentDeclaration::Tmux(declared) => declared.mistakes(),
            AgentDeclaration::Webhook(declared) => declared.mistakes(),
            _ => return,
        };
        for (key, why) in mistakes {
            self.problems.error(tree.place(key), format!("agent {id}: `{key}`: {why}"));
        }
        if entry.value.is_way() && !led_to(self.sections).any(|member| member == id) {
            let help = Some(format!("write [[agent.member]] with `id = \"{id}\"` below a mailroom"));
            let message = format!("{id} has no mail: no mailroom has it as a member");
            self.problems.warning_with(tree.place("id"), message, help);
        }
    }

    fn members(&mut self, declared: &MailroomDeclaration, tree: &Tree) {
        let (mut seen, mut panes) = (HashSet::new(), HashMap::new());
        for (at, member) in declared.members.iter().enumerate() {
            let Some(place_of) = member_tree(tree, at) else { continue };
            for (key, why) in member.mistakes() {
                let message = format!("the member {} of {}: `{key}`: {why}", member.id, declared.id);
                self.problems.error(place_of.place(key), message);
            }
            let span = place_of.place("id");
            if !seen.insert(&*member.id) {
                self.problems.error(span, format!("{} is a member of {} twice", member.id, declared.id));
                continue;
            }
            if let Some(why) = self.why_not(declared, member) {
                let message = format!("{} can't be a member of {}: {why}", member.id, declared.id);
                self.problems.error(span, message);
                continue;
            }
            self.misspelt(declared, member, span.clone());
            if let Some(AgentDeclaration::Tmux(tmux)) = self.agent_of(&member.id)
                && let Some(other) = panes.insert(tmux.pane(), &*member.id)
            {
                let message = format!("{} and {other} are the same pane: {}", member.id, tmux.target.target());
                self.problems.error(span, message);
            }
        }
    }

    /// Why it can't be one.
    fn why_not(&self, declared: &MailroomDeclaration, member: &MemberDeclaration) -> Option<&'static str> {
        let id = &*member.id;
        let is_unread = self.sections.unread.iter().any(|unread| unread == id);
        if id.is_empty() || is_unread || !self.known.contains(id) {
            return None;
        }
        let is_mailroom = matches!(self.agent_of(id), Some(AgentDeclaration::Mailroom(_)));
        if is_mailroom || id == declared.id {
            return Some("it is a mailroom");
        }
        let of_agents = self.agent_of(id).map(AgentDeclaration::class);
        let upstream = self.sections.upstreams.iter().find(|entry| entry.value.id == id);
        let class = of_agents.or(upstream.map(|entry| entry.value.class));
        (class == Some(DataClass::Clinical)).then_some("it is clinical, and mail is kept and handed on")
    }

    /// Whoever isn't in the file asks for its mail; where somebody in it without mail is called almost so, that may be meant.
    fn misspelt(
        &mut self,
        declared: &MailroomDeclaration,
        member: &MemberDeclaration,
        span: Option<std::ops::Range<usize>>,
    ) {
        let is_there = |id: &str| id == member.id;
        if self.known.contains(&*member.id) || self.sections.unread.iter().any(|unread| is_there(unread)) {
            return;
        }
        let with_mail: HashSet<&str> =
            mailrooms(self.sections).map(|(room, _)| &*room.id).chain(led_to(self.sections)).collect();
        let without = self.known.iter().copied().filter(|id| !with_mail.contains(id));
        if let Some(help) = did_you_mean(&member.id, without) {
            let message =
                format!("the member {} of {} isn't in this file: it has to ask for its mail", member.id, declared.id);
            self.problems.warning_with(span, message, Some(help));
        }
    }

    fn agent_of(&self, id: &str) -> Option<&'a AgentDeclaration> {
        self.sections.agents.iter().map(|entry| &entry.value).find(|agent| agent.id() == id)
    }

    fn listener(&mut self, listener: &Listener, tree: &Tree) {
        let bind = listener.bind;
        let leads_to_one = |id: &str| mailrooms(self.sections).any(|(declared, _)| declared.id == id);
        if listener.speaks() == Speaks::Mail
            && let Some(id) = listener.agent.as_deref().filter(|id| self.known.contains(id) && !leads_to_one(id))
        {
            let message = format!("the listener on {bind}: {id} is no mailroom");
            let known = mailrooms(self.sections).map(|(declared, _)| &*declared.id);
            self.problems.unknown(tree.place("agent"), message, id, known);
        }
        let is_in_front = listener.named().any(leads_to_one);
        if is_in_front && listener.keys.is_none() && listener.trust == Trust::Anonymous {
            let message = format!("the listener on {bind}: who has mail comes with a key, and nobody has one here");
            let help = Some("write `keys`, or `trust = \"loopback_operator\"` for yourself alone".to_owned());
            self.problems.warning_with(tree.place("agent"), message, help);
        }
    }
}

fn member_tree(tree: &Tree, at: usize) -> Option<&Tree> {
    tree.get("member").and_then(|list| list.items().get(at))
}
