use std::sync::{Arc, OnceLock};

use callboard_message::{Abilities, Answer, Failure, FailureKind, Log, LogLevel, Progress, Question};
use callboard_rpc::encode_notification;
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::desk::Desk;
use super::head::Head;
use crate::inbound::link::Link;
use crate::inbound::reports::Reports;

/// The client behind a call. Progress and log lines go to the request of it that is open, questions to the desk.
pub(super) struct Client {
    line: Mutex<Option<Line>>,
    /// `None` where the request can't be answered with questions.
    desk: Option<Arc<Desk>>,
    /// Who has taken the call over; then it alone hears and is asked.
    successor: OnceLock<Arc<dyn Caller>>,
}

/// Where what happens during one request goes.
pub(super) struct Line {
    link: Arc<dyn Link>,
    reports: Option<Reports>,
    level: Option<LogLevel>,
}

impl Line {
    /// The line of a request; `None` where its sender wants to hear nothing.
    pub fn of(head: &Head<'_>, link: &Arc<dyn Link>) -> Option<Self> {
        let wanted = head.token.is_some() || head.level.is_some();
        wanted.then(|| Self { link: link.clone(), reports: head.token.map(Reports::under), level: head.level })
    }
}

impl Client {
    pub fn new(line: Option<Line>, desk: Option<Arc<Desk>>) -> Self {
        Self { line: Mutex::new(line), desk, successor: OnceLock::new() }
    }

    /// The next request of the same call, or none: nothing may be sent for one that was answered.
    pub fn turn_to(&self, line: Option<Line>) {
        *self.line.lock() = line;
    }

    /// Puts somebody in the client's place, once.
    pub fn hand_over(&self, successor: Arc<dyn Caller>) {
        let _ = self.successor.set(successor);
    }
}

impl Caller for Client {
    fn progress(&self, progress: Progress) {
        if let Some(successor) = self.successor.get() {
            return successor.progress(progress);
        }
        let mut line = self.line.lock();
        let Some(Line { link, reports: Some(reports), .. }) = &mut *line else { return };
        if let Some(report) = reports.next(progress) {
            link.offer(report.into());
        }
    }

    fn log(&self, log: Log) {
        if let Some(successor) = self.successor.get() {
            return successor.log(log);
        }
        let line = self.line.lock();
        let Some(Line { link, level: Some(level), .. }) = &*line else { return };
        if log.level() >= *level {
            link.offer(encode_notification("notifications/message", Some(&log.0.to_raw())).into());
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        if let Some(successor) = self.successor.get() {
            return successor.ask(question);
        }
        match &self.desk {
            Some(desk) => Box::pin(desk.ask(question)),
            None => Box::pin(async { Err(nobody()) }),
        }
    }

    fn abilities(&self) -> Abilities {
        if let Some(successor) = self.successor.get() {
            return successor.abilities();
        }
        self.desk.as_ref().map(|desk| desk.abilities()).unwrap_or_default()
    }
}

pub(super) fn nobody() -> Failure {
    Failure::new(FailureKind::NobodyToAsk, "nobody can be asked during this request")
}
