//! `callboard connect`: the entry of callboard in the configuration file of an application with an MCP client.

mod edit;
pub(super) mod error;
pub(super) mod file;
mod json_text;
pub(super) mod location;
mod toml_text;

use std::io;
use std::path::{Path, PathBuf};

use callboard_mcp::inbound::{NAMED_PATH, PATH_DEFAULT};
use callboard_rpc::KEY_PREFIX;
use url::Url;

use super::address::Address;
use super::arguments::one_of_names;
use super::{CommandError, CommandResult, EXIT_ANSWERED, agents, output, serve};
use crate::client_config::{ClientApp, KEY_VARIABLE, KeySource, ServerSettings, key_input};
use crate::config::{ConfigError, MailroomDeclaration, ServedProtocol, StoreDeclaration, Topology};
use edit::AddedServer;
use error::EditError;
use file::ClientFile;

/// Name of the server in the application, unless another is given.
const NAME_DEFAULT: &str = "callboard";
/// Name with `--mail`, unless another is given.
const MAIL_NAME_DEFAULT: &str = "callboard-mail";
/// Maximum length of the name of a server, in characters.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug, clap::Args)]
pub(super) struct ConnectArguments {
    /// Application to connect.
    #[arg(value_name = "CLIENT", value_parser = one_of_names(ClientApp::ALL.map(|app| (app.as_str(), app))))]
    app: ClientApp,
    /// Topology file (TOML or YAML) or `example:NAME`, which the application then starts by
    /// `callboard stdio`; or the address of an MCP listener of a running node, a URL or HOST:PORT.
    #[arg(value_name = "FILE|ADDRESS", required_unless_present = "remove")]
    target: Option<String>,
    /// Name of the server in the application. The default is `callboard`, with `--mail`
    /// `callboard-mail`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Connect to agent mail: the MCP listener of FILE in front of a mailroom, or the one at ADDRESS.
    #[arg(long)]
    mail: bool,
    /// Remove the server of that name from the application.
    #[arg(long)]
    remove: bool,
    /// Print what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Environment variable of the application that holds the key for ADDRESS. Without it, no key is
    /// sent; with `--mail` the default is CALLBOARD_KEY, or in VS Code a prompt (with `--mail` FILE only
    /// if the listener needs a credential).
    #[arg(long, value_name = "VAR")]
    key_env: Option<String>,
    /// Configuration file. The default is the user's file of the application.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
}

/// Note about a topology file whose store is in a file.
const STORE_NOTE: &str = "its store can be open once: while a node or another window runs, connect to the listener's address instead";

/// Settings to write, and a note for the user about the key or the store.
struct Connection {
    settings: ServerSettings,
    note: Option<String>,
}

/// Runs the command.
pub(super) fn run(arguments: ConnectArguments) -> CommandResult {
    let name = arguments.server_name()?;
    let file = match &arguments.config {
        Some(path) => ClientFile::read(path)?,
        None => ClientFile::read(&location::user_file(arguments.app)?)?,
    };
    if arguments.remove {
        disconnect(&arguments, name, &file)?;
    } else {
        connect(&arguments, name, &file)?;
    }
    Ok(EXIT_ANSWERED)
}

fn connect(
    arguments: &ConnectArguments,
    name: &str,
    file: &ClientFile,
) -> Result<(), CommandError> {
    let Connection { settings, note } = arguments.connection(name)?;
    let (text, done, planned) = match edit::add_server(file.text(), &settings) {
        Ok(AddedServer::Added(text)) => (text, "connected as", "would be connected as"),
        Ok(AddedServer::Updated(text)) => (text, "updated as", "would be updated as"),
        Ok(AddedServer::Unchanged) => {
            return arguments.print_outcome("already connected as", name, file);
        }
        Err(error @ EditError::OtherProgram { .. }) => {
            return Err(CommandError::file(file.path(), error));
        }
        Err(error) => {
            output::print_line(&settings)?;
            return Err(CommandError::file(
                file.path(),
                format_args!("{error}. The file is unchanged: add the printed settings by hand"),
            ));
        }
    };
    if arguments.dry_run {
        arguments.print_outcome(planned, name, file)?;
        return Ok(output::print_line(&settings)?);
    }
    write(file, &text)?;
    arguments.print_outcome(done, name, file)?;
    if let Some(note) = note {
        output::print_progress(note);
    }
    Ok(())
}

