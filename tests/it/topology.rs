use std::path::Path;

use callboard::agents::question_router::AnswerStrategy;
use callboard::config::{Topology, UpstreamTransport};
use callboard::mcp::outbound::ServerDialect;

use crate::kit::Home;
use crate::kit::gateway::{end, serve};

const MAGICTUNNEL: &str = include_str!("data/magictunnel.yaml");

/// Goal: a MagicTunnel's file loads as it is written: names, transports, grants, strategies, its dialect, a node of its own.
/// Method: read it.
/// Rows: M-33, M-34, M-35, M-36, M-37, M-38, M-39, M-40, M-41.
#[test]
fn a_magictunnel_loads() {
    let topology = Topology::parse(MAGICTUNNEL, true, Path::new("")).unwrap();
    assert_eq!(topology.name, "magictunnel");
    let found: Vec<_> = topology
        .upstreams
        .iter()
        .map(|u| (&*u.id, u.transport.unwrap(), u.supports_elicitation))
        .collect();
    let expected = [
        (
            "ai-analysis-server",
            UpstreamTransport::StreamableHttp,
            true,
        ),
        ("local-llm-server", UpstreamTransport::Stdio, false),
        ("websocket-server", UpstreamTransport::Websocket, true),
    ];
    assert_eq!(found, expected);
    assert!(
        topology
            .upstreams
            .iter()
            .all(|u| u.supports_sampling && u.dialect == ServerDialect::MagicTunnel)
    );
    assert_eq!(
        topology.upstreams[1].command,
        ["npx", "@local/llm-mcp-server"]
    );
    let options = topology.answer_options();
    options.validate().unwrap();
    assert_eq!(
        options.sampling.strategy("ai-analysis-server"),
        AnswerStrategy::Models
    );
    assert_eq!(
        options.sampling.strategy("websocket-server"),
        AnswerStrategy::Models
    );
    assert!(
        options.sampling.fallback_to_models
            && options.servers["websocket-server"].supports_sampling
    );
    assert_eq!(topology.listeners[0].bind.to_string(), "127.0.0.1:3001");
}

/// Goal: it serves, connecting to nobody before somebody asks; switched off, it has nothing to serve. Method: start it on
/// free ports; a file with `enabled: false`.
/// Rows: M-2, M-33.
#[tokio::test]
async fn a_magictunnel_serves() {
    let home = Home::new();
    let file = home.write("magictunnel.yaml", MAGICTUNNEL);
    let (running, listening) = serve(&home, &[&file, "--free-ports"]).await;
    let names: Vec<_> = listening.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        [
            "magictunnel",
            "ai-analysis-server",
            "local-llm-server",
            "websocket-server"
        ]
    );
    assert!(
        listening
            .iter()
            .all(|(_, url)| url.starts_with("http://127.0.0.1:")),
        "{listening:?}"
    );
    end(running, &home).await;
    let off = home.write(
        "off.yaml",
        &MAGICTUNNEL.replace("enabled: true", "enabled: false"),
    );
    home.run(&["serve", &off]).await.with(2, "");
}
