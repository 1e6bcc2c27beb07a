use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;
use callboard_macros::Message;
use callboard_runtime::testkit::{paused, real};
use callboard_runtime::*;
use crate::messages::*;
const S: Duration = Duration::from_secs(1);

#[derive(Message, Debug)]
#[message(reply = u64, local)]
struct Bad;
#[derive(Message, Debug)]
#[message(local)]
struct Hold(Duration);
#[derive(Message, Debug)]
#[message(local)]
struct Watch(AgentRef);
#[derive(Message, Debug)]
#[message(local)]
struct Block(Arc<AtomicBool>, Arc<AtomicBool>);

struct X { drop_bad: bool, dead: Arc<AtomicU32>, term: Arc<AtomicU32> }
impl Drop for X { fn drop(&mut self) { self.dead.fetch_add(1, SeqCst); if self.drop_bad { panic!("drop") } } }
impl Agent for X {
    fn handlers(on: &mut Handlers<Self>) { on.sync::<Bad>().exclusive::<Hold>().sync::<Watch>().sync::<Block>().sync::<Add>().sync::<Boom>(); }
    fn terminated(&mut self, _: AgentId, _: ExitReason, _: &mut Cx) { self.term.fetch_add(1, SeqCst); }
}
impl SyncHandler<Bad> for X {
    fn handle(&mut self, _: Bad, _: &mut Cx) -> u64 { 1 }
    fn ready(&self, _: &Bad) -> bool { panic!("ready") }
}
impl SyncHandler<Add> for X { fn handle(&mut self, m: Add, _: &mut Cx) -> u64 { m.by } }
impl SyncHandler<Boom> for X { fn handle(&mut self, _: Boom, _: &mut Cx) { panic!("boom") } }
impl Handler<Hold> for X { async fn handle(&mut self, m: Hold, _: &mut Cx) { tokio::time::sleep(m.0).await } }
impl SyncHandler<Watch> for X { fn handle(&mut self, m: Watch, cx: &mut Cx) { cx.watch(&m.0) } }
impl SyncHandler<Block> for X { fn handle(&mut self, m: Block, _: &mut Cx) { m.0.store(true, SeqCst); while !m.1.load(SeqCst) { std::thread::yield_now() } } }
fn x() -> X { mk(false, Default::default(), Default::default()) }
fn mk(drop_bad: bool, dead: Arc<AtomicU32>, term: Arc<AtomicU32>) -> X { X { drop_bad, dead, term } }

