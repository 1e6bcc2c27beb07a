//! `callboard mcp list` and `callboard mcp call`: an MCP client for the command line.

pub(super) mod terminal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::StaticBearer;
use callboard_mcp::outbound::{
    CALL_TIMEOUT_DEFAULT, ChildCommand, Era, EraChoice, McpClient, McpClientOptions,
    PAGES_MAX_DEFAULT, ServerEndpoint,
};
use callboard_message::capabilities::{
    CallTool, DescribeAgent, ListPrompts, ListResourceTemplates, ListResources, ListTools,
};
use callboard_message::{Failure, FailureKind, Message, RawObject, Root, ToolResult};
use callboard_runtime::{AgentRef, Caller, System};
use clap::Subcommand;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use terminal::{TerminalCaller, ask_until, should_ask};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::arguments::{CredentialArguments, one_of_names};
use super::{
    CommandError, CommandResult, EXIT_ANSWERED, EXIT_USAGE, output, run_until_interrupted,
};
use crate::node::spawn_cloned;
use crate::text::{first_line, format_content, format_value, truncate_chars};

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Show name, version, tools, resources and prompts of a server.
    List(ServerArguments),
    /// Call a tool. Exit code: 0 answered, 2 usage, 3 blocked, 4 failed.
    Call(CallArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct CallArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Name of the tool.
    tool: String,
    /// Argument of the tool. The value is a string if the tool's schema says so; else JSON if it is
    /// valid JSON, else a string.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    /// Further arguments of the tool, as with `--arg`.
    #[arg(value_name = "NAME=VALUE")]
    words: Vec<String>,
    /// Arguments of the tool as a JSON object. `--arg` takes precedence.
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Read answers to the server's questions from standard input even if that is no terminal.
    #[arg(long)]
    ask: bool,
    /// Folder that the server may use as a root. May be repeated.
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
}

/// Default of `--connect-timeout`, in seconds.
const CONNECT_TIMEOUT_DEFAULT_S: u64 = 10;
const ERA_CHOICES: [(&str, EraChoice); 3] = [
    ("auto", EraChoice::Auto),
    ("legacy", EraChoice::Only(Era::Legacy)),
    ("modern", EraChoice::Only(Era::Modern)),
];

#[derive(Debug, clap::Args)]
pub(super) struct ServerArguments {
    /// URL of the server (http, https, ws, wss), or a command that serves MCP over standard input
    /// and output, in quotes: "npx -y SERVER".
    #[arg(value_name = "URL|COMMAND")]
    server: String,
    /// MCP era: `legacy` begins with a handshake (2024-11-05 to 2025-11-25), `modern` is stateless
    /// (2026-07-28).
    #[arg(long, default_value = "auto", value_parser = one_of_names(ERA_CHOICES))]
    era: EraChoice,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// Environment variable that the command inherits besides HOME, LANG, PATH, TMPDIR and USER.
    /// May be repeated.
    #[arg(long = "env", value_name = "NAME")]
    variables: Vec<String>,
    /// Limit for the whole command, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// Limit for connecting.
    #[arg(long, value_name = "SECONDS", default_value_t = CONNECT_TIMEOUT_DEFAULT_S)]
    connect_timeout: u64,
}

/// Runs `callboard mcp`.
pub(super) async fn run(command: McpCommand) -> CommandResult {
    match command {
        McpCommand::List(arguments) => {
            let listed = run_with_server(&arguments, None, inspect_server).await;
            let found = print_failure(listed, arguments.json)?;
            match arguments.json {
                true => output::print_json(&found)?,
                false => print_server(&found)?,
            }
        }
        McpCommand::Call(arguments) => {
            let json = arguments.server.json;
            let result = print_failure(call_tool(&arguments).await, json)?;
            print_result(&result, json)?;
            if result.is_error() {
                return Err(CommandError::failed("the tool reported an error"));
            }
        }
    }
    Ok(EXIT_ANSWERED)
}

/// Returns `outcome` unchanged. With `--json`, an error is also printed as the object `error`, with
/// the data of the server's error if it has some.
fn print_failure<T>(outcome: Result<T, CommandError>, json: bool) -> Result<T, CommandError> {
    if let (Err(error), true) = (&outcome, json) {
        let failure = error.failure.as_deref();
        let unnamed = match error.exit_code {
            EXIT_USAGE => FailureKind::InvalidInput,
            _ => FailureKind::Internal,
        };
        output::print_json(&json!({
            "error": {
                "kind": failure.map_or(unnamed, |failure| failure.kind),
                "message": failure.map_or(&error.message, |failure| &failure.message),
                "data": failure.and_then(|failure| failure.data.as_ref()),
            },
        }))?;
    }
    outcome
}

