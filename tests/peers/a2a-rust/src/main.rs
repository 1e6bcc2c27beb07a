//! The official Rust SDK of A2A in a process of its own: `a2a-peer serve PORT`, `a2a-peer echo PORT THREADS`,
//! `a2a-peer client URL`. What the server does and the client tries is what `tests/peers/a2a/mod.rs` says.

mod client;
mod echo;
mod hook;
mod server;

use std::error::Error;
use std::net::Ipv4Addr;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;

// As callboard's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", port] => {
            runtime(2)?.block_on(serve(port.parse()?, server::router(port.parse()?)))
        }
        ["echo", port, threads] => {
            runtime(threads.parse()?)?.block_on(serve(port.parse()?, echo::router()))
        }
        ["client", url] => {
            println!("{}", runtime(2)?.block_on(client::round(url))?);
            Ok(())
        }
        _ => Err("usage: a2a-peer serve PORT | echo PORT THREADS | client URL".into()),
    }
}

fn runtime(threads: usize) -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?)
}

async fn serve(port: u16, router: Router) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).await?)
}
