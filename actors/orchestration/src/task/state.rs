//! State machine of a call.

use callboard_message::{Failure, FailureKind};

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// It is there, and what becomes of it is being decided.
    Received,
    /// Whoever asked is asked what they mean.
    Clarifying,
    /// It is decided who does it.
    Routed,
    /// It is done, by one.
    Acting,
    /// Its steps are kept.
    Planned,
    /// Its steps are done, each by one.
    Running,
    /// What they came to is made one answer.
    Synthesizing,
    /// Whoever asked is asked whether the answer holds.
    Confirming,
    /// It ended with an answer.
    Completed,
    /// It ended with a failure.
    Failed,
    /// It isn't done.
    Rejected,
    /// Nobody wants it any more.
    Canceled,
}

/// Event of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// It is known what becomes of it.
    Decided,
    /// One begins to do it.
    Begun,
    /// Its steps are kept.
    Kept,
    /// The first step begins, or goes on.
    StepsBegun,
    /// All steps have ended.
    StepsEnded,
    /// Somebody is asked.
    Asked,
    /// A question is open no more.
    Answered,
    /// There is an answer.
    Done,
    /// It can't be done.
    Broken,
    /// It won't be done.
    Refused,
    /// Nobody wants it any more.
    Cancelled,
}

/// State of a call, and the number of its open questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    pub state: State,
    open: u32,
}

impl State {
    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Rejected | Self::Canceled)
    }
}

impl Standing {
    /// A call that has just come in.
    pub const NEW: Self = Self { state: State::Received, open: 0 };

    /// Takes an event; one that can't happen to the call is logged and changes nothing.
    pub fn on(&mut self, event: Event) {
        match self.next(event) {
            Some(next) => *self = next,
            None => callboard_message::log::warn!(standing = ?self, ?event, "that can't happen to a call"),
        }
    }

    /// Next standing; `None` where the event can't happen.
    const fn next(self, event: Event) -> Option<Self> {
        use State::{
            Acting, Canceled, Clarifying, Completed, Confirming, Failed, Planned, Received, Rejected, Routed, Running,
            Synthesizing,
        };
        let Self { state, open } = self;
        if state.is_terminal() {
            return None;
        }
        let (state, open) = match (state, event) {
            // What ends takes its questions along.
            (_, Event::Cancelled) => (Canceled, 0),
            (_, Event::Broken) => (Failed, 0),
            (_, Event::Refused) => (Rejected, 0),
            (Received, Event::Decided) => (Routed, open),
            (Routed, Event::Begun) if open == 0 => (Acting, open),
            (Routed, Event::Kept) if open == 0 => (Planned, open),
            (Planned, Event::StepsBegun) => (Running, open),
            (Running, Event::StepsEnded) if open == 0 => (Synthesizing, open),
            (Received, Event::Asked) => (Clarifying, 1),
            (Synthesizing, Event::Asked) => (Confirming, 1),
            (Routed | Acting | Running, Event::Asked) => (state, open.saturating_add(1)),
            (Clarifying, Event::Answered) => (Received, 0),
            (Confirming, Event::Answered) => (Synthesizing, 0),
            (Routed | Acting | Running, Event::Answered) if open > 0 => (state, open - 1),
            (Acting | Synthesizing, Event::Done) if open == 0 => (Completed, 0),
            _ => return None,
        };
        Some(Self { state, open })
    }
}

/// Event of a call that failed.
pub(super) const fn end_of(failure: &Failure) -> Event {
    match failure.kind {
        FailureKind::Rejected => Event::Refused,
        FailureKind::Cancelled => Event::Cancelled,
        _ => Event::Broken,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [Event; 11] = [
        Event::Decided,
        Event::Begun,
        Event::Kept,
        Event::StepsBegun,
        Event::StepsEnded,
        Event::Asked,
        Event::Answered,
        Event::Done,
        Event::Broken,
        Event::Refused,
        Event::Cancelled,
    ];

    /// Goal: the lives that calls lead are possible. Method: one of each, written out.
    #[test]
    fn lives() {
        use Event::{Answered, Asked, Begun, Broken, Decided, Done, Kept, Refused, StepsBegun, StepsEnded};
        for (events, state) in [
            (vec![Decided, Begun, Done], State::Completed),
            (vec![Asked, Answered, Decided, Begun, Asked, Answered, Done], State::Completed),
            (vec![Decided, Refused], State::Rejected),
            (vec![Decided, Kept, StepsBegun, Asked, Answered, StepsEnded, Done], State::Completed),
            (vec![Decided, Asked, Answered, Kept, StepsBegun, StepsEnded, Asked, Answered, Done], State::Completed),
            (vec![Decided, Kept, StepsBegun, StepsEnded, Broken], State::Failed),
            (vec![Asked, Event::Cancelled], State::Canceled),
        ] {
            let end = events.iter().try_fold(Standing::NEW, |standing, event| standing.next(*event));
            assert_eq!(end, Some(Standing { state, open: 0 }), "{events:?}");
        }
    }

    proptest! {
        /// Goal: no way leads out of an end, none completes with an open question, and none can't be ended. Method: any
        /// events in any order.
        #[test]
        fn ends_are_ends(events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..40)) {
            let mut standing = Standing::NEW;
            for event in events {
                let Some(next) = standing.next(event) else { continue };
                prop_assert!(!standing.state.is_terminal(), "{standing:?} then {event:?}");
                prop_assert!(next.state != State::Completed || standing.open == 0, "{standing:?} then {event:?}");
                prop_assert!(!next.state.is_terminal() || next.open == 0);
                standing = next;
                prop_assert!(standing.state.is_terminal() || standing.next(Event::Cancelled).is_some());
            }
        }
    }
}
