//! A connection to the server of the command line, and its orderly end.

use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::StaticBearer;
use callboard_mcp::outbound::{ChildCommand, ClientOptions, Endpoint, McpClient};
use callboard_message::surface::Abilities;
use callboard_message::{Message, Principal, RawObject};
use callboard_runtime::{AgentRef, CallMeta, Caller, System};
use secrecy::SecretString;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};

use super::{ServerArguments, Stopped, words};

/// How long the server may take to end.
const END: Duration = Duration::from_secs(5);

/// The server, as an agent of a system of its own.
pub(super) struct Server {
    agent: AgentRef,
    system: System,
    client: McpClient,
    deadline: Instant,
    within: Duration,
    caller: Option<Arc<dyn Caller>>,
}

impl Server {
    /// Connects when it is first asked. `caller` is told and asked by the server.
    pub(super) fn new(arguments: &ServerArguments, caller: Option<Arc<dyn Caller>>) -> Result<Self, Stopped> {
        let can = caller.as_ref().map(|caller| caller.abilities()).unwrap_or_default();
        let client = McpClient::new(endpoint(arguments)?, options(arguments, can, caller.clone())?)?;
        let system = System::start(1)?;
        let spawned = client.clone();
        let agent = system.prepare_with(move || spawned.clone()).label("server").spawn();
        let within = Duration::from_secs(arguments.timeout);
        Ok(Self { agent, system, client, deadline: Instant::now() + within, within, caller })
    }

    /// Asks by name, until the command's time is up.
    pub(super) async fn ask<M: Message>(&self, params: RawObject) -> Result<Box<RawValue>, Stopped> {
        let mut call = CallMeta::new(Arc::new(Principal::local_operator())).until(self.deadline);
        if let Some(caller) = &self.caller {
            call = call.with_caller(caller.clone());
        }
        // Dropped, it takes the call back.
        let _cancel = call.cancel.clone().drop_guard();
        let payload = to_raw_value(&params).unwrap_or_default();
        let asked =
            tokio::time::timeout_at(self.deadline, self.agent.ask_named(M::NAME, payload, Some(Arc::new(call))));
        Ok(asked.await.map_err(|_| Stopped::TimedOut(self.within))??)
    }

    /// The same, where an object is answered.
    pub(super) async fn ask_object<M: Message>(&self, params: RawObject) -> Result<RawObject, Stopped> {
        let answer = self.ask::<M>(params).await?;
        RawObject::parse(&answer)
            .map_err(|_| callboard_message::Failure::internal("the server answered no object").into())
    }

    /// Every item of a list, page by page.
    pub(super) async fn list<M: Message>(&self, items: &str, pages_max: u32) -> Result<Vec<Box<RawValue>>, Stopped> {
        let (mut all, mut params) = (Vec::new(), RawObject::new());
        for _ in 0..pages_max {
            let mut page = self.ask_object::<M>(params).await?;
            all.extend(page.read::<Vec<Box<RawValue>>>(items).unwrap_or_default());
            match page.remove("nextCursor").filter(|cursor| cursor.get() != "null") {
                Some(cursor) => {
                    params = RawObject::new();
                    params.set_raw("cursor", cursor);
                }
                None => return Ok(all),
            }
        }
        tracing::warn!(pages_max, "the list doesn't end");
        Ok(all)
    }

    /// Takes leave of the server: a session ends, a child too.
    pub(super) async fn end(self) {
        self.agent.stop();
        let ended = async {
            self.agent.ended().await;
            self.client.said_goodbye().await;
        };
        if timeout(END, ended).await.is_err() {
            tracing::warn!("the server doesn't end in time");
        }
        self.system.shutdown(Duration::ZERO).await;
    }
}

fn endpoint(arguments: &ServerArguments) -> Result<Endpoint, Stopped> {
    let is_url = ["http://", "https://", "ws://", "wss://"].iter().any(|scheme| arguments.server.starts_with(scheme));
    if is_url {
        return Ok(Endpoint::url(&arguments.server)?);
    }
    let words =
        words::cut(&arguments.server).ok_or_else(|| Stopped::Usage("the server's command can't be read".into()))?;
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let mut command = ChildCommand::new(program, words);
    command.inherit.extend(arguments.variables.iter().cloned());
    Ok(Endpoint::Child(command))
}

fn options(
    arguments: &ServerArguments,
    can: Abilities,
    only_caller: Option<Arc<dyn Caller>>,
) -> Result<ClientOptions, Stopped> {
    let mut options = ClientOptions {
        era: arguments.era.choice(),
        offers: can,
        // Only for the questions that no call causes; nobody follows what changes.
        listen: only_caller.is_some(),
        only_caller,
        connect_timeout: Duration::from_secs(arguments.connect_timeout),
        call_timeout: Duration::from_secs(arguments.timeout),
        ..ClientOptions::default()
    };
    for header in &arguments.headers {
        let (name, value) =
            header.split_once(':').ok_or_else(|| Stopped::Usage("a header is written NAME: VALUE".into()))?;
        options = options.header(name.trim(), &SecretString::from(value.trim()))?;
    }
    if let Some(name) = &arguments.bearer_env {
        let token = std::env::var(name).map_err(|_| Stopped::Usage(format!("there is no variable {name}")))?;
        let bearer = StaticBearer::new(&SecretString::from(token)).map_err(|e| Stopped::Usage(e.to_string()))?;
        options.authorizer = Some(Arc::new(bearer));
    }
    Ok(options)
}
