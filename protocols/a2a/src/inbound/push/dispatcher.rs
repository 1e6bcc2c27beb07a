//! Stores push configurations, and runs a worker for each one whose task is active.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_runtime::{
    AuditEntry, AuditLog, JournalError, KvEntry, KvError, KvStore, Task, TaskId, TaskStore,
};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::config::{self, PUSH_CONFIGS_MAX, StoredPushConfig};
use super::sender::{DeliveryOutcome, PushSender};
use crate::inbound::calls::{A2aTaskService, NumberedEvent, PushConfigHandler, RequestContext};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig, WireType,
};
use crate::{A2aError, Dialect, ErrorKind};

/// Maximum number of push configurations to which events are delivered at the same time.
/// At the limit: `Overloaded`.
pub const PUSH_WORKERS_MAX: usize = 1_024;
/// Maximum number of consecutive events that may be dropped because a receiver doesn't accept them.
/// At the limit: nothing more is sent to the receiver.
pub const PUSH_CONSECUTIVE_DROPS_MAX: u32 = 20;
/// Interval of the scan that starts missing workers of configurations, and deletes configurations
/// of deleted tasks.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Number of configurations that are read from the store at once.
const NOTES_READ_MAX: usize = 100;

/// Dispatcher of push notifications for an agent's tasks. Dropping it stops its deliveries; another
/// process can continue them from the store.
pub(crate) struct PushDispatcher {
    state: Arc<DispatcherState>,
    /// Guard that stops the workers when the dispatcher is dropped. The workers themselves hold
    /// references to `state`.
    _ends: DropGuard,
}

struct DispatcherState {
    calls: Arc<A2aTaskService>,
    notes: Arc<dyn KvStore>,
    tasks: Arc<dyn TaskStore>,
    audit: AuditLog,
    sender: Option<PushSender>,
    space: String,
    node: String,
    workers: Arc<PushWorkers>,
    stopped: CancellationToken,
}

/// Registry of the workers that deliver to an agent's push configurations. All dispatchers of the
/// process share it.
#[derive(Default)]
struct PushWorkers {
    all: Mutex<HashMap<String, PushWorker>>,
    /// Held from the count of a task's configurations until the new one is stored, so that requests
    /// at the same time can't exceed [`PUSH_CONFIGS_MAX`].
    creation: tokio::sync::Mutex<()>,
    /// Counter that changes when a worker of a stopped dispatcher has ended, so that another
    /// dispatcher can start its successor.
    handovers: watch::Sender<u64>,
}

/// A running worker, which delivers to one push configuration.
struct PushWorker {
    /// Version of the configuration's store entry when the worker was started. A worker replaces
    /// those with lower versions.
    version: u64,
    stopped: CancellationToken,
}

