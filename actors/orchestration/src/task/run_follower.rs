//! Follower of a stored run: forwards its progress and questions to the caller, and the answers
//! back to its tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Answer, Artifact, Content, Failure, Progress, Question, RawObject,
    ToolResult,
};
use callboard_runtime::{
    Context, OpenQuestion, Task, TaskActor, TaskError, TaskFilter, TaskId, TaskOwner, TaskStep,
    TaskStore,
};
use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::OrchestratorShared;
use super::plan::root_task_id;
use super::question_dedup::failure_as_answer;
use super::task_notifier::TaskNotificationReceiver;
use crate::decide::RunId;
use crate::decide::limits::STEPS_MAX;

/// Name of the artifact with the run's answer.
const FINAL_ANSWER: &str = "final_answer";
/// Poll interval of a task right after a notification. It doubles while nothing changes.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Maximum poll interval of the root task. Polling is needed because another node may work on the
/// task, and its changes cause no notification on this node. Fixed.
const ROOT_POLL_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Maximum poll interval of a step task, for the same reason as [`ROOT_POLL_INTERVAL_MAX`]. Fixed.
const STEP_POLL_INTERVAL_MAX: Duration = Duration::from_secs(3);
/// Task events read per page.
const EVENTS_PAGE_SIZE: usize = 100;

type QuestionFuture = BoxFuture<'static, Result<(usize, String, Result<Answer, Failure>), Aborted>>;

/// Task of the followed run.
struct FollowedTask {
    id: TaskId,
    /// Step id; `None` for the root task.
    step: Option<String>,
    /// Sequence number of the last event that was read.
    last_event: u64,
    ended: bool,
    next_poll: Instant,
    poll_interval: Duration,
}

struct RunFollower<'a> {
    shared: &'a OrchestratorShared,
    cx: &'a Context,
    run: &'a RunId,
    owner: &'a TaskOwner,
    tasks: Arc<dyn TaskStore>,
    notifications: TaskNotificationReceiver,
    /// Step tasks, followed by the root task.
    tasks_followed: Vec<FollowedTask>,
    /// Number of tasks, including the root task.
    task_count: usize,
    question_futures: FuturesUnordered<QuestionFuture>,
    /// Abort handles of the questions forwarded to the caller, by task index and question key.
    question_aborts: HashMap<(usize, String), AbortHandle>,
    end: Option<Result<Box<RawValue>, Failure>>,
}

/// Follows a stored run to its end and returns its answer.
///
/// # Errors
/// The failure of the run, or of the task store.
pub(super) async fn follow_run(
    shared: &OrchestratorShared,
    cx: &Context,
    run: &RunId,
    owner: &TaskOwner,
) -> Result<ToolResult, Failure> {
    let mut following = RunFollower {
        shared,
        cx,
        run,
        owner,
        tasks: cx.system().store().tasks.clone(),
        // Subscribed before the first read, so that no change in between is missed.
        notifications: shared.notifier.subscribe(run.clone()),
        tasks_followed: Vec::new(),
        task_count: 0,
        question_futures: FuturesUnordered::new(),
        question_aborts: HashMap::new(),
        end: None,
    };
    following.load_tasks().await?;
    let reply = following.run_to_end().await?;
    let result = RawObject::parse(&reply).map_err(|_| {
        Failure::internal("the stored result of the run is malformed: send the request again")
    })?;
    Ok(publish_final_answer(ToolResult(result), cx))
}

/// Sends the run's answer as an artifact too, and marks the result so that its text isn't stored
/// twice.
fn publish_final_answer(result: ToolResult, cx: &Context) -> ToolResult {
    cx.artifact(
        Artifact::new(FINAL_ANSWER, [Content::text(result.texts())]).with_name(FINAL_ANSWER),
    );
    let meta = result.0.object("_meta").unwrap_or_default();
    ToolResult(
        result
            .0
            .with("_meta", meta.with(ARTIFACTS_SENT_META_KEY, true)),
    )
}

