//! An MCP server with an echo tool, in a process of its own, and clients that call it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve as serve_agent};
use callboard::message::ToolResult;
use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kit::{Caller, Http, Running, header};

/// A part of every text; the rest says which call it was.
const TEXT: &str = "the quick brown fox jumps over the lazy dog, call";

/// Which MCP is spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With a handshake and a session.
    Legacy,
    /// Without.
    Modern,
}

/// An MCP endpoint with an echo tool.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Address of the server.
    pub address: SocketAddr,
    /// The path of its URL.
    pub path: &'static str,
    /// Name of the echo tool.
    pub tool: &'static str,
    /// Access token that the clients send; `None` without one.
    pub token: Option<String>,
}

/// A client: one connection that has said whatever comes before the first call.
pub struct Client {
    http: Http,
    endpoint: Endpoint,
    era: Era,
    /// The header lines of a call.
    headers: String,
    /// Among all clients of the run: no two calls have one text.
    number: usize,
    calls: u64,
}

/// Required members of an answer.
#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: Echoed<'a>,
}

#[derive(Deserialize)]
struct Echoed<'a> {
    #[serde(borrow)]
    content: [Block<'a>; 1],
}

#[derive(Deserialize)]
struct Block<'a> {
    text: &'a str,
}

impl Client {
    pub async fn open_all(
        endpoint: &Endpoint,
        era: Era,
        count: usize,
    ) -> Result<Vec<Self>, String> {
        let mut all = Vec::with_capacity(count);
        for number in 0..count {
            all.push(Self::open(endpoint, era, number).await?);
        }
        Ok(all)
    }

    async fn open(endpoint: &Endpoint, era: Era, number: usize) -> Result<Self, String> {
        let http = Http::open(endpoint.address).await?;
        let mut headers = "accept: application/json, text/event-stream\r\n".to_owned();
        if let Some(token) = &endpoint.token {
            headers += &format!("authorization: Bearer {token}\r\n");
        }
        let mut client = Self {
            http,
            endpoint: endpoint.clone(),
            era,
            headers,
            number,
            calls: 0,
        };
        let more = match era {
            Era::Legacy => {
                format!(
                    "mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {}\r\n",
                    client.initialize().await?
                )
            }
            Era::Modern => {
                let tool = endpoint.tool;
                format!(
                    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n"
                )
            }
        };
        client.headers += &more;
        if era == Era::Legacy {
            let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            client.exchange(&done.to_string()).await?;
        }
        Ok(client)
    }

    async fn initialize(&mut self) -> Result<String, String> {
        let client = json!({ "name": "bench", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let (head, _) = self.exchange(&begin.to_string()).await?;
        header(head, "mcp-session-id")
            .map(str::to_owned)
            .ok_or_else(|| format!("no session: {head}"))
    }

    async fn exchange(&mut self, body: &str) -> Result<(&str, &str), String> {
        self.http.post(self.endpoint.path, &self.headers, body);
        self.http.exchange().await
    }
}

impl Caller for Client {
    async fn call(&mut self) -> Result<Duration, String> {
        self.calls += 1;
        let (id, number, tool) = (self.calls, self.number, self.endpoint.tool);
        let text = format!("{TEXT} {id} of client {number}");
        let meta = match self.era {
            Era::Legacy => "",
            Era::Modern => {
                r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#
            }
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}}{meta}}}}}"#
        );
        self.http.post(self.endpoint.path, &self.headers, &body);
        let began = Instant::now();
        let (_, answer) = self.http.exchange().await?;
        let took = began.elapsed();
        // As an event of a stream, or alone.
        let answer = answer.rfind("data: {").map_or(answer, |at| {
            answer[at + 6..].lines().next().unwrap_or_default()
        });
        let answer: Answer<'_> = serde_json::from_str(answer)
            .map_err(|e| format!("no answer to a call: {e}: {answer}"))?;
        let [block] = answer.result.content;
        match answer.id == id && block.text == text {
            true => Ok(took),
            false => Err(format!(
                "call {id} of client {number} was answered as {}: {:?}",
                answer.id, block.text
            )),
        }
    }
}

/// A process that serves, ended when it is dropped.
pub struct Process {
    child: Running,
    /// Endpoint of the server.
    pub endpoint: Endpoint,
}

impl Process {
    /// This program again, as the server of this name.
    pub fn serving(name: &str) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        Self::announced(Command::new(program).args(["--serve", name]))
    }

    /// One whose first line ends with its URL. It ends when its standard input does.
    pub fn announced(command: &mut Command) -> Result<Self, String> {
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut output = BufReader::new(child.0.stdout.take().ok_or("a child without output")?);
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| e.to_string())?;
        let url = line
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|url| url.strip_prefix("http://"));
        let address = url.and_then(|url| url.split('/').next()?.parse().ok());
        let address = address.ok_or_else(|| format!("no address: {line:?}"))?;
        // Whatever else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
        Ok(Self {
            child,
            endpoint: Endpoint {
                address,
                path: "/mcp",
                tool: "echo",
                token: None,
            },
        })
    }

    /// One that listens at this endpoint.
    pub fn at(command: &mut Command, endpoint: Endpoint) -> Result<Self, String> {
        Ok(Self {
            child: Running::start(command)?.listens(endpoint.address)?,
            endpoint,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }
}

/// Says where this process listens, and ends it with its standard input.
pub fn announce(address: SocketAddr) {
    println!("listening echo http://{address}/mcp");
    std::thread::spawn(|| {
        std::io::stdin()
            .lines()
            .map_while(Result::ok)
            .for_each(drop);
        std::process::exit(0);
    });
}

#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Echo {
    text: String,
}

struct EchoAgent;

impl Agent for EchoAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for EchoAgent {
    fn handle(&mut self, Echo { text }: Echo, _: &mut Context) -> ToolResult {
        ToolResult::text(text)
    }
}

/// Serves the echo tool until the process is ended.
pub fn serve() -> Result<bool, String> {
    actix_web::rt::System::new().block_on(async {
        let system = System::start(1).map_err(|e| e.to_string())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let mut options = McpServerOptions {
            access: AccessControl::Open(UnauthenticatedAccess::LoopbackOperator),
            ..McpServerOptions::default()
        };
        options.sessions.sessions_max = 4_096;
        options.inbound.principal_share_percent = 100;
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let listen = ListenOptions {
            workers,
            connections_max: 4_096,
            ..ListenOptions::default()
        };
        let serving = serve_agent(listener, system.spawn(EchoAgent), options, &listen)
            .map_err(|e| e.to_string())?;
        announce(serving.address);
        serving
            .server
            .await
            .map(|()| false)
            .map_err(|e| e.to_string())
    })
}
