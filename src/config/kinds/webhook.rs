//! Mail delivery to webhooks (`[[agent]] kind = "webhook"`).

use std::path::{Path, PathBuf};

use callboard_mail::outbound::webhook::{WebhookAgent, WebhookOptions};
use callboard_message::DataClass;
use callboard_message::mail::DeliveryMethod;
use callboard_rpc::EgressPolicy;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AgentDeclaration, Reachability, RunningAgent, StartContext, StartError, decode_declaration,
    report_key_errors,
};
use crate::config::DeclaredNames;
use crate::config::address::{NetworkRange, WebUrl};
use crate::config::problem::ProblemCollector;
use crate::config::secret::{check_secret, read_secret};
use crate::config::tls::{check_ca_file, client_tls, resolve_ca};
use crate::config::tree::ConfigTree;

/// A remote program that receives its mail by HTTP POST.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// URL that messages are posted to.
    pub url: WebUrl,
    /// Environment variable with the secret that signs messages.
    pub secret_env: Option<String>,
    /// Networks in which the URL may be, in addition to the public internet.
    #[serde(default)]
    pub allow: Vec<NetworkRange>,
    /// PEM file with the authorities of the receiver's certificate, in place of the public ones;
    /// relative to the topology file.
    pub ca: Option<PathBuf>,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<WebhookDeclaration>(tree, "a webhook", problems)
}

impl WebhookDeclaration {
    fn url_error(&self) -> Option<String> {
        let url = self.url.url();
        let begin = match url.scheme() {
            "http" if self.allow.is_empty() => {
                let why = "write https, or its network in `allow`: plain http stays on networks of your own";
                return Some(why.to_owned());
            }
            "http" => EgressPolicy::deny_all(),
            _ => EgressPolicy::public_internet(),
        };
        // Checks a literal address only. The address of a host name is checked at each request.
        let egress = self
            .allow
            .iter()
            .fold(begin, |egress, range| egress.with_network(range.network()));
        egress.check_url(url).err().map(|error| error.to_string())
    }
}

impl AgentDeclaration for WebhookDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "webhook"
    }

    /// Returns the class `Personal`, though senders decide what they write.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reachability(&self) -> Reachability {
        Reachability::Mail
    }

    fn resolve_paths(&mut self, folder: &Path) {
        self.ca = self.ca.take().map(|file| resolve_ca(&file, folder));
    }

    fn mail_delivery(&self) -> DeliveryMethod {
        DeliveryMethod::Webhook
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        report_key_errors(
            &self.id,
            self.url_error().map(|why| ("url", why)),
            tree,
            problems,
        );
        names.check_has_mailroom(&self.id, tree, problems);
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        self.secret_env
            .iter()
            .for_each(|name| check_secret(name, tree.span_of("secret_env"), problems));
        check_ca_file(self.ca.as_deref(), tree, problems);
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let wrong = StartError::declaration_error("agent", &self.id);
            let secret = self
                .secret_env
                .as_deref()
                .map(read_secret)
                .transpose()
                .map_err(&wrong)?;
            let options = WebhookOptions {
                secret,
                tls: client_tls(self.ca.as_deref()).map_err(&wrong)?,
                allowed_networks: self.allow.iter().map(|range| range.network()).collect(),
                ..WebhookOptions::new(self.url.url().clone())
            };
            let agent = WebhookAgent::new(options).map_err(|error| wrong(error.to_string()))?;
            Ok(RunningAgent::new(
                cx.system.prepare(agent).label(self.id.as_str()).spawn(),
            ))
        })
    }
}
