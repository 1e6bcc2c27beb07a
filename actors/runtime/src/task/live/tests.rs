//! Calls that begin in the task of whoever waits for their end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use callboard_message::{
    Abilities, Artifact, Content, Elicitation, FailureKind, Principal, Progress, Question, RawObject, TaskState,
};
use futures::future::{FutureExt, pending, poll_fn};
use serde_json::value::RawValue;

use super::*;
use crate::task::{MemoryTasks, TaskEvent, TaskOutcome};

fn as_kept(artifact: &Artifact) -> RawObject {
    artifact.0.clone()
}

fn live() -> Arc<LiveTasks> {
    let options = LiveOptions { artifacts: Some(as_kept), ..LiveOptions::default() };
    LiveTasks::new(Arc::new(MemoryTasks::default()), "test".to_owned(), options)
}

fn completed(_: bool) -> Vec<TaskStep> {
    vec![TaskStep::Completed(RawValue::TRUE.to_owned())]
}

/// Begins a task and runs what `work` makes of its caller.
async fn ran(
    live: &Arc<LiveTasks>,
    work: impl FnOnce(Arc<dyn Caller>) -> Work + Send + 'static,
) -> Result<Ran, TaskError> {
    let expires = SystemTime::now() + Duration::from_secs(60);
    let new = NewTask { scope: live.scope.clone(), ..NewTask::new(Principal::agent("ann"), "agent", "do", expires) };
    let Begun::New(task, lease) = live.keep(new).await.unwrap() else { panic!("it was there") };
    let abilities = Arc::new(Abilities::all());
    let work: BeginWork<'_> = Box::new(move |caller, _| work(caller));
    live.run_at_once(Run { task, lease, is_resumed: false, abilities, told: None, work }).await
}

fn ends_as(steps: fn(bool) -> Vec<TaskStep>) -> Ending {
    Box::new(steps)
}

fn form() -> Question {
    Question::Elicit(Elicitation::form("Who?", serde_json::json!({ "type": "object" })))
}

async fn events(live: &LiveTasks, id: &TaskId) -> Vec<&'static str> {
    let events = live.tasks.events(id, 0, 100).await.unwrap();
    events.iter().map(|TaskEvent { step, .. }| step.name()).collect()
}

/// Waits for a task that goes on until it stands so.
async fn stands(ran: Result<Ran, TaskError>, state: TaskState) -> (Arc<Task>, LiveTask) {
    let Ok(Ran::Goes(_, mut live)) = ran else { panic!("it doesn't go on") };
    let task = live.seen.wait_for(|task| task.state == state).await.unwrap().clone();
    (task, live)
}

/// Goal: a call that ends at once is kept whole, never runs in a task of its own, and can't ask afterwards. Method: one that
/// leaves its caller behind.
#[tokio::test(start_paused = true)]
async fn what_ends_at_once_runs_nowhere_else() {
    let live = live();
    let left = Arc::new(Mutex::new(None));
    let leaves = left.clone();
    let work = move |caller| {
        *leaves.lock().unwrap() = Some(caller);
        async { ends_as(completed) }.boxed()
    };
    let ended = ran(&live, work).now_or_never().expect("it waits for something");
    let Ok(Ran::Ended(task)) = ended else { panic!("it goes on") };
    assert_eq!((task.state, live.running().len(), live.get(&task.id).is_none()), (TaskState::Completed, 0, true));
    assert_eq!(events(&live, &task.id).await, ["start", "completed"]);
    let caller: Arc<dyn Caller> = left.lock().unwrap().take().unwrap();
    caller.progress(Progress { done: 1.0, total: None, message: Some("late".to_owned()) });
    assert_eq!(caller.ask(form()).await.unwrap_err().kind, FailureKind::NobodyToAsk);
    assert_eq!(events(&live, &task.id).await.len(), 2);
}

/// Goal: what a call tells before it ends at once comes before its end. Method: a report and an artifact; the end hears that all
/// artifacts are kept.
#[tokio::test(start_paused = true)]
async fn what_is_told_comes_before_the_end() {
    let live = live();
    let work = |caller: Arc<dyn Caller>| {
        caller.progress(Progress { done: 1.0, total: None, message: Some("half".to_owned()) });
        caller.artifact(Artifact::new("a", [Content::text("a")]));
        async { ends_as(|has_all| if has_all { completed(true) } else { vec![TaskStep::cancelled()] }) }.boxed()
    };
    let (task, _) = stands(ran(&live, work).await, TaskState::Completed).await;
    assert_eq!(events(&live, &task.id).await, ["start", "said", "artifact", "completed"]);
}

/// Goal: a call that asks goes on until it is answered. Method: a question at once; its answer is the reply.
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
    let answer = task.open[0].question.answered(RawObject::new().with("action", "accept"));
    handle.tell(Vec::new(), Some((task.open[0].key.clone(), answer))).await.unwrap();
    let mut seen = handle.seen;
    seen.wait_for(|task| task.state == TaskState::Completed).await.unwrap();
    assert_eq!(events(&live, &task.id).await, ["start", "asked", "answered", "completed"]);
}

/// Goal: whoever wants a task ended while it can't be found here yet is heard. Method: a call during whose first step somebody wants
/// that, and that waits for ever then.
#[tokio::test(start_paused = true)]
async fn what_is_cancelled_meanwhile_is_cancelled() {
    let live = live();
    let tasks = live.tasks.clone();
    let work = move |_| {
        async move {
            let (all, _) = tasks.list(TaskFilter::default(), 0, 1).await.unwrap();
            tasks.want_cancel(&all[0].id, By::Operator).await.unwrap();
            pending::<Ending>().await
        }
        .boxed()
    };
    let (task, _) = stands(ran(&live, work).await, TaskState::Canceled).await;
    assert_eq!(events(&live, &task.id).await, ["start", "cancelled"]);
}

/// Goal: an end that can't be kept is a failure that says so, and one of somebody else's stands. Method: a reply over the limit; a
/// task that is cancelled, and one that is forgotten, while its call runs.
#[tokio::test(start_paused = true)]
async fn other_ends() {
    let live = live();
    let large = |_| {
        let text = format!("\"{}\"", "a".repeat(crate::task::TASK_BYTES_MAX_DEFAULT));
        vec![TaskStep::Completed(RawValue::from_string(text).unwrap())]
    };
    let Ok(Ran::Ended(task)) = ran(&live, move |_| async move { ends_as(large) }.boxed()).await else {
        panic!("goes on")
    };
    let Some(TaskOutcome::Failed(why)) = &task.outcome else { panic!("it completed") };
    assert!(why.message.contains("too many"), "{}", why.message);
    live.forget(&task.id).await;

    for forgets in [false, true] {
        let tasks = live.tasks.clone();
        let work = move |_| {
            let mut all = tasks.list(TaskFilter::default(), 0, 1).now_or_never().unwrap().unwrap().0;
            poll_fn(move |_| {
                let task = all.pop().unwrap();
                match forgets {
                    true => tasks.forget(&task.id).now_or_never().unwrap().unwrap(),
                    false => drop(tasks.step(&task.id, By::Operator, vec![TaskStep::cancelled()]).now_or_never()),
                }
                std::task::Poll::Ready(ends_as(completed))
            })
            .boxed()
        };
        match (ran(&live, work).await, forgets) {
            (Ok(Ran::Ended(task)), false) => {
                assert_eq!(task.state, TaskState::Canceled);
                live.forget(&task.id).await;
            }
            (Err(error), true) => assert_eq!(error, TaskError::NotFound),
            _ => panic!("another end"),
        }
    }
}
