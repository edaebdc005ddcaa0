//! The limits that the system sets for this process.

use std::path::Path;
use std::sync::LazyLock;
use std::{env, fs};

use rustix::process::{Resource, getrlimit};

/// What the limit is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gauge {
    /// Address space, which RLIMIT_AS (`ulimit -v`) limits.
    Addresses,
    /// Resident memory.
    Resident,
    /// What the cgroup has taken beside files, which its limit is about: resident memory, and what the kernel has for its
    /// sockets.
    Group,
}

impl Gauge {
    /// That of a limit that the configuration sets: addresses where they are limited, since they run out first.
    pub fn of_process() -> Gauge {
        if addresses().is_some() { Gauge::Addresses } else { Gauge::Resident }
    }

    /// How much is taken by it, in bytes.
    pub fn measure(self) -> Option<usize> {
        let resident = self.of_pages()?;
        if self != Gauge::Group {
            return Some(resident);
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Some(taken(&own, Path::new("/sys/fs/cgroup")).map_or(resident, |taken| taken.max(resident)))
    }

    fn of_pages(self) -> Option<usize> {
        let text = fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = text.split(' ').map(|field| field.parse::<usize>().unwrap_or(0));
        let pages = match self {
            Gauge::Addresses => pages.next(),
            Gauge::Resident | Gauge::Group => pages.nth(1),
        };
        Some(pages? * rustix::param::page_size())
    }
}

/// A limit and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Bytes.
    pub bytes: usize,
    /// For the log.
    pub source: &'static str,
    /// What is compared with it.
    pub gauge: Gauge,
}

impl Limit {
    /// Four fifths of the smallest limit of the system, if it has one.
    pub fn of_system() -> Option<Limit> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let cgroup = cgroup(&own, Path::new("/sys/fs/cgroup"));
        let found = [
            (cgroup, "80 % of the cgroup's limit", Gauge::Group),
            (addresses(), "80 % of RLIMIT_AS", Gauge::Addresses),
        ];
        let found = found.into_iter().filter_map(|(limit, source, gauge)| Some((limit?, source, gauge)));
        let (limit, source, gauge) = found.min_by_key(|(limit, ..)| *limit)?;
        Some(Limit { bytes: usize::try_from(limit / 5 * 4).ok()?, source, gauge })
    }
}

/// Whether the allocator gives addresses back, as it is told to in a worker whose addresses are limited.
pub fn addresses_return() -> bool {
    static RETURN: LazyLock<bool> =
        LazyLock::new(|| env::var("_RJEM_MALLOC_CONF").is_ok_and(|settings| settings.contains("retain:false")));
    *RETURN
}

fn addresses() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// The smallest limit of the cgroups that a process belongs to. `own` is its /proc/self/cgroup.
fn cgroup(own: &str, root: &Path) -> Option<u64> {
    let limits = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, files): (_, &[&str]) = match (id, controllers) {
            ("0", "") => (root.to_path_buf(), &["memory.max", "memory.high"]),
            _ if has_memory(controllers) => (root.join("memory"), &["memory.limit_in_bytes"]),
            _ => return None,
        };
        // Inside a container the path may be the one outside, and the group is mounted as the root.
        let groups = Path::new(path.trim_start_matches('/')).ancestors().map(|group| root.join(group));
        let limits = groups.flat_map(|group| files.iter().filter_map(move |file| read(&group.join(file))));
        limits.min()
    });
    limits.min()
}

/// Whether a hierarchy of version 1 counts memory; it may do so with other controllers.
fn has_memory(controllers: &str) -> bool {
    controllers.split(',').any(|controller| controller == "memory")
}

/// What the cgroup of a process has taken beside files, which the kernel gives up when memory is short.
fn taken(own: &str, root: &Path) -> Option<usize> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, usage, files) = match (id, controllers) {
            ("0", "") => (root.to_path_buf(), "memory.current", "file "),
            _ if has_memory(controllers) => (root.join("memory"), "memory.usage_in_bytes", "cache "),
            _ => return None,
        };
        // Inside a container the group is mounted as the root.
        let groups = [root.join(path.trim_start_matches('/')), root];
        let group = groups.iter().find(|group| group.join(usage).exists())?;
        let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
        let files = stat.lines().find_map(|line| line.strip_prefix(files)?.parse::<u64>().ok()).unwrap_or(0);
        usize::try_from(read(&group.join(usage))?.saturating_sub(files)).ok()
    })
}

/// A number of bytes; none for "max" and for version 1's largest number.
fn read(file: &Path) -> Option<u64> {
    let limit = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < 1 << 60).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn version_2_takes_the_smallest_of_all_levels() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(cgroup("0::/a/b\n", root), None);
        put(root, "a/b/memory.max", "max\n");
        assert_eq!(cgroup("0::/a/b\n", root), None);
        put(root, "a/memory.max", "300000000\n");
        put(root, "a/b/memory.high", "200000000\n");
        assert_eq!(cgroup("0::/a/b\n", root), Some(200_000_000));
        assert_eq!(cgroup("0::/a\n", root), Some(300_000_000));
        put(root, "memory.max", "100000000\n");
        assert_eq!(cgroup("0::/\n", root), Some(100_000_000), "in a namespace of its own");
        assert_eq!(cgroup("0::/not/here\n", root), Some(100_000_000));
    }

    #[test]
    fn version_1_has_a_directory_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        let own = "9:name=systemd:/\n4:memory:/docker/1\n0::/\n";
        assert_eq!(cgroup(own, root), None);
        put(root, "memory/docker/1/memory.limit_in_bytes", "250000000\n");
        assert_eq!(cgroup(own, root), Some(250_000_000));
        assert_eq!(cgroup("4:cpu,memory:/docker/1\n", root), Some(250_000_000));
        assert_eq!(cgroup("4:cpu:/docker/1\n", root), None);
    }

    #[test]
    fn files_of_a_group_do_not_count() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(taken("0::/a\n", root), None);
        put(root, "a/memory.current", "90000000\n");
        put(root, "a/memory.stat", "anon 50000000\nfile 30000000\nsock 9000000\n");
        assert_eq!(taken("0::/a\n", root), Some(60_000_000));
        put(root, "memory/docker/1/memory.usage_in_bytes", "80000000\n");
        put(root, "memory/docker/1/memory.stat", "cache 10000000\nrss 60000000\n");
        assert_eq!(taken("4:memory:/docker/1\n0::/\n", root), Some(70_000_000));
        assert_eq!(taken("4:cpu,memory:/docker/1\n", root), Some(70_000_000));
        put(root, "memory/memory.usage_in_bytes", "5000000\n");
        put(root, "memory/memory.stat", "cache 0\n");
        assert_eq!(taken("4:memory:/not/here\n", root), Some(5_000_000), "in a namespace of its own");
    }

    #[test]
    fn all_gauges_measure() {
        let resident = Gauge::Resident.measure().unwrap();
        let addresses = Gauge::Addresses.measure().unwrap();
        assert!(resident > 100_000 && addresses > resident);
        assert!(Gauge::Group.measure().unwrap() > 100_000);
    }
}
