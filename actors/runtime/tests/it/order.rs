use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_macros::Message;
use callboard_runtime::testkit::run_with_real_time;
use callboard_runtime::*;
use futures::future::join_all;

use crate::messages::*;

const SENDERS: u32 = 8;
const MESSAGES: u32 = 100_000;

/// Message number `nth` of a sender; two types, so that order is checked across lanes.
#[derive(Message)]
#[message(local)]
struct Even {
    sender: u32,
    nth: u32,
}

#[derive(Message)]
#[message(local)]
struct Odd {
    sender: u32,
    nth: u32,
}

#[derive(Default)]
struct Checker {
    next: [u32; SENDERS as usize],
    wrong: u32,
}

impl Checker {
    fn check(&mut self, sender: u32, nth: u32) {
        let next = &mut self.next[sender as usize];
        self.wrong += u32::from(*next != nth);
        *next = nth + 1;
    }
}

impl Agent for Checker {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Even>().sync::<Odd>();
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "wrong": self.wrong, "next": self.next })
    }
}

impl SyncHandler<Even> for Checker {
    fn handle(&mut self, message: Even, _: &mut Context) {
        self.check(message.sender, message.nth);
    }
}

impl SyncHandler<Odd> for Checker {
    fn handle(&mut self, message: Odd, _: &mut Context) {
        self.check(message.sender, message.nth);
    }
}

/// Goal: messages from one sender to one agent arrive first in, first out, and none is lost.
/// Method: 8 senders on 8 threads, 100,000 messages each, of two types in varying runs, through a
/// mailbox of 64.
#[test]
fn first_in_first_out() {
    run_with_real_time(async |_| {
        let system = System::start(2).unwrap();
        let agent = system
            .prepare(Checker::default())
            .profile(AgentProfile::default().mailbox_capacity(64))
            .spawn();
        let threads: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let agent = agent.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .build()
                        .unwrap();
                    runtime.block_on(async {
                        for nth in 0..MESSAGES {
                            match nth / 7 % 2 {
                                0 => agent.tell(Even { sender, nth }).await.unwrap(),
                                _ => agent.tell(Odd { sender, nth }).await.unwrap(),
                            }
                        }
                    });
                })
            })
            .collect();
        for thread in threads {
            tokio::task::spawn_blocking(|| thread.join().unwrap())
                .await
                .unwrap();
        }
        testkit::eventually("all handled", 60 * SECOND, || {
            agent.snapshot().handled == u64::from(SENDERS * MESSAGES)
        })
        .await;
        assert_eq!(
            agent.observe().await,
            serde_json::json!({ "wrong": 0, "next": vec![MESSAGES; SENDERS as usize] })
        );
        system.shutdown(SECOND).await;
    });
}

/// Goal: no update is lost across an await. Method: 100 slow adds at once, with fast ones among
/// them.
#[test]
fn exclusive_means_alone() {
    running(async |system| {
        let counter = system.spawn(Counter::default());
        let slow = (0..100).map(|_| {
            counter.ask(SlowAdd {
                by: 1,
                pause: Duration::from_millis(3),
            })
        });
        let fast = (0..100).map(|_| counter.ask(Add { by: 1 }));
        let (slow, fast) = futures::join!(join_all(slow), join_all(fast));
        assert!(slow.iter().all(Result::is_ok) && fast.iter().all(Result::is_ok));
        assert_eq!(counter.ask(Add { by: 0 }).await.unwrap(), 200);
    });
}

/// Runs concurrently with others for a while.
#[derive(Message)]
#[message(local)]
struct Work;

struct Worker {
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Work>(5);
    }
}

impl Worker {
    fn work(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let (now, most) = (self.now.clone(), self.most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, SeqCst);
        }
    }
}

impl ConcurrentHandler<Work> for Worker {
    fn handle(&mut self, _: Work, _: Context) -> impl Future<Output = ()> + Send + 'static {
        self.work()
    }
}

/// Worker whose handler is a function.
struct FunctionWorker(Worker);

impl Agent for FunctionWorker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent_with(5, |agent: &mut Self, _: Work, _| agent.0.work());
    }
}

/// Goal: the limit of concurrent handlers holds, for a trait's and for a function. Method: 23 asks
/// of agents with a limit of 5; they take five rounds.
#[test]
fn concurrent_up_to_n() {
    running(async |system| {
        let worker = || Worker {
            now: Arc::default(),
            most: Arc::default(),
        };
        let (one, other) = (worker(), worker());
        let most = [one.most.clone(), other.most.clone()];
        let agents = [system.spawn(one), system.spawn(FunctionWorker(other))];
        for (agent, most) in agents.iter().zip(most) {
            let began = tokio::time::Instant::now();
            for done in join_all((0..23).map(|_| agent.ask(Work))).await {
                done.unwrap();
            }
            assert_eq!(most.load(SeqCst), 5);
            assert_eq!(began.elapsed().as_millis() / 10, 5);
        }
    });
}
