//! `callboard mcp call` and `callboard mcp list`: the server of the command line, and its orderly end.

pub(super) mod terminal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::StaticBearer;
use callboard_mcp::outbound::{
    CALL_TIMEOUT_DEFAULT, ChildCommand, ClientOptions, Endpoint, Era, EraChoice, McpClient,
    PAGES_MAX_DEFAULT,
};
use callboard_message::surface::{
    CallTool, Describe, ListPrompts, ListResourceTemplates, ListResources, ListTools,
};
use callboard_message::{Message, RawObject, Root, ToolResult};
use callboard_runtime::{AgentRef, Caller, System};
use clap::Subcommand;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use terminal::{Terminal, ask_named, asks};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::arguments::{CredentialArguments, one_of};
use super::{CommandError, EXIT_ANSWERED, Outcome, show, unless_interrupted};
use crate::node::spawn;
use crate::text::{first_line, told, told_value};

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Show what a server is and offers: its tools, resources and prompts.
    List(ServerArguments),
    /// Use a tool. Exit code: 0 it answered, 2 usage, 3 blocked, 4 failed.
    Call(CallArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct CallArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The tool.
    tool: String,
    /// An argument of the tool. Its value is text where the tool wants text, else JSON where it is some.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    /// The tool's arguments as a JSON object; `--arg` goes before.
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Read answers to the server's questions from standard input even where that is no terminal.
    #[arg(long)]
    ask: bool,
    /// A folder to lend to the server, where it asks for roots.
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
}

const ERAS: [(&str, EraChoice); 3] = [
    ("auto", EraChoice::Auto),
    ("legacy", EraChoice::Only(Era::Legacy)),
    ("modern", EraChoice::Only(Era::Modern)),
];

#[derive(Debug, clap::Args)]
pub(super) struct ServerArguments {
    /// Where the server is: a URL (http, https, ws, wss), or a command that speaks over its pipes, in quotes: "npx -y SERVER".
    #[arg(value_name = "URL|COMMAND")]
    server: String,
    /// Which MCP: `legacy` begins with a handshake (2024-11-05 to 2025-11-25), `modern` is stateless (2026-07-28).
    #[arg(long, default_value = "auto", value_parser = one_of(ERAS))]
    era: EraChoice,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// A variable that a command gets beside HOME, LANG, PATH, TMPDIR and USER; it gets no others.
    #[arg(long = "env", value_name = "NAME")]
    variables: Vec<String>,
    /// How long it may take in all, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// How long a connection may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    connect_timeout: u64,
}

