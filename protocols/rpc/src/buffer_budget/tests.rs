use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;

use super::*;

/// Budget of the tests, in bytes.
const MAX: usize = 4_000_000;
/// Request of the tests, in bytes: a fortieth of the budget.
const REQUEST: usize = MAX / 40;

fn budget() -> BufferBudget {
    BufferBudget::new(BufferLimits {
        bytes_max: MAX,
        principal_percent: 25,
    })
}

fn account(listener: &ListenerBuffers, name: &str) -> BufferAccount {
    let owner = listener.budget().owner(Some(&Principal::agent(name)), None);
    listener.account(owner)
}

/// Reserves requests until one is rejected.
fn fill(account: &BufferAccount) -> Vec<BufferReservation> {
    std::iter::from_fn(|| account.reserve(REQUEST).ok()).collect()
}

/// Goal: one principal gets half of a quiet node, then each its share, up to the limit and not one
/// byte more; a freed reservation makes room. Method: principals that take all they can, at two
/// listeners.
#[test]
fn shares_and_limit() {
    let budget = budget();
    let listeners = [budget.listener(), budget.listener()];
    let taken = ["ana", "bob", "carla", "dan"].map(|name| {
        let listener = &listeners[usize::from(name > "bob")];
        fill(&account(listener, name))
    });
    assert_eq!(taken.each_ref().map(Vec::len), [20, 10, 10, 0]);
    assert_eq!(budget.used_bytes(), MAX);
    let more = account(&listeners[1], "dan");
    assert_eq!(more.reserve(REQUEST).unwrap_err(), BuffersFull);
    // A small request doesn't count.
    assert!(more.reserve(UNCOUNTED_REQUEST_BYTES_MAX).is_ok());
    assert!(more.reserve(UNCOUNTED_REQUEST_BYTES_MAX + 1).is_err());
    let [mut of_ana, ..] = taken;
    of_ana.pop();
    let held = more.reserve(REQUEST).unwrap();
    assert_eq!((held.bytes(), budget.used_bytes()), (REQUEST, MAX));
    drop(held);
    assert!(more.reserve(REQUEST + 1).is_err());
}

/// Goal: one listener doesn't take all. Method: many principals at one, then one at another.
#[test]
fn share_of_a_listener() {
    let budget = budget();
    let (one, other) = (budget.listener(), budget.listener());
    let taken: Vec<_> = (0..20)
        .flat_map(|nth| {
            let account = account(&one, &format!("p{nth}"));
            (0..2).filter_map(move |_| account.reserve(REQUEST).ok())
        })
        .collect();
    assert_eq!(taken.len(), 30);
    assert_eq!(fill(&account(&other, "ana")).len(), 10);
}

/// Goal: everything is released, also the counts of owners and listeners. Method: reservations that
/// grow, shrink, are refused and dropped.
#[test]
fn all_is_released() {
    let budget = budget();
    let listener = budget.listener();
    let account = account(&listener, "ana");
    let mut held = account.reserve(REQUEST).unwrap();
    held.resize(2 * REQUEST).unwrap();
    assert!(held.resize(MAX + 1).is_err());
    assert_eq!(
        (held.bytes(), budget.used_bytes()),
        (2 * REQUEST, 2 * REQUEST)
    );
    held.resize(REQUEST).unwrap();
    assert_eq!(budget.used_bytes(), REQUEST);
    let reader = Reader::new(&account);
    reader.put(REQUEST);
    assert!(budget.used_bytes() > 2 * REQUEST);
    drop((held, reader));
    let counts = budget.0.counts.lock();
    assert_eq!(
        (
            counts.used,
            counts.owners.len(),
            counts.listeners.len(),
            counts.readers.len()
        ),
        (0, 0, 0, 0)
    );
}

