//! A Postgres server of our own for as long as something needs it: an ordinary user's, on a free port, in a folder that
//! goes with it. It syncs as a real one does.

use std::fs::{self, DirBuilder, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{self, Outcome, program, run, run_within};
use crate::tools;

/// The variable that tells tests where the server is.
pub const VARIABLE: &str = "CALLBOARD_POSTGRES";

/// Debian's folder of Postgres programs, with one folder a version. None of them is in the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Users that may own the server when this runs as root, as which Postgres refuses to run. The
/// first that exists is used.
const USERS: &[&str] = &["postgres", "nobody"];
/// The database's user, who may do everything.
const ROLE: &str = "callboard";
/// Longest wait for the server to take connections.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest wait for it to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// A port that was free may be somebody's a moment later.
const STARTS_MAX: usize = 3;
/// The tests run beside each other, each with a pool of its own.
const CONNECTIONS_MAX: &str = "max_connections=200";

/// A server that runs. Dropping it ends it and removes its folder.
pub struct Postgres {
    programs: PathBuf,
    owner: Option<Owner>,
    folder: PathBuf,
    port: u16,
    server: Option<Child>,
}

/// User that runs the server if this process is root.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Postgres {
    /// Installs Postgres where it isn't and this is root, else the error says how; then makes a database cluster and starts
    /// it.
    pub fn start() -> Outcome<Self> {
        let programs = programs()?;
        let owner = if tools::is_root() {
            Some(owner()?)
        } else {
            None
        };
        let folder =
            std::env::temp_dir().join(format!("callboard_postgres_{}", std::process::id()));
        let cannot = |e| format!("{} can't be made: {e}", folder.display());
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(cannot)?;
        if let Some(Owner { user, group }) = owner {
            chown(&folder, Some(user), Some(group)).map_err(cannot)?;
        }
        // From here on, dropping it cleans up.
        let mut postgres = Self {
            programs,
            owner,
            folder,
            port: 0,
            server: None,
        };
        let auth = [
            "--auth=trust",
            "--username",
            ROLE,
            "--encoding=UTF8",
            "--locale=C",
        ];
        let mut init = postgres.program("initdb");
        // What a crash of the machine leaves of an empty cluster is of no interest.
        init.args(auth)
            .args(["--no-sync", "--no-instructions", "--pgdata"])
            .arg(postgres.data());
        init.stdout(Stdio::null());
        run(init)?;
        let mut started = Err(String::new());
        for _ in 0..STARTS_MAX {
            started = postgres.serve();
            if started.is_ok() {
                break;
            }
        }
        started.map(|()| postgres)
    }

    /// The server's URL; the database is `postgres`, its user may make others.
    pub fn url(&self) -> String {
        format!(
            "postgres://{ROLE}@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Returns a command for a Postgres program, run as the cluster's owner in the cluster's folder,
    /// because that user can't read the repository.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = match self.owner {
            None => program(&path.to_string_lossy(), &[]),
            Some(Owner { user, group }) => {
                let mut command = program("setpriv", &["--clear-groups"]);
                // Whatever becomes of us, nothing is left running.
                command.args(["--pdeathsig", "INT"]);
                command
                    .arg(format!("--reuid={user}"))
                    .arg(format!("--regid={group}"))
                    .arg(path);
                command
            }
        };
        command.current_dir(&self.folder);
        command
    }

    /// Starts the server as a child process, so that an interrupt at the terminal ends both.
    fn serve(&mut self) -> Outcome {
        self.port = free_port()?;
        let log =
            File::create(self.log()).map_err(|e| format!("the server's log can't be made: {e}"))?;
        let log_too = log
            .try_clone()
            .map_err(|e| format!("the server's log can't be made: {e}"))?;
        let mut server = self.program("postgres");
        server
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-c",
                CONNECTIONS_MAX,
                "-k",
            ])
            .arg(&self.folder);
        server
            .arg("-D")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too);
        let mut server = server
            .spawn()
            .map_err(|e| format!("postgres can't be started: {e}"))?;
        let ready = self.await_ready(&mut server);
        match ready {
            Ok(()) => self.server = Some(server),
            Err(_) => command::end(&mut server),
        }
        ready
    }

    fn await_ready(&self, server: &mut Child) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < START_TIME_MAX {
            if let Ok(Some(status)) = server.try_wait() {
                return Err(format!(
                    "postgres ended with {status}: {}",
                    self.last_words()
                ));
            }
            let mut ask = self.program("pg_isready");
            ask.args([
                "--quiet",
                "--host=127.0.0.1",
                "--port",
                &self.port.to_string(),
            ]);
            if ask.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            std::thread::park_timeout(POLL);
        }
        Err(format!(
            "postgres took no connections within {START_TIME_MAX:?}: {}",
            self.last_words()
        ))
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let mut stop = self.program("pg_ctl");
            stop.args(["stop", "--silent", "--mode=fast", "--pgdata"])
                .arg(self.data());
            let stopped = run_within(stop, STOP_TIME_MAX);
            // Reaped where it ended, killed where it didn't.
            command::end(&mut server);
            if let Err(why) = stopped {
                eprintln!("{why}");
            }
        }
        if let Err(e) = fs::remove_dir_all(&self.folder) {
            eprintln!("{} can't be removed: {e}", self.folder.display());
        }
    }
}