/// Runs a command.
pub(super) async fn run(command: McpCommand) -> Outcome {
    match command {
        McpCommand::List(arguments) => list(&arguments).await,
        McpCommand::Call(arguments) => call(&arguments).await,
    }
}

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
    /// Connects when it is first asked. The options' caller is told and asked by the server.
    pub(super) fn new(
        endpoint: Endpoint,
        options: ClientOptions,
        within: Duration,
    ) -> Result<Self, CommandError> {
        let caller = options.only_caller.clone();
        let client = McpClient::new(endpoint, options)?;
        let system = System::here();
        let agent = spawn(&system, "server", client.clone());
        Ok(Self {
            agent,
            system,
            client,
            deadline: Instant::now() + within,
            within,
            caller,
        })
    }

    /// Asks by name, until the command's time is up, for an object.
    async fn ask<M: Message>(&self, params: RawObject) -> Result<RawObject, CommandError> {
        let asked = ask_named(
            &self.agent,
            M::NAME,
            &params,
            self.caller.clone(),
            self.deadline,
        );
        let answer = timeout_at(self.deadline, asked).await;
        let answer = answer
            .map_err(|_| CommandError::failed(format_args!("not done in {:?}", self.within)))??;
        RawObject::parse(&answer).map_err(|_| CommandError::failed("the server answered no object"))
    }

    /// The revision of MCP that was agreed on.
    pub(super) async fn revision(&self) -> String {
        self.agent.observe().await["revision"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Every item of a list, page by page.
    pub(super) async fn list<M: Message>(
        &self,
        items: &str,
    ) -> Result<Vec<Box<RawValue>>, CommandError> {
        let (mut all, mut params) = (Vec::new(), RawObject::new());
        for _ in 0..PAGES_MAX_DEFAULT {
            let mut page = self.ask::<M>(params).await?;
            all.extend(page.read::<Vec<Box<RawValue>>>(items).unwrap_or_default());
            match page
                .remove("nextCursor")
                .filter(|cursor| cursor.get() != "null")
            {
                Some(cursor) => {
                    params = RawObject::new();
                    params.set_raw("cursor", cursor);
                }
                None => return Ok(all),
            }
        }
        tracing::warn!(pages_max = PAGES_MAX_DEFAULT, "the list doesn't end");
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

/// Does `work` with the server of the command line, which has ended when this returns.
async fn within<T>(
    arguments: &ServerArguments,
    only_caller: Option<Arc<dyn Caller>>,
    work: impl AsyncFnOnce(&Server) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let within = Duration::from_secs(arguments.timeout);
    let options = ClientOptions {
        era: arguments.era,
        offers: only_caller
            .as_ref()
            .map(|caller| caller.abilities())
            .unwrap_or_default(),
        // Only for the questions that no call causes; nobody follows what changes.
        listen: only_caller.is_some(),
        only_caller,
        connect_timeout: Duration::from_secs(arguments.connect_timeout),
        call_timeout: within,
        ..ClientOptions::default()
    };
    let mut options = arguments
        .credentials
        .headers(options, ClientOptions::header)?;
    if let Some(token) = arguments.credentials.bearer()? {
        options.authorizer = Some(Arc::new(StaticBearer::new(&token)?));
    }
    let server = Server::new(endpoint(arguments)?, options, within)?;
    let outcome = unless_interrupted(work(&server)).await;
    server.end().await;
    outcome
}

fn endpoint(arguments: &ServerArguments) -> Result<Endpoint, CommandError> {
    let is_url = ["http://", "https://", "ws://", "wss://"]
        .iter()
        .any(|scheme| arguments.server.starts_with(scheme));
    if is_url {
        return Ok(Endpoint::url(&arguments.server)?);
    }
    let mut words = shlex::split(&arguments.server)
        .unwrap_or_default()
        .into_iter();
    let program = words
        .next()
        .ok_or_else(|| CommandError::usage("the server's command can't be read"))?;
    let mut command = ChildCommand::new(program, words);
    command.inherit.extend(arguments.variables.iter().cloned());
    Ok(Endpoint::Child(command))
}

async fn call(arguments: &CallArguments) -> Outcome {
    let given = given(arguments)?;
    let terminal = Terminal::new(asks(arguments.ask, false), true, roots(&arguments.roots)?);
    let using = async |server: &Server| use_tool(server, arguments, given).await;
    let result = ToolResult(within(&arguments.server, Some(Arc::new(terminal)), using).await?);
    show_result(&result, arguments.server.json)?;
    if result.is_error() {
        return Err(CommandError::failed("the tool says that it failed"));
    }
    Ok(EXIT_ANSWERED)
}

/// Folders that are lent to a server.
fn roots(folders: &[PathBuf]) -> Result<Vec<Root>, CommandError> {
    let root = |path: &PathBuf| {
        let whole = path
            .canonicalize()
            .map_err(|error| CommandError::file(path, error))?;
        let uri = Url::from_file_path(&whole)
            .map_err(|()| CommandError::file(path, "it can't be in a URL"))?;
        Ok(Root {
            uri: uri.to_string(),
            name: whole
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        })
    };
    folders.iter().map(root).collect()
}

/// Arguments in JSON, and those that a schema has to be asked about.
type Given<'a> = (RawObject, Vec<(&'a str, &'a str)>);

async fn use_tool(
    server: &Server,
    arguments: &CallArguments,
    (mut given, loose): Given<'_>,
) -> Result<RawObject, CommandError> {
    // Only the tool's schema says whether `5` is text. A server that doesn't list its tools may have it all the same.
    if !loose.is_empty() {
        let tools = server.list::<ListTools>("tools").await.unwrap_or_default();
        let schema = schema_of(&tools, &arguments.tool);
        for (name, text) in loose {
            given.set_raw(name, value(text, &schema["properties"][name]));
        }
    }
    server
        .ask::<CallTool>(CallTool::new(&arguments.tool, given).0)
        .await
}

fn given(arguments: &CallArguments) -> Result<Given<'_>, CommandError> {
    let whole = arguments
        .json_args
        .as_deref()
        .map(serde_json::from_str)
        .transpose();
    let whole = whole
        .map_err(|e| CommandError::usage(format_args!("--json-args must be a JSON object: {e}")))?;
    let loose = arguments.arguments.iter().map(|given| {
        given
            .split_once('=')
            .ok_or_else(|| CommandError::usage("an argument is written --arg NAME=VALUE"))
    });
    Ok((whole.unwrap_or_default(), loose.collect::<Result<_, _>>()?))
}

fn schema_of(tools: &[Box<RawValue>], name: &str) -> Value {
    let mut tools = tools.iter().filter_map(|tool| RawObject::parse(tool).ok());
    tools
        .find(|tool| tool.text("name").as_deref() == Some(name))
        .and_then(|t| t.read("inputSchema"))
        .unwrap_or_default()
}

/// Text where the schema wants text and nothing else, else JSON where it is some, else text.
fn value(text: &str, schema: &Value) -> Box<RawValue> {
    let quoted = || to_raw_value(text).unwrap_or_default();
    match schema["type"].as_str() {
        Some("string") => quoted(),
        _ => RawValue::from_string(text.to_owned()).unwrap_or_else(|_| quoted()),
    }
}

async fn list(arguments: &ServerArguments) -> Outcome {
    let found = within(arguments, None, look).await?;
    match arguments.json {
        true => show::json(&found)?,
        false => print(&found)?,
    }
    Ok(EXIT_ANSWERED)
}

/// Everything that the server says it has: `about`, and its lists.
async fn look(server: &Server) -> Result<RawObject, CommandError> {
    let about = server.ask::<Describe>(RawObject::new()).await?;
    let has = |name: &str| {
        about
            .object("capabilities")
            .is_some_and(|can| can.has(name))
    };
    let mut found = RawObject::of("about", &about);
    if has("tools") {
        found.set("tools", server.list::<ListTools>("tools").await?);
    }
    if has("resources") {
        found.set(
            "resources",
            server.list::<ListResources>("resources").await?,
        );
        // Older servers have resources but know nothing of templates.
        let templates = server
            .list::<ListResourceTemplates>("resourceTemplates")
            .await;
        found.set("resourceTemplates", templates.unwrap_or_default());
    }
    if has("prompts") {
        found.set("prompts", server.list::<ListPrompts>("prompts").await?);
    }
    Ok(found)
}

fn print(found: &RawObject) -> io::Result<()> {
    let about = found.object("about").unwrap_or_default();
    let info = about.object("serverInfo").unwrap_or_default();
    let text = |name: &str| {
        info.text(name)
            .map(|text| first_line(&text).to_owned())
            .unwrap_or_default()
    };
    let revision = about.text("protocolVersion").unwrap_or_default();
    show::heading(format_args!(
        "{} {}  (MCP {revision})",
        text("name"),
        text("version")
    ))?;
    if let Some(instructions) = about.text("instructions") {
        for line in instructions.lines() {
            show::line(format_args!("  {line}"))?;
        }
    }
    section(found, "tools", "Tools", "name", |tool| {
        fields_of_schema(&tool.read("inputSchema").unwrap_or_default())
    })?;
    section(found, "resources", "Resources", "uri", |_| Vec::new())?;
    section(
        found,
        "resourceTemplates",
        "Families of resources",
        "uriTemplate",
        |_| Vec::new(),
    )?;
    section(found, "prompts", "Prompts", "name", fields_of_prompt)
}

fn section(
    found: &RawObject,
    list: &str,
    title: &str,
    key: &str,
    fields: impl Fn(&RawObject) -> Vec<String>,
) -> io::Result<()> {
    let items: Vec<Box<RawValue>> = found.read(list).unwrap_or_default();
    if items.is_empty() {
        return Ok(());
    }
    show::heading(format_args!("\n{title}"))?;
    for item in items.iter().filter_map(|item| RawObject::parse(item).ok()) {
        let name = item.text(key).unwrap_or_default();
        let described = ["description", "title", "name"]
            .into_iter()
            .find_map(|member| item.text(member));
        match described
            .as_deref()
            .map(first_line)
            .filter(|text| *text != name)
        {
            Some(text) => show::line(format_args!("  {name}  –  {text}"))?,
            None => show::line(format_args!("  {name}"))?,
        }
        for field in fields(&item) {
            show::line(format_args!("      {field}"))?;
        }
    }
    Ok(())
}

fn fields_of_schema(schema: &Value) -> Vec<String> {
    let is_required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|n| n == name))
    };
    let mut fields: Vec<(&String, &Value)> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .collect();
    // What must be given stands first.
    fields.sort_by_key(|(name, _)| !is_required(name));
    let line = |(name, field): (&String, &Value)| {
        let optional = if is_required(name) { "" } else { ", optional" };
        let told = field["description"]
            .as_str()
            .map(|d| format!("  {}", first_line(d)))
            .unwrap_or_default();
        format!("{name} ({}{optional}){told}", kind(field))
    };
    fields.into_iter().map(line).collect()
}

