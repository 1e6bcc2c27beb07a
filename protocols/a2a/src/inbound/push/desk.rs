//! Keeps configurations, and has a worker for each one whose task lives.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_runtime::{
    AuditEntry, AuditLog, JournalError, Note, NoteError, Notes, Task, TaskId, Tasks,
};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::config::{self, Kept, PUSH_CONFIGS_MAX};
use super::sender::{Sender, Sent};
use crate::inbound::calls::{Calls, KeepPush, Numbered, Who};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig, Wire,
};
use crate::{A2aError, Dialect, ErrorKind};

/// Most configurations that are worked on at once.
/// At the limit: `Overloaded`.
pub const PUSH_WORKERS_MAX: usize = 1_024;
/// After so many events in a row that a receiver didn't take, it is sent no more.
/// At the limit: nothing more is posted.
pub const PUSH_DROPPED_IN_A_ROW_MAX: u32 = 20;
/// How often it looks for configurations that nobody works on, and for those whose tasks are gone.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Notes that are read at once.
const NOTES_READ_MAX: usize = 100;

/// The push configurations of an agent's tasks. With it its workers end, and another process goes on from what is kept.
pub(crate) struct PushDesk {
    desk: Arc<Desk>,
    /// Ends the workers, which hold the inner desk.
    _ends: DropGuard,
}

struct Desk {
    calls: Arc<Calls>,
    notes: Arc<dyn Notes>,
    tasks: Arc<dyn Tasks>,
    audit: AuditLog,
    sender: Option<Sender>,
    space: String,
    node: String,
    workers: Arc<Workers>,
    stopped: CancellationToken,
}

/// Who works on the configurations of an agent's tasks: of several desks in a process one.
#[derive(Default)]
struct Workers {
    all: Mutex<HashMap<String, Worker>>,
    /// Another number each time that a desk has gone which worked on one.
    left: watch::Sender<u64>,
}

/// Who works on a configuration.
struct Worker {
    /// The note's version that it began with: a newer worker has a higher one.
    since: u64,
    stopped: CancellationToken,
}

impl PushDesk {
    /// A desk over the store of `calls`. Within a tokio runtime it goes on with what is kept at once.
    pub(crate) fn new(calls: &Arc<Calls>, options: &A2aOptions) -> Self {
        let store = &calls.store;
        let sender = Sender::new(&options.push);
        let sender = sender
            .inspect_err(|error| callboard_message::log::error!(%error, "there will be no push notifications"))
            .ok();
        let stopped = CancellationToken::new();
        let desk = Arc::new(Desk {
            calls: calls.clone(),
            notes: store.notes.clone(),
            tasks: store.tasks.clone(),
            audit: AuditLog::new(store.audit.clone()),
            sender,
            space: config::space(&options.scope()),
            node: name_of(store.tasks.worker()).to_owned(),
            workers: calls.live.beside(),
            stopped: stopped.clone(),
        });
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(look(Arc::downgrade(&desk), stopped.clone()));
        }
        Self {
            desk,
            _ends: stopped.drop_guard(),
        }
    }

    /// For [`Calls::keep_pushes_with`].
    pub(crate) fn keeper(&self) -> Arc<KeepPush> {
        let desk = Arc::downgrade(&self.desk);
        Arc::new(move |who, task, config| {
            let desk = desk.clone();
            Box::pin(async move {
                let stopping = || ErrorKind::Overloaded.error("the server is stopping");
                Desk::create(&desk.upgrade().ok_or_else(stopping)?, &who, &task, config)
                    .await
                    .map(drop)
            })
        })
    }

    /// Keeps a configuration in the place of the one of its id, and begins to post what happens to the task from now on.
    ///
    /// # Errors
    /// `InvalidParams` where it doesn't fit or may not be posted to; `Overloaded`.
    pub(crate) async fn create(
        &self,
        who: &Who,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        Desk::create(&self.desk, who, task, config).await
    }

    /// The configuration of an id; the latest where that is empty.
    ///
    /// # Errors
    /// `TaskNotFound` where there is none.
    pub(crate) async fn get(
        &self,
        task: &Task,
        id: &str,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let mut all = self.desk.of_task(&task.id).await?;
        let found = match id {
            "" => all.into_iter().max_by_key(|(note, _)| note.at),
            _ => all
                .iter()
                .position(|(_, kept)| kept.config.id == id)
                .map(|at| all.swap_remove(at)),
        };
        let missing = || {
            ErrorKind::TaskNotFound.error("the task has no such push notification configuration")
        };
        found.map(|(_, kept)| kept.config).ok_or_else(missing)
    }

    /// The configurations of a task, by their ids.
    ///
    /// # Errors
    /// `InvalidParams` for a token that no answer had.
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
                    ErrorKind::InvalidParams.error("pageToken is none of this list's")
                })?,
        };
        let page_max = usize::try_from(request.page_size)
            .ok()
            .filter(|size| *size > 0)
            .unwrap_or(PUSH_CONFIGS_MAX);
        let all = self
            .desk
            .of_task(&task.id)
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

    /// Forgets a configuration, if it is there. An event that is being posted may still arrive.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn delete(&self, task: &Task, id: &str) -> Result<(), A2aError> {
        config::check_id(id)?;
        self.desk
            .forget(&config::key(&task.id, id))
            .await
            .map_err(unkept)
    }

    /// Ends the work here. What is kept stays.
    pub(crate) fn stop(&self) {
        self.desk.stopped.cancel();
    }
}

