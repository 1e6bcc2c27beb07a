//! Caller of a task's call: it records reports and passes questions to the task's worker.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callboard_message::{
    Answer, Artifact, CallerCapabilities, Failure, LogMessage, Progress, Question,
};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::call::{Caller, no_responder};
use crate::sync::Mutex;
use crate::task::{TASK_BYTES_MAX_DEFAULT, Task, TaskResult, TaskStep};

/// Capacity of a worker's event channel; senders wait when it is full.
const WORKER_EVENTS_MAX: usize = 64;
/// Maximum number of buffered reports of a task's call. When the buffer is full, status reports are
/// dropped. Dropped artifacts are noted, so that the reply repeats all.
const BUFFERED_REPORTS_MAX: usize = 1_024;
/// Maximum number of buffered status reports of a task's call.
const BUFFERED_STATUS_REPORTS_MAX: usize = 64;

/// Event for the worker that stores the progress of a task.
pub(super) enum WorkerEvent {
    Asked {
        question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    },
    /// Steps from outside the call, and optionally a question's key with its answer, or with the
    /// failure that the agent gets for it.
    Steps {
        steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
        taken: oneshot::Sender<TaskResult<Arc<Task>>>,
    },
    /// Another process has stored a cancellation request for the task.
    CancelSoon,
    /// The call has sent reports, or has withdrawn a question. The worker has to check both.
    CheckReports,
    /// Another actor has applied steps to the task. The worker has to read them.
    CatchUp,
    /// Another worker has claimed the task. The worker has to stop.
    Lost,
}

/// Status text or artifact that a call sends without waiting.
pub(super) enum CallReport {
    Status(String),
    Artifact(Artifact),
}

/// Reports of a task's call that aren't stored yet, in order.
#[derive(Default)]
pub(super) struct ReportBuffer {
    waiting: Mutex<BufferedReports>,
    /// Whether an artifact was dropped. The reply then has to contain all artifacts.
    missed: AtomicBool,
    /// True if the call has sent at least one artifact.
    any: AtomicBool,
}

#[derive(Default)]
struct BufferedReports {
    reports: VecDeque<CallReport>,
    status_reports: usize,
    bytes: usize,
}

impl ReportBuffer {
    /// Adds a report. Returns true if the buffer was empty before.
    fn push(&self, report: CallReport) -> bool {
        let mut waiting = self.waiting.lock();
        let (bytes, is_artifact) = match &report {
            CallReport::Status(_) => (0, false),
            CallReport::Artifact(artifact) => (
                artifact.0.iter().map(|(_, value)| value.get().len()).sum(),
                true,
            ),
        };
        if is_artifact {
            self.any.store(true, Ordering::Release);
        }
        let is_full = waiting.reports.len() >= BUFFERED_REPORTS_MAX
            || (is_artifact && waiting.bytes + bytes > TASK_BYTES_MAX_DEFAULT)
            || (!is_artifact && waiting.status_reports >= BUFFERED_STATUS_REPORTS_MAX);
        if is_full {
            if is_artifact {
                self.mark_missed();
            }
            return false;
        }
        waiting.bytes += bytes;
        waiting.status_reports += usize::from(!is_artifact);
        waiting.reports.push_back(report);
        waiting.reports.len() == 1
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().reports.is_empty()
    }

    /// Takes all buffered reports.
    pub(super) fn take(&self) -> VecDeque<CallReport> {
        mem::take(&mut *self.waiting.lock()).reports
    }

    /// Records that an artifact couldn't be stored.
    pub(super) fn mark_missed(&self) {
        self.missed.store(true, Ordering::Release);
    }

    /// Returns true if artifacts were sent during the call and all of them are stored, so that the
    /// reply needn't repeat them.
    pub(super) fn has_all_artifacts(&self) -> bool {
        self.any.load(Ordering::Acquire) && !self.missed.load(Ordering::Acquire)
    }
}

/// Channel from a task's caller to its worker.
#[derive(Default)]
enum WorkerChannel {
    /// The channel hasn't been needed yet. A call that ends at once never needs it.
    #[default]
    Unused,
    /// The channel is open. The receiver is present until the worker takes it.
    Open(
        mpsc::Sender<WorkerEvent>,
        Option<mpsc::Receiver<WorkerEvent>>,
    ),
    /// The call has ended without a worker.
    Over,
}

