//! The actions of the command line that do not serve: testing, dumping, and signalling a running supervisor.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use balanza_config::Options;
use balanza_config::model::{Certificate, Level};
use balanza_config::{FileSystem, Secret, Source};
use nix::sys::signal::{Signal, kill};

use crate::generation::Loaded;
use crate::listen::{Purpose, Sockets};
use crate::log::Log;
use crate::{Failed, load, pidfile};

/// `-t`: whether the configuration could be served: it is right, its logs can be written, its addresses exist.
///
/// # Errors
/// The log says what is wrong.
pub fn test(options: &Options, log: &Log) -> Result<(), Failed> {
    let loaded = Loaded::load(options, log)?;
    // A log that root's test leaves behind could not be written by a service with an account of its own.
    let absent: Vec<PathBuf> = loaded.logs().into_iter().filter(|path| !path.exists()).collect();
    let generation = loaded.open(1, &Sockets::default(), Purpose::Test, log);
    for path in absent {
        // What has been written to is another process's.
        if std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            drop(std::fs::remove_file(&path));
        }
    }
    let (generation, config) = generation?;
    warn_of_ends(&config.certificates, log);
    // The process ends: giving thousands of servers back piece by piece would take a tenth of its time.
    std::mem::forget(config);
    match &generation.core.pid {
        Some(path) => pidfile::check(path, log),
        None => Ok(()),
    }
}

/// Warns of certificates that have ended, or will soon.
fn warn_of_ends(certificates: &[Certificate], log: &Log) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    for Certificate { file, ends } in certificates {
        let left = ends - now;
        let file = file.display();
        if left < 0 {
            log.write(Level::Warn, format_args!("the certificate \"{file}\" has expired"));
        } else if left < SOON {
            let days = left / DAY;
            log.write(Level::Warn, format_args!("the certificate \"{file}\" expires in {days} days"));
        }
    }
}

const DAY: i64 = 24 * 60 * 60;
/// A certificate that ends within this time should be renewed already.
const SOON: i64 = 14 * DAY;

/// `-T`: the text of every file of the configuration, in the order in which they are read.
///
/// # Errors
/// When it cannot be written.
pub fn dump(options: &Options, out: &mut impl io::Write) -> io::Result<()> {
    let files = InOrder::default();
    // Its errors have been reported by `test`; the files are shown in any case.
    drop(load::first(options, &files, &Log::default()));
    for (path, text) in files.0.into_inner().files {
        writeln!(out, "# configuration file {}:", path.display())?;
        out.write_all(&text)?;
        writeln!(out)?;
    }
    Ok(())
}

/// What `-s` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Fast shutdown.
    Stop,
    /// Graceful shutdown.
    Quit,
    /// Reopen the log files.
    Reopen,
    /// Load the configuration again.
    Reload,
}

/// `-s`: signals the supervisor that the configuration's pid file names.
///
/// # Errors
/// The log says why it was not possible.
pub fn send(options: &Options, order: Order, log: &Log) -> Result<(), Failed> {
    let config = load::first(options, &FileSystem, log)?;
    // `pid off`, as in NGINX: there is no pid file, so no process can be found.
    let path = config.core.pid.unwrap_or_default();
    let pid = pidfile::read(&path, log)?;
    let signal = match order {
        Order::Stop => Signal::SIGTERM,
        Order::Quit => Signal::SIGQUIT,
        Order::Reopen => Signal::SIGUSR1,
        Order::Reload => Signal::SIGHUP,
    };
    kill(pid, signal).map_err(|error| {
        let (number, code, text) = (signal as i32, error as i32, error.desc());
        log.write(Level::Alert, format_args!("kill({pid}, {number}) failed ({code}: {text})"));
        Failed
    })
}

/// The file system, with a list of what was read.
#[derive(Default)]
struct InOrder(RefCell<Read>);

#[derive(Default)]
struct Read {
    files: Vec<(PathBuf, Vec<u8>)>,
    seen: BTreeSet<PathBuf>,
}

impl Source for InOrder {
    fn data(&self, path: &Path) -> io::Result<Vec<u8>> {
        FileSystem.read(path)
    }

    fn secret(&self, path: &Path) -> io::Result<Secret> {
        FileSystem.secret(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = FileSystem.read(path)?;
        let mut read = self.0.borrow_mut();
        if read.seen.insert(path.to_path_buf()) {
            read.files.push((path.to_path_buf(), text.clone()));
        }
        Ok(text)
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        FileSystem.glob(pattern)
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        FileSystem.resolve(host)
    }
}
