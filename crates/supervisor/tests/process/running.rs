//! A supervisor under test.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Running {
    pub directory: tempfile::TempDir,
    pub port: u16,
    pub child: Child,
}

/// An open connection to a worker.
pub struct Client(BufReader<TcpStream>);

/// Ends the clients of a test when it ends, also when it fails: the test waits for their threads.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub pid: Pid,
    pub threads: usize,
    pub sockets: usize,
    /// Upstreams whose servers were changed.
    pub changes: usize,
}

pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/fake")
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

pub fn alive(pid: Pid) -> bool {
    // A zombie that was not reaped is dead nevertheless.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

impl Running {
    /// Starts one in the foreground, with more directives, and waits until it serves.
    pub fn start(directives: &str) -> Self {
        let running = Self::spawn(&format!("daemon off; {directives}"));
        running.answer();
        running
    }

    /// Starts one in the background, with more directives. The command returns when the supervisor knows that the worker
    /// serves. Until then, the supervisor treats the end of the worker as a failed start.
    pub fn daemon(directives: &str) -> Self {
        let mut running = Self::spawn(&format!("daemon on; {directives}"));
        assert!(running.exit().success());
        running
    }

    pub fn spawn(directives: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Logs of the worker's account are in there.
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let port = free_port();
        write_configuration(directory.path(), port, directives);
        let child = Self::command(directory.path(), &program()).spawn().unwrap();
        Self { directory, port, child }
    }

    pub fn command(directory: &Path, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg(directory).arg("test.conf").stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub fn configure(&self, directives: &str) {
        write_configuration(self.directory.path(), self.port, directives);
    }

    /// As `configure`, with another pid file.
    pub fn configure_pid(&self, pid: &str) {
        self.configure("daemon off;");
        let text = fs::read_to_string(self.path("test.conf")).unwrap();
        fs::write(self.path("test.conf"), text.replace("pid fake.pid;", &format!("pid {pid};"))).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn pid(&self) -> Pid {
        eventually("a pid file", || pid_in(&self.path("fake.pid")))
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("error.log")).unwrap_or_default()
    }

    pub fn wait_for_log(&self, text: &str) {
        eventually(&format!("{text:?} in the log"), || self.log().contains(text).then_some(()));
    }

    pub fn connect(&self) -> Option<Client> {
        connect(self.port)
    }

    pub fn answer(&self) -> Answer {
        eventually("an answer", || self.connect()?.ask())
    }

    /// Waits for its end.
    pub fn exit(&mut self) -> ExitStatus {
        eventually("the end of the supervisor", || self.child.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for name in ["fake.pid", "fake.pid.oldbin"] {
            if let Some(pid) = pid_in(&self.path(name)) {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        self.child.wait().unwrap();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

impl Client {
    /// `None` when the connection is gone.
    pub fn ask(&mut self) -> Option<Answer> {
        self.0.get_mut().write_all(b"who\n").ok()?;
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<usize>().ok();
        let (pid, threads, sockets, changes) = (number()?, number()?, number()?, number()?);
        Some(Answer { pid: Pid::from_raw(i32::try_from(pid).unwrap()), threads, sockets, changes })
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }
}

pub fn connect(port: u16) -> Option<Client> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(Client(BufReader::new(stream)))
}

pub fn pid_in(path: &Path) -> Option<Pid> {
    fs::read_to_string(path).ok()?.trim().parse().ok().map(Pid::from_raw)
}

fn write_configuration(directory: &Path, port: u16, directives: &str) {
    let text = format!(
        "error_log error.log notice; pid fake.pid; {directives}\n\
         events {{ }}\nhttp {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }} }}\n"
    );
    fs::write(directory.join("test.conf"), text).unwrap();
}
