//! Starting a system and ending it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use super::{Configuration, Programs, Setup, configuration};
use crate::plan::System;
use crate::process::{Process, how};
use crate::record::Role;

/// How long a system may take until it accepts connections.
const START_MAX: Duration = Duration::from_secs(10);

/// What a system prints, in its directory.
const LOG: &str = "output.log";

/// Another process listens on the port: to be tried again with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {0} of 127.0.0.1 is taken")]
pub struct PortTaken(pub u16);

/// Whether an error of [`start`] is about the port.
pub fn is_port_taken(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<PortTaken>())
}

/// A system that accepts requests. Dropping it ends its processes.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    host: String,
    configuration: Configuration,
    process: Option<Process>,
}

impl Running {
    /// Where requests go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What `Host` is to say.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What it was started with.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Its process, if the lab started one.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Ends it.
    pub fn stop(self) {
        if let Some(process) = self.process {
            process.stop();
        }
    }
}

/// Starts a system in a directory, which is made if it is not there, and waits until it accepts connections.
///
/// Errors: the system cannot do it; its port is taken ([`is_port_taken`]); it ends or does not listen, with its last words.
pub fn start(programs: &Programs, setup: &Setup<'_>, directory: &Path) -> anyhow::Result<Running> {
    let configuration = configuration(programs, setup)?;
    let there =
        |address: SocketAddr, host| Running { address, host, configuration: Configuration::default(), process: None };
    let Some((program, arguments)) = program(programs, setup.system)? else {
        return match setup.system {
            System::Url { url, .. } => resolve(url).map(|(address, host)| there(address, host)),
            _ => {
                let first = setup.servers.first().context("there are no servers")?;
                Ok(there(first.address, first.address.to_string()))
            }
        };
    };
    // Asked before, because whoever has the port would answer in the system's place.
    TcpListener::bind(("127.0.0.1", setup.port)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(PortTaken(setup.port)),
        _ => anyhow!(error).context(format!("cannot listen on port {} of 127.0.0.1", setup.port)),
    })?;
    let cannot_write = || format!("cannot write the configuration of {} into {}", setup.system, directory.display());
    fs::create_dir_all(directory.join("temp")).with_context(cannot_write)?;
    for (name, text) in &configuration.files {
        fs::write(directory.join(name), text).with_context(cannot_write)?;
    }
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    match setup.system {
        System::Haproxy => {}
        System::Caddy => {
            // It keeps its last configuration and its certificates there.
            let state = std::path::absolute(directory.join("temp"))?;
            for variable in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
                command.env(variable, &state);
            }
            command.env("GOMAXPROCS", setup.workers.to_string());
        }
        _ => {
            command.arg("-p").arg(std::path::absolute(directory)?);
        }
    }
    let process = Process::spawn(setup.system.name(), Role::Balancer, command, &directory.join(LOG))?;
    let address = SocketAddr::from(([127, 0, 0, 1], setup.port));
    let mut running = Running { address, host: address.to_string(), configuration, process: Some(process) };
    accepts(&mut running, setup)?;
    Ok(running)
}

/// The program of a system and its arguments, to be started in the directory of its configuration.
fn program(
    programs: &Programs,
    system: &System,
) -> anyhow::Result<Option<(std::path::PathBuf, &'static [&'static str])>> {
    const NGINX: &[&str] = &["-e", "stderr", "-c", "nginx.conf"];
    let missing = || anyhow!("{system} is not installed");
    Ok(match system {
        System::Balanza => Some((programs.balanza.path.clone(), NGINX)),
        System::Nginx | System::NginxBalanza => {
            Some((programs.nginx.as_ref().ok_or_else(missing)?.path.clone(), NGINX))
        }
        System::Haproxy => {
            Some((programs.haproxy.as_ref().ok_or_else(missing)?.path.clone(), &["-db", "-f", "haproxy.cfg"]))
        }
        System::Caddy => {
            let arguments = &["run", "--config", "Caddyfile", "--adapter", "caddyfile"];
            Some((programs.caddy.as_ref().ok_or_else(missing)?.path.clone(), arguments))
        }
        System::Direct | System::Url { .. } => None,
    })
}

