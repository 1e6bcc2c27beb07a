//! Tasks that run in this process, shared by the protocol servers: each task has one call and one
//! worker that applies its steps.

mod caller;
mod lease_renewal;
#[cfg(test)]
mod tests;
mod worker;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ptr::addr_eq;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use callboard_message::{Artifact, CallerCapabilities, RawObject, log};
use caller::{TaskCaller, WorkerEvent};
use futures::future::{BoxFuture, FutureExt, join_all, ready};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use worker::{TaskWorker, WorkerExit};

pub use lease_renewal::{CannotResume, FoundTask, TaskHost};
pub use worker::{QuestionClaim, RunningTask};

use super::{
    CreateOutcome, Lease, NewTask, ReleaseReason, Task, TaskActor, TaskError, TaskId, TaskOwner,
    TaskResult, TaskStep, TaskStore,
};
use crate::call::Caller;
use crate::journal::JournalError;
use crate::node_events::NodeEvents;
use crate::sync::Mutex;

/// Maximum number of open questions of one task.
const TASK_QUESTIONS_MAX: usize = 64;

/// Maximum number of attempts to create a task when the store returns
/// [`JournalError::Unknown`].
const CREATE_TRIES_MAX: usize = 3;
/// Maximum number of an owner's ended tasks that are deleted at once to make room for a new one. More
/// would hold up other writes of the store.
const EVICTED_TASKS_MAX: usize = 8;
/// Maximum number of times that ended tasks are deleted to make room for one new task.
const EVICTIONS_MAX: usize = 8;
/// Number of locks by which owners make room, each for itself unless they share one by chance.
const EVICTION_LOCKS: usize = 64;
/// Time limit for the release of running tasks at shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Function that returns the steps that end a task after its call; the last one is the end. The
/// argument is true if artifacts were sent during the call and all of them are stored.
pub type EndSteps = Box<dyn FnOnce(bool) -> Vec<TaskStep> + Send>;
/// Future of a running task's call. Dropping it cancels the call.
pub type TaskCall = BoxFuture<'static, EndSteps>;
/// Function that starts or resumes the call of a task, given the call's caller and deadline.
pub type BeginTaskCall<'a> = Box<dyn FnOnce(Arc<dyn Caller>, Instant) -> TaskCall + Send + 'a>;
/// Function that encodes an artifact as JSON for the store.
pub type ArtifactEncoder = fn(&Artifact) -> RawObject;

/// Arguments for running a task in this process.
pub struct TaskRun<'a> {
    /// The stored task.
    pub task: Arc<Task>,
    /// Lease of this process on the task.
    pub lease: Lease,
    /// True if the task was interrupted and now continues.
    pub is_resumed: bool,
    /// Kinds of question that the task's clients can answer.
    pub abilities: Arc<CallerCapabilities>,
    /// Caller that receives progress and log lines at once, in addition to the store.
    pub observer: Option<Arc<dyn Caller>>,
    /// Function that starts the call of the task.
    pub begin_call: BeginTaskCall<'a>,
}

/// Task whose call has started in the caller's tokio task.
struct StartedRun {
    task: Arc<Task>,
    lease: Lease,
    is_resumed: bool,
    caller: Arc<TaskCaller>,
    expiry: Instant,
    work: TaskCall,
}

/// Result of [`RunningTasks::run_inline`].
pub enum RunOutcome {
    /// The task continues. Holds its state at the start, and its handle.
    Running(Arc<Task>, RunningTask),
    /// The task has ended. Holds its final state.
    Ended(Arc<Task>),
}

