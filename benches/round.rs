//! What a round of calls comes to, and the median of many.

use std::time::Duration;

/// What makes calls, one at a time.
pub trait Caller {
    /// One call, its answer looked at, and how long it took from the first byte out to the last byte in.
    fn call(&mut self) -> impl Future<Output = Result<Duration, String>>;
}

/// So many calls, shared out among the callers, which all call at once; how long each took.
pub async fn calls(callers: &mut [impl Caller], calls: u64) -> Result<Vec<Duration>, String> {
    let each = calls / callers.len() as u64;
    let all = callers.iter_mut().map(|caller| async move {
        let mut took = Vec::with_capacity(each as usize);
        for _ in 0..each {
            took.push(caller.call().await?);
        }
        Ok::<_, String>(took)
    });
    Ok(futures::future::try_join_all(all).await?.concat())
}

/// What one round came to.
#[derive(Clone, Copy)]
pub struct Measured {
    /// Over all connections.
    pub calls_a_second: f64,
    /// How long half of the calls took at most.
    pub p50: Duration,
    /// How long all but one in a hundred took at most.
    pub p99: Duration,
    /// Of whoever was called.
    pub cpu_us_a_call: f64,
}

impl Measured {
    /// Of calls that took so long each, `cpu` of the callee and `wall` in all.
    pub fn of(mut took: Vec<Duration>, cpu: Duration, wall: Duration) -> Self {
        took.sort_unstable();
        let done = took.len();
        Self {
            calls_a_second: done as f64 / wall.as_secs_f64(),
            p50: took[done / 2],
            p99: took[done * 99 / 100],
            cpu_us_a_call: cpu.as_secs_f64() * 1e6 / done as f64,
        }
    }

    /// Of at least one round; each number by itself. `None` of no round.
    pub fn median(rounds: &[Self]) -> Option<Self> {
        Some(Self {
            calls_a_second: middle(rounds.iter().map(|m| m.calls_a_second), f64::total_cmp)?,
            p50: middle(rounds.iter().map(|m| m.p50), Duration::cmp)?,
            p99: middle(rounds.iter().map(|m| m.p99), Duration::cmp)?,
            cpu_us_a_call: middle(rounds.iter().map(|m| m.cpu_us_a_call), f64::total_cmp)?,
        })
    }

    /// For a table: calls/s; p50, p99 µs; CPU µs a call.
    pub fn in_words(&self) -> String {
        let (p50, p99) = (self.p50.as_micros(), self.p99.as_micros());
        format!("{:.0}; {p50}, {p99}; {:.1}", self.calls_a_second, self.cpu_us_a_call)
    }
}

/// The middle one; of none, none.
pub fn middle<T: Copy>(values: impl Iterator<Item = T>, order: fn(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(order);
    values.get(values.len() / 2).copied()
}