impl Desk {
    async fn create(
        self: &Arc<Self>,
        who: &Who,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let config = config::checked(config, task)?;
        let sender = self.sender.as_ref();
        let none = || ErrorKind::PushNotificationNotSupported.error("this server can't post now");
        sender.ok_or_else(none)?.check(&config.url).await?;
        let key = config::key(&task.id, &config.id);
        let others = self.of_task(&task.id).await?;
        if others.len() >= PUSH_CONFIGS_MAX && others.iter().all(|(note, _)| note.key != key) {
            let full =
                format!("a task has at most {PUSH_CONFIGS_MAX} push notification configurations");
            return Err(ErrorKind::InvalidParams.error(full));
        }
        if !self.has_room(&key) {
            return Err(
                ErrorKind::Overloaded.error("too many push notification configurations are in use")
            );
        }
        // A new task's first event is that it began: its receiver is to know that too.
        let delivered = if task.last_event <= 1 {
            0
        } else {
            task.last_event
        };
        let kept = Kept {
            config,
            dialect: who.dialect,
            delivered,
            given_up: false,
            node: self.node.clone(),
        };
        let put = self
            .notes
            .put(&self.space, &key, kept.to_body(), None)
            .await;
        let version = put.map_err(|error| match error {
            NoteError::Journal(error) => unkept(error),
            _ => ErrorKind::Overloaded.error("it was changed meanwhile: try again"),
        })?;
        let created = kept.config.clone();
        // Asked again: it may have ended since, and then there is nothing to tell.
        let now = self.tasks.get(&task.id).await.map_err(unkept)?;
        if let Some(task) =
            now.filter(|task| !task.state.is_terminal() || task.last_event > kept.delivered)
        {
            self.begin(key, kept, version, task);
        }
        Ok(created)
    }

    /// The configurations of a task, by their ids.
    async fn of_task(&self, task: &TaskId) -> Result<Vec<(Note, Kept)>, A2aError> {
        let begins = config::key(task, "");
        let notes = self
            .notes
            .list(&self.space, Some(&begins), PUSH_CONFIGS_MAX + 1)
            .await
            .map_err(unkept)?;
        let own = notes
            .into_iter()
            .take_while(|note| note.key.starts_with(&begins));
        Ok(own
            .filter_map(|note| Kept::of(&note).map(|kept| (note, kept)))
            .collect())
    }

