//! Tasks that a worker needs: if one panics, the process ends and the supervisor starts another.
//!
//! A panic while a connection is served costs that connection. In all other tasks (accepting, commands, timers, state
//! shared by many requests) a caught panic would leave a process that runs but does not serve.

use std::sync::{Arc, Mutex, PoisonError};

use balanza_config::model::Level;

use crate::log::error::ErrorWriter;

/// Ends the process if a panic unwinds through its owner.
pub struct Guard {
    what: &'static str,
}

impl Guard {
    /// `what` is named in the error log.
    pub fn new(what: &'static str) -> Guard {
        Guard { what }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_process(format_args!("{} panicked", self.what));
        }
    }
}

/// A task that the process cannot do without.
pub async fn task<T>(what: &'static str, task: impl Future<Output = T>) -> T {
    let _guard = Guard::new(what);
    task.await
}

/// Writes an alert and ends the process at once, with the signal ABRT. The supervisor replaces it.
pub fn end_process(why: std::fmt::Arguments<'_>) -> ! {
    alert(format_args!("{why}: the worker process ends and is replaced"));
    std::process::abort()
}

/// The main error log of the configuration in operation.
static ERRORS: Mutex<Option<Arc<ErrorWriter>>> = Mutex::new(None);

/// Alerts go here from now on, those of panics included.
pub fn log_to(errors: ErrorWriter) {
    let first = ERRORS.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(errors)).is_none();
    if first {
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("no message");
            match panic.location() {
                Some(place) => alert(format_args!("panic at {place}: {message}")),
                None => alert(format_args!("panic: {message}")),
            }
            let trace = std::backtrace::Backtrace::capture();
            if trace.status() == std::backtrace::BacktraceStatus::Captured {
                trace.to_string().lines().for_each(|line| alert(format_args!("  {line}")));
            }
        }));
    }
}

/// Writes to the main error log, or to standard error while there is none.
pub fn alert(message: std::fmt::Arguments<'_>) {
    let errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match errors {
        Some(errors) => errors.write(Level::Alert, message),
        None => crate::log::complain(Level::Alert, message),
    }
}
