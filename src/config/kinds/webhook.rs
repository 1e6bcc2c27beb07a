//! A program elsewhere that gets its mail by HTTP (`[[agent]]` of the kind `webhook`).

use callboard_mail::outbound::webhook::{WebhookAgent, WebhookOptions};
use callboard_message::DataClass;
use callboard_message::mail::MemberWay;
use callboard_rpc::Egress;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::{AgentKind, Reach, Running, StartContext, StartError, declared, report, secret};
use crate::config::Names;
use crate::config::address::{Range, WebUrl};
use crate::config::problem::{Problems, is_set};
use crate::config::tree::Tree;

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

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<WebhookDeclaration>(tree, "a webhook", problems)
}

impl WebhookDeclaration {
    fn mistake(&self) -> Option<String> {
        let url = self.url.url();
        let begin = match url.scheme() {
            "http" if self.allow.is_empty() => {
                let why = "write https, or its network in `allow`: plain http stays on networks of your own";
                return Some(why.to_owned());
            }
            "http" => Egress::nowhere(),
            _ => Egress::public(),
        };
        // As far as the address itself says; where a name leads is judged at each post.
        let egress = self
            .allow
            .iter()
            .fold(begin, |egress, range| egress.with_network(range.network()));
        egress.check(url).err().map(|error| error.to_string())
    }
}

impl AgentKind for WebhookDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    /// Whatever somebody writes to it.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reach(&self) -> Reach {
        Reach::Mail
    }

    fn mail_way(&self) -> MemberWay {
        MemberWay::Webhook
    }

    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        report(
            &self.id,
            self.mistake().map(|why| ("url", why)),
            tree,
            problems,
        );
        names.check_has_mail(&self.id, tree, problems);
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        self.secret_env
            .iter()
            .for_each(|name| is_set(name, tree.place("secret_env"), problems));
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let wrong = StartError::declared("agent", &self.id);
            let secret = self
                .secret_env
                .as_deref()
                .map(secret)
                .transpose()
                .map_err(&wrong)?;
            let options = WebhookOptions {
                secret,
                allow: self.allow.iter().map(|range| range.network()).collect(),
                ..WebhookOptions::new(self.url.url().clone())
            };
            let agent = WebhookAgent::new(options).map_err(|error| wrong(error.to_string()))?;
            Ok(Running::new(
                cx.system.prepare(agent).label(self.id.as_str()).spawn(),
            ))
        })
    }
}
