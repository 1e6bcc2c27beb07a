//! Tests of calls that start in the task of a caller that waits for their end.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use callboard_message::{
    Artifact, CallerCapabilities, Content, Elicitation, Failure, FailureKind, Principal, Progress,
    Question, RawObject, TaskState,
};
use futures::future::{FutureExt, pending, poll_fn};
use serde_json::value::RawValue;

use super::*;
use crate::journal::JournalResult;
use crate::task::{
    ClaimRequest, ClaimedTask, MemoryTaskStore, TaskEvent, TaskFilter, TaskOutcome, TaskPage,
};

fn as_kept(artifact: &Artifact) -> RawObject {
    artifact.0.clone()
}

fn live() -> Arc<RunningTasks> {
    let options = RunningTaskOptions {
        artifact_encoder: Some(as_kept),
        ..RunningTaskOptions::default()
    };
    RunningTasks::new(
        Arc::new(MemoryTaskStore::default()),
        "test".to_owned(),
        options,
    )
}

fn completed(_: bool) -> Vec<TaskStep> {
    vec![TaskStep::Completed(RawValue::TRUE.to_owned())]
}

/// Creates a task and runs the call that `work` makes from its caller.
async fn ran(
    live: &Arc<RunningTasks>,
    work: impl FnOnce(Arc<dyn Caller>) -> TaskCall + Send + 'static,
) -> Result<RunOutcome, TaskError> {
    let begun = run(live, false, Box::new(move |caller, _| work(caller))).await;
    live.run_inline(begun).await
}

fn ends_as(steps: fn(bool) -> Vec<TaskStep>) -> EndSteps {
    Box::new(steps)
}

fn form() -> Question {
    Question::Elicit(Elicitation::form(
        "Who?",
        serde_json::json!({ "type": "object" }),
    ))
}

/// Creates a task and returns the arguments for running it.
async fn run<'a>(
    live: &Arc<RunningTasks>,
    is_resumed: bool,
    work: BeginTaskCall<'a>,
) -> TaskRun<'a> {
    let expires = SystemTime::now() + Duration::from_secs(60);
    let new = NewTask {
        scope: live.scope.clone(),
        ..NewTask::new(Principal::agent("ann"), "agent", "do", expires)
    };
    let CreateOutcome::Created(task, lease) = live.create(new).await.unwrap() else {
        panic!("it was there")
    };
    TaskRun {
        task,
        lease,
        is_resumed,
        abilities: Arc::new(CallerCapabilities::all()),
        observer: None,
        begin_call: work,
    }
}

async fn events(live: &RunningTasks, id: &TaskId) -> Vec<&'static str> {
    let events = live.tasks.events(id, 0, 100).await.unwrap();
    events
        .iter()
        .map(|TaskEvent { step, .. }| step.name())
        .collect()
}

/// Waits until a running task has the given state.
async fn stands(ran: Result<RunOutcome, TaskError>, state: TaskState) -> (Arc<Task>, RunningTask) {
    let Ok(RunOutcome::Running(_, mut live)) = ran else {
        panic!("it doesn't go on")
    };
    let task = live
        .updates
        .wait_for(|task| task.state == state)
        .await
        .unwrap()
        .clone();
    (task, live)
}

/// Goal: a call that ends at once is stored as a whole, never gets a tokio task of its own, and
/// can't ask afterwards. Method: a call that leaves its caller behind.
#[tokio::test(start_paused = true)]
async fn what_ends_at_once_runs_nowhere_else() {
    let live = live();
    let left = Arc::new(Mutex::new(None));
    let leaves = left.clone();
    let work = move |caller| {
        *leaves.lock().unwrap() = Some(caller);
        async { ends_as(completed) }.boxed()
    };
    let ended = ran(&live, work)
        .now_or_never()
        .expect("it waits for something");
    let Ok(RunOutcome::Ended(task)) = ended else {
        panic!("it goes on")
    };
    assert_eq!(
        (
            task.state,
            live.running().len(),
            live.get(&task.id).is_none()
        ),
        (TaskState::Completed, 0, true)
    );
    assert_eq!(events(&live, &task.id).await, ["start", "completed"]);
    let caller: Arc<dyn Caller> = left.lock().unwrap().take().unwrap();
    caller.progress(Progress {
        done: 1.0,
        total: None,
        message: Some("late".to_owned()),
    });
    assert_eq!(
        caller.ask(form()).await.unwrap_err().kind,
        FailureKind::NoResponder
    );
    assert_eq!(events(&live, &task.id).await.len(), 2);
}

