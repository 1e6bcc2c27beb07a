//! `cargo xtask tck DIR`: the official kit of A2A, both of its branches, against `examples/a2a_conformance`; what came of it
//! is written to `docs/a2a-conformance.md`. DIR is a clone of the kit (github.com/a2aproject/a2a-tck): no registry has it, and
//! the repository holds none of it.

mod sheet;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Outcome, cargo, output, program, root, run, target, watch_whatever};
use crate::conformance::Server;
use crate::peers;
use sheet::{Report, Sheet};

const DOCUMENT: &str = "docs/a2a-conformance.md";
const EXAMPLE: &str = "a2a_conformance";
/// Plugin that writes the result of each test as JSON; only the branch 0.3.x requires it itself.
const REPORTER: &str = "pytest-json-report==1.5.0";

/// One branch of the kit.
struct Kit {
    /// The version of A2A.
    version: &'static str,
    branch: &'static str,
    /// Its Python environment, beside the peers.
    environment: &'static str,
    /// Cargo features of the agent, besides the default.
    features: &'static [&'static str],
    /// Arguments of the runner; `{at}` is the agent's address.
    arguments: &'static [&'static str],
    /// Files that it writes into `reports`: what they are about.
    reports: &'static [(&'static str, &'static str)],
}

const KITS: [Kit; 2] = [
    Kit {
        version: "1.0",
        branch: "1.0-dev",
        environment: "tck-10",
        features: &["--features", "grpc"],
        arguments: &[
            "--sut-host",
            "{at}",
            "--transport",
            "grpc,jsonrpc,http_json",
            "--",
            "--webhook-host",
            "127.0.0.1",
            "--json-report",
            "--json-report-file=reports/tests.json",
        ],
        reports: &[("tests.json", "all")],
    },
    Kit {
        version: "0.3",
        branch: "0.3.x",
        environment: "tck-03",
        features: &[],
        arguments: &[
            "--sut-url",
            "{at}/a2a",
            "--category",
            "all",
            "--transports",
            "jsonrpc,rest",
        ],
        reports: &[
            ("mandatory_jsonrpc_results.json", "mandatory, JSON-RPC"),
            ("mandatory_rest_results.json", "mandatory, REST"),
            (
                "capabilities_jsonrpc_results.json",
                "capabilities, JSON-RPC",
            ),
            ("capabilities_rest_results.json", "capabilities, REST"),
            ("transport-equivalence_results.json", "both bindings alike"),
            ("quality_jsonrpc_results.json", "quality, JSON-RPC"),
            ("quality_rest_results.json", "quality, REST"),
            ("features_jsonrpc_results.json", "features, JSON-RPC"),
            ("features_rest_results.json", "features, REST"),
        ],
    },
];

/// Runs both branches, or the one of a version, and writes the sheet of what ran. What fails is in the sheet, not an error.
pub fn run_kit(clone: &str, version: Option<&str>) -> Outcome {
    let kits: Vec<_> = KITS
        .iter()
        .filter(|kit| version.is_none_or(|version| version == kit.version))
        .collect();
    if kits.is_empty() {
        return Err("the kit has branches for 1.0 and 0.3".to_owned());
    }
    let clone = fs::canonicalize(clone).map_err(|e| format!("{clone} can't be read: {e}"))?;
    let mut sheets = Vec::new();
    for kit in kits {
        sheets.push(kit.play(&clone)?);
    }
    sheets.iter().for_each(|sheet| println!("{}", sheet.sums()));
    let path = root().join(DOCUMENT);
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, sheet::written(&before, &sheets)?)
        .map_err(|e| format!("{DOCUMENT} can't be written: {e}"))
}

impl Kit {
    fn play(&self, clone: &Path) -> Outcome<Sheet> {
        let (folder, commit) = self.unpack(clone)?;
        let python = self.install(&folder, &commit)?;
        let reports = folder.join("reports");
        if reports.exists() {
            fs::remove_dir_all(&reports)
                .map_err(|e| format!("{} can't be emptied: {e}", reports.display()))?;
        }
        let log = target().join("tck").join(format!("{}.log", self.branch));
        run(cargo(
            &[
                &["build", "--package", "callboard", "--example", EXAMPLE],
                self.features,
            ]
            .concat(),
        ))?;
        let server = Server::start(&target().join("debug").join("examples").join(EXAMPLE), &log)?;
        let at = format!("http://127.0.0.1:{}", server.port());
        let mut kit = program(&python.to_string_lossy(), &["run_tck.py"]);
        kit.args(
            self.arguments
                .iter()
                .map(|argument| argument.replace("{at}", &at)),
        );
        kit.current_dir(&folder).env("TCK_STREAMING_TIMEOUT", "2.0");
        watch_whatever(kit, |_| ())?;
        drop(server);
        let date = output(program("date", &["-u", "+%Y-%m-%d"]))?
            .trim()
            .to_owned();
        let mut sheet = Sheet::new(self.version, self.branch, &commit, &date);
        for (file, about) in self.reports {
            sheet.add(Report::read(&reports.join(file), about)?);
        }
        let requirements = reports.join("compatibility.json");
        if requirements.exists() {
            sheet.requirements(&requirements)?;
        }
        Ok(sheet)
    }

    /// Unpacks the branch into a folder. Returns the folder and the commit.
    fn unpack(&self, clone: &Path) -> Outcome<(PathBuf, String)> {
        let clone = clone.to_string_lossy();
        let commit = output(program("git", &["-C", &clone, "rev-parse", self.branch]))?
            .trim()
            .to_owned();
        let folder = target().join("tck").join(self.branch);
        peers::unless_installed(&folder, std::slice::from_ref(&commit), |folder| {
            let tar = folder.with_extension("tar");
            let to = format!("--output={}", tar.display());
            run(program(
                "git",
                &["-C", &clone, "archive", "--format=tar", &to, &commit],
            ))?;
            let mut unpack = program("tar", &["-xf"]);
            unpack.arg(&tar).arg("-C").arg(folder);
            run(unpack)?;
            fs::remove_file(&tar).map_err(|e| format!("{} can't be removed: {e}", tar.display()))
        })?;
        Ok((folder, commit))
    }

    /// Installs the kit's Python environment. Returns its interpreter.
    fn install(&self, kit: &Path, commit: &str) -> Outcome<PathBuf> {
        let environment = target().join("peers").join(self.environment);
        let list = [commit.to_owned(), REPORTER.to_owned()];
        peers::unless_installed(&environment, &list, |folder| {
            let mut install: Command = peers::python_environment(folder)?;
            install.arg("-e").arg(kit).arg(REPORTER);
            run(install)
        })?;
        Ok(environment.join("bin").join("python"))
    }
}
