//! Mail that does one thing differently.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::mail::AgentLogRow;
use futures::future::BoxFuture;

use crate::{JournalError, Letter, LetterFilter, LetterOpen, LetterPage, Mail, MailCopy, Mark, NewLetter, StoredEvent};

type Answer<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

/// In front of other mail: what it doesn't treat itself goes on to that. It is [`Mail`] by this.
pub trait MailLayer: Send + Sync + 'static {
    /// What it stands in front of.
    fn behind(&self) -> &dyn Mail;

    /// As [`Mail::post`].
    fn post(&self, new: NewLetter) -> Answer<'_, Arc<Letter>> {
        self.behind().post(new)
    }

    /// As [`Mail::spread`].
    fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Answer<'_, ()> {
        self.behind().spread(letter, to, delivered)
    }

    /// As [`Mail::mark`].
    fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Answer<'_, Vec<(String, u64)>> {
        self.behind().mark(marks, mark)
    }

    /// As [`Mail::is_shared`].
    fn is_shared(&self) -> bool {
        self.behind().is_shared()
    }
}

impl<L: MailLayer> Mail for L {
    fn post(&self, new: NewLetter) -> Answer<'_, Arc<Letter>> {
        MailLayer::post(self, new)
    }

    fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Answer<'_, ()> {
        MailLayer::spread(self, letter, to, delivered)
    }

    fn unspread(&self, letters_max: usize) -> Answer<'_, Vec<Arc<Letter>>> {
        self.behind().unspread(letters_max)
    }

    fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Answer<'_, Vec<(String, u64)>> {
        MailLayer::mark(self, marks, mark)
    }

    fn tried<'a>(&'a self, recipient: &'a str, letter: u64) -> Answer<'a, u32> {
        self.behind().tried(recipient, letter)
    }

    fn open<'a>(
        &'a self,
        recipient: &'a str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Answer<'a, Vec<LetterOpen>> {
        self.behind().open(recipient, after, undelivered, letters_max)
    }

    fn waiting(&self) -> Answer<'_, HashMap<String, u64>> {
        self.behind().waiting()
    }

    fn letter<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Arc<Letter>>> {
        self.behind().letter(id)
    }

    fn receipts<'a>(&'a self, letter: u64, after: Option<&'a str>, copies_max: usize) -> Answer<'a, Vec<MailCopy>> {
        self.behind().receipts(letter, after, copies_max)
    }

    fn history(&self, filter: LetterFilter, before: u64, letters_max: usize) -> Answer<'_, LetterPage> {
        self.behind().history(filter, before, letters_max)
    }

    fn events(&self, after: u64, events_max: usize) -> Answer<'_, Vec<(u64, StoredEvent)>> {
        self.behind().events(after, events_max)
    }

    fn last_event(&self) -> Answer<'_, u64> {
        self.behind().last_event()
    }

    fn tell(&self, event: StoredEvent) -> Answer<'_, u64> {
        self.behind().tell(event)
    }

    fn logs<'a>(&'a self, agent: Option<&'a str>, after: u64, rows_max: usize) -> Answer<'a, Vec<AgentLogRow>> {
        self.behind().logs(agent, after, rows_max)
    }

    fn is_shared(&self) -> bool {
        MailLayer::is_shared(self)
    }
}