/// Goal: reports of a call that ends at once are stored before its end. Method: a status and an
/// artifact; the end is told that all artifacts are stored.
#[tokio::test(start_paused = true)]
async fn what_is_told_comes_before_the_end() {
    let live = live();
    let work = |caller: Arc<dyn Caller>| {
        caller.progress(Progress {
            done: 1.0,
            total: None,
            message: Some("half".to_owned()),
        });
        caller.artifact(Artifact::new("a", [Content::text("a")]));
        async {
            ends_as(|has_all| {
                if has_all {
                    completed(true)
                } else {
                    vec![TaskStep::cancelled()]
                }
            })
        }
        .boxed()
    };
    let (task, _) = stands(ran(&live, work).await, TaskState::Completed).await;
    assert_eq!(
        events(&live, &task.id).await,
        ["start", "said", "artifact", "completed"]
    );
}

/// Goal: a call that asks continues until it is answered. Method: a question at once; its answer is
/// the reply.
#[tokio::test(start_paused = true)]
async fn what_asks_goes_on() {
    let live = live();
    let work = |caller: Arc<dyn Caller>| {
        async move {
            assert!(caller.ask(form()).await.is_ok());
            ends_as(completed)
        }
        .boxed()
    };
    let (task, handle) = stands(ran(&live, work).await, TaskState::InputRequired).await;
    let answer = task.open_questions[0]
        .question
        .answer_with(RawObject::single("action", "accept"));
    handle
        .apply(
            Vec::new(),
            Some((task.open_questions[0].key.clone(), answer)),
        )
        .await
        .unwrap();
    let mut seen = handle.updates;
    seen.wait_for(|task| task.state == TaskState::Completed)
        .await
        .unwrap();
    assert_eq!(
        events(&live, &task.id).await,
        ["start", "asked", "answered", "completed"]
    );
}

/// Goal: a cancellation requested before the task can be found here takes effect. Method: a request
/// during the call's first poll, and a call that then waits for ever.
#[tokio::test(start_paused = true)]
async fn what_is_cancelled_meanwhile_is_cancelled() {
    let live = live();
    let tasks = live.tasks.clone();
    let work = move |_| {
        async move {
            let (all, _) = tasks.list(TaskFilter::default(), 0, 1).await.unwrap();
            tasks
                .request_cancel(&all[0].id, TaskActor::Operator)
                .await
                .unwrap();
            pending::<EndSteps>().await
        }
        .boxed()
    };
    let (task, _) = stands(ran(&live, work).await, TaskState::Canceled).await;
    assert_eq!(events(&live, &task.id).await, ["start", "cancelled"]);
}

/// Goal: an end that can't be stored becomes a failure that says so, and an end by another actor
/// stands. Method: a reply over the limit; a task that is cancelled, and one that is deleted, while
/// its call runs.
#[tokio::test(start_paused = true)]
async fn other_ends() {
    let live = live();
    let large = |_| {
        let text = format!("\"{}\"", "a".repeat(crate::task::TASK_BYTES_MAX_DEFAULT));
        vec![TaskStep::Completed(RawValue::from_string(text).unwrap())]
    };
    let Ok(RunOutcome::Ended(task)) =
        ran(&live, move |_| async move { ends_as(large) }.boxed()).await
    else {
        panic!("goes on")
    };
    let Some(TaskOutcome::Failed(why)) = &task.outcome else {
        panic!("it completed")
    };
    assert!(why.message.contains("too many"), "{}", why.message);
    live.delete(&task.id).await;

    for forgets in [false, true] {
        let tasks = live.tasks.clone();
        let work = move |_| {
            let mut all = tasks
                .list(TaskFilter::default(), 0, 1)
                .now_or_never()
                .unwrap()
                .unwrap()
                .0;
            poll_fn(move |_| {
                let task = all.pop().unwrap();
                match forgets {
                    true => tasks.delete(&task.id).now_or_never().unwrap().unwrap(),
                    false => drop(
                        tasks
                            .apply(&task.id, TaskActor::Operator, vec![TaskStep::cancelled()])
                            .now_or_never(),
                    ),
                }
                std::task::Poll::Ready(ends_as(completed))
            })
            .boxed()
        };
        match (ran(&live, work).await, forgets) {
            (Ok(RunOutcome::Ended(task)), false) => {
                assert_eq!(task.state, TaskState::Canceled);
                live.delete(&task.id).await;
            }
            (Err(error), true) => assert_eq!(error, TaskError::NotFound),
            _ => panic!("another end"),
        }
    }
}

