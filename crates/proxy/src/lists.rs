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

use crate::essential;

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

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
        let of = |protocol: Protocol, upstreams: &[Arc<Upstream>]| -> Vec<Watched> {
            let watch = |upstream: &Arc<Upstream>| {
                let path = upstream.list.as_ref()?.path.clone();
                Some(Watched { protocol, upstream: upstream.name.clone(), path, seen: None })
            };
            upstreams.iter().filter_map(watch).collect()
        };
        let mut files = of(Protocol::Http, &config.http.upstreams);
        files.extend(of(Protocol::Stream, &config.stream.upstreams));
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
            files.iter_mut().for_each(|file| look(file, &told));
        }
    };
    std::thread::Builder::new().name("server lists".into()).spawn(run).context("cannot start a thread")?;
    Ok(sender)
}

fn look(file: &mut Watched, told: &Told) {
    let now = stamp(&file.path);
    // A file that is not there when it is first looked at was not there when the configuration was read.
    if file.seen == Some(now) || file.seen.is_none() && now.is_none() {
        file.seen = Some(now);
        return;
    }
    file.seen = Some(now);
    let servers = FileSystem.read(&file.path).map_err(|error| error.to_string());
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
