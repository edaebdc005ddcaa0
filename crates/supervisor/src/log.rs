//! The supervisor's own messages: on the terminal while it starts, in the error log afterwards, in NGINX's formats.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use balanza_config::log_text::OneLine;
use balanza_config::model::{Level, Syslog, SyslogServer};
use balanza_config::{Diagnostic, Severity};

use crate::json;

/// How diagnostics are written to standard error while there is no error log yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// With the source line and the place marked; in colour or not.
    Long {
        /// ANSI colours.
        color: bool,
    },
    /// NGINX's one-line form.
    Short,
    /// The same, and errors only.
    Quiet,
    /// One JSON object a line, on standard output.
    Json,
}

impl Console {
    /// The long form for people, the short one for programs, errors only for `-q`.
    pub fn detect(quiet: bool) -> Self {
        if quiet {
            Self::Quiet
        } else if !io::stderr().is_terminal() {
            Self::Short
        } else {
            Self::Long { color: std::env::var_os("NO_COLOR").is_none() }
        }
    }

    /// Whether a message of this level is printed.
    fn prints(self, level: Level) -> bool {
        level <= if self == Self::Quiet { Level::Error } else { Level::Warn }
    }

    fn text(self, diagnostic: &Diagnostic) -> String {
        match self {
            // An empty line sets off what takes several.
            Self::Long { color } => format!("{}\n\n", diagnostic.render(color).trim_end()),
            // A program finds problems in the first lines, and people who read its log find what to do below.
            Self::Short => match &diagnostic.hint {
                Some(hint) => format!("{diagnostic}\nbalanza: [hint] {hint}\n"),
                None => format!("{diagnostic}\n"),
            },
            Self::Quiet => format!("{diagnostic}\n"),
            Self::Json => json::diagnostic(diagnostic),
        }
    }

    fn print(self, text: &str) {
        match self {
            // A closed pipe must not end a test.
            Self::Json => drop(io::stdout().write_all(text.as_bytes())),
            _ => to_stderr(text),
        }
    }
}

/// Where messages go.
#[derive(Debug, Default)]
pub struct Log {
    console: Option<Console>,
    sinks: Vec<Sink>,
}

#[derive(Debug)]
struct Sink {
    /// Without this and `syslog` it is standard error.
    file: Option<File>,
    syslog: Option<Arc<Syslog>>,
    /// Empty for standard error.
    path: PathBuf,
    level: Level,
}

impl Log {
    /// The log of a program that is starting: standard error, as `balanza: [emerg] …`.
    pub fn starting(console: Console) -> Self {
        Self { console: Some(console), sinks: Vec::new() }
    }

    /// Writes to `file` as well, everything from `level` on.
    pub fn also(&mut self, path: PathBuf, file: File, level: Level) {
        self.sinks.push(Sink { file: Some(file), syslog: None, path, level });
    }

    /// Writes to a syslog as well, everything from `level` on.
    pub fn also_syslog(&mut self, syslog: Arc<Syslog>, level: Level) {
        self.sinks.push(Sink { file: None, syslog: Some(syslog), path: PathBuf::new(), level });
    }

    /// Writes to standard error as well, in the error log's form, everything from `level` on.
    pub fn also_stderr(&mut self, level: Level) {
        self.sinks.push(Sink { file: None, syslog: None, path: PathBuf::new(), level });
    }

    /// The files that it writes to, with their paths; what is put there is written to from now on.
    pub fn files_mut(&mut self) -> impl Iterator<Item = (&Path, &mut File)> {
        self.sinks.iter_mut().filter_map(|sink| Some((sink.path.as_path(), sink.file.as_mut()?)))
    }

    /// A duplicate of the first file that it writes to.
    pub fn first_file(&self) -> Option<File> {
        self.sinks.iter().find_map(|sink| sink.file.as_ref()?.try_clone().ok())
    }

    /// Writes also to standard error as a starting program does.
    pub fn with_console(mut self, console: Console) -> Self {
        self.console = Some(console);
        self
    }

    /// Stops writing to standard error in the form of a starting program.
    pub fn without_console(mut self) -> Self {
        self.console = None;
        self
    }

    /// Writes one line.
    pub fn write(&self, level: Level, message: impl Display) {
        if let Some(console) = self.console.filter(|console| console.prints(level)) {
            console.print(&match console {
                Console::Json => json::message(level, &message),
                _ => format!("balanza: [{}] {}\n", level.name(), OneLine(&message)),
            });
        }
        self.write_sinks(level, &message);
    }

