//! Whether what is declared of agent mail fits together.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use callboard_message::DataClass;

use super::super::agent::AgentDeclaration;
use super::super::check::place;
use super::super::file::{Entry, Sections};
use super::super::listener::{Listener, Speaks, Trust};
use super::super::problem::{Problems, did_you_mean};
use super::super::tree::Tree;
use super::{MailroomDeclaration, MemberDeclaration};

/// The ids of all that have mail: what is for them leads to them.
pub(in crate::config) fn led_to(sections: &Sections) -> impl Iterator<Item = &str> {
    mailrooms(sections).flat_map(|(declared, _)| declared.members.iter().map(|member| &*member.id))
}

fn mailrooms(sections: &Sections) -> impl Iterator<Item = (&MailroomDeclaration, &Tree)> {
    sections.agents.iter().filter_map(|entry| match &entry.value {
        AgentDeclaration::Mailroom(declared) => Some((&**declared, &entry.tree)),
        _ => None,
    })
}

/// Reports what doesn't fit together.
pub(in crate::config) fn check(sections: &Sections, known: &HashSet<&str>, problems: &mut Problems<'_>) {
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
            self.problems.error(place(tree, &[key]), format!("agent {id}: `{key}`: {why}"));
        }
        if entry.value.is_way() && !led_to(self.sections).any(|member| member == id) {
            let help = Some(format!("write [[agent.member]] with `id = \"{id}\"` below a mailroom"));
            let message = format!("{id} has no mail: no mailroom has it as a member");
            self.problems.warning_with(place(tree, &["id"]), message, help);
        }
    }

    fn members(&mut self, declared: &MailroomDeclaration, tree: &Tree) {
        let (mut seen, mut panes) = (HashSet::new(), HashMap::new());
        for (at, member) in declared.members.iter().enumerate() {
            let Some(place_of) = member_tree(tree, at) else { continue };
            for (key, why) in member.mistakes() {
                let message = format!("the member {} of {}: `{key}`: {why}", member.id, declared.id);
                self.problems.error(place(place_of, &[key]), message);
            }
            let span = place(place_of, &["id"]);
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
    fn misspelt(&mut self, declared: &MailroomDeclaration, member: &MemberDeclaration, span: Option<Range<usize>>) {
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
            self.problems.unknown(place(tree, &["agent"]), message, id, known);
        }
        let is_in_front = listener.named().any(leads_to_one);
        if is_in_front && listener.keys.is_none() && listener.trust == Trust::Anonymous {
            let message = format!("the listener on {bind}: who has mail comes with a key, and nobody has one here");
            let help = Some("write `keys`, or `trust = \"loopback_operator\"` for yourself alone".to_owned());
            self.problems.warning_with(place(tree, &["agent"]), message, help);
        }
    }
}

fn member_tree(tree: &Tree, at: usize) -> Option<&Tree> {
    tree.get("member").and_then(|list| list.items().get(at))
}