impl PushDispatcher {
    /// Creates a dispatcher for the tasks of `calls`. Within a tokio runtime it continues the
    /// deliveries to stored configurations at once.
    pub(crate) fn new(calls: &Arc<A2aTaskService>, options: &A2aOptions) -> Self {
        let store = &calls.store;
        let sender = PushSender::new(&options.push);
        let sender = sender
            .inspect_err(
                |error| callboard_message::log::error!(%error, "push notifications are disabled: their HTTP client can't be built"),
            )
            .ok();
        let stopped = CancellationToken::new();
        let state = Arc::new(DispatcherState {
            calls: calls.clone(),
            notes: store.kv.clone(),
            tasks: store.tasks.clone(),
            audit: AuditLog::new(store.audit.clone()),
            sender,
            space: config::push_namespace(&options.task_scope()),
            node: node_name(store.tasks.worker_id()).to_owned(),
            workers: calls.live.shared_state(),
            stopped: stopped.clone(),
        });
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(scan_periodically(Arc::downgrade(&state), stopped.clone()));
        }
        Self {
            state,
            _ends: stopped.drop_guard(),
        }
    }

    /// Returns the callback to register by [`A2aTaskService::set_push_handler`], which stores a
    /// configuration.
    pub(crate) fn config_handler(&self) -> Arc<PushConfigHandler> {
        let state = Arc::downgrade(&self.state);
        Arc::new(move |who, task, config| {
            let state = state.clone();
            Box::pin(async move {
                let stopping =
                    || ErrorKind::Overloaded.error("the server is stopping: try again later");
                DispatcherState::create(&state.upgrade().ok_or_else(stopping)?, &who, &task, config)
                    .await
                    .map(drop)
            })
        })
    }

    /// Stores a configuration, replacing the one of the same id, and starts delivering the task's
    /// events from now on.
    ///
    /// # Errors
    /// `InvalidParams` if it is invalid or its receiver isn't allowed;
    /// `PushNotificationNotSupported` if the server can't send; `Overloaded`.
    pub(crate) async fn create(
        &self,
        who: &RequestContext,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        DispatcherState::create(&self.state, who, task, config).await
    }

    /// Returns the configuration with this id, or the latest if `id` is empty.
    ///
    /// # Errors
    /// `TaskNotFound` if there is none.
    pub(crate) async fn get(
        &self,
        task: &Task,
        id: &str,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let mut all = self.state.configs_of_task(&task.id).await?;
        let found = match id {
            "" => all.into_iter().max_by_key(|(note, _)| note.at),
            _ => all
                .iter()
                .position(|(_, kept)| kept.config.id == id)
                .map(|at| all.swap_remove(at)),
        };
        let missing = || {
            ErrorKind::TaskNotFound.error(
                "the task has no such push notification configuration: list them for their ids",
            )
        };
        found.map(|(_, kept)| kept.config).ok_or_else(missing)
    }

    /// Returns a page of a task's configurations, sorted by id.
    ///
    /// # Errors
    /// `InvalidParams` if the page token is invalid.
    pub(crate) async fn list(
        &self,
        task: &Task,
        request: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2aError> {
        let after = match &*request.page_token {
            "" => String::new(),
            token => URL_SAFE_NO_PAD
                .decode(token)
                .ok()
                .and_then(|after| String::from_utf8(after).ok())
                .ok_or_else(|| {
                    ErrorKind::InvalidParams.error("`pageToken` is invalid: list again without it")
                })?,
        };
        let page_max = usize::try_from(request.page_size)
            .ok()
            .filter(|size| *size > 0)
            .unwrap_or(PUSH_CONFIGS_MAX);
        let all = self
            .state
            .configs_of_task(&task.id)
            .await?
            .into_iter()
            .map(|(_, kept)| kept.config);
        let mut configs: Vec<_> = all.filter(|config| config.id > after).collect();
        let is_all = configs.len() <= page_max;
        configs.truncate(page_max);
        let last = configs.last().filter(|_| !is_all);
        let next_page_token = last
            .map(|config| URL_SAFE_NO_PAD.encode(&config.id))
            .unwrap_or_default();
        Ok(ListTaskPushNotificationConfigsResponse {
            configs,
            next_page_token,
        })
    }

    /// Deletes a configuration, if it exists. An event that is being sent may still arrive.
    ///
    /// # Errors
    /// `InvalidParams` if the id is invalid; errors of the task store.
    pub(crate) async fn delete(&self, task: &Task, id: &str) -> Result<(), A2aError> {
        config::check_id(id)?;
        self.state
            .remove_config(&config::config_key(&task.id, id))
            .await
            .map_err(store_error)
    }

    /// Stops delivery by this dispatcher. Stored configurations stay.
    pub(crate) fn stop(&self) {
        self.state.stopped.cancel();
    }
}

impl DispatcherState {
    async fn create(
        self: &Arc<Self>,
        who: &RequestContext,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let config = config::validate_config(config, task)?;
        let sender = self.sender.as_ref();
        let none = || {
            ErrorKind::PushNotificationNotSupported.error(
                "this server can't send push notifications: subscribe to the task, or poll it",
            )
        };
        sender.ok_or_else(none)?.check_receiver(&config.url).await?;
        let key = config::config_key(&task.id, &config.id);
        let creation = self.workers.creation.lock().await;
        let others = self.configs_of_task(&task.id).await?;
        if others.len() >= PUSH_CONFIGS_MAX && others.iter().all(|(note, _)| note.key != key) {
            let full = format!(
                "a task has at most {PUSH_CONFIGS_MAX} push notification configurations: delete one first"
            );
            return Err(ErrorKind::InvalidParams.error(full));
        }
        if !self.has_capacity(&key) {
            return Err(ErrorKind::Overloaded.error(format!(
                "{PUSH_WORKERS_MAX} push notification configurations are in use, which is the limit: try again later"
            )));
        }
        // The first event of a new task is its beginning, which the receiver gets too.
        let delivered = if task.last_event <= 1 {
            0
        } else {
            task.last_event
        };
        let kept = StoredPushConfig {
            config,
            dialect: who.dialect,
            delivered,
            is_abandoned: false,
            node: self.node.clone(),
        };
        let put = self
            .notes
            .put(&self.space, &key, kept.to_body(), None)
            .await;
        let version = put.map_err(|error| match error {
            KvError::Journal(error) => store_error(error),
            _ => ErrorKind::Overloaded
                .error("the push notification configuration was changed concurrently: try again"),
        })?;
        drop(creation);
        let created = kept.config.clone();
        // The task is read again, because it may have ended in the meantime: then there is nothing
        // to deliver.
        let now = self.tasks.get(&task.id).await.map_err(store_error)?;
        if let Some(task) =
            now.filter(|task| !task.state.is_terminal() || task.last_event > kept.delivered)
        {
            self.start_worker(key, kept, version, task);
        }
        Ok(created)
    }

