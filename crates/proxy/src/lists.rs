//! Files with servers (`state`, `server_list`): a thread looks whether they have changed, and reads them.
//!
//! It is started when a configuration has such a file. A file is looked at each second: nothing that is watched can be
//! forgotten when an editor puts another file in its place.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use balanza_config::model::membership::Protocol;
use balanza_config::model::{Config, Upstream, UpstreamServer};
use balanza_config::{FileSystem, Source as _, read_servers, write_servers};

use crate::background;
use crate::essential;

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A file that has changed is read once it stays the same for so long: before, half of it may be written.
const SETTLED: Duration = Duration::from_millis(50);

/// Called with the servers of an upstream's file when it has changed, or with what is wrong with it.
pub type Told = Arc<dyn Fn(Protocol, &str, Result<Vec<UpstreamServer>, String>) + Send + Sync>;

/// The files of the process.
#[derive(Default)]
pub struct Lists {
    thread: Mutex<Option<Sender<Vec<Watched>>>>,
}

/// A file.
struct Watched {
    protocol: Protocol,
    upstream: String,
    path: PathBuf,
    /// What it was when it was read last; `None` before.
    seen: Option<Stamp>,
}

/// What changes with a file; `None` if there is none.
type Stamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let it = std::fs::metadata(path).ok()?;
    Some((it.mtime(), it.mtime_nsec(), it.len(), it.ino()))
}

impl Lists {
    /// Watches the files of a configuration and no others from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&self, config: &Config, told: &Told) -> anyhow::Result<()> {
        let watch = |(protocol, upstream): (Protocol, &Arc<Upstream>)| {
            let path = upstream.list.as_ref()?.path.clone();
            Some(Watched { protocol, upstream: upstream.name.clone(), path, seen: None })
        };
        let files: Vec<Watched> = config.upstreams().filter_map(watch).collect();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && files.is_empty() {
            return Ok(());
        }
        if thread.is_none() {
            *thread = Some(start(Arc::clone(told))?);
        }
        thread.as_ref().context("the thread")?.send(files).ok().context("the thread of server lists has ended")
    }
}

/// The thread ends when the process drops what sends to it.
fn start(told: Told) -> anyhow::Result<Sender<Vec<Watched>>> {
    let (sender, receiver) = mpsc::channel::<Vec<Watched>>();
    let run = move || {
        let _guard = essential::Guard::new("the thread of server lists");
        let mut files = Vec::new();
        loop {
            match receiver.recv_timeout(EVERY) {
                Ok(newer) => files = newer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let changed: Vec<_> = files.iter_mut().filter_map(changed).collect();
            if !changed.is_empty() {
                std::thread::sleep(SETTLED);
            }
            changed.into_iter().for_each(|(file, now)| read(file, now, &told));
        }
    };
    background::spawn("server lists", run).context("cannot start a thread")?;
    Ok(sender)
}

/// A file that is not as it was read last, and what it is now.
fn changed(file: &mut Watched) -> Option<(&mut Watched, Stamp)> {
    let now = stamp(&file.path);
    // A file that is not there when it is first looked at was not there when the configuration was read.
    if file.seen.is_none() && now.is_none() {
        file.seen = Some(now);
    }
    (file.seen != Some(now)).then_some((file, now))
}

/// Reads a file that has settled; another one is looked at again later.
fn read(file: &mut Watched, then: Stamp, told: &Told) {
    let servers = FileSystem.read(&file.path).map_err(|error| error.to_string());
    if stamp(&file.path) != then {
        return;
    }
    file.seen = Some(then);
    told(file.protocol, &file.upstream, servers.and_then(|text| read_servers(&FileSystem, &text, file.protocol)));
}

/// Writes servers to a file, which has either its old or its new content at any time.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, servers: &[UpstreamServer]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(write_servers(servers).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_file_is_read_when_it_has_settled() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("servers");
        let (count, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0)));
        let told: Told = {
            let (count, last) = (count.clone(), last.clone());
            Arc::new(move |_, _, servers| {
                count.fetch_add(1, Ordering::Relaxed);
                *last.lock().unwrap() = servers.unwrap().len();
            })
        };
        let mut file = Watched { protocol: Protocol::Http, upstream: "u".into(), path: path.clone(), seen: None };
        assert!(changed(&mut file).is_none());
        // An editor has truncated the file when it is looked at, and writes it before it is read.
        std::fs::write(&path, "").unwrap();
        let now = changed(&mut file).unwrap().1;
        std::fs::write(&path, "server 127.0.0.1:1;\nserver 127.0.0.1:2;\n").unwrap();
        read(&mut file, now, &told);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let now = changed(&mut file).unwrap().1;
        read(&mut file, now, &told);
        assert_eq!((count.load(Ordering::Relaxed), *last.lock().unwrap()), (1, 2));
        assert!(changed(&mut file).is_none());
    }
}
