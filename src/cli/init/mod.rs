//! `callboard init`: writes a first topology file, with the answers to three questions.

mod plan;
mod questions;
mod server_id;
mod template;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, IsTerminal, Write, stdin};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use callboard_rpc::{KeyEntry, KeyError, KeyStore};
use secrecy::ExposeSecret;

use super::arguments::one_of_names;
use super::{CheckArguments, CommandError, CommandResult, EXIT_ANSWERED, check, output};
use crate::config::Topology;
use plan::{InitKind, InitPlan, MemberNames, NodeContents, UpstreamSource};

/// Name of the key file of a mailroom's members, beside the topology file.
const KEY_FILE: &str = "keys.toml";
/// Permissions of a new topology file: the command or URL of a server may hold a secret.
const TOPOLOGY_FILE_MODE: u32 = 0o600;

#[derive(Debug, clap::Args)]
pub(super) struct InitArguments {
    /// Topology file to write, in TOML.
    #[arg(value_name = "FILE", default_value = "callboard.toml")]
    topology: PathBuf,
    /// Node to describe: a gateway before MCP servers (the default), agents, or mail for coding agents.
    #[arg(long, value_parser = one_of_names(InitKind::ALL.iter().map(|kind| (kind.as_str(), *kind))))]
    kind: Option<InitKind>,
    /// First MCP server of a gateway: its URL, or its command line as one argument, for example "npx -y SERVER". The default
    /// is `example`, a server that comes with callboard. Its id in the file is the name in the command or URL, or `server`.
    #[arg(long, value_name = "SERVER", value_parser = UpstreamSource::parse)]
    server: Option<UpstreamSource>,
    /// Id of the first agent. The default is `assistant`.
    #[arg(long, value_name = "ID", value_parser = plan::parse_agent_id)]
    agent: Option<String>,
    /// Ids of the members of a mailroom, with commas. The default is `builder,tester`.
    #[arg(long, value_name = "IDS", value_parser = MemberNames::parse)]
    members: Option<MemberNames>,
    /// Loopback address to listen at. The default is 127.0.0.1 and port 3001 for a gateway, 8080 for agents, 8090 for
    /// mail. Agents and mail have a second listener, for MCP, at the next port.
    #[arg(long, value_name = "ADDR", value_parser = plan::parse_listen)]
    listen: Option<SocketAddr>,
    /// Ask nothing: take the default wherever no option says otherwise. Without a terminal nothing is asked either.
    #[arg(long)]
    yes: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(super) async fn run(arguments: InitArguments) -> CommandResult {
    let file = &arguments.topology;
    check_target(file, arguments.force)?;
    let plan = arguments.plan().await?;
    if matches!(plan.contents, NodeContents::Mail { .. })
        && file.file_name() == Some(OsStr::new(KEY_FILE))
    {
        return Err(CommandError::usage(format_args!(
            "{KEY_FILE} is the key file of the members: name another topology file"
        )));
    }
    let text = template::render(&plan)?;
    Topology::parse(&text, false, folder_of(file))?;
    // A damaged key file is found before anything is written.
    let keys = match &plan.contents {
        NodeContents::Mail { members } => {
            let store = KeyStore::load_or_new(folder_of(file).join(KEY_FILE))?;
            Some((store, members))
        }
        NodeContents::Gateway { .. } | NodeContents::Agents { .. } => None,
    };
    write_file(file, &text, arguments.force)?;
    output::print_line(format_args!("wrote {}", file.display()))?;
    if let Some((mut store, members)) = keys {
        add_keys(&mut store, members)?;
    }
    let checked = check::run(CheckArguments {
        topology: file.clone(),
        json: false,
        connect: false,
        strict: false,
    });
    let exit_code = checked.await?;
    if exit_code == EXIT_ANSWERED {
        print_next_steps(file, &plan)?;
    }
    Ok(exit_code)
}

impl InitArguments {
    /// Returns the answers to the questions: those of the options, else those given at a terminal, else the defaults.
    ///
    /// # Errors
    /// Usage error if an option is for another kind of node. Fails if the person at the terminal cancels a question.
    async fn plan(&self) -> Result<InitPlan, CommandError> {
        let is_asking = !self.yes && stdin().is_terminal();
        let kind = answer(self.kind, is_asking, questions::ask_kind(), || {
            InitKind::Gateway
        });
        let kind = kind.await?;
        self.check_options(kind)?;
        let contents = match kind {
            InitKind::Gateway => {
                let asked = questions::ask_server();
                let given = self.server.clone();
                let server = answer(given, is_asking, asked, || UpstreamSource::Example);
                NodeContents::Gateway {
                    server: server.await?,
                }
            }
            InitKind::Agents => {
                let (asked, given) = (questions::ask_agent(), self.agent.clone());
                let agent = answer(given, is_asking, asked, || plan::AGENT_DEFAULT.to_owned());
                NodeContents::Agents {
                    agent: agent.await?,
                }
            }
            InitKind::Mail => {
                let (asked, given) = (questions::ask_members(), self.members.clone());
                let members = answer(given, is_asking, asked, MemberNames::default);
                NodeContents::Mail {
                    members: members.await?,
                }
            }
        };
        let asked = questions::ask_listen(kind);
        let listen = answer(self.listen, is_asking, asked, || kind.listen_default());
        Ok(InitPlan {
            contents,
            listen: listen.await?,
        })
    }

