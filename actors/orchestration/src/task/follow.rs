//! A call follows its run: what the tasks say goes to whoever called, what they ask too, and the answers back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{
    Answer, Artifact, Content, Failure, Progress, Question, RawObject, SHOWN, ToolResult,
};
use callboard_runtime::{
    By, Cx, OpenQuestion, Task, TaskError, TaskFilter, TaskId, TaskOwner, TaskStep, Tasks,
};
use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::bell::Hearing;
use super::plan::root_id;
use super::question_dedup::no_answer;
use crate::decide::RunId;
use crate::decide::limits::STEPS_MAX;

/// The artifact that holds a run's answer.
const FINAL_ANSWER: &str = "final_answer";
/// How soon a task is looked at for which the bell rang, and at which intervals it is looked at while nothing comes of it:
/// twice as long each time.
const LOOK_SOON: Duration = Duration::from_millis(1);
/// Interval at which the task itself is read again: another node may work on it, which wakes nobody here. Fixed.
const LOOK_ROOT_EVERY: Duration = Duration::from_secs(1);
/// Interval at which a step of the task is read again, for the same reason. Fixed.
const LOOK_STEP_EVERY: Duration = Duration::from_secs(3);
/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;

type Asking = BoxFuture<'static, Result<(usize, String, Result<Answer, Failure>), Aborted>>;

/// A task of the run.
struct Part {
    id: TaskId,
    /// The step's id; `None` for the root.
    step: Option<String>,
    /// The number of the last event that was read.
    read: u64,
    ended: bool,
    look_at: Instant,
    pause: Duration,
}

struct Following<'a> {
    shared: &'a Shared,
    cx: &'a Cx,
    run: &'a RunId,
    owner: &'a TaskOwner,
    tasks: Arc<dyn Tasks>,
    bell: Hearing,
    /// The root is the last.
    parts: Vec<Part>,
    /// Number of parts, the root among them.
    parts_all: usize,
    asking: FuturesUnordered<Asking>,
    /// By part and key.
    open: HashMap<(usize, String), AbortHandle>,
    end: Option<Result<Box<RawValue>, Failure>>,
}

/// Follows a run that is kept to its end.
///
/// # Errors
/// What it failed with.
pub(super) async fn follow(
    shared: &Shared,
    cx: &Cx,
    run: &RunId,
    owner: &TaskOwner,
) -> Result<ToolResult, Failure> {
    let mut following = Following {
        shared,
        cx,
        run,
        owner,
        tasks: cx.system().store().tasks.clone(),
        // Before the first look: what happens after it rings.
        bell: shared.bells.hear(run.clone()),
        parts: Vec::new(),
        parts_all: 0,
        asking: FuturesUnordered::new(),
        open: HashMap::new(),
        end: None,
    };
    following.begin().await?;
    let reply = following.until_the_end().await?;
    let result = RawObject::parse(&reply)
        .map_err(|_| Failure::internal("what the run came to can't be read"))?;
    Ok(shown(ToolResult(result), cx))
}

/// The answer as an artifact too: whoever keeps those needn't keep it twice.
fn shown(result: ToolResult, cx: &Cx) -> ToolResult {
    cx.artifact(Artifact::new(FINAL_ANSWER, [Content::text(result.texts())]).named(FINAL_ANSWER));
    let meta = result.0.object("_meta").unwrap_or_default();
    ToolResult(result.0.with("_meta", meta.with(SHOWN, true)))
}

