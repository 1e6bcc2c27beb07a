//! Agent mail: the mailroom (`[[agent]]` of the kind `mailroom`), who has mail in it, and the ways out of this process that
//! are its own (`tmux`, `webhook`).

mod check;

use std::num::{NonZeroU32, NonZeroU64};

use callboard_mail::outbound::tmux::{PaneTarget, PaneTargetError};
use callboard_message::DataClass;
use callboard_message::mail::{
    GUARDIAN, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MailId, OPERATOR, SYSTEM,
};
use callboard_rpc::Egress;
use serde::Deserialize;

use super::a2a::{Range, WebUrl};
pub(super) use check::{check, led_to};

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
    pub(super) fn pane(&self) -> (Option<&str>, &PaneTarget) {
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
