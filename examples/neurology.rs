//! A third clinic, and no code changed: its own topology file, and one entry more in the host's registry.
//!
//! The clinics run in this process, each with its database and its socket, so that one command shows it all; in earnest
//! each is `callboard serve FILE`.

use std::error::Error;
use std::path::Path;

use callboard::agents::orchestrator::Status;
use callboard::agents::plan::{ClinicEntry, Registry};
use callboard::config::Topology;
use callboard::{Clinics, Node};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/clinics");
const QUESTION: &str = "List all neurology patients and check dermatology patients with psoriasis";

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (files, state) = (Path::new(FILES), tempfile::tempdir()?);
    let mut nodes = Vec::new();
    for file in ["cardiology.toml", "dermatology.toml", "neurology.toml"] {
        // Free ports, so that the example runs beside clinics that are up already.
        nodes.push(Node::start(&Topology::read(&files.join(file))?, state.path(), true).await?);
    }

    let mut host = Topology::read(&files.join("host-with-neurology.toml"))?;
    host.registry = found(&host.registry, &nodes)?;
    let clinics = Clinics::connect(host)?;
    println!("{QUESTION}");
    let answer = clinics.ask(QUESTION, None, |line| println!("  · {line}")).await?;
    println!("\n{}", answer.text());

    clinics.shutdown().await;
    for node in nodes {
        node.shutdown().await;
    }
    match answer.status() {
        Status::Answered => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// The registry with the addresses that the clinics got.
fn found(declared: &Registry, nodes: &[Node]) -> Result<Registry, Box<dyn Error>> {
    let mut clinics = declared.clinics().to_vec();
    for listening in nodes.iter().flat_map(Node::listeners) {
        let of = clinics
            .iter_mut()
            .find(|clinic| clinic.id == listening.agent)
            .ok_or("a clinic that the host doesn't know")?;
        *of = ClinicEntry { url: listening.url.clone(), ..of.clone() };
    }
    Ok(Registry::try_from(clinics)?)
}
