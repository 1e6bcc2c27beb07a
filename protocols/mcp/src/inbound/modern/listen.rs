use std::sync::Arc;

use callboard_message::json::raw;
use callboard_message::{Abilities, Change, Principal, RawObject};
use callboard_rpc::{Id, RpcError, encode_notification};
use callboard_runtime::CallMeta;
use futures::stream::StreamExt;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ModernService;
use super::suspended_requests::cancelled;
use crate::inbound::client::MessageSink;
use crate::inbound::endpoint::{Endpoint, Watching, change_notification};
use crate::inbound::request::{Member, Params};
use crate::inbound::response::Reply;
use crate::inbound::tasks;
use crate::wire::code::OVERLOADED;
use crate::wire::meta::SUBSCRIPTION_ID;

/// Changes that wait for one subscriber. One that is slower misses some, so its subscription ends: it lists anew.
const CHANGES_WAITING_MAX: usize = 256;

/// Lists that change: the member of a subscription, the capability, and the change.
const LISTS: [(&str, &str, Change); 3] = [
    ("toolsListChanged", "tools", Change::Tools),
    ("promptsListChanged", "prompts", Change::Prompts),
    ("resourcesListChanged", "resources", Change::Resources),
];

/// Which changes a subscriber hears of.
struct Filter {
    /// Of [`LISTS`].
    lists: Vec<(&'static str, &'static str, Change)>,
    uris: Vec<String>,
    /// Tasks whose steps it wants to hear of.
    task_ids: Vec<String>,
}

/// `subscriptions/listen`: stays open until its client hangs up, or the agent or the endpoint ends.
pub(crate) async fn listen(
    service: &ModernService,
    principal: Arc<Principal>,
    id: &Id,
    params: &Params,
    client: &Abilities,
    link: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let (endpoint, full) = (
        &service.tasks.endpoint,
        "too many subscriptions are open: end one, or try again later",
    );
    let _slot = service
        .subscriptions
        .try_acquire()
        .map_err(|_| RpcError::new(OVERLOADED, full))?;
    let mut filter = Filter::read(params, endpoint.options.modern.subscription_uris_max)?;
    let about = endpoint
        .adapter()
        .about(CallMeta::new(principal.clone()))
        .await;
    filter.narrow(&endpoint.adapter().capabilities(&about));
    if !filter.task_ids.is_empty() && !tasks::declares(client) {
        return Err(tasks::undeclared());
    }
    let (task_ids, mut steps) = tasks::follow(
        &service.tasks,
        &principal,
        std::mem::take(&mut filter.task_ids),
    )
    .await;
    filter.task_ids = task_ids;

    let lost = CancellationToken::new();
    let (told, mut changes) = mpsc::channel(CHANGES_WAITING_MAX);
    let overflow = lost.clone();
    let _listening = endpoint.changes.listen(move |change| {
        if told.try_send(change.clone()).is_err() {
            overflow.cancel();
        }
    });
    let _watched = watch(endpoint, &principal, &mut filter).await;

    if !link.send(notification(
        "notifications/subscriptions/acknowledged",
        id,
        RawObject::of("notifications", filter.members()),
    )) {
        return Err(cancelled());
    }
    loop {
        let change = tokio::select! {
            biased;
            () = hung_up.cancelled() => return Err(cancelled()),
            () = lost.cancelled() => break,
            () = service.closing.cancelled() => break,
            Some(step) = steps.next() => {
                if !link.send(notification("notifications/tasks", id, step)) {
                    return Err(cancelled());
                }
                continue;
            }
            change = changes.recv() => change,
            () = endpoint.agent_ended() => None,
        };
        let Some(change) = change else { break };
        if let Some(message) = filter.message(&change, id)
            && !link.send(message)
        {
            return Err(cancelled());
        }
    }
    Ok(Reply::Complete(
        RawObject::of("_meta", subscription(id)).to_raw(),
    ))
}

/// Watches the resources of the filter, and leaves out of it what can't be watched.
async fn watch(
    endpoint: &Endpoint,
    principal: &Arc<Principal>,
    filter: &mut Filter,
) -> Vec<Watching> {
    let mut watched = Vec::with_capacity(filter.uris.len());
    let mut kept = Vec::with_capacity(filter.uris.len());
    for uri in std::mem::take(&mut filter.uris) {
        if let Ok(watching) = endpoint
            .changes
            .watch(&endpoint.adapter(), &uri, CallMeta::new(principal.clone()))
            .await
        {
            watched.push(watching);
            kept.push(uri);
        }
    }
    filter.uris = kept;
    watched
}

impl Filter {
    fn read(params: &Params, uris_max: usize) -> Result<Self, RpcError> {
        let invalid = |why: String| RpcError::invalid_params(why);
        let wanted = params
            .get(Member::Notifications)
            .and_then(|raw| RawObject::parse(raw).ok());
        let wanted = wanted.ok_or_else(|| invalid("`notifications` must be an object".into()))?;
        let flag = |name: &str| match wanted.get(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(format!("`{name}` must be true or false"))),
        };
        let list = |name: &str| -> Result<Vec<String>, RpcError> {
            let list: Vec<String> = match wanted.get(name) {
                None => Vec::new(),
                Some(raw) => serde_json::from_str(raw.get())
                    .map_err(|_| invalid(format!("`{name}` must be a list of strings")))?,
            };
            if list.len() > uris_max {
                Err(invalid(format!("more than {uris_max} `{name}`")))
            } else {
                Ok(list)
            }
        };
        let mut lists = Vec::new();
        for of_list in LISTS {
            if flag(of_list.0)? {
                lists.push(of_list);
            }
        }
        Ok(Self {
            lists,
            uris: list("resourceSubscriptions")?,
            task_ids: list("taskIds")?,
        })
    }

    /// Leaves what the server can tell.
    fn narrow(&mut self, capabilities: &RawObject) {
        let can = |what: &str, how: &str| {
            capabilities
                .object(what)
                .and_then(|of| of.read(how))
                .unwrap_or(false)
        };
        self.lists
            .retain(|(_, capability, _)| can(capability, "listChanged"));
        if !can("resources", "subscribe") {
            self.uris.clear();
        }
    }

    fn members(&self) -> RawObject {
        let mut members = RawObject::new();
        self.lists
            .iter()
            .for_each(|(member, ..)| members.set(member, true));
        if !self.uris.is_empty() {
            members.set("resourceSubscriptions", &self.uris);
        }
        if !self.task_ids.is_empty() {
            members.set("taskIds", &self.task_ids);
        }
        members
    }

    /// The notification of a change; `None` where it isn't asked for.
    fn message(&self, change: &Change, id: &Id) -> Option<bytes::Bytes> {
        let is_wanted = match change {
            Change::Resource(uri) => self.uris.contains(uri),
            list => self.lists.iter().any(|(.., wanted)| wanted == list),
        };
        let (method, params) = change_notification(change).filter(|_| is_wanted)?;
        Some(notification(method, id, params))
    }
}

fn notification(method: &str, id: &Id, params: RawObject) -> bytes::Bytes {
    encode_notification(
        method,
        Some(&params.with("_meta", subscription(id)).to_raw()),
    )
    .into()
}

fn subscription(id: &Id) -> RawObject {
    let mut meta = RawObject::new();
    meta.set_raw(SUBSCRIPTION_ID, raw(id.as_json().to_owned()));
    meta
}
