//! Tasks that run here, for whoever serves them by a protocol: one task, one call, one place that takes its steps.

mod caller;
mod keep;
#[cfg(test)]
mod tests;
mod worker;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use callboard_message::{Abilities, Artifact, RawObject, TaskState, log};
use caller::{Event, TaskCaller};
use futures::future::{BoxFuture, FutureExt, join_all, ready};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use worker::{Done, Worker};

pub use keep::{CannotResume, Found, TaskHost};
pub use worker::{Delivering, LiveTask};

use super::{
    Begun, By, Lease, NewTask, Released, Task, TaskError, TaskFilter, TaskId, TaskOwner,
    TaskResult, TaskStep, Tasks,
};
use crate::call::Caller;
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Most questions of one task that wait for an answer.
const TASK_QUESTIONS_MAX: usize = 64;

/// How often a beginning whose outcome is unknown is tried again.
const BEGIN_TRIES_MAX: usize = 3;
/// Ended tasks that are forgotten at once to make room.
const FORGOTTEN_AT_ONCE: usize = 64;
/// How long a stop waits for tasks to be let go of.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// The steps that end a task, the last of them its end. Told whether artifacts were given in mid-call, and all are kept.
pub type Ending = Box<dyn FnOnce(bool) -> Vec<TaskStep> + Send>;
/// The call of a task, until it ends. Dropped, it is cancelled.
pub type Work = BoxFuture<'static, Ending>;
/// Begins the call, or goes on with it: it gets its caller, and until when it may take.
pub type BeginWork<'a> = Box<dyn FnOnce(Arc<dyn Caller>, Instant) -> Work + Send + 'a>;
/// What an artifact is kept as.
pub type Artifacts = fn(&Artifact) -> RawObject;

/// What a task that begins to run here is made of.
pub struct Run<'a> {
    /// As the store has it.
    pub task: Arc<Task>,
    /// The right to work on it.
    pub lease: Lease,
    /// It goes on after its process ended.
    pub is_resumed: bool,
    /// What whoever looks in can answer.
    pub abilities: Arc<Abilities>,
    /// Who is told of progress and log lines as they come.
    pub told: Option<Arc<dyn Caller>>,
    /// See [`BeginWork`].
    pub work: BeginWork<'a>,
}

/// A task whose call was begun.
struct Running {
    task: Arc<Task>,
    lease: Lease,
    is_resumed: bool,
    caller: Arc<TaskCaller>,
    expiry: Instant,
    work: Work,
}

/// What became of a task that was run for somebody who waits.
pub enum Ran {
    /// It goes on: as it began, and its handle.
    Goes(Arc<Task>, LiveTask),
    /// It has ended: this is it.
    Ended(Arc<Task>),
}

/// The tasks of one scope that run in this process.
pub struct LiveTasks {
    /// The store.
    pub tasks: Arc<dyn Tasks>,
    /// What the tasks are kept under.
    pub scope: String,
    options: LiveOptions,
    live: Mutex<HashMap<TaskId, LiveTask>>,
    /// Another number each time that one of them runs here no more.
    gone: watch::Sender<u64>,
    /// Where they are looked after, once they are.
    keeper: OnceLock<Handle>,
    /// Who serves them, the newest last.
    hosts: Mutex<Vec<Weak<dyn TaskHost>>>,
    /// See [`Self::beside`].
    beside: OnceLock<Arc<dyn Any + Send + Sync>>,
    stopped: CancellationToken,
}

/// How tasks are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveOptions {
    /// The store is others' too, and outlives its server: leases are renewed, and what was left is gone on with.
    pub is_shared: bool,
    /// A task that has ended stays at hand until its time is over, and is forgotten then.
    pub stays: bool,
    /// Where too many are kept, a new task takes the place of its owner's oldest that have ended.
    pub makes_room: bool,
    /// How artifacts of mid-call are kept. Without it they are dropped: the reply holds all.
    pub artifacts: Option<Artifacts>,
}

impl LiveTasks {
    /// None run yet.
    pub fn new(tasks: Arc<dyn Tasks>, scope: String, options: LiveOptions) -> Arc<Self> {
        let (live, hosts, gone) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        let (keeper, beside, stopped) =
            (OnceLock::new(), OnceLock::new(), CancellationToken::new());
        Arc::new(Self {
            tasks,
            scope,
            options,
            live,
            gone,
            keeper,
            hosts,
            beside,
            stopped,
        })
    }

