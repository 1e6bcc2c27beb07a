//! From the first agent to agents behind MCP and A2A, a step a section.
//!
//! The tests of this crate compile and run each example. All but the agent with a task and the test are whole programs.
//! Longer ones are in `examples/` in the repository.
//!
//! # An actor
//!
//! An [`Agent`] is a value that handles messages one at a time. A [`Message`] is a type with a reply. [`System`] runs agents
//! on its threads (arbiters), and an [`AgentRef`] is how others reach one: [`tell`](AgentRef::tell) waits for room in the
//! mailbox, [`ask`](AgentRef::ask) for the reply.
//!
//! ```
//! use std::time::Duration;
//!
//! use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
//!
//! /// Adds to the counter.
//! #[derive(Message)]
//! #[message(reply = u64, local)]
//! struct Add(u64);
//!
//! #[derive(Default)]
//! struct Counter {
//!     count: u64,
//! }
//!
//! impl Agent for Counter {
//!     fn handlers(on: &mut Handlers<Self>) {
//!         on.sync::<Add>();
//!     }
//! }
//!
//! impl SyncHandler<Add> for Counter {
//!     fn handle(&mut self, Add(n): Add, _: &mut Context) -> u64 {
//!         self.count += n;
//!         self.count
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let system = System::start(1)?;
//!     let counter = system.spawn_with(Counter::default);
//!     assert_eq!(counter.ask(Add(2)).within(Duration::from_secs(1)).await?, 2);
//!     system.shutdown(Duration::from_secs(1)).await;
//!     Ok(())
//! }
//! ```
//!
//! | handler | registered by | while it runs |
//! |---|---|---|
//! | [`SyncHandler`] | `on.sync::<M>()` | a function: no `await` |
//! | [`Handler`] | `on.exclusive::<M>()` | an async function with `&mut self`: the next message waits |
//! | [`ConcurrentHandler`] | `on.concurrent::<M>(n)` | a future without the state: up to `n` run at once |
//!
//! A message type with `local` stays in the process. Without it, the type needs serde's traits and a JSON schema, and is a
//! tool of MCP and a skill of A2A too.
//!
//! # A question in mid-call
//!
//! A handler may ask whoever called it, and pauses until the answer is there. [`AgentRef::call`] starts a call whose events
//! (progress, questions) the caller handles; with [`ask`](AgentRef::ask) nobody answers, so the question fails.
//!
//! ```
//! use callboard::message::{Answer, Elicitation, ElicitationAnswer, Question};
//! use callboard::{Agent, CallEvent, Context, Failure, Handler, Handlers, Message, System};
//! use serde_json::json;
//!
//! /// Books a table.
//! #[derive(Message)]
//! #[message(reply = String, fallible, local)]
//! struct BookTable;
//!
//! struct Restaurant;
//!
//! impl Agent for Restaurant {
//!     fn handlers(on: &mut Handlers<Self>) {
//!         on.exclusive::<BookTable>();
//!     }
//! }
//!
//! impl Handler<BookTable> for Restaurant {
//!     async fn handle(&mut self, _: BookTable, cx: &mut Context) -> Result<String, Failure> {
//!         let schema = json!({ "type": "object", "properties": { "hour": { "type": "integer" } } });
//!         match cx.elicit(Elicitation::form("At what hour?", schema)).await?.content() {
//!             Some(content) => Ok(format!("booked at {}:00", content["hour"])),
//!             None => Err(Failure::rejected("no hour, no table")),
//!         }
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let system = System::start(1)?;
//!     let mut call = system.spawn(Restaurant).call(BookTable).start();
//!     while let Some(event) = call.next().await {
//!         if let CallEvent::Question(pending) = event {
//!             assert!(matches!(pending.question, Question::Elicit(_)));
//!             pending.answer(Answer::Elicit(ElicitationAnswer::accept(json!({ "hour": 20 }))));
//!         }
//!     }
//!     assert_eq!(call.reply().await??, "booked at 20:00");
//!     Ok(())
//! }
//! ```
//!
//! Over MCP the question is an elicitation, over A2A the state `input-required`: the handler doesn't know the difference.
//!
//! # A task
//!
//! A call may outlive its connection. A message with `task = "optional"` can be called as a task of MCP, one with `"required"`
//! only so. Every call over A2A is a task. With the feature `store-sqlite`, tasks survive a crash: an
//! acknowledged task has its result, or is known to have failed.
//!
//! ```
//! use callboard::{Agent, Context, Failure, Handler, Handlers, Message};
//!
//! /// Builds the yearly report.
//! #[derive(Message, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
//! #[message(reply = String, fallible, task = "optional")]
//! struct BuildReport {
//!     year: u16,
//! }
//!
//! struct Reports;
//!
//! impl Agent for Reports {
//!     fn handlers(on: &mut Handlers<Self>) {
//!         on.exclusive::<BuildReport>();
//!     }
//! }
//!
//! impl Handler<BuildReport> for Reports {
//!     async fn handle(&mut self, BuildReport { year }: BuildReport, _: &mut Context) -> Result<String, Failure> {
//!         Ok(format!("report of {year}"))
//!     }
//! }
//! ```
//!
//! # Tests
//!
//! With the feature `testkit`, [`callboard::test`](crate::test) gives each test a system of its own, with paused time.
//! [`Probe`](crate::testkit::Probe) and [`ScriptedAgent`](crate::testkit::ScriptedAgent) stand in for other agents.
//!
//! ```test_harness
//! # use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
//! # #[derive(Message)]
//! # #[message(reply = u64, local)]
//! # struct Add(u64);
//! # #[derive(Default)]
//! # struct Counter { count: u64 }
//! # impl Agent for Counter {
//! #     fn handlers(on: &mut Handlers<Self>) { on.sync::<Add>(); }
//! # }
//! # impl SyncHandler<Add> for Counter {
//! #     fn handle(&mut self, Add(n): Add, _: &mut Context) -> u64 { self.count += n; self.count }
//! # }
//! #[callboard::test]
//! async fn counts(system: &System) {
//!     let counter = system.spawn_with(Counter::default);
//!     assert_eq!(counter.ask(Add(2)).await.unwrap(), 2);
//! }
//! ```
//!
//! # MCP and A2A
//!
//! The same agent behind protocols: [`mcp::inbound::serve`](crate::mcp::inbound::serve) and
//! [`a2a::inbound::serve`](crate::a2a::inbound::serve) take a listener of their own. The module `tower` (a feature) mounts the
//! agent in axum. The other way round, a remote server is an agent of this process, and takes the same messages.
//!
//! ```
//! use std::net::TcpListener;
//!
//! use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
//! use callboard::mcp::outbound::{McpClient, McpClientOptions, ServerEndpoint};
//! use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
//!
//! /// Greets a person by name.
//! #[derive(Message, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
//! #[message(reply = String, read_only)]
//! struct Greet {
//!     name: String,
//! }
//!
//! struct Greeter;
//!
//! impl Agent for Greeter {
//!     fn handlers(on: &mut Handlers<Self>) {
//!         on.sync::<Greet>();
//!     }
//! }
//!
//! impl SyncHandler<Greet> for Greeter {
//!     fn handle(&mut self, Greet { name }: Greet, _: &mut Context) -> String {
//!         format!("Hello {name}!")
//!     }
//! }
//!
//! #[actix_web::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let system = System::on_current_arbiter();
//!     let (listener, options) = (TcpListener::bind("127.0.0.1:0")?, McpServerOptions::default());
//!     let serving = serve(listener, system.spawn(Greeter), options, &ListenOptions::default())?;
//!     let url = format!("http://{}/mcp", serving.address);
//!     actix_web::rt::spawn(serving.server);
//!     let client = McpClient::new(ServerEndpoint::from_url(&url)?, McpClientOptions::default())?;
//!     let remote = system.spawn(client);
//!     assert_eq!(remote.ask(Greet { name: "you".to_owned() }).await?, "Hello you!");
//!     Ok(())
//! }
//! ```

/// Programs of the pages about a migration, compiled and run by the tests.
#[cfg(doctest)]
pub mod migration {
    #[doc = include_str!("../docs/migration/kameo.md")]
    pub struct Kameo;

    #[doc = include_str!("../docs/migration/ractor.md")]
    pub struct Ractor;
}
