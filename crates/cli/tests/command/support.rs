//! A directory with a configuration, and the command.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that serves as prefix, with `nginx.conf` in it.
pub struct Place {
    pub directory: tempfile::TempDir,
}

impl Place {
    pub fn new(configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The worker's account looks for documents in there.
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let place = Self { directory };
        place.write("nginx.conf", configuration);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_balanza"));
        command.arg("-p").arg(self.directory.path()).args(["-c", "nginx.conf"]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn pid(&self) -> Option<Pid> {
        self.read("test.pid").trim().parse().ok().map(Pid::from_raw)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in ["test.pid", "test.pid.oldbin"] {
            if let Ok(pid) = self.read(name).trim().parse::<i32>()
                // Some tests write numbers there that are nobody's.
                && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("balanza"))
            {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", self.read("error.log"));
        }
    }
}

/// A balancer in the foreground.
pub struct Balancer {
    pub place: Place,
    pub port: u16,
    pub child: Child,
}

/// A configuration that answers `text` on this port.
pub fn answering(port: u16, text: &str) -> String {
    format!(
        "pid test.pid; error_log error.log notice; worker_processes 2;\nevents {{ }}\nhttp {{\n    access_log access.log;\n    \
         server {{ listen 127.0.0.1:{port}; return 200 \"{text}\"; }}\n}}\n"
    )
}

impl Balancer {
    pub fn start() -> Self {
        let port = free_port();
        let place = Place::new(&answering(port, "one"));
        let child = place.command(&["-g", "daemon off;"]).spawn().unwrap();
        let balancer = Self { place, port, child };
        eventually("an answer", || balancer.get());
        balancer
    }

    pub fn configure(&self, text: &str) {
        self.place.write("nginx.conf", &answering(self.port, text));
    }

    /// The body of an answer on a connection of its own.
    pub fn get(&self) -> Option<String> {
        Client::connect(self.port)?.get("/")
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.place.pid().expect("a pid file"), signal).unwrap();
    }

    /// The only child of the supervisor.
    pub fn worker(&self) -> Pid {
        let supervisor = self.place.pid().expect("a pid file");
        eventually("one worker", || {
            let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
            let mut children = children.split_whitespace();
            let first = children.next()?.parse().ok()?;
            children.next().is_none().then_some(Pid::from_raw(first))
        })
    }

    pub fn exit(&mut self) -> ExitStatus {
        eventually("the end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        self.child.wait().unwrap();
    }
}

/// A kept-alive connection.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self(BufReader::new(stream)))
    }

    /// The body of the answer; `None` when the connection is gone.
    pub fn get(&mut self, path: &str) -> Option<String> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length?];
        self.0.read_exact(&mut body).ok()?;
        String::from_utf8(body).ok()
    }
}

/// A port that no program uses: below those that the kernel gives to clients, one of which could take it meanwhile, and
/// beside those of the test suites that run at the same time (`TEST_PORTS` in scripts/test.sh).
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 100).unwrap() * 20;
    loop {
        let port = 24_000 + (start + NEXT.fetch_add(1, Ordering::SeqCst)) % 2_000;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until `what` gives something.
pub fn eventually<T>(description: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = what() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{description}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
