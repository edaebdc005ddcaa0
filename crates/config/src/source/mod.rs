//! Where text and addresses come from: the disk and the resolver, or a [`Bundle`] of what they answered.

mod secrets;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

pub use self::secrets::{Replay, Secret, Secrets};

/// The largest file of a configuration, in bytes.
pub(crate) const LARGEST_FILE: u64 = 16 << 20;
/// The system's number for a file that is too large, which says that it is larger than [`LARGEST_FILE`].
pub(crate) const TOO_LARGE: i32 = 27;
/// The error of what is not a regular file: a FIFO, a socket, a device.
pub(crate) const NOT_REGULAR: &str = "not a regular file";

/// What a configuration is read from.
pub trait Source {
    /// The contents of a file: a regular one of at most [`LARGEST_FILE`] bytes.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The contents of a file that is named in the configuration and is no part of its text, such as a certificate.
    fn data(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path)
    }
    /// The contents of a file that nobody else may see.
    fn secret(&self, path: &Path) -> io::Result<Secret>;
    /// The files that match a shell pattern, sorted.
    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>>;
    /// The addresses of a host name, in the resolver's order, each once.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The machine's disk and resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Source for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_file(path, LARGEST_FILE)
    }

    fn secret(&self, path: &Path) -> io::Result<Secret> {
        self.read(path).map(Secret::new)
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let text = pattern.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not UTF-8"))?;
        // As glob(3): wildcards match neither "/" nor a leading dot.
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let found =
            glob::glob_with(text, options).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut paths: Vec<PathBuf> = found.filter_map(Result::ok).collect();
        paths.sort();
        Ok(paths)
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let (v4, v6) = families();
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in (host, 0).to_socket_addrs()? {
            let usable = v4 == v6 || if address.is_ipv4() { v4 } else { v6 };
            if usable && !addresses.contains(&address.ip()) {
                addresses.push(address.ip());
            }
        }
        Ok(addresses)
    }
}

/// The contents of a regular file that has at most `largest` bytes.
///
/// # Errors
/// It cannot be read, is larger, or is something else.
pub fn read_file(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    // Opening a FIFO must not wait for its other end.
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(io::Error::other(NOT_REGULAR));
    }
    // No growing: what a vector leaves behind could be a part of a secret.
    let mut text = Vec::with_capacity(metadata.len().min(largest) as usize + 1);
    // The length that the system tells is not that of a file that is being written, or of one in /proc.
    file.take(largest + 1).read_to_end(&mut text)?;
    if text.len() as u64 > largest {
        return Err(io::Error::from_raw_os_error(TOO_LARGE));
    }
    Ok(text)
}

/// Whether this machine has addresses of IPv4 and of IPv6 besides its loopback, because names are resolved to addresses of
/// these families only, as in NGINX (`AI_ADDRCONFIG`).
fn families() -> (bool, bool) {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    let (mut v4, mut v6) = (false, false);
    for address in interfaces {
        v4 |= address.as_sockaddr_in().is_some_and(|address| !address.ip().is_loopback());
        v6 |= address.as_sockaddr_in6().is_some_and(|address| !address.ip().is_loopback());
    }
    (v4, v6)
}

/// An answer that can be kept: an error is its number in the system, if it has one, and its text.
type Answer<T> = Result<T, (Option<i32>, String)>;

fn keep<T: Clone>(answer: &io::Result<T>) -> Answer<T> {
    match answer {
        Ok(value) => Ok(value.clone()),
        Err(error) => Err((error.raw_os_error(), error.to_string())),
    }
}

fn replay<T: Clone>(answer: Option<&Answer<T>>) -> io::Result<T> {
    match answer {
        Some(Ok(value)) => Ok(value.clone()),
        Some(Err((Some(code), _))) => Err(io::Error::from_raw_os_error(*code)),
        Some(Err((None, text))) => Err(io::Error::other(text.clone())),
        None => Err(io::Error::from_raw_os_error(2)),
    }
}

/// All answers of a [`Source`], with which another process or a test loads the same configuration again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    files: BTreeMap<PathBuf, Answer<Vec<u8>>>,
    globs: BTreeMap<PathBuf, Answer<Vec<PathBuf>>>,
    hosts: BTreeMap<String, Answer<Vec<IpAddr>>>,
}

impl Bundle {
    /// Adds a file.
    pub fn add_file(&mut self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), Ok(text.into()));
    }

    /// Adds what a pattern matches.
    pub fn add_glob(&mut self, pattern: impl Into<PathBuf>, paths: Vec<PathBuf>) {
        self.globs.insert(pattern.into(), Ok(paths));
    }

    /// Adds the addresses of a host.
    pub fn add_host(&mut self, host: impl Into<String>, addresses: Vec<IpAddr>) {
        self.hosts.insert(host.into(), Ok(addresses));
    }

    /// The files that were read, in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().filter_map(|(path, answer)| answer.as_ref().ok().map(|text| (path.as_path(), &text[..])))
    }
}

impl Source for Bundle {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        replay(self.files.get(path))
    }

    /// It has none.
    fn secret(&self, _: &Path) -> io::Result<Secret> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        replay(self.globs.get(pattern))
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        replay(self.hosts.get(host))
    }
}

/// Passes questions on and remembers the answers, so that a file that changes meanwhile is seen in one state.
#[derive(Debug)]
pub struct Recorder<S> {
    source: S,
    bundle: Mutex<Bundle>,
    secrets: Mutex<Secrets>,
}

impl<S: Source> Recorder<S> {
    /// Records what `source` answers.
    pub fn new(source: S) -> Recorder<S> {
        Recorder { source, bundle: Mutex::default(), secrets: Mutex::default() }
    }

    /// What has been answered.
    pub fn into_bundle(self) -> Bundle {
        self.into_parts().0
    }

    /// What has been answered, and the secrets among it.
    pub fn into_parts(self) -> (Bundle, Secrets) {
        let bundle = self.bundle.into_inner().unwrap_or_else(PoisonError::into_inner);
        (bundle, self.secrets.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bundle> {
        self.bundle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Source> Source for Recorder<S> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bundle = self.lock();
        replay(Some(bundle.files.entry(path.to_path_buf()).or_insert_with(|| keep(&self.source.read(path)))))
    }

    fn secret(&self, path: &Path) -> io::Result<Secret> {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.record(path, || self.source.secret(path))
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let mut bundle = self.lock();
        replay(Some(bundle.globs.entry(pattern.to_path_buf()).or_insert_with(|| keep(&self.source.glob(pattern)))))
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut bundle = self.lock();
        replay(Some(bundle.hosts.entry(host.to_string()).or_insert_with(|| keep(&self.source.resolve(host)))))
    }
}
