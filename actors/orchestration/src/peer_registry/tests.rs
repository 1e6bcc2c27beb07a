use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard_message::capabilities::{CallTool, ListTools};
use callboard_message::{FailureKind, RawObject, ToolResult};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{Agent, Context, Handlers, MemoryKvStore, SyncHandler};
use serde_json::{Value, json};

use super::*;

/// Scripted remote agents: their cards and answers, and a log of fetched cards.
#[derive(Default)]
struct Elsewhere {
    there: Mutex<HashMap<String, Place>>,
    looks: Mutex<Vec<(String, AddressSource)>>,
    opened: AtomicU32,
}

#[derive(Clone, Default)]
struct Place {
    name: String,
    exchange: Option<Value>,
    is_signed: bool,
}

impl Elsewhere {
    fn put(&self, url: &str, name: &str, exchange: Option<Value>) {
        let place = Place {
            name: name.into(),
            exchange,
            is_signed: false,
        };
        self.there.lock().insert(url.into(), place);
    }

    fn at(&self, url: &str) -> Option<Place> {
        self.there.lock().get(url).cloned()
    }

    fn looked_at(&self) -> Vec<String> {
        self.looks
            .lock()
            .iter()
            .map(|(url, _)| url.clone())
            .collect()
    }
}

impl AgentConnector for Elsewhere {
    fn fetch_card<'a>(
        &'a self,
        url: &'a Url,
        by: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>> {
        Box::pin(async move {
            self.looks.lock().push((url.to_string(), by));
            if url.host_str() == Some("silent.example") {
                std::future::pending::<()>().await;
            }
            let place = self
                .at(url.as_str())
                .ok_or_else(|| Failure::unavailable("nobody is there"))?;
            if matches!(
                by,
                AddressSource::Peer {
                    must_be_signed: true,
                    ..
                }
            ) && !place.is_signed
            {
                return Err(Failure::denied("not signed"));
            }
            let skill = |id: &str| SkillView {
                id: id.into(),
                ..SkillView::default()
            };
            let skills = place
                .exchange
                .iter()
                .flat_map(|_| [skill("list_agents"), skill("remember_agent")])
                .collect();
            Ok(FetchedCard {
                name: place.name,
                description: "Does\nthings".into(),
                skills,
            })
        })
    }

    fn open(&self, system: &System, url: &Url, _: AddressSource) -> Result<AgentRef, Failure> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let exchange = self
            .at(url.as_str())
            .and_then(|place| place.exchange)
            .unwrap_or_default();
        Ok(system.spawn(Teacher {
            exchange,
            told: Vec::new(),
        }))
    }
}

/// Agent that answers `list_agents` with a fixed list and records the agents it is told of.
struct Teacher {
    exchange: Value,
    told: Vec<Value>,
}

impl Agent for Teacher {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CallTool>().sync::<ListTools>();
    }

    fn observe(&self) -> Value {
        json!(self.told)
    }
}

impl SyncHandler<CallTool> for Teacher {
    fn handle(&mut self, message: CallTool, _: &mut Context) -> Result<ToolResult, Failure> {
        match message.0.text("name").as_deref() {
            Some("list_agents") => Ok(ToolResult::text(self.exchange.to_string())),
            _ => {
                self.told
                    .push(message.0.read("arguments").unwrap_or_default());
                Ok(ToolResult::text("{}"))
            }
        }
    }
}

impl SyncHandler<ListTools> for Teacher {
    fn handle(&mut self, _: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        let tool = json!({ "name": "forecast", "title": "Forecast", "description": "Tells\nthe weather", "tags": ["rain"] });
        Ok(RawObject::single("tools", json!([tool])))
    }
}

const LOCAL: &[&str] = &["http://localhost:*"];

