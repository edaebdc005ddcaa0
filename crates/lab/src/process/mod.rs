//! The processes of an experiment: each in a group of its own, with its output in a file, and none that outlives the lab.
//!
//! A group is ended when its [`Process`] is dropped. A lab that is itself killed cannot do that, so the kernel sends each
//! process a signal then (`setpriv --pdeathsig`, part of every Debian): TERM, because balancers run in the foreground and
//! take their workers with them; KILL to servers, because one that is frozen does not see TERM.

mod launch;
mod sampler;
mod usage;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::record::Role;

pub use launch::{balancer_processors, pin, pinning};
pub use sampler::Sampler;
pub use usage::{Usage, descendants, of_one, usage};

/// How long a process may take to end after TERM.
const TERM_MAX: Duration = Duration::from_secs(5);

/// So much of the end of a log is quoted.
const WORDS_MAX: u64 = 2048;
const LINES_MAX: usize = 12;

/// A child in a process group of its own. Dropping it ends the group: TERM to the process, then KILL to what is left.
#[derive(Debug)]
pub struct Process {
    name: String,
    role: Role,
    child: Child,
    log: PathBuf,
    /// Where its own words begin in the log.
    begin: u64,
    ended: Option<ExitStatus>,
    reaped: bool,
}

impl Process {
    /// Starts `command` without input; what it prints is appended to the file `log`.
    ///
    /// Errors: there is no such program, or it cannot be started; the log cannot be written.
    pub fn spawn(name: &str, role: Role, command: Command, log: &Path) -> anyhow::Result<Process> {
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write the log of {name}, {}", log.display()))?;
        let begin = output.metadata().map_or(0, |metadata| metadata.len());
        let Some(program) = find(command.get_program()) else {
            bail!("cannot start {name}: there is no program {}", command.get_program().display());
        };
        let mut command = wrapped(role, &program, command);
        command.process_group(0).stdin(Stdio::null());
        command.stdout(output.try_clone().context("cannot share a log")?).stderr(output);
        let child =
            launch::launch(role, command).with_context(|| format!("cannot start {name}, {}", program.display()))?;
        let log = log.to_owned();
        Ok(Process { name: name.into(), role, child, log, begin, ended: None, reaped: false })
    }

    /// What the report calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is in the experiment.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its id, which is its group's as well.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it did. It stays a zombie until it is stopped, so that its id remains its own.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            self.ended = match waitid(Id::Pid(Pid::from_raw(self.pid())), flags) {
                Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::from_raw(code << 8)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitStatus::from_raw(signal as i32)),
                _ => None,
            };
        }
        self.ended
    }

    /// Waits for its end, at most so long.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begin = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let ended = self.ended();
            if ended.is_some() || begin.elapsed() >= limit {
                return ended;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Everything that it has printed, as far as it is text.
    pub fn output(&self) -> String {
        self.read(self.begin)
    }

    /// The last lines that it printed, for the errors that they explain.
    pub fn last_output(&self) -> String {
        let length = std::fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
        let text = self.read(self.begin.max(length.saturating_sub(WORDS_MAX)));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
    }

    fn read(&self, from: u64) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log)
            && file.seek(SeekFrom::Start(from)).is_ok()
        {
            // What cannot be read is missing from a message, no more.
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Asks it to end and does not wait: for several that end side by side.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        // A frozen process does not see TERM.
        self.signal(Signal::SIGCONT);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if !self.reaped {
            // It may have ended.
            let _ = kill(Pid::from_raw(self.pid()), signal);
        }
    }

    /// Ends it: TERM, at most five seconds, KILL to the whole group.
    pub fn stop(mut self) -> Option<ExitStatus> {
        self.finish()
    }

    fn finish(&mut self) -> Option<ExitStatus> {
        if !self.reaped {
            if self.ended().is_none() {
                self.terminate();
                self.wait(TERM_MAX);
            }
            // The leader is not reaped yet, so the group's number cannot be another's.
            match killpg(Pid::from_raw(self.pid()), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(_) => drop(self.child.kill()),
            }
            self.reaped = true;
            if let Ok(status) = self.child.wait() {
                self.ended = Some(status);
            }
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.finish();
    }
}

/// In words: `exit status 1`, `killed by SIGKILL`.
pub fn how(status: ExitStatus) -> String {
    match status.signal() {
        Some(number) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        None => format!("exit status {}", status.code().unwrap_or_default()),
    }
}

/// The file of a program: as it is named if that has a slash, otherwise the first in PATH and in the directories of
/// servers, which are not in every user's PATH.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok();
    if Path::new(program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    directories.map(|directory| directory.join(program)).find(is_program)
}