    /// Keeps a task. Whoever wants it may go away meanwhile: then it is left to whoever looks for such, as one that nobody
    /// began.
    ///
    /// # Errors
    /// As of [`Tasks::begin`].
    pub async fn keep(self: &Arc<Self>, new: NewTask) -> TaskResult<Begun> {
        if !self.options.is_shared {
            // In memory it is done at once.
            return self.begin(new).await;
        }
        let (all, (begun, was_begun)) = (self.clone(), oneshot::channel());
        self.spawn_here(async move {
            if let Err(Ok(Begun::New(_, lease))) = begun.send(all.begin(new).await) {
                all.release(&lease, Released::Waits).await;
            }
        });
        was_begun
            .await
            .unwrap_or_else(|_| Err(JournalError::Unavailable("it is closing".to_owned()).into()))
    }

    async fn begin(&self, new: NewTask) -> TaskResult<Begun> {
        match begin_surely(&*self.tasks, &new).await {
            Err(
                error @ (TaskError::TooMany { .. } | TaskError::Journal(JournalError::Full { .. })),
            ) if self.options.makes_room => {
                if self.make_room(new.owner.clone()).await == 0 {
                    return Err(error);
                }
                begin_surely(&*self.tasks, &new).await
            }
            other => other,
        }
    }

    /// Forgets the oldest ended tasks of an owner, and answers how many those were.
    async fn make_room(&self, owner: TaskOwner) -> usize {
        let states = TaskState::ALL
            .into_iter()
            .filter(|state| state.is_terminal())
            .collect();
        let ended = TaskFilter {
            scope: Some(self.scope.clone()),
            owner: Some(owner),
            states,
            ..TaskFilter::default()
        };
        match self.tasks.list(ended, 0, FORGOTTEN_AT_ONCE).await {
            Ok((tasks, _)) => {
                for task in &tasks {
                    self.forget(&task.id).await;
                }
                tasks.len()
            }
            Err(error) => {
                log::warn!(%error, "no look at which tasks could make room");
                0
            }
        }
    }

    /// Has a task run here, in a tokio task of its own.
    pub fn run(self: &Arc<Self>, run: Run<'_>) -> LiveTask {
        let begun = self.begun(run);
        self.spawn(begun)
    }

    /// Has a task run here, for somebody who waits for its end: where the store is this server's only, its call begins in their
    /// own tokio task. One that ends at once, and has told and asked nothing, never gets another.
    ///
    /// # Errors
    /// The store's, where it ended at once: then it is forgotten, or its end could not be kept.
    pub async fn run_at_once(self: &Arc<Self>, run: Run<'_>) -> TaskResult<Ran> {
        if self.options.is_shared || self.options.stays || self.stopped.is_cancelled() {
            return Ok(Ran::Goes(run.task.clone(), self.run(run)));
        }
        let mut begun = self.begun(run);
        let Some(ending) = (&mut begun.work).now_or_never() else {
            return Ok(self.goes_on(begun).await);
        };
        if !begun.caller.ends_unheard() {
            begun.work = Box::pin(ready(ending));
            return Ok(self.goes_on(begun).await);
        }
        let Running { task, lease, .. } = begun;
        let by = By::Worker(&lease);
        // What nobody looks at is changed where it is.
        drop(task);
        let mut ended = self.tasks.step(&lease.task, by, ending(false)).await;
        if let Err(error @ (TaskError::TooLarge { .. } | TaskError::Illegal { .. })) = ended {
            // What can't be kept can't be the end; that it couldn't can.
            ended = self
                .tasks
                .step(&lease.task, by, vec![TaskStep::Failed(error.into())])
                .await;
        }
        match ended {
            Ok(task) => Ok(Ran::Ended(task)),
            Err(TaskError::HasEnded(_)) => {
                // By somebody else.
                self.tasks
                    .get(&lease.task)
                    .await?
                    .map(Ran::Ended)
                    .ok_or(TaskError::NotFound)
            }
            Err(error) => Err(error),
        }
    }

