//! The image's root folder, entered by chroot as the image's user: the binary finds nothing of the machine but random numbers.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::command::{self, Outcome, failed_at, output, program, run_within};
use crate::tools;

/// User and group in the image.
const USER: u32 = 65532;
/// Folders that the image's user may write, and their permissions.
const DATA_FOLDERS: [(&str, u32); 2] = [("state", 0o700), ("tmp", 0o1777)];
/// Key file in the image.
const KEYS: &str = "/state/keys.toml";
/// Environment variable that holds the key.
const KEY_VARIABLE: &str = "IMAGE_KEY";
/// Name of the node, which only a name server of this task knows.
const HOST: &str = "node.callboard.test";
/// Address of that name server. Resolvers know no other port than 53.
const NAME_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 77), 53);
/// Longest wait for the node to listen, to answer and to end.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The same for the question, in seconds.
const WAIT_SECONDS: &str = "60";
const POLL: Duration = Duration::from_millis(50);
/// Longest DNS message over UDP without extensions, in bytes (RFC 1035, section 2.3.4).
const DNS_BYTES_MAX: usize = 512;
/// Bytes of the header of a DNS message.
const DNS_HEADER_BYTES: usize = 12;

/// Creates the folders that the image's user may write.
pub fn data_folders(root: &Path) -> Outcome {
    for (name, mode) in DATA_FOLDERS {
        let folder = root.join(name);
        let made = fs::create_dir_all(&folder)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(mode)));
        // An engine sets the owner as packaging/Dockerfile says, also where this isn't root.
        let owned = made.and_then(|()| match tools::is_root() {
            true => chown(&folder, Some(USER), Some(USER)),
            false => Ok(()),
        });
        owned.map_err(|e| failed_at(&folder, &e))?;
    }
    Ok(())
}

/// Devices of random numbers, and their minor numbers. A program that is linked statically opens them; any engine adds them.
const RANDOM_DEVICES: [(&str, &str); 2] = [("dev/random", "8"), ("dev/urandom", "9")];

/// Root folder with the binary at `/callboard`, and what a container's engine would add to it.
pub struct Container {
    root: PathBuf,
    port: u16,
    names: NameServer,
}

impl Container {
    /// Adds a topology of a node with one agent, and the settings of a name server that knows [`HOST`]. This is for root.
    pub fn new(root: PathBuf) -> Outcome<Self> {
        fs::create_dir_all(root.join("dev")).map_err(|e| failed_at(&root, &e))?;
        for (device, minor) in RANDOM_DEVICES {
            let device = root.join(device);
            let device = device.to_string_lossy();
            command::run(program("mknod", &["--mode=666", &device, "c", "1", minor]))?;
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|held| held.local_addr());
        let port = free.map_err(|e| format!("no port is free: {e}"))?.port();
        let container = Self {
            names: NameServer::start()?,
            root,
            port,
        };
        let topology = format!(
            "[node]\nname = \"image\"\n\n[[agent]]\nkind = \"orchestrator\"\nid = \"agent\"\n\n\
             [[listener]]\nprotocol = \"a2a\"\nagent = \"agent\"\nbind = \"127.0.0.1:{port}\"\n\
             public_url = \"http://{HOST}:{port}\"\nhosts = [\"{HOST}\"]\nkeys = \"{KEYS}\"\n"
        );
        let resolver = format!("nameserver {}\n", NAME_SERVER.ip());
        let local = format!("127.0.0.1 {HOST}\n");
        let (name, text) = match container.names.is_running() {
            true => ("etc/resolv.conf", resolver),
            false => {
                println!("{NAME_SERVER} can't be bound: the name is in /etc/hosts instead");
                ("etc/hosts", local)
            }
        };
        for (name, text) in [(name, text), ("etc/callboard/topology.toml", topology)] {
            let file = container.root.join(name);
            fs::write(&file, text).map_err(|e| failed_at(&file, &e))?;
        }
        Ok(container)
    }

    /// Returns the command that runs the binary in the folder, as the image's user.
    fn callboard(&self, arguments: &[&str]) -> Command {
        let user = format!("--userspec={USER}:{USER}");
        let root = self.root.to_string_lossy();
        let mut command = program("chroot", &[&user, &root, "/callboard"]);
        command
            .args(arguments)
            .env("HOME", "/state")
            .env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
        command
    }