async fn open(
    system: &System,
    notes: &Arc<dyn KvStore>,
    elsewhere: &Arc<Elsewhere>,
    allow: &[&str],
) -> PeerRegistry {
    let options = PeerRegistryOptions {
        id: "bidirectional-agent".into(),
        name: "Agent One".into(),
        allowed_origins: allow.iter().map(|pattern| (*pattern).to_owned()).collect(),
    };
    PeerRegistry::open(system, notes.clone(), elsewhere.clone(), options)
        .await
        .unwrap()
}

fn notes() -> Arc<dyn KvStore> {
    Arc::new(MemoryKvStore::default())
}

fn ids(known: &PeerRegistry) -> Vec<String> {
    known.list().into_iter().map(|known| known.id).collect()
}

/// Builds an exchange answer: the agent's own id and the agents it knows.
fn knows(id: &str, others: &[(&str, &str, &str)]) -> Option<Value> {
    let agents: Vec<_> = others
        .iter()
        .map(|(id, name, url)| json!({ "id": id, "name": name, "url": url }))
        .collect();
    Some(json!({ "self": { "id": id, "name": "whatever" }, "agents": agents }))
}

/// Runs a test with scripted remote agents, and shuts the system down after it.
fn with_elsewhere(test: impl AsyncFnOnce(&System, Arc<Elsewhere>)) {
    run_with_paused_time(async |system| {
        test(system, Arc::default()).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: connecting to an agent also adds the agents it knows, under their own ids, and both
/// survive a restart. Method: two remote agents, the second known to the first; a second registry
/// on the same store.
/// Rows: B-5.
#[test]
fn connecting_shares_directories() {
    with_elsewhere(async |system, elsewhere| {
        let three = (
            "bidirectional-agent-3",
            "Agent Three",
            "http://localhost:4202",
        );
        let us = ("bidirectional-agent", "Agent One", "http://localhost:4200");
        elsewhere.put(
            "http://localhost:4201/",
            "Agent Two",
            knows("bidirectional-agent-2", &[three, us]),
        );
        elsewhere.put(
            "http://localhost:4202/",
            "Agent Three",
            knows("bidirectional-agent-3", &[]),
        );
        let notes = notes();
        let known = open(system, &notes, &elsewhere, LOCAL).await;
        assert!(known.list().is_empty());
        known.set_listen_address(Some("http://localhost:4200/"), true);
        let two = known.connect("localhost:4201").await.unwrap();
        assert_eq!(
            (&*two.id, &*two.name, two.learned),
            (
                "bidirectional-agent-2",
                "Agent Two",
                DiscoverySource::Connected
            )
        );
        assert_eq!(two.description, "Does things");
        assert_eq!(
            ids(&known),
            ["bidirectional-agent-2", "bidirectional-agent-3"]
        );
        let three = known.get("bidirectional-agent-3").unwrap();
        assert_eq!(
            (three.learned, three.from.as_deref()),
            (DiscoverySource::Exchange, Some("bidirectional-agent-2"))
        );
        assert_eq!(
            elsewhere.opened.load(Ordering::Relaxed),
            1,
            "the third is only looked at"
        );
        let told = known
            .agent_ref("bidirectional-agent-2")
            .await
            .unwrap()
            .observe()
            .await;
        assert_eq!(
            told[0]["url"], "http://localhost:4200/",
            "we are told of too"
        );
        assert!(system.directory().get("bidirectional-agent-2").is_some());

        let again = open(system, &notes, &elsewhere, LOCAL).await;
        assert_eq!(
            ids(&again),
            ["bidirectional-agent-2", "bidirectional-agent-3"]
        );
        assert_eq!(
            again.get("bidirectional-agent-2").unwrap().name,
            "Agent Two"
        );
        assert!(again.agent_ref("bidirectional-agent-3").await.is_ok());
        assert_eq!(
            again.agent_ref("agent two").await.unwrap_err().kind,
            FailureKind::NotFound,
            "ids are exact"
        );
        assert!(again.forget("bidirectional-agent-3").await.unwrap());
        assert_eq!(
            ids(&open(system, &notes, &elsewhere, LOCAL).await),
            ["bidirectional-agent-2"]
        );
    });
}

/// Goal: malicious agents can't add others, and their suggestions aren't even contacted. Method: a
/// remote agent that names local addresses, a metadata service, other agents' ids, and 65 agents; a
/// listed one whose suggestions aren't on the list or have other names.
#[test]
fn hostile_teachers_teach_nothing() {
    with_elsewhere(async |system, elsewhere| {
        let known = open(
            system,
            &notes(),
            &elsewhere,
            &["https://*.example", "http://localhost:*"],
        )
        .await;
        known.declare(
            "clinic",
            system.spawn(Teacher {
                exchange: json!({}),
                told: Vec::new(),
            }),
        );
        let lies = [
            ("a", "A", "http://localhost:4202"),
            ("b", "B", "http://127.0.0.1:4202"),
            ("c", "C", "http://[::1]:4202"),
            ("clinic", "D", "https://d.example"),
            ("bidirectional-agent", "E", "https://e.example"),
            ("no id", "F", "https://f.example"),
            ("g", "G", "ftp://g.example"),
            ("h", "H", "https://user@h.example"),
        ];
        elsewhere.put(
            "https://teacher.example/",
            "Teacher",
            knows("teacher", &lies),
        );
        known.connect("https://teacher.example").await.unwrap();
        assert_eq!(ids(&known), ["clinic", "teacher"]);
        assert_eq!(elsewhere.looked_at(), ["https://teacher.example/"]);

        // Unlisted origins need a signature, which the connector checks.
        elsewhere.put("http://169.254.169.254/", "Metadata", None);
        let metadata = [
            ("metadata", "Metadata", "http://169.254.169.254"),
            ("other", "Said", "https://other.example"),
        ];
        elsewhere.put("https://other.example/", "Otherwise", None);
        elsewhere.put(
            "https://teacher.example/",
            "Teacher",
            knows("teacher", &metadata),
        );
        known.connect("https://teacher.example").await.unwrap();
        assert_eq!(ids(&known), ["clinic", "teacher"]);
        let must = AddressSource::Peer {
            may_be_local: false,
            must_be_signed: true,
        };
        assert!(
            elsewhere
                .looks
                .lock()
                .contains(&("http://169.254.169.254/".to_owned(), must))
        );

        let many: Vec<_> = (0..=EXCHANGE_AGENTS_MAX)
            .map(|nth| format!("a{nth}"))
            .collect();
        let urls: Vec<_> = many
            .iter()
            .map(|id| format!("https://{id}.example/"))
            .collect();
        for (id, url) in many.iter().zip(&urls) {
            elsewhere.put(url, id, None);
        }
        let all: Vec<_> = many
            .iter()
            .zip(&urls)
            .map(|(id, url)| (&**id, &**id, &**url))
            .collect();
        elsewhere.put(
            "https://teacher.example/",
            "Teacher",
            knows("teacher", &all),
        );
        known.connect("https://teacher.example").await.unwrap();
        assert_eq!(known.list().len(), 2 + EXCHANGE_AGENTS_MAX);
        assert!(
            !elsewhere
                .looked_at()
                .contains(&"https://a64.example/".to_owned())
        );
    });
}

/// Goal: an id belongs to one agent. Method: two agents with the same id, one with our own id, one
/// with an invalid id; the same again.
#[test]
fn ids_are_nobody_elses() {
    with_elsewhere(async |system, elsewhere| {
        let known = open(system, &notes(), &elsewhere, &[]).await;
        for (port, id) in [
            (1, "weather"),
            (2, "weather"),
            (3, "bidirectional-agent"),
            (4, "no id!"),
        ] {
            elsewhere.put(
                &format!("http://localhost:{port}/"),
                "Wéather Agent",
                knows(id, &[]),
            );
        }
        for _ in 0..2 {
            for (port, id) in [
                (1, "weather"),
                (2, "weather-2"),
                (3, "bidirectional-agent-2"),
                (4, "weather-agent"),
            ] {
                assert_eq!(
                    known
                        .connect(&format!("127.0.0.1:{port}"))
                        .await
                        .map(|known| known.id)
                        .ok(),
                    None
                );
                assert_eq!(
                    known
                        .connect(&format!("localhost:{port}"))
                        .await
                        .unwrap()
                        .id,
                    id
                );
            }
        }
        known.set_listen_address(Some("http://localhost:5/"), true);
        assert_eq!(
            known.connect("[::1]:5").await.unwrap_err().kind,
            FailureKind::InvalidInput,
            "our own"
        );
    });
}

/// Goal: agents named by others are second-hand, those named by the operator aren't. Method: each,
/// with and without the list.
#[test]
fn being_told_is_hearsay() {
    with_elsewhere(async |system, elsewhere| {
        elsewhere.put("http://localhost:1/", "One", None);
        elsewhere.put("https://two.example/", "Two", None);
        let known = open(system, &notes(), &elsewhere, &["https://*.example"]).await;
        let denied = known
            .remember("localhost:1", None, "peer", false)
            .await
            .unwrap_err();
        assert_eq!(denied.kind, FailureKind::Denied);
        let two = known
            .remember("https://two.example", Some("second"), "peer", false)
            .await
            .unwrap();
        assert_eq!(
            (&*two.id, two.from.as_deref(), two.learned),
            ("second", Some("peer"), DiscoverySource::Told)
        );
        assert_eq!(
            known.address_source(&two),
            AddressSource::Peer {
                may_be_local: false,
                must_be_signed: false
            }
        );
        let taken = known
            .remember("localhost:1", Some("second"), "operator", true)
            .await
            .unwrap_err();
        assert_eq!(taken.kind, FailureKind::InvalidInput);
        let one = known
            .remember("localhost:1", None, "operator", true)
            .await
            .unwrap();
        assert_eq!((&*one.id, one.from.as_deref()), ("one", None));
        assert_eq!(known.address_source(&one), AddressSource::Operator);
        let looks = elsewhere.looked_at().len();
        assert_eq!(
            known
                .remember("localhost:1", Some("x"), "peer", false)
                .await
                .unwrap()
                .id,
            "one",
            "it is known"
        );
        assert_eq!(elsewhere.looked_at().len(), looks);
    });
}

/// Goal: an agent is down after two missed health checks in a row, and up at its first answer.
/// Method: an agent that disappears and returns.
#[test]
fn health_is_noticed() {
    with_elsewhere(async |system, elsewhere| {
        let known = open(system, &notes(), &elsewhere, &[]).await;
        elsewhere.put("http://localhost:1/", "One", None);
        known.connect("localhost:1").await.unwrap();
        let state = || known.get("one").unwrap().state;
        elsewhere.there.lock().clear();
        known.check_all_health().await;
        assert_eq!(state(), PeerHealth::Up, "once is chance");
        known.check_all_health().await;
        assert_eq!(state(), PeerHealth::Down);
        assert!(!known.agent_views().await[0].is_up);
        elsewhere.put("http://localhost:1/", "One, renamed", None);
        let ending = tokio_util::sync::CancellationToken::new();
        let checking = known.run_health_checks(ending.clone());
        // Paused time: the maximum length of one pause.
        assert!(
            tokio::time::timeout(HEALTH_CHECK_INTERVAL.mul_f32(1.5), checking)
                .await
                .is_err()
        );
        assert_eq!(
            (state(), &*known.get("one").unwrap().name),
            (PeerHealth::Up, "One, renamed")
        );
        let looks = elsewhere.looked_at().len();
        tokio::time::sleep(HEALTH_CHECK_IDLE_MAX).await;
        assert!(
            tokio::time::timeout(
                HEALTH_CHECK_INTERVAL * 5,
                known.run_health_checks(ending.clone())
            )
            .await
            .is_err()
        );
        assert_eq!(elsewhere.looked_at().len(), looks, "nobody used it");
        ending.cancel();
        known.run_health_checks(ending).await;
    });
}

/// Goal: declared agents are known by the tools they list. Method: one that lists its tools, as
/// deciders see it.
#[test]
fn declared_agents_say_what_they_can_do() {
    with_elsewhere(async |system, elsewhere| {
        let known = open(system, &notes(), &elsewhere, &[]).await;
        let agent = system.spawn(Teacher {
            exchange: json!({}),
            told: Vec::new(),
        });
        known.declare("weather", agent.clone());
        let view = known.agent_views().await;
        assert!(view[0].is_up && view[0].id == "weather");
        let expected = SkillView {
            id: "forecast".into(),
            name: "Forecast".into(),
            description: "Tells the weather".into(),
            tags: vec!["rain".into()],
            ..SkillView::default()
        };
        assert_eq!(view[0].skills, [expected]);
        assert_eq!(known.agent_ref("weather").await.unwrap(), agent);
        assert!(
            !known.forget("weather").await.unwrap(),
            "it is the topology's"
        );
        agent.stop();
        agent.wait_for_exit().await;
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(!known.agent_views().await[0].is_up);
    });
}

/// Goal: no agent is waited for indefinitely. Method: a silent agent, connected to directly, and
/// named by another; paused time.
#[test]
fn the_silent_are_not_waited_for() {
    with_elsewhere(async |system, elsewhere| {
        let known = open(system, &notes(), &elsewhere, &["https://*.example"]).await;
        let began = Instant::now();
        assert_eq!(
            known
                .connect("https://silent.example")
                .await
                .unwrap_err()
                .kind,
            FailureKind::TimedOut
        );
        assert_eq!(began.elapsed(), CONNECT_TIMEOUT);
        let silent = ("silent", "Silent", "https://silent.example");
        elsewhere.put(
            "https://teacher.example/",
            "Teacher",
            knows("teacher", &[silent]),
        );
        let began = Instant::now();
        known.connect("https://teacher.example").await.unwrap();
        assert_eq!(
            (ids(&known), began.elapsed()),
            (vec!["teacher".to_owned()], EXCHANGE_TIMEOUT)
        );
    });
}

/// Goal: limits hold. Method: one agent too many; an invalid pattern; an invalid stored entry.
#[test]
fn limits_hold() {
    with_elsewhere(async |system, elsewhere| {
        let notes = notes();
        for nth in 1..KNOWN_AGENTS_MAX {
            let body = RawObject::single("url", format!("http://localhost/{nth}"));
            notes
                .put(DIRECTORY_SPACE, &format!("a{nth}"), body, None)
                .await
                .unwrap();
        }
        notes
            .put(
                DIRECTORY_SPACE,
                "zz",
                RawObject::single("name", "no address"),
                None,
            )
            .await
            .unwrap();
        let known = open(system, &notes, &elsewhere, &[]).await;
        assert_eq!(known.list().len(), KNOWN_AGENTS_MAX - 1);
        for port in [1, 2] {
            elsewhere.put(&format!("http://localhost:{port}/"), "New", None);
        }
        assert!(known.connect("localhost:1").await.is_ok());
        assert_eq!(
            known.connect("localhost:2").await.unwrap_err().kind,
            FailureKind::Overloaded
        );
        assert!(
            known.connect("localhost:1").await.is_ok(),
            "it is known already"
        );
        for no in ["localhost", "http://", "http://a/b", "https://user@a", "*"] {
            let options = PeerRegistryOptions {
                allowed_origins: vec![no.into()],
                ..PeerRegistryOptions::default()
            };
            let opened =
                PeerRegistry::open(system, notes.clone(), elsewhere.clone(), options).await;
            assert!(opened.is_err(), "{no}");
        }
    });
}
