//! Clients of the soak: those that behave and keep account of what is acknowledged, and those that don't.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use callboard::mail::client::MailClient;
use callboard::message::mail::{
    DeliveryState, MailDirection, MemberId, MessageHistory, SendMessage,
};
use rand::RngExt;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::ledger::Ledger;
use crate::misuse::{self, Attempt, Offender};
use crate::node::{Addresses, Client, Site, a2a_message};

/// Numbers of clients.
const CALLERS: u64 = 4;
const TASK_SENDERS: u64 = 2;
const LETTER_SENDERS: u64 = 2;
/// Interval of each client's requests.
const CALL_INTERVAL: Duration = Duration::from_millis(50);
const TASK_INTERVAL: Duration = Duration::from_millis(200);
const LETTER_INTERVAL: Duration = Duration::from_millis(200);
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before a letter is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for the clients to finish their last requests.
const STOP_MAX: Duration = Duration::from_secs(120);
/// Letters a page.
const PAGE_LETTERS: u32 = 100;
/// Longest pause between two attempts of a client that misbehaves, in milliseconds.
const FAULT_PAUSE_MS: u64 = 4_000;

/// Principals of the soak, and numbers of what they send: no two have one text.
pub struct Clients {
    pub caller: Client,
    sender: MailClient,
    reader: MailClient,
    reader_id: String,
    offender: Offender,
    next: AtomicU64,
    pub faults: AtomicU64,
}

impl Clients {
    pub fn new(site: &Site) -> Result<Self, String> {
        let Addresses { mail, .. } = site.at;
        let mail_client = |name: &str| {
            let id = MemberId::parse(name).map_err(|e| e.to_string())?;
            let base = format!("http://{mail}").parse();
            let base = base.map_err(|_| "no address of mail".to_owned())?;
            let key = secrecy::SecretString::from(site.key(name)?);
            MailClient::new(base, key, &id).map_err(|e| e.to_string())
        };
        Ok(Self {
            caller: Client::new(site.at, site.key("caller")?, Ipv4Addr::LOCALHOST, PATIENCE)?,
            sender: mail_client("sender")?,
            reader: mail_client("reader")?,
            reader_id: "reader".to_owned(),
            offender: Offender::new(site.at, site.key(misuse::NAME)?)?,
            next: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        })
    }

    fn text(&self, kind: &str) -> String {
        format!("{kind}-{}.", self.next.fetch_add(1, Relaxed))
    }

    async fn call(&self, ledger: &Ledger) {
        let text = self.text("call");
        let answer = self.caller.call("echo", &text, false).await;
        let is_own = answer.ok().filter(|(status, _)| *status == 200);
        let is_own = is_own.filter(|(_, answer)| answer.contains("\"content\""));
        ledger.called(is_own.map(|(_, answer)| answer.contains(&text)));
    }

    /// Sends a task once. Without an answer nothing is acknowledged; it may run, but not twice.
    async fn send_task(&self, ledger: &Ledger) {
        let text = self.text("task");
        let waits = rand::random::<bool>();
        let params = a2a_message(&text, "record", &text, waits);
        if let Ok((200, answer)) = self.caller.a2a("SendMessage", &params).await {
            ledger.task_accepted(text, &answer);
        }
    }

    /// Sends a letter until it is acknowledged, under one key.
    async fn send_letter(&self, ledger: &Ledger, stop: &AtomicBool) {
        let text = self.text("letter");
        let letter = SendMessage {
            message: text.clone(),
            recipient_agent_id: Some(self.reader_id.clone()),
            idempotency_key: Some(text.clone()),
            ..SendMessage::default()
        };
        loop {
            if let Ok(receipt) = self.sender.send(&letter).await
                && receipt.success
            {
                return ledger.letter_accepted(text);
            }
            if stop.load(Relaxed) {
                return;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Fetches all letters that aren't read yet, and marks them as read. A failure is left to the next time.
    pub async fn read_letters(&self, ledger: &Ledger) {
        for state in [DeliveryState::Accepted, DeliveryState::Delivered] {
            let unread = MessageHistory {
                direction: Some(MailDirection::In),
                state: Some(state),
                limit: Some(PAGE_LETTERS),
                ..MessageHistory::default()
            };
            let Ok(page) = self.reader.messages(&unread).await else {
                return;
            };
            for letter in page.messages {
                let text = letter.message.unwrap_or(letter.text);
                ledger.letter_received(text, &letter.message_id);
                if let Ok(id) = MemberId::parse(&letter.message_id) {
                    // If that fails, it is fetched again under the same id.
                    let _ = self.reader.mark_read(&id).await;
                }
            }
        }
    }

    async fn misbehave(&self, fault: usize) {
        let by = self.offender.clone();
        let attempt: Attempt = match fault {
            0 => by.half_sent_body().await,
            1 => by.unread_answers().await,
            2 => by.unread_events().await,
            _ => by.unanswered_question().await,
        };
        // What becomes of it is the node's affair.
        drop(attempt);
        self.faults.fetch_add(1, Relaxed);
    }
}

/// Clients that send until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    behaving: JoinSet<()>,
    misbehaving: JoinSet<()>,
}

impl Load {
    /// Starts all clients, or those that behave.
    pub fn start(clients: &Arc<Clients>, ledger: &Arc<Ledger>, with_faults: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut behaving, mut misbehaving) = (JoinSet::new(), JoinSet::new());
        let mut every = |period: Duration, number: u64, kind: Kind| {
            for _ in 0..number {
                let (clients, ledger) = (clients.clone(), ledger.clone());
                behaving.spawn(repeat(period, kind, clients, ledger, stop.clone()));
            }
        };
        every(CALL_INTERVAL, CALLERS, Kind::Call);
        every(TASK_INTERVAL, TASK_SENDERS, Kind::Task);
        every(LETTER_INTERVAL, LETTER_SENDERS, Kind::Letter);
        every(READ_INTERVAL, 1, Kind::Read);
        let faults = [0, 0, 0, 1, 1, 2, 2, 3, 3];
        for fault in faults.into_iter().filter(|_| with_faults) {
            let clients = clients.clone();
            misbehaving.spawn(async move {
                loop {
                    let pause = rand::rng().random_range(0..FAULT_PAUSE_MS);
                    sleep(Duration::from_millis(pause)).await;
                    clients.misbehave(fault).await;
                }
            });
        }
        Self {
            stop,
            behaving,
            misbehaving,
        }
    }

    /// Lets the clients finish their last requests; those that misbehave are cut off.
    pub async fn stop(mut self) -> Result<(), String> {
        self.stop.store(true, Relaxed);
        self.misbehaving.shutdown().await;
        let finish = async { while self.behaving.join_next().await.is_some() {} };
        timeout(STOP_MAX, finish)
            .await
            .map_err(|_| format!("a client didn't finish within {STOP_MAX:?}"))
    }
}

/// Kind of request.
#[derive(Clone, Copy)]
enum Kind {
    Call,
    Task,
    Letter,
    Read,
}

async fn repeat(
    period: Duration,
    kind: Kind,
    clients: Arc<Clients>,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Relaxed) {
        ticks.tick().await;
        match kind {
            Kind::Call => clients.call(&ledger).await,
            Kind::Task => clients.send_task(&ledger).await,
            Kind::Letter => clients.send_letter(&ledger, &stop).await,
            Kind::Read => clients.read_letters(&ledger).await,
        }
    }
}