    /// Returns the stored configurations of a task, sorted by id.
    async fn configs_of_task(
        &self,
        task: &TaskId,
    ) -> Result<Vec<(KvEntry, StoredPushConfig)>, A2aError> {
        let begins = config::config_key(task, "");
        let notes = self
            .notes
            .list(&self.space, Some(&begins), PUSH_CONFIGS_MAX + 1)
            .await
            .map_err(store_error)?;
        let own = notes
            .into_iter()
            .take_while(|note| note.key.starts_with(&begins));
        Ok(own
            .filter_map(|note| StoredPushConfig::from_note(&note).map(|kept| (note, kept)))
            .collect())
    }

    async fn remove_config(&self, key: &str) -> Result<(), JournalError> {
        self.notes.remove(&self.space, key).await?;
        if let Some(worker) = self.workers().remove(key) {
            worker.stopped.cancel();
        }
        Ok(())
    }

    fn workers(&self) -> parking_lot::MutexGuard<'_, HashMap<String, PushWorker>> {
        self.workers.all.lock()
    }

    fn has_capacity(&self, key: &str) -> bool {
        let workers = self.workers();
        workers.len() < PUSH_WORKERS_MAX || workers.contains_key(key)
    }

    /// Starts the worker of a push configuration. It replaces a running worker for an older version
    /// of the configuration.
    fn start_worker(
        self: &Arc<Self>,
        key: String,
        kept: StoredPushConfig,
        version: u64,
        task: Arc<Task>,
    ) {
        let stopped = self.stopped.child_token();
        {
            let mut workers = self.workers();
            let known = workers.get(&key).map(|worker| worker.version);
            // At the limit, a later scan starts the worker.
            if known.is_some_and(|since| since >= version)
                || (known.is_none() && workers.len() >= PUSH_WORKERS_MAX)
            {
                return;
            }
            let before = workers.insert(
                key.clone(),
                PushWorker {
                    version,
                    stopped: stopped.clone(),
                },
            );
            if let Some(before) = before {
                before.stopped.cancel();
            }
        }
        let state = self.clone();
        self.calls.live.spawn_on_runtime(async move {
            let work = ConfigDelivery {
                state: &state,
                key: &key,
                kept,
                version,
            };
            stopped.run_until_cancelled(work.run(task)).await;
            let mut workers = state.workers();
            if workers
                .get(&key)
                .is_some_and(|worker| worker.version == version)
            {
                workers.remove(&key);
            }
            if state.stopped.is_cancelled() {
                state.workers.handovers.send_modify(|number| *number += 1);
            }
        });
    }

    /// Starts missing workers of stored configurations, and deletes configurations whose tasks were
    /// deleted.
    async fn scan_configs(self: &Arc<Self>) -> Result<(), JournalError> {
        let mut after = None;
        loop {
            let notes = self
                .notes
                .list(&self.space, after.as_deref(), NOTES_READ_MAX)
                .await?;
            let Some(last) = notes.last() else {
                return Ok(());
            };
            after = Some(last.key.clone());
            for note in notes {
                self.scan_config(note).await?;
            }
        }
    }

    async fn scan_config(self: &Arc<Self>, note: KvEntry) -> Result<(), JournalError> {
        let Some((task, _)) = config::parse_config_key(&note.key) else {
            return Ok(());
        };
        let Some(task) = self.tasks.get(&task).await? else {
            return self.remove_config(&note.key).await;
        };
        let Some(kept) = StoredPushConfig::from_note(&note) else {
            return Ok(());
        };
        // The node that works on the task delivers too; else the node that stored the
        // configuration.
        let posts = task
            .lease
            .as_ref()
            .map_or(&*kept.node, |lease| node_name(&lease.worker));
        let has_news =
            !kept.is_abandoned && (!task.state.is_terminal() || task.last_event > kept.delivered);
        let is_idle = !self.workers().contains_key(&note.key);
        if has_news && is_idle && posts == self.node && self.has_capacity(&note.key) {
            self.start_worker(note.key, kept, note.version, task);
        }
        Ok(())
    }
}

/// Returns the node's name from a worker id of the form `NAME#EPOCH`.
fn node_name(worker: &str) -> &str {
    worker.rsplit_once('#').map_or(worker, |(name, _)| name)
}

