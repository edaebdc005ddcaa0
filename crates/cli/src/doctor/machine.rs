//! What this machine says: files in /proc and /sys, file systems, and the answers of programs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use balanza_config::model::Account;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, Group, User, access, getgrouplist};

use super::clock::Sources;
use super::files::{Rights, Room};
use super::finding::Finding;
use crate::output::shell;

/// A value of /proc/sys by its name in dots.
pub fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name.replace('.', "/"))).ok()
}

/// The process whose limits count: the running supervisor, or this one.
pub struct Process {
    /// "self" or its number.
    id: String,
    /// Whose it is, for texts.
    pub name: String,
}

impl Process {
    /// That of a pid file, if it runs.
    pub fn of(pid: Option<&Path>) -> Process {
        let id = pid.and_then(|file| fs::read_to_string(file).ok()).map(|text| text.trim().to_string());
        let runs = |id: &String| id.parse::<u32>().is_ok() && Path::new("/proc").join(id).join("limits").exists();
        match id.filter(runs) {
            Some(id) => Process { name: format!("the running process {id}"), id },
            None => Process { name: "this shell".into(), id: "self".into() },
        }
    }

    /// Its limits.
    pub fn limits(&self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/limits", self.id)).ok()
    }

    /// A value in each of its control groups, the innermost first. `old` are the controller and the file of version 1.
    pub fn group_values(&self, file: &str, old: Option<(&str, &str)>) -> Vec<String> {
        let own = fs::read_to_string(format!("/proc/{}/cgroup", self.id)).unwrap_or_default();
        group_values(&own, Path::new("/sys/fs/cgroup"), file, old)
    }
}

fn group_values(own: &str, root: &Path, file: &str, old: Option<(&str, &str)>) -> Vec<String> {
    let mut values = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (root, file) = match old {
            _ if id == "0" && controllers.is_empty() => (root.to_path_buf(), file),
            Some((controller, file)) if controllers.split(',').any(|it| it == controller) => {
                (root.join(controller), file)
            }
            _ => continue,
        };
        // Inside a container the path may be the one outside, and the group is mounted as the root.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        values.extend(groups.filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok()));
    }
    values
}

/// The smallest limit of memory in bytes; none for "max" and for the largest number of version 1.
pub fn least_memory(values: &[String]) -> Option<u64> {
    values.iter().filter_map(|value| value.trim().parse().ok()).filter(|limit| *limit < 1 << 60).min()
}

/// Whether a file or directory that is there can be written.
fn writable(check: &'static str, path: &Path, wanted: AccessFlags) -> Finding {
    let shown = path.display();
    match access(path, wanted) {
        Ok(()) => Finding::fine(check, format!("{shown} can be written")),
        Err(error) => {
            Finding::error(check, format!("{shown}: {error}"), format!("sudo chown $(id -un) {}", shell(path)))
        }
    }
}

/// Whether a log can be opened.
pub fn log(file: &Path) -> Finding {
    const CHECK: &str = "log";
    let (shown, parent) = (file.display(), file.parent().unwrap_or(Path::new("/")));
    if file.exists() {
        return writable(CHECK, file, AccessFlags::W_OK);
    }
    match access(parent, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Finding::fine(CHECK, format!("{shown} is made at the start")),
        Err(nix::Error::ENOENT) => {
            Finding::error(CHECK, format!("{shown}: there is no directory"), format!("mkdir -p {}", shell(parent)))
        }
        Err(error) => {
            // The directory may be that of other programs: it keeps its owner.
            let own = shell(&parent.join("balanza"));
            Finding::error(
                CHECK,
                format!("{shown}: {error}"),
                format!("sudo install -d -o $(id -un) {own}; and have the log there"),
            )
        }
    }
}

/// Whether a directory of temporary files is there or can be made.
pub fn temporary(directory: &Path) -> Finding {
    const CHECK: &str = "temporary files";
    let (shown, parent) = (directory.display(), directory.parent().unwrap_or(Path::new("/")));
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    if directory.is_dir() {
        return writable(CHECK, directory, wanted);
    }
    match access(parent, wanted) {
        Ok(()) => Finding::fine(CHECK, format!("{shown} is made at the start")),
        Err(error) => {
            let found = format!("{shown} cannot be made in {}: {error}", parent.display());
            Finding::error(CHECK, found, format!("mkdir -p {}", shell(directory)))
        }
    }
}

