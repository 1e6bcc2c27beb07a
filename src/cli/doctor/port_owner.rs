//! Process that listens at an address, found in `/proc`. Elsewhere than on Linux none is found.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tables of the TCP sockets of this machine, for IPv4 and IPv6.
const SOCKET_TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of a listening socket in these tables.
const LISTEN_STATE: &str = "0A";
/// Program name of a node, unless it was renamed as this program was.
const PROGRAM_NAME: &str = "callboard";

/// Process that listens at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortOwner {
    /// File name of its program.
    program: String,
    process: u32,
}

impl PortOwner {
    /// Returns the process that listens at `address`, or at all addresses with its port. `None` if it belongs to another user.
    pub(super) fn find(address: SocketAddr) -> Option<Self> {
        let sockets: Vec<OsString> = SOCKET_TABLES
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listening_sockets(&table, address))
            .collect();
        if sockets.is_empty() {
            return None;
        }
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let mut processes = processes.filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((process, entry.path()))
        });
        let (process, folder) = processes.find(|(_, folder)| has_socket(folder, &sockets))?;
        Some(Self {
            program: program_of(&folder),
            process,
        })
    }

    pub(super) fn is_callboard(&self) -> bool {
        let own = program_of(Path::new("/proc/self"));
        [PROGRAM_NAME, &own].contains(&&*self.program)
    }

    /// Returns whether an argument of the process is the path of `file`, from its working directory.
    pub(super) fn was_started_with(&self, file: &Path) -> bool {
        let process = Path::new("/proc").join(self.process.to_string());
        let (Ok(file), Ok(folder), Ok(command)) = (
            fs::canonicalize(file),
            fs::read_link(process.join("cwd")),
            fs::read(process.join("cmdline")),
        ) else {
            return false;
        };
        let mut arguments = command.split(|byte| *byte == 0).skip(1);
        arguments.any(|argument| {
            let named = fs::canonicalize(folder.join(OsStr::from_bytes(argument)));
            named.is_ok_and(|named| named == file)
        })
    }
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.program, self.process)
    }
}

/// Returns the links by which processes refer to the sockets of a table that listen at `address`, or would keep another one from
/// it.
fn listening_sockets(table: &str, address: SocketAddr) -> Vec<OsString> {
    let port = format!("{:04X}", address.port());
    let wanted = address_in_table(address.ip());
    let inode = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (ip, its_port) = local.split_once(':')?;
        let is_unspecified = ip.bytes().all(|digit| digit == b'0');
        let is_same = ip == wanted || is_unspecified || address.ip().is_unspecified();
        let is_found = *state == LISTEN_STATE && its_port == port && is_same;
        is_found.then(|| OsString::from(format!("socket:[{inode}]")))
    };
    table.lines().filter_map(inode).collect()
}

/// Returns an address as the tables write it: 32-bit words in the byte order of this machine.
fn address_in_table(ip: IpAddr) -> String {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = octets.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_ne_bytes(*word));
    words.map(|word| format!("{word:08X}")).collect()
}

/// Returns whether the process with this folder in `/proc` has one of the sockets open.
fn has_socket(process: &Path, sockets: &[OsString]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut links = files.flatten().map(|file| fs::read_link(file.path()));
    links.any(|link| link.is_ok_and(|link| sockets.contains(&link.into_os_string())))
}

/// Returns the file name of a process's program; that of one that was replaced on disk too.
fn program_of(process: &Path) -> String {
    let link = fs::read_link(process.join("exe")).unwrap_or_default();
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    match name.trim_end_matches(" (deleted)") {
        "" => "a program".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Goal: the process behind a port is found. Method: listeners of this process, at one address and at all.
    #[test]
    #[cfg(target_os = "linux")]
    fn own_listeners_are_found() {
        for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(bind).unwrap();
            let port = listener.local_addr().unwrap().port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let owner = PortOwner::find(address).unwrap();
            assert_eq!(owner.process, std::process::id(), "{bind}");
            assert!(owner.is_callboard(), "it is this program: {owner}");
        }
    }

    /// Goal: only a listening socket that is in the way counts. Method: lines of a table with other ports, addresses and states.
    #[test]
    fn tables_are_read() {
        let own = address_in_table(IpAddr::from([127, 0, 0, 1]));
        let other = address_in_table(IpAddr::from([127, 0, 0, 2]));
        let line = |ip: &str, port: &str, state: &str, inode: u32| {
            format!(
                "   0: {ip}:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1\n"
            )
        };
        let table = [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n".to_owned(),
            line(&own, "0BB9", "0A", 1),
            line(&own, "0BB8", "0A", 2),
            line(&own, "0BB9", "01", 3),
            line(&other, "0BB9", "0A", 4),
            line("00000000", "0BB9", "0A", 5),
            "damaged\n".to_owned(),
        ]
        .concat();
        let found = |address: &str| listening_sockets(&table, address.parse().unwrap());
        assert_eq!(found("127.0.0.1:3001"), ["socket:[1]", "socket:[5]"]);
        assert_eq!(found("127.0.0.1:3000"), ["socket:[2]"]);
        let all = ["socket:[1]", "socket:[4]", "socket:[5]"];
        assert_eq!(found("0.0.0.0:3001"), all);
        assert_eq!(
            address_in_table("::1".parse().unwrap()).len(),
            32,
            "an IPv6 address has four words"
        );
    }
}
