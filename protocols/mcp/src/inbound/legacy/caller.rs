//! The client of a session as an agent sees it: told of progress, asked questions.

use std::sync::{Arc, Weak};

use callboard_message::surface::{Abilities, Log};
use callboard_message::{Answer, Failure, FailureKind, Progress, Question, RawObject};
use callboard_rpc::encode_notification;
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use crate::inbound::link::Link;
use crate::inbound::reports::Reports;
use crate::inbound::tasks::asking;
use crate::wire::meta;

/// Who sent one request.
pub(crate) struct SessionCaller {
    session: Arc<Session>,
    /// Where the request came from.
    link: Arc<dyn Link>,
    /// Fires when the request is over.
    over: CancellationToken,
    progress: Option<Mutex<Reports>>,
}

impl SessionCaller {
    pub(crate) fn new(
        session: Arc<Session>,
        link: Arc<dyn Link>,
        over: CancellationToken,
        meta: Option<&RawObject>,
    ) -> Self {
        let token = meta.and_then(|meta| meta.get(meta::PROGRESS_TOKEN));
        let token = token.filter(|token| Reports::is_token(token));
        let progress = token.map(|token| Mutex::new(Reports::under(token)));
        Self { session, link, over, progress }
    }
}

/// The client of a session, for what belongs to none of its requests for sure.
pub(super) struct BackgroundCaller(pub(super) Weak<Session>);

impl BackgroundCaller {
    fn now(&self) -> Option<SessionCaller> {
        let session = self.0.upgrade()?;
        let (link, over) = (session.unsolicited.clone(), session.over.clone());
        Some(SessionCaller::new(session, link, over, None))
    }
}

impl Caller for BackgroundCaller {
    // Progress belongs to a request.
    fn progress(&self, _progress: Progress) {}

    fn log(&self, line: Log) {
        if let Some(caller) = self.now() {
            caller.log(line);
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let gone = || Failure::new(FailureKind::NobodyToAsk, "the client has gone");
            self.now().ok_or_else(gone)?.ask(question).await
        })
    }

    fn elicitation_done(&self, id: &str) {
        if let Some(caller) = self.now() {
            caller.elicitation_done(id);
        }
    }

    fn abilities(&self) -> Abilities {
        self.now().map(|caller| caller.abilities()).unwrap_or_default()
    }
}

impl Caller for SessionCaller {
    fn progress(&self, progress: Progress) {
        let Some(reports) = &self.progress else { return };
        // After the answer nothing may be said of the request.
        if self.over.is_cancelled() {
            return;
        }
        let mut reports = reports.lock();
        if let Some(report) = reports.next(progress) {
            self.link.offer(report.into());
        }
    }

    fn log(&self, line: Log) {
        if line.level() >= *self.session.log_level.lock() {
            self.link.offer(encode_notification("notifications/message", Some(&line.0.to_raw())).into());
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let abilities = self.abilities();
            if !abilities.can_answer(&question) {
                return Err(Failure::new(FailureKind::NobodyToAsk, "the client has nobody to answer that"));
            }
            let unknown = || Failure::new(FailureKind::NobodyToAsk, "MCP has no such question");
            let (method, params) = asking::request(&question).ok_or_else(unknown)?;
            let answer = self.session.questions.ask(method, &params.to_raw(), &*self.link, &self.over).await?;
            let answer = RawObject::parse(&answer).map_err(|_| Failure::invalid("the client's answer is no object"))?;
            Ok(question.answered(answer))
        })
    }

    fn elicitation_done(&self, id: &str) {
        if self.session.abilities().elicitation_url() {
            let params = RawObject::new().with("elicitationId", id).to_raw();
            self.link.offer(encode_notification("notifications/elicitation/complete", Some(&params)).into());
        }
    }

    fn abilities(&self) -> Abilities {
        match self.link.can_ask() {
            true => self.session.abilities(),
            false => Abilities::default(),
        }
    }
}