/// Goal: a resumed call sends its artifacts from the beginning, and appended parts aren't stored
/// twice. Method: two appended parts of an artifact, in a new call and in a resumed one.
#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_gives_all_once_more() {
    for (is_resumed, appended) in [(false, [true, true]), (true, [false, true])] {
        let live = live();
        let work = |caller: Arc<dyn Caller>| {
            for text in ["a", "b"] {
                caller.artifact(Artifact::new("x", [Content::text(text)]).appending(false));
            }
            async { ends_as(completed) }.boxed()
        };
        let begun = run(&live, is_resumed, Box::new(move |caller, _| work(caller))).await;
        let mut handle = live.run(begun);
        let ended = handle
            .updates
            .wait_for(|task| task.state.is_terminal())
            .await
            .unwrap()
            .clone();
        let kept: Vec<_> = ended
            .artifacts
            .iter()
            .map(|kept| Artifact(kept.clone()).is_appended())
            .collect();
        assert_eq!(kept, appended, "{is_resumed}");
    }
}

/// Goal: a task in a shared store outlives the server that started it, and the next server of its
/// scope has it, until all are stopped. Method: it starts on a runtime that ends.
#[tokio::test]
async fn a_task_outlives_its_server() {
    let (scopes, tasks): (RunningTaskScopes, Arc<dyn TaskStore>) = (
        RunningTaskScopes::default(),
        Arc::new(MemoryTaskStore::default()),
    );
    let options = RunningTaskOptions {
        is_shared: true,
        ..RunningTaskOptions::default()
    };
    let of = |scope: &str| scopes.for_scope(&tasks, scope.to_owned(), options);
    let (go, gone) = oneshot::channel::<()>();
    let server = of("test");
    server.start_renewal();
    let id = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let work: BeginTaskCall<'_> = Box::new(|_, _| {
                async {
                    gone.await.unwrap();
                    ends_as(completed)
                }
                .boxed()
            });
            let begun = run(&server, false, work).await;
            let id = begun.task.id.clone();
            server.run(begun);
            id
        })
    });
    let id = id.await.unwrap();
    assert!(of("other").get(&id).is_none());
    let mut next = of("test").get(&id).expect("it doesn't run any more");
    go.send(()).unwrap();
    next.updates
        .wait_for(|task| task.state == TaskState::Completed)
        .await
        .unwrap();

    let before = of("test");
    let begun = run(&before, false, Box::new(|_, _| pending().boxed())).await;
    let id = begun.task.id.clone();
    before.run(begun);
    scopes.stop().await;
    assert!(before.get(&id).is_none() && !Arc::ptr_eq(&before, &of("test")));
    let left = tasks
        .get(&id)
        .await
        .unwrap()
        .unwrap()
        .lease
        .clone()
        .unwrap();
    assert!(left.until <= SystemTime::now());
}

/// Store without room for the end of a task; and if the flag is set, without room for a new task of
/// an owner until a task is deleted.
struct FullStore(MemoryTaskStore, AtomicBool);

#[async_trait]
impl TaskStore for FullStore {
    async fn create(&self, new: NewTask) -> TaskResult<CreateOutcome> {
        if self.1.load(SeqCst) {
            return Err(JournalError::OwnerLimit { bytes_max: 1 }.into());
        }
        self.0.create(new).await
    }