/// Tasks of one scope that run in this process.
pub struct RunningTasks {
    /// Store of the tasks.
    pub tasks: Arc<dyn TaskStore>,
    /// Scope of the tasks in the store.
    pub scope: String,
    options: RunningTaskOptions,
    running: Mutex<HashMap<TaskId, RunningTask>>,
    /// Counter that changes each time that a task leaves `running`.
    finished: watch::Sender<u64>,
    /// Runtime that renews leases. Set once renewal has started.
    renewal_runtime: OnceLock<Handle>,
    /// Servers of this scope, the newest last.
    hosts: Mutex<Vec<Weak<dyn TaskHost>>>,
    /// State shared by all servers of the scope. See [`Self::shared_state`].
    shared_state: OnceLock<Arc<dyn Any + Send + Sync>>,
    stopped: CancellationToken,
    /// Event stream that is told of changed states.
    events: OnceLock<Arc<NodeEvents>>,
    /// Held while ended tasks of an owner are deleted for a new one, by the hash of the owner.
    evicting: [tokio::sync::Mutex<()>; EVICTION_LOCKS],
    owner_hasher: RandomState,
}

/// Options for the tasks of a scope that run in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningTaskOptions {
    /// True if the store is shared with other processes and outlives this one. Leases are then
    /// renewed and interrupted tasks resumed.
    pub is_shared: bool,
    /// True if ended tasks stay in memory until they expire, and are then deleted from the store.
    pub keeps_ended: bool,
    /// True if the owner's oldest ended tasks are deleted to make room when the task limit is
    /// reached.
    pub evicts_ended: bool,
    /// Encoder for artifacts sent during a call. Without an encoder these artifacts aren't stored,
    /// as the reply repeats them.
    pub artifact_encoder: Option<ArtifactEncoder>,
}

