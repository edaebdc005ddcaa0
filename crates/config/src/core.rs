//! The main context and `events`.

use std::path::PathBuf;
use std::time::Duration;

use crate::block::Given;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Account, Core, WorkerMemory, WorkerWatchdog};
use crate::tree::Statement;
use crate::values;

/// The least time after which a worker may count as stopped: its event loop runs once a second at the least.
const WATCHDOG_MIN: Duration = Duration::from_secs(2);

/// The main context and `events` while they are read.
#[derive(Debug, Default)]
pub(crate) struct CoreBlock {
    pub core: Core,
    pub given: Given,
}

impl Builder<'_> {
    pub fn user(&mut self, s: &Statement) -> Option<Account> {
        Some(Account { user: s.words[1].text(), group: s.words.get(2).map(Word::text) })
    }

    pub fn pid(&mut self, s: &Statement) -> Option<Option<PathBuf>> {
        let value = &s.words[1].value;
        Some(if value == b"off" { None } else { Some(self.file_path(value)) })
    }

    pub fn worker_processes(&mut self, s: &Statement) -> Option<Option<usize>> {
        if s.words[1].value == b"auto" {
            return Some(None);
        }
        match values::number(&s.words[1].value).and_then(|number| usize::try_from(number).ok()) {
            None | Some(0) => {
                let message = "\"worker_processes\" directive invalid value";
                self.error_hint(s.words[1].span, message, "a number of 1 or more, or \"auto\"");
                None
            }
            Some(number) => Some(Some(number)),
        }
    }

    pub fn worker_connections(&mut self, s: &Statement) -> Option<usize> {
        let number = values::number(&s.words[1].value).and_then(|number| usize::try_from(number).ok());
        if number.is_none() {
            self.error(s.words[1].span, format!("invalid number \"{}\"", s.words[1].text()));
        }
        number
    }

    pub fn worker_memory(&mut self, s: &Statement) -> Option<WorkerMemory> {
        match s.words[1].value.as_slice() {
            b"auto" => Some(WorkerMemory::Auto),
            b"off" => Some(WorkerMemory::Off),
            value => {
                let bytes = values::size(value, true).and_then(|size| usize::try_from(size).ok());
                if bytes.is_none() {
                    let message = "\"worker_memory\" directive invalid value";
                    self.error_hint(s.words[1].span, message, "a size such as 512m or 2g, \"auto\" or \"off\"");
                }
                bytes.map(WorkerMemory::Bytes)
            }
        }
    }

    /// 0 waits for ever.
    pub fn worker_shutdown_timeout(&mut self, s: &Statement) -> Option<Option<Duration>> {
        self.msec(s).map(|time| Some(time).filter(|time| !time.is_zero()))
    }

    pub fn worker_watchdog(&mut self, statement: &Statement) -> Option<WorkerWatchdog> {
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
}