/// `cargo xtask postgres -- COMMAND…`: runs it with a server.
pub fn with(words: &[&str]) -> Outcome {
    let (name, arguments) = words.split_first().ok_or("which command needs Postgres?")?;
    let postgres = Postgres::start()?;
    let mut command = program(name, arguments);
    command.env(VARIABLE, postgres.url());
    run(command)
}

/// Returns the folder of the Postgres programs: that of the PATH, else Debian's highest version.
fn programs() -> Outcome<PathBuf> {
    if let Some(found) = found() {
        return Ok(found);
    }
    tools::install("postgresql", &["postgresql"])?;
    found().ok_or_else(|| format!("initdb is neither in the PATH nor in {DEBIAN}/*/bin"))
}

fn found() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).find(|folder| has_all(folder));
    in_path.or_else(|| newest(Path::new(DEBIAN)))
}

fn has_all(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "pg_isready", "postgres"]
        .iter()
        .all(|name| folder.join(name).is_file())
}

/// Returns the folder `VERSION/bin` with the highest version.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?;
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let complete = folders
        .filter_map(|path| Some((version(&path)?, path.join("bin"))))
        .filter(|(_, bin)| has_all(bin));
    complete.max().map(|(_, bin)| bin)
}

fn owner() -> Outcome<Owner> {
    let number = |flag: &str, user: &str| {
        let id = program("id", &[flag, user])
            .output()
            .ok()
            .filter(|id| id.status.success())?;
        String::from_utf8_lossy(&id.stdout).trim().parse().ok()
    };
    let owner = |user: &&str| {
        Some(Owner {
            user: number("-u", user)?,
            group: number("-g", user)?,
        })
    };
    if !tools::present("setpriv", &["--version"]) {
        return Err(
            "setpriv is missing, without which root can't start Postgres; it is in util-linux"
                .to_owned(),
        );
    }
    USERS
        .iter()
        .find_map(owner)
        .ok_or_else(|| format!("Postgres refuses root, and there is no user of {USERS:?}"))
}

/// Returns a TCP port that was free when it was asked for.
fn free_port() -> Outcome<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|e| format!("there is no free port: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of several installed versions the newest complete one is taken. Method: folders as Debian makes them, one of
    /// them without its programs, one that is no version.
    #[test]
    fn newest_version_is_found() {
        let folder =
            std::env::temp_dir().join(format!("callboard_postgres_found_{}", std::process::id()));
        for (version, names) in [
            ("9", &["initdb", "pg_ctl", "pg_isready", "postgres"][..]),
            ("15", &["initdb", "pg_ctl", "pg_isready", "postgres"]),
            ("17", &["pg_isready"]),
            ("old", &["initdb", "pg_ctl", "pg_isready", "postgres"]),
        ] {
            let bin = folder.join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            names
                .iter()
                .for_each(|name| fs::write(bin.join(name), "").unwrap());
        }
        assert_eq!(newest(&folder), Some(folder.join("15").join("bin")));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(newest(&folder), None);
    }
}
