//! A third clinic without code changes: its own topology file, and one more entry in the host's
//! registry.
//!
//! The clinics run in this process, each with its own database and socket, so that one command
//! shows everything. In production each is `callboard serve FILE`.

use std::error::Error;
use std::path::Path;

use callboard::agents::orchestrator::AnswerStatus;
use callboard::agents::plan::{ClinicEntry, ClinicRegistry};
use callboard::config::Topology;
use callboard::{Clinics, Node};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/clinics");
const QUESTION: &str = "List all neurology patients and check dermatology patients with psoriasis";

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (files, state) = (Path::new(FILES), tempfile::tempdir()?);
    let mut nodes = Vec::new();
    for file in ["cardiology.toml", "dermatology.toml", "neurology.toml"] {
        // Free ports, so that the example can run beside other clinics.
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
        AnswerStatus::Answered => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Returns the registry with the actual addresses of the clinics.
fn found(declared: &ClinicRegistry, nodes: &[Node]) -> Result<ClinicRegistry, Box<dyn Error>> {
    let mut clinics = declared.clinics().to_vec();
    for listening in nodes.iter().flat_map(Node::listeners) {
        let of = clinics
            .iter_mut()
            .find(|clinic| clinic.id == listening.agent)
            .ok_or("a clinic that the host doesn't know")?;
        *of = ClinicEntry { url: listening.url.clone(), ..of.clone() };
    }
    Ok(ClinicRegistry::try_from(clinics)?)
}