/// The file systems of these directories, each once, with the first of its directories and its room.
pub fn rooms(directories: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Room)> {
    let mut seen = Vec::new();
    let mut rooms = Vec::new();
    for directory in directories {
        // One that is made later is in the file system of those above it.
        let there = directory.ancestors().find(|directory| directory.exists()).unwrap_or(Path::new("/"));
        let (Ok(metadata), Ok(system)) = (fs::metadata(there), statvfs(there)) else { continue };
        if seen.contains(&metadata.dev()) {
            continue;
        }
        seen.push(metadata.dev());
        let bytes = |blocks: u64| blocks.saturating_mul(system.fragment_size());
        let room = Room {
            bytes: (bytes(system.blocks()), bytes(system.blocks_available())),
            files: (system.files(), system.files_available()),
        };
        rooms.push((there.to_path_buf(), room));
    }
    rooms
}

/// Owner and rights of a directory.
pub fn rights(directory: &Path) -> Option<Rights> {
    let metadata = fs::metadata(directory).ok()?;
    metadata.is_dir().then(|| Rights { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() })
}

/// The number of the worker's account and its groups: as the worker takes them, the group without one in the
/// configuration is that with the user's name, or else the user's own.
pub fn account(account: &Account) -> Option<(u32, Vec<u32>)> {
    let user = User::from_name(&account.user).ok()??;
    let gid = match &account.group {
        Some(group) => Group::from_name(group).ok()??.gid,
        None => Group::from_name(&account.user).ok().flatten().map_or(user.gid, |group| group.gid),
    };
    let groups = std::ffi::CString::new(user.name).ok().and_then(|name| getgrouplist(&name, gid).ok());
    let groups = groups.unwrap_or_default().into_iter().chain([gid]).map(|group| group.as_raw());
    Some((user.uid.as_raw(), groups.collect()))
}

/// What the machine's time services say.
pub fn clock() -> Sources {
    let answer = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    Sources {
        timesyncd: Path::new("/run/systemd/timesync/synchronized").exists(),
        timedatectl: answer("timedatectl", &["show"]),
        chrony: answer("chronyc", &["-n", "tracking"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_group_and_the_groups_above() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "300\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "200\n");
        let of = |own: &str| {
            let values = group_values(own, root.path(), "memory.max", Some(("memory", "memory.limit_in_bytes")));
            least_memory(&values)
        };
        assert_eq!(of("0::/a/b\n"), Some(300));
        assert_eq!(of("5:cpu,memory:/c\n0::/x\n"), Some(200));
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of("wrong"), None);
        assert_eq!(least_memory(&["9223372036854771712\n".into()]), None);
    }

    #[test]
    fn files_are_made_or_written() {
        let root = tempfile::tempdir().unwrap();
        let state = |finding: Finding| finding.state;
        use super::super::finding::State::{Error, Fine};
        assert_eq!(state(log(&root.path().join("new.log"))), Fine);
        assert_eq!(state(log(&root.path().join("no/new.log"))), Error);
        assert_eq!(state(temporary(root.path())), Fine);
        assert_eq!(state(temporary(&root.path().join("new"))), Fine);
        assert_eq!(state(temporary(&root.path().join("no/new"))), Error);
        assert_eq!(rooms([root.path().join("no/new"), root.path().to_path_buf()]).len(), 1);
        assert!(rights(root.path()).is_some() && rights(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn the_worker_has_the_group_of_its_account() {
        let of =
            |user: &str, group: Option<&str>| account(&Account { user: user.into(), group: group.map(str::to_string) });
        let own = Group::from_name("daemon").unwrap().unwrap().gid.as_raw();
        let (uid, groups) = of("root", Some("daemon")).unwrap();
        assert!(uid == 0 && groups.contains(&own), "{groups:?}");
        let (uid, groups) = of("daemon", None).unwrap();
        assert!(uid != 0 && groups.contains(&own) && !groups.contains(&0), "{groups:?}");
        assert!(of("daemon", Some("root")).unwrap().1.contains(&0));
        assert_eq!((of("daemon", Some("no-such-group")), of("no-such-user", None)), (None, None));
    }
}