/// The same command, ended by the kernel when the lab is.
fn wrapped(role: Role, program: &Path, command: Command) -> Command {
    let signal = match role {
        Role::Server => "KILL",
        Role::Balancer | Role::Client => "TERM",
    };
    let mut outer = match find(OsStr::new("setpriv")) {
        Some(setpriv) => {
            let mut outer = Command::new(setpriv);
            outer.args(["--pdeathsig", signal, "--"]).arg(program);
            outer
        }
        None => Command::new(program),
    };
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        outer.current_dir(directory);
    }
    outer
}

/// Writes a program for a test. Another process does it: a child of another test, just forked, would hold a file that
/// this process writes, and it could not be run.
#[cfg(test)]
pub(crate) fn script(path: &Path, text: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod +x \"$0\""]).arg(path).arg(text);
    assert!(write.status().is_ok_and(|status| status.success()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Process) {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let process = Process::spawn("a shell", Role::Server, command, &directory.path().join("log")).unwrap();
        (directory, process)
    }

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The kernel's letter for the state of a process; none if there is no such process.
    fn state(pid: i32) -> Option<char> {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit(") ").next()?.chars().next()
    }

    fn alive(pid: i32) -> bool {
        // A zombie whose new parent has not come to it yet is not alive.
        state(pid).is_some_and(|state| state != 'Z')
    }

    fn said(process: &Process) -> i32 {
        let mut number = None;
        wait_for("it says nothing", || {
            number = process.output().lines().next().and_then(|line| line.trim().parse().ok());
            number.is_some()
        });
        number.unwrap()
    }

    #[test]
    fn the_whole_group_is_ended() {
        let (_keep, process) = shell("sleep 600 & echo $!; wait");
        let grandchild = said(&process);
        assert!(alive(grandchild));
        drop(process);
        wait_for("the grandchild lives", || !alive(grandchild));
    }

    #[test]
    fn one_that_ended_by_itself_takes_its_children_along() {
        let (_keep, mut process) = shell("sleep 600 & echo $!; exit 7");
        let grandchild = said(&process);
        let status = process.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(status.code(), Some(7));
        assert_eq!(how(status), "exit status 7");
        assert_eq!(process.ended().unwrap().code(), Some(7), "an end is not forgotten");
        assert_eq!(process.stop().unwrap().code(), Some(7));
        wait_for("the grandchild lives", || !alive(grandchild));
    }

    #[test]
    fn one_that_ignores_term_is_killed() {
        let (_keep, process) = shell("trap '' TERM; echo $$; while :; do sleep 0.1; done");
        let pid = said(&process);
        let status = process.stop().unwrap();
        assert_eq!(how(status), "killed by SIGKILL");
        assert!(!alive(pid));
    }

    #[test]
    fn the_last_output_is_the_last_lines_and_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "of an earlier process\n").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo; for i in $(seq 20); do echo line $i; done"]);
        let mut process = Process::spawn("talker", Role::Server, command, &log).unwrap();
        process.wait(Duration::from_secs(20)).unwrap();
        let words = process.last_output();
        assert!(words.starts_with("line 9\n") && words.ends_with("\nline 20"), "{words}");
        assert!(process.output().starts_with("first\n"), "{}", process.output());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let start = |program: &str| {
            let command = Command::new(program);
            Process::spawn("web-1", Role::Server, command, &directory.path().join("log")).unwrap_err().to_string()
        };
        assert_eq!(start("/no/such/program"), "cannot start web-1: there is no program /no/such/program");
        assert_eq!(start("no-such-program"), "cannot start web-1: there is no program no-such-program");
    }

    /// A lab, played by a shell that starts a process of a role as the lab does; and that process, which has a session of
    /// its own, so that the kernel wakes it for no other reason when it is frozen.
    fn lab_with(role: Role) -> (tempfile::TempDir, Process, i32) {
        let mut sleep = Command::new("setsid");
        sleep.args(["sleep", "600"]);
        let child = wrapped(role, &find(sleep.get_program()).unwrap(), sleep);
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\" & echo $!; wait", "lab"]).arg(child.get_program()).args(child.get_args());
        let directory = tempfile::tempdir().unwrap();
        let lab = Process::spawn("a lab", Role::Client, shell, &directory.path().join("log")).unwrap();
        let child = said(&lab);
        wait_for("it is not started", || {
            std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.starts_with("sleep"))
        });
        (directory, lab, child)
    }

    #[test]
    fn a_killed_lab_leaves_nothing_behind() {
        for role in [Role::Balancer, Role::Client, Role::Server] {
            let (_keep, lab, child) = lab_with(role);
            lab.signal(Signal::SIGKILL);
            wait_for("the child outlives the lab", || !alive(child));
        }
    }

    #[test]
    fn a_killed_lab_leaves_no_frozen_server() {
        let (_keep, lab, server) = lab_with(Role::Server);
        kill(Pid::from_raw(server), Signal::SIGSTOP).unwrap();
        wait_for("it is not frozen", || state(server) == Some('T'));
        lab.signal(Signal::SIGKILL);
        wait_for("the frozen server outlives the lab", || !alive(server));
    }
}
