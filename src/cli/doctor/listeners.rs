//! Checks of listeners and console: their addresses and certificates.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::keys::check_private_key;
use super::port_owner::PortOwner;
use super::report::DoctorCheck;
use crate::config::{ConsoleDeclaration, ListenerTlsDeclaration, Topology};

/// Checks whether each address can be bound, or is in use by a node of the topology file `file`.
pub(super) fn check_addresses(topology: &Topology, file: &Path) -> Vec<DoctorCheck> {
    let listeners = topology.listeners.iter();
    let listeners = listeners.flat_map(|listener| {
        let grpc = listener.grpc_bind.into_iter();
        std::iter::once(listener.bind).chain(grpc)
    });
    let console: Option<&ConsoleDeclaration> = topology.section();
    let listeners = listeners.map(|address| ("listener", address));
    let console = console.map(|console| ("console", console.bind));
    listeners
        .chain(console)
        .map(|(kind, address)| check_address(&format!("{kind} {address}"), address, file))
        .collect()
}

fn check_address(subject: &str, address: SocketAddr, file: &Path) -> DoctorCheck {
    match TcpListener::bind(address) {
        Ok(_) => DoctorCheck::ok(subject, "the address is free"),
        Err(error) if error.kind() == ErrorKind::AddrInUse => used_address(subject, address, file),
        Err(error) => unusable_address(subject, &error),
    }
}

/// Returns the result for an address at which a process listens.
fn used_address(subject: &str, address: SocketAddr, file: &Path) -> DoctorCheck {
    match PortOwner::find(address) {
        Some(owner) if owner.is_callboard() && owner.was_started_with(file) => {
            DoctorCheck::ok(subject, format!("in use by the running node, {owner}"))
        }
        Some(owner) if owner.is_callboard() => DoctorCheck::warning(
            subject,
            format!("in use by {owner}, a callboard node: perhaps another file's"),
            "unless it runs this file, stop it, or write another port in `bind`",
        ),
        Some(owner) => DoctorCheck::error(
            subject,
            format!("in use by {owner}"),
            "stop that program, or write another port in `bind`",
        ),
        None => DoctorCheck::warning(
            subject,
            "in use by a process that this user can't look at",
            "unless it is your node, stop it, or write another port in `bind`",
        ),
    }
}

fn unusable_address(subject: &str, error: &io::Error) -> DoctorCheck {
    let (found, remedy) = match error.kind() {
        ErrorKind::AddrNotAvailable => (
            "this machine doesn't have the address".to_owned(),
            "write one of its addresses in `bind`, such as 127.0.0.1:PORT",
        ),
        ErrorKind::PermissionDenied => (
            "this user may not listen at the port".to_owned(),
            "write a port from 1024 on in `bind`, or give the program the capability CAP_NET_BIND_SERVICE",
        ),
        _ => (
            format!("failed to listen: {error}"),
            "write another address in `bind`",
        ),
    };
    DoctorCheck::error(subject, found, remedy)
}

/// Checks the certificates of listeners and console, except those of an ACME authority, which the node orders.
pub(super) fn check_certificates(topology: &Topology) -> Vec<DoctorCheck> {
    let listeners = topology.listeners.iter();
    let listeners = listeners.filter_map(|listener| Some((listener.bind, listener.tls.as_ref()?)));
    let console: Option<&ConsoleDeclaration> = topology.section();
    let console = console.and_then(|console| Some((console.bind, console.tls.as_ref()?)));
    let declared = listeners.chain(console);
    declared
        .filter(|(_, tls)| tls.acme.is_none())
        .map(|(address, tls)| check_certificate(address, tls))
        .collect()
}

fn check_certificate(address: SocketAddr, tls: &ListenerTlsDeclaration) -> DoctorCheck {
    let subject = format!("tls {address}");
    if let Err(error) = tls.files().check() {
        let remedy = "correct the files that `tls` names; each new version is used within a second";
        return DoctorCheck::error(subject, error.to_string(), remedy);
    }
    let key = check_private_key(&subject, &tls.key);
    key.unwrap_or_else(|| {
        let found = format!("{} and its key can be used", tls.certificate.display());
        DoctorCheck::ok(subject, found)
    })
}
