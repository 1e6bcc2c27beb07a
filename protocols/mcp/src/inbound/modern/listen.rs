use std::sync::Arc;

use callboard_message::json::raw_from_written;
use callboard_message::{CapabilityChange, RawObject};
use callboard_rpc::{RequestId, RpcError, encode_notification};
use callboard_runtime::CallContext;
use futures::stream::StreamExt;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ModernRequest;
use super::pending_elicitations::ModernCaller;
use super::suspended_requests::cancelled_error;
use crate::change_damper::ChangeDamper;
use crate::inbound::endpoint::{AgentEndpoint, ResourceSubscription, change_notification};
use crate::inbound::options::CHANGE_INTERVAL;
use crate::inbound::request::{ParamName, RequestParams};
use crate::inbound::response::RequestResult;
use crate::inbound::tasks;
use crate::wire::code::OVERLOADED;
use crate::wire::meta::SUBSCRIPTION_ID;

/// Maximum number of undelivered changes of one subscription. Beyond it the subscription ends, and
/// the client must subscribe and list again.
const QUEUED_CHANGES_MAX: usize = 256;

/// Kinds of list changes: member of the subscription filter, server capability that declares the
/// change, the change itself.
const LIST_SUBSCRIPTIONS: [(&str, &str, CapabilityChange); 3] = [
    ("toolsListChanged", "tools", CapabilityChange::Tools),
    ("promptsListChanged", "prompts", CapabilityChange::Prompts),
    (
        "resourcesListChanged",
        "resources",
        CapabilityChange::Resources,
    ),
];

/// Changes that a client has subscribed to.
#[derive(Clone)]
struct SubscriptionFilter {
    /// Entries of [`LIST_SUBSCRIPTIONS`] that the client wants: member of the filter, server
    /// capability, change.
    lists: Vec<(&'static str, &'static str, CapabilityChange)>,
    uris: Vec<String>,
    /// Ids of the tasks whose changes are sent.
    task_ids: Vec<String>,
}

/// Executes `subscriptions/listen`: sends the wanted changes to `sink`. Returns when the client
/// disconnects or reads too slowly, when the agent has ended, or when the endpoint closes.
pub(super) async fn listen(request: ModernRequest<'_>) -> Result<RequestResult, RpcError> {
    let ModernRequest {
        service,
        principal,
        id,
        sink,
        hung_up,
        ..
    } = request;
    let (params, client) = (&request.request.params, &request.meta.abilities);
    let endpoint = &service.tasks.endpoint;
    let slot = service.subscriptions.try_acquire(&*principal);
    let _slot = slot
        .map_err(|error| RpcError::new(OVERLOADED, format!("too many subscriptions: {error}")))?;
    let mut filter =
        SubscriptionFilter::parse(params, endpoint.options.modern.subscription_uris_max)?;
    let caller = Arc::new(ModernCaller::new(None, client.clone(), None));
    let call = CallContext::new(principal.clone()).with_caller(caller);
    let about = endpoint.adapter().describe(call.clone()).await;
    filter.restrict_to(&endpoint.adapter().capabilities(&about));
    if !filter.task_ids.is_empty() && !tasks::declares_extension(client) {
        return Err(tasks::missing_extension());
    }
    let (task_ids, mut steps) = tasks::follow_tasks(
        &service.tasks,
        &principal,
        std::mem::take(&mut filter.task_ids),
    )
    .await;
    filter.task_ids = task_ids;

    let lost = CancellationToken::new();
    let (change_sender, mut changes) = mpsc::channel(QUEUED_CHANGES_MAX);
    let damper = queueing_damper(change_sender, lost.clone());
    let may_want = filter.clone();
    let _listening = endpoint.changes.subscribe(move |change| {
        if may_want.includes(change) {
            damper.report(change);
        }
    });
    let _watched = subscribe_resources(endpoint, &call, &mut filter).await;

    if !sink.send(notification(
        "notifications/subscriptions/acknowledged",
        id,
        RawObject::single("notifications", filter.to_object()),
    )) {
        return Err(cancelled_error());
    }
    loop {
        let change = tokio::select! {
            biased;
            () = hung_up.cancelled() => return Err(cancelled_error()),
            () = lost.cancelled() => break,
            () = service.closing.cancelled() => break,
            Some(step) = steps.next() => {
                if !sink.send(notification("notifications/tasks", id, step)) {
                    return Err(cancelled_error());
                }
                continue;
            }
            change = changes.recv() => change,
            () = endpoint.agent_ended() => None,
        };
        let Some(change) = change else { break };
        if let Some(message) = filter.notification_for(&change, id)
            && !sink.send(message)
        {
            return Err(cancelled_error());
        }
    }
    Ok(RequestResult::Complete(
        RawObject::single("_meta", subscription_meta(id)).to_raw(),
    ))
}

/// Creates a damper that queues changes in `queue`. Cancels `overflow` if the queue is full.
fn queueing_damper(
    queue: mpsc::Sender<CapabilityChange>,
    overflow: CancellationToken,
) -> ChangeDamper {
    ChangeDamper::new(CHANGE_INTERVAL, None, move |change| {
        if queue.try_send(change.clone()).is_err() {
            overflow.cancel();
        }
        None
    })
}

/// Subscribes to the filter's resources. Removes from the filter those that the agent refuses.
async fn subscribe_resources(
    endpoint: &AgentEndpoint,
    call: &CallContext,
    filter: &mut SubscriptionFilter,
) -> Vec<ResourceSubscription> {
    let mut watched = Vec::with_capacity(filter.uris.len());
    let mut subscribed = Vec::with_capacity(filter.uris.len());
    for uri in std::mem::take(&mut filter.uris) {
        if let Ok(watching) = endpoint
            .changes
            .subscribe_resource(&endpoint.adapter(), &uri, call.clone())
            .await
        {
            watched.push(watching);
            subscribed.push(uri);
        }
    }
    filter.uris = subscribed;
    watched
}

impl SubscriptionFilter {
    fn parse(params: &RequestParams, uris_max: usize) -> Result<Self, RpcError> {
        let invalid = |why: String| RpcError::invalid_params(why);
        let wanted = params
            .get(ParamName::Notifications)
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
                Err(invalid(format!(
                    "`{name}` has more than {uris_max} entries"
                )))
            } else {
                Ok(list)
            }
        };
        let mut lists = Vec::new();
        for of_list in LIST_SUBSCRIPTIONS {
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

    /// Removes the changes that aren't declared by the server capabilities.
    fn restrict_to(&mut self, capabilities: &RawObject) {
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

    fn to_object(&self) -> RawObject {
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

    fn includes(&self, change: &CapabilityChange) -> bool {
        match change {
            CapabilityChange::Resource(uri) => self.uris.contains(uri),
            list => self.lists.iter().any(|(.., wanted)| wanted == list),
        }
    }

    /// Returns the notification of a change for the subscription `id`; `None` if the filter doesn't
    /// include the change.
    fn notification_for(&self, change: &CapabilityChange, id: &RequestId) -> Option<bytes::Bytes> {
        let (method, params) = change_notification(change).filter(|_| self.includes(change))?;
        Some(notification(method, id, params))
    }
}

fn notification(method: &str, id: &RequestId, params: RawObject) -> bytes::Bytes {
    encode_notification(
        method,
        Some(&params.with("_meta", subscription_meta(id)).to_raw()),
    )
    .into()
}

fn subscription_meta(id: &RequestId) -> RawObject {
    let mut meta = RawObject::new();
    meta.set_raw(SUBSCRIPTION_ID, raw_from_written(id.as_json().to_owned()));
    meta
}