impl RunningTasks {
    /// Creates an empty set of running tasks for a scope of the store `tasks`.
    pub fn new(tasks: Arc<dyn TaskStore>, scope: String, options: RunningTaskOptions) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            scope,
            options,
            running: Mutex::default(),
            finished: watch::Sender::new(0),
            renewal_runtime: OnceLock::new(),
            hosts: Mutex::default(),
            shared_state: OnceLock::new(),
            stopped: CancellationToken::new(),
            events: OnceLock::new(),
            evicting: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            owner_hasher: RandomState::new(),
        })
    }

    /// Tells readers of `events` about changed states of these tasks from now on.
    pub fn report_to(&self, events: &Arc<NodeEvents>) {
        let _ = self.events.set(events.clone());
    }

    /// Creates a task in the store. If the future is dropped before the end, the task is released;
    /// it can then be claimed as one that was never started.
    ///
    /// # Errors
    /// Those of [`TaskStore::create`].
    pub async fn create(self: &Arc<Self>, new: NewTask) -> TaskResult<CreateOutcome> {
        if !self.options.is_shared {
            return self.create_or_evict(new).await;
        }
        let (all, (created, result)) = (self.clone(), oneshot::channel());
        self.spawn_on_runtime(async move {
            if let Err(Ok(CreateOutcome::Created(_, lease))) =
                created.send(all.create_or_evict(new).await)
            {
                all.release(&lease, ReleaseReason::Waiting).await;
            }
        });
        result.await.unwrap_or_else(|_| {
            Err(JournalError::Unavailable("the store is closing".to_owned()).into())
        })
    }

    async fn create_or_evict(&self, new: NewTask) -> TaskResult<CreateOutcome> {
        let mut created = create_with_retry(&*self.tasks, &new).await;
        if !self.options.evicts_ended || !is_full(&created) {
            return created;
        }
        // One after the other, since the room that one makes may be enough for the next.
        let lock = self.owner_hasher.hash_one(&new.owner) as usize;
        let _turn = self.evicting[lock % EVICTION_LOCKS].lock().await;
        created = create_with_retry(&*self.tasks, &new).await;
        for _ in 0..EVICTIONS_MAX {
            if !is_full(&created) || self.evict_ended(&new.owner).await == 0 {
                break;
            }
            created = create_with_retry(&*self.tasks, &new).await;
        }
        created
    }

    /// Deletes the owner's oldest ended tasks from the scope and returns their number.
    async fn evict_ended(&self, owner: &TaskOwner) -> usize {
        let deleted = self
            .tasks
            .delete_ended(&self.scope, owner, EVICTED_TASKS_MAX);
        deleted.await.unwrap_or_else(|error| {
            log::warn!(%error, "failed to delete ended tasks to make room");
            0
        })
    }

    /// Runs a stored task in a tokio task of its own and returns its handle.
    pub fn run(self: &Arc<Self>, run: TaskRun<'_>) -> RunningTask {
        let started = self.start_call(run);
        self.spawn(started)
    }

    /// Runs a stored task for a caller that waits for its end. Unless the store is shared, the call
    /// starts in the caller's tokio task. If it doesn't end at once, or sends reports or questions,
    /// it moves to a tokio task of its own.
    ///
    /// # Errors
    /// The store's error if the task ended at once, but was deleted or its end couldn't be stored.
    pub async fn run_inline(self: &Arc<Self>, run: TaskRun<'_>) -> TaskResult<RunOutcome> {
        if self.options.is_shared || self.options.keeps_ended || self.stopped.is_cancelled() {
            return Ok(RunOutcome::Running(run.task.clone(), self.run(run)));
        }
        let mut started = self.start_call(run);
        let Some(ending) = (&mut started.work).now_or_never() else {
            return Ok(self.spawn_started(started).await);
        };
        if !started.caller.close_if_unused() {
            started.work = Box::pin(ready(ending));
            return Ok(self.spawn_started(started).await);
        }
        let StartedRun { task, lease, .. } = started;
        let by = TaskActor::Worker(&lease);
        // Dropped so that the store can modify the task in place.
        drop(task);
        let mut ended = self.tasks.apply(&lease.task, by, ending(false)).await;
        if let Err(error @ (TaskError::TooLarge { .. } | TaskError::Illegal { .. })) = ended {
            // The result can't be stored, but a failure that says so can.
            ended = self
                .tasks
                .apply(&lease.task, by, vec![TaskStep::Failed(error.into())])
                .await;
        }
        match ended {
            Ok(task) => Ok(RunOutcome::Ended(task)),
            Err(TaskError::HasEnded(_)) => {
                // Ended by another actor.
                self.tasks
                    .get(&lease.task)
                    .await?
                    .map(RunOutcome::Ended)
                    .ok_or(TaskError::NotFound)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves a call that started in the caller's tokio task to a tokio task of its own.
    async fn spawn_started(self: &Arc<Self>, started: StartedRun) -> RunOutcome {
        let task = started.task.clone();
        let running = self.spawn(started);
        // A cancellation may have been requested before the task could be found here.
        if let Ok(Some(now)) = self.tasks.get(&task.id).await
            && now.cancel_requested
        {
            running.notify(WorkerEvent::CancelSoon);
        }
        RunOutcome::Running(task, running)
    }

    fn start_call(&self, run: TaskRun<'_>) -> StartedRun {
        let TaskRun {
            task,
            lease,
            is_resumed,
            abilities,
            observer,
            begin_call,
        } = run;
        let expiry = Instant::now() + time_left(&task);
        let caller = Arc::new(TaskCaller::new(
            abilities,
            observer,
            self.options.artifact_encoder.is_some(),
        ));
        let work = begin_call(caller.clone(), expiry);
        StartedRun {
            task,
            lease,
            is_resumed,
            caller,
            expiry,
            work,
        }
    }

    fn spawn(self: &Arc<Self>, started: StartedRun) -> RunningTask {
        let StartedRun {
            task,
            lease,
            is_resumed,
            caller,
            expiry,
            work,
        } = started;
        let (events, event_rx) = caller.open_worker_channel();
        // The call may have sent reports before there was a worker.
        let _ = events.try_send(WorkerEvent::CheckReports);
        let id = task.id.clone();
        let (seen, watched) = watch::channel(task);
        let artifacts = self.options.artifact_encoder;
        let mut worker = TaskWorker::new(
            self.tasks.clone(),
            lease.clone(),
            is_resumed,
            seen,
            caller,
            artifacts,
            self.events.get().cloned(),
        );
        let claimed_questions = Arc::new(watch::Sender::new(HashSet::new()));
        let handle = RunningTask {
            events,
            updates: watched,
            store_full: worker.store_full(),
            lease: lease.clone(),
            is_resumed,
            claimed_questions,
        };
        // Inserted before it runs, as it removes itself at its end.
        self.running.lock().insert(id, handle.clone());
        let mut here = RunGuard {
            all: self.clone(),
            lease: Some(lease.clone()),
        };
        self.spawn_on_runtime(async move {
            let done = worker.run(event_rx, work, expiry, &here.all.stopped).await;
            // Dropping the worker fails pending questions; the update channel stays open while the
            // task is in `running`.
            let _seen = worker.into_updates();
            here.all.finish(done, &lease, expiry).await;
            here.lease = None;
            here.all.remove_finished(&lease);
        });
        handle
    }

    /// Finishes a task whose worker has ended: deletes an expired task and releases a stopped one.
    /// A task that has ended stays in memory until its expiry, if the options say so.
    async fn finish(&self, done: WorkerExit, lease: &Lease, expiry: Instant) {
        match done {
            WorkerExit::Expired => self.delete(&lease.task).await,
            WorkerExit::Stopped => self.release(lease, ReleaseReason::Interrupted).await,
            WorkerExit::Ended if self.options.keeps_ended => tokio::select! {
                () = sleep_until(expiry) => self.delete(&lease.task).await,
                () = self.stopped.cancelled() => {}
            },
            WorkerExit::Ended | WorkerExit::Lost => {}
        }
    }

    /// Returns the handle of a task that runs in this process, or has ended and stays in memory;
    /// `None` for any other.
    pub fn get(&self, id: &TaskId) -> Option<RunningTask> {
        self.running.lock().get(id).cloned()
    }

    /// Returns the tasks that run in this process and haven't ended.
    pub fn running(&self) -> Vec<RunningTask> {
        self.running
            .lock()
            .values()
            .filter(|running| !running.updates.borrow().state.is_terminal())
            .cloned()
            .collect()
    }

    /// Stops all tasks of the scope in this process and releases them as interrupted. With a
    /// durable store, the next server of the scope resumes them; otherwise no server does.
    pub fn stop(&self) {
        self.stopped.cancel();
    }

    /// Detaches a server. If the store isn't shared and no other server is attached, all tasks of
    /// the scope are stopped, as nobody could find them.
    pub fn detach_host(&self, host: &Arc<impl TaskHost>) {
        if self.options.is_shared {
            return;
        }
        let mut hosts = self.hosts.lock();
        hosts.retain(|other| {
            other.strong_count() > 0 && !addr_eq(other.as_ptr(), Arc::as_ptr(host))
        });
        let is_last = hosts.is_empty();
        drop(hosts);
        if is_last {
            self.stop();
        }
    }

    /// Waits until all tasks are released after [`Self::stop`], for at most 5 s.
    pub async fn wait_until_stopped(&self) {
        let mut finished = self.finished.subscribe();
        let all_finished =
            async { while !self.running.lock().is_empty() && finished.changed().await.is_ok() {} };
        if timeout(STOP_TIMEOUT, all_finished).await.is_err() {
            log::warn!(
                scope = self.scope,
                "tasks weren't released in time; others can claim them when their leases expire"
            );
        }
    }

    /// Deletes a task from the store. Failures are logged.
    pub async fn delete(&self, id: &TaskId) {
        if let Err(error) = self.tasks.delete(id).await {
            // The store's retention deletes it later.
            log::warn!(task = %id, %error, "failed to delete a task; the store's retention will do it");
        }
    }

    async fn release(&self, lease: &Lease, why: ReleaseReason) {
        if let Err(error) = self.tasks.release(lease, why).await {
            // The lease expires.
            log::warn!(task = %lease.task, %error, "failed to release a task; its lease will expire");
        }
    }

    /// Removes a task that no longer runs in this process from the set.
    fn remove_finished(&self, lease: &Lease) {
        let mut running = self.running.lock();
        if running
            .get(&lease.task)
            .is_some_and(|running| running.lease == *lease)
        {
            running.remove(&lease.task);
        }
        drop(running);
        self.finished.send_modify(|number| *number += 1);
    }
}

/// Guard of a running task. Releases the task if the guard is dropped while the task still runs,
/// for example because its thread ends.
struct RunGuard {
    all: Arc<RunningTasks>,
    lease: Option<Lease>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let all = self.all.clone();
        match all.renewal_runtime.get().cloned() {
            Some(runtime) => drop(runtime.spawn(async move {
                all.release(&lease, ReleaseReason::Interrupted).await;
                all.remove_finished(&lease);
            })),
            // The store isn't shared, so no other process can continue the task.
            None => all.remove_finished(&lease),
        }
    }
}

/// Returns the time until the task expires.
fn time_left(task: &Task) -> Duration {
    task.expires
        .duration_since(SystemTime::now())
        .unwrap_or_default()
}

/// Returns whether a task wasn't created for want of room that its owner's ended tasks may take.
fn is_full(created: &TaskResult<CreateOutcome>) -> bool {
    matches!(
        created,
        Err(TaskError::TooMany { .. }
            | TaskError::Journal(JournalError::Full { .. } | JournalError::OwnerLimit { .. }))
    )
}

/// Creates a task in the store. If the result is unknown, tries again with the same id.
async fn create_with_retry(store: &dyn TaskStore, new: &NewTask) -> TaskResult<CreateOutcome> {
    let mut tried = 1;
    loop {
        return match store.create(new.clone()).await {
            Err(TaskError::Journal(JournalError::Unknown(_))) if tried < CREATE_TRIES_MAX => {
                tried += 1;
                continue;
            }
            // An earlier attempt succeeded, and this process is the worker.
            Ok(CreateOutcome::Existing(task)) if tried > 1 && task.id == new.id => {
                match &task.lease {
                    Some(view) if view.worker == store.worker_id() => {
                        let lease = Lease {
                            task: task.id.clone(),
                            worker: view.worker.clone(),
                            epoch: view.epoch,
                        };
                        Ok(CreateOutcome::Created(task, lease))
                    }
                    _ => Ok(CreateOutcome::Existing(task)),
                }
            }
            other => other,
        };
    }
}

/// Running tasks of one store in this process, grouped by scope. Clones refer to the same tasks.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("RunningTaskScopes")]
pub struct RunningTaskScopes(Arc<Mutex<HashMap<String, Weak<RunningTasks>>>>);

impl RunningTaskScopes {
    /// Returns the running tasks of a scope. All servers of the scope share them, as long as a
    /// server exists or a task runs; `options` count only for a new set. After [`Self::stop`], a
    /// new set is returned.
    pub fn for_scope(
        &self,
        tasks: &Arc<dyn TaskStore>,
        scope: String,
        options: RunningTaskOptions,
    ) -> Arc<RunningTasks> {
        let mut all = self.0.lock();
        all.retain(|_, running| running.strong_count() > 0);
        // A store with another worker id has its own tasks.
        let known = all.get(&scope).and_then(Weak::upgrade);
        if let Some(running) = known
            .filter(|running| !running.stopped.is_cancelled() && Arc::ptr_eq(&running.tasks, tasks))
        {
            return running;
        }
        let running = RunningTasks::new(tasks.clone(), scope.clone(), options);
        all.insert(scope, Arc::downgrade(&running));
        running
    }

    /// Stops all tasks and waits until they are released. With a durable store, the next server of
    /// each scope resumes them.
    pub async fn stop(&self) {
        let all: Vec<_> = {
            let mut all = self.0.lock();
            all.drain()
                .filter_map(|(_, running)| running.upgrade())
                .collect()
        };
        all.iter().for_each(|running| running.stop());
        join_all(all.iter().map(|running| running.wait_until_stopped())).await;
    }
}

impl RunningTasks {
    /// Returns the state of type `T` that all servers of the scope share. All calls must use the
    /// same type; for another one, a fresh default is returned.
    pub fn shared_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let state = self
            .shared_state
            .get_or_init(|| Arc::new(T::default()))
            .clone();
        state.downcast().unwrap_or_default()
    }

    /// Spawns `work` on the runtime that renews leases, if there is one, so that it outlives the
    /// caller's runtime.
    pub fn spawn_on_runtime(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.renewal_runtime.get() {
            Some(runtime) => drop(runtime.spawn(work)),
            None => drop(tokio::spawn(work)),
        }
    }
}