    /// What began in somebody's own task goes on in one of its own.
    async fn goes_on(self: &Arc<Self>, begun: Running) -> Ran {
        let task = begun.task.clone();
        let live = self.spawn(begun);
        // While nobody found it here, somebody may have wanted it ended.
        if let Ok(Some(now)) = self.tasks.get(&task.id).await
            && now.cancel_wanted
        {
            live.hint(Event::CancelSoon);
        }
        Ran::Goes(task, live)
    }

    fn begun(&self, run: Run<'_>) -> Running {
        let Run {
            task,
            lease,
            is_resumed,
            abilities,
            told,
            work,
        } = run;
        let expiry = Instant::now() + left(&task);
        let caller = Arc::new(TaskCaller::new(
            abilities,
            told,
            self.options.artifacts.is_some(),
        ));
        let work = work(caller.clone(), expiry);
        Running {
            task,
            lease,
            is_resumed,
            caller,
            expiry,
            work,
        }
    }

    fn spawn(self: &Arc<Self>, begun: Running) -> LiveTask {
        let Running {
            task,
            lease,
            is_resumed,
            caller,
            expiry,
            work,
        } = begun;
        let (events, happening) = caller.worker_ends();
        // It may have told something before there was anybody to hear it.
        let _ = events.try_send(Event::Look);
        let id = task.id.clone();
        let (seen, watched) = watch::channel(task);
        let artifacts = self.options.artifacts;
        let mut worker = Worker::new(
            self.tasks.clone(),
            lease.clone(),
            is_resumed,
            seen,
            caller,
            artifacts,
        );
        let delivering = Arc::new(watch::Sender::new(HashSet::new()));
        let handle = LiveTask {
            events,
            seen: watched,
            lease: lease.clone(),
            is_resumed,
            delivering,
        };
        // Before it runs: it takes itself out when it ends.
        self.live.lock().insert(id, handle.clone());
        let mut here = Here {
            all: self.clone(),
            lease: Some(lease.clone()),
        };
        self.spawn_here(async move {
            let done = worker.run(happening, work, expiry, &here.all.stopped).await;
            // Whoever still waits for an answer hears that there is none; the task stays in sight as long as it is here.
            let _seen = worker.into_seen();
            here.all.after(done, &lease, expiry).await;
            here.lease = None;
            here.all.is_gone(&lease);
        });
        handle
    }

    /// What is left to do for a task whose call is over.
    async fn after(&self, done: Done, lease: &Lease, expiry: Instant) {
        match done {
            Done::Expired => self.forget(&lease.task).await,
            Done::Stopped => self.release(lease, Released::Interrupted).await,
            Done::Ended if self.options.stays => tokio::select! {
                () = sleep_until(expiry) => self.forget(&lease.task).await,
                () = self.stopped.cancelled() => {}
            },
            Done::Ended | Done::Lost => {}
        }
    }

    /// One that runs here, or stays at hand.
    pub fn get(&self, id: &TaskId) -> Option<LiveTask> {
        self.live.lock().get(id).cloned()
    }

    /// Those that have not ended.
    pub fn running(&self) -> Vec<LiveTask> {
        self.live
            .lock()
            .values()
            .filter(|live| !live.seen.borrow().state.is_terminal())
            .cloned()
            .collect()
    }

    /// Ends the work on all tasks here; a store that lasts hands them to whoever serves next.
    pub fn stop(&self) {
        self.stopped.cancel();
    }

    /// Whoever served them serves them no more. What is in no store that lasts is stopped, for nobody could find it.
    pub fn leave(&self) {
        if !self.options.is_shared {
            self.stop();
        }
    }

    /// Ends when all are let go of after [`Self::stop`], or [`STOP_WAIT`] is over.
    pub async fn stopped(&self) {
        let mut gone = self.gone.subscribe();
        let all_gone =
            async { while !self.live.lock().is_empty() && gone.changed().await.is_ok() {} };
        if timeout(STOP_WAIT, all_gone).await.is_err() {
            log::warn!(scope = self.scope, "tasks weren't let go of in time");
        }
    }

    /// Has the store forget a task.
    pub async fn forget(&self, id: &TaskId) {
        if let Err(error) = self.tasks.forget(id).await {
            // The store's retention forgets it too, when its time is over.
            log::warn!(task = %id, %error, "a task wasn't forgotten");
        }
    }