    async fn forget(&self, key: &str) -> Result<(), JournalError> {
        self.notes.remove(&self.space, key).await?;
        if let Some(worker) = self.workers().remove(key) {
            worker.stopped.cancel();
        }
        Ok(())
    }

    fn workers(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Worker>> {
        self.workers.all.lock()
    }

    fn has_room(&self, key: &str) -> bool {
        let workers = self.workers();
        workers.len() < PUSH_WORKERS_MAX || workers.contains_key(key)
    }

    /// Begins to work on a configuration, in the place of who did.
    fn begin(self: &Arc<Self>, key: String, kept: Kept, version: u64, task: Arc<Task>) {
        let stopped = self.stopped.child_token();
        {
            let mut workers = self.workers();
            let known = workers.get(&key).map(|worker| worker.since);
            // Where there is no room after all, it is found when there is.
            if known.is_some_and(|since| since >= version)
                || (known.is_none() && workers.len() >= PUSH_WORKERS_MAX)
            {
                return;
            }
            let before = workers.insert(
                key.clone(),
                Worker {
                    since: version,
                    stopped: stopped.clone(),
                },
            );
            if let Some(before) = before {
                before.stopped.cancel();
            }
        }
        let desk = self.clone();
        self.calls.live.spawn_here(async move {
            let work = Work {
                desk: &desk,
                key: &key,
                kept,
                version,
            };
            stopped.run_until_cancelled(work.run(task)).await;
            let mut workers = desk.workers();
            if workers
                .get(&key)
                .is_some_and(|worker| worker.since == version)
            {
                workers.remove(&key);
            }
            if desk.stopped.is_cancelled() {
                desk.workers.left.send_modify(|number| *number += 1);
            }
        });
    }

    /// Goes on with what nobody works on, and forgets what is of tasks that are gone.
    async fn look(self: &Arc<Self>) -> Result<(), JournalError> {
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
                self.look_at(note).await?;
            }
        }
    }

    async fn look_at(self: &Arc<Self>, note: Note) -> Result<(), JournalError> {
        let Some((task, _)) = config::parts_of(&note.key) else {
            return Ok(());
        };
        let Some(task) = self.tasks.get(&task).await? else {
            return self.forget(&note.key).await;
        };
        let Some(kept) = Kept::of(&note) else {
            return Ok(());
        };
        // Whoever works on the task posts too; else who made the configuration.
        let posts = task
            .lease
            .as_ref()
            .map_or(&*kept.node, |lease| name_of(&lease.by));
        let has_news =
            !kept.given_up && (!task.state.is_terminal() || task.last_event > kept.delivered);
        let is_idle = !self.workers().contains_key(&note.key);
        if has_news && is_idle && posts == self.node && self.has_room(&note.key) {
            self.begin(note.key, kept, note.version, task);
        }
        Ok(())
    }
}

/// A node's name in leases is `NAME#EPOCH`.
fn name_of(worker: &str) -> &str {
    worker.rsplit_once('#').map_or(worker, |(name, _)| name)
}

/// Looks from time to time, as long as there is a desk.
async fn look(desk: Weak<Desk>, stopped: CancellationToken) {
    let Some(mut left) = desk.upgrade().map(|desk| desk.workers.left.subscribe()) else {
        return;
    };
    let looking = async {
        while let Some(desk) = desk.upgrade() {
            if let Err(error) = desk.look().await {
                callboard_message::log::warn!(%error, "no look at push notification configurations");
            }
            drop(desk);
            // Without a sender there is no desk either.
            let _ = timeout(LOOK_EVERY, left.changed()).await;
        }
    };
    stopped.run_until_cancelled(looking).await;
}

