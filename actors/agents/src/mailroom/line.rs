//! The letters that wait for a member's way. A line holds few: what is too much for it is looked up in the store once there
//! is room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callboard_message::Message;
use callboard_runtime::{AgentRef, Recipient, System};

use super::Shared;
use super::carrier::Carrier;
use super::converse::Talks;
use super::hand_out::Handed;

/// Letters that a member's line holds; what is more waits in the store.
pub const LINE_LETTERS_MAX: usize = 256;

/// There may be something to deliver.
pub(super) struct Wake {
    /// Whoever gets it may be back: try at once.
    pub again: bool,
}

impl Message for Wake {
    type Reply = ();
    const NAME: &'static str = "callboard.mail.wake";
}

/// The way of one member's mail.
pub(super) struct Line {
    carrier: AgentRef,
    wake: Recipient<Wake>,
    queue: Arc<Queue>,
    way: Arc<str>,
}

/// What a line and its carrier share.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// The last delivery failed.
    pub fails: AtomicBool,
    /// Nobody there takes mail.
    pub nowhere: AtomicBool,
    pub is_over: AtomicBool,
    pub talks: Talks,
}

#[derive(Default)]
pub(super) struct Waiting {
    /// Urgent first, then by number.
    pub letters: BTreeMap<(bool, u64), Arc<Handed>>,
    /// There may be letters that are in the store alone.
    pub is_behind: bool,
    /// And there may be new ones before where it was last looked.
    pub anew: bool,
    /// Letters that came and weren't delivered, in the line or not; those in the store before the line began are counted by its
    /// first look.
    pub count: usize,
    /// Those are among them.
    pub is_counted: bool,
    /// The first letter that came since it began, by number.
    pub first: Option<u64>,
}

impl Line {
    /// Begins the line of a member. `has_some`: there may be letters in the store.
    pub fn open(system: &System, room: &Arc<Shared>, id: &Arc<str>, way: &str, has_some: bool) -> Option<Self> {
        let queue = Arc::new(Queue::default());
        queue.waiting().is_behind = has_some;
        let way: Arc<str> = way.into();
        let is_first = AtomicBool::new(true);
        let make = {
            let (room, id, way, queue) = (room.clone(), id.clone(), way.clone(), queue.clone());
            move || {
                if !is_first.swap(false, Relaxed) {
                    // What the one before had in hand is in the store.
                    queue.waiting().is_behind = true;
                }
                Carrier::new(room.clone(), id.clone(), way.clone(), queue.clone())
            }
        };
        let carrier = system.prepare_with(make).label(format!("mail of {id}")).spawn();
        let wake = carrier.recipient()?;
        Some(Self { carrier, wake, queue, way })
    }

    /// Whose way it is, by name.
    pub fn way(&self) -> &str {
        &self.way
    }

    /// One letter more, unless there are too many.
    pub fn hand(&self, handed: &Arc<Handed>) {
        self.queue.waiting().push(handed);
        self.wake(false);
    }

    /// It needn't deliver these any more: its member asked for them.
    pub fn forget(&self, letters: &[u64]) {
        let mut waiting = self.queue.waiting();
        for letter in letters {
            for is_normal in [false, true] {
                if waiting.letters.remove(&(is_normal, *letter)).is_some() {
                    waiting.count = waiting.count.saturating_sub(1);
                }
            }
        }
    }

    /// Letters that weren't delivered.
    pub fn undelivered(&self) -> usize {
        self.queue.waiting().count
    }

    /// Whoever gets it may be back.
    pub fn retry(&self) {
        if self.queue.fails.load(Relaxed) {
            self.wake(true);
        }
    }

    /// There may be letters in the store that came by another process.
    pub fn look(&self, letter: u64) {
        {
            let mut waiting = self.queue.waiting();
            waiting.came(letter);
            waiting.fall_behind();
        }
        self.wake(false);
    }

    fn wake(&self, again: bool) {
        // Where there is no room it is awake.
        let _ = self.wake.try_tell(Wake { again });
    }

    /// The last delivery ended well, as far as it went.
    pub fn works(&self) -> bool {
        !self.queue.fails.load(Relaxed) && !self.leads_nowhere()
    }

    /// Nobody there takes mail.
    pub fn leads_nowhere(&self) -> bool {
        self.queue.nowhere.load(Relaxed)
    }

    /// Ends it. What it held stays in the store.
    pub fn end(&self) {
        self.queue.is_over.store(true, Relaxed);
        self.queue.waiting().letters.clear();
        self.carrier.stop();
    }

    /// Whoever delivers. It ends after its last delivery.
    pub fn carrier(&self) -> AgentRef {
        self.carrier.clone()
    }
}

impl Queue {
    pub fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn came(&mut self, letter: u64) {
        self.count += 1;
        self.first = Some(self.first.map_or(letter, |first| first.min(letter)));
    }

    fn push(&mut self, handed: &Arc<Handed>) {
        self.came(handed.letter.number);
        // While it is behind, what is new isn't put before what is older.
        if self.is_behind || self.letters.len() >= LINE_LETTERS_MAX {
            self.fall_behind();
        } else {
            self.put(handed.clone());
        }
    }

    /// There is something to deliver, as far as it is known.
    pub fn has_some(&self) -> bool {
        self.is_behind || !self.letters.is_empty()
    }

    pub fn put(&mut self, handed: Arc<Handed>) {
        self.letters.insert((!handed.letter.new.urgent, handed.letter.number), handed);
    }

    fn fall_behind(&mut self) {
        self.is_behind = true;
        self.anew = true;
    }
}