/// Limit for closing the connection to the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to an MCP server, and the actor system in which the client runs as an agent.
pub(super) struct ServerConnection {
    agent: AgentRef,
    system: System,
    client: McpClient,
    deadline: Instant,
    timeout: Duration,
    caller: Option<Arc<dyn Caller>>,
}

impl ServerConnection {
    /// Creates a connection, which its first request opens. Requests fail once the time `within`
    /// from now is over. Progress and questions go to `only_caller` of the options.
    pub(super) fn new(
        endpoint: ServerEndpoint,
        options: McpClientOptions,
        within: Duration,
    ) -> Result<Self, CommandError> {
        let caller = options.only_caller.clone();
        let client = McpClient::new(endpoint, options)?;
        let system = System::on_current_arbiter();
        let agent = spawn_cloned(&system, "server", client.clone());
        Ok(Self {
            agent,
            system,
            client,
            deadline: Instant::now() + within,
            timeout: within,
            caller,
        })
    }

    /// Sends a request by method name and returns the result object. Fails once the command's time
    /// limit has passed.
    async fn call_object<M: Message>(&self, params: RawObject) -> Result<RawObject, CommandError> {
        let asked = ask_until(
            &self.agent,
            M::NAME,
            &params,
            self.caller.clone(),
            self.deadline,
        );
        let answer = timeout_at(self.deadline, asked).await;
        let late = || {
            let why = format!("not done within {:?}: try a longer --timeout", self.timeout);
            CommandError {
                failure: Some(Box::new(Failure::timed_out(&why))),
                ..CommandError::failed(why)
            }
        };
        let answer = answer.map_err(|_| late())??;
        RawObject::parse(&answer).map_err(|_| {
            CommandError::failed(
                "the server's answer is no JSON object: the server has to be corrected",
            )
        })
    }

