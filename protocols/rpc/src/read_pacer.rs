//! Limit on the rate at which messages of one peer are read, so that a flood costs the peer its
//! own speed and us no core.

use std::time::Duration;

use derive_more::Debug;
use tokio::time::{Instant, sleep_until};

/// Maximum number of messages that are read from one stream in a second. Responses that somebody
/// waits for needn't count. The rest waits in the network's buffers, so the peer is slowed down.
pub const READS_PER_SECOND_MAX: u32 = 2_000;
/// Period in which at most [`READS_PER_SECOND_MAX`] messages are read.
const PERIOD: Duration = Duration::from_secs(1);

/// Counter of the messages that were read from one stream in the present second.
#[derive(Debug, Default)]
pub struct ReadPacer {
    /// Start of the present period; `None` before the first message.
    began: Option<Instant>,
    count: u32,
    is_logged: bool,
}

impl ReadPacer {
    /// Counts a message that has been read. At [`READS_PER_SECOND_MAX`] in one second,
    /// [`Self::wait`] waits for the next second.
    pub fn count(&mut self) {
        let now = Instant::now();
        if self
            .began
            .is_none_or(|began| now.duration_since(began) >= PERIOD)
        {
            self.began = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Takes back the latest count, because somebody waited for the message.
    pub fn discount(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Waits for the next second if [`READS_PER_SECOND_MAX`] messages were read in this one. Cancel
    /// safe. Logs once that the peer is too fast.
    pub async fn wait(&mut self) {
        let Some(began) = self.began.filter(|_| self.count >= READS_PER_SECOND_MAX) else {
            return;
        };
        let next = began + PERIOD;
        if Instant::now() < next && !std::mem::replace(&mut self.is_logged, true) {
            callboard_message::log::warn!(
                per_second_max = READS_PER_SECOND_MAX,
                "a peer sends too many messages: they are read more slowly"
            );
        }
        sleep_until(next).await;
        self.began = None;
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the limit of messages passes at once, one more in the next second. Method: two seconds
    /// of messages, in paused time.
    #[tokio::test(start_paused = true)]
    async fn paced() {
        let (mut pacer, begun) = (ReadPacer::default(), Instant::now());
        let mut seconds = Vec::new();
        for nth in 1..=2 * READS_PER_SECOND_MAX + 1 {
            pacer.wait().await;
            pacer.count();
            if nth % READS_PER_SECOND_MAX <= 1 {
                seconds.push(begun.elapsed().as_secs());
            }
        }
        assert_eq!(seconds, [0, 0, 1, 1, 2]);
    }

    /// Goal: a peer within the limit is never slowed down. Method: the limit in each of three
    /// seconds, in paused time.
    #[tokio::test(start_paused = true)]
    async fn within_the_limit() {
        let mut pacer = ReadPacer::default();
        for _ in 0..3 {
            let begun = Instant::now();
            for _ in 0..READS_PER_SECOND_MAX {
                pacer.wait().await;
                pacer.count();
            }
            assert_eq!(begun.elapsed(), Duration::ZERO);
            tokio::time::advance(PERIOD).await;
        }
    }
}