impl Following<'_> {
    /// Looks where the tasks stand now: what was before is history.
    async fn begin(&mut self) -> Result<(), Failure> {
        let root_id = root_id(self.run)?;
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
        let root = root.ok_or_else(|| Failure::not_found("the run isn't there any more"))?;
        self.parts_all = steps.len() + 1;
        let prefix = format!("{root_id}.");
        for task in &steps {
            let step = task
                .id
                .as_str()
                .strip_prefix(&prefix)
                .unwrap_or(task.id.as_str());
            self.part(task, Some(step.to_owned())).await?;
        }
        self.part(&root, None).await
    }

    async fn part(&mut self, task: &Task, step: Option<String>) -> Result<(), Failure> {
        let (at, is_root) = (self.parts.len(), step.is_none());
        let part = Part {
            id: task.id.clone(),
            step,
            read: task.last_event,
            ended: task.state.is_terminal(),
            look_at: Instant::now(),
            pause: LOOK_SOON,
        };
        self.parts.push(part);
        if task.state.is_terminal() && is_root {
            self.parts[at].read = task.last_event.saturating_sub(1);
            self.parts[at].ended = false;
            return self.look(at).await;
        }
        // What an earlier process asked is asked again by whoever goes on with it.
        if is_ours(task, self.tasks.worker()) {
            for open in &task.open {
                self.ask(at, open);
            }
        }
        Ok(())
    }

    async fn until_the_end(&mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            let now = Instant::now();
            for at in 0..self.parts.len() {
                if !self.parts[at].ended && self.parts[at].look_at <= now {
                    self.look(at).await?;
                }
            }
            if let Some(end) = self.end.take() {
                return end;
            }
            let look_at = self
                .parts
                .iter()
                .filter(|part| !part.ended)
                .map(|part| part.look_at)
                .min();
            tokio::select! {
                biased;
                () = self.cx.cancelled() => return Err(self.cancelled().await),
                Some(answered) = self.asking.next(), if !self.asking.is_empty() => {
                    if let Ok((at, key, answer)) = answered {
                        self.answered(at, key, answer).await?;
                    }
                }
                rung = self.bell.rung() => self.rung(rung.as_ref()),
                () = sleep_until(look_at.unwrap_or(now + LOOK_ROOT_EVERY)) => {}
            }
        }
    }

    /// Nobody wants it any more, or this node ends: then it goes on elsewhere, or later.
    async fn cancelled(&mut self) -> Failure {
        if self.shared.options.ending.is_cancelled() {
            return Failure::unavailable("this node ends: the request goes on when it is back");
        }
        if let Ok(root) = root_id(self.run)
            && let Err(error) = self.tasks.want_cancel(&root, By::Owner(self.owner)).await
            && !matches!(error, TaskError::HasEnded(_) | TaskError::NotFound)
        {
            callboard_message::log::warn!(run = %self.run, %error, "a run that nobody wants any more goes on");
        }
        Failure::cancelled("the request was cancelled")
    }

    fn rung(&mut self, task: Option<&TaskId>) {
        for part in &mut self.parts {
            if task.is_none_or(|task| part.id == *task) {
                (part.look_at, part.pause) = (Instant::now(), LOOK_SOON);
            }
        }
    }

    /// Reads what happened to a task.
    async fn look(&mut self, at: usize) -> Result<(), Failure> {
        let Part { id, read, .. } = &self.parts[at];
        let events = self.tasks.events(id, *read, EVENTS_READ_MAX).await?;
        let part = &mut self.parts[at];
        let every = if part.step.is_none() {
            LOOK_ROOT_EVERY
        } else {
            LOOK_STEP_EVERY
        };
        part.pause = if events.is_empty() {
            (part.pause * 2).min(every)
        } else {
            LOOK_SOON * 2
        };
        part.look_at = Instant::now() + part.pause;
        for event in events {
            self.parts[at].read = event.number;
            self.parts[at].ended = event.state.is_terminal();
            self.take(at, event.step);
        }
        if self.parts[at].ended {
            self.give_up_all(at);
            // Others wait for this one.
            self.rung(None);
        }
        Ok(())
    }

    fn take(&mut self, at: usize, step: TaskStep) {
        let is_root = self.parts[at].step.is_none();
        match step {
            TaskStep::Start if is_root => {
                // It begins when all parts have ended, whether that was read or not.
                (0..at).for_each(|part| self.give_up_all(part));
            }
            TaskStep::Said(message) => {
                // That a part has ended is said of the root by the store, in words for operators.
                let line = match &self.parts[at].step {
                    Some(step) => format!("{step}: {message}"),
                    None if message.starts_with("NP") => message,
                    None => return,
                };
                self.cx.progress(Progress {
                    message: Some(line),
                    ..Progress::default()
                });
            }
            TaskStep::Asked(open) => self.ask(at, &open),
            TaskStep::Answered { key, .. } | TaskStep::GivenUp { key } => self.give_up(at, &key),
            TaskStep::Completed(reply) if is_root => self.end = Some(Ok(reply)),
            TaskStep::Failed(failure) | TaskStep::Rejected(failure) if is_root => {
                self.end = Some(Err(failure))
            }
            TaskStep::Cancelled { why } if is_root => self.end = Some(Err(Failure::cancelled(why))),
            _ => {}
        }
    }

    /// Asks whoever called what a task asks.
    fn ask(&mut self, at: usize, open: &OpenQuestion) {
        let key = match &self.parts[at].step {
            Some(step) => format!("{step}.{}", open.key),
            None => open.key.clone(),
        };
        let mut question = Question::clone(&open.question).key(&key);
        // Two steps may ask the same at once. A plan of one was never shown as one.
        if let (Some(step), Question::Elicit(form), 3..) =
            (&self.parts[at].step, &mut question, self.parts_all)
        {
            form.0
                .set_text("message", &format!("{} (step {step})", form.message()));
        }
        let (cx, key) = (self.cx.clone(), open.key.clone());
        let (abort, registration) = AbortHandle::new_pair();
        let place = (at, key.clone());
        let asking = async move {
            let answer = cx.question(question).await;
            (at, key, answer)
        };
        self.asking
            .push(Box::pin(Abortable::new(asking, registration)));
        if let Some(before) = self.open.insert(place, abort) {
            before.abort();
        }
    }

    async fn answered(
        &mut self,
        at: usize,
        key: String,
        answer: Result<Answer, Failure>,
    ) -> Result<(), Failure> {
        let answer = match answer {
            Ok(answer) => answer.to_raw(),
            // The call is over, or the node ends: that is heard elsewhere, and answers nothing.
            Err(_) if self.cx.is_cancelled() || self.shared.options.ending.is_cancelled() => {
                return Ok(());
            }
            Err(failure) => no_answer(&failure),
        };
        let step = TaskStep::Answered { key, answer };
        match self
            .tasks
            .step(&self.parts[at].id, By::Owner(self.owner), vec![step])
            .await
        {
            // Somebody else answered, or it is asked no more.
            Ok(_) | Err(TaskError::Illegal { .. } | TaskError::HasEnded(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.rung(Some(&self.parts[at].id.clone()));
        Ok(())
    }

    fn give_up(&mut self, at: usize, key: &str) {
        if let Some(asking) = self.open.remove(&(at, key.to_owned())) {
            asking.abort();
        }
    }

    fn give_up_all(&mut self, at: usize) {
        self.open
            .extract_if(|(of, _), _| *of == at)
            .for_each(|(_, asking)| asking.abort());
    }
}

/// Whether whoever works on a task is no earlier process of this node's.
fn is_ours(task: &Task, worker: &str) -> bool {
    let name = |worker: &str| {
        worker
            .rsplit_once('#')
            .map_or(worker, |(name, _)| name)
            .to_owned()
    };
    task.lease
        .as_ref()
        .is_some_and(|lease| lease.by == worker || name(&lease.by) != name(worker))
}