    /// Returns the negotiated MCP revision; empty before the first request.
    pub(super) async fn protocol_revision(&self) -> String {
        self.agent.observe().await["revision"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Fetches the pages of a list, at most [`PAGES_MAX_DEFAULT`]; the rest is omitted with a
    /// warning in the log. `M` is the message that lists, `items` the member of its result with the
    /// items.
    pub(super) async fn list_items<M: Message>(
        &self,
        items: &str,
    ) -> Result<Vec<Box<RawValue>>, CommandError> {
        let (mut all, mut params) = (Vec::new(), RawObject::new());
        for _ in 0..PAGES_MAX_DEFAULT {
            let mut page = self.call_object::<M>(params).await?;
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
        tracing::warn!(
            pages_max = PAGES_MAX_DEFAULT,
            "list has too many pages: the rest is omitted"
        );
        Ok(all)
    }

    /// Closes the session and stops a child process.
    pub(super) async fn close(self) {
        self.agent.stop();
        let ended = async {
            self.agent.wait_for_exit().await;
            self.client.drained().await;
        };
        if timeout(CLOSE_TIMEOUT, ended).await.is_err() {
            tracing::warn!("the MCP server did not stop in time: its process may still run");
        }
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// Runs `work` with the server, then closes the connection. `only_caller` answers the server's
/// questions; without it the server is offered none.
async fn run_with_server<T>(
    arguments: &ServerArguments,
    only_caller: Option<Arc<dyn Caller>>,
    work: impl AsyncFnOnce(&ServerConnection) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let within = Duration::from_secs(arguments.timeout);
    let options = McpClientOptions {
        era: arguments.era,
        expects_questions: only_caller.is_some(),
        offered_capabilities: only_caller
            .as_ref()
            .map(|caller| caller.capabilities())
            .unwrap_or_default(),
        // The stream carries only questions outside of calls; changes aren't shown.
        listen: only_caller.is_some(),
        only_caller,
        connect_timeout: Duration::from_secs(arguments.connect_timeout),
        call_timeout: within,
        tls: arguments.credentials.client_tls()?,
        ..McpClientOptions::default()
    };
    let mut options = arguments
        .credentials
        .add_headers(options, McpClientOptions::with_header)?;
    let url = Some(&arguments.server).filter(|server| is_url(server));
    let url = url.and_then(|url| url.parse::<Url>().ok());
    if let Some(token) = arguments.credentials.bearer_token(url.as_ref())? {
        options.authorizer = Some(Arc::new(StaticBearer::new(&token)?));
    }
    let server = ServerConnection::new(server_endpoint(arguments)?, options, within)?;
    let outcome = run_until_interrupted(work(&server)).await;
    server.close().await;
    outcome
}

/// Returns whether a server is given by its URL, not by its command line.
fn is_url(server: &str) -> bool {
    ["http://", "https://", "ws://", "wss://"]
        .iter()
        .any(|scheme| server.starts_with(scheme))
}

fn server_endpoint(arguments: &ServerArguments) -> Result<ServerEndpoint, CommandError> {
    if is_url(&arguments.server) {
        return Ok(ServerEndpoint::from_url(&arguments.server)?);
    }
    let mut words = shlex::split(&arguments.server)
        .unwrap_or_default()
        .into_iter();
    let program = words.next().ok_or_else(|| {
        CommandError::usage("the server's command line can't be parsed: check its quotes")
    })?;
    let mut command = ChildCommand::new(program, words);
    command
        .env_passthrough
        .extend(arguments.variables.iter().cloned());
    Ok(ServerEndpoint::Child(command))
}

async fn call_tool(arguments: &CallArguments) -> Result<ToolResult, CommandError> {
    let given = parse_tool_arguments(arguments)?;
    let terminal = TerminalCaller::new(
        should_ask(arguments.ask, false),
        true,
        parse_roots(&arguments.roots)?,
    );
    let using = async |server: &ServerConnection| send_tool_call(server, arguments, given).await;
    run_with_server(&arguments.server, Some(Arc::new(terminal)), using)
        .await
        .map(ToolResult)
}

/// Converts folders to roots. Fails with a usage error for a folder that doesn't exist.
fn parse_roots(folders: &[PathBuf]) -> Result<Vec<Root>, CommandError> {
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

/// Arguments as a JSON object, and those whose type depends on the tool's schema.
type ToolArguments<'a> = (RawObject, Vec<(&'a str, &'a str)>);

async fn send_tool_call(
    server: &ServerConnection,
    arguments: &CallArguments,
    (mut given, loose): ToolArguments<'_>,
) -> Result<RawObject, CommandError> {
    // Only the tool's schema says whether `5` is text. A server that doesn't list its tools may have it all the same.
    if !loose.is_empty() {
        let tools = server
            .list_items::<ListTools>("tools")
            .await
            .unwrap_or_default();
        let schema = input_schema(&tools, &arguments.tool);
        for (name, text) in loose {
            given.set_raw(name, argument_value(text, &schema["properties"][name]));
        }
    }
    server
        .call_object::<CallTool>(CallTool::new(&arguments.tool, given).0)
        .await
}

fn parse_tool_arguments(arguments: &CallArguments) -> Result<ToolArguments<'_>, CommandError> {
    let whole = arguments
        .json_args
        .as_deref()
        .map(serde_json::from_str)
        .transpose();
    let whole = whole
        .map_err(|e| CommandError::usage(format_args!("--json-args must be a JSON object: {e}")))?;
    let all = arguments.arguments.iter().chain(&arguments.words);
    let loose = all.map(|given| {
        given.split_once('=').ok_or_else(|| {
            CommandError::usage(format_args!("{given:?} is no argument: write NAME=VALUE"))
        })
    });
    Ok((whole.unwrap_or_default(), loose.collect::<Result<_, _>>()?))
}

fn input_schema(tools: &[Box<RawValue>], name: &str) -> Value {
    let mut tools = tools.iter().filter_map(|tool| RawObject::parse(tool).ok());
    tools
        .find(|tool| tool.text("name").as_deref() == Some(name))
        .and_then(|t| t.read("inputSchema"))
        .unwrap_or_default()
}

/// Converts a value to a string if the schema says so; else to JSON if it is valid, else to a
/// string.
fn argument_value(text: &str, schema: &Value) -> Box<RawValue> {
    let quoted = || to_raw_value(text).unwrap_or_default();
    match schema["type"].as_str() {
        Some("string") => quoted(),
        _ => RawValue::from_string(text.to_owned()).unwrap_or_else(|_| quoted()),
    }
}

/// Describes the server at a URL: its `serverInfo`, capabilities and instructions.
pub(super) async fn describe_server(
    url: String,
    credentials: CredentialArguments,
    timeout: u64,
) -> Result<RawObject, CommandError> {
    let connect_timeout = timeout.min(CONNECT_TIMEOUT_DEFAULT_S);
    let variables = Vec::new();
    let server = ServerArguments {
        server: url,
        era: EraChoice::Auto,
        json: false,
        credentials,
        variables,
        timeout,
        connect_timeout,
    };
    let describe = async |server: &ServerConnection| {
        server.call_object::<DescribeAgent>(RawObject::new()).await
    };
    run_with_server(&server, None, describe).await
}

/// Returns the server's description (`about`) and its lists.
async fn inspect_server(server: &ServerConnection) -> Result<RawObject, CommandError> {
    let about = server
        .call_object::<DescribeAgent>(RawObject::new())
        .await?;
    let has = |name: &str| {
        about
            .object("capabilities")
            .is_some_and(|can| can.has(name))
    };
    let mut found = RawObject::single("about", &about);
    if has("tools") {
        found.set("tools", server.list_items::<ListTools>("tools").await?);
    }
    if has("resources") {
        found.set(
            "resources",
            server.list_items::<ListResources>("resources").await?,
        );
        // Older servers have resources but know nothing of templates.
        let templates = server
            .list_items::<ListResourceTemplates>("resourceTemplates")
            .await;
        found.set("resourceTemplates", templates.unwrap_or_default());
    }
    if has("prompts") {
        found.set(
            "prompts",
            server.list_items::<ListPrompts>("prompts").await?,
        );
    }
    Ok(found)
}

/// Maximum length of a description that is shown to a person, in characters. Only its first line is
/// shown.
const DESCRIPTION_CHARS_MAX: usize = 200;
/// Maximum number of lines of a server's instructions that are shown to a person.
const INSTRUCTION_LINES_MAX: usize = 20;

/// Returns the first line of a description, cut to [`DESCRIPTION_CHARS_MAX`] characters.
fn short_description(text: &str) -> String {
    truncate_chars(first_line(text), DESCRIPTION_CHARS_MAX)
}

fn print_server(found: &RawObject) -> io::Result<()> {
    let about = found.object("about").unwrap_or_default();
    let info = about.object("serverInfo").unwrap_or_default();
    let text = |name: &str| {
        info.text(name)
            .map(|text| short_description(&text))
            .unwrap_or_default()
    };
    let revision = about.text("protocolVersion").unwrap_or_default();
    output::print_heading(format_args!(
        "{} {}  (MCP {revision})",
        text("name"),
        text("version")
    ))?;
    let instructions = about.text("instructions").unwrap_or_default();
    for line in instructions.lines().take(INSTRUCTION_LINES_MAX) {
        let line = truncate_chars(line, DESCRIPTION_CHARS_MAX);
        output::print_line(format_args!("  {line}"))?;
    }
    if instructions.lines().nth(INSTRUCTION_LINES_MAX).is_some() {
        output::print_line("  …")?;
    }
    print_section(found, "tools", "Tools", "name", |tool| {
        schema_fields(&tool.read("inputSchema").unwrap_or_default())
    })?;
    print_section(found, "resources", "Resources", "uri", |_| Vec::new())?;
    print_section(
        found,
        "resourceTemplates",
        "Families of resources",
        "uriTemplate",
        |_| Vec::new(),
    )?;
    print_section(found, "prompts", "Prompts", "name", prompt_fields)
}

fn print_section(
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
    output::print_heading(format_args!("\n{title}"))?;
    for item in items.iter().filter_map(|item| RawObject::parse(item).ok()) {
        let name = item.text(key).unwrap_or_default();
        let described = ["description", "title", "name"]
            .into_iter()
            .find_map(|member| item.text(member));
        match described
            .as_deref()
            .map(short_description)
            .filter(|text| *text != name)
        {
            Some(text) => output::print_line(format_args!("  {name}  –  {text}"))?,
            None => output::print_line(format_args!("  {name}"))?,
        }
        for field in fields(&item) {
            output::print_line(format_args!("      {field}"))?;
        }
    }
    Ok(())
}

fn schema_fields(schema: &Value) -> Vec<String> {
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
            .map(|d| format!("  {}", short_description(d)))
            .unwrap_or_default();
        format!("{name} ({}{optional}){told}", field_type(field))
    };
    fields.into_iter().map(line).collect()
}

/// Returns the type of a field, or its choices.
fn field_type(field: &Value) -> String {
    if let Some(choices) = field["enum"].as_array() {
        return choices
            .iter()
            .map(format_value)
            .collect::<Vec<_>>()
            .join("|");
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

fn prompt_fields(prompt: &RawObject) -> Vec<String> {
    let arguments: Vec<RawObject> = prompt.read("arguments").unwrap_or_default();
    let line = |argument: &RawObject| {
        let optional = if argument.read("required") == Some(true) {
            ""
        } else {
            " (optional)"
        };
        let told = argument
            .text("description")
            .map(|d| format!("  {}", short_description(&d)))
            .unwrap_or_default();
        format!(
            "{}{optional}{told}",
            argument.text("name").unwrap_or_default()
        )
    };
    arguments.iter().map(line).collect()
}

/// Prints a result: the JSON object with `json`; otherwise its content blocks, or its structured
/// value if there are none.
pub(in crate::cli) fn print_result(result: &ToolResult, json: bool) -> io::Result<()> {
    if json {
        return output::print_json(&result.0);
    }
    let blocks = result.content();
    match result.structured_content() {
        Some(value) if blocks.is_empty() => output::print_line(format_args!("{value:#}")),
        _ => blocks
            .iter()
            .try_for_each(|block| output::print_line(format_content(block))),
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
            assert_eq!(argument_value(text, &schema).get(), json);
        }
    }
}
