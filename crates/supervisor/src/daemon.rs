//! Leaving the terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use crate::sys::{self, Side};

/// Which process goes on.
pub enum Detached {
    /// The one that the user started: it exits with this.
    Foreground(ExitCode),
    /// The daemon, which says when it is ready.
    Background(Ready),
}

/// Where the daemon tells the waiting foreground process that all went well.
#[derive(Debug)]
pub struct Ready(io::PipeWriter);

/// Goes to the background. The foreground process waits until the daemon is ready, so that its exit code tells whether
/// the program serves, and so that everything that goes wrong until then can be read on the terminal.
///
/// # Errors
/// What pipe(2), fork(2) and setsid(2) say.
pub fn detach() -> io::Result<Detached> {
    let (mut reader, writer) = io::pipe()?;
    match sys::fork_single_threaded()? {
        Side::Parent => {
            drop(writer);
            let mut word = Vec::new();
            let started = reader.read_to_end(&mut word).is_ok() && !word.is_empty();
            Ok(Detached::Foreground(if started { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
        }
        Side::Child => {
            drop(reader);
            nix::unistd::setsid()?;
            Ok(Detached::Background(Ready(writer)))
        }
    }
}

impl Ready {
    /// Lets go of the terminal and of the waiting process. Standard error goes to `errors`, so that nothing that is
    /// printed there is lost.
    ///
    /// # Errors
    /// When /dev/null cannot be opened.
    pub fn report(mut self, errors: Option<impl AsFd>) -> io::Result<()> {
        let null: File = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        match errors {
            Some(errors) => nix::unistd::dup2_stderr(errors)?,
            None => nix::unistd::dup2_stderr(&null)?,
        }
        // The waiting process may have been killed meanwhile.
        drop(self.0.write_all(b"+"));
        Ok(())
    }
}