/// ready() panics, queued, small mailbox
#[test]
fn review_ready_queued() {
    real(async |system| {
        let other = system.spawn(Counter::default());
        let a = system.prepare_with(x).profile(Profile { backoff: Backoff::NONE, ..Profile::default() }.mailbox_capacity(4)).spawn();
        let _ = a.try_tell(Bad);
        let o = tokio::time::timeout(S, other.ask(SlowAdd { by: 1, pause: Duration::from_millis(1) })).await;
        println!("other agent on the arbiter: {o:?}");
        println!("{:?}", a.snapshot());
        assert!(o.is_ok());
        system.shutdown(S).await;
    });
}
/// ready() panics in place
#[tokio::test]
async fn review_ready_in_place() {
    let system = System::start(1).unwrap();
    let a = system.spawn_with(x);
    a.observe().await;
    let (b, a2) = (a.clone(), a.clone());
    let r = tokio::spawn(async move { b.ask(Bad).await.map_err(|_| ()) }).await;
    println!("asker: {r:?}");
    let r = tokio::time::timeout(S, a2.ask(Add { by: 1 })).await;
    println!("next ask: {r:?}");
    a.kill();
    let k = tokio::time::timeout(S, a.ended()).await;
    println!("kill: {k:?}");
    assert!(r.is_ok() && k.is_ok());
}
/// Drop of the state panics at a restart
#[test]
fn review_drop_panics() {
    real(async |system| {
        let other = system.spawn(Counter::default());
        let a = system.spawn_with(|| mk(true, Default::default(), Default::default()));
        other.ask(Add { by: 1 }).await.unwrap();
        let _ = a.try_tell(Boom);
        tokio::task::yield_now().await;
        let o = tokio::time::timeout(S, other.ask(SlowAdd { by: 1, pause: Duration::from_millis(1) })).await;
        println!("other agent on the arbiter: {o:?}");
        assert!(o.is_ok());
    });
}
/// terminated is lost while a handler has the agent
#[test]
fn review_terminated_lost() {
    paused(async |system| {
        let term = Arc::new(AtomicU32::new(0));
        let t = term.clone();
        let a = system.spawn(mk(false, Default::default(), t));
        let b = system.spawn(Counter::default());
        a.ask(Watch(b.clone())).await.unwrap();
        a.tell(Hold(S)).await.unwrap();
        tokio::time::sleep(S / 10).await;
        b.kill();
        b.ended().await;
        tokio::time::sleep(2 * S).await;
        a.ask(Add { by: 1 }).await.unwrap();
        let n = term.load(SeqCst);
        system.shutdown(S).await;
        assert_eq!(n, 1);
    });
}
/// shutdown with an outside sender in line
#[test]
fn review_shutdown_waiter() {
    paused(async |system| {
        let a = system.prepare(x()).profile(Profile::default().mailbox_capacity(1)).spawn();
        a.tell(Hold(S)).await.unwrap();
        tokio::time::sleep(S / 10).await;
        a.tell(Add { by: 1 }).await.unwrap();
        let b = a.clone();
        let t = actix_rt::spawn(async move { b.tell(Hold(S)).await.map_err(|_| ()) });
        tokio::time::sleep(S / 10).await;
        let began = tokio::time::Instant::now();
        let r = system.shutdown(100 * S).await;
        println!("{r:?} after {:?}, sender: {:?}", began.elapsed(), t.await);
        assert!(began.elapsed() < 5 * S);
    });
}
/// shutdown with an in-place handler under way
#[tokio::test]
async fn review_shutdown_in_place() {
    let system = System::start(1).unwrap();
    let a = system.spawn(x());
    a.observe().await;
    let (began, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let m = Block(began.clone(), go.clone());
    let h = std::thread::spawn(move || { tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async { a.ask(m).await.map_err(|_| ()) }) });
    while !began.load(SeqCst) { tokio::task::yield_now().await }
    std::thread::spawn(move || { std::thread::sleep(Duration::from_millis(300)); go.store(true, SeqCst) });
    let at = std::time::Instant::now();
    let r = system.shutdown(4 * S).await;
    println!("{r:?} after {:?} {:?}", at.elapsed(), h.join());
    assert!(at.elapsed() < 2 * S);
}
/// System dropped while an ask is under way, and leaks
#[tokio::test]
async fn review_system_dropped() {
    let mut hung = 0;
    let dead = Arc::new(AtomicU32::new(0));
    for arbiters in [1, 2].repeat(20) {
        let system = System::start(arbiters).unwrap();
        let d = dead.clone();
        let a = system.spawn(mk(false, d, Default::default()));
        a.observe().await;
        let b = a.clone();
        let t = tokio::spawn(async move { b.ask(Hold(100 * S)).await.map_err(|e| e.to_string()) });
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(system);
        match tokio::time::timeout(Duration::from_millis(200), t).await { Err(_) => hung += 1, Ok(r) => if arbiters == 1 && hung == 0 { println!("{r:?}") } }
        drop(a);
    }
    println!("of 40: asks hung {hung}, states dropped {}", dead.load(SeqCst));
    assert_eq!(hung, 0);
}
/// kill mid-flight: what does the asker see
#[test]
fn review_kill_in_flight() {
    paused(async |system| {
        let a = system.spawn(x());
        let b = a.clone();
        let t = actix_rt::spawn(async move { b.ask(Hold(S)).await.map_err(|e| e.to_string()) });
        tokio::time::sleep(S / 10).await;
        a.kill();
        println!("killed in flight: {:?}", t.await);
        system.shutdown(S).await;
    });
}
#[derive(Message, Debug)]
#[message(local)]
struct Arm;
struct Y(Arc<AtomicU32>);
impl Agent for Y { fn handlers(on: &mut Handlers<Self>) { on.sync::<Arm>().sync::<Add>(); } }
impl SyncHandler<Arm> for Y { fn handle(&mut self, _: Arm, cx: &mut Cx) { cx.tell_after(Duration::from_millis(50), Add { by: 1 }); } }
impl SyncHandler<Add> for Y { fn handle(&mut self, m: Add, _: &mut Cx) -> u64 { self.0.fetch_add(1, SeqCst); m.by } }
/// a timer begun in place dies with the asker's runtime, or panics without one
#[test]
fn review_timer_in_place() {
    let system = System::start(1).unwrap();
    let n = Arc::new(AtomicU32::new(0));
    let a = system.spawn(Y(n.clone()));
    futures::executor::block_on(a.observe());
    let rt = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt().block_on(async { a.ask(Arm).await.unwrap() });
    std::thread::sleep(Duration::from_millis(300));
    println!("ticks after the asker's runtime ended: {}", n.load(SeqCst));
    println!("asked without a runtime: {:?}", futures::executor::block_on(a.ask(Arm)).map_err(|e| e.to_string()));
    rt().block_on(system.shutdown(S));
    assert_eq!(n.load(SeqCst), 1);
}
/// a cancelled call is handled in place all the same
#[test]
fn review_cancelled_in_place() {
    paused(async |system| {
        let n = Arc::new(AtomicU32::new(0));
        let a = system.spawn(Y(n.clone()));
        a.observe().await;
        let call = a.call(Add { by: 1 }).start();
        call.cancel();
        let r = call.reply().await.map_err(|e| e.to_string());
        println!("{r:?}");
        system.shutdown(S).await;
        assert_eq!(n.load(SeqCst), 0);
    });
}

