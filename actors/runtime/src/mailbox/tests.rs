use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::queue::*;

#[derive(Default, Debug)]
struct Messages(VecDeque<u32>);

impl Batch for Messages {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Run token with only a batch.
#[derive(Default, Debug)]
struct Ticket(Messages);

impl HasBatch<Messages> for Ticket {
    fn batch(&mut self) -> &mut Messages {
        &mut self.0
    }
}

/// Waker that counts wake-ups.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    /// Sends, waiting for room if there is none.
    Wait,
    /// Polls a waiting sender again.
    Look(usize),
    GiveUp(usize),
    /// Takes an agent's turn that starts up to this many messages.
    Turn(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Send),
        Just(Step::Wait),
        (0..8usize).prop_map(Step::Look),
        (0..8usize).prop_map(Step::GiveUp),
        (0..6usize).prop_map(Step::Turn),
    ]
}

/// Waiting sender: its message, its place, and its waker.
struct InLine {
    message: u32,
    place: WaiterId,
    woken: Arc<Woken>,
}

/// The mailbox next to a plain queue as its reference model.
struct Bench {
    mailbox: Mailbox<Messages, Ticket, ()>,
    ticket: Option<Ticket>,
    capacity: usize,
    plain: VecDeque<u32>,
    line: Vec<InLine>,
    next: u32,
}

impl Bench {
    fn new(capacity: usize) -> Self {
        let mailbox = Mailbox::new(capacity as u32);
        let mut bench = Self {
            mailbox,
            ticket: Some(Ticket::default()),
            capacity,
            plain: VecDeque::new(),
            line: Vec::new(),
            next: 0,
        };
        bench.turn(0);
        bench
    }

    fn message(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn admitted(&mut self, message: u32, admitted: PushResult<Ticket>) -> Option<WaiterId> {
        match admitted {
            PushResult::Queued(ticket) => {
                assert!(ticket.is_none() || self.ticket.is_none(), "one ticket only");
                self.ticket = self.ticket.take().or(ticket);
                self.plain.push_back(message);
                None
            }
            PushResult::Waiting(place) => Some(place),
            PushResult::Full => {
                // There may be room that is reserved for waiting senders.
                let promised = self
                    .line
                    .iter()
                    .filter(|w| w.woken.0.load(SeqCst) > 0)
                    .count();
                let free = self.capacity - self.plain.len() - promised;
                assert!(
                    free == 0 || promised < self.line.len(),
                    "full with {free} free"
                );
                None
            }
            PushResult::Closed => panic!("nobody closed it"),
        }
    }

    fn send(&mut self) {
        let message = self.message();
        let admitted = self
            .mailbox
            .admit(|| false, |queue| queue.0.push_back(message));
        self.admitted(message, admitted);
    }

    fn wait(&mut self) {
        let message = self.message();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let admitted =
            self.mailbox
                .admit_or_wait(|| false, None, &waker, |queue| queue.0.push_back(message));
        if let Some(place) = self.admitted(message, admitted) {
            self.line.push(InLine {
                message,
                place,
                woken,
            });
        }
    }

    fn look(&mut self, at: usize) {
        if self.line.is_empty() {
            return;
        }
        let waiter = self.line.remove(at % self.line.len());
        let waker = Waker::from(waiter.woken.clone());
        let promised = waiter.woken.0.load(SeqCst) > 0;
        let message = waiter.message;
        let admitted = self.mailbox.admit_or_wait(
            || false,
            Some(waiter.place),
            &waker,
            |q| q.0.push_back(message),
        );
        assert_eq!(
            matches!(admitted, PushResult::Queued(_)),
            promised,
            "room exactly for whom it was promised"
        );
        if let Some(place) = self.admitted(message, admitted) {
            let at = self.line.partition_point(|w| w.place < place);
            self.line.insert(at, InLine { place, ..waiter });
        }
    }

    fn give_up(&mut self, at: usize) {
        if !self.line.is_empty() {
            let waiter = self.line.remove(at % self.line.len());
            self.mailbox.forget(waiter.place);
        }
    }

    /// Takes a turn that starts up to `most` messages.
    fn turn(&mut self, most: usize) {
        let Some(mut ticket) = self.ticket.take() else {
            assert!(
                self.plain.is_empty(),
                "an agent with messages has a ticket out"
            );
            return;
        };
        let mut begun = 0;
        for _ in 0..most {
            self.mailbox
                .take(std::mem::take(&mut begun), &mut ticket.0, true);
            let Some(message) = ticket.0.0.pop_front() else {
                break;
            };
            assert_eq!(Some(message), self.plain.pop_front(), "first in, first out");
            begun += 1;
        }
        let rest = if ticket.0.is_empty() {
            TurnOutcome::Idle
        } else {
            TurnOutcome::More
        };
        self.ticket = self.mailbox.settle(begun, rest, ticket);
        assert_eq!(
            self.ticket.is_some(),
            !self.plain.is_empty(),
            "awake exactly while there is work"
        );
    }

    fn check(&self) {
        let (held, _) = self.mailbox.depth_and_activity();
        let promised = self
            .line
            .iter()
            .filter(|w| w.woken.0.load(SeqCst) > 0)
            .count();
        assert_eq!(held as usize, self.plain.len() + promised);
        assert!(
            held as usize <= self.capacity,
            "{held} in {}",
            self.capacity
        );
        let first_unpromised = self
            .line
            .iter()
            .position(|w| w.woken.0.load(SeqCst) == 0)
            .unwrap_or(self.line.len());
        assert!(
            self.line[first_unpromised..]
                .iter()
                .all(|w| w.woken.0.load(SeqCst) == 0),
            "promised in order"
        );
        assert!(
            self.line.iter().all(|w| w.woken.0.load(SeqCst) <= 1),
            "woken once"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Goal: the mailbox behaves like a plain bounded queue with fair waiting: it neither loses,
    /// duplicates nor reorders messages, and the agent is scheduled exactly while there is work.
    /// Method: random steps next to a plain queue, for small mailboxes and one that reserves room
    /// by halves.
    #[test]
    fn like_a_plain_queue(capacity in prop_oneof![1..5usize, Just(LARGE_CAPACITY_MIN as usize)], steps in prop::collection::vec(step(), 0..400)) {
        let mut bench = Bench::new(capacity);
        for step in steps {
            match step {
                Step::Send => bench.send(),
                Step::Wait => bench.wait(),
                Step::Look(at) => bench.look(at),
                Step::GiveUp(at) => bench.give_up(at),
                Step::Turn(most) => bench.turn(most),
            }
            bench.check();
        }
        // Every waiting sender gets its turn in the end.
        while !(bench.line.is_empty() && bench.plain.is_empty()) {
            bench.turn(100);
            bench.look(0);
            bench.check();
        }
    }
}