fn disconnect(
    arguments: &ConnectArguments,
    name: &str,
    file: &ClientFile,
) -> Result<(), CommandError> {
    let edited = edit::remove_server(file.text(), arguments.app, name).map_err(|error| {
        CommandError::file(
            file.path(),
            format_args!("{error}. The file is unchanged: remove the server {name} by hand"),
        )
    })?;
    let Some(text) = edited else {
        return arguments.print_outcome("not connected as", name, file);
    };
    if arguments.dry_run {
        return arguments.print_outcome("would be disconnected as", name, file);
    }
    write(file, &text)?;
    arguments.print_outcome("disconnected as", name, file)
}

fn write(file: &ClientFile, text: &str) -> Result<(), CommandError> {
    if let Some(backup) = file.write(text)? {
        output::print_progress(format_args!("the file as it was: {}", backup.display()));
    }
    Ok(())
}

impl ConnectArguments {
    /// Returns the name of the server.
    ///
    /// # Errors
    /// Usage error if an application might refuse the name.
    fn server_name(&self) -> Result<&str, CommandError> {
        let default = if self.mail {
            MAIL_NAME_DEFAULT
        } else {
            NAME_DEFAULT
        };
        let name = self.name.as_deref().unwrap_or(default);
        let is_valid = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !is_valid {
            return Err(CommandError::usage(format_args!(
                "--name must be 1 to {NAME_CHARS_MAX} letters, digits, `-` and `_`"
            )));
        }
        Ok(name)
    }

    /// Returns the variable that holds the key.
    ///
    /// # Errors
    /// Usage error if it isn't the name of a variable. The error doesn't show it: it may be a key.
    fn key_variable(&self) -> Result<&str, CommandError> {
        let Some(variable) = self.key_env.as_deref() else {
            return Ok(KEY_VARIABLE);
        };
        let is_name = !variable.is_empty()
            && !variable.starts_with(|c: char| c.is_ascii_digit())
            && variable
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || variable.starts_with(KEY_PREFIX) {
            return Err(CommandError::usage(
                "--key-env must be the name of an environment variable, never the key itself",
            ));
        }
        Ok(variable)
    }

    /// Returns the settings for the target.
    ///
    /// # Errors
    /// Usage error if the target can't be used, or the application can't reach it.
    fn connection(&self, name: &str) -> Result<Connection, CommandError> {
        let target = Address::parse(self.target.as_deref().unwrap_or_default())?;
        let sends_key = self.key_env.is_some();
        match target {
            Address::Remote(typed) => {
                let url = listener_url(&typed)?;
                self.remote_connection(name, &url, self.mail || sends_key)
            }
            Address::File(file) => {
                let loaded = serve::load_topology(&file, None)?;
                loaded.print_warnings();
                if self.mail {
                    let (url, needs_key) = mail_listener(&loaded.topology)?;
                    return self.remote_connection(name, &url, needs_key || sends_key);
                }
                if sends_key {
                    return Err(CommandError::usage(
                        "--key-env is for an address or --mail: a program that the application starts needs no key",
                    ));
                }
                if loaded.topology.servable_ids().is_empty() {
                    return Err(ConfigError::NoAgents.into());
                }
                let note = is_store_file(&loaded.topology).then(|| STORE_NOTE.to_owned());
                self.program_connection(name, &file, note)
            }
        }
    }

    /// Returns the settings of a program that serves a topology file.
    fn program_connection(
        &self,
        name: &str,
        file: &str,
        note: Option<String>,
    ) -> Result<Connection, CommandError> {
        let failed = |what: &str, error: io::Error| {
            CommandError::failed(format_args!(
                "failed to determine the path of {what}: {error}"
            ))
        };
        let program = location::own_program().map_err(|error| failed("this program", error))?;
        // The application starts the program in a folder of its own choice.
        let path = match file.starts_with("example:") {
            true => PathBuf::from(file),
            false => std::path::absolute(file).map_err(|error| failed("the file", error))?,
        };
        let arguments = ["stdio", utf8(&path)?];
        Ok(Connection {
            settings: ServerSettings::program(self.app, name, utf8(&program)?, &arguments),
            note,
        })
    }