impl WorkerChannel {
    /// Opens the channel and returns both ends; `None` if the call has ended.
    fn open(
        &mut self,
    ) -> Option<(
        &mpsc::Sender<WorkerEvent>,
        &mut Option<mpsc::Receiver<WorkerEvent>>,
    )> {
        if let Self::Unused = self {
            let (events, receiver) = mpsc::channel(WORKER_EVENTS_MAX);
            *self = Self::Open(events, Some(receiver));
        }
        match self {
            Self::Open(events, receiver) => Some((events, receiver)),
            Self::Unused | Self::Over => None,
        }
    }
}

/// Caller of a task's call. It passes reports and questions to the task's worker.
pub(super) struct TaskCaller {
    channel: Mutex<WorkerChannel>,
    pub(super) reports: ReportBuffer,
    abilities: Arc<CallerCapabilities>,
    /// Caller that also receives progress and log lines at once, if there is one.
    observer: Option<Arc<dyn Caller>>,
    /// True if artifacts are stored as they arrive. Otherwise they are dropped, as the reply
    /// repeats them.
    keeps_artifacts: bool,
}

impl TaskCaller {
    pub(super) fn new(
        abilities: Arc<CallerCapabilities>,
        observer: Option<Arc<dyn Caller>>,
        keeps_artifacts: bool,
    ) -> Self {
        Self {
            channel: Mutex::default(),
            reports: ReportBuffer::default(),
            abilities,
            observer,
            keeps_artifacts,
        }
    }

    /// Opens the channel and returns both ends, for the worker. To be called once, before the call
    /// ends.
    pub(super) fn open_worker_channel(
        &self,
    ) -> (mpsc::Sender<WorkerEvent>, mpsc::Receiver<WorkerEvent>) {
        let taken = self
            .channel
            .lock()
            .open()
            .and_then(|(events, receiver)| Some((events.clone(), receiver.take()?)));
        taken.unwrap_or_else(|| mpsc::channel(1))
    }

    /// Closes the channel if the call hasn't sent anything. Returns false if it has, so that a
    /// worker is needed.
    pub(super) fn close_if_unused(&self) -> bool {
        let mut line = self.channel.lock();
        let is_unused = matches!(*line, WorkerChannel::Unused) && self.reports.is_empty();
        if is_unused {
            *line = WorkerChannel::Over;
        }
        is_unused
    }

    fn report(&self, report: CallReport) {
        if self.reports.push(report) {
            self.wake_worker();
        }
    }

    /// Makes the worker store buffered reports and check for withdrawn questions.
    fn wake_worker(&self) {
        if let WorkerChannel::Open(events, _) = &*self.channel.lock() {
            // A full queue wakes the worker anyway.
            let _ = events.try_send(WorkerEvent::CheckReports);
        }
    }
}

impl Caller for TaskCaller {
    fn progress(&self, progress: Progress) {
        if let Some(message) = progress
            .message
            .as_ref()
            .filter(|message| !message.is_empty())
        {
            self.report(CallReport::Status(message.clone()));
        }
        if let Some(observer) = &self.observer {
            observer.progress(progress);
        }
    }

    fn log(&self, line: LogMessage) {
        if let Some(observer) = &self.observer {
            observer.log(line);
        }
    }

    fn artifact(&self, artifact: Artifact) {
        if self.keeps_artifacts {
            self.report(CallReport::Artifact(artifact));
        }
    }

    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities::clone(&self.abilities)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if !self.abilities.can_answer(&question) {
                return Err(no_responder());
            }
            let (answer, answered) = oneshot::channel();
            let events = self
                .channel
                .lock()
                .open()
                .map(|(events, _)| events.clone())
                .ok_or_else(no_responder)?;
            events
                .send(WorkerEvent::Asked { question, answer })
                .await
                .map_err(|_| no_responder())?;
            // If this future is dropped before the answer, the question is withdrawn.
            let _given_up = WakeWorkerOnDrop(self);
            answered.await.map_err(|_| no_responder())?
        })
    }
}

/// Guard of a question: on drop, makes the worker check for withdrawn questions.
struct WakeWorkerOnDrop<'a>(&'a TaskCaller);

impl Drop for WakeWorkerOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake_worker();
    }
}