    async fn release(&self, lease: &Lease, why: Released) {
        if let Err(error) = self.tasks.release(lease, why).await {
            // Its lease runs out.
            log::warn!(task = %lease.task, %error, "a task wasn't let go of");
        }
    }

    /// A task runs here no more.
    fn is_gone(&self, lease: &Lease) {
        let mut live = self.live.lock();
        if live
            .get(&lease.task)
            .is_some_and(|live| live.lease == *lease)
        {
            live.remove(&lease.task);
        }
        drop(live);
        self.gone.send_modify(|number| *number += 1);
    }
}

/// A task is here. Dropped with it, the work on it is let go of: it came to nothing, or its thread ends.
struct Here {
    all: Arc<LiveTasks>,
    lease: Option<Lease>,
}

impl Drop for Here {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let all = self.all.clone();
        match all.keeper.get().cloned() {
            Some(elsewhere) => drop(elsewhere.spawn(async move {
                all.release(&lease, Released::Interrupted).await;
                all.is_gone(&lease);
            })),
            // The store is this server's only: nobody goes on.
            None => all.is_gone(&lease),
        }
    }
}

/// For how long a task is kept, from now on.
fn left(task: &Task) -> Duration {
    task.expires
        .duration_since(SystemTime::now())
        .unwrap_or_default()
}

/// Begins a task. Where the store can't say whether it was kept, it is asked again: the id is the same.
async fn begin_surely(store: &dyn Tasks, new: &NewTask) -> TaskResult<Begun> {
    let mut tried = 1;
    loop {
        return match store.begin(new.clone()).await {
            Err(TaskError::Journal(JournalError::Unknown(_))) if tried < BEGIN_TRIES_MAX => {
                tried += 1;
                continue;
            }
            // It was kept before, and its worker is this process.
            Ok(Begun::Again(task)) if tried > 1 && task.id == new.id => match &task.lease {
                Some(view) if view.by == store.worker() => {
                    let lease = Lease {
                        task: task.id.clone(),
                        by: view.by.clone(),
                        epoch: view.epoch,
                    };
                    Ok(Begun::New(task, lease))
                }
                _ => Ok(Begun::Again(task)),
            },
            other => other,
        };
    }
}

/// The tasks of one store that run in this process, by their scope. Clones are the same.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("LiveScopes")]
pub struct LiveScopes(Arc<Mutex<HashMap<String, Weak<LiveTasks>>>>);

impl LiveScopes {
    /// Those of a scope: the same ones for all who serve it, at once or in turn, as long as one of them does or a task runs.
    /// After they were stopped, others.
    pub fn of(
        &self,
        tasks: &Arc<dyn Tasks>,
        scope: String,
        options: LiveOptions,
    ) -> Arc<LiveTasks> {
        let mut all = self.0.lock();
        all.retain(|_, live| live.strong_count() > 0);
        // In a store of another worker's name they are another's.
        let known = all.get(&scope).and_then(Weak::upgrade);
        if let Some(live) =
            known.filter(|live| !live.stopped.is_cancelled() && Arc::ptr_eq(&live.tasks, tasks))
        {
            return live;
        }
        let live = LiveTasks::new(tasks.clone(), scope.clone(), options);
        all.insert(scope, Arc::downgrade(&live));
        live
    }

    /// Ends the work on all; a store that lasts hands them to whoever comes next. Ends when they are let go of.
    pub async fn stop(&self) {
        let all: Vec<_> = {
            let mut all = self.0.lock();
            all.drain().filter_map(|(_, live)| live.upgrade()).collect()
        };
        all.iter().for_each(|live| live.stop());
        join_all(all.iter().map(|live| live.stopped())).await;
    }
}

impl LiveTasks {
    /// What all who serve them have in common besides. It is of one type, whoever asks.
    pub fn beside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let beside = self.beside.get_or_init(|| Arc::new(T::default())).clone();
        beside.downcast().unwrap_or_default()
    }

    /// Has work done where it outlives whoever wants it, as far as tasks do: the threads of a server end with it.
    pub fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.keeper.get() {
            Some(keeper) => drop(keeper.spawn(work)),
            None => drop(tokio::spawn(work)),
        }
    }
}
