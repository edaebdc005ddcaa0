//! The balancer's process and its directory.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::algorithm::CHOOSER;
use super::config::{CERTIFICATE, KEY};
use crate::certificate::SelfSigned;

/// How long the balancer may take to end after TERM, before it and its workers are killed.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Lines of the balancer's that are quoted at most.
const QUOTED: usize = 30;

/// A running balancer. Dropping it ends the process and removes its directory.
pub(super) struct Balancer {
    child: Child,
    directory: TempDir,
    ended: bool,
}

impl Balancer {
    /// Writes the configuration into a new directory, whose path `config` gets, beside the certificate and its key, and
    /// starts `program` with it as NGINX is started.
    pub(super) fn start(
        program: &Path,
        identity: Option<&SelfSigned>,
        config: impl FnOnce(&Path) -> String,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("balanza-demo-").tempdir().context("no temporary directory")?;
        // Worker processes under another user must reach their temporary files in it.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        fs::create_dir(directory.path().join("logs"))?;
        let file = directory.path().join("nginx.conf");
        fs::write(&file, config(directory.path()))?;
        fs::write(directory.path().join("chooser.sh"), CHOOSER)?;
        if let Some(SelfSigned { certificate, key }) = identity {
            fs::write(directory.path().join(CERTIFICATE), certificate)?;
            let key_file = File::options().write(true).create_new(true).mode(0o600).open(directory.path().join(KEY));
            key_file?.write_all(key.as_bytes())?;
        }
        let output = File::create(directory.path().join("logs/output"))?;
        let child = Command::new(program)
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .args(["-g", "daemon off;"])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C on the terminal reaches only the demo, which then ends the balancer in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, directory, ended: false })
    }

    /// The file that it runs with.
    pub(super) fn config_path(&self) -> PathBuf {
        self.directory.path().join("nginx.conf")
    }

    /// The file that it writes its errors to.
    pub(super) fn error_log(&self) -> PathBuf {
        self.directory.path().join("logs/error.log")
    }

    /// Where its files are.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Tells it to load its file again.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGHUP).context("cannot signal the balancer")
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it accepts connections at `address`. Errors: it ended, or `limit` is over.
    pub(super) async fn ready(&mut self, address: SocketAddr, limit: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            self.check()?;
            if start.elapsed() > limit {
                bail!("the balancer does not listen on {address} after {limit:?}\n{}", self.output());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// An error that quotes the balancer when it has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            self.ended = true;
            self.kill_group();
            bail!("the balancer ended by itself ({status}):\n{}", self.output());
        }
        Ok(())
    }

    /// What it has printed and logged.
    fn output(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        let text = [read("logs/output"), read("logs/error.log")].join("\n");
        let lines: Vec<&str> = text.trim_matches('\n').lines().collect();
        lines[lines.len().saturating_sub(QUOTED)..].join("\n")
    }

    /// TERM, a wait, and KILL for what is still there.
    pub(super) fn stop(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        // The child was not waited for, so its id is still its own; an error means that it has ended already.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < STOP_MAX {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        self.kill_group();
        let _ = self.child.wait();
    }

    /// The supervisor leads a process group of its own: its workers, when it did not take them along.
    fn kill_group(&self) {
        let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that ignores its arguments, for what a balancer should never do.
    fn script(text: &str) -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        crate::process::script(&path, text);
        (directory, path)
    }

    fn alive(pid: i32) -> bool {
        // A killed process may be a zombie until its parent or init waits for it.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn it_is_started_like_nginx_and_ends_on_term() {
        let (_keep, program) = script("echo \"$@\"; trap 'exit 0' TERM; while :; do sleep 0.05; done");
        let mut balancer = Balancer::start(&program, None, |_| "events {}\n".into()).unwrap();
        let directory = balancer.directory.path().to_owned();
        wait_for("no output", || !balancer.output().is_empty());
        let path = directory.display();
        assert_eq!(balancer.output(), format!("-p {path} -c {path}/nginx.conf -g daemon off;"));
        assert_eq!(fs::read_to_string(balancer.config_path()).unwrap(), "events {}\n");
        let start = Instant::now();
        balancer.stop();
        assert!(start.elapsed() < STOP_MAX, "TERM was enough");
        drop(balancer);
        assert!(!directory.exists());
    }

    #[test]
    fn one_that_dies_is_quoted_and_its_workers_are_taken_along() {
        let (_keep, program) = script("sleep 600 & echo worker $!; kill -9 $$");
        let mut balancer = Balancer::start(&program, None, |_| String::new()).unwrap();
        let mut message = String::new();
        wait_for("it lives", || match balancer.check() {
            Ok(()) => false,
            Err(error) => {
                message = error.to_string();
                true
            }
        });
        assert!(message.contains("signal: 9"), "{message}");
        let worker: i32 = message.split_once("worker ").unwrap().1.trim().parse().unwrap();
        wait_for("the worker lives", || !alive(worker));
    }

    #[test]
    fn one_that_ignores_term_is_killed() {
        let (_keep, program) = script("trap '' TERM; echo ready; while :; do sleep 1; done");
        let mut balancer = Balancer::start(&program, None, |_| String::new()).unwrap();
        wait_for("not ready", || !balancer.output().is_empty());
        let pid = balancer.pid().cast_signed();
        balancer.stop();
        assert!(!alive(pid));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Balancer::start(Path::new("/no/such/program"), None, |_| String::new()).err().unwrap();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