/// What a field takes, in a word or by its choices.
fn kind(field: &Value) -> String {
    if let Some(choices) = field["enum"].as_array() {
        return choices.iter().map(told_value).collect::<Vec<_>>().join("|");
    }
    match &field["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("|"),
        _ => "any".into(),
    }
}

fn fields_of_prompt(prompt: &RawObject) -> Vec<String> {
    let arguments: Vec<RawObject> = prompt.read("arguments").unwrap_or_default();
    let line = |argument: &RawObject| {
        let optional = if argument.read("required") == Some(true) {
            ""
        } else {
            " (optional)"
        };
        let told = argument
            .text("description")
            .map(|d| format!("  {}", first_line(&d)))
            .unwrap_or_default();
        format!(
            "{}{optional}{told}",
            argument.text("name").unwrap_or_default()
        )
    };
    arguments.iter().map(line).collect()
}

/// Prints a result: whole for a program; for people its blocks, or its value where it has none.
pub(in crate::cli) fn show_result(result: &ToolResult, json: bool) -> io::Result<()> {
    if json {
        return show::json(&result.0);
    }
    let blocks = result.content();
    match result.structured_content() {
        Some(value) if blocks.is_empty() => show::line(format_args!("{value:#}")),
        _ => blocks.iter().try_for_each(|block| show::line(told(block))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: an argument is what the tool wants. Method: the same words against schemas.
    #[test]
    fn arguments_fit_the_schema() {
        for (text, schema, json) in [
            ("5", json!({ "type": "string" }), "\"5\""),
            ("5", json!({ "type": "integer" }), "5"),
            ("[1,2]", json!({ "type": "array" }), "[1,2]"),
            ("plain words", json!({}), "\"plain words\""),
            ("true", json!({}), "true"),
        ] {
            assert_eq!(value(text, &schema).get(), json);
        }
    }
}