    async fn create_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        self.0.create_all(new).await
    }

    async fn apply(
        &self,
        id: &TaskId,
        by: TaskActor<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>> {
        if matches!(steps.last(), Some(TaskStep::Completed(_))) {
            return Err(JournalError::SizeLimit { bytes_max: 1 }.into());
        }
        self.0.apply(id, by, steps).await
    }

    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>> {
        self.0.get(id).await
    }

    async fn list(&self, filter: TaskFilter, after: u64, max: usize) -> JournalResult<TaskPage> {
        self.0.list(filter, after, max).await
    }

    async fn events(&self, id: &TaskId, after: u64, max: usize) -> JournalResult<Vec<TaskEvent>> {
        self.0.events(id, after, max).await
    }

    async fn claim(&self, claim: ClaimRequest) -> JournalResult<Vec<ClaimedTask>> {
        self.0.claim(claim).await
    }

    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64> {
        self.0.renew(by, lease).await
    }

    async fn release(&self, lease: &Lease, why: ReleaseReason) -> JournalResult<()> {
        self.0.release(lease, why).await
    }

    async fn request_cancel(&self, id: &TaskId, by: TaskActor<'_>) -> TaskResult<Arc<Task>> {
        self.0.request_cancel(id, by).await
    }

    async fn delete(&self, id: &TaskId) -> JournalResult<()> {
        self.0.delete(id).await
    }

    async fn delete_ended(
        &self,
        scope: &str,
        owner: &TaskOwner,
        max: usize,
    ) -> JournalResult<usize> {
        self.1.store(false, SeqCst);
        self.0.delete_ended(scope, owner, max).await
    }

    async fn cancel_requests(&self, by: &str) -> JournalResult<Vec<TaskId>> {
        self.0.cancel_requests(by).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    fn worker_id(&self) -> &str {
        self.0.worker_id()
    }
}

/// Goal: a client that waits for a task hears at once that its result can't be stored. Method: a
/// store without room for ends; time stands still until something waits for it.
#[tokio::test(start_paused = true)]
async fn a_full_store_is_told_at_once() {
    let live = RunningTasks::new(
        Arc::new(FullStore(MemoryTaskStore::default(), false.into())),
        "test".to_owned(),
        RunningTaskOptions::default(),
    );
    let work: BeginTaskCall<'_> = Box::new(|_, _| async { ends_as(completed) }.boxed());
    let begun = run(&live, false, work).await;
    let (task, began) = (begun.task.clone(), Instant::now());
    let running = live.run(begun);
    let mut found = live.found_task(task, Some(running));
    assert_eq!(
        found.wait_until_changed().await,
        Err(TaskError::ResultNotStored(JournalError::SizeLimit {
            bytes_max: 1
        }))
    );
    assert!(began.elapsed() < Duration::from_secs(1));
    live.stop();
    live.wait_until_stopped().await;
}

/// Goal: an owner whose share of the store is used up loses ended tasks for a new one, and without
/// any is told why it has no room. Method: a store that has no room until a task is deleted.
#[tokio::test(start_paused = true)]
async fn an_owners_ended_tasks_make_room() {
    let store = Arc::new(FullStore(MemoryTaskStore::default(), true.into()));
    let options = RunningTaskOptions {
        evicts_ended: true,
        ..RunningTaskOptions::default()
    };
    let live = RunningTasks::new(store.clone(), "test".to_owned(), options);
    let new = || {
        let expires = SystemTime::now() + Duration::from_secs(60);
        NewTask {
            scope: live.scope.clone(),
            ..NewTask::new(Principal::agent("ann"), "agent", "do", expires)
        }
    };
    let full = TaskError::Journal(JournalError::OwnerLimit { bytes_max: 1 });
    assert_eq!(live.create(new()).await.err(), Some(full));
    store.1.store(false, SeqCst);
    let CreateOutcome::Created(task, lease) = live.create(new()).await.unwrap() else {
        panic!("it was there")
    };
    let steps = vec![TaskStep::Failed(Failure::internal("no luck"))];
    let by = TaskActor::Worker(&lease);
    store.apply(&task.id, by, steps).await.unwrap();
    store.1.store(true, SeqCst);
    assert!(matches!(
        live.create(new()).await,
        Ok(CreateOutcome::Created(..))
    ));
    assert!(store.get(&task.id).await.unwrap().is_none());
}

/// Server that resumes nothing.
struct Host;

impl TaskHost for Host {
    fn resume(
        self: Arc<Self>,
        _: Arc<Task>,
        _: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        ready(Ok(())).boxed()
    }
}

/// Goal: tasks in memory go on while any server of their scope is left, and stop with the last one.
/// Method: two servers are detached while both exist, the first one twice.
#[tokio::test(start_paused = true)]
async fn tasks_stop_with_the_last_server() {
    let live = live();
    let hosts = [Arc::new(Host), Arc::new(Host)];
    hosts.iter().for_each(|host| live.attach_host(host));
    let work: BeginTaskCall<'_> = Box::new(|_, _| pending().boxed());
    let begun = run(&live, false, work).await;
    let id = begun.task.id.clone();
    live.run(begun);
    let running = live.get(&id).unwrap();
    live.detach_host(&hosts[0]);
    live.detach_host(&hosts[0]);
    assert!(!live.stopped.is_cancelled() && live.get(&id).is_some());
    live.detach_host(&hosts[1]);
    live.wait_until_stopped().await;
    assert!(live.get(&id).is_none());
    // It hasn't ended: another worker may continue it.
    assert!(matches!(running.cancel().await, Err(TaskError::NotRunning)));
}

/// Goal: a server that ended without being detached keeps no tasks alive. Method: one is dropped,
/// the other detached.
#[tokio::test(start_paused = true)]
async fn dropped_servers_keep_no_tasks() {
    let live = live();
    let host = Arc::new(Host);
    live.attach_host(&Arc::new(Host));
    live.attach_host(&host);
    live.detach_host(&host);
    assert!(live.stopped.is_cancelled());
}