/// what tell_after leaves in the system's table of watchers: the debug size by memory of senders
#[test]
fn review_drain_promised() {
    // concurrent panic double restart: AllForOne sibling in place panic
    paused(async |system| {
        let a = system.prepare(x()).profile(Profile::default().mailbox_capacity(256)).spawn();
        a.tell(Hold(S)).await.unwrap();
        tokio::time::sleep(S / 10).await;
        while a.try_tell(Add { by: 1 }).is_ok() {}
        let b = a.clone();
        let t = actix_rt::spawn(async move { b.tell(Add { by: 1 }).await.map_err(|_| ()) });
        tokio::time::sleep(S / 10).await;
        let began = tokio::time::Instant::now();
        let r = system.shutdown(100 * S).await;
        println!("{r:?} after {:?}, sender: {:?}", began.elapsed(), t.await);
        assert!(began.elapsed() < 5 * S);
    });
}
/// a promised waiter that goes away isn't noticed by a shutdown
#[test]
fn review_shutdown_promised() {
    paused(async |system| {
        let a = system.prepare(x()).profile(Profile::default().mailbox_capacity(1)).spawn();
        a.tell(Hold(S)).await.unwrap();
        tokio::time::sleep(S / 10).await;
        a.tell(Add { by: 1 }).await.unwrap();
        let mut tell = Box::pin(a.tell(Add { by: 1 }));
        assert!(futures::poll!(tell.as_mut()).is_pending());
        let began = tokio::time::Instant::now();
        let later = async { tokio::time::sleep(2 * S).await; drop(tell); };
        let (r, ()) = futures::join!(system.shutdown(100 * S), later);
        println!("{r:?} after {:?}", began.elapsed());
        assert!(began.elapsed() < 5 * S);
    });
}
/// timers that have ended stay in the table of watchers
struct Z(Arc<()>);
impl Drop for Z { fn drop(&mut self) {} }
impl Agent for Z { fn handlers(on: &mut Handlers<Self>) { on.sync::<Watch>(); } }
impl SyncHandler<Watch> for Z { fn handle(&mut self, m: Watch, cx: &mut Cx) { cx.watch(&m.0); } }
#[test]
fn review_watchers_leak() {
    paused(async |system| {
        let held = Arc::new(());
        let long = system.spawn(x());
        for _ in 0..100 {
            let h = held.clone();
            let short = system.spawn_with(move || Z(h.clone()));
            short.ask(Watch(long.clone())).await.unwrap();
            short.stop();
            short.ended().await;
        }
        tokio::time::sleep(S).await;
        let left = Arc::strong_count(&held) - 1;
        println!("cells of ended agents still held: {left}, agents: {}", system.agent_count());
        system.shutdown(S).await;
        assert_eq!(left, 0);
    });
}