/// Goal: principals are told apart by id and kind, clients without a credential by network. Method:
/// rows.
#[test]
fn owners() {
    let budget = budget();
    let peer = |last| Some(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
    let agent = Principal::agent("ana");
    let key = Principal {
        kind: PrincipalKind::ApiKey,
        ..agent.clone()
    };
    let nobody = Principal::anonymous();
    let of = |principal, peer| budget.owner(principal, peer);
    assert_eq!(of(Some(&agent), peer(1)), of(Some(&agent), peer(2)));
    assert_ne!(of(Some(&agent), None), of(Some(&key), None));
    assert_eq!(of(Some(&nobody), peer(1)), of(None, peer(1)));
    assert_ne!(of(Some(&nobody), peer(1)), of(Some(&nobody), peer(2)));
}

/// A reader that reads only when told.
struct Reader {
    bytes: AtomicUsize,
    closed: AtomicBool,
    held: ReaderReservation,
}

impl Reader {
    fn new(account: &BufferAccount) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            bytes: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            held: account.reader(this.clone()),
        })
    }

    fn put(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held.track(|| self.buffered_bytes());
    }

    fn read_all(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.held.track(|| self.buffered_bytes());
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl ClosableBuffer for Reader {
    fn buffered_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn close_buffer(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Goal: of a principal over its share the oldest of the large readers is closed, and nobody else's.
/// Method: one principal with readers of different sizes, another with a small one, and requests.
#[test]
fn the_oldest_large_reader_is_closed() {
    let budget = budget();
    let listener = budget.listener();
    let (ana, bob) = (account(&listener, "ana"), account(&listener, "bob"));
    let honest = Reader::new(&bob);
    honest.put(PROTECTED_READER_BYTES_MAX);
    let readers: Vec<_> = (1..=4).map(|_| Reader::new(&ana)).collect();
    for (reader, times) in readers.iter().zip([1, 2, 5, 4]) {
        reader.put(times * REQUEST);
    }
    // A quiet node closes nobody, though this is more than a quarter.
    assert!(readers.iter().all(|reader| !reader.is_closed()));
    let of_bob: Vec<_> = (0..9).map(|_| bob.reserve(REQUEST).unwrap()).collect();
    readers[0].put(REQUEST);
    let closed: Vec<_> = readers.iter().map(|reader| reader.is_closed()).collect();
    assert_eq!(closed, [false, false, true, false]);
    assert!(!honest.is_closed());
    // What it gets later counts again.
    drop(of_bob);
    let used = budget.used_bytes();
    readers[2].put(25 * READER_STEP_BYTES);
    assert_eq!(budget.used_bytes(), used + 25 * READER_STEP_BYTES);
}

/// Goal: with the whole budget used, the largest reader of the principal with the most is closed,
/// and small readers are never. Method: requests of three principals beside a slow reader up to the
/// limit, then small readers beyond it, before and after the slow one is closed.
#[test]
fn small_readers_are_protected() {
    let budget = budget();
    let (one, other) = (budget.listener(), budget.listener());
    let slow = Reader::new(&account(&one, "ana"));
    slow.put(9 * REQUEST);
    let _taken: Vec<_> = [("bob", &one), ("carla", &one), ("dan", &other)]
        .into_iter()
        .flat_map(|(name, listener)| fill(&account(listener, name)))
        .collect();
    let small = |name| {
        let reader = Reader::new(&account(&other, name));
        reader.put(PROTECTED_READER_BYTES_MAX);
        reader
    };
    let before = ["eva", "fay"].map(small);
    assert!(slow.is_closed());
    assert!(budget.used_bytes() < MAX);
    let _more = fill(&account(&other, "gil"));
    let after = ["hal", "ivy", "jo"].map(small);
    assert!(budget.used_bytes() > MAX);
    assert!(
        before
            .iter()
            .chain(&after)
            .all(|reader| !reader.is_closed())
    );
}

/// Goal: a reader that has read everything doesn't count, however little it was, also if it read
/// while it was counted. Method: 40 KiB that are read after, and while, they are counted.
#[test]
fn drained_readers_do_not_count() {
    const BYTES: usize = 40 * 1024;
    let budget = budget();
    let reader = Reader::new(&account(&budget.listener(), "ana"));
    reader.put(BYTES);
    assert_eq!(budget.used_bytes(), BYTES);
    reader.read_all();
    assert_eq!(budget.used_bytes(), 0);
    // The other thread reads after the bytes were counted under the lock.
    let asked = AtomicUsize::new(0);
    reader
        .held
        .track(|| match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => BYTES,
            _ => 0,
        });
    assert_eq!(budget.used_bytes(), 0);
    assert!(asked.into_inner() > 2);
    reader.put(BYTES);
    assert_eq!(budget.used_bytes(), BYTES);
}

/// Goal: a reader isn't closed for bytes that it has read by now. Method: a large reader that has
/// read, which isn't counted yet, when a second one of the same principal exceeds the share.
#[test]
fn a_reader_that_has_read_is_kept() {
    let budget = budget();
    let listener = budget.listener();
    let ana = account(&listener, "ana");
    let readers = [Reader::new(&ana), Reader::new(&ana)];
    readers[0].put(9 * REQUEST);
    readers[0].bytes.store(0, Ordering::Relaxed);
    let _of_bob: Vec<_> = fill(&account(&listener, "bob"));
    readers[1].put(5 * REQUEST);
    assert!(readers.iter().all(|reader| !reader.is_closed()));
    // Beyond the share alone it is closed.
    readers[1].put(6 * REQUEST);
    assert!(readers[1].is_closed());
}

/// Goal: readers that don't read lock nobody out: a request closes a large reader of the principal
/// with the most, but none for a principal that is over its share itself. Method: a listener whose
/// share two principals fill with readers, then requests.
#[test]
fn a_request_closes_readers() {
    let budget = budget();
    let listener = budget.listener();
    let (ana, bob) = (account(&listener, "ana"), account(&listener, "bob"));
    let readers = |account: &BufferAccount, count: usize, bytes: usize| {
        let readers: Vec<_> = (0..count).map(|_| Reader::new(account)).collect();
        for reader in &readers {
            reader.put(bytes);
        }
        readers
    };
    let of_ana = readers(&ana, 3, 6 * REQUEST);
    let of_bob = readers(&bob, 9, REQUEST);
    let closed = || {
        let all = of_ana.iter().chain(&of_bob);
        all.map(|reader| reader.is_closed()).collect::<Vec<_>>()
    };
    assert!(bob.reserve(REQUEST).is_err());
    assert!(closed().iter().all(|is_closed| !is_closed));
    let held = account(&listener, "carla").reserve(3 * REQUEST).unwrap();
    assert_eq!(held.bytes(), 3 * REQUEST);
    let closed = closed();
    assert!(closed[0] && closed[1..].iter().all(|is_closed| !is_closed));
}
