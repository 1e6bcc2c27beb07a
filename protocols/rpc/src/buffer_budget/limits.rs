//! Limits of the budget, and their defaults from the size of the memory.

use std::fs;
use std::path::Path;

/// Minimum default of [`BufferLimits::bytes_max`], however little memory there is.
pub const BUFFERED_BYTES_MIN: usize = 16 * 1024 * 1024;
/// Default of [`BufferLimits::bytes_max`] if the size of the memory is unknown, as on systems other
/// than Linux.
pub const BUFFERED_BYTES_UNKNOWN_MEMORY: usize = 512 * 1024 * 1024;
/// Default share of a principal in the budget, in percent.
pub const BUFFERED_PRINCIPAL_PERCENT: u8 = 25;
/// Limits of a [`BufferBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLimits {
    /// Maximum number of buffered bytes, over all listeners. Default: a quarter of the memory that
    /// this process may use, at least [`BUFFERED_BYTES_MIN`].
    pub bytes_max: usize,
    /// Share of a principal in `bytes_max`, in percent, 1 to 100. It applies while more than half
    /// of `bytes_max` is used. Clients without a credential share by address. Default: 25.
    pub principal_percent: u8,
}

impl Default for BufferLimits {
    fn default() -> Self {
        let quarter = usable_memory(Path::new("/")).map(|bytes| bytes / 4);
        Self {
            bytes_max: quarter.map_or(BUFFERED_BYTES_UNKNOWN_MEMORY, |quarter| {
                quarter.max(BUFFERED_BYTES_MIN)
            }),
            principal_percent: BUFFERED_PRINCIPAL_PERCENT,
        }
    }
}

/// Returns the memory that this process may use, in bytes: the smallest of the machine's memory and
/// the limits of its control group and that group's ancestors. `None` if none is known. `root` is
/// the root of the file system.
fn usable_memory(root: &Path) -> Option<usize> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok();
    let total_kib = meminfo.and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
    });
    let total = total_kib.map(|kib| kib.saturating_mul(1_024));
    group_limits(root).into_iter().chain(total).min()
}

/// Returns the limits of memory, in bytes, of this process's control group and its ancestors, of
/// version 2 and 1. In a container the group may be the root of what is visible.
fn group_limits(root: &Path) -> Vec<usize> {
    // Lines of "number:controllers:path"; version 2 names no controllers.
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let path_of = |controller: &str| {
        let path = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_its = controllers.split(',').any(|name| name == controller);
            is_its.then_some(path.trim_start_matches('/'))
        });
        Path::new(path.unwrap_or_default())
    };
    let mut limits = Vec::new();
    for (controller, folder, file) in [
        ("", "sys/fs/cgroup", "memory.max"),
        ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ] {
        for group in path_of(controller).ancestors() {
            let text = fs::read_to_string(root.join(folder).join(group).join(file));
            // The file says "max" if there is no limit.
            limits.extend(text.ok().and_then(|text| text.trim().parse::<usize>().ok()));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the smallest of the known sizes counts, also of the groups that the process's group is
    /// in, and files that can't be read don't. Method: folders with such files, row by row.
    #[test]
    fn memory() {
        const MEMINFO: (&str, &str) = (
            "proc/meminfo",
            "MemTotal:        4194304 kB\nMemFree:           12345 kB\n",
        );
        const V1: &str = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        const V2_SLICE: &str = "sys/fs/cgroup/system.slice/memory.max";
        const V2_SERVICE: &str = "sys/fs/cgroup/system.slice/callboard.service/memory.max";
        const OF_V2: (&str, &str) = ("proc/self/cgroup", "0::/system.slice/callboard.service\n");
        const OF_V1: (&str, &str) = (
            "proc/self/cgroup",
            "5:cpu,cpuacct:/other\n4:memory:/docker/callboard\n1:name=systemd:/docker/other\n",
        );
        const V1_GROUP: &str = "sys/fs/cgroup/memory/docker/callboard/memory.limit_in_bytes";
        for (files, bytes) in [
            (vec![], None),
            (vec![MEMINFO], Some(4 << 30)),
            (vec![("proc/meminfo", "MemFree: 1 kB")], None),
            (
                vec![MEMINFO, ("sys/fs/cgroup/memory.max", "max\n")],
                Some(4 << 30),
            ),
            (
                vec![MEMINFO, ("sys/fs/cgroup/memory.max", "1073741824\n")],
                Some(1 << 30),
            ),
            (vec![MEMINFO, (V1, "9223372036854771712\n")], Some(4 << 30)),
            (vec![(V1, "536870912\n")], Some(512 << 20)),
            (
                vec![MEMINFO, OF_V2, (V2_SERVICE, "268435456\n")],
                Some(256 << 20),
            ),
            (
                vec![OF_V2, (V2_SERVICE, "max\n"), (V2_SLICE, "134217728\n")],
                Some(128 << 20),
            ),
            // Another group's.
            (
                vec![MEMINFO, ("proc/self/cgroup", "0::/\n"), (V2_SLICE, "1\n")],
                Some(4 << 30),
            ),
            (
                vec![OF_V1, (V1, "536870912\n"), (V1_GROUP, "67108864\n")],
                Some(64 << 20),
            ),
            (
                vec![
                    OF_V1,
                    (V1, "536870912\n"),
                    ("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n"),
                ],
                Some(512 << 20),
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in &files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(usable_memory(root.path()), bytes, "{files:?}");
        }
    }

    /// Goal: the default is a quarter of the memory, with a floor. Method: this machine.
    #[test]
    fn default_is_a_quarter() {
        let limits = BufferLimits::default();
        assert!(limits.bytes_max >= BUFFERED_BYTES_MIN);
        match usable_memory(Path::new("/")) {
            Some(bytes) => assert!(limits.bytes_max <= (bytes / 4).max(BUFFERED_BYTES_MIN)),
            None => assert_eq!(limits.bytes_max, BUFFERED_BYTES_UNKNOWN_MEMORY),
        }
    }
}
