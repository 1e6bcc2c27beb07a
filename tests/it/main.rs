//! Integration tests, one module a promise.

// The binary in a home of its own, guards that end its processes, clinics to ask.
mod kit;
// A peer that a test plays, request by request.
#[path = "../kit/played.rs"]
#[expect(dead_code, reason = "the protocols' tests need more of it")]
mod played;
// An authorization server within a test.
#[path = "../kit/issuer.rs"]
#[expect(dead_code, reason = "the tests of JSON-RPC need more of it")]
mod issuer;
// An introspection endpoint within a test.
#[path = "../kit/introspection.rs"]
#[expect(dead_code, reason = "the tests of JSON-RPC need more of it")]
mod introspection_server;
// Authorities, and certificates that they issue.
#[path = "../kit/certificates.rs"]
mod certificates;
// Names of a type in JSON.
#[path = "../kit/shape.rs"]
mod shape;

// The library without features: few crates.
mod base_crates;
// Every MCP client before every A2A agent, every A2A client before every MCP server.
mod a2a_matrix;
// `callboard a2a`: a client for people; what is shown, asked and told, and the exit codes.
mod a2a;
// A2A over gRPC: declared, moved by a reload, in the card.
#[cfg(feature = "grpc")]
mod a2a_grpc;
// An agent elsewhere that pushes instead of being looked at.
mod a2a_push;
// Another topology while A2A calls are in flight.
mod a2a_reload;
// Tasks over A2A outlive the process that they were begun in.
mod a2a_restart;
// Rules about who may use what: lists, calls and explanations.
mod access_rules;
// Uses of tools that wait until a person has decided about them.
mod approvals;
// What another agent may destroy is confirmed first, however that agent became known.
mod agent_confirm;
// `callboard agents`: agents of a file and of an address.
mod agents;
// The agents that an orchestrator knows: learned, exchanged, and what hostile teachers can't make it do.
mod agent_directory;
// One request through everything: clarified, planned, recovered, confirmed, and over a kill.
mod agent_story;
// The orchestrator behind A2A: what is on the wire.
mod agent_wire;
// Commands by their old names: the same effect, and a warning.
mod aliases;
// `callboard ask`: what is printed where, and the exit codes.
mod ask;
// `callboard audit follow`: each entry once over runs, and cursors that can't be used.
mod audit_follow;
// `callboard check`: every mistake of a topology, with its place.
mod check;
// What a new user gets wrong on the command line: a file, a name, a key.
mod check_mistakes;
// `callboard completions` and `man`: scripts of five shells, a page a command.
mod completions;
// `callboard connect`: entries in configuration files of applications, everything else left as it was.
mod connect;
// Pages of the documentation: commands, files, programs and links exist.
mod docs;
// `callboard doctor`: each finding with its remedy.
mod doctor;
// `callboard init`: each kind of file passes the check and is served.
mod init;
// `callboard schema`: examples are valid, mistakes aren't, no key is missing.
mod schema;
// Modules of one folder don't need each other in circles, but for those that are listed.
mod circles;
// The pipeline of the clinics as an agent of a topology: over MCP and A2A, and in the audit.
mod clinics_agent;
// The script that starts the clinics and the one that tests them, as a new user runs them.
mod clinics_scripts;
// The shape of code: length of functions, dispatch that can be found, types in few files.
mod code_shape;
// Every operation of every protocol with every kind of credential; what is refused, and how.
mod credential_matrix;
// `callboard demo`: the main job from nothing, and nothing left of it, however it ends.
mod demo;
// `callboard demo agents`: three agents, each step as it has to be.
mod demo_agents;
// `callboard eval routing`: its report, and how good the rules have to be.
mod eval;
// `callboard eval clinics`: handled as labelled, the blueprint's measures, faults found; the page of docs.
mod eval_clinics;
// `callboard eval doses`, `scope`, `privacy` and `guard`: numbers computed by hand, mistakes in files.
mod eval_texts;
// What must last: a node's store after a kill, the commands beside it, and one node a file.
mod journal;
// `callboard keys`: shown once, revoked for good.
mod keys;
// What programs read of callboard keeps its names: members of `--json`, kinds of audit entries.
mod frozen;
// What others send and what is kept beside tasks has its names: of messages, members and variants.
mod frozen_agents;
// `callboard serve`: a gateway of servers elsewhere, for clients of both eras.
mod gateway;
// Clinics that answer what they must not: the answer is blocked or lacks their step.
mod hostile;
// HMCP: two agents that answer like models, over three transports, and their guard.
mod hmcp;
// Scopes, patients, tenants and purposes of credentials, at HMCP agents and clinics.
mod hmcp_scopes;
// `callboard serve` and `callboard stdio`: any MCP client uses the agents of a topology.
mod mcp_node;
// Access tokens at listeners: one credential for all protocols, and none of a foreign issuer.
mod listener_tokens;
// Opaque tokens at listeners: their issuer is asked, revoked ones end streams.
mod listener_introspection;
// Names, doc comments and commit subjects: terms of the field.
mod language;
// `callboard mail`: what is printed where, and the exit codes; another file under a mailroom.
mod mail_cli;
// Agent mail: the rows of the source document, over HTTP, over MCP and in process.
mod mail_golden;
// Twelve agents and a mailroom that is killed: read by all, once each.
mod mail_twelve;
// One broadcast by every way: agents here and elsewhere, a webhook, a pane, MCP's clients; and A2A's, who send.
mod mail_ways;
// `callboard mcp`: a client for people; what is shown, asked and told, and the exit codes.
mod mcp;
// Tasks over MCP outlive the process that they were begun in.
mod mcp_tasks;
// A third clinic is two files and no code.
mod neurology;
// Standard output and standard error: closed, full, plain, as JSON.
mod output;
// What a server asks in mid-call is answered: by strategy, in its own dialect.
mod questions;
// Quotas: limits that outlive a restart, with the time of their reset.
mod quotas;
// A person at an MCP client refuses what a server asks: nobody else is asked.
mod refusals;
// An MCP client's roots, through a bridge.
mod roots;
// No agent has a handler that nobody registers.
mod registered;
// Another topology while a node runs: what changed is replaced, nothing else is touched.
mod reload;
// `callboard repl`: exact lines at a terminal and through a pipe.
mod repl;
// Nothing of what clinics answer is kept or logged.
mod residency;
// `callboard serve`: start, restart, drain, and mistakes in files.
mod serve_life;
// `callboard serve`: the bare dialect of a real process, good and bad input.
mod serve_wire;
// The repository keeps its own rules: arrows between crates, one crate on actix, short files.
mod tidy;
// TLS of listeners and clients, from a topology.
mod tls;
// Pinned tools of an upstream, which are approved by a command.
mod tool_pins;
// Topology files: what they come to.
mod topology;
// MCP and A2A servers in axum, and in tower alone.
mod tower_mount;
// The console over HTTP: who may see and do what, sessions, the event stream.
mod console;
// `callboard top`: views of a node's console as text, as JSON and at a terminal.
mod top;
// Traces and metrics over OTLP, from two nodes to a receiver.
#[cfg(feature = "otlp")]
mod otlp;
