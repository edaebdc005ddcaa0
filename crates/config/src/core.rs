//! The main context and `events`.

use std::path::PathBuf;
use std::time::Duration;

use crate::check::Verdict;
use crate::directives::Context;
use crate::load::Builder;
use crate::model::{Account, Core, ErrorLog, Level, LogTarget, WorkerMemory, WorkerWatchdog};
use crate::tree::Statement;
use crate::values;

/// `worker_drain_timeout`: long enough for the next request of a client that is busy, short enough for a package's
/// script that waits for the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// `worker_watchdog`.
const WATCHDOG: WorkerWatchdog = WorkerWatchdog { limit: Some(Duration::from_secs(5)), restart: false };

/// The least time after which a worker may count as stopped: its event loop runs once a second at the least.
const WATCHDOG_MIN: Duration = Duration::from_secs(2);

/// What the main context has set so far.
#[derive(Debug, Default)]
pub(crate) struct CoreDraft {
    user: Option<Account>,
    worker_processes: Option<Option<usize>>,
    worker_connections: Option<u64>,
    worker_rlimit_nofile: Option<u64>,
    worker_memory: Option<WorkerMemory>,
    worker_shutdown_timeout: Option<Duration>,
    worker_drain_timeout: Option<Duration>,
    worker_watchdog: Option<WorkerWatchdog>,
    pid: Option<Option<PathBuf>>,
    error_log: Vec<ErrorLog>,
    daemon: Option<bool>,
    master_process: Option<bool>,
}

impl Builder<'_> {
    pub fn core_directive(&mut self, core: &mut CoreDraft, statement: &Statement) {
        match statement.words[0].value.as_slice() {
            b"user" => self.assign(&mut core.user, statement, |_, s| {
                let group = s.words.get(2).map(crate::lexer::Word::text);
                Some(Account { user: s.words[1].text(), group })
            }),
            b"worker_processes" => self.assign(&mut core.worker_processes, statement, |b, s| {
                if s.words[1].value == b"auto" {
                    return Some(None);
                }
                let number = values::number(&s.words[1].value).and_then(|n| usize::try_from(n).ok());
                match number {
                    None | Some(0) => {
                        let message = "\"worker_processes\" directive invalid value";
                        b.error_hint(s.words[1].span, message, "a number of 1 or more, or \"auto\"");
                        None
                    }
                    Some(number) => Some(Some(number)),
                }
            }),
            b"worker_rlimit_nofile" => {
                self.assign(&mut core.worker_rlimit_nofile, statement, |b, s| b.number(s));
            }
            b"worker_memory" => {
                self.assign(&mut core.worker_memory, statement, |b, s| match s.words[1].value.as_slice() {
                    b"auto" => Some(WorkerMemory::Auto),
                    b"off" => Some(WorkerMemory::Off),
                    value => {
                        let bytes = values::size(value, true).and_then(|size| usize::try_from(size).ok());
                        if bytes.is_none() {
                            let message = "\"worker_memory\" directive invalid value";
                            b.error_hint(s.words[1].span, message, "a size such as 512m or 2g, \"auto\" or \"off\"");
                        }
                        bytes.map(WorkerMemory::Bytes)
                    }
                })
            }
            b"worker_shutdown_timeout" => {
                self.assign(&mut core.worker_shutdown_timeout, statement, |b, s| b.msec(s));
            }
            b"worker_drain_timeout" => {
                self.assign(&mut core.worker_drain_timeout, statement, |b, s| b.msec(s));
            }
            b"worker_watchdog" => self.assign(&mut core.worker_watchdog, statement, Self::worker_watchdog),
            b"pid" => self.assign(&mut core.pid, statement, |b, s| {
                let value = &s.words[1].value;
                Some(if value == b"off" { None } else { Some(b.file_path(value)) })
            }),
            b"error_log" => core.error_log.extend(self.error_log(statement)),
            b"daemon" => self.assign(&mut core.daemon, statement, |b, s| b.flag(s)),
            b"master_process" => self.assign(&mut core.master_process, statement, |b, s| b.flag(s)),
            _ => self.no_handler(statement),
        }
    }

    fn worker_watchdog(&mut self, statement: &Statement) -> Option<WorkerWatchdog> {
        let limit = match statement.words[1].value.as_slice() {
            b"off" => None,
            _ => Some(self.msec(statement)?),
        };
        if limit.is_some_and(|limit| limit < WATCHDOG_MIN) {
            let message = "\"worker_watchdog\" directive invalid value";
            self.error_hint(statement.words[1].span, message, "\"off\", or a time of 2s or more");
            return None;
        }
        match statement.words.get(2) {
            None => Some(WorkerWatchdog { limit, restart: false }),
            Some(word) if word.value == b"restart" && limit.is_some() => Some(WorkerWatchdog { limit, restart: true }),
            Some(word) => {
                let message = format!("invalid parameter \"{}\"", word.text());
                self.error_hint(word.span, message, "worker_watchdog TIME restart");
                None
            }
        }
    }

    pub fn events(&mut self, core: &mut CoreDraft, block: &[Statement]) {
        for statement in block {
            if self.check(statement, Context::Events) == Verdict::Skip {
                continue;
            }
            match statement.words[0].value.as_slice() {
                b"worker_connections" => {
                    self.assign(&mut core.worker_connections, statement, |b, s| {
                        let number = values::number(&s.words[1].value);
                        if number.is_none() {
                            b.error(s.words[1].span, format!("invalid number \"{}\"", s.words[1].text()));
                        }
                        number
                    });
                }
                _ => self.no_handler(statement),
            }
        }
    }

    pub fn finish_core(&mut self, mut core: CoreDraft) -> Core {
        if core.error_log.is_empty() {
            let path = &self.options.error_log;
            let target = if path.as_os_str() == "stderr" {
                LogTarget::Stderr
            } else {
                LogTarget::File(self.options.prefix.join(path))
            };
            core.error_log.push(ErrorLog { target, level: Level::Error });
        }
        let pid = core.pid.unwrap_or_else(|| Some(self.options.prefix.join(&self.options.pid)));
        Core {
            user: core.user.unwrap_or(Account { user: "nobody".into(), group: None }),
            worker_processes: core.worker_processes.unwrap_or(Some(1)),
            worker_connections: core.worker_connections.map_or(512, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            worker_rlimit_nofile: core.worker_rlimit_nofile,
            worker_memory: core.worker_memory.unwrap_or_default(),
            worker_shutdown_timeout: core.worker_shutdown_timeout.filter(|time| !time.is_zero()),
            worker_drain_timeout: core.worker_drain_timeout.unwrap_or(DRAIN_TIMEOUT),
            worker_watchdog: core.worker_watchdog.unwrap_or(WATCHDOG),
            pid,
            error_log: core.error_log,
            daemon: core.daemon.unwrap_or(true),
            master_process: core.master_process.unwrap_or(true),
        }
    }
}