    /// Checks that each option is for this kind of node.
    fn check_options(&self, kind: InitKind) -> Result<(), CommandError> {
        let options = [
            ("--server", self.server.is_some(), InitKind::Gateway),
            ("--agent", self.agent.is_some(), InitKind::Agents),
            ("--members", self.members.is_some(), InitKind::Mail),
        ];
        for (name, is_given, owner) in options {
            if is_given && owner != kind {
                return Err(CommandError::usage(format_args!(
                    "{name} is for another kind of node: add --kind {}",
                    owner.as_str()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the value of an option, else the answer at the terminal if somebody can be asked, else the default.
async fn answer<T>(
    given: Option<T>,
    is_asking: bool,
    asked: impl Future<Output = Result<T, CommandError>>,
    default: impl FnOnce() -> T,
) -> Result<T, CommandError> {
    match given {
        Some(given) => Ok(given),
        None if is_asking => asked.await,
        None => Ok(default()),
    }
}

/// Returns the folder of a file; that of this process if the path names none.
fn folder_of(file: &Path) -> &Path {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Checks before the questions whether the file may be written.
fn check_target(file: &Path, replaces: bool) -> Result<(), CommandError> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    if matches!(ending, Some("yaml" | "yml")) {
        let why = "the file is written in TOML: give it a name that ends in .toml";
        return Err(CommandError::file(file, why));
    }
    match !replaces && file.symlink_metadata().is_ok() {
        true => Err(exists_error(file)),
        false => Ok(()),
    }
}

fn exists_error(file: &Path) -> CommandError {
    CommandError::file(
        file,
        "the file exists: name another one, or add --force to replace it",
    )
}

/// Writes the file as a whole, so that a node that follows it never reads a part of it. A file that is replaced keeps its permissions, and
/// a symbolic link to it.
fn write_file(file: &Path, text: &str, replaces: bool) -> Result<(), CommandError> {
    let failed = |error: io::Error| {
        CommandError::failed(format_args!("failed to write {}: {error}", file.display()))
    };
    let target = match replaces && file.is_symlink() {
        true => fs::canonicalize(file).map_err(failed)?,
        false => file.to_owned(),
    };
    let mut part = tempfile::Builder::new()
        .permissions(Permissions::from_mode(TOPOLOGY_FILE_MODE))
        .tempfile_in(folder_of(&target))
        .map_err(failed)?;
    part.write_all(text.as_bytes()).map_err(failed)?;
    if let Ok(replaced) = fs::metadata(&target) {
        let permissions = replaced.permissions();
        part.as_file()
            .set_permissions(permissions)
            .map_err(failed)?;
    }
    part.as_file().sync_all().map_err(failed)?;
    let kept = match replaces {
        true => part.persist(&target),
        false => part.persist_noclobber(&target),
    };
    match kept {
        Ok(_) => Ok(()),
        Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => Err(exists_error(file)),
        Err(refused) => Err(failed(refused.error)),
    }
}

/// Adds a key for each member that has none yet, and prints it: only its hash is stored.
fn add_keys(store: &mut KeyStore, members: &MemberNames) -> Result<(), CommandError> {
    output::print_line(format_args!(
        "keys of the members, in {}; store them now, since they can't be shown again:",
        store.path().display()
    ))?;
    for member in members.iter() {
        match store.add(member, Vec::new()) {
            Ok(key) => output::print_line(format_args!("  {member}  {}", key.expose_secret()))?,
            Err(KeyError::Exists) if store.list().iter().any(|key| is_key_of(key, member)) => {
                output::print_line(format_args!("  {member}  has a key already"))?;
            }
            Err(KeyError::Exists) => output::print_line(format_args!(
                "  {member}  has a revoked or expired key: name another id, or begin a new {KEY_FILE}"
            ))?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns whether a key is a member's, and valid.
fn is_key_of(key: &KeyEntry, member: &str) -> bool {
    key.principal_id() == member && !key.is_revoked() && !key.is_expired()
}

fn print_next_steps(file: &Path, plan: &InitPlan) -> io::Result<()> {
    let path = file.display().to_string();
    // A path that can't be quoted is shown as it is.
    let quoted = shlex::try_quote(&path).unwrap_or(Cow::Borrowed(&path));
    let address = match &plan.contents {
        NodeContents::Gateway { .. } => Some(plan.listen),
        NodeContents::Agents { .. } => Some(plan.second_listen()),
        NodeContents::Mail { .. } => None,
    };
    let target = match address {
        // The running node is used: its store can't be open twice.
        Some(address) if address.port() != 0 => format!("http://{address}/mcp"),
        Some(_) => quoted.to_string(),
        // A member's mail is at the listener of the running node, with its key.
        None => format!("{quoted} --mail"),
    };
    output::print_line(format_args!(
        "\nnext:\n  callboard check {quoted}\n  callboard serve {quoted}\n  callboard connect claude-code {target}"
    ))
}
