//! Files and directories: who may use them, how much room there is, and when certificates end.

use std::path::Path;

use super::finding::Finding;
use crate::output::shell;

/// A day, in seconds.
const DAY: i64 = 86_400;
/// From so many days on an end of a certificate is near: automatic renewal is due well before.
const NEAR: i64 = 14;

/// Whether a certificate is still good. Times are in seconds since 1970.
pub fn certificate(file: &Path, ends: i64, now: i64) -> Finding {
    const CHECK: &str = "certificate";
    let (file, days) = (file.display(), (ends - now) / DAY);
    if ends <= now {
        let found = format!("{file} ended {} days ago", (now - ends) / DAY);
        return Finding::error(CHECK, found, "renew it, then balanza -s reload");
    }
    if days < NEAR {
        return Finding::warning(CHECK, format!("{file} ends in {days} days"), "renew it, then balanza -s reload");
    }
    Finding::fine(CHECK, format!("{file} ends in {days} days"))
}

/// The room of a file system.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes in all, and free for this process.
    pub bytes: (u64, u64),
    /// Files in all, and how many more there may be; 0 in all if there is no such limit.
    pub files: (u64, u64),
}

/// Whether there is room in the file system of a directory.
pub fn room(directory: &Path, room: Room) -> Finding {
    const CHECK: &str = "disk";
    let (shown, fix) = (directory.display(), format!("df -h {0}; du -xsh {0}/*", directory.display()));
    let percent = |(all, free): (u64, u64)| free.saturating_mul(100).checked_div(all).unwrap_or(100);
    let (bytes, files) = (percent(room.bytes), percent(room.files));
    let (free, least) = (room.bytes.1 >> 20, bytes.min(files));
    let what = if files < bytes { format!("{files} % of its files") } else { format!("{bytes} %, {free} MiB") };
    let found = format!("{shown}: {what} free");
    if least < 2 || free < 16 {
        return Finding::error(CHECK, format!("{found}: log lines are lost, bodies get 500"), fix);
    }
    if least < 10 { Finding::warning(CHECK, found, fix) } else { Finding::fine(CHECK, found) }
}

/// The owner and the rights of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    /// Its account.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode.
    pub mode: u32,
}

impl Rights {
    /// Whether an account may make files in it.
    pub fn let_write(self, uid: u32, groups: &[u32]) -> bool {
        let digit = if uid == self.uid {
            self.mode >> 6
        } else if groups.contains(&self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        uid == 0 || digit & 0o3 == 0o3
    }
}

/// Whether the worker's account may write a file of `state`.
pub fn state_file(file: &Path, directory: Option<Rights>, (user, uid, groups): (&str, u32, &[u32])) -> Finding {
    const CHECK: &str = "state file";
    let shown = file.display();
    let directory_of_it = file.parent().unwrap_or(Path::new("/"));
    let parent = directory_of_it.display();
    let make = |directory: &Path| format!("install -d -o {user} {}", shell(directory));
    match directory {
        None => Finding::error(CHECK, format!("{shown}: there is no directory {parent}"), make(directory_of_it)),
        Some(rights) if rights.let_write(uid, groups) => Finding::fine(CHECK, format!("{shown}: {user} may write it")),
        // The directory may be that of other programs: it keeps its owner.
        Some(_) => Finding::error(
            CHECK,
            format!("{shown}: {user} may not write to {parent}"),
            format!("{}; and have the file there", make(&directory_of_it.join("balanza"))),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State::{Error, Fine, Warning};
    use super::*;

    #[test]
    fn certificates_end() {
        let of = |days: i64| certificate(Path::new("/a.pem"), 1_000_000_000 + days * DAY, 1_000_000_000);
        assert_eq!((of(90).state, of(13).state, of(0).state, of(-3).state), (Fine, Warning, Error, Error));
        assert!(of(-3).found.contains("ended 3 days ago"));
    }

    #[test]
    fn disks_have_room() {
        let of = |bytes, files| room(Path::new("/var"), Room { bytes, files });
        let gib = 1 << 30;
        assert_eq!(of((100 * gib, 50 * gib), (0, 0)).state, Fine);
        assert_eq!(of((100 * gib, 5 * gib), (0, 0)).state, Warning);
        assert_eq!(of((100 * gib, gib), (0, 0)).state, Error);
        let files = of((100 * gib, 50 * gib), (1000, 30));
        assert_eq!(files.state, Warning);
        assert!(files.found.contains("3 % of its files"));
    }

    #[test]
    fn rights_are_those_of_the_owner_the_group_or_all() {
        let rights = |mode| Rights { uid: 33, gid: 33, mode };
        assert!(
            rights(0o700).let_write(33, &[]) && rights(0o770).let_write(5, &[33]) && rights(0o707).let_write(5, &[])
        );
        assert!(!rights(0o500).let_write(33, &[]) && !rights(0o757).let_write(5, &[33]));
        assert!(rights(0).let_write(0, &[]));
        let account = ("www-data", 5, &[][..]);
        assert_eq!(state_file(Path::new("/x/y"), None, account).state, Error);
        assert_eq!(state_file(Path::new("/x/y"), Some(rights(0o755)), account).state, Error);
        assert_eq!(state_file(Path::new("/x/y"), Some(rights(0o777)), account).state, Fine);
    }
}
