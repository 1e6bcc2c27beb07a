//! A gateway inside this program, for as long as there is none in the binary.
use std::net::TcpListener;
use std::process::ExitCode;

use callboard::System;
use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve as serve_agent};
use callboard::mcp::outbound::{ClientOptions, Endpoint, EraChoice, McpClient};
use callboard_rpc::{Access, Trust};

pub fn serve(url: &str, era: &str) -> ExitCode {
    let served: Result<(), String> = actix_web::rt::System::new().block_on(async {
        let system = System::here();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let mut options =
            McpServerOptions { access: Access::Open(Trust::LoopbackOperator), ..McpServerOptions::default() };
        options.sessions.sessions_max = 4096;
        options.sessions.of_principal_max = 4096;
        let mut client = ClientOptions::default();
        client.era = match era {
            "legacy" => EraChoice::Only(callboard::mcp::outbound::Era::Legacy),
            _ => EraChoice::Only(callboard::mcp::outbound::Era::Modern),
        };
        let client =
            McpClient::new(Endpoint::Http(url.parse().map_err(|_| "url")?), client).map_err(|e| e.to_string())?;
        let workers = std::env::var("WORKERS").ok().and_then(|w| w.parse().ok()).unwrap_or(1);
        let listen = ListenOptions { connections_max: 4096, workers, ..Default::default() };
        let agent = system.spawn_with(move || client.clone());
        let serving = serve_agent(listener, agent, options, &listen).map_err(|e| e.to_string())?;
        println!("listening gateway http://{}/mcp", serving.address);
        std::thread::spawn(|| {
            std::io::stdin().lines().map_while(Result::ok).for_each(drop);
            std::process::exit(0);
        });
        serving.server.await.map_err(|e| e.to_string())
    });
    eprintln!("{served:?}");
    ExitCode::SUCCESS
}
