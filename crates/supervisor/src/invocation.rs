//! How the program was started.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use balanza_config::Options;
use balanza_config::model::Level;

use crate::engine::Start;
use crate::log::{Console, Log, OsError};

/// The parameters of a start.
#[derive(Debug)]
pub struct Invocation {
    /// The configuration.
    pub options: Options,
    /// The command line as the user gave it, the program's name first: `USR2` executes it again.
    pub arguments: Vec<OsString>,
    /// The form of messages before there is an error log.
    pub console: Console,
    /// `-e`: messages of the start are written there as well.
    pub early_log: Option<PathBuf>,
    /// The data plane, for `master_process off`.
    pub start: Start,
    /// Called once the process has gone into the background, after which it may have threads.
    pub settled: fn(),
}

impl Invocation {
    /// The log of a program that is starting.
    pub fn starting_log(&self) -> Log {
        let mut log = Log::starting(self.console);
        if let Some(path) = &self.early_log {
            match File::options().append(true).create(true).open(path) {
                Ok(file) => log.also(path.clone(), file, Level::Notice),
                Err(error) => {
                    let (path, error) = (path.display(), OsError(&error));
                    log.write(
                        Level::Alert,
                        format_args!("could not open error log file: open() \"{path}\" failed {error}"),
                    );
                }
            }
        }
        log
    }
}