    /// Writes a diagnostic of the configuration.
    pub fn diagnostic(&self, diagnostic: &Diagnostic) {
        let level = match diagnostic.severity {
            Severity::Error => Level::Emerg,
            Severity::Warning => Level::Warn,
        };
        if let Some(console) = self.console.filter(|console| console.prints(level)) {
            console.print(&console.text(diagnostic));
        }
        match &diagnostic.place {
            Some(place) => {
                let (file, line) = (place.file.display(), place.line);
                self.write_sinks(level, &format_args!("{} in {file}:{line}", diagnostic.summary()));
            }
            None => self.write_sinks(level, &diagnostic.message),
        }
    }

    fn write_sinks(&self, level: Level, message: &dyn Display) {
        // If the error log is standard error, messages of the start are not printed twice.
        let printed = self.console.is_some() && level <= Level::Warn;
        let wanted = |sink: &&Sink| level <= sink.level && !(printed && sink.is_stderr());
        if !self.sinks.iter().any(|sink| wanted(&sink)) {
            return;
        }
        let (time, writer, message) = (timestamp(), process_and_thread(), OneLine(message));
        let line = format!("{time} [{}] {writer}: {message}\n", level.name());
        for sink in self.sinks.iter().filter(wanted) {
            match (&sink.file, &sink.syslog) {
                // A log that cannot be written must not end the program, and there is no other place for a message.
                (Some(file), _) => drop((&*file).write_all(line.as_bytes())),
                (None, Some(syslog)) => send(syslog, level, line.as_bytes()),
                (None, None) => to_stderr(&line),
            }
        }
    }
}

impl Sink {
    fn is_stderr(&self) -> bool {
        self.file.is_none() && self.syslog.is_none()
    }
}

/// Sends a line to a syslog. The messages are few, so that each has a socket of its own; one that is lost must not end the
/// program.
fn send(syslog: &Syslog, level: Level, line: &[u8]) {
    let mut text = Vec::new();
    let time = jiff::Zoned::now().strftime("%b %e %H:%M:%S").to_string();
    syslog.error_datagram(level, &time, line, &mut text);
    drop(match &syslog.server {
        SyslogServer::Inet(address) => {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            UdpSocket::bind(any).and_then(|socket| socket.send_to(&text, address))
        }
        SyslogServer::Unix(path) => UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&text, path)
        }),
    });
}

fn to_stderr(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

fn process_and_thread() -> String {
    format!("{}#{}", std::process::id(), nix::unistd::gettid())
}

/// The local time as the error log shows it: `2026/01/02 03:04:05`.
fn timestamp() -> impl Display {
    jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string()
}

/// An operating-system error as NGINX writes it: `(98: Address already in use)`.
pub struct OsError<'a>(pub &'a io::Error);

impl Display for OsError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(code) => write!(f, "({code}: {})", nix::errno::Errno::from_raw(code).desc()),
            None => write!(f, "({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn lines_have_the_form_of_nginx_and_obey_the_level() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.log");
        let mut log = Log::default();
        log.also(path.clone(), File::create(&path).unwrap(), Level::Notice);
        log.write(Level::Notice, "signal 1 (SIGHUP) received, reconfiguring");
        log.write(Level::Info, "not written");
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        let (stamp, rest) = text.split_at("2026/01/02 03:04:05".len());
        assert!(stamp.starts_with("20") && stamp.chars().filter(|&c| c == '/' || c == ':').count() == 4, "{stamp}");
        let pid = std::process::id();
        assert!(rest.starts_with(&format!(" [notice] {pid}#")), "{rest}");
        assert!(rest.ends_with(": signal 1 (SIGHUP) received, reconfiguring\n"), "{rest}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn long_messages_are_set_off_and_short_ones_are_lines() {
        let files = balanza_config::Bundle::default();
        let (_, problems) = balanza_config::load(&files, &balanza_config::Options::new("/", "/n.conf"));
        let long = Console::Long { color: false }.text(&problems[0]);
        assert!(long.starts_with("error: open() \"/n.conf\" failed") && long.ends_with("file\n\n"), "{long}");
        for (console, lines) in [(Console::Short, 2), (Console::Quiet, 1)] {
            let text = console.text(&problems[0]);
            assert!(text.starts_with("balanza: [emerg] ") && text.ends_with('\n'), "{text}");
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.lines().skip(1).all(|line| line.starts_with("balanza: [hint] ")), "{text}");
        }
        assert!(Console::Short.prints(Level::Warn) && !Console::Quiet.prints(Level::Warn));
        assert!(Console::Quiet.prints(Level::Error) && !Console::Short.prints(Level::Notice));
    }

    #[test]
    fn errors_are_written_as_number_and_text() {
        let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
        assert_eq!(OsError(&error).to_string(), "(98: Address already in use)");
    }
}
