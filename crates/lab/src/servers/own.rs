//! A server of the lab's own: its process, which the plan may end and start again.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;

use super::ask::ask;
use super::said;
use crate::plan::Server;
use crate::process::{Process, how};
use crate::record::{Role, ServerRecord};
use crate::target::{CHANGE_PATH, STATS_PATH, Stats};

/// How long it may take to say what it has counted: it may be at work.
const STATS_MAX: Duration = Duration::from_secs(10);

/// How long one that is about to be ended may take for that: the plan's time is kept.
const LAST_MAX: Duration = Duration::from_millis(500);

/// How it is started.
#[derive(Debug)]
pub(super) struct Recipe {
    pub program: PathBuf,
    pub server: Server,
    pub name: String,
    pub seed: u64,
    pub log: PathBuf,
}

/// The server. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Own {
    recipe: Recipe,
    /// Where it listens, once it has said so.
    pub address: SocketAddr,
    process: Option<Process>,
    /// Where it says what it counts; none until it listens.
    counters: Option<SocketAddr>,
    /// Whether the process may end without an error.
    leaves: bool,
    /// What its earlier processes have counted.
    before: ServerRecord,
}

impl Own {
    /// Starts it and does not wait until it listens.
    pub(super) fn start(recipe: Recipe, address: SocketAddr) -> anyhow::Result<Own> {
        let before = ServerRecord { name: recipe.name.clone(), ..ServerRecord::default() };
        let mut own = Own { recipe, address, process: None, counters: None, leaves: false, before };
        own.again()?;
        Ok(own)
    }

    /// Starts it again where it was, and does not wait.
    pub(super) fn again(&mut self) -> anyhow::Result<()> {
        let Recipe { name, log, .. } = &self.recipe;
        self.process = Some(Process::spawn(name, Role::Server, command(&self.recipe, self.address), log)?);
        (self.counters, self.leaves) = (None, false);
        Ok(())
    }

    /// Whether it listens. Errors: it has ended, with what it says.
    pub(super) fn listens(&mut self) -> anyhow::Result<bool> {
        let Some(process) = &mut self.process else { return Ok(false) };
        if self.counters.is_none() {
            let ended = process.ended();
            if let Some((address, counters)) = process.output().split_inclusive('\n').find_map(addresses) {
                (self.address, self.counters) = (address, Some(counters));
            } else if let Some(status) = ended {
                return Err(self.said(format!("server {} has ended ({})", self.recipe.name, how(status))));
            }
        }
        Ok(self.counters.is_some())
    }

    /// An error with what its process has said last.
    pub(super) fn said(&self, message: String) -> anyhow::Error {
        match &self.process {
            Some(process) => said(process, message),
            None => anyhow::Error::msg(message),
        }
    }

    /// Its process, if it has to be there.
    pub(super) fn present(&mut self) -> Option<&mut Process> {
        self.process.as_mut().filter(|_| !self.leaves)
    }

    /// Whether it serves and nothing is being done to it.
    pub(super) fn serves(&self) -> bool {
        self.process.is_some() && self.counters.is_some() && !self.leaves
    }

    /// The process id, if there is a process.
    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Tells it to finish its requests and to end.
    pub(super) fn leave(&mut self) {
        self.remember();
        self.leaves = true;
        self.signal(Signal::SIGQUIT);
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        self.remember();
        self.signal(Signal::SIGKILL);
        (self.process, self.leaves) = (None, true);
    }

    /// Whether it is away; after [`leave`](Self::leave) that takes as long as its requests.
    pub(super) fn is_gone(&mut self) -> bool {
        if self.leaves && self.process.as_mut().is_some_and(|process| process.ended().is_some()) {
            self.process = None;
        }
        self.process.is_none()
    }

    /// Sends its process a signal, if there is one.
    pub(super) fn signal(&self, signal: Signal) {
        self.process.iter().for_each(|process| process.signal(signal));
    }

    /// Asks its process to end, if there is one.
    pub(super) fn terminate(&self) {
        self.process.iter().for_each(Process::terminate);
    }