    fn await_listener(&self, node: &mut Child) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < WAIT_MAX {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = node.try_wait() {
                return Err(format!("the node in the image ended with {status}"));
            }
            std::thread::park_timeout(POLL);
        }
        Err(format!(
            "the node in the image didn't listen within {WAIT_MAX:?}"
        ))
    }

    fn ask_by_name(&self, key: &str) -> Outcome {
        let url = format!("http://{HOST}:{}/a2a", self.port);
        let ask = [
            "ask",
            "--key-env",
            KEY_VARIABLE,
            "--timeout",
            WAIT_SECONDS,
            "--to",
            &url,
            "echo hello",
        ];
        let mut ask = self.callboard(&ask);
        ask.env(KEY_VARIABLE, key);
        let answer = output(ask)?;
        match answer.contains("hello") {
            true => Ok(()),
            false => Err(format!("the node in the image answered {answer:?}")),
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let texts = [
            "etc/resolv.conf",
            "etc/hosts",
            "etc/callboard/topology.toml",
        ];
        let devices = RANDOM_DEVICES.map(|(device, _)| device);
        for added in texts.into_iter().chain(devices) {
            // Only one of the first two was written.
            let _ = fs::remove_file(self.root.join(added));
        }
    }
}

/// Adds a key, checks and serves a topology in the folder, asks the node by its DNS name from there, and ends it as `docker stop` does.
pub fn try_out(container: &Container) -> Outcome {
    let topology = "/etc/callboard/topology.toml";
    let key = output(container.callboard(&["keys", "--keys", KEYS, "add", "tester"]))?;
    run_within(container.callboard(&["check", topology]), WAIT_MAX)?;
    let mut serve = container.callboard(&["serve", topology, "--state", "/state"]);
    let mut node = serve
        .spawn()
        .map_err(|e| format!("the node in the image can't be started: {e}"))?;
    let answered = container
        .await_listener(&mut node)
        .and_then(|()| container.ask_by_name(key.trim()))
        .and_then(|()| ended_by_signal(&mut node));
    command::end(&mut node);
    answered
}

fn ended_by_signal(node: &mut Child) -> Outcome {
    command::run(program("kill", &["-TERM", &node.id().to_string()]))?;
    let start = Instant::now();
    while start.elapsed() < WAIT_MAX {
        match node.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("at SIGTERM the node ended with {status}")),
            Ok(None) => std::thread::park_timeout(POLL),
            Err(e) => return Err(format!("the node can't be awaited: {e}")),
        }
    }
    Err(format!(
        "the node was still running {WAIT_MAX:?} after SIGTERM"
    ))
}

/// Name server for [`HOST`]: 127.0.0.1 for each question about IPv4, nothing for others. Dropping it ends it.
struct NameServer {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts it, unless its port is taken or not for this user.
    fn start() -> Outcome<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let socket = match UdpSocket::bind(NAME_SERVER) {
            Ok(socket) => socket,
            // Another name server has the port on all addresses, or only root may have it.
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::AddrInUse) => {
                return Ok(Self {
                    ended,
                    thread: None,
                });
            }
            Err(e) => return Err(format!("{NAME_SERVER} can't be bound: {e}")),
        };
        socket
            .set_read_timeout(Some(POLL))
            .map_err(|e| format!("{NAME_SERVER}: {e}"))?;
        let ending = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut message = [0; DNS_BYTES_MAX];
            while !ending.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = socket.recv_from(&mut message)
                    && let Some(answer) = answer(&message[..bytes])
                {
                    // A lost answer is asked for again.
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Ok(Self {
            ended,
            thread: Some(thread),
        })
    }

    fn is_running(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panics only where it has nothing to clean up.
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a DNS question (RFC 1035, section 4); `None` if it isn't about [`HOST`].
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const IPV4: [u8; 2] = [0, 1];
    let question = query.get(DNS_HEADER_BYTES..)?;
    let labels = HOST.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap_or_default();
        std::iter::once(length).chain(label.bytes())
    });
    let name: Vec<u8> = labels.chain([0]).collect();
    let asked = question.get(..name.len())?;
    if !asked.eq_ignore_ascii_case(&name) {
        return None;
    }
    let kind_and_class = question.get(name.len()..name.len() + 4)?;
    let is_ipv4 = kind_and_class.starts_with(&IPV4);
    let mut answer = query.get(..2)?.to_vec();
    // A response without errors, to one question, with as many answers.
    answer.extend([0x84, 0, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
    answer.extend(asked.iter().chain(kind_and_class));
    if is_ipv4 {
        // The name above, IPv4, the Internet, valid for 0 s, four bytes.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
