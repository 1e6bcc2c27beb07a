//! WebSocket: a text message each.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use secrecy::ExposeSecret;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::LinkError;
use super::duplex::{Duplex, Engine, Outbox};
use crate::outbound::auth::Challenge;
use crate::outbound::ear::Ear;
use crate::outbound::options::{AUTH_REFUSALS_MAX, ClientOptions};

/// The subprotocol that MCP goes under.
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Opens the WebSocket at `url`.
pub(super) async fn open(url: &Url, options: &ClientOptions, ear: Arc<Ear>) -> Result<Duplex, LinkError> {
    let connecting = timeout(options.connect_timeout, connect(url, options));
    let socket = connecting.await.map_err(|_| LinkError::TimedOut(options.connect_timeout))??;
    let (duplex, engine, outbox) =
        Duplex::new(ear, options.limits, options.name.as_deref().unwrap_or(url.host_str().unwrap_or_default()));
    tokio::spawn(speak(engine, outbox, socket));
    Ok(duplex)
}

async fn connect(url: &Url, options: &ClientOptions) -> Result<Socket, LinkError> {
    let bytes_max = Some(options.limits.body_bytes_max);
    let config = WebSocketConfig::default().max_message_size(bytes_max).max_frame_size(bytes_max);
    let mut refused_before = 0;
    loop {
        let sent = match &options.authorizer {
            Some(authorizer) => authorizer.authorization().await.map_err(|e| LinkError::Auth(Arc::new(e)))?,
            None => None,
        };
        let mut request =
            url.as_str().into_client_request().map_err(|_| LinkError::Unreachable("not a WebSocket URL"))?;
        let headers = request.headers_mut();
        for (name, value) in &options.headers {
            headers.append(name, value.clone());
        }
        headers.insert(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        if let Some(value) = sent.as_ref().and_then(|secret| HeaderValue::from_str(secret.expose_secret()).ok()) {
            headers.insert(AUTHORIZATION, value);
        }
        // The last argument: small messages aren't held back (TCP_NODELAY).
        let response = match connect_async_with_config(request, Some(config), true).await {
            Ok((socket, _)) => return Ok(socket),
            Err(Error::Http(response)) => response,
            Err(_) => return Err(LinkError::Unreachable("can't open the WebSocket")),
        };
        let status = response.status().as_u16();
        let told = response.headers().get_all("www-authenticate");
        let told: Vec<&str> = told.iter().filter_map(|value| value.to_str().ok()).collect();
        let challenge = Challenge { status, www_authenticate: &told, sent: sent.as_ref(), refused_before };
        let again = match &options.authorizer {
            Some(authorizer) if Challenge::concerns(status) && refused_before < AUTH_REFUSALS_MAX => {
                authorizer.challenged(challenge).await.map_err(|e| LinkError::Auth(Arc::new(e)))?
            }
            _ => false,
        };
        if !again {
            return Err(LinkError::Status(status));
        }
        refused_before += 1;
    }
}

async fn speak(engine: Engine, mut outbox: Outbox, socket: Socket) {
    let (mut sink, mut stream) = socket.split();
    let hear = async {
        loop {
            match stream.next().await {
                Some(Ok(Message::Text(text))) => engine.take(text.as_bytes()),
                Some(Ok(Message::Binary(bytes))) => engine.take(&bytes),
                Some(Ok(Message::Close(_))) | None => return LinkError::Broken("the server has closed the WebSocket"),
                // Pings are answered by the socket itself.
                Some(Ok(_)) => {}
                Some(Err(Error::Capacity(_))) => return LinkError::TooLarge,
                Some(Err(_)) => return LinkError::Broken("the WebSocket is broken"),
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            // What is written here is JSON, and so UTF-8.
            let Ok(text) = String::from_utf8(message) else { continue };
            if sink.send(Message::text(text)).await.is_err() {
                return LinkError::Broken("the WebSocket is broken");
            }
        }
        LinkError::Broken("the client has ended")
    };
    let stop = engine.stop.clone();
    let why = tokio::select! {
        why = hear => why,
        why = write => why,
        () = stop.cancelled() => LinkError::Broken("the client has ended"),
    };
    engine.close(&why);
    // The peer may be gone already.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}

/// How long a server may take to hear that the WebSocket closes.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