/// Scans the configurations periodically, as long as the dispatcher exists.
async fn scan_periodically(state: Weak<DispatcherState>, stopped: CancellationToken) {
    let Some(mut handovers) = state
        .upgrade()
        .map(|state| state.workers.handovers.subscribe())
    else {
        return;
    };
    let looking = async {
        while let Some(state) = state.upgrade() {
            if let Err(error) = state.scan_configs().await {
                callboard_message::log::warn!(%error, "failed to scan push notification configurations");
            }
            drop(state);
            // Without a sender there is no dispatcher either.
            let _ = timeout(SCAN_INTERVAL, handovers.changed()).await;
        }
    };
    stopped.run_until_cancelled(looking).await;
}

/// Converts an error of the store to that of the operation.
fn store_error(error: JournalError) -> A2aError {
    match error {
        JournalError::Invalid(_) | JournalError::TooLarge { .. } => ErrorKind::InvalidParams
            .error("the push notification configuration is invalid, or too large to be stored"),
        error => {
            callboard_message::log::warn!(%error, "failed to read or store a push notification configuration");
            ErrorKind::Overloaded.error("the store is unavailable: try again later")
        }
    }
}

/// Delay before a worker accesses the store again after an error.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Delivery of a task's events to one push configuration.
struct ConfigDelivery<'a> {
    state: &'a DispatcherState,
    key: &'a str,
    kept: StoredPushConfig,
    /// Version of the configuration's store entry, as this worker last wrote it.
    version: u64,
}

impl ConfigDelivery<'_> {
    /// Delivers events until the task has ended, the configuration was replaced or deleted, or
    /// delivery is given up.
    async fn run(mut self, task: Arc<Task>) {
        let mut dropped_in_a_row = 0;
        let mut task = task;
        loop {
            let Ok(mut events) = self
                .state
                .calls
                .events_after(&task, self.kept.delivered)
                .await
            else {
                sleep(STORE_RETRY_DELAY).await;
                continue;
            };
            loop {
                let event = match events.next().await {
                    None => return,
                    Some(Ok(event)) => event,
                    Some(Err(_)) => break,
                };
                let Ok(body) = self.payload(&task, &event).await else {
                    break;
                };
                let Some(sender) = &self.state.sender else {
                    return;
                };
                match sender
                    .send(&self.kept.config, self.kept.dialect, &body)
                    .await
                {
                    DeliveryOutcome::Delivered => dropped_in_a_row = 0,
                    DeliveryOutcome::Gone => {
                        let _ = self.state.notes.remove(&self.state.space, self.key).await;
                        return;
                    }
                    DeliveryOutcome::Dropped(why) => {
                        dropped_in_a_row += 1;
                        self.audit_dropped(&task, event.number, why);
                    }
                }
                self.kept.is_abandoned = dropped_in_a_row >= PUSH_CONSECUTIVE_DROPS_MAX;
                if !self.save_progress(event.number).await || self.kept.is_abandoned {
                    return;
                }
            }
            // The store failed to return the next events.
            sleep(STORE_RETRY_DELAY).await;
            match self.state.tasks.get(&task.id).await {
                Ok(Some(now)) => task = now,
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// Returns the body of a notification: the event for receivers of 1.0, the whole task for those
    /// of older versions.
    async fn payload(&self, task: &Task, event: &NumberedEvent) -> Result<String, A2aError> {
        if self.kept.dialect == Dialect::V10 {
            return Ok(event.event.to_json());
        }
        let gone = || ErrorKind::TaskNotFound.error("the task is gone");
        let now = self
            .state
            .tasks
            .get(&task.id)
            .await
            .map_err(store_error)?
            .ok_or_else(gone)?;
        let seen = self.state.calls.to_wire_task(&now, None).await?;
        Ok(self.kept.dialect.write_task(&seen).get().to_owned())
    }

    /// Stores the number of the last event that was delivered or dropped. Returns whether delivery
    /// continues: false if the configuration was replaced or deleted.
    async fn save_progress(&mut self, number: u64) -> bool {
        self.kept.delivered = number;
        let (notes, space) = (&self.state.notes, &self.state.space);
        match notes
            .put(space, self.key, self.kept.to_body(), Some(self.version))
            .await
        {
            Ok(version) => {
                self.version = version;
                true
            }
            Err(KvError::VersionConflict { .. }) => false,
            Err(error) => {
                // After a restart the event is sent once more, which receivers must expect.
                callboard_message::log::warn!(%error, "failed to record the delivery of a push notification");
                true
            }
        }
    }

    fn audit_dropped(&self, task: &Task, event: u64, why: &'static str) {
        let url = Url::parse(&self.kept.config.url).ok();
        let receiver = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let entry = AuditEntry::new("a2a.push_dropped")
            .with_agent(&task.agent)
            .with_peer(receiver);
        let entry = entry
            .with_principal(&task.principal)
            .with_class(task.class)
            .with_outcome(why);
        self.state.audit.try_enqueue(
            entry
                .with_detail("task", task.id.as_str())
                .with_detail("event", event),
        );
    }
}