/// The store didn't do it.
fn unkept(error: JournalError) -> A2aError {
    match error {
        JournalError::Invalid(_) | JournalError::TooLarge { .. } => {
            ErrorKind::InvalidParams.error("the push notification configuration can't be kept")
        }
        error => {
            callboard_message::log::warn!(%error, "a push notification configuration wasn't kept or found");
            ErrorKind::Overloaded.error("the store can't do it now")
        }
    }
}

/// How long a worker waits when the store can't tell what happened.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The work on one configuration.
struct Work<'a> {
    desk: &'a Desk,
    key: &'a str,
    kept: Kept,
    /// Of the note, as far as this knows.
    version: u64,
}

impl Work<'_> {
    /// Posts events until the task has ended, or the configuration is another or gone.
    async fn run(mut self, task: Arc<Task>) {
        let mut dropped_in_a_row = 0;
        let mut task = task;
        loop {
            let Ok(mut events) = self.desk.calls.follow(&task, self.kept.delivered).await else {
                sleep(AGAIN_AFTER).await;
                continue;
            };
            loop {
                let event = match events.next().await {
                    None => return,
                    Some(Ok(event)) => event,
                    Some(Err(_)) => break,
                };
                let Ok(body) = self.body(&task, &event).await else {
                    break;
                };
                let Some(sender) = &self.desk.sender else {
                    return;
                };
                match sender
                    .send(&self.kept.config, self.kept.dialect, &body)
                    .await
                {
                    Sent::Delivered => dropped_in_a_row = 0,
                    Sent::Gone => {
                        let _ = self.desk.notes.remove(&self.desk.space, self.key).await;
                        return;
                    }
                    Sent::Dropped(why) => {
                        dropped_in_a_row += 1;
                        self.note_dropped(&task, event.number, why);
                    }
                }
                self.kept.given_up = dropped_in_a_row >= PUSH_DROPPED_IN_A_ROW_MAX;
                if !self.keep(event.number).await || self.kept.given_up {
                    return;
                }
            }
            // The store couldn't tell what happened next.
            sleep(AGAIN_AFTER).await;
            match self.desk.tasks.get(&task.id).await {
                Ok(Some(now)) => task = now,
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// What is posted: 1.0's receivers get the event, those of older versions the task.
    async fn body(&self, task: &Task, event: &Numbered) -> Result<String, A2aError> {
        if self.kept.dialect == Dialect::V10 {
            return Ok(event.event.to_json());
        }
        let gone = || ErrorKind::TaskNotFound.error("the task is gone");
        let now = self
            .desk
            .tasks
            .get(&task.id)
            .await
            .map_err(unkept)?
            .ok_or_else(gone)?;
        let seen = self.desk.calls.seen(&now, None).await?;
        Ok(self.kept.dialect.write_task(&seen).get().to_owned())
    }

    /// Keeps how far it came. Whether it may go on: nobody put another configuration there, or took it away.
    async fn keep(&mut self, number: u64) -> bool {
        self.kept.delivered = number;
        let (notes, space) = (&self.desk.notes, &self.desk.space);
        match notes
            .put(space, self.key, self.kept.to_body(), Some(self.version))
            .await
        {
            Ok(version) => {
                self.version = version;
                true
            }
            Err(NoteError::Changed { .. }) => false,
            Err(error) => {
                // After a restart it would come once more: a receiver must be ready for that.
                callboard_message::log::warn!(%error, "it wasn't kept that a push notification arrived");
                true
            }
        }
    }

    fn note_dropped(&self, task: &Task, event: u64, why: &'static str) {
        let url = Url::parse(&self.kept.config.url).ok();
        let receiver = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let entry = AuditEntry::new("a2a.push_dropped")
            .with_agent(&task.agent)
            .with_peer(receiver);
        let entry = entry
            .with_principal(&task.principal)
            .with_class(task.class)
            .with_outcome(why);
        self.desk
            .audit
            .note(entry.with("task", task.id.as_str()).with("event", event));
    }
}