/// Waits until it accepts connections.
fn accepts(running: &mut Running, setup: &Setup<'_>) -> anyhow::Result<()> {
    let (begin, address, system) = (Instant::now(), running.address, setup.system);
    let Some(process) = &mut running.process else { return Ok(()) };
    loop {
        let accepted = TcpStream::connect_timeout(&address, START_MAX).is_ok();
        if let Some(status) = process.ended() {
            let words = process.last_output();
            let taken =
                ["address already in use", "cannot bind"].iter().any(|text| words.to_lowercase().contains(text));
            let error = format!("{system} ended when it was started ({}):\n{words}", how(status));
            return Err(if taken { anyhow!(PortTaken(setup.port)).context(error) } else { anyhow!(error) });
        }
        if accepted {
            return Ok(());
        }
        if begin.elapsed() > START_MAX {
            bail!("{system} does not listen on {address} after {} s\n{}", START_MAX.as_secs(), process.last_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Address and host of `http://host[:port][/]`.
fn resolve(url: &str) -> anyhow::Result<(SocketAddr, String)> {
    let host = url.strip_prefix("http://").with_context(|| format!("{url}: only http:// is there"))?;
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        bail!("{url}: http://HOST:PORT is meant; the path is the load's");
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port { host.to_owned() } else { format!("{host}:80") };
    let mut addresses = with_port.to_socket_addrs().with_context(|| format!("{url}: cannot find {host}"))?;
    let address = addresses.next().with_context(|| format!("{url}: {host} has no address"))?;
    Ok((address, host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Algorithm;
    use crate::system::tests::algorithm;
    use crate::system::{Backend, Program};

    /// Starts what `script` says in the place of NGINX.
    fn script(text: &str, port: u16) -> anyhow::Result<Running> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nginx");
        crate::process::script(&path, text);
        let programs = Programs { nginx: Some(Program { path, version: "1.22.1".into() }), ..Programs::find() };
        start(&programs, &setup(&System::Nginx, &algorithm("rr"), port), &directory.path().join("run"))
    }

    fn setup<'a>(system: &'a System, algorithm: &'a Algorithm, port: u16) -> Setup<'a> {
        static SERVERS: std::sync::OnceLock<Vec<Backend>> = std::sync::OnceLock::new();
        let servers = SERVERS.get_or_init(|| {
            [81, 82].map(|port| Backend { name: "s".into(), address: ([127, 0, 0, 1], port).into(), weight: 1 }).into()
        });
        Setup { system, algorithm, servers, port, keep_alive: true, workers: 1 }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn a_port_that_is_taken_is_told_apart() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = holder.local_addr().unwrap().port();
        for system in [System::Nginx, System::Haproxy, System::Balanza] {
            let directory = tempfile::tempdir().unwrap();
            let error =
                start(&Programs::find(), &setup(&system, &algorithm("rr"), port), directory.path()).unwrap_err();
            assert!(is_port_taken(&error), "{error:?}");
            assert_eq!(error.to_string(), format!("port {port} of 127.0.0.1 is taken"));
        }
        // Between the question and the start.
        let said = "echo 'nginx: [emerg] bind() to 127.0.0.1:1 failed (98: Address already in use)' >&2; exit 1";
        let mut tries = (0..5).map(|_| script(said, free_port()).unwrap_err());
        let error = tries.find(|error| format!("{error:#}").contains("bind() to")).unwrap();
        assert!(is_port_taken(&error), "{error:#}");
    }

    #[test]
    fn one_that_ends_is_quoted() {
        // Somebody may have got the port meanwhile.
        let mut tries = (0..5).map(|_| script("echo unknown directive; exit 3", free_port()).unwrap_err());
        let error = tries.find(|error| !is_port_taken(error)).unwrap();
        assert_eq!(error.to_string(), "nginx ended when it was started (exit status 3):\nunknown directive");
    }

    #[test]
    fn what_is_there_already_is_not_started() {
        let directory = tempfile::tempdir().unwrap();
        let control = Algorithm { control: true, ..algorithm("round_robin") };
        let direct = start(&Programs::find(), &setup(&System::Direct, &control, 0), directory.path());
        let mut direct = direct.unwrap();
        assert_eq!((direct.address().port(), direct.host()), (81, "127.0.0.1:81"));
        assert!(direct.process().is_none() && direct.configuration().files.is_empty());
        let mine = "mine=http://127.0.0.1:8080/".parse().unwrap();
        let mine = start(&Programs::find(), &setup(&mine, &algorithm("any"), 0), directory.path()).unwrap();
        assert_eq!((mine.address().port(), mine.host()), (8080, "127.0.0.1:8080"));
    }

    #[test]
    fn urls() {
        assert_eq!(resolve("http://127.0.0.1").unwrap(), (([127, 0, 0, 1], 80).into(), "127.0.0.1".into()));
        assert_eq!(resolve("http://[::1]:81/").unwrap(), ("[::1]:81".parse().unwrap(), "[::1]:81".into()));
        for url in
            ["https://127.0.0.1", "http://", "http://127.0.0.1/x", "http://a@127.0.0.1", "http://127.0.0.1:99999"]
        {
            assert!(resolve(url).is_err(), "{url}");
        }
    }
}