    /// Changes how it works: see [`CHANGE_PATH`].
    pub(super) fn change(&self, what: &str) -> anyhow::Result<()> {
        let name = &self.recipe.name;
        let counters = self.counters.with_context(|| format!("{name} does not listen"))?;
        let answer = ask(counters, "lab", &format!("{CHANGE_PATH}?{what}"), None, STATS_MAX)
            .with_context(|| format!("{name} cannot be changed"))?;
        match answer.status {
            200 => Ok(()),
            status => bail!("{name} cannot be changed: status {status}"),
        }
    }

    /// What it has counted so far: of a process that the plan has ended, until shortly before its end.
    pub(super) fn stats(&self) -> anyhow::Result<ServerRecord> {
        match self.counters.filter(|_| !self.leaves) {
            None => Ok(self.before.clone()),
            Some(counters) => {
                let said = stats(counters, STATS_MAX);
                let said = said.with_context(|| format!("{} does not say what it has counted", self.recipe.name))?;
                Ok(self.with(&said))
            }
        }
    }

    /// Keeps what the process has counted, which is about to end.
    fn remember(&mut self) {
        if let Some(said) = self.counters.and_then(|counters| stats(counters, LAST_MAX).ok()) {
            self.before = self.with(&said);
        }
    }

    fn with(&self, said: &Stats) -> ServerRecord {
        let before = &self.before;
        ServerRecord {
            name: before.name.clone(),
            requests: before.requests + said.requests,
            aborted: before.aborted + said.aborted,
            in_flight_max: before.in_flight_max.max(said.max_in_flight),
            queued_max: before.queued_max.max(said.max_queued),
        }
    }
}

fn stats(counters: SocketAddr, limit: Duration) -> anyhow::Result<Stats> {
    let answer = ask(counters, "lab", STATS_PATH, None, limit)?;
    if answer.status != 200 {
        bail!("status {}", answer.status);
    }
    Ok(serde_json::from_str(&answer.body)?)
}

fn command(recipe: &Recipe, listen: SocketAddr) -> Command {
    let Recipe { program, server, name, seed, .. } = recipe;
    let listen = listen.to_string();
    let mut words: Vec<OsString> = vec!["target".into()];
    words.extend(["--listen", &listen, "--control", "127.0.0.1:0", "--name", name].map(OsString::from));
    let arguments = server.arguments();
    if !arguments.iter().any(|argument| argument.starts_with("--seed")) {
        words.push(format!("--seed={seed}").into());
    }
    words.extend(arguments.into_iter().map(OsString::from));
    let mut command = Command::new(program);
    command.args(words);
    command
}

/// `NAME, listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: …`
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = line.strip_suffix('\n')?;
    let after = |words: &str| {
        let rest = &line[line.find(words)? + words.len()..];
        rest.split([' ', ',']).next()?.trim_end_matches(':').parse::<SocketAddr>().ok()
    };
    Some((after("listening on ")?, after("counters on ")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::Setting;

    #[test]
    fn introductions() {
        let line = "web-1, listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: fixed, serial\n";
        let expected = ("127.0.0.1:9001".parse().unwrap(), "127.0.0.1:9101".parse().unwrap());
        assert_eq!(addresses(line), Some(expected));
        assert_eq!(addresses("listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: x\n"), Some(expected));
        assert_eq!(addresses(line.trim_end()), None, "the line is not whole yet");
        assert_eq!(addresses("web-1, listening on 127.0.0.1:9001: fixed\n"), None);
    }

    #[test]
    fn the_command_of_a_server() {
        let target = [("backlog", Setting::Whole(128)), ("no-keep-alive", Setting::Flag(true))]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        let mut server = Server { name: "web".into(), count: 1, address: None, target };
        let words = |server: &Server| {
            let recipe = Recipe {
                program: "balanza".into(),
                server: server.clone(),
                name: "web-1".into(),
                seed: 7,
                log: "log".into(),
            };
            let command = command(&recipe, ([127, 0, 0, 1], 0).into());
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let begin = "target --listen 127.0.0.1:0 --control 127.0.0.1:0 --name web-1";
        assert_eq!(words(&server), format!("{begin} --seed=7 --backlog=128 --no-keep-alive"));
        server.target = BTreeMap::from([("seed".into(), Setting::Whole(3))]);
        assert_eq!(words(&server), format!("{begin} --seed=3"));
    }
}
