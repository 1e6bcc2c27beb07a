//! Tools that tasks need besides Rust. They are installed if possible; else the error names the
//! command that installs them.

use std::path::PathBuf;
use std::process::Stdio;

use crate::command::{Outcome, cargo, program, run, target};
use crate::test;

const DENY_VERSION: &str = "0.20.2";
const MDBOOK_VERSION: &str = "0.5.4";
const MCP_PROXY_VERSION: &str = "0.6.0";

/// Installs rustfmt and clippy, which a minimal Rust installation lacks.
pub fn components() -> Outcome {
    for (component, check) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !present("cargo", &[check, "--version"]) {
            let install = program("rustup", &["component", "add", component]);
            run(install).map_err(|why| format!("{why}; run: rustup component add {component}"))?;
        }
    }
    Ok(())
}

/// Installs the distribution's valgrind: only differences of its counts are used.
pub fn valgrind() -> Outcome {
    of_distribution("valgrind", &["valgrind", "libc6-dbg"])
}

/// Installs the distribution's npm.
pub fn npm() -> Outcome {
    of_distribution("npm", &["npm"])
}

/// Installs the distribution's Chromium, which the tests of the console drive.
pub fn chromium() -> Outcome {
    of_distribution("chromium", &["chromium"])
}

/// Installs the distribution's reverse proxies, whose settings docs/proxies.md has.
pub fn proxies() -> Outcome {
    for (package, program) in [
        ("nginx-light", "/usr/sbin/nginx"),
        ("haproxy", "/usr/sbin/haproxy"),
        ("caddy", "/usr/bin/caddy"),
    ] {
        if !std::path::Path::new(program).exists() {
            install(package, &[package])?;
        }
    }
    Ok(())
}

/// Installs the distribution's pebble, an ACME authority for tests.
pub fn pebble() -> Outcome {
    match std::path::Path::new("/usr/bin/pebble").exists() {
        true => Ok(()),
        false => install("pebble", &["pebble"]),
    }
}

/// Installs the distribution's buildah, which builds images without a daemon.
pub fn buildah() -> Outcome {
    of_distribution("buildah", &["buildah"])
}

/// Installs a program of the distribution as root; otherwise the error has the command.
fn of_distribution(name: &str, packages: &[&str]) -> Outcome {
    if present(name, &["--version"]) {
        Ok(())
    } else {
        install(name, packages)
    }
}

/// Installs packages of the distribution if this is root, else the error says how.
pub fn install(name: &str, packages: &[&str]) -> Outcome {
    let advice = format!("run: sudo apt-get install -y {name}");
    if !is_root() || !present("apt-get", &["--version"]) {
        return Err(format!("{name} is missing; {advice}"));
    }
    let mut install = program("apt-get", &["install", "-y", "--no-install-recommends"]);
    install
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive");
    run(program("apt-get", &["update"]))
        .and_then(|()| run(install))
        .map_err(|why| format!("{why}; {advice}"))
}

/// Checks licences, duplicates and sources of all dependencies by `deny.toml`.
pub fn deny() -> Outcome {
    let tool = installed("cargo-deny", DENY_VERSION, &[])?;
    let tool = tool.to_string_lossy();
    // Else it looks at the root package alone.
    let check = ["--workspace", "check", "licenses", "bans", "sources"];
    run(program(&tool, &check))?;
    // By the same rules, of which a single package needs few: only what breaks them is said. Two versions of a crate in a peer
    // cost nobody anything.
    for (manifest, _) in test::APART {
        let apart = [
            "--log-level",
            "error",
            "--config",
            "deny.toml",
            "--manifest-path",
            manifest,
            "check",
            "licenses",
            "sources",
        ];
        run(program(&tool, &apart))?;
    }
    Ok(())
}

/// Installs mcp-proxy, the peer of the gateway bench. Returns its path.
pub fn mcp_proxy() -> Outcome<PathBuf> {
    installed("mcp-proxy", MCP_PROXY_VERSION, &[])
}

/// Installs mdBook, which builds the documentation site. Returns its path.
pub fn mdbook() -> Outcome<PathBuf> {
    let options = ["--no-default-features", "--features", "search"];
    installed("mdbook", MDBOOK_VERSION, &options)
}

/// Returns the path of a cargo tool at a version; builds it with the options into the target directory if needed.
fn installed(name: &str, version: &str, options: &[&str]) -> Outcome<PathBuf> {
    let home = target().join("tools").join(format!("{name}-{version}"));
    let path = home.join("bin").join(name);
    if !path.exists() {
        let mut install = cargo(&["install", "--locked", name, "--version", version, "--root"]);
        install.arg(&home).args(options);
        run(install)?;
    }
    Ok(path)
}

/// Returns whether a program runs and succeeds.
pub fn present(name: &str, arguments: &[&str]) -> bool {
    let status = program(name, arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Whether this runs as root.
pub fn is_root() -> bool {
    let id = program("id", &["-u"]).output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}