impl RunFollower<'_> {
    /// Loads the current state of all tasks of the run. Their earlier events aren't forwarded to
    /// the caller.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists or has another owner; failures of the store.
    async fn load_tasks(&mut self) -> Result<(), Failure> {
        let root_id = root_task_id(self.run)?;
        let filter = TaskFilter {
            parent: Some(root_id.clone()),
            ..TaskFilter::default()
        };
        let (steps, _) = self.tasks.list(filter, 0, STEPS_MAX).await?;
        let root = self
            .tasks
            .get(&root_id)
            .await?
            .filter(|root| root.owner == *self.owner);
        let root = root.ok_or_else(|| {
            Failure::not_found("the run is no longer stored: send the request again")
        })?;
        self.task_count = steps.len() + 1;
        let prefix = format!("{root_id}.");
        for task in &steps {
            let step = task
                .id
                .as_str()
                .strip_prefix(&prefix)
                .unwrap_or(task.id.as_str());
            self.add_task(task, Some(step.to_owned())).await?;
        }
        self.add_task(&root, None).await
    }

    async fn add_task(&mut self, task: &Task, step: Option<String>) -> Result<(), Failure> {
        let (at, is_root) = (self.tasks_followed.len(), step.is_none());
        let part = FollowedTask {
            id: task.id.clone(),
            step,
            last_event: task.last_event,
            ended: task.state.is_terminal(),
            next_poll: Instant::now(),
            poll_interval: POLL_INTERVAL_MIN,
        };
        self.tasks_followed.push(part);
        if task.state.is_terminal() && is_root {
            self.tasks_followed[at].last_event = task.last_event.saturating_sub(1);
            self.tasks_followed[at].ended = false;
            return self.poll_task(at).await;
        }
        // A question of an ended process is asked again by the process that resumes the task.
        if has_live_worker(task, self.tasks.worker_id()) {
            for open in &task.open_questions {
                self.forward_question(at, open);
            }
        }
        Ok(())
    }

    async fn run_to_end(&mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            let now = Instant::now();
            for at in 0..self.tasks_followed.len() {
                if !self.tasks_followed[at].ended && self.tasks_followed[at].next_poll <= now {
                    self.poll_task(at).await?;
                }
            }
            if let Some(end) = self.end.take() {
                return end;
            }
            let look_at = self
                .tasks_followed
                .iter()
                .filter(|part| !part.ended)
                .map(|part| part.next_poll)
                .min();
            tokio::select! {
                biased;
                () = self.cx.cancelled() => return Err(self.cancel_run().await),
                Some(answered) = self.question_futures.next(), if !self.question_futures.is_empty() => {
                    if let Ok((at, key, answer)) = answered {
                        self.store_answer(at, key, answer).await?;
                    }
                }
                rung = self.notifications.recv() => self.schedule_poll(rung.as_ref()),
                () = sleep_until(look_at.unwrap_or(now + ROOT_POLL_INTERVAL_MAX)) => {}
            }
        }
    }

    /// Ends the run because its call was cancelled, and returns the failure for the caller:
    /// `Cancelled`. During a shutdown the run isn't ended, so that it resumes later or on another
    /// node, and the failure is `Unavailable`.
    async fn cancel_run(&mut self) -> Failure {
        if self.shared.options.shutdown.is_cancelled() {
            return Failure::unavailable(
                "this node is shutting down: the request resumes after its restart",
            );
        }
        if let Ok(root) = root_task_id(self.run)
            && let Err(error) = self
                .tasks
                .request_cancel(&root, TaskActor::Owner(self.owner))
                .await
            && !matches!(error, TaskError::HasEnded(_) | TaskError::NotFound)
        {
            callboard_message::log::warn!(run = %self.run, %error, "failed to cancel a run: its steps may go on");
        }
        Failure::cancelled("the request was cancelled")
    }

    fn schedule_poll(&mut self, task: Option<&TaskId>) {
        for part in &mut self.tasks_followed {
            if task.is_none_or(|task| part.id == *task) {
                (part.next_poll, part.poll_interval) = (Instant::now(), POLL_INTERVAL_MIN);
            }
        }
    }

    /// Reads the new events of the task with the index `at`, applies them to the followed run, and
    /// sets the time of the next poll.
    ///
    /// # Errors
    /// Failures of the store.
    async fn poll_task(&mut self, at: usize) -> Result<(), Failure> {
        let FollowedTask {
            id,
            last_event: read,
            ..
        } = &self.tasks_followed[at];
        let events = self.tasks.events(id, *read, EVENTS_PAGE_SIZE).await?;
        let part = &mut self.tasks_followed[at];
        let every = if part.step.is_none() {
            ROOT_POLL_INTERVAL_MAX
        } else {
            STEP_POLL_INTERVAL_MAX
        };
        part.poll_interval = if events.is_empty() {
            (part.poll_interval * 2).min(every)
        } else {
            POLL_INTERVAL_MIN * 2
        };
        part.next_poll = Instant::now() + part.poll_interval;
        for event in events {
            self.tasks_followed[at].last_event = event.number;
            self.tasks_followed[at].ended = event.state.is_terminal();
            self.apply_step(at, event.step);
        }
        if self.tasks_followed[at].ended {
            self.withdraw_questions(at);
            // Other tasks may depend on the end of this one.
            self.schedule_poll(None);
        }
        Ok(())
    }

    fn apply_step(&mut self, at: usize, step: TaskStep) {
        let is_root = self.tasks_followed[at].step.is_none();
        match step {
            TaskStep::Start if is_root => {
                // The root task starts after all steps have ended, even if their last events
                // haven't been read.
                (0..at).for_each(|part| self.withdraw_questions(part));
            }
            TaskStep::Said(message) => {
                // The store also reports ended steps as progress of the root task, in words for
                // operators.
                let line = match &self.tasks_followed[at].step {
                    Some(step) => format!("{step}: {message}"),
                    None if TaskStep::is_part_ended_text(&message) => return,
                    None => message,
                };
                self.cx.progress(Progress {
                    message: Some(line),
                    ..Progress::default()
                });
            }
            TaskStep::Asked(open) => self.forward_question(at, &open),
            TaskStep::Answered { key, .. } | TaskStep::GivenUp { key } => {
                self.withdraw_question(at, &key)
            }
            TaskStep::Completed(reply) if is_root => self.end = Some(Ok(reply)),
            TaskStep::Failed(failure) | TaskStep::Rejected(failure) if is_root => {
                self.end = Some(Err(failure))
            }
            TaskStep::Cancelled { why } if is_root => self.end = Some(Err(Failure::cancelled(why))),
            _ => {}
        }
    }

    /// Forwards a question that the task with the index `at` asks to the caller of the run. In a
    /// plan of several steps, the text names the step.
    fn forward_question(&mut self, at: usize, open: &OpenQuestion) {
        let key = match &self.tasks_followed[at].step {
            Some(step) => format!("{step}.{}", open.key),
            None => open.key.clone(),
        };
        let mut question = Question::clone(&open.question).with_key(&key);
        // Two steps may ask the same at once, so the text names the step. A plan of one step was
        // never shown as a plan.
        if let (Some(step), Question::Elicit(form), 3..) = (
            &self.tasks_followed[at].step,
            &mut question,
            self.task_count,
        ) {
            form.0
                .set_text("message", &format!("{} (step {step})", form.message()));
        }
        let (cx, key) = (self.cx.clone(), open.key.clone());
        let (abort, registration) = AbortHandle::new_pair();
        let place = (at, key.clone());
        let asking = async move {
            let answer = cx.ask_caller(question).await;
            (at, key, answer)
        };
        self.question_futures
            .push(Box::pin(Abortable::new(asking, registration)));
        if let Some(before) = self.question_aborts.insert(place, abort) {
            before.abort();
        }
    }

    async fn store_answer(
        &mut self,
        at: usize,
        key: String,
        answer: Result<Answer, Failure>,
    ) -> Result<(), Failure> {
        let answer = match answer {
            Ok(answer) => answer.to_raw(),
            // The call is over or the node shuts down: that is handled elsewhere and is no answer.
            Err(_) if self.cx.is_cancelled() || self.shared.options.shutdown.is_cancelled() => {
                return Ok(());
            }
            Err(failure) => failure_as_answer(&failure),
        };
        let step = TaskStep::Answered { key, answer };
        match self
            .tasks
            .apply(
                &self.tasks_followed[at].id,
                TaskActor::Owner(self.owner),
                vec![step],
            )
            .await
        {
            // The question was answered elsewhere or withdrawn.
            Ok(_) | Err(TaskError::Illegal { .. } | TaskError::HasEnded(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.schedule_poll(Some(&self.tasks_followed[at].id.clone()));
        Ok(())
    }

    fn withdraw_question(&mut self, at: usize, key: &str) {
        if let Some(asking) = self.question_aborts.remove(&(at, key.to_owned())) {
            asking.abort();
        }
    }

    fn withdraw_questions(&mut self, at: usize) {
        self.question_aborts
            .extract_if(|(of, _), _| *of == at)
            .for_each(|(_, asking)| asking.abort());
    }
}

/// Whether the worker of a task is alive: it is this process, named `worker`, or runs on another
/// node. An earlier process of this node has ended.
fn has_live_worker(task: &Task, worker: &str) -> bool {
    let name = |worker: &str| {
        worker
            .rsplit_once('#')
            .map_or(worker, |(name, _)| name)
            .to_owned()
    };
    task.lease
        .as_ref()
        .is_some_and(|lease| lease.worker == worker || name(&lease.worker) != name(worker))
}
