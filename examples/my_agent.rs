//! A custom agent, a struct and a message: asked in this process, as an MCP tool and as an A2A
//! skill.
use callboard::a2a::inbound::{A2aOptions, A2aServer, NamedAgents, serve as serve_a2a};
use callboard::a2a::outbound::{RemoteA2aAgent, RemoteOptions};
use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve as serve_mcp};
use callboard::mcp::outbound::{McpClient, McpClientOptions, ServerEndpoint};
use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
use std::net::TcpListener;
/// Greets a person by name.
#[derive(Message, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[message(reply = String, read_only)]
struct Greet {
    name: String,
}
struct Greeter;
impl Agent for Greeter {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Greet>();
    }
}
impl SyncHandler<Greet> for Greeter {
    fn handle(&mut self, Greet { name }: Greet, _: &mut Context) -> String {
        format!("Hello {name}!")
    }
}
#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (system, listen) = (System::on_current_arbiter(), ListenOptions::default());
    let (greeter, socket) = (system.spawn(Greeter), TcpListener::bind("127.0.0.1:0")?);
    let mcp = serve_mcp(TcpListener::bind("127.0.0.1:0")?, greeter.clone(), McpServerOptions::default(), &listen)?;
    let tool =
        McpClient::new(ServerEndpoint::from_url(&format!("http://{}/mcp", mcp.address))?, McpClientOptions::default())?;
    let url: url::Url = format!("http://{}", socket.local_addr()?).parse()?;
    let server = A2aServer::new(greeter.clone(), A2aOptions::new(url.clone()));
    let a2a = serve_a2a(socket, server, NamedAgents::default(), &listen)?;
    let _serving = [mcp.server, a2a.server].map(actix_web::rt::spawn);
    let everywhere = [greeter, system.spawn(tool), system.spawn(RemoteA2aAgent::new(url, RemoteOptions::default())?)];
    for (how, agent) in ["in this process", "as an MCP tool", "as an A2A skill"].iter().zip(&everywhere) {
        println!("{how}: {}", agent.ask(Greet { name: "you".to_owned() }).await?);
    }
    Ok(())
}