    /// Returns the settings of an MCP listener.
    fn remote_connection(
        &self,
        name: &str,
        url: &str,
        needs_key: bool,
    ) -> Result<Connection, CommandError> {
        let variable = self.key_variable()?;
        if !needs_key {
            return Ok(Connection {
                settings: ServerSettings::remote(self.app, name, url, None),
                note: None,
            });
        }
        if self.app == ClientApp::ClaudeDesktop {
            return Err(CommandError::usage(format_args!(
                "Claude Desktop would need the key in clear text: write a topology file with an [[upstream]] of `url = {url:?}` \
                 and `bearer_env = \"file:/path/to/the/key\"`, and connect to that file"
            )));
        }
        let input = key_input(name);
        let key = KeySource {
            variable,
            input: self.key_env.is_none().then_some(&*input),
        };
        let settings = ServerSettings::remote(self.app, name, url, Some(key));
        let label = self.app.label();
        let note = match settings.input {
            Some(_) => format!("{label} asks for the key when it starts the server"),
            None => {
                format!("{label} reads the key from the variable {variable} of its environment")
            }
        };
        Ok(Connection {
            settings,
            note: Some(note),
        })
    }

    fn print_outcome(
        &self,
        outcome: &str,
        name: &str,
        file: &ClientFile,
    ) -> Result<(), CommandError> {
        let (label, path) = (self.app.label(), file.path().display());
        Ok(output::print_line(format_args!(
            "{label}: {outcome} {name} ({path})"
        ))?)
    }
}

/// Returns whether the topology declares a store in a file, which only one process can have open. Without a declaration,
/// `callboard stdio` has its store in memory.
fn is_store_file(topology: &Topology) -> bool {
    let declared: Option<&StoreDeclaration> = topology.section();
    let url = declared.map(|store| store.url.as_deref());
    url.is_some_and(|url| url.is_none_or(|url| url.starts_with("sqlite:")))
}

/// Returns the URL of the MCP listener at an address.
fn listener_url(typed: &str) -> Result<String, CommandError> {
    let url = agents::mcp_url(&Address::remote_url(typed))?;
    let has_credential =
        Url::parse(&url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
    if has_credential {
        return Err(CommandError::usage(
            "the address must have no user or password: name the variable of a key by --key-env",
        ));
    }
    Ok(url)
}

/// Returns the URL of the mailroom at an MCP listener of the topology, and whether the listener needs a key.
///
/// # Errors
/// Usage error if there is no such listener, or the file doesn't tell by which address clients reach it.
fn mail_listener(topology: &Topology) -> Result<(String, bool), CommandError> {
    let listeners = topology.listeners.iter();
    let mut listeners = listeners.filter(|it| it.served_protocol() == ServedProtocol::Mcp);
    let found = listeners.find_map(|listener| {
        let ids = topology.served_ids(listener);
        let mut mailrooms = topology.agents_of_kind::<MailroomDeclaration>();
        let mailroom = mailrooms.find(|mailroom| ids.contains(&&*mailroom.id))?;
        let path = match ids.len() {
            1 => PATH_DEFAULT.to_owned(),
            _ => NAMED_PATH.replace("{name}", &mailroom.id),
        };
        Some((listener, path))
    });
    let Some((listener, path)) = found else {
        return Err(CommandError::usage(
            "no listener of the file serves a mailroom over MCP: add a [[listener]] with `protocol = \"mcp\"`, `dialect = \"mcp\"` and \
             the mailroom's id as `agent`",
        ));
    };
    let bind = listener.bind;
    if bind.port() == 0 || bind.ip().is_unspecified() || listener.tls.is_some() {
        return Err(CommandError::usage(format_args!(
            "the file doesn't tell by which address clients reach the listener on {bind}: give that address in place of the file"
        )));
    }
    let url = format!("{}{path}", listener.base_url(bind));
    Ok((url, listener.requires_credential()))
}

fn utf8(path: &Path) -> Result<&str, CommandError> {
    path.to_str()
        .ok_or_else(|| CommandError::file(path, "the path must be UTF-8"))
}
